#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mpi4py's own tests with libtwill-mpi: with MPICH all except those that start processes with 2 ranks, and some that
# communicate with 3 and 4; these with Open MPI, too, with 2, 3 and 4. They come from PyPI. TEST_MPI_LONG=1: also all
# modules one by one with 3 and 4 ranks, without twill and with it, and MPICH's own tests of windows and partitioned
# messages. With TEST_SEED, as in CI, one of two MPIs runs them, and the other one with the next seed: with 2 ranks without
# the modules that take most of the time (run_mpi4py() in programs.sh), and with 3 or with 4 ranks. One in eight seeds has these
# modules instead of the others, with MPICH. What fails with twill fails the test if it passes without; other failures are
# named. Skipped (77) without an MPI, without Python for building, or if PyPI cannot be reached.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
# shellcheck disable=SC2154 # of rules.sh
. "$(dirname "$0")/../support/check.sh"
/usr/bin/python3 -c 'import setuptools, sysconfig, os; os.stat(sysconfig.get_path("include") + "/Python.h")' \
    2>/dev/null || skip "no /usr/bin/python3 with its headers and setuptools (python3-dev, python3-setuptools)"
export TEST_FOREIGN="${TEST_FOREIGN:-$scratch/foreign}" TEST_BUILD="$build"

# suite MPI PROGRAM CASES OPTION...: installed or found, and run.
suite()
{
    suite_mpi=$1 suite_program=$2 suite_cases=$3 suite_got=0
    shift 3
    "$here/system/foreign/run_programs.sh" --install --mpi "$suite_mpi" --cases "$suite_cases" "$@" "$suite_program" \
        >"$scratch/out" 2>"$scratch/err" || suite_got=$?
    if grep -q "^$suite_program  *$suite_mpi  *not run: " "$scratch/out"; then
        tail -n 5 "$TEST_FOREIGN/install.log"
        skip "$suite_program cannot be fetched or built here"
    fi
    grep -e "^$suite_program" -e '^WORSE' -e '^NO VERDICT' "$scratch/out" || :
    [ $suite_got -eq 0 ] || fail "$suite_program ($suite_mpi): worse with twill"
    grep -q "^$suite_program .*  [1-9][0-9]*/" "$scratch/out" || fail "$suite_program ($suite_mpi): nothing was taken"
}

mpis=''
for mpi in mpich openmpi; do
    [ ! -e "$build/lib/libtwill-mpi-$mpi.so" ] || ! command -v "mpirun.$mpi" >/dev/null || mpis="$mpis $mpi"
done
[ -n "$mpis" ] || skip "no MPI is here, or none that twill was built for"
whole=$mpis # those that run the tests, and not only one of them
quick=
[ -z "${TEST_SEED:-}" ] || [ -n "${TEST_MPI_LONG:-}" ] || quick=$((3 + TEST_SEED / 2 % 2))
if [ "$mpis" = " mpich openmpi" ] && [ -n "$quick" ]; then
    if [ $((TEST_SEED % 2)) -eq 0 ]; then whole=" mpich"; else whole=" openmpi"; fi
fi

for mpi in $mpis; do
    # Without twill it must run, too, or what fails with it is never found to be worse.
    suite "$mpi" modules '^test_msgzero-3$'
    grep -q '^modules .* 1 of 1 passed  *1 of 1 passed ' "$scratch/out" || fail "it does not run without twill ($mpi)"
    case "$whole " in *" $mpi "*) ;; *) continue ;; esac
    cases='^some-'
    [ "$mpi" = openmpi ] || cases='^some-[34]$\|^all-'
    [ -z "$quick" ] || cases="^quick-[2$quick]\$"
    if [ -n "$quick" ] && [ "$mpi" = mpich ] && [ $((TEST_SEED / 4 % 4)) -eq 0 ]; then cases="^slow-2\$\|^quick-$quick\$"; fi
    suite "$mpi" mpi4py "$cases" --doubts
    awk -F '\t' '{ sub("^passed: ", "", $4); print "    " $1 ": " $4 ", " $3 " s" }' \
        "$TEST_FOREIGN/results-some/$mpi/twill/mpi4py/verdicts"
    # What fails without twill, too, is no excuse here: all of these pass.
    passed=$(grep -c "$(printf '\tpassed: [1-9][0-9]* tests$')" \
        "$TEST_FOREIGN/results-some/$mpi/twill/mpi4py/verdicts") || :
    [ "$passed" -eq "$(if [ -n "$quick" ]; then echo 2; else echo 3; fi)" ] || fail "not all tests of mpi4py have passed with twill"
    if [ -n "${TEST_MPI_LONG:-}" ]; then
        suite "$mpi" modules '-[34]$'
        [ "$mpi" = openmpi ] || suite mpich rma .
    fi
done
echo "ok: mpi4py's tests"
