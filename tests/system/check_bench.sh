#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# twill-bench with processes as ranks: nccl-tests' table and JSON, the check that finds a single wrong value, and
# command lines that must be rejected.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
. "$(dirname "$0")/../support/check.sh"
bench=$bin/twill-bench


# Rows as nccl-tests prints them: the columns agree with each other, 0 wrong.
check_rows()
{
    # shellcheck disable=SC2016 # awk's dollars
    awk -v rows="$1" -v fields="$2" -v factor="$3" -v parts="${5:-1}" -v out_only="${6:-0}" '
        function bad(why) { print "row: " $0 ": " why; failures++ }
        function near(a, b) { return a - b < 0.02 * b + 0.011 && b - a < 0.02 * b + 0.011 }
        BEGIN { bytes["float"] = 4; bytes["double"] = 8; bytes["int32"] = 4; bytes["int64"] = 8
                bytes["half"] = 2; bytes["bfloat16"] = 2; bytes["int8"] = 1; bytes["uint8"] = 1
                bytes["int16"] = 2; bytes["uint16"] = 2; bytes["uint32"] = 4; bytes["uint64"] = 8
                bytes["f8e4m3"] = 1; bytes["f8e5m2"] = 1 }
        /^#/ || NF == 0 { next }
        { n++ }
        NF != fields { bad(NF " fields"); next }
        $1 != $2 * bytes[$3] * parts { bad("size is not count times type") }
        out_only && ($10 != "N/A" || $13 != "N/A") { bad("in place where nothing is") }
        out_only { $10 = $6; $11 = $7; $12 = $8; $13 = $9 }
        $9 != 0 || $13 != 0 { bad("wrong values") }
        $6 <= 0 || $10 <= 0 { bad("no time") }
        $6 > 1 && !near($7, $1 / $6 / 1000) { bad("algbw") }
        $10 > 1 && !near($11, $1 / $10 / 1000) { bad("algbw in place") }
        !near($8, $7 * factor) || !near($12, $11 * factor) { bad("busbw") }
        fields > 20 && !($14 <= $16 && $16 <= $15 && $18 <= $20 && $20 <= $19) { bad("i_min, i_max, i_p99") }
        END { if (n != rows) print n + 0, "rows, not", rows; exit n != rows || failures > 0 }
    ' "$scratch/out" || fail "the table of: $4"
    grep -q '^# Out of bounds values : 0 OK$' "$scratch/out" || fail "no good end: $4"
    grep -q '^# Avg bus bandwidth    : ' "$scratch/out" || fail "no bandwidth: $4"
}

# The header, to the letter.
cat >"$scratch/header" <<'END'
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
END
ranks 2 "$bench" allreduce -b 8 -e 64K -f 8 || fail "allreduce"
sed -n 's/ *$//; /out-of-place/,/(elements)/p' "$scratch/out" | cmp -s - "$scratch/header" ||
    fail "the header is not nccl-tests'"
check_rows 5 13 1 "allreduce, 2 ranks"

# Names and sizes as other programs spell them, and the CSV.
ranks 2 "$bench" all_reduce -b 1KB -e 8KiB -f 2 -d fp32 -o sum || fail "all_reduce"
check_rows 4 13 1 "all_reduce, fp32"
ranks 2 "$bench" all_reduce_perf -b 8 -e 8MB -f 1024 -d bfloat16 --csv || fail "--csv"
# shellcheck disable=SC2016 # awk's dollars
awk -F, 'NR == 1 { n = NF; if ($1 != "size_bytes" || $6 != "time_us" || $9 != "wrong" || $13 != "in_place_wrong") exit 1; next }
    NF != n || n != 13 || $3 != "bfloat16" || $4 != "sum" || $9 != 0 || $13 != 0 || $6 <= 0 || $7 < 0 { exit 1 }
    { sizes = sizes " " $1 } END { if (sizes != " 8 8192 8388608") exit 1 }' "$scratch/out" || fail "the CSV"
ranks 1 "$bench" alltoallv -b 64 -e 64 --csv -I 1 || fail "--csv of what has no place"
awk -F, '{ if (NF != 21 || (NR == 2 && ($10 != "" || $13 != ""))) exit 1 } END { exit NR != 2 }' "$scratch/out" || fail "the CSV of alltoallv"

