# SPDX-License-Identifier: Apache-2.0
# Do the tests notice an allreduce that does nothing (sabotage/no_allreduce.c)? With it the bench and the
# collectives' own test must fail, and the training example must come out differently.
# shellcheck source=../support/rules.sh
. "$(dirname "$0")/../support/rules.sh"

sabotage=$build/tests/libno_allreduce.so
for target in bin/twillrun bin/twill-bench bin/train tests/test_lib_collective_sabotaged "tests/libno_allreduce.so"; do
    [ -x "$build/$target" ] || skip "this build has no $target"
done
TWILL_TIMEOUT=300
export TWILL_TIMEOUT

bench() # preloaded wanted title
{
    must_end "$2" "$3: twill-bench allreduce" "$build/bin/twillrun" -n 2 env LD_PRELOAD="$1" "$build/bin/twill-bench" \
        allreduce -b 8 -e 64K -f 16 -n 3 -w 1
}

loss() # preloaded: the final loss in a word
{
    "$build/bin/twillrun" -n 2 env LD_PRELOAD="$1" "$build/bin/train" --data "$source/examples/data/wdbc.csv" \
        2>/dev/null | sed -n 's/.*loss[^0-9]*\([0-9.]*[0-9]\).*/\1/p' | tail -n 1
}

bench "" 0 "as built"
bench "$sabotage" failure "sabotaged"
grep -q 'Out of bounds values : [1-9][0-9]* FAILED' "$scratch/output" ||
    fault "the bench does not say that values are wrong"
must_end failure "sabotaged: test_lib_collective" "$build/tests/test_lib_collective_sabotaged"
grep -q 'ERROR.*allreduce' "$scratch/output" || fault "the test fails for another reason"

# Training without an exchange of gradients is training on a part of the data: another loss, if the
# example does not find out by itself.
real=$(loss "")
bad=$(loss "$sabotage")
[ -n "$real" ] || fault "the example prints no loss"
if [ "$real" = "$bad" ]; then
    fault "training reaches the same loss ($real) without gradients being exchanged"
else
    echo "ok: training: loss $real as built, ${bad:-none} sabotaged"
fi
finish
