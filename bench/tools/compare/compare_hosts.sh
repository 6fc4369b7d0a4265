#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# compare_hosts.sh TWILL-COMPARE RANKS [options]: compare between two hosts of RANKS ranks each,
# which are namespaces of this machine (tests/support/hosts.sh; root only), joined by a bridge. They
# share the cores. The driver runs in the first one. TEST_HOSTS_CONGESTION: their congestion
# control; by default this machine's. RATE: the link's, such as 1gbit; by default none is set.
# shellcheck source-path=SCRIPTDIR/../../../tests source=support/hosts_alone.sh
here=$(cd "$(dirname "$0")/../../../tests" && pwd)
compare=$1 ranks=$2
shift 2
. "$here/support/hosts_alone.sh"
hosts_up 2
if [ -n "${TEST_HOSTS_CONGESTION:-}" ]; then
    hosts_congestion "$TEST_HOSTS_CONGESTION" || skip "$TEST_HOSTS_CONGESTION cannot be had"
fi
[ -z "${RATE:-}" ] || hosts_shape "$RATE" || skip "no tc tbf here"
host_run 0 "$compare" --hosts "h0:$ranks,h1:$ranks" --agent "$hosts_agent" --bind shared "$@"
