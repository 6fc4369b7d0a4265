#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Becomes a command in a host of hosts.sh, in the current directory: host.sh K command...
host=$1
shift
# shellcheck disable=SC2016 # to be expanded in there
exec nsenter -t "$(cat "$TEST_HOSTS/h$host.pid")" -n -u -i -m -- sh -c 'cd "$0" && exec "$@"' "$PWD" "$@"
