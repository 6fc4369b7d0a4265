#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# segments_hosts.sh BIN [RATE [MIB [SEGMENTS]]] measures a reduce_scatter of MIB (16) MiB between two hosts of one rank
# each, in one segment and in SEGMENTS (16). Their link has RATE (1gbit). Summing takes half as long as the network
# does, as long, and twice as long (twill-bench --reduce-delay). In one segment a rank first waits for the data and then
# sums it, which takes wire + sum. In n segments it sums one segment while the next is on the wire, which takes
# max(wire, sum) + min(wire, sum) / n. It prints milliseconds. The hosts are namespaces of this machine
# (tests/support/hosts.sh, for root only). BIN is the folder of twillrun and twill-bench.
# shellcheck source-path=SCRIPTDIR/../../tests source=support/hosts_alone.sh
here=$(cd "$(dirname "$0")/../../tests" && pwd)
bin=$1 rate=${2:-1gbit} mib=${3:-16} segments=${4:-16}
. "$here/support/hosts_alone.sh"
hosts_up 2
hosts_shape "$rate" 32mb 256kb || skip "tc cannot shape a link"

# run SEGMENT [options] prints the median time of a call in microseconds, with segments of SEGMENT bytes.
run()
{
    segment=$1
    shift
    host_run 0 env TWILL_TUNE="segment=1G,segment_net=$segment" "$bin/twillrun" --hosts h0:1,h1:1 --agent "$hosts_agent" --bind none \
        "$bin/twill-bench" reduce_scatter -b "${mib}M" -e "${mib}M" -n 7 -w 2 --csv "$@" |
        awk -F , '/^[^#]/ && !n {for (n = 1; n <= NF; n++) if ($n == "time_us") at = n; next} /^[^#]/ {print $at; exit}'
}
half=$((mib * 524288))  # what a rank receives and sums
wire=$(run 1G)
printf '%8s %8s   %10s %10s   %10s %10s\n' wire sum "1 segment" model "$segments" model
for share in 50 100 200; do
    delay=$(awk -v us="$wire" -v bytes=$half -v share=$share 'BEGIN {printf "%d", us * 1000 * share / 100 / (bytes / 1024)}')
    one=$(run 1G --reduce-delay "$delay")
    several=$(run $((half / segments)) --reduce-delay "$delay")
    awk -v wire="$wire" -v delay="$delay" -v bytes=$half -v n="$segments" -v one="$one" -v several="$several" 'BEGIN {
        wire /= 1000; sum = delay * bytes / 1024 / 1e6; most = wire > sum ? wire : sum; least = wire + sum - most
        printf "%8.1f %8.1f   %10.1f %10.1f   %10.1f %10.1f\n", wire, sum, one / 1000, wire + sum, several / 1000, most + least / n}'
done
