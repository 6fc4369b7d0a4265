#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A slice of the fault campaign between hosts (namespaces), where links go down, too: CAMPAIGN_HOSTS sets of four hosts (5) with
# CAMPAIGN_TRIALS trials (8) each, with the seeds CAMPAIGN_SEED (today's date) times 100 + 1, 2, ...: other ones each day. Most of the time it waits for hosts that are silent.
# The trials and verdicts of each set stay in the folder CAMPAIGN_LOGS, if it is set, which has none of another run.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
# shellcheck disable=SC2154 # hosts_dir is of hosts.sh
. "$(dirname "$0")/../support/check.sh"
# shellcheck source-path=SCRIPTDIR source=../support/hosts.sh
. "$(dirname "$0")/../support/hosts.sh"
sets=${CAMPAIGN_HOSTS:-5} trials=${CAMPAIGN_TRIALS:-8} seed=${CAMPAIGN_SEED:-$(date +%Y%m%d)} logs=${CAMPAIGN_LOGS:-$scratch}
[ -d "$logs" ] || fail "CAMPAIGN_LOGS: there is no folder $logs"
for log in "$logs"/set.*; do # they would go into the percentiles
    [ ! -e "$log" ] || fail "CAMPAIGN_LOGS: $log is of another run"
done

hosts_up 1
hosts_down
for set in $(seq "$sets"); do
    (
        hosts_up 4
        list=$(cat "$hosts_dir/h0.pid" "$hosts_dir/h1.pid" "$hosts_dir/h2.pid" "$hosts_dir/h3.pid" | paste -s -d ,)
        code=0
        "$build/tests/campaign" --hosts "$list" --trials "$trials" --seed "$((seed * 100 + set))" --verbose >"$logs/set.$set" 2>&1 || code=$?
        hosts_down
        exit $code
    ) &
    eval "run$set=$!"
done
failed=
for set in $(seq "$sets"); do
    eval "wait \$run$set" || failed="$failed $((seed * 100 + set))"
    cat "$logs/set.$set"
done
for what in error sum; do
    sed -n "s/^trial [0-9]*: passed: \(.*\): .*$what after \([0-9.]*\) s.*/fault to last $what, \1: \2/p" "$logs"/set.* | percentiles
done
[ -z "$failed" ] || fail "trials have failed (seeds$failed)"
