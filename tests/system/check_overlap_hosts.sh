#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench/bench/overlap_hosts.sh on a small scale: played training steps between two hosts on a shaped link have right
# values and their rows. Skipped (77) without root, namespaces or tc.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
# shellcheck disable=SC2154 # source: of rules.sh
. "$(dirname "$0")/../support/check.sh"

# overlap STATUS ARGUMENT...
overlap()
{
    overlap_wanted=$1 overlap_got=0
    shift
    timeout -k 10 "$patience" sh "$source/bench/bench/overlap_hosts.sh" "$bin" "$@" >"$scratch/out" 2>"$scratch/err" ||
        overlap_got=$?
    [ $overlap_got -ne 77 ] || skip "$(tail -n 1 "$scratch/err")"
    [ $overlap_got -eq "$overlap_wanted" ] || fail "overlap_hosts.sh $*: status $overlap_got, not $overlap_wanted"
}

printf '50000 40000000\n 10\n20000\n70000 9000000\n' >"$scratch/worked"
overlap 0 "$scratch/worked" --overlap test --device --bucket 0,1M -n 2
[ "$(awk '/^ / && $NF == 0 && NF == 19 { printf "%s %s;", $1, $3 }' "$scratch/out")" = "0 4;1048576 1;" ] || fail "rows"
PROGRESS=thread overlap 0 "$scratch/worked" --overlap none --priority -n 2
[ "$(grep -c '^ .* 0$' "$scratch/out")" -eq 1 ] || fail "a row of --priority"
overlap 2 nonsense
echo "ok: overlap_hosts.sh"
