#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# twill-info --why: what it prints and rejects; the effect of TWILL_ALGORITHM, TWILL_TUNE and TWILL_TUNING on it
# and on a job.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
. "$(dirname "$0")/../support/check.sh"
info=$bin/twill-info
unset TWILL_ALGORITHM TWILL_TUNE TWILL_TUNING

# Literal output, for a small world.
cat >"$scratch/wanted" <<'END'
barrier of 0 bytes, f32: 1 rank, 1x1 (nodes x ranks), machine auto

  candidate                                      price (us)     measured  why it is not the cheapest
  direct                                               0.05            -
END
expect 0 "direct is chosen (price 0.05 us), by: auto" "$info" --why barrier 0 --world 1x1
head -n 4 "$scratch/out" | diff - "$scratch/wanted" >"$scratch/err" || fail "--why of a barrier alone"

# Names as other programs spell them.
expect 0 "" "$info" --why allreduce 8M f32 --world 4x2
cp "$scratch/out" "$scratch/wanted"
expect 0 "" "$info" --why all_reduce 8MB float --world 4x2
cmp -s "$scratch/out" "$scratch/wanted" || fail "all_reduce 8MB float is another question"

# Messages of an exchange.
expect 0 "messages between nodes have up to 2097152 bytes" "$info" --why alltoall 64M --world 2x1
expect 0 "messages between nodes have up to 1048576 bytes" "$info" --why alltoall 64M --world 64x1
expect 0 "chosen" env TWILL_TUNE=segment_net=64K "$info" --why alltoall 64M --world 2x1
! grep -q "up to 2097152" "$scratch/out" || fail "a length of messages that TWILL_TUNE sets"

# What is chosen is the first of the candidates, which come by cost; others have a reason each.
check_table() # chosen
{
    # shellcheck disable=SC2016 # awk's dollars
    awk -v chosen="$1" -v grouped="$(grep -c "^hierarchy: .* groups x" "$scratch/out")" '
        function bad(why) { print why ": " $0; failures++ }
        /^  candidate / { table = 1; next }
        /^$/ { table = small = others = 0; next }
        table && NF < 5 != (n == 0) { bad("the reason") }
        table && first == "" { first = $1 }
        table || small { known[$1] = 1 }
        /^  not for this size/ { small = 1; next }
        table { cost = $3 == "-" ? $2 : $3; n++ } # a cost is above the price if there are groups
        table && !grouped && cost + 0 < last + 0 { bad("not by cost") }
        table { last = cost }
        /no candidates$/ { others = 1; next }
        / is chosen/ { got = $1 }
        others && NF < 2 { bad("no reason") }
        others && /the same schedule/ && !($NF in known) { bad("as unknown") }
        others && /no price/ && !/no price: ./ { bad("no reason for no price") }
        END { if (n < 2 || first != got || (chosen != "" && got != chosen)) print got, "not", first, chosen
              exit n < 2 || first != got || failures > 0 || (chosen != "" && got != chosen) }
    ' "$scratch/out" || fail "the table, $1"
}
for collective in allreduce reduce broadcast allgather reduce_scatter gather scatter alltoall; do
    for size in 8 64K 16M; do
        for world in 4 4x1 3+2; do
            expect 0 "$collective of " "$info" --why $collective $size --world $world
            check_table ""
        done
    done
done
expect 0 "by: auto" "$info" --why allreduce 8 f32 --world 24x1 --machine theta
check_table recursive_doubling
expect 0 "machine theta" env TWILL_TUNE=machine=theta "$info" --why allreduce 8 --world 24x1
expect 0 "direct@mapped is chosen" "$info" --why allreduce 1M mapped --world 1x2
# Each of two ranks reads a half of the other's megabyte, and writes one.
grep -q '^  [a-z0-9]*  *2097152$' "$scratch/out" || fail "the bytes that move"
grep -q '^  direct@imm  *at most 368 bytes$' "$scratch/out" || fail "the limit of imm"
# Between nodes the choice goes by @staged, and is mapped where the buffers of a node are. Neither has a wrong size.
expect 0 "hierarchical:ring@mapped is chosen (price" "$info" --why allreduce 1M mapped --world 4x4
sed -n '/^  instead of @staged/,/^$/p' "$scratch/out" | grep -q '^  hierarchical:ring@mapped  *[0-9][0-9.]*$' ||
    fail "what is chosen is not instead of @staged"
! sed -n '/^  not for this size/,/^$/p' "$scratch/out" | grep -q '@mapped' || fail "what is chosen is not for this size"
expect 0 "hierarchical:ring@mapped                     from 1024 bytes, all buffers from twill_alloc" \
    "$info" --why allreduce 1M --world 4x4

