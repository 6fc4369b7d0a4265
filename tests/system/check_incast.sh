#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench/studies/incast.sh on a small scale: many hosts send to one with a slow link; each algorithm ends with right
# values and its row of the table; bench/studies/server/incast_hosts.sh too. Skipped (77) without root, namespaces or tc.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
. "$(dirname "$0")/../support/check.sh"

bench_script 0 studies/incast.sh 3 256K 5 auto linear linear=1
grep -q '^# gather of 256K from 3 hosts, 2gbit, queue 128kb, congestion control [a-z]' "$scratch/out" || fail "no heading"
for algorithm in auto linear linear=1; do
    awk -v name=$algorithm '$1 == name && NF == 4 && $2 > 0 && $3 >= $2 && $4 ~ /^[0-9]+$/ { found = 1 }
        END { exit !found }' "$scratch/out" || fail "no row of $algorithm"
done
cat "$scratch/out"
bench_script 1 studies/incast.sh 3 256K 5 nonsense
grep -q 'nonsense' "$scratch/out" "$scratch/err" || fail "an algorithm that is none is not named"

# Pushes to a parameter server, with and without credits.
if [ -x "$bin/server-exchange" ]; then
    bench_script 0 studies/server/incast_hosts.sh 3 4 1 1024
    for credits in 1 1024; do
        awk -v credits=$credits '$1 == credits && NF == 4 && $2 > 0 && $3 >= $2 && $4 ~ /^[0-9]+$/ { found = 1 }
            END { exit !found }' "$scratch/out" || fail "no row of $credits credits"
    done
    cat "$scratch/out"
fi
echo "ok: incast"
