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

# Folders with inputs that are not copied into the corpus.
inputs() # parser
{
    case $1 in
    schedule) echo "$source/tests/data/golden" ;;
    tuning) echo "$source/lib/tuning" ;;
    list) echo "$source/bench/gradients" ;;
    esac
    [ ! -d "$source/tests/fuzz/corpus/$1" ] || echo "$source/tests/fuzz/corpus/$1"
}

for fuzzer in $fuzzers; do
    name=${fuzzer##*/fuzz_}
    mkdir -p "$kept/$name"
    place=$(((place + 1) % count))
    limit=-max_total_time=${TEST_FUZZ_SECONDS:-1}
    [ -n "${TEST_FUZZ_SECONDS:-}" ] || [ "$place" -lt "$SECONDS_IN_ALL" ] || limit=-runs=0
    # shellcheck disable=SC2046 # folders
    must_end 0 "$name" "$fuzzer" -seed=1 "$limit" -max_len=4096 -timeout=20 -print_final_stats=1 \
        -close_fd_mask=1 -verbosity=0 -artifact_prefix="$kept/$name-" "$kept/$name" $(inputs "$name")
    sed -n 's/^stat::number_of_executed_units: */    executions: /p' "$scratch/output"
done
finish
