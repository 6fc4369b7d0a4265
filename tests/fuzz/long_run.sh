#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# long_run.sh FUZZERS FOLDER [SECONDS]: fuzz for a long time and count it. Runs one fuzzer of the folder FUZZERS after the other, SECONDS (120)
# each time, always the one that has had the least processor time, until it is stopped. FOLDER keeps the new inputs of each,
# the inputs that failed (NAME-crash-...), with the fuzzer's output, and runs.txt: a line for each run: the fuzzer, executed inputs, seconds of processor time, edges, and its
# exit status. `long_run.sh sum FOLDER...` prints the sums of each fuzzer, in the form of counts.txt.
set -eu
source=$(cd "$(dirname "$0")/../.." && pwd)

# Print the sum of the lines "NAME inputs seconds edges ..." of all files.
sums()
{
    awk '/^[a-z]/ { inputs[$1] += $2; seconds[$1] += $3; if ($4 > edges[$1]) edges[$1] = $4 }
        END { for (name in inputs) printf "%s %d %.1f %d\n", name, inputs[name], seconds[name], edges[name] }' "$@" | sort
}

if [ "$1" = sum ]; then
    shift
    for folder in "$@"; do cat "$folder/runs.txt"; done | sums -
    exit
fi

fuzzers=$1 folder=$2 seconds=${3:-120}
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=1"
mkdir -p "$folder"
touch "$folder/runs.txt"

# Print the fuzzer that has had the least processor time, over earlier sessions, too.
least()
{
    for program in "$fuzzers"/fuzz_*; do
        [ -x "$program" ] && [ -f "$program" ] && echo "${program##*/fuzz_} 0 0 0"
    done > "$folder/present"
    cat "$folder/present" "$folder/runs.txt" "$source/tests/fuzz/counts.txt" 2>/dev/null | sums - > "$folder/sums"
    awk 'NR == FNR { present[$1] = 1; next } $1 in present' "$folder/present" "$folder/sums" | sort -k3,3n | sed -n '1s/ .*//p'
}

while name=$(least) && [ -n "$name" ]; do
    output=$folder/$name.output
    mkdir -p "$folder/$name"
    archive=$source/tests/fuzz/corpus/$name.txt corpus=
    if [ -f "$archive" ]; then
        corpus=$folder/corpus/$name
        python3 "$source/tests/fuzz/corpus.py" unpack "$archive" "$corpus"
    fi
    status=0
    # `times` of a subshell: on its second line, of the fuzzer.
    used=$(
        # shellcheck disable=SC2086 # no corpus: no argument
        "$fuzzers/fuzz_$name" -max_total_time="$seconds" -max_len=4096 -timeout=60 -print_final_stats=1 -close_fd_mask=1 \
            -artifact_prefix="$folder/$name-" "$folder/$name" $corpus > "$output" 2>&1 || echo "$?" > "$folder/status"
        times > "$folder/times" # not in a pipe, which would be another process
        awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, t, /[ms]/); s += t[1] * 60 + t[2] } print s }' "$folder/times"
    )
    [ ! -f "$folder/status" ] || status=$(cat "$folder/status")
    rm -f "$folder/status"
    inputs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$output")
    edges=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$output" | tail -n 1)
    echo "$name ${inputs:-0} $used ${edges:-0} $status" >> "$folder/runs.txt"
    [ "$status" = 0 ] || cp "$output" "$folder/$name-failed-$(date +%s).txt"
done
