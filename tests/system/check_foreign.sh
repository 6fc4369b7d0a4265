#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Two of the programs of foreign/run_programs.sh, the cheap ones: the testers of ScaLAPACK and HPC Challenge must give
# equal results with and without libtwill-mpi, and some of their collectives must be taken. A library that breaks
# their end must be detected. Skipped (77) without an MPI or the programs.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
# shellcheck disable=SC2086,SC2154 # words; of rules.sh
. "$(dirname "$0")/../support/check.sh"
export TEST_FOREIGN="$scratch/foreign" TEST_BUILD="$build"

# run BUILD CASES PROGRAM OPTION...: with both MPIs, if installed.
run()
{
    run_build=$1 run_cases=$2 run_program=$3 run_got=0
    shift 3
    TEST_BUILD=$run_build "$here/system/foreign/run_programs.sh" $mpis --cases "$run_cases" "$@" "$run_program" >"$scratch/out" 2>"$scratch/err" || run_got=$?
}

mpis=''
for mpi in openmpi mpich; do
    [ ! -e "$build/lib/libtwill-mpi-$mpi.so" ] || ! command -v "mpirun.$mpi" >/dev/null || mpis="$mpis --mpi $mpi"
done
[ -n "$mpis" ] || skip "no MPI is here, or none that twill was built for"

run "$build" '^xd\(brd\|qr\)$' scalapack
[ $run_got -eq 0 ] || fail "ScaLAPACK's testers with twill"
programs=$(sed -n 's/ programs run,.*//p' "$scratch/out")
[ "$programs" -gt 0 ] || skip "no package scalapack-mpi-test"
[ "$(grep -c '^scalapack .* 2 of 2 passed *2 of 2 passed  *[1-9][0-9]*/' "$scratch/out")" -eq "$programs" ] ||
    fail "not all testers passed, or nothing was taken"
grep '^scalapack' "$scratch/out"
run "$build" '2$' hpcc
[ $run_got -eq 0 ] || fail "HPC Challenge with twill"
grep '^hpcc' "$scratch/out"

mkdir -p "$scratch/spoilt/lib"
for mpi in openmpi mpich; do
    echo 'void _exit(int); int MPI_Finalize(void) { _exit(3); }' |
        cc -x c -shared -fPIC -o "$scratch/spoilt/lib/libtwill-mpi-$mpi.so" -
done
for doubts in '' --doubts; do
    run "$scratch/spoilt" '^xdbrd$' scalapack $doubts
    [ $run_got -eq 1 ] || fail "a spoilt end was not seen${doubts:+ ($doubts)}"
    [ "$(grep -c '^WORSE scalapack' "$scratch/out")" -eq "$programs" ] || fail "a broken end was not reported"
done

# What fails without twill, too, is named, and is not worse.
mkdir "$scratch/bin"
for mpi in openmpi mpich; do
    printf '#!/bin/sh\nexit 5\n' >"$scratch/bin/mpirun.$mpi"
    chmod +x "$scratch/bin/mpirun.$mpi"
done
PATH="$scratch/bin:$PATH" run "$build" '^xdbrd$' scalapack --doubts
[ $run_got -eq 0 ] || fail "what fails on both sides was called worse"
[ "$(grep -c '^NO VERDICT scalapack .*status 5.*without twill: failed: status 5' "$scratch/out")" -eq "$programs" ] ||
    fail "what fails on both sides was not named"
echo "ok: programs that others wrote"
