#!/bin/sh
# Install Debian's Chromium for the viewer's tests, if the user is root on Debian.
# Exit status 3: not possible; the last line gives the reason, and the tests are skipped.
set -eu

for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null; then exit 0; fi
done
give_up() {
    echo "no Chromium: $1"
    exit 3
}
command -v apt-get >/dev/null || give_up "install it with the system's package manager"
[ "$(id -u)" = 0 ] || give_up "install it with: sudo apt-get install chromium"
{ apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install chromium; } >/dev/null \
    || give_up "apt-get cannot install it"
