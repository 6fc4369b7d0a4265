#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Placement in MCDRAM, in emulated KNL nodes (qemu, software emulation; correctness only): quadrant flat,
# SNC4 flat, cache mode, and hybrid: half of the MCDRAM a cache, as hwloc's dump of the firmware's tables says there.
# A fifth machine is no KNL: two sockets with HBM, as on a Xeon Max, described by HMAT.
# test_lib_placement and twill-info ask the kernel there by move_pages() where pages of four ranks are. All of it also
# runs the tests of the module numa, twill-place and a training (examples/train.c) with its gradients in MCDRAM.
# tests/system/check_knl.sh runs it. Usage: sh tests/system/vm/knl.sh BUILD [KERNEL]
#   BUILD   a build tree with tests, tools and examples (default: build-release)
#   KERNEL  a directory with boot/vmlinuz-*: a Debian kernel image, unpacked. Default: that of TEST_KERNEL,
#           else it is downloaded (27 MB, linux-image-cloud-amd64), not installed.
# Needs what guest.sh needs; skipped (77) if something is missing. With TEST_SEED, as in CI, one of the five machines is
# started, another one with the next seed, and only for where pages are; without it, or with TEST_WHOLE=1, all of it.
set -eu

source=$(cd "$(dirname "$0")/../../.." && pwd)
# shellcheck source-path=SCRIPTDIR source=guest.sh
. "$source/tests/system/vm/guest.sh"
build=${1:-$source/build-release}
kernel=${2:-${TEST_KERNEL:-}}
patience=${TEST_VM_TIMEOUT:-900}

[ ! -d "$build" ] || build=$(cd "$build" && pwd)
for program in "$build/tests/test_lib_placement" "$build/bin/twill-info" "$build/bin/twillrun"; do
    [ -x "$program" ] || skip "no $program: build it first"
done
guest_tools awk
guest_begin awk

