#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# twill-place: a row for each kind of memory, with MCDRAM and without. The measurements are not judged.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
. "$(dirname "$0")/../support/check.sh"
place=$bin/twill-place
unset TWILL_MEMORY TWILL_LAYOUT MEMKIND_HBW_NODES

# check_kinds "KIND..." REDUCED: a row for each kind, ddr first, ratios to it. REDUCED 0: no allreduce.
check_kinds()
{
    # shellcheck disable=SC2016 # awk's dollars
    awk -v kinds="$1" -v reduced="$2" '
        function bad(why) { print "row: " $0 ": " why; failures++ }
        function number(i) { return $i ~ /^[0-9]+\.[0-9][0-9]$/ }
        BEGIN { rows = split(kinds, kind) }
        /^#/ { next }
        { n++ }
        NF != 15 || $1 != kind[n] { bad("form") }
        { for (i = 2; i < 15; i += 2) if (i < 8 || reduced ? !number(i) || !number(i + 1) : $i != "N/A") bad("rates") }
        n == 1 { for (i = 2; i < 15; i += 2) first[i] = $i }
        { for (i = 2; i < (reduced ? 15 : 8); i += 2) {
              off = $i - $(i + 1) * first[i] # what rounding to two places leaves
              if (off * off > (0.01 * (first[i] + $(i + 1) + 1)) ^ 2) bad("ratio")
          } }
        END { if (n != rows) print n + 0, "rows, not", rows; exit n != rows || failures > 0 }
    ' "$scratch/out" || fail "the table"
}

export MEMKIND_HBW_NODES=0
ranks 2 "$place" -b 1M -n 3 -p "$scratch/place.svg" || fail "2 ranks, two kinds"
check_kinds "ddr mcdram" 1
[ "$(grep -c '<title>\(ddr\|mcdram\) [a-z]*: [0-9.]* GB/s</title>' "$scratch/place.svg")" -eq 14 ] || fail "the plot has not a bar for each kind and column"
grep -q '^# no CXL on this machine (.*no CXL node)$' "$scratch/out" || fail "no CXL: why"
grep -q '^# memory for twill_alloc: mcdram:bind: .* so named by MEMKIND_HBW_NODES' "$scratch/out" ||
    fail "it does not say what was taken for MCDRAM"
TWILL_LAYOUT=nodes=2x1 ranks 2 "$place" --bytes 100001 --repeats 2 || fail "2 nodes, two kinds"
check_kinds "ddr mcdram" 1
ranks 1 "$place" -b 256K -n 1 -t 2 || grep -q "without OpenMP" "$scratch/err" || fail "threads"
grep -q "without OpenMP" "$scratch/err" || check_kinds "ddr mcdram" 0

# A missing node, and none named: one row and the reason.
MEMKIND_HBW_NODES=63
ranks 3 "$place" -b 1M -n 2 || fail "3 ranks, no such node"
check_kinds ddr 1
grep -q '^# no MCDRAM on this machine: .*MEMKIND_HBW_NODES=63 names' "$scratch/out" ||
    fail "no such node: why"
unset MEMKIND_HBW_NODES
ranks 2 "$place" -b 1M -n 2 || fail "2 ranks"
if grep -q '^# no MCDRAM on this machine: MEMKIND_HBW_NODES=N pretends' "$scratch/out"; then
    check_kinds ddr 1
else
    check_kinds "ddr mcdram" 1
    echo "this machine has MCDRAM"
fi

# A machine whose NUMA node 0 is said to be on CXL: its pages are bound there.
cat >"$scratch/cxl.xml" <<'END'
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" allowed_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" allowed_nodeset="0x00000001" gp_index="1">
    <object type="NUMANode" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="2" subtype="CXL-DRAM" local_memory="4000000000"/>
    <object type="Core" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="3">
      <object type="PU" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="4"/>
    </object>
    <object type="Core" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="5">
      <object type="PU" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="6"/>
    </object>
  </object>
</topology>
END
HWLOC_XMLFILE=$scratch/cxl.xml HWLOC_THISSYSTEM=1 ranks 2 "$place" -b 64K -n 2 || fail "CXL"
check_kinds "ddr cxl" 1
grep -q '^# memory for twill_alloc: cxl:bind: 3814 MiB CXL at NUMA 0, bound$' "$scratch/out" || fail "it does not say what CXL is"

# Wrong command lines and impossible requests.
while IFS='|' read -r text arguments; do
    # shellcheck disable=SC2086 # a list of words
    expect 2 "$text" "$place" $arguments
done <<'END'
-b/--bytes: 'x' is not a size|-b x
-b/--bytes: '100' is not a size|-b 100
-n/--repeats: '0' is not a number|-n 0
-n/--repeats: '3x' is not a number|--repeats 3x
-t/--threads: '0' is not|-t 0
-t/--threads: '-1' is not|--threads -1
unrecognized option '--size'|--size 8
unexpected argument: 'ddr'|ddr
END
expect 1 "twill-place: ddr: no memory for" "$bin/twillrun" -n 2 "$place" -b 1000T
expect 1 "twill-place: -p: /nonexistent/x: No such file" "$bin/twillrun" -n 2 "$place" -b 4K -n 1 -p /nonexistent/x
expect 0 "Usage: twill-place" "$place" --help
expect 0 "twill-place 0." "$place" -V