# Kernels alone: a row for each, each with the bits of the scalar one.
expect 0 "sgd f32 x2" "$bench" kernels -b 128K -e 128K -n 1 -J "$scratch/kernels.json"
# shellcheck disable=SC2016 # awk's dollars
awk '/^#/ { next } NF != 11 || $4 != "-" || $5 != 131072 || $6 <= 0 || $7 <= 0 || $8 <= 0 || $9 <= 0 || $11 != "yes" { print; exit 1 }
    { n++ } END { exit n < 60 }' "$scratch/out" || fail "the table of kernels"
[ "$(grep -c '"equal": *true' "$scratch/kernels.json")" -eq "$(grep -vc '^#' "$scratch/out")" ] || fail "the JSON of kernels"
expect 1 "File exists" "$bench" kernels sgd -b 64K -e 64K -n 1 -J "$scratch/kernels.json"
expect 2 "no kernel has 'sdg' in its name" "$bench" kernels sdg -b 64K -e 64K
expect 2 "one name too many: 'x'" "$bench" kernels sgd x
expect 2 "--csv cannot be combined with --list" "$bench" allreduce --csv --list x

# Every type and operation, odd counts, 1 to 4 ranks, one and two nodes, memory of either kind.
expect 1 "bytes of TWILL_TUNE=heap_limit" env TWILL_TUNE=heap_limit=1M "$bin/twillrun" -n 2 "$bench" allreduce -b 1M -e 1M -n 1
# (A sanitizer's stage has the kernels of all types in tests of their own.)
if [ -z "$sanitize" ]; then
    ranks 1 "$bench" allreduce -b 8 -e 4K -f 8 -d all -o all -n 2 || fail "1 rank"
    check_rows 472 13 0 "1 rank"
    ranks 3 "$bench" allreduce -b 4040 -e 4040 -d all -o all -n 2 -c 2 || fail "3 ranks"
    check_rows 118 13 1.3333333 "3 ranks"
fi
ranks 3 "$bench" allreduce -b 40 -e 40K -f 1024 -d all -o all -n 1 -u 3 --memory malloc || fail "unaligned"
check_rows 236 13 1.3333333 "3 ranks, unaligned, malloc"
TWILL_LAYOUT=nodes=2x2 ranks 4 "$bench" allreduce -b 8 -e 128K -f 128 -d all -o sum -n 1 -z 1 || fail "2x2"
check_rows 42 13 1.5 "4 ranks on 2 nodes"
ranks 3 "$bench" broadcast -b 8 -e 64K -f 64 -d all -r all -n 2 -m 2 -w 0 || fail "broadcast"
check_rows 126 13 1 "broadcast"
ranks 2 "$bench" allreduce -b 40 -e 4040 -i 2000 -n 2 || fail "-i"
check_rows 3 13 1 "-i"

# Every other collective: 4 ranks on one node and on two, its bandwidth counted as nccl-tests does.
number=0
while read -r collective factor parts out_only; do
    number=$((number + 1))
    due 3 $number || continue
    for nodes in '' 2x2; do
        [ -z "$sanitize" ] || [ -n "$nodes" ] || continue # within nodes and between
        TWILL_LAYOUT=nodes=$nodes ranks 4 "$bench" "$collective" -b 64 -e 256K -f 64 -n 3 --verify ||
            fail "$collective, nodes '$nodes'"
        check_rows 3 13 "$factor" "$collective, nodes '$nodes'" "$parts" "$out_only"
    done
done <<'END'
reduce 1 1 0
allgather 0.75 4 0
allgatherv 0.75 4 0
reduce_scatter 0.75 4 0
reduce_scatterv 0.75 4 0
gather 0.75 4 0
gatherv 0.75 4 0
scatter 0.75 4 0
scatterv 0.75 4 0
alltoall 0.75 4 0
alltoallv 0.75 4 1
sendrecv 1 1 1
END
for form in nonblocking persistent begun; do
    number=$((number + 1))
    due 3 $number || continue
    ranks 3 "$bench" allgather -b 12 -e 12K -f 32 -n 3 --form $form -r 1 || fail "--form $form"
    check_rows 3 13 0.6666667 "--form $form" 3
