#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The remote shell of hosts.sh's hosts, called like ssh and rsh (by twillrun, Hydra, Open MPI):
# agent.sh [-x] [-l user] [-o option] HOST command... HOST is a name or address. The command is
# passed to a shell, which starts in / with a login's environment, plus variables that sanitizers
# and these hosts need.
while :; do
    case $1 in
    -l | -o | -p) shift 2 ;;
    -*) shift ;;
    *) break ;;
    esac
done
host=$1
shift
case $host in
10.88.*) host=h$((${host##*.} - 1)) ;;
fd88:*) host=h$((${host##*:} - 1)) ;;
h*-*) host=${host%-*} ;;
esac
if [ ! -e "$TEST_HOSTS/$host.pid" ]; then
    echo "agent.sh: could not resolve hostname $host" >&2
    exit 255
fi
line="cd /; $*"
set --
for name in PATH HOME USER TMPDIR TEST_HOSTS TSAN_OPTIONS ASAN_OPTIONS LSAN_OPTIONS UBSAN_OPTIONS; do
    ! value=$(printenv $name) || set -- "$@" "$name=$value"
done
exec "$(dirname "$0")/host.sh" "${host#h}" env -i "$@" /bin/sh -c "$line"
