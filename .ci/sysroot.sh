#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Unpack Debian's packages of another architecture, those of the group of that name in .ci/packages, into
# a folder to compile and run against. Nothing is installed, and what apt knows of this machine is left alone.
# Usage: sh .ci/sysroot.sh ARCHITECTURE FOLDER
set -eu
here=$(cd "$(dirname "$0")" && pwd)
architecture=$1
packages=$(sed -n "s/^$architecture //p" "$here/packages")
mkdir -p "$2"
cd "$2"
work=$PWD/apt
if [ "$packages" = "$(cat unpacked 2>/dev/null)" ]; then
    echo "all packages of: $architecture are unpacked"
    exit 0
fi

mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial" "$work/packages"
apt()
{
    apt-get -qq -o Acquire::Retries=5 -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" \
        -o Dir::State="$work/state" -o Dir::Cache="$work/cache" -o Dir::State::status=/dev/null \
        -o APT::Sandbox::User=root "$@"
}
apt update
# shellcheck disable=SC2086 # a list of words
(cd "$work/packages" && apt download $packages)
for package in "$work"/packages/*.deb; do
    dpkg-deb -x "$package" .
done
rm -rf "$work"
printf '%s\n' "$packages" >unpacked