done
ranks 2 "$bench" allreduce -b 64 -e 64K -f 32 -n 5 --overlap test || fail "--overlap"
check_rows 3 17 1 "--overlap"
ranks 2 "$bench" allreduce -b 64 -e 64K -f 32 -n 5 -I 1 --overlap none -J "$scratch/o.json" || fail "--overlap none"
check_rows 3 25 1 "--overlap none"
grep -q '"overlap"' "$scratch/o.json" || fail "no overlap in the JSON"
TWILL_LAYOUT=nodes=2x2 ranks 4 "$bench" allreduce -b 64 -e 64K -f 32 -n 3 --reproducible || fail "--reproducible"
check_rows 3 15 1.5 "--reproducible"
TWILL_LAYOUT=nodes=2x2 ranks 4 "$bench" allreduce -b 64 -e 64K -f 32 -n 3 --narrow f16 --algorithm ring || fail "--narrow"
check_rows 3 16 1.5 "--narrow"
awk '/^[^#]/ && $16 != 0.5 { exit 1 }' "$scratch/out" || fail "--narrow f16: not half of the bytes"
TWILL_LAYOUT=nodes=2x1 ranks 2 "$bench" reduce_scatter -b 64K -e 64K -n 3 -c 1 --reduce-delay 1000 || fail "--reduce-delay"
grep -q '^# Out of bounds values : 0 OK$' "$scratch/out" || fail "--reduce-delay: values"

# Energy, of a made machine of 120 W: virtual nodes are one machine. Without counters it is n/a.
mkdir -p "$scratch/sys/class/hwmon/hwmon0"
echo power_meter >"$scratch/sys/class/hwmon/hwmon0/name"
echo 120000000 >"$scratch/sys/class/hwmon/hwmon0/power1_average"
TWILL_LAYOUT=nodes=2x2 ranks 4 "$bench" allreduce -b 64 -e 64K -f 32 -n 3 --csv --energy --sysfs "$scratch/sys" || fail "--energy --csv"
# shellcheck disable=SC2016 # awk's dollars
awk -F, 'NR == 1 { if ($14 != "node_joules" || $21 != "in_place_rank_watts") exit 1; next }
    NF != 21 || $14 <= 0 || $15 != 120 || ($14 / $16 - 4) ^ 2 > 1e-6 || $17 != 30 || $18 <= 0 || $19 != 120 || $21 != 30 { print; exit 1 }
    END { exit NR != 4 }' "$scratch/out" || fail "the CSV of --energy"
ranks 2 "$bench" alltoallv -b 64 -e 64 -n 3 --energy --sysfs "$scratch/sys" -J "$scratch/energy.json" || fail "--energy"
# shellcheck disable=SC2016 # awk's dollars
awk '/^# energy: / { n += $0 == "# energy: hwmon: power_meter power1" } /^[^#]/ { n += NF == 21 && $15 == 120 && $17 == 60 && $18 == "n/a" && $21 == "n/a" }
    END { exit n != 2 }' "$scratch/out" || fail "the table of --energy"
grep -q '"rank_watts": *\(60\|59.99\)' "$scratch/energy.json" || fail "the JSON of --energy"
ranks 2 "$bench" allreduce -b 64 -e 64 -n 3 --energy --sysfs "$scratch/nowhere" -J "$scratch/none.json" || fail "--energy without counters"
# shellcheck disable=SC2016 # awk's dollars
awk '/^# energy: n\/a: no counters of pm_counters, rapl or hwmon in / { n++ } /^[^#]/ { n += NF == 21 && $14 == "n/a" && $21 == "n/a" }
    END { exit n != 2 }' "$scratch/out" || fail "the table without counters"
