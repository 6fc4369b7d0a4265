# SPDX-License-Identifier: Apache-2.0
# Each fuzzer of tests/fuzz reads its corpus and what libFuzzer makes of it, from a fixed seed, without a fault. Fuzzers need
# a build of their own (tests/run.sh, stage clang). Without TEST_FUZZ_SECONDS, which is for each, SECONDS_IN_ALL are divided: a second
# for each but a few, which are other ones each day (TEST_SEED) and only read their corpus. TEST_FUZZ_KEEP is a folder for new inputs.
# shellcheck source=../support/rules.sh
. "$(dirname "$0")/../support/rules.sh"

fuzzers=$(find "$build/tests/fuzz" -maxdepth 1 -type f -name 'fuzz_*' -perm -u+x 2>/dev/null | sort)
[ -n "$fuzzers" ] || skip "this build has no fuzzers"
SECONDS_IN_ALL=16
count=$(echo "$fuzzers" | wc -l)
place=$((${TEST_SEED:-1} % count))
kept=${TEST_FUZZ_KEEP:-$scratch/kept}
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1"

# Print folders with inputs: the parser's archive, unpacked, and files of other parts of the tree that the parser reads.
inputs() # parser
{
    if [ "$1" = text ]; then # each with the byte of its parser: schedules of tests/data/golden.txt, tuning files, gradient lists
        mkdir -p "$scratch/texts"
        awk -v to="$scratch/texts/" '/^== / { file = to $2; printf "\005" > file; next } { print > file }' "$source/tests/data/golden.txt"
        for file in "$source"/lib/tuning/*.tuning "$source"/bench/gradients/*.txt; do
            case $file in *.tuning) byte=6 ;; *) byte=3 ;; esac
            { printf '%b' "\\00$byte" && cat "$file"; } >"$scratch/texts/${file##*/}"
        done
        echo "$scratch/texts"
    fi
    archive=$source/tests/fuzz/corpus/$1.txt
    if [ -f "$archive" ]; then
        python3 "$source/tests/fuzz/corpus.py" unpack "$archive" "$scratch/corpus/$1" && echo "$scratch/corpus/$1"
    fi
}

for fuzzer in $fuzzers; do
    name=${fuzzer##*/fuzz_}
    mkdir -p "$kept/$name"
    folders=$(inputs "$name") || fault "the corpus of $name cannot be unpacked"
    place=$(((place + 1) % count))
    limit=-max_total_time=${TEST_FUZZ_SECONDS:-1}
    [ -n "${TEST_FUZZ_SECONDS:-}" ] || [ "$place" -lt "$SECONDS_IN_ALL" ] || limit=-runs=0
    # shellcheck disable=SC2086 # folders
    must_end 0 "$name" "$fuzzer" -seed=1 "$limit" -max_len=4096 -timeout=20 -print_final_stats=1 \
        -close_fd_mask=1 -verbosity=0 -artifact_prefix="$kept/$name-" "$kept/$name" $folders
    sed -n 's/^stat::number_of_executed_units: */    executions: /p' "$scratch/output"
done
finish
