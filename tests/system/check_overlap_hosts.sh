#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench/studies/overlap_hosts.sh on a small scale: played training steps between two hosts on a shaped link have right
# values and their rows. Skipped (77) without root, namespaces or tc.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
. "$(dirname "$0")/../support/check.sh"

printf '50000 40000000\n 10\n20000\n70000 9000000\n' >"$scratch/worked"
bench_script 0 studies/overlap_hosts.sh "$scratch/worked" --overlap test --device --bucket 0,1M -n 2
[ "$(awk '/^ / && $NF == 0 && NF == 19 { printf "%s %s;", $1, $3 }' "$scratch/out")" = "0 4;1048576 1;" ] || fail "rows"
PROGRESS=thread bench_script 0 studies/overlap_hosts.sh "$scratch/worked" --overlap none --priority -n 2
[ "$(grep -c '^ .* 0$' "$scratch/out")" -eq 1 ] || fail "a row of --priority"
bench_script 2 studies/overlap_hosts.sh nonsense
echo "ok: overlap_hosts.sh"
