#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# twill-info: its output, the table of variables, and where pages are, bound and not.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
. "$(dirname "$0")/../support/check.sh"
info=$bin/twill-info
unset TWILL_MEMORY TWILL_TIMEOUT MEMKIND_HBW_NODES

expect 0 "Usage: twill-info" "$info" -h
expect 0 "twill-info 0." "$info" -V
expect 2 "unrecognized option '--foo'" "$info" --foo
expect 2 "unexpected argument: 'foo'" "$info" foo
expect 2 "--memory: 'x' is not a size" "$info" --memory=x
expect 2 "--memory: '0' is not a size" "$info" --memory 0
expect 1 "are more than the" "$info" --memory 900T

expect 0 "" "$info"
[ "$(wc -l <"$scratch/out")" -ge 3 ] || fail "too little was said"
grep -q '^interface  *lo address 127.0.0.1: there is no other rank$' "$scratch/out" || fail "interface"
grep -q '^memory fallbacks  *0 so far$' "$scratch/out" || fail "fallbacks"
expect 0 "lo address 127.0.0.1: set by TWILL_INTERFACE=lo" \
    env TWILL_INTERFACE=lo "$bin/twillrun" -n 2 "$info"
expect 0 "lo address 127.0.0.1: all ranks are on this host" "$bin/twillrun" -n 2 "$info"
[ "$(grep -c '^machine' "$scratch/out")" -eq 1 ] || fail "one rank alone speaks"

expect 0 "noticed within          a dead process 0.29 s, a silent rank 3.5 s" env TWILL_TIMEOUT=2 "$bin/twillrun" -n 2 "$info"
expect 0 ", a lost host 17" env TWILL_LAYOUT=nodes=2x1 "$bin/twillrun" -n 2 "$info"

# Recorded machines: how many L3s, and no size that is not known.
machine()
{
    env TWILL_LAYOUT=topology="${TEST_SOURCE:-$(dirname "$0")/../..}/tests/data/topologies/$1" "$info" >"$scratch/out" 2>&1 || fail "$1"
}
machine x86-AMD-19h-Zen3-2xEpyc-7763.xml
grep -q '^caches  *L1d 32 KiB, L2 512 KiB (1 core each), L3 16 of 32768 KiB$' "$scratch/out" || fail "caches"
grep -q '^memory  *NUMA 0, DDR, size unknown' "$scratch/out" || fail "a memory of 0 MiB is not unknown"
machine vm-knl-quadrant-cache.xml
grep -q '^caches .*, L3 none$' "$scratch/out" || fail "an L3 on a KNL"
machine synth-hbm-nvm.xml
grep -q '^memory  *NUMA 5, other, 488281 MiB, no cores' "$scratch/out" || fail "NVM is not distinguished"

# The hierarchy is a tree: of this rank alone, and of a job on a machine that is described.
expect 0 "" "$info"
grep -q '^hierarchy  *1 node x 1 rank$' "$scratch/out" || fail "the hierarchy of one rank"
export TWILL_LAYOUT=topology="pack:2 numa:2 core:2 pu:2"
expect 0 "" "$bin/twillrun" -n 8 --bind none "$info"
unset TWILL_LAYOUT
sed -n '/^hierarchy/,/^[^ h]/p' "$scratch/out" | sed 's/^hierarchy  */= /; /^[^ =]/d' >"$scratch/tree"
diff - "$scratch/tree" <<'END' || fail "the hierarchy of a job"
= 1 node x 2 packages x 2 NUMA nodes x 2 ranks
  node 0
    package 0
      NUMA node 0 (ranks 0-1)
      NUMA node 1 (ranks 2-3)
    package 1
      NUMA node 0 (ranks 4-5)
      NUMA node 1 (ranks 6-7)
END

