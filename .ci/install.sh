#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Install the packages of the named groups (.ci/packages), those that are missing: nothing is asked of the
# network when all are there. Usage: sh .ci/install.sh build [test]
set -eu
here=$(cd "$(dirname "$0")" && pwd)

if ! command -v dpkg-query >/dev/null 2>&1; then
    echo "install.sh: this is no Debian; please install the equivalents of $here/packages yourself" >&2
    exit 0
fi

missing=
for group in "$@"; do
    # shellcheck disable=SC2013 # one word a line
    for package in $(sed -n "s/^$group //p" "$here/packages"); do
        state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
        [ "$state" = installed ] || missing="$missing $package"
    done
done
if [ -z "$missing" ]; then
    echo "all packages of: $* are installed"
    exit 0
fi

root=
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "install.sh: packages are missing, and this is neither root nor is there sudo. As root:" >&2
        echo "    apt-get update && apt-get install --no-install-recommends$missing" >&2
        exit 1
    fi
    root=sudo
fi
echo "installing:$missing"
$root apt-get update -qq
# shellcheck disable=SC2086 # a list of words
$root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -o Dpkg::Use-Pty=0 \
    --no-install-recommends $missing