# A dense layer by its factors, or by its gradient: the cheaper one is taken, as far as this machine's products are timed.
agrees()
{
    awk -v line="factors, set $1 an optimizer:" '
        index($0, line) == 1 && match($0, /gathered [0-9.]+ us, the gradient reduced [0-9.]+ us/) {
            split(substr($0, RSTART, RLENGTH), word, " ")
            good = word[2] > 0 && word[7] > 0 && $NF == (word[2] + 0 < word[7] + 0 ? "gathered" : "reduced")
        }
        END { exit !good }' "$scratch/out"
}
expect 0 "allreduce of 67108864 bytes, f32: 4 ranks, 4x1" "$info" --why factors 4096x4096x1 --world 4x1
agrees without || fail "factors without an optimizer"
expect 0 "factors, set with an optimizer:" "$info" --why factors 8x8x2000 --world 4x1
agrees with || fail "factors with an optimizer"
grep -q '^factors, set with an optimizer: .*: reduced$' "$scratch/out" || fail "512,000 bytes of factors for 256 of gradients"

# The reason why an algorithm is not the cheapest.
reason_is() # NAME REASON QUESTION...
{
    name=$1
    reason=$2
    shift 2
    expect 0 "is chosen" "$info" --why "$@"
    grep "^  $name  " "$scratch/out" | grep -q -- "- *$reason\$" || fail "$name, $*: not $reason"
}
reason_is ring "30 messages of a rank wait for each other, not [0-9]*" allreduce 8 --world 16x1
reason_is hub "a rank sends and receives 30 messages, not [0-9]*" allreduce 8 --world 16x1
reason_is hierarchical:recursive_doubling@staged "6 MiB leave or enter a node, not [0-9.]* MiB" \
    allreduce 1M --world 64x64 --machine theta
reason_is direct@flat "a core copies and reduces 5 MiB, not [0-9.]* MiB" allreduce 1M mapped --world 1x4
reason_is recursive_doubling "[0-9.]* [MG]iB leave a group of nodes, not [0-9.]* MiB" \
    allreduce 64M --world groups=4,nodes=6,ranks=1 --machine fattree4
reason_is chain "ranks wait longer for each other" broadcast 1M --world 16x4
reason_is recursive_doubling "as cheap, but later in the list of algorithms" barrier 0 --world 1x1
grep -q "^  dissemination  *the same schedule here as recursive_doubling$" "$scratch/out" || fail "the same schedule"

# Threads of a rank: what they save, with the price of one thread; on all ranks those of the rank with fewest.
sixteen="allreduce 64M --world 16x1 --machine theta"
# shellcheck disable=SC2086 # a question
expect 0 "threads: 64 a rank, up to " "$info" --why $sixteen --threads=64
awk '/^threads:/ { good = /share a copy or a reduction: [0-9]+ us, with one [0-9]+ us$/ && $(NF - 5) + 0 < $(NF - 1) + 0 }
    END { exit !good }' "$scratch/out" || fail "what 64 threads save"
expect 0 "threads: 64 a rank; no copy or reduction is large enough to share" "$info" --why allreduce 8 --world 16x1 \
    --threads=64
gathered() # THREADS
{
    expect 0 "gathered" "$info" --why factors 200x77376x20 --world 16x1 --machine theta --threads="$1"
    sed -n 's/^factors, set without an optimizer: gathered \([0-9]*\) us.*/\1/p' "$scratch/out"
}
[ "$(gathered 64)" -lt "$(gathered 1)" ] || fail "factors with threads"
# Whether they share a copy is this machine's own measurement, so it is not asked here.
# shellcheck disable=SC2016 # of the job's shell
job='TWILL_THREADS=$((RANK + FEWEST)) exec '"$info --why allreduce 64M mapped"
expect 0 "threads: 2 a rank" env FEWEST=2 "$bin/twillrun" -n 2 sh -c "$job"
expect 0 "is chosen" env FEWEST=1 "$bin/twillrun" -n 2 sh -c "$job"
! grep -q '^threads:' "$scratch/out" || fail "one rank has one thread"

# Worlds with groups and parts of nodes.
world_is() # HIERARCHY WORLD...
{
    world_wanted=$1
    shift
    expect 0 "hierarchy: $world_wanted" "$info" --why barrier 0 --world "$@"
    grep -qx "hierarchy: $world_wanted" "$scratch/out" || fail "--world $*: not $world_wanted"
}
world_is "4 nodes x 2 packages x 3 ranks" 4x2x3
world_is "2 nodes x 2 packages x 4 L3 caches x 2 ranks" 2x2x4x2
world_is "2 groups x 3 nodes x 1 rank" groups=2,nodes=3
world_is "2 groups x 2 nodes x 2 packages x 2 NUMA nodes x 2 L3 caches x 2 tiles x 2 ranks" \
    rank=2,tiles=2,l3=2,numa=2,packages=2,nodes=2,groups=2
