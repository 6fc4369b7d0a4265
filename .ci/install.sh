#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Install the packages of the named groups (.ci/packages), those that are missing: nothing is asked of the
# network when all are there. Usage: sh .ci/install.sh build [test] [site]
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
options="-qq -o Acquire::Retries=5 -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0"

# shellcheck disable=SC2086 # lists of words
install_missing()
{
    $root apt-get $options update &&
        $root env DEBIAN_FRONTEND=noninteractive apt-get $options install -y --no-install-recommends $missing
}

# Mirrors and locks have their moments; what was left half done is finished first.
tries=1
until install_missing; do
    [ $tries -lt 3 ] || exit 1
    echo "install.sh: that was try $tries; once more" >&2
    tries=$((tries + 1))
    sleep 10
    $root env DEBIAN_FRONTEND=noninteractive dpkg --configure -a || :
done
