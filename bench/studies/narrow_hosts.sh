#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# narrow_hosts.sh TWILL-BIN-DIRECTORY [RATE [options]]: time allreduces of f32, and of as many elements of f16 with narrow
# partial sums, between two hosts of one rank each, joined by a link of RATE (1gbit): twill-bench --narrow f16. The hosts
# are namespaces of this machine (tests/support/hosts.sh; root only) and share its cores.
# shellcheck source-path=SCRIPTDIR/../../tests source=support/hosts_alone.sh
here=$(cd "$(dirname "$0")/../../tests" && pwd)
bin=$1 rate=${2:-1gbit}
shift $(($# < 2 ? $# : 2))
. "$here/support/hosts_alone.sh"
hosts_up 2
hosts_shape "$rate" 4mb 256kb || skip "tc cannot shape a link"
host_run 0 "$bin/twillrun" --hosts h0:1,h1:1 --agent "$hosts_agent" --bind none "$bin/twill-bench" allreduce \
    -b 64K -e 16M -f 4 -n 5 --narrow f16 "$@" | sed -n '/out-of-place/,$p'