export TWILL_LAYOUT="groups=2x2;units=package=2"
world_is "2 groups x 2 nodes x 1 rank" 4x1
world_is "2 groups x 2 nodes x 2 packages x 2 ranks" 4x4
world_is "4 groups x 1 node x 2 L3 caches x 2 ranks" groups=4,l3=2,ranks=2
expect 2 "TWILL_LAYOUT=groups=2x2: describes 4 nodes, but there are 3" "$info" --why barrier 0 --world 3x1
unset TWILL_LAYOUT
TWILL_LAYOUT=nodes=3x1 world_is "5 nodes x 2 packages x 1 rank" 5x2x1
topologies=${TEST_SOURCE:-$(dirname "$0")/../..}/tests/data/topologies
world_is "2 nodes x 2 packages x 8 L3 caches x 4 ranks" 2x64 --topology "$topologies/x86-AMD-19h-Zen3-2xEpyc-7763.xml"
expect 0 "hierarchy: 1 node x 32 tiles x 2 ranks" \
    "$info" --why barrier 0 --topology "$topologies/x86-Intel-KnightsLanding-XeonPhi-7210.xml"
# A synthetic description as twill(7) has it, and a file whose name has a blank.
world_is "3 nodes x 2 packages x 8 ranks" 3x16 --topology "pack:2 l3:1 core:8 pu:2"
expect 0 "hierarchy: 1 node x 2 packages x 8 ranks" "$info" --why barrier 0 --topology "pack:2 l3:1 core:8 pu:2"
cp "$topologies/x86-AMD-19h-Zen3-2xEpyc-7763.xml" "$scratch/my machine.xml"
world_is "2 nodes x 2 packages x 8 L3 caches x 4 ranks" 2x64 --topology "$scratch/my machine.xml"
expect 2 "129 ranks of a node do not fit the 128 cores of file" \
    "$info" --why barrier 0 --world 1x129 --topology "$topologies/x86-AMD-19h-Zen3-2xEpyc-7763.xml"

# Where groups share fewer links, an exchange in which all nodes send all out of their group gives way to one by rows within the
# groups first. A ring crosses these links once, so it costs the same.
ring_price() { sed -n 's/^  ring  *\([0-9]*\) .*/\1/p' "$scratch/out"; }
for machine in fattree fattree2 fattree4; do
    for size in 8K 64K; do
        expect 0 "is chosen" "$info" --why allreduce $size f32 --world groups=4,nodes=6,ranks=1 --machine $machine
        case $machine$size in fattree8K | fattree28K) chosen=recursive_doubling ;; *) chosen=halving_doubling ;; esac
        check_table "$chosen"
    done
    expect 0 "is chosen" "$info" --why allreduce 64M f32 --world groups=4,nodes=6,ranks=1 --machine $machine
    [ "$machine" = fattree ] && ring=$(ring_price)
    [ "$(ring_price)" -eq "$ring" ] || fail "ring on $machine: $(ring_price) us, not $ring"
done

# A small net's gradients, bench/gradients/orlob.txt, on 30 nodes and more: few exchanges, not a ring.
for nodes in 30 32 100; do
    for machine in auto theta; do
        expect 0 "is chosen" "$info" --why allreduce 613764 f32 --world ${nodes}x1 --machine $machine
        grep -qE '^(halving_doubling|torus[=0-9x]*|double_tree[=0-9]*) is chosen' "$scratch/out" ||
            fail "613764 bytes on $nodes nodes, $machine: $(grep 'is chosen' "$scratch/out")"
    done
done
expect 0 "not on these nodes and ranks" "$info" --why allreduce 1M --world 2x2
expect 0 "cannot keep this order of operands" "$info" --why allreduce 1M left --world 4x1
expect 0 "not with shards of different sizes" "$info" --why alltoall 1M vector --world 4x1
expect 0 "narrow: f16 would take" "$info" --why allreduce 64M --world 4x1
grep -q "^narrow: .* us: pays$" "$scratch/out" || fail "64M in f16 between nodes"
expect 0 "us: does not pay" "$info" --why allreduce 8 --world 4x1
expect 0 "allreduce of 65536 bytes, bf16 narrow: 4 ranks, 4x1" "$info" --why allreduce 64K bf16 narrow --world 4x1
expect 0 "allreduce of 64 bytes, bf16: 3 ranks, 1x3" "$bin/twillrun" -n 3 "$info" --why allreduce 64 bf16
[ "$(grep -c 'is chosen' "$scratch/out")" -eq 1 ] || fail "one rank alone answers"

