#!/bin/sh
# Put axe-core, which looks for barriers in the viewer's pages, into .venv/axe-core. Needs npm; runs in the repository.
# Exit status 3: not possible; the last line gives the reason, and the tests use the older one of their Python package.
set -eu

VERSION=4.14.1
target=.venv/axe-core
if [ "$(cat "$target/version" 2>/dev/null)" = "$VERSION" ]; then exit 0; fi
command -v npm >/dev/null || { echo "no axe-core $VERSION: install npm"; exit 3; }
mkdir -p "$target"
(cd "$target" && npm pack --silent "axe-core@$VERSION" >/dev/null) || { echo "no axe-core $VERSION: npm cannot fetch it"; exit 3; }
tar -xzf "$target/axe-core-$VERSION.tgz" -C "$target" --strip-components=1 package/axe.min.js
rm "$target/axe-core-$VERSION.tgz"
echo "$VERSION" >"$target/version"
