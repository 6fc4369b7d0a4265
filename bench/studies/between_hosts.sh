#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# between_hosts.sh BIN RATE PROGRAM [ARGUMENT...] runs a program of BIN, or one in Python (.py) of this folder, on two
# hosts. Their link has RATE, such as 1gbit. The hosts are namespaces of this machine
# (tests/support/hosts.sh, for root only) and share its cores. RATE none does not limit the link. RANKS is
# the number of ranks of each host (1). CONGESTION is the congestion control of the hosts and of twill's TCP; by default
# both choose.
# shellcheck source-path=SCRIPTDIR/../../tests source=support/hosts_alone.sh
studies=$(cd "$(dirname "$0")" && pwd)
here=$(cd "$(dirname "$0")/../../tests" && pwd)
bin=$1 rate=$2 program=$3
shift 3
. "$here/support/hosts_alone.sh"
case $program in
*.py)
    PYTHONPATH=$bin/../python
    export PYTHONPATH
    set -- -x PYTHONPATH python3 "$studies/$program" "$@"
    ;;
*) set -- "$bin/$program" "$@" ;;
esac
hosts_up 2
[ "$rate" = none ] || hosts_shape "$rate" 4mb 256kb || skip "tc cannot shape a link"
if [ -n "${CONGESTION:-}" ]; then
    hosts_congestion "$CONGESTION" || skip "$CONGESTION is not available"
    set -- -x TWILL_TUNE "$@"
    export TWILL_TUNE="congestion=$CONGESTION"
fi
host_run 0 "$bin/twillrun" --hosts "h0:${RANKS:-1},h1:${RANKS:-1}" --agent "$hosts_agent" --bind none "$@"