# Requested by the user.
expect 0 "ring is chosen" env "TWILL_ALGORITHM=allreduce[64K-]:ring" "$info" --why allreduce 64K --world 4x1
grep -q 'by: allreduce\[64K-\]:ring$' "$scratch/out" || fail "by whom"
expect 0 "torus=3x4 is chosen" env TWILL_ALGORITHM=torus=3x4 "$info" --why allreduce 64K --world 12x1
expect 0 "(which does not do this call)" env TWILL_ALGORITHM=recursive_doubling \
    "$info" --why allreduce 64K left --world 4x1
expect 1 'TWILL_ALGORITHM: "allreduce[8-4]:ring": the range [8-4] is empty' \
    env "TWILL_ALGORITHM=allreduce[8-4]:ring" "$info" --why allreduce 64K --world 4x1

# What was measured decides, and is shown.
printf 'twill-tuning 1\nmachine auto\nmeasured allreduce hub 4x1 64K 1000000\n' >"$scratch/tuning"
expect 0 "hub is chosen" env TWILL_TUNING="$scratch/tuning" "$info" --why allreduce 64K --world 4x1
grep -q '^  hub  *[0-9.]*  *1.00$' "$scratch/out" || fail "the measured time"
grep -q '^times are of: TWILL_TUNING$' "$scratch/out" || fail "the source of the times"
expect 0 "times are of: the model" "$info" --why allreduce 64K --world 4x1
# Timings of one machine say nothing of another, such as a synthetic one.
expect 0 "times are of: the model" env TWILL_LAYOUT=topology="pack:1 core:2 pu:1" "$info" --why allreduce 64K --world 1x2
expect 1 "TWILL_TUNING=$scratch/none: No such file" env TWILL_TUNING="$scratch/none" "$info" --why barrier 0
printf 'twill-tuning 1\nmodel step x\n' >"$scratch/bad"
expect 1 "$scratch/bad:2: \"x\" is not a number" env TWILL_TUNING="$scratch/bad" "$info" --why barrier 0
expect 1 "TWILL_TUNE=machine=moon: there is no such machine; known are auto, fattree, fattree2, fattree4, theta" env TWILL_TUNE=machine=moon "$info"
# shellcheck disable=SC2016 # of the job's shell
expect 1 "TWILL_TUNING must have the same contents on all ranks: rank 1" "$bin/twillrun" -n 2 sh -c \
    '[ "$RANK" = 0 ] || export TWILL_TUNING='"$scratch/tuning; exec $info"

# Quotation marks enclose what has blanks in the question that is asked.
expect 2 "--topology: 'my\"machine.xml': must not contain a quotation mark" \
    "$info" --why allreduce 8 --topology "my\"machine.xml"
expect 2 '"4x1 theta" is not a valid world at " theta"' "$info" --why allreduce 8 --world "4x1 theta"

while IFS='|' read -r text arguments; do
    # shellcheck disable=SC2086 # a list of words
    expect 2 "$text" "$info" $arguments
done <<'END'
a collective and a size are needed|--why
a collective and a size are needed|--why allreduce
"allredce" is not a collective|--why allredce 8
"8Q" is not a size|--why allreduce 8Q
"quad" is not a type|--why allreduce 8 quad
"0x4" is not a valid world|--why allreduce 8 --world 0x4
"4y" is not a valid world at "y"; examples:|--why allreduce 8 --world 4y
"4x2x" is not a valid world|--why allreduce 8 --world 4x2x
"2x2x2x2x2" is not a valid world|--why allreduce 8 --world 2x2x2x2x2
at "cores=2"|--why allreduce 8 --world nodes=4,cores=2
at "nodes=3"|--why allreduce 8 --world nodes=2,nodes=3
at "ranks=0"|--why allreduce 8 --world nodes=2,ranks=0
"nodes=2," is not a valid world at its end; examples:|--why allreduce 8 --world nodes=2,
TWILL_LAYOUT=topology=nowhere.xml|--why allreduce 8 --topology nowhere.xml
"99999x9999" is not a valid world|--why allreduce 8 --world 99999x9999
TWILL_TUNE=machine=moon|--why allreduce 8 --machine moon
"9x9" is not a dense layer's rows x columns x samples|--why factors 9x9
"9x9x0" is not a dense layer's rows x columns x samples|--why factors 9x9x0
"9x9x9x9" is not a dense layer's rows x columns x samples|--why factors 9x9x9x9
"0" is not a number of threads|--why allreduce 8 threads=0
"4x" is not a number of threads|--why allreduce 8 threads=4x
go with --why|--world 4x1
go with --why|--machine theta
END
