#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# compression_hosts.sh BUILD-BIN-DIRECTORY [RATE [bytes...]]: the program compression between two hosts of one rank each, joined by
# a link of RATE (1gbit). The hosts are namespaces of this machine (tests/support/hosts.sh; root only) and share its cores.
# shellcheck source-path=SCRIPTDIR/../../tests source=support/hosts_alone.sh
here=$(cd "$(dirname "$0")/../../tests" && pwd)
bin=$1 rate=${2:-1gbit}
shift $(($# < 2 ? $# : 2))
. "$here/support/hosts_alone.sh"
hosts_up 2
hosts_shape "$rate" 4mb 256kb || skip "tc cannot shape a link"
host_run 0 "$bin/twillrun" --hosts h0:1,h1:1 --agent "$hosts_agent" --bind none "$bin/compression" "$@"
