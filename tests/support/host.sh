#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# host.sh K command...: exec a command in a host of hosts.sh, in the current directory.
host=$1
shift
# shellcheck disable=SC2016 # to be expanded in there
exec nsenter -t "$(cat "$TEST_HOSTS/h$host.pid")" -n -u -i -m -- sh -c 'cd "$0" && exec "$@"' "$PWD" "$@"
