#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# between_hosts.sh BIN RATE PROGRAM [ARGUMENT...] runs a program of BIN, or one in Python (.py) of this folder, on two
# hosts of one rank each. Their link has RATE, such as 1gbit. The hosts are namespaces of this machine
# (tests/support/hosts.sh, for root only) and share its cores.
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
hosts_shape "$rate" 4mb 256kb || skip "tc cannot shape a link"
host_run 0 "$bin/twillrun" --hosts h0:1,h1:1 --agent "$hosts_agent" --bind none "$@"