[ "$(grep -c '"energy": *null' "$scratch/none.json")" -eq 3 ] || fail "the JSON without counters"
TWILL_LAYOUT=nodes=2x2 ranks 4 "$bench" allreduce -b 64 -e 64K -f 32 -n 3 --split node || fail "--split node"
check_rows 3 13 1 "--split node"
ranks 4 "$bench" reduce_scatter -b 64 -e 64K -f 32 -n 3 --split 2 -d i16 -o bxor || fail "--split 2"
check_rows 3 13 0.5 "--split 2" 2
TWILL_LAYOUT=nodes=4x1 ranks 4 "$bench" allreduce -b 64 -e 4K -f 8 -n 3 --algorithm 'allreduce:ring' --verify || fail "--algorithm"
check_rows 3 13 1.5 "--algorithm ring"
expect 1 'TWILL_ALGORITHM' "$bin/twillrun" -n 2 "$bench" allreduce -b 8 -e 8 --algorithm rang
ranks 2 "$bench" barrier -n 5 || fail "barrier"
grep -q '^ *0 *0 *none *none *-1 .* 0 .* 0$' "$scratch/out" || fail "the row of a barrier"
for average in 0 1 2 3; do
    due 4 $average || continue
    ranks 2 "$bench" allreduce -b 64 -e 64 -n 10 -I 1 -K 1 -a $average -N 2 || fail "-a $average"
    check_rows 2 21 1 "-I 1 -a $average"
done

# JSON, read by CMake's parser. A file that exists is not overwritten.
for name in x.json x.json.0; do
    ranks 2 "$bench" allreduce -b 8 -e 64 -f 8 -I 1 -J "$scratch/x.json" || fail "-J"
    cmake -DFILE="$scratch/$name" -P "$(dirname "$0")/../support/check_bench_json.cmake" >"$scratch/out" 2>&1 ||
        fail "the JSON in $name"
done

# --list: the key table, last layer first, and the step below it, which is the sum of its keys.
check_step() # list factor type redop root
{
    # shellcheck disable=SC2016 # awk's dollars
    awk -v type="$3" -v op="$4" -v root="$5" -v factor="$2" '
        function bad(why) { print "row: " $0 ": " why; failures++ }
        function near(a, b) { return a - b < 0.02 * b + 0.011 && b - a < 0.02 * b + 0.011 }
        BEGIN { width["float"] = 4; width["half"] = 2 }
        FNR == NR { if ($1 ~ /^[0-9]/) { wanted[keys++] = $1; total += $1 } next }
        /^#/ { next }
        $4 != type || $5 != op || $6 != root { bad("what") }
        $3 != $2 * width[type] { bad("size") }
        $10 != 0 { bad("wrong values") }
        $7 <= 0 || ($7 > 1 && !near($8, $3 / $7 / 1000)) || !near($9, $8 * factor) { bad("bandwidth") }
        $1 == "step" {
            steps++
            if (rows != keys || $2 != total || !near(time, $7)) bad("not the sum of " rows " keys")
            next
        }
        { if ($1 != keys - 1 - rows || $2 + 0 != wanted[$1] + 0) bad("not this key"); rows++; time += $7 }
        END { exit steps != 1 || failures > 0 }
    ' "$1" "$scratch/out" || fail "the step of $1"
    grep -q '^# Out of bounds values : 0 OK$' "$scratch/out" || fail "no good end: $1"
}
printf '# a small model\n1500   # weights\n  7\n\n33\r\n70000 \n1' >"$scratch/list"
TWILL_LAYOUT=nodes=2x2 ranks 4 "$bench" allreduce --list "$scratch/list" -d half -n 3 -m 2 -u 1 -c 2 -o max ||
    fail "--list"
tr -d ' \r' <"$scratch/list" >"$scratch/plain"
check_step "$scratch/plain" 1.5 half max -1
ranks 3 "$bench" broadcast --list "$scratch/list" -n 2 -r 2 --memory malloc || fail "--list broadcast"
check_step "$scratch/plain" 1 float none 2
ranks 2 "$bench" allreduce --list "$scratch/list" -n 2 --energy --sysfs "$scratch/sys" || fail "--list --energy"
grep -q '^# of the steps: [0-9.e-]* J and 120 W a node, [0-9.e-]* J and 60 W a rank$' "$scratch/out" || fail "the energy of a list"
while read -r model total gflop; do
    model=${source:?}/bench/gradients/$model.txt
    stated=$(sed -n '1s/.* \([0-9]*\) tensors, \([0-9]*\) floats, \([0-9]*\) multiply-adds;.*/\1 \2 \3/p' "$model")
    counted=$(awk '!/^#/ { n++; sum += $1; work += $2 } END { printf "%d %d %.0f", n, sum, work }' "$model")
    [ "$stated" = "$counted" ] || fail "$model: $counted, not $stated"
    # Published parameters, and forward multiply-adds of a sample in 1e9 (torchvision's; of nt3 and orlob, by their layers).
    echo "$counted" | awk -v total="$total" -v gflop="$gflop" '
        { off = $3 / 1e9 - gflop; exit !($2 == total && off * off <= gflop * gflop * 1e-4) }' || fail "$model: $counted"