# Unbound ranks belong to no level of the machine, which is reported once per job; bound ranks do. The CPUs
# are this machine's, the packages are not.
if [ "$(nproc)" -ge 2 ] && [ "$("$bin/twillrun" -n 2 sh -c 'sed -n "s/^Cpus_allowed_list:[[:space:]]*//p" /proc/self/status' | sort | tr '\n' ' ')" = "0 1 " ]; then
    export HWLOC_SYNTHETIC="pack:2 [numa] core:1 pu:1" HWLOC_THISSYSTEM=1
    expect 0 "ranks are not bound: this one and others of its node may run on the same 2 CPUs, so these levels are unknown: package, NUMA node;" \
        "$bin/twillrun" -n 2 --bind none "$info"
    [ "$(grep -c 'ranks are not bound: this one' "$scratch/out")" -eq 1 ] || fail "not said once"
    grep -q '^hierarchy  *1 node x 2 ranks$' "$scratch/out" || fail "ranks that are not bound are taken to be somewhere"
    grep -q '^binding  *rank 0 may run on CPUs 0-1; ranks of a node are not bound' "$scratch/out" || fail "binding"
    expect 0 "binding advice" env TWILL_LOG=none "$bin/twillrun" -n 2 --bind none "$info"
    ! grep -q 'ranks are not bound: this one' "$scratch/out" || fail "said in spite of TWILL_LOG=none"
    expect 0 "package 1 (rank 1)" "$bin/twillrun" -n 2 "$info"
    ! grep -qE 'not bound|advice' "$scratch/out" || fail "bound ranks are said not to be"
    # With a single core there is nothing to report.
    expect 0 "" taskset -c 0 "$bin/twillrun" -n 2 --bind none "$info"
    ! grep -qE 'may run on the same' "$scratch/out" || fail "ranks of one core are said not to be bound"
    unset HWLOC_SYNTHETIC HWLOC_THISSYSTEM
else
    echo "left out: what is said of bound ranks, because this machine has not just CPUs 0 and 1"
fi

# A variable: its row by default, and when it is set.
variable_row()
{
    grep "^$1 " "$scratch/out" || fail "no row for $1"
}
expect 0 "variable" "$info" --env
before=$(variable_row TWILL_TIMEOUT)
export TWILL_TIMEOUT=33
expect 0 "variable" "$info" --env
after=$(variable_row TWILL_TIMEOUT)
unset TWILL_TIMEOUT
[ "$before" != "$after" ] || fail "TWILL_TIMEOUT=33 is not shown"
echo "$after" | grep -q '^TWILL_TIMEOUT  *33  *600 ' || fail "value and default: $after"

# Communication threads: on the PU that no rank may run on, or not bound, with an endpoint each.
expect 0 "endpoint and queue of its own" env TWILL_LAYOUT=nodes=2x1 "$bin/twillrun" -n 2 "$info" --gradient-threads 2
[ "$(grep -c "^rank [01]: 2 communication threads" "$scratch/out")" = 2 ] || fail "--gradient-threads: the ranks"
[ "$(grep -c "thread [01] -> endpoint" "$scratch/out")" = 4 ] || fail "--gradient-threads: the threads"
expect 2 "number from 1 to 64" "$info" --gradient-threads 0

# Which thread works where: in a job, on a KNL and on a machine of two Xeons.
expect 0 "of 64 MiB 32 MiB" "$bin/twillrun" -n 2 --bind none --oversubscribe "$info" --threads=2
[ "$(grep -c "^rank [01]: 2 threads on [0-9]* core" "$scratch/out")" = 2 ] || fail "--threads in a job"
expect 0 "nearest NUMA nodes: " "$info" --threads
machines=$source/tests/data/topologies
expect 0 "16 threads on 16 cores, CPUs 0-15,64-79,128-143,192-207" "$info" --threads 16 --ppn 4 \
    --topology "$machines/x86-Intel-KnightsLanding-XeonPhi-7210.xml"
grep -q "PU 24   1:8  1:9  | 1:10 1:11 | 1:12 1:13 | 1:14 1:15 |" "$scratch/out" || fail "tiles of a KNL"
[ "$(grep -c "|\$" "$scratch/out")" = 8 ] || fail "rows of a KNL"
expect 0 "rank 1: 18 threads on 18 cores" "$info" --threads --ppn 2 --topology "$machines/x86-Intel-Skylake-2xXeon6140.xml"
grep -A 3 "package 1" "$scratch/out" | grep -q "PU 1    1:0  | 1:1  | 1:2 " || fail "the second Xeon"
expect 0 "nearest NUMA nodes: 1 (MCDRAM, 0.2 GiB), 0 (DDR, 0.7 GiB)" "$info" --threads 2 --topology "$machines/vm-knl-quadrant-flat.xml"
grep -q "PU 0    0:0 | 0:1 | \.   | \.   |" "$scratch/out" || fail "cores without a thread"
expect 0 "from which size several threads pay is measured on the machine itself" "$info" --threads 9 --topology "core:9 pu:1"
grep -q "PU 8    0:8 |" "$scratch/out" || fail "two rows"
expect 1 "2 ranks with 8 cores each need 16, and 8 may be used here" "$info" --threads 8 --ppn 2 --topology "pack:2 core:4 pu:2"
expect 2 "'0' is not a number from 1 to 1024" "$info" --threads=0
expect 2 "--topology with --threads also, and --ppn with these two" "$info" --threads --ppn 2

# Pages: all of them are somewhere.
result=0
"$info" --memory 3M >"$scratch/out" 2>&1 || result=$?
if [ $result -ne 0 ] && grep -q "Operation not permitted" "$scratch/out"; then
    skip "the kernel does not allow asking where pages are"
fi
[ $result -eq 0 ] || fail "--memory"
awk '/NUMA node/ { pages += $4 } END { exit pages * 4096 < 3 * 1048576 }' "$scratch/out" || fail "too few pages"

# bind to a node that counts as MCDRAM; and where there is none.
export TWILL_MEMORY=mcdram:bind
MEMKIND_HBW_NODES=0
export MEMKIND_HBW_NODES
expect 0 "Bound as requested" "$info" --memory=5M
TWILL_MEMORY=mcdram:bind,mcdram:bind
expect 0 "2 ranks' regions of a communicator, policy: bind" "$bin/twillrun" -n 2 "$info" --memory=5M
[ "$(grep -c 'Bound as requested' "$scratch/out")" -eq 2 ] || fail "not both kinds are bound"
expect 0 "" "$bin/twillrun" -n 2 "$info"
awk '/^memory held / { n = $(NF - 3); all = $(NF - 5) } END { exit !(n > 0 && n == all) }' "$scratch/out" ||
    fail "what is held of the library is not of MCDRAM"
TWILL_MEMORY=mcdram:bind
unset MEMKIND_HBW_NODES
result=0
"$info" --memory=5M >"$scratch/out" 2>&1 || result=$?
if grep -q "Bound as requested" "$scratch/out"; then
    echo "this machine has MCDRAM"
elif [ $result -ne 1 ]; then
    fail "mcdram:bind without MCDRAM: status $result"
fi

# MCDRAM that was requested and is missing: reported once, and counted.
if [ "$("$info" | grep -c MCDRAM/HBM)" -eq 0 ]; then
    expect 0 "meant for MCDRAM or HBM are in DDR: mcdram: DDR: this machine has no MCDRAM" \
        env TWILL_MEMORY=mcdram "$bin/twillrun" -n 3 --bind none "$info" --memory 1M
    [ "$(grep -c 'meant for MCDRAM or HBM' "$scratch/out")" -eq 1 ] || fail "not said once"
fi
