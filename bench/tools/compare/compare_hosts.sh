#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# compare_hosts.sh TWILL-COMPARE RANKS [options] compares between two hosts of RANKS ranks each.
# They are namespaces of this machine (tests/support/hosts.sh, for root only), joined by a bridge,
# and share the cores. The driver runs in the first one. TEST_HOSTS_CONGESTION is their congestion
# control, by default that of this machine. RATE is that of the link, such as 1gbit, by default
# unlimited.
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
