#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# twill-place: a row for each kind of memory, with MCDRAM and without. The measurements are not judged.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
. "$(dirname "$0")/../support/check.sh"
place=$bin/twill-place
unset TWILL_MEMORY TWILL_LAYOUT MEMKIND_HBW_NODES

# check_kinds ROWS REDUCED: ROWS rows, ddr first, ratios to it. REDUCED 0: no allreduce.
check_kinds()
{
    # shellcheck disable=SC2016 # awk's dollars
    awk -v rows="$1" -v reduced="$2" '
        function bad(why) { print "row: " $0 ": " why; failures++ }
        /^#/ { next }
        { n++ }
        NF != 7 || $1 != (n == 1 ? "ddr" : "mcdram") { bad("form") }
        function number(i) { return $i ~ /^[0-9]+\.[0-9][0-9]$/ }
        !number(2) || !number(4) || (reduced ? !number(6) : $6 != "N/A") { bad("rates") }
        n == 1 { for (i = 2; i < 7; i += 2) first[i] = $i }
        { for (i = 2; i < (reduced ? 7 : 5); i += 2) {
              off = $i - $(i + 1) * first[i] # what rounding to two places leaves
              if (off * off > (0.01 * (first[i] + $(i + 1) + 1)) ^ 2) bad("ratio")
          } }
        END { if (n != rows) print n + 0, "rows, not", rows; exit n != rows || failures > 0 }
    ' "$scratch/out" || fail "the table"
}

export MEMKIND_HBW_NODES=0
ranks 2 "$place" -b 1M -n 3 || fail "2 ranks, two kinds"
check_kinds 2 1
grep -q '^# memory for twill_alloc: mcdram:bind: .* so named by MEMKIND_HBW_NODES' "$scratch/out" ||
    fail "it does not say what was taken for MCDRAM"
TWILL_LAYOUT=nodes=2x1 ranks 2 "$place" --bytes 100001 --repeats 2 || fail "2 nodes, two kinds"
check_kinds 2 1
ranks 1 "$place" -b 256K -n 1 -t 2 || grep -q "without OpenMP" "$scratch/err" || fail "threads"
grep -q "without OpenMP" "$scratch/err" || check_kinds 2 0

# A missing node, and none named: one row and the reason.
MEMKIND_HBW_NODES=63
ranks 3 "$place" -b 1M -n 2 || fail "3 ranks, no such node"
check_kinds 1 1
grep -q '^# no MCDRAM on this machine: .*MEMKIND_HBW_NODES=63 names' "$scratch/out" ||
    fail "no such node: why"
unset MEMKIND_HBW_NODES
ranks 2 "$place" -b 1M -n 2 || fail "2 ranks"
if grep -q '^# no MCDRAM on this machine: MEMKIND_HBW_NODES=N pretends' "$scratch/out"; then
    check_kinds 1 1
else
    check_kinds 2 1
    echo "this machine has MCDRAM"
fi

# Wrong command lines and impossible requests.
while IFS='|' read -r text arguments; do
    # shellcheck disable=SC2086 # a list of words
    expect 2 "$text" "$place" $arguments
done <<'END'
-b: 'x' is not a size|-b x
-b: '100' is not a size|-b 100
-n: '0' is not a number|-n 0
-n: '3x' is not a number|--repeats 3x
-t: '0' is not|-t 0
-t: '-1' is not|--threads -1
unrecognized option '--size'|--size 8
unexpected argument: 'ddr'|ddr
END
expect 1 "twill-place: ddr: twill_alloc: no room for" "$bin/twillrun" -n 2 "$place" -b 1000T
expect 0 "Usage: twill-place" "$place" --help
expect 0 "twill-place 0." "$place" -V