# The newest kernel image of Debian, unpacked into $scratch/kernel.
download()
{
    for tool in apt-get apt-cache dpkg-deb; do
        command -v $tool >/dev/null || skip "no kernel, and no $tool to get one"
    done
    package=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/.*Depends: //p' | head -n 1)
    [ -n "$package" ] || skip "no kernel, and apt-get knows of none (apt-get update?)"
    mkdir "$scratch/kernel"
    (cd "$scratch/kernel" && apt-get -qq -o APT::Sandbox::User=root download "$package" 2>&1) ||
        skip "no kernel, and $package cannot be downloaded"
    dpkg-deb --fsys-tarfile "$scratch/kernel"/*.deb | tar -xf - -C "$scratch/kernel" ./boot
}
if [ -z "$kernel" ]; then
    download
    kernel=$scratch/kernel
fi
guest_kernel "$kernel"
guest_add "$build/tests/test_lib_placement" "$build/bin/twill-info" "$build/bin/twillrun"
memkind=$(ldconfig -p | sed -n 's/.*libmemkind\.so\.0 .*=> //p' | head -n 1)
[ -z "$memkind" ] || guest_add "$memkind"
all=
if [ -z "${TEST_SEED:-}" ] || [ -n "${TEST_WHOLE:-}" ]; then
    all=all
    guest_add "$build/tests/test_numa_memory" "$build/tests/test_numa_bind" "$build/tests/test_numa_topology" \
        "$build/tests/test_numa_decide" "$build/bin/twill-place" "$build/bin/train" "$source/examples/data/wdbc.csv"
    mkdir -p "$root$source/tests/data"
    cp -r "$source/tests/data/topologies" "$root$source/tests/data/"
fi

# What the machines run: each command between two lines that name it, the second with its status.
guest_pack <<INIT
run()
{
    name=\$1
    shift
    echo "begin \$name"
    env "\$@" 2>&1
    echo "end \$name \$?"
}
info=$build/bin/twill-info
job="$build/bin/twillrun -n 4"
if grep -q mcdram=hybrid /proc/cmdline; then
    mkdir -p /run/hwloc
    printf '%s\n' 'version: 2' 'cache_size: 402653184' 'associativity: 1' 'inclusiveness: 1' 'line_size: 64' \
        'cluster_mode: Quadrant' 'memory_mode: Hybrid50' >/run/hwloc/knl_memoryside_cache
fi
run machine \$info
if grep -q twill=all /proc/cmdline; then
    for test in memory bind topology decide; do
        run numa_\$test $build/tests/test_numa_\$test
    done
    run trained_ddr TWILL_MEMORY=ddr,ddr \$job $build/bin/train --data $source/examples/data/wdbc.csv --epochs 3
    if ! grep -q mcdram=cache /proc/cmdline; then
        run trained TWILL_MEMORY=mcdram:bind,mcdram:bind \$job $build/bin/train --data $source/examples/data/wdbc.csv --epochs 3
        run places \$job $build/bin/twill-place -b 256K -n 1
    fi
fi
if grep -q mcdram=cache /proc/cmdline; then
    run refused TWILL_MEMORY=mcdram:bind \$info
    run fallback TWILL_MEMORY=hbm,mcdram \$job \$info
else
    run placed $build/tests/test_lib_placement
    run bound TWILL_MEMORY=mcdram:bind,mcdram:bind \$job \$info --memory=16M
    grep -q mcdram=flat /proc/cmdline && run too_much TWILL_MEMORY=hbm:bind,ddr \$info --memory=400M
    if grep -q mcdram=sockets /proc/cmdline; then
        run unbound TWILL_MEMORY=hbm:bind,ddr \$info --memory=300M
        run spread TWILL_MEMORY=hbm:interleave,ddr \$info --memory=32M
    fi
fi
INIT

# boot MACHINE MODE ARGUMENT...: MODE is for /init.
cpu=KnightsMill,model=87
boot()
{
    machine=$1 mode=$2
    shift 2
    echo "== $machine: kernel $version, software emulation, at most $patience s"
    guest_boot "$patience" "mcdram=$mode twill=$all" -cpu "$cpu" -machine q35 "$@"
    grep -q '^end ' "$scratch/log" || {
        cat "$scratch/qemu"
        fail "the machine did not come up"
    }
}

fail()
{
    echo "$me: FAILED: $machine: $*"
    exit 1
}

# ends NAME STATUS [PATTERN]...: the command ended so, and said a line that matches each pattern.
ends()
{
    name=$1
    grep -qx "end $1 $2" "$scratch/log" || fail "$1 did not end with $2"
    shift 2
    awk -v name="$name" '$0 == "begin " name { on = 1 } on { print } $1 == "end" { on = 0 }' \
        "$scratch/log" >"$scratch/said"
    for pattern in "$@"; do
        grep -qe "$pattern" "$scratch/said" || fail "$name did not say '$pattern'"
    done
}

# ranges NUMBER: this many ranges must be bound as requested.
ranges()
{
    [ "$(grep -c '^Bound as requested' "$scratch/said")" -eq "$1" ] || fail "not $1 ranges are bound"
}

memory()
{
    node=0
    for size in "$@"; do
        printf -- '-object memory-backend-ram,id=m%d,size=%dM ' $node "$size"
        node=$((node + 1))
    done
}

# in_all [MCDRAM]: what runs inside besides: tests of the module numa, training, and both kinds side by side.
in_all()
{
    [ -n "$all" ] || return 0
    for test in memory bind topology decide; do
        ends numa_$test 0 '  PASSED  \]'
    done
    ends trained_ddr 0 'loss'
    loss=$(grep -o 'loss.*' "$scratch/said" | tail -n 1)
    [ -n "${1:-}" ] || return 0
    ends trained 0 'loss'
    [ "$(grep -o 'loss.*' "$scratch/said" | tail -n 1)" = "$loss" ] || fail "training in MCDRAM ends elsewhere than in DDR: not $loss"
    ends places 0 '^ddr  ' '^mcdram  ' '^# memory for twill_alloc: mcdram:bind: .* MCDRAM at NUMA'
}

# turn NUMBER: start this machine?
turn()
{
    [ -z "${TEST_SEED:-}" ] || [ -n "${TEST_WHOLE:-}" ] || [ $((TEST_SEED % 5)) -eq "$1" ]
}

quadrant()
{
    # shellcheck disable=SC2046 # lists of words
    boot "quadrant flat" flat -m 1280 -smp 8,sockets=1,cores=4,threads=2 $(memory 896 384) \
        -numa node,nodeid=0,memdev=m0,cpus=0-7 -numa node,nodeid=1,memdev=m1 -numa dist,src=0,dst=1,val=31
    ends machine 0 '^KNL modes  *memory Flat, cluster Quadrant' '^memory  *NUMA 1, MCDRAM/HBM, .*no cores'
    ends placed 0 '^memory of a job: MCDRAM or HBM of this machine' '  PASSED  \] 4 test'
    ends bound 0 '^  NUMA node 1  *4096 pages  100.00%' '^shared .* 4 ranks. regions .*policy: bind'
    ranges 2
    ! grep -q '^  NUMA node 0' "$scratch/said" || fail "pages are in DDR"
    in_all MCDRAM
    ends too_much 1 'meant for MCDRAM or HBM are in DDR: not enough of it is free' '^NOT bound as requested'
}

# Clusters of two CPUs, 256 MiB of DDR and 128 MiB of MCDRAM; at the distances by which hwloc knows them. The first one
# has more, as the initial file system is in its memory, and tests bind theirs to it.
distances()
{
    for from in 0 1 2 3 4 5 6 7; do
        for to in 0 1 2 3 4 5 6 7; do
            value=21
            [ $from -lt 4 ] && [ $to -lt 4 ] || value=41
            [ $to -ne $((from + 4)) ] || value=31
            [ $to -le $from ] || printf -- '-numa dist,src=%d,dst=%d,val=%d ' $from $to $value
        done
    done
}
clusters()
{
    for cluster in 0 1 2 3; do
        printf -- '-numa node,nodeid=%d,memdev=m%d,cpus=%d-%d ' $cluster $cluster $((2 * cluster)) $((2 * cluster + 1))
    done
    for cluster in 4 5 6 7; do
        printf -- '-numa node,nodeid=%d,memdev=m%d ' $cluster $cluster
    done
}

snc4()
{
    # shellcheck disable=SC2046 # lists of words
    boot "SNC4 flat" snc4 -m 1920 -smp 8,sockets=1,cores=8,threads=1 $(memory 640 256 256 256 128 128 128 128) \
        $(clusters) $(distances)
    ends machine 0 '^KNL modes  *memory Flat, cluster SNC4' '^memory  *NUMA 7, MCDRAM/HBM, .*no cores'
    ends placed 0 '^memory of a job: MCDRAM or HBM of this machine' '  PASSED  \] 4 test'
    ends bound 0 '^shared .* 4 ranks. regions .*policy: bind'
    ranges 2
    in_all MCDRAM
}

# Half of 768 MiB of MCDRAM is memory.
hybrid()
{
    # shellcheck disable=SC2046 # lists of words
    boot "quadrant hybrid" hybrid -m 1280 -smp 8,sockets=1,cores=4,threads=2 $(memory 896 384) \
        -numa node,nodeid=0,memdev=m0,cpus=0-7 -numa node,nodeid=1,memdev=m1 -numa dist,src=0,dst=1,val=31
    ends machine 0 '^KNL modes  *memory Hybrid50, cluster Quadrant' '^memory  *NUMA 1, MCDRAM/HBM, .*no cores'
    ends placed 0 '^memory of a job: MCDRAM or HBM of this machine' '  PASSED  \] 4 test'
    ends bound 0 '^  NUMA node 1  *4096 pages  100.00%' '^shared .* 4 ranks. regions .*policy: bind'
    ranges 2
    ! grep -q '^  NUMA node 0' "$scratch/said" || fail "pages are in DDR"
    in_all MCDRAM
}

cache()
{
    boot "cache mode" cache -m 1024 -smp 8,sockets=1,cores=4,threads=2
    ends machine 0 '^KNL modes  *memory Cache, cluster Quadrant' '^memory for twill_alloc  *auto: DDR'
    ends refused 1 'TWILL_MEMORY=mcdram:bind: MCDRAM is a cache of DDR here (memory mode Cache)'
    ends fallback 0 'meant for MCDRAM or HBM are in DDR: mcdram: DDR: MCDRAM is a cache of DDR here' \
        '^memory fallbacks  *1 so far'
    in_all
}

# access TARGET NS GB/S NS GB/S: of a memory, from socket 0 and 1.
access()
{
    target=$1
    for from in 0 1; do
        printf -- '-numa hmat-lb,initiator=%d,target=%d,hierarchy=memory,data-type=access-latency,latency=%d ' \
            $from "$target" "$2"
        printf -- '-numa hmat-lb,initiator=%d,target=%d,hierarchy=memory,data-type=access-bandwidth,bandwidth=%dG ' \
            $from "$target" "$3"
        shift 2
    done
}

# The kernel tells libmemkind of the HBM of its own socket only.
sockets()
{
    cpu=max
    # shellcheck disable=SC2046 # lists of words
    boot "two sockets with HBM" sockets -machine hmat=on -m 2048 -smp 4,sockets=2,cores=2 $(memory 768 768 256 256) \
        -numa node,nodeid=0,memdev=m0,cpus=0-1 -numa node,nodeid=1,memdev=m1,cpus=2-3 \
        -numa node,nodeid=2,memdev=m2,initiator=0 -numa node,nodeid=3,memdev=m3,initiator=1 \
        -numa dist,src=0,dst=1,val=21 -numa dist,src=0,dst=2,val=31 -numa dist,src=0,dst=3,val=41 \
        -numa dist,src=1,dst=2,val=41 -numa dist,src=1,dst=3,val=31 -numa dist,src=2,dst=3,val=41 \
        $(access 0 130 90 200 45) $(access 1 200 45 130 90) $(access 2 155 400 220 200) $(access 3 220 200 155 400)
    ends machine 0 '^memory  *NUMA 3, MCDRAM/HBM, .*no cores'
    ends placed 0 '^memory of a job: MCDRAM or HBM of this machine' '  PASSED  \] 4 test'
    ends unbound 0 '^  NUMA node 2 ' '^  NUMA node 3 '
    ranges 1
    ! grep -q '^  NUMA node 0' "$scratch/said" || fail "pages are in DDR"
    ends spread 0 '^  NUMA node 2  *4096 pages ' '^  NUMA node 3  *4096 pages '
}

if turn 0; then quadrant; fi
if turn 1; then snc4; fi
if turn 2; then cache; fi
if turn 3; then hybrid; fi
if turn 4; then sockets; fi
echo "$me: placed as requested in emulated machines"
