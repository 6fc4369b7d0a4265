#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mpi4py's own tests, all of them but those that start processes, with MPICH: without twill and with libtwill-mpi. They
# come from PyPI. TEST_MPI_LONG=1: with 3 and 4 ranks, too, and MPICH's own tests of windows and partitioned messages.
# Skipped (77) where there is no MPICH, no Python to build with, or PyPI cannot be reached.
# shellcheck source-path=SCRIPTDIR source=support/check.sh
# shellcheck disable=SC2154 # of rules.sh
. "$(dirname "$0")/support/check.sh"
case $sanitize in
?*) skip "once, in the released build, is enough: the programs are others'" ;;
esac
if [ ! -e "$build/lib/libtwill-mpi-mpich.so" ] || ! command -v mpirun.mpich >/dev/null; then
    skip "no MPICH is here, or twill was not built for it"
fi
/usr/bin/python3 -c 'import setuptools, sysconfig, os; os.stat(sysconfig.get_path("include") + "/Python.h")' \
    2>/dev/null || skip "no /usr/bin/python3 with its headers and setuptools (python3-dev, python3-setuptools)"
export TEST_FOREIGN="${TEST_FOREIGN:-$scratch/foreign}" TEST_BUILD="$build"

# suite CASES PROGRAM: installed or found, and run without twill and with it.
suite()
{
    suite_got=0
    "$here/foreign/run.sh" --install --mpi mpich --cases "$1" "$2" >"$scratch/out" 2>"$scratch/err" || suite_got=$?
    if grep -q "^$2  *mpich  *not run: " "$scratch/out"; then
        tail -n 5 "$TEST_FOREIGN/install.log"
        skip "$2 cannot be fetched or built here"
    fi
    grep -e "^$2" -e '^WORSE' "$scratch/out" || :
    [ $suite_got -eq 0 ] || fail "$2: worse with twill"
}

ranks=2
[ -z "${TEST_MPI_LONG:-}" ] || ranks='[234]'
suite "tests-$ranks" mpi4py
passed=$(grep -hc "$(printf '\tpassed: 1[0-9]* tests$')" "$TEST_FOREIGN"/results-some/mpich/twill/mpi4py/verdicts) || :
[ "$passed" -eq $((${#ranks} == 1 ? 1 : 3)) ] || fail "not all tests of mpi4py have passed with twill"
grep -q '^mpi4py .*  [1-9][0-9]*/' "$scratch/out" || fail "nothing was taken"
[ -z "${TEST_MPI_LONG:-}" ] || suite . rma
echo "ok: mpi4py's tests"