done <<'END'
nt3 154922918 10.21
resnet50 25557032 4.09
alexnet 61100840 0.714
vgg16 138357544 15.47
inceptionv3 27161264 5.72
googlenet 6624904 1.50
orlob 153441 0.000153
END
sed 50q "$source/bench/gradients/resnet50.txt" >"$scratch/resnet" # its many small tensors
ranks 2 "$bench" allreduce --list "$scratch/resnet" -n 2 -I 1 -J "$scratch/step.json" || fail "--list resnet50"
check_step "$scratch/resnet" 1 float sum -1
bytes=$(awk '!/^#/ { n += 4 * $1 } END { print n }' "$scratch/resnet")
cmake -DFILE="$scratch/step.json" -DKEYS=49 -DBYTES="$bytes" -P "$(dirname "$0")/../support/check_bench_step.cmake" >"$scratch/out" 2>&1 ||
    fail "the JSON of --list"

# --list with --overlap: a row for each bucket size; a tensor above it is reduced alone and not copied.
printf '50000 40000000\n 10\n20000\n70000 9000000 # twice\n' >"$scratch/worked"
# check_played LIST-OF-ROWS: "bucket operations copied" of each row, and right sums
check_played()
{
    # shellcheck disable=SC2016 # awk's dollars
    awk -v wanted="$1" '/^#/ || NF == 0 { next }
        { got = got " " $1 " " $3 " " $4 ";"
          sum = $5 + $6 - $7; after = $9 - $5 - $10; on = $12 - $5 - $13
          if (sum * sum > 1e-5 || after * after > 1e-5 || on * on > 1e-5 || $19 != 0 || NF != 19) bad = 1 }
        END { if (got != wanted) print got ", not" wanted; exit bad || got != wanted }' "$scratch/out" || fail "--list --overlap: $2"
    grep -q '^# Out of bounds values : 0 OK$' "$scratch/out" || fail "no good end: $2"
}
ranks 2 "$bench" allreduce --list "$scratch/worked" --overlap test --bucket 0,100K,1M -n 2 -J "$scratch/played.json" || fail "--bucket"
check_played " 0 4 0; 102400 3 0; 1048576 1 0;" "--bucket"
grep -q '"by_tensor"' "$scratch/played.json" || fail "no played step in the JSON"
ranks 2 "$bench" allreduce --list "$scratch/worked" --overlap test --bucket 100K -n 2 --memory malloc || fail "--memory malloc"
check_played " 102400 3 160080;" "two tensors of 20010 floats together are copied in and out, larger ones are not"
TWILL_LAYOUT=nodes=2x2 TWILL_PROGRESS=thread ranks 4 "$bench" allreduce --list "$scratch/worked" --overlap none --device \
    --device-gflops 100000 --batch 8 -d half -o avg -n 2 --priority || fail "--device"
check_played " default 1 0;" "--device --priority"
ranks 2 "$bench" allreduce --list "$scratch/worked" --overlap none --gradients compress=int8 -n 1 || fail "--gradients"
grep -q '^ *default .* N/A$' "$scratch/out" || fail "a lossy sum is not checked"
expect 2 "list: no layer has multiply-adds, which --overlap needs" "$bench" allreduce --list "$scratch/list" --overlap test

# Invalid lists. Only rank 0 reads the list and prints errors.
expect 2 "--list: /nonexistent/x: No such file" "$bench" allreduce --list /nonexistent/x
expect 2 "--list: $scratch: Is a directory" "$bench" allreduce --list "$scratch"
expect 2 "the list has no tensor" "$bench" allreduce --list /dev/null
for word in abc -3 1.5 0 '12 x' '12 13 14' '12 -1' 99999999999999999999; do
    printf '# three lines\n12\n%s\n' "$word" >"$scratch/bad"
    expect 2 "--list: $scratch/bad:3: '$word' is not a number" "$bench" allreduce --list "$scratch/bad"
