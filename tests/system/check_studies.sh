#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Studies between hosts on a small scale. Skipped (77) without root, namespaces or tc.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
. "$(dirname "$0")/../support/check.sh"

# studies/overlap_hosts.sh: played training steps between two hosts on a shaped link have right values and their rows.
printf '50000 40000000\n 10\n20000\n70000 9000000\n' >"$scratch/worked"
bench_script 0 studies/overlap_hosts.sh "$scratch/worked" --overlap test --device --bucket 0,1M -n 2
[ "$(awk '/^ / && $NF == 0 && NF == 19 { printf "%s %s;", $1, $3 }' "$scratch/out")" = "0 4;1048576 1;" ] || fail "rows"
PROGRESS=thread bench_script 0 studies/overlap_hosts.sh "$scratch/worked" --overlap none --priority -n 2
[ "$(grep -c '^ .* 0$' "$scratch/out")" -eq 1 ] || fail "a row of --priority"
bench_script 2 studies/overlap_hosts.sh nonsense
echo "ok: overlap_hosts.sh"

# studies/many_ranks.sh: all other ranks return an error that names the one that is dead, and the one that makes no call.
bench_script 0 studies/many_ranks.sh 12 3 5
awk -v sanitize=${TEST_SANITIZE:+1} 'NF == 19 && $1 == 12 && $5 > 0 && $6 > 0 && ($7 > 0 || sanitize) && $10 == 11 && $13 == 11 && $14 > 11 && $15 > 0 { found = 1 } END { exit !found }' "$scratch/out" ||
    fail "many_ranks.sh: $(cat "$scratch/out" "$scratch/err")"
echo "ok: many_ranks.sh"

# row NAME: the table has this row, with its time and limits.
row()
{
    awk -v name="$1" '$1 == name && NF == 4 && $2 > 0 && $3 >= $2 && $4 ~ /^[0-9]+$/ { found = 1 } END { exit !found }' \
        "$scratch/out" || fail "no row of $1"
}

# studies/incast.sh: many hosts send to one with a slow link; each algorithm ends with right values.
bench_script 0 studies/incast.sh 3 256K 5 auto linear linear=1
grep -q '^# gather of 256K from 3 hosts, 2gbit, queue 128kb, congestion control [a-z]' "$scratch/out" || fail "no heading"
for algorithm in auto linear linear=1; do
    row $algorithm
done
cat "$scratch/out"
bench_script 1 studies/incast.sh 3 256K 5 nonsense
grep -q 'nonsense' "$scratch/out" "$scratch/err" || fail "an algorithm that is none is not named"
echo "ok: incast.sh"

[ -x "$bin/server-exchange" ] || exit 0
# Pushes to a parameter server, with and without credits.
bench_script 0 studies/server/incast_hosts.sh 3 4 1 1024
for credits in 1 1024; do
    row $credits
done
cat "$scratch/out"
echo "ok: incast_hosts.sh"

# Bytes that ranks of a parameter server send and receive between four hosts, in each layout: exactly those of
# lib/twill_server.h. A job's output does not depend on the build.
[ -z "$sanitize" ] || exit 0
bench_script 0 studies/server/traffic_hosts.sh
[ "$(grep -c ' yes$' "$scratch/out")" -eq 20 ] || fail "not four layouts of four ranks"
# At most 64 bytes beside each chunk of 32 KiB, and a tenth more on the links, for TCP and Ethernet.
awk '$1 ~ /cs|cc|nc/ && $2 != "all" { n++; if ($7 > 0.005 * $3 || $5 > 1.1 * $3) { print "rank " $2 " of " $1; exit 1 } }
    END { if (n != 16) exit 1 }' "$scratch/out" || fail "metadata, or bytes on links"
echo "ok: traffic_hosts.sh"
