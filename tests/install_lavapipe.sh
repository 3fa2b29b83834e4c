#!/bin/sh
# Unpack Mesa's software Vulkan driver (lavapipe) from Debian backports into a folder; the system is not changed.
#
#   install_lavapipe.sh FOLDER      then run with:  . FOLDER/environment
#
# ManiSkill renders with Vulkan and needs Mesa 23 or newer, which Debian 12 has only in its backports. Package lists and
# archives go to a separate folder, so root is not needed and apt's sources do not change; the mirror is the system's.
# Exit status 3: not possible; the last line gives the reason.
set -eu

folder=$1
give_up() {
    echo "no software Vulkan driver: $1"
    exit 3
}

if [ -e "$folder/environment" ]; then exit 0; fi
if ! grep -qs '^VERSION_CODENAME=bookworm' /etc/os-release; then
    # On other systems, use the installed driver.
    for own in /usr/share/vulkan/icd.d/*.json /etc/vulkan/icd.d/*.json; do
        [ -e "$own" ] || continue
        mkdir -p "$folder"
        : >"$folder/environment"
        exit 0
    done
    give_up "this is not Debian 12, and the system has no Vulkan driver of its own"
fi
command -v apt-get >/dev/null && command -v dpkg >/dev/null || give_up "apt-get or dpkg is missing"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e "$keys" ] || give_up "$keys is missing"
mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list 2>/dev/null \
    | grep -v '^#' | grep -o 'https\?://[^ ]*/debian/\?' | head -n 1) || true
[ -n "$mirror" ] || give_up "the system's apt sources name no Debian mirror"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/archives/partial" "$work/root"
chmod 755 "$work"
for suite in bookworm bookworm-backports; do
    echo "deb [signed-by=$keys] $mirror $suite main"
done >"$work/sources.list"

apt() {
    apt-get -qq -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work" -o "Dir::Cache::Archives=$work/archives" \
        -o Debug::NoLocking=1 -o Acquire::Retries=2 -o Acquire::http::Timeout=30 -o APT::Sandbox::User=root "$@"
}
apt update >"$work/log" 2>&1 || give_up "apt cannot read $mirror: $(tail -n 1 "$work/log")"
apt -t bookworm-backports --no-install-recommends -y --download-only install libvulkan1 mesa-vulkan-drivers \
    >"$work/log" 2>&1 || give_up "apt cannot get mesa-vulkan-drivers from the backports: $(tail -n 1 "$work/log")"
for package in "$work"/archives/*.deb; do
    [ -e "$package" ] || break # the system has all packages
    dpkg -x "$package" "$work/root"
done

libraries=
for place in "$work"/root/usr/lib/*-linux-gnu; do
    [ -d "$place" ] && libraries=$folder/root/usr/lib/$(basename "$place")
done
driver=$work/root/usr/share/vulkan/icd.d/lvp_icd.json
for driver in "$work"/root/usr/share/vulkan/icd.d/lvp_icd*.json /usr/share/vulkan/icd.d/lvp_icd*.json; do
    [ -e "$driver" ] && break
done
[ -e "$driver" ] || give_up "the package has no driver file lvp_icd*.json"
case $driver in "$work"/*) driver=$folder/${driver#"$work"/} ;; esac

rm -rf "$folder"
mkdir -p "$folder"
cp -a "$work/root" "$folder/root"
{
    echo "export VK_ICD_FILENAMES='$driver' VK_DRIVER_FILES='$driver'"
    [ -z "$libraries" ] || echo "export LD_LIBRARY_PATH='$libraries'\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
} >"$folder/environment.new"
mv "$folder/environment.new" "$folder/environment"