done
echo 999999999999999999 >"$scratch/bad"
expect 2 "bad: more elements" "$bin/twillrun" -n 2 "$bench" allreduce --list "$scratch/bad"
[ "$(grep -c 'bad: more' "$scratch/out")" -eq 1 ] || fail "more than one rank complains about a list"

# Progress: on a terminal, and nowhere else.
on_terminal() # COMMAND: run it on a terminal, which must show a line of progress
{
    timeout -k 10 "$patience" script -qec "$*" "$scratch/typescript" </dev/null >/dev/null || fail "on a terminal: $*"
    grep -q '\[#* *\] *[0-9]*%  .*, [0-9]* s' "$scratch/typescript" || fail "no progress on a terminal: $*"
}
if command -v script >/dev/null; then
    for sizes in "-b 8 -e 64 -f 8" "--list $scratch/list"; do
        on_terminal "$bench" allreduce "$sizes" -n 2
    done
    on_terminal "$bin/twillrun" -n 2 "$bench" allreduce -b 8 -e 64 -f 8 -n 2
    on_terminal "$bin/twillrun" -n 2 "$bench" latency -b 1 -e 4 -n 20
    on_terminal "$bin/twillrun" -n 2 "$bench" train --list "$scratch/worked" --compute-us 100 -n 3
    on_terminal "$bench" kernels sgd -b 64K -e 64K -n 2
    on_terminal "$bin/twill-simulate" -p 2,3 -u 200 sync
    grep -q 'K *mode' "$scratch/typescript" || fail "the line of progress is not removed"
    on_terminal "$bench" --calibrate "$scratch/tuned" -e 8
    [ ! -x "$bin/twill-compare" ] || on_terminal "$bin/twill-compare" --peers none --only barrier --rounds 2 --turn 1
    TERM=dumb script -qec "$bench allreduce -b 8 -e 64 -f 8 -n 2" "$scratch/typescript" </dev/null >/dev/null
    ! grep -q '%  ' "$scratch/typescript" || fail "progress on a terminal that cannot rewrite a line"
    # The build of quickstart.sh: lines of ninja.
    printf '[1/4] Building a\n[2/4] Building b\nwarning: odd\n[4/4] Linking\n' >"$scratch/ninja"
    on_terminal "awk -f '$source/examples/build_progress.awk' '$scratch/ninja'"
    grep -q 'warning: odd' "$scratch/typescript" || fail "a warning of the build is not shown"
    ! grep -q 'Linking' "$scratch/typescript" || fail "lines of the build are shown"
else
    echo "no script(1) here: progress on a terminal is not checked"
fi
for sizes in "-b 8 -e 64 -f 8" "--list $scratch/list"; do
    # shellcheck disable=SC2086 # words
    ranks 1 "$bench" allreduce $sizes -n 2 || fail "no terminal"
    ! grep -q '%  ' "$scratch/err" || fail "progress where there is no terminal: $sizes"
done

# Command lines that are wrong: status 2, and the argument named.
while IFS='|' read -r text arguments; do
    # shellcheck disable=SC2086 # a list of words
    expect 2 "$text" "$bench" $arguments
