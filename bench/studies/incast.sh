#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# incast.sh BIN [HOSTS [BYTES [ITERATIONS [algorithm ...]]]] gathers BYTES (8M) to one of HOSTS (8) hosts of this
# machine (tests/support/hosts.sh, for root only). Its link has 2 Gbit/s and a queue of 128 KiB, and drops packets
# beyond it. For each algorithm (the chosen one, then linear with fewer and fewer senders at a time) it prints the 50th
# and 99th percentile of the calls in microseconds, and the dropped packets. RATE and QUEUE change the link. CONGESTION
# is the hosts' congestion control, by default that of this machine. BIN is the folder of twillrun and twill-bench.
# shellcheck source-path=SCRIPTDIR/../../tests source=support/hosts_alone.sh
here=$(cd "$(dirname "$0")/../../tests" && pwd)
bin=$1 hosts=${2:-8} bytes=${3:-8M} iterations=${4:-50}
if [ $# -gt 4 ]; then
    shift 4
else
    set -- auto linear linear=4 linear=2 linear=1
fi
. "$here/support/hosts_alone.sh"
hosts_up "$hosts"
[ -z "${CONGESTION:-}" ] || hosts_congestion "$CONGESTION" || skip "$CONGESTION cannot be had"
port()
{
    # shellcheck disable=SC2154 # of compare_hosts.sh
    nsenter -t "$(cat "$hosts_dir/switch.pid")" -n tc "$@"
}
lost()
{
    port -s qdisc show dev port0-0 | sed -n 's/.*dropped \([0-9]*\).*/\1/p' | head -1
}
number()
{
    sed -n "s/.*\"$1\": *\([0-9.]*\).*/\1/p" "$scratch/json" | head -1
}
port qdisc add dev port0-0 root tbf rate "${RATE:-2gbit}" burst 64kb limit "${QUEUE:-128kb}" ||
    skip "no tc tbf here"
list=$(seq -s , -f 'h%g:1' 0 $((hosts - 1)))
echo "# gather of $bytes from $hosts hosts, ${RATE:-2gbit}, queue ${QUEUE:-128kb}, congestion control" \
    "$(host_run 0 cat /proc/sys/net/ipv4/tcp_congestion_control)"
printf '%-12s %12s %12s %8s\n' algorithm "p50 (us)" "p99 (us)" lost
for algorithm in "$@"; do
    before=$(lost)
    rm -f "$scratch/json"
    host_run 0 "$bin/twillrun" --hosts "$list" --agent "$hosts_agent" "$bin/twill-bench" gather -b "$bytes" \
        -e "$bytes" -n "$iterations" -w 3 -c 1 -I 1 --algorithm "$algorithm" -J "$scratch/json" \
        >"$scratch/out" 2>&1 || fail "$algorithm: $(tail -2 "$scratch/out")"
    printf '%-12s %12.0f %12.0f %8d\n' "$algorithm" "$(number i_median)" "$(number i_p99)" \
        $(($(lost) - before))
done
