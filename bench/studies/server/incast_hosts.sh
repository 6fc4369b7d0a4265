#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# incast_hosts.sh BIN [HOSTS [STEPS [credits ...]]] lets many workers push to one server. Each of the HOSTS (10) is a
# host of this machine (tests/support/hosts.sh, for root only). The server's link has 100 Mbit/s and a queue of 96 KiB,
# and drops packets beyond it. For each number of options.credits (1 2 8 1024, where 1024 is no bound) it prints the
# 50th and 99th percentile of STEPS (30) exchanges of the first worker, and the dropped packets. RATE and QUEUE change
# the link, which has to be slow in comparison with the processors. CHUNK is the bytes of a chunk (8K). All chunks that
# workers may have on the way should fit into the queue. LIST is a list in bench/gradients (orlob). BIN is the folder of
# twillrun and server-exchange.
# shellcheck source-path=SCRIPTDIR/../../../tests source=support/hosts_alone.sh
here=$(cd "$(dirname "$0")/../../../tests" && pwd)
bin=$(cd "$1" && pwd) hosts=${2:-10} steps=${3:-30} list=$here/../bench/gradients/${LIST:-orlob}.txt
if [ $# -gt 3 ]; then
    shift 3
else
    set -- 1 2 8 1024
fi
. "$here/support/hosts_alone.sh"
hosts_up "$hosts"
port()
{
    # shellcheck disable=SC2154 # of hosts.sh
    nsenter -t "$(cat "$hosts_dir/switch.pid")" -n tc "$@"
}
lost()
{
    port -s qdisc show dev port0-0 | sed -n 's/.*dropped \([0-9]*\).*/\1/p' | head -1
}
port qdisc add dev port0-0 root tbf rate "${RATE:-100mbit}" burst 64kb limit "${QUEUE:-96kb}" || skip "no tc tbf here"
line=$(seq -s , -f 'h%g:1' 0 $((hosts - 1)))
echo "# $((hosts - 1)) workers push ${LIST:-orlob} to one server, ${RATE:-100mbit}, queue ${QUEUE:-96kb}"
printf '%-8s %12s %12s %8s\n' credits "p50 (ms)" "p99 (ms)" lost
for credits in "$@"; do
    before=$(lost)
    TWILL_PROVIDER=tcp host_run 0 "$bin/twillrun" --hosts "$line" --agent "$hosts_agent" --bind none -x TWILL_PROVIDER "$bin/server-exchange" \
        --list "$list" --layout nc --steps "$steps" --credits "$credits" --chunk "${CHUNK:-8K}" --times >"$scratch/out" 2>&1 || fail "credits $credits: $(tail -2 "$scratch/out")"
    grep -q ' 0 wrong$' "$scratch/out" || fail "credits $credits: wrong parameters"
    # shellcheck disable=SC2046,SC2183 # two words
    printf '%-8s %12s %12s %8d\n' "$credits" $(sed -n 's/^an exchange: p50 \(.*\) ms p99 \(.*\) ms$/\1 \2/p' "$scratch/out") $(($(lost) - before))
done