done <<'END'
-b/--minbytes: 'x'|allreduce -b x
-b/--minbytes: '8Q'|allreduce -b 8Q
-e/--maxbytes: '-1'|allreduce -e -1
-b/--minbytes is above|allreduce -b 64M
-i/--stepbytes: '0'|allreduce -i 0
-f/--stepfactor: '0'|allreduce -f 0
-n/--iters: '0'|allreduce -n 0
-n/--iters: '1x'|allreduce -n 1x
-a/--average: '4'|allreduce -a 4
-c/--check: '-1'|allreduce -c -1
-o/--op: 'median'|allreduce -o median
-d/--datatype: 'quad'|allreduce -d quad
-r/--root: 'me'|broadcast -r me
-r/--root: rank 7 does not exist|broadcast -r 7
-z/--blocking: '2'|allreduce -z 2
-T/--timeout: '0'|allreduce -T 0
-I/--per_iter_timing: 'y'|allreduce -I y
-K/--per_iter_skip must|allreduce -K 20
--memory: 'hbm'|allreduce --memory hbm
--align: '48'|allreduce --align 48
-b, -e, -i and -f cannot be combined with it|allreduce --list x -f 2
--list is for allreduce and broadcast|barrier --list x
--list cannot be combined with|allreduce --list x --form persistent
--list with --overlap is for allreduce|allreduce --list x --overlap test -d all
--list with --overlap is for allreduce|broadcast --list x --overlap test
need --list and --overlap|allreduce --device
--gradients needs --list and --overlap|allreduce --gradients late=1
cannot be combined with --times|allreduce --list x --overlap test --times
cannot be combined with --times, --energy|allreduce --list x --overlap test --energy
--sysfs needs --energy|allreduce --sysfs /sys
--bucket: '1,x'|allreduce --list x --overlap test --bucket 1,x
--device-gflops: '0'|allreduce --list x --overlap test --device-gflops 0
--reproducible needs a reduction|broadcast --reproducible
--narrow needs a reduction|broadcast --narrow f16
--reduce-delay needs a reduction|broadcast --reduce-delay 5
--reduce-delay: '0'|allreduce --reduce-delay 0
'f64' is not a float of 8 or 16 bits|allreduce --narrow f64
--form: 'lazy'|allreduce --form lazy
--overlap: 'some'|allreduce --overlap some
--split: '0'|allreduce --split 0
--split: 'rack'|allreduce --split rack
does not have this operation|allreduce -o band -d f32
unrecognized option '--size'|allreduce --size 8
'allgatherw' is not a collective|allgatherw
name a collective|-n 3
too many: 'broadcast'|allreduce broadcast
END
expect 1 "-J/--output_file: /nonexistent/x" "$bench" allreduce -J /nonexistent/x
expect 0 "Usage: twill-bench" "$bench" --help
expect 0 "twill-bench 0." "$bench" --version

# The check must notice an allreduce that does nothing, and one that gets a single bit wrong on one
# rank. A preloaded library does that, which sanitizers do not allow.
if [ -n "$sanitize" ]; then
    echo "sanitized: broken libraries are not preloaded"
    exit 0
fi
cat >"$scratch/broken.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
int twill_allreduce(void *comm, const void *src, void *dst, size_t count, int type, int op)
{
    int (*real)(void *, const void *, void *, size_t, int, int);
    int (*rank)(void *);
    if (strcmp(getenv("BROKEN"), "nothing") == 0)
        return 0;
    *(void **)&real = dlsym(RTLD_NEXT, "twill_allreduce");
    *(void **)&rank = dlsym(RTLD_NEXT, "twill_comm_rank");
    int status = real(comm, src, dst, count, type, op);
    if (count > 1000 && rank(comm) == 1)
        ((unsigned char *)dst)[count / 2] ^= 1;
    return status;
}
END
${CC:-cc} -shared -fPIC -o "$scratch/broken.so" "$scratch/broken.c" -ldl
for broken in nothing bit; do
    expect 1 "FAILED" "$bin/twillrun" -n 2 env BROKEN=$broken LD_PRELOAD="$scratch/broken.so" \
        "$bench" allreduce -b 8K -e 8K -n 2
done
expect 1 "# Out of bounds values : 2 FAILED" "$bin/twillrun" -n 2 env BROKEN=bit \
    LD_PRELOAD="$scratch/broken.so" "$bench" allreduce -b 8K -e 8K -n 2
# shellcheck disable=SC2016 # awk's dollars
awk '/^ / { exit !($9 == 1 && $13 == 1) }' "$scratch/out" || fail "one wrong bit is one wrong element"
expect 1 "FAILED" "$bin/twillrun" -n 2 env BROKEN=bit LD_PRELOAD="$scratch/broken.so" \
    "$bench" allreduce --list "$scratch/list" -n 2
# shellcheck disable=SC2016 # awk's dollars
awk '/^ / && ($1 == "step" ? $10 != 2 : $10 != ($2 > 1000)) { exit 1 }' "$scratch/out" ||
    fail "one wrong bit in a key is one wrong element"
