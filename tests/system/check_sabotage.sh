# SPDX-License-Identifier: Apache-2.0
# Would anybody notice an allreduce that does nothing? Builds one (TWILL_SABOTAGE) and expects that
# the bench and the collectives' own test fail and that the example's training comes out differently.
# As built the bench passes here, and the test passes as a test of its own.
# shellcheck source=../support/rules.sh
. "$(dirname "$0")/../support/rules.sh"

for target in bin/twillrun bin/twill-bench bin/train; do
    [ -x "$build/$target" ] || skip "this build has no $target"
done
sabotaged=$scratch/build
launcher=$(command -v ccache) || launcher=
TWILL_TIMEOUT=300
export TWILL_TIMEOUT

bench() # build wanted title
{
    must_end "$2" "$3: twill-bench allreduce" "$build/bin/twillrun" -n 2 "$1/bin/twill-bench" \
        allreduce -b 8 -e 64K -f 16 -n 3 -w 1
}

loss_of() # build ranks: the final loss in a word
{
    "$build/bin/twillrun" -n "$2" "$1/bin/train" --data "$source/examples/data/wdbc.csv" \
        2>/dev/null | sed -n 's/.*loss[^0-9]*\([0-9.]*[0-9]\).*/\1/p' | tail -n 1
}

must_end 0 "configure with TWILL_SABOTAGE" cmake -S "$source" -B "$sabotaged" \
    -G "$(cached CMAKE_GENERATOR)" -DCMAKE_BUILD_TYPE="$(cached CMAKE_BUILD_TYPE)" \
    -DCMAKE_C_COMPILER="$(cached CMAKE_C_COMPILER)" -DCMAKE_C_COMPILER_LAUNCHER="$launcher" \
    -DTWILL_WERROR="$(cached TWILL_WERROR)" -DTWILL_WITH_OPENMP="$(cached TWILL_WITH_OPENMP)" \
    -DTWILL_WITH_MEMKIND="$(cached TWILL_WITH_MEMKIND)" -DTWILL_BUILD_TESTS=ON -DTWILL_SABOTAGE=ON || finish
must_end 0 "build it" cmake --build "$sabotaged" -j 2 --target twill-bench train \
    test_lib_collective || finish

bench "$build" 0 "as built"
bench "$sabotaged" failure "sabotaged"
grep -q 'Out of bounds values : [1-9][0-9]* FAILED' "$scratch/output" ||
    fault "the bench does not say that values are wrong"
must_end failure "sabotaged: test_lib_collective" "$sabotaged/tests/test_lib_collective"
grep -q 'ERROR.*allreduce' "$scratch/output" || fault "the test fails for another reason"

# Training without an exchange of gradients is training on a part of the data: another loss, if the
# example does not find out by itself.
real=$(loss_of "$build" 2)
bad=$(loss_of "$sabotaged" 2)
[ -n "$real" ] || fault "the example prints no loss"
if [ "$real" = "$bad" ]; then
    fault "training reaches the same loss ($real) without gradients being exchanged"
else
    echo "ok: training: loss $real as built, ${bad:-none} sabotaged"
fi
finish
