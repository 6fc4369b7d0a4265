# SPDX-License-Identifier: Apache-2.0
# The programs of run_programs.sh. For each: how to install and build it (for $mpi, below $work), whether it is ready
# (or why not), its cases, which run_case runs, and how to judge their output.
# shellcheck disable=SC2154 # mpi, work, program: run_programs.sh's
# shellcheck disable=SC2034 # read by run_programs.sh
programs='mpich rma hpcc scalapack lammps gromacs nwchem mpb mumps mpi4py modules'

packages()
{
    apt-get install -y --no-install-recommends "$@"
}

# source_of PACKAGE: unpack the original source of a Debian package in $work/src/PACKAGE/tree. apt reads the list of source
# packages into a folder below $work.
source_of()
{
    mkdir -p "$work/src/$1" "$work/lists/partial"
    sed 's/^Types: deb$/Types: deb-src/;s/^deb /deb-src /' /etc/apt/sources.list.d/debian.sources >"$work/all.sources"
    cat >"$work/apt.conf" <<END
Dir::Etc::SourceList "$work/all.sources";
Dir::Etc::SourceParts "/dev/null";
Dir::State::Lists "$work/lists";
APT::Sandbox::User "root";
END
    (
        cd "$work/src/$1" || exit 1
        [ -e tree ] || {
            APT_CONFIG=$work/apt.conf apt-get update && APT_CONFIG=$work/apt.conf apt-get source --download-only "$1" &&
                mkdir tree && tar -xf ./*.orig.tar.* -C tree --strip-components=1
        }
    )
}

# needs FILE-OR-COMMAND...
needs()
{
    for needs_it; do
        [ -e "$needs_it" ] || command -v "$needs_it" >/dev/null || {
            echo "no $needs_it"
            return 1
        }
    done
}

# built_for MPI: report that the package was built for the other MPI only.
built_for()
{
    [ "$mpi" = "$1" ] || {
        echo "the package is built for $1"
        return 1
    }
}

# --- judges: they read ./log; arguments: the exit status, and the folder of the same case without twill ----------------

judge_status()
{
    if [ "$1" -eq 0 ]; then echo passed; else echo "failed: status $1"; fi
}

# verdict STATUS PASSED DETAIL: print "passed" if the status is 0 and PASSED is not empty, else "failed"; then DETAIL.
verdict()
{
    if [ "$1" -eq 0 ] && [ -n "$2" ]; then
        echo "passed${3:+: $3}"
    else
        echo "failed: status $1${3:+, $3}"
    fi
}

# near TOLERANCE FOLDER FILE: compare the numbers of FILE with those of FOLDER/FILE. They may differ by the relative TOLERANCE,
# because sums in another order round differently. Prints the numbers that differ by more.
near()
{
    [ -e "$2/$3" ] || return 0
    paste "$3" "$2/$3" | awk -v tolerance="$1" '
        {
            for (i = 1; i <= NF / 2; i++) {
                a = $i; b = $(i + NF / 2)
                scale = a * a > b * b ? a : b
                if (scale < 0) scale = -scale
                if (NF % 2 || a - b > tolerance * scale || b - a > tolerance * scale) { print a " and not " b; exit }
            }
        }'
}

# --- MPICH's own test suite, built for either MPI -------------------------------------------------------------------

suite_folders='coll comm topo group attr datatype pt2pt init errhan errors/coll errors/comm errors/topo errors/group
    threads/coll threads/comm threads/pt2pt f77/coll f77/comm f77/topo f77/attr f77/pt2pt f90/coll f90/comm f90/topo
    f90/pt2pt f08/coll f08/comm f08/topo f08/pt2pt'

# Some tests do not compile for the other MPI, which lacks what they use: they are left out for both.
# build_suite FOLDER OPTIONS TESTS...: build the folders TESTS of the suite in $work/suite-FOLDER
build_suite()
{
    suite_built=$work/suite-$1 suite_options=$2
    shift 2
    packages mpich libmpich-dev openmpi-bin libopenmpi-dev gfortran make
    source_of mpich || return 1
    mkdir -p "$suite_built"
    cd "$suite_built" || return 1
    strict='' flags=-O1
    [ "$mpi" = mpich ] || {
        strict=--enable-strictmpi
        flags="-O1 -DOMPI_OMIT_MPI1_COMPAT_DECLS=0 -DOMPI_REMOVED_USE_STATIC_ASSERT=0"
    }
    # shellcheck disable=SC2086 # words
    [ -e Makefile ] || ../src/mpich/tree/test/mpi/configure --disable-cxx --disable-spawn --disable-romio \
        --disable-ft-tests $suite_options $strict CC=gcc F77=gfortran FC=gfortran \
        MPICC="mpicc.$mpi" MPIF77="mpif77.$mpi" MPIFC="mpifort.$mpi" FFLAGS=-fallow-argument-mismatch \
        FCFLAGS=-fallow-argument-mismatch || return 1
    make -C dtpools CFLAGS="$flags" && make -C util CFLAGS="$flags"
    for suite_folder; do
        # shellcheck disable=SC2016 # make's
        targets=$(echo 'show: ; @echo $(noinst_PROGRAMS) $(EXTRA_PROGRAMS) $(check_PROGRAMS)' |
            make -s -C "$suite_folder" -f Makefile -f - show)
        libraries=
        case $suite_folder in
        f08/*)
            libraries=$PWD/util/f08.o
            [ -e "$libraries" ] ||
                "mpifort.$mpi" -c ../src/mpich/tree/test/mpi/util/mtest_f08.f90 -o "$libraries"
            ;;
        esac
        # shellcheck disable=SC2086 # words
        make -k -C "$suite_folder" all $targets CFLAGS="$flags" LIBS="$libraries"
    done
    cd - || return 1
}

install_mpich()
{
    # shellcheck disable=SC2086 # words
    build_suite "$mpi" '--enable-fortran=all --disable-rma --disable-part' $suite_folders
}

ready_mpich()
{
    needs "$work/suite-$mpi/coll/allred"
}

judge_mpich()
{
    verdict "$1" "$(grep -m 1 'No Errors' log)" "$([ "$1" -eq 0 ] && grep -c 'No Errors' log)"
}

# A line of a test list is: program ranks arg=... what=.... Tests that are expected to fail, or need a newer MPI, are left out.
# run_suite BUILD SECONDS FOLDER...: run the tests of these folders, each for at most SECONDS, whatever the list allows.
run_suite()
{
    suite_built=$work/suite-$1 suite_most=$2
    shift 2
    for suite_folder; do
        suite=$suite_built/$suite_folder
        suite_list=$suite/testlist
        [ -e "$suite_list" ] || suite_list=$work/src/mpich/tree/test/mpi/$suite_folder/testlist
        grep -v -e '^#' -e '^ *$' -e 'resultTest=' -e 'xfail=' "$suite_list" >"$results/list"
        while read -r suite_test suite_ranks suite_rest <&3; do
            if [ ! -x "$suite/$suite_test" ] || [ "${suite_ranks:=1}" -gt 12 ]; then continue; fi
            suite_limit=$(echo "$suite_rest" | tr ' ' '\n' | sed -n 's/^timeLimit=//p')
            [ "${suite_limit:=60}" -le "$suite_most" ] || suite_limit=$suite_most
            suite_arguments=$(echo "$suite_rest" | tr ' ' '\n' | sed -n 's/^arg=//p' | paste -sd ' ' -)
            # shellcheck disable=SC2086 # words
            run_case "$suite_folder/$suite_test${suite_arguments:+ $suite_arguments}" "$suite_ranks" \
                "$suite_limit" judge_mpich "$suite/$suite_test" $suite_arguments
        done 3<"$results/list"
    done
}

run_mpich()
{
    # shellcheck disable=SC2086 # words
    run_suite "$mpi" 600 $suite_folders
}

# Windows and partitioned messages, which need collectives to let the MPI make progress.
install_rma()
{
    build_suite "$mpi-rma" '--disable-fortran' rma part
}

ready_rma()
{
    needs "$work/suite-$mpi-rma/rma/putfence1"
}

run_rma()
{
    run_suite "$mpi-rma" 20 rma part
}

# --- HPC Challenge: HPL, PTRANS, RandomAccess, FFT, STREAM, latency and bandwidth ------------------------------------

install_hpcc()
{
    packages hpcc libblas-dev
    [ "$mpi" = mpich ] || return 0
    source_of hpcc || return 1
    tree=$work/src/hpcc/tree
    sed "s|^TOPdir *=.*|TOPdir = $tree/hpl|;s|^ARCH *=.*|ARCH = twill|;s|^CC *=.*|CC = mpicc.mpich|;
        s|^LINKER *=.*|LINKER = mpicc.mpich|;s|^LAlib *=.*|LAlib = -lblas|;s|^LAdir *=.*|LAdir =|;s|^LAinc *=.*|LAinc =|;
        s|^MPdir *=.*|MPdir =|;s|^MPinc *=.*|MPinc =|;s|^MPlib *=.*|MPlib =|;
        s|^CCFLAGS *=.*|CCFLAGS = \$(HPL_DEFS) -O2|" "$tree/hpl/setup/Make.Linux_PII_FBLAS" >"$tree/hpl/Make.twill"
    make -C "$tree" arch=twill
}

hpcc_program()
{
    if [ "$mpi" = openmpi ]; then echo /usr/bin/hpcc; else echo "$work/src/hpcc/tree/hpcc"; fi
}

ready_hpcc()
{
    needs "$(hpcc_program)" /usr/share/doc/hpcc/examples/_hpccinf.txt
}

# Compare the program's own checks and the errors that it counted; but not how many checks of PTRANS passed, because it prints
# no line for a run whose time was 0.
judge_hpcc()
{
    verdict "$1" "$(grep -m 1 '^Success=1' hpccoutf.txt)" \
        "$(grep -c -e FAILED -e '[1-9][0-9]* errors' hpccoutf.txt) failed, \
$(grep -c 'Node(s) with error 0' hpccoutf.txt) without error, \
$(sed -n 's/^\(MPIRandomAccess.*Errors\)=/\1 /p' hpccoutf.txt | tr '\n' ' ')"
}

run_hpcc()
{
    for shape in '1 2' '1 3' '2 2'; do
        hpcc_ranks=$((${shape% *} * ${shape#* }))
        mkdir -p "$results/hpcc$hpcc_ranks.$hpcc_ranks"
        sed "s/^2  *Ps/${shape% *} Ps/;s/^2  *Qs/${shape#* } Qs/;s/^1000  *Ns/800 Ns/" \
            /usr/share/doc/hpcc/examples/_hpccinf.txt >"$results/hpcc$hpcc_ranks.$hpcc_ranks/hpccinf.txt"
        run_case hpcc$hpcc_ranks $hpcc_ranks 900 judge_hpcc "$(hpcc_program)"
    done
}

# --- ScaLAPACK's testers: solvers checked by residuals ---------------------------------------------------------------

scalapack=/usr/lib/x86_64-linux-gnu/scalapack
install_scalapack()
{
    packages scalapack-mpi-test
}

ready_scalapack()
{
    needs "$scalapack/$mpi-tests/xdlu"
}

judge_scalapack()
{
    verdict "$1" "$(grep -m 1 -i -e 'end of tests' log)" "$(grep -c -i -e '\<passed *$' -e '^ *passed' log) passed, \
$(grep -c -i -e '\<failed *$' -e '^ *failed' log) failed"
}

run_scalapack()
{
    for tester in xdlu xzlu xdqr xdsep xdsvd xdls xdinv xdtrd xdhrd xdnep xdbrd xzevc xdgsep xddblu xdptllt; do
        mkdir -p "$results/$tester.4"
        cp "$scalapack/$mpi-tests"/*.dat "$results/$tester.4"
        run_case $tester 4 900 judge_scalapack "$scalapack/$mpi-tests/$tester"
    done
}

# --- applications ----------------------------------------------------------------------------------------------------

install_lammps()
{
    packages lammps lammps-examples
}

ready_lammps()
{
    built_for openmpi && needs lmp /usr/share/lammps/examples
}

# Compare the last line of thermodynamics: energies and pressures after all steps.
judge_lammps()
{
    awk '/^Step /{ on = 1; next } /^Loop time/{ on = 0 } on && NF > 1 { last = $0 } END { print last }' log >figures
    verdict "$1" "$(grep -m 1 '^Total wall time' log)" "$(near 1e-4 "$2" figures)"
}

run_lammps()
{
    for example in melt min crack rigid peptide; do
        mkdir -p "$results/$example.3"
        cp /usr/share/lammps/examples/$example/* "$results/$example.3"
        run_case $example 3 200 judge_lammps lmp -in in.$example
    done
}

install_gromacs()
{
    packages gromacs
}

ready_gromacs()
{
    built_for openmpi && needs gmx_mpi
}

# Compare energies after 200 steps, with a tolerance for sums in another order.
judge_gromacs()
{
    grep -A 2 '^   Energies' md.log | tail -1 | tr -s ' ' '\n' | sed -n '/./p' | head -4 >figures
    verdict "$1" "$(grep -m 1 '^Finished mdrun' md.log)" "$(near 2e-2 "$2" figures)"
}

# Water from the package's own coordinates and force field.
run_gromacs()
{
    folder=$work/water
    mkdir -p "$folder"
    cp /usr/share/gromacs/top/spc216.gro "$folder/conf.gro"
    printf '#include "oplsaa.ff/%s"\n' forcefield.itp spc.itp >"$folder/topol.top"
    printf '[ system ]\nWater\n[ molecules ]\nSOL 216\n' >>"$folder/topol.top"
    printf '%s\n' 'integrator = md' 'dt = 0.002' 'nsteps = 200' 'nstenergy = 100' 'nstlog = 100' \
        'coulombtype = PME' 'rcoulomb = 0.8' 'rvdw = 0.8' 'tcoupl = v-rescale' 'tc-grps = System' \
        'tau-t = 0.5' 'ref-t = 300' 'gen-vel = yes' 'gen-temp = 300' 'gen-seed = 1' 'ld-seed = 1' \
        >"$folder/grompp.mdp"
    (cd "$folder" && gmx_mpi grompp) >"$folder/log" 2>&1
    for water_ranks in 2 4; do
        run_case water $water_ranks 200 judge_gromacs gmx_mpi mdrun -s "$folder/topol.tpr" -reprod -ntomp 1
    done
}

install_nwchem()
{
    packages "nwchem-$mpi"
}

ready_nwchem()
{
    needs "nwchem.$mpi"
}

judge_nwchem()
{
    sed -n 's/.*Total [SD][CF][FT] energy *= *//p' log >figures
    verdict "$1" "$(grep -m 1 'Total DFT energy' log)" "$(near 1e-8 "$2" figures)"
}

run_nwchem()
{
    mkdir -p "$results/water.2"
    printf '%s\n' 'start water' 'geometry units au noautosym' 'O 0 0 0' 'H 0 1.430 -1.107' 'H 0 -1.430 -1.107' end \
        basis '* library 6-31g*' end 'task scf gradient' dft 'xc b3lyp' end 'task dft energy' >"$results/water.2/in.nw"
    run_case water 2 200 judge_nwchem "nwchem.$mpi" in.nw
}

install_mpb()
{
    packages mpb-mpi mpb-doc
}

ready_mpb()
{
    built_for mpich && needs mpb-mpi /usr/share/doc/mpb/examples/check.ctl
}

# The program compares bands of photonic crystals with tables.
judge_mpb()
{
    verdict "$1" "$(grep -m 1 'PASSED all tests' log)" ""
}

run_mpb()
{
    run_case check 2 300 judge_mpb mpb-mpi /usr/share/doc/mpb/examples/check.ctl
}

install_mumps()
{
    packages mumps-test
}

ready_mumps()
{
    built_for openmpi && needs /usr/lib/mumps/dsimpletest
}

# The solution is 1 2 3 4 5.
judge_mumps()
{
    verdict "$1" "$(awk '/Solution is/ { bad = 0; gsub("[(),]", " "); for (k = 0; k < 5; k++) {
            got = $(NF == 7 ? k + 3 : 2 * k + 3); if (got - k - 1 > 1e-4 || k + 1 - got > 1e-4) bad = 1 }
            if (!bad) print "right" }' log)" ""
}

run_mumps()
{
    for letter in s d c z; do
        kind=real
        case $letter in c | z) kind=cmplx ;; esac
        for mumps_ranks in 2 4; do
            run_case ${letter}simpletest $mumps_ranks 60 judge_mumps \
                sh -c "exec /usr/lib/mumps/${letter}simpletest </usr/lib/mumps/input_simpletest_$kind"
        done
    done
}

# mpi4py's own tests, from PyPI, built for either MPI; all but those that start processes.
mpi4py='mpi4py-3.1.6'
install_mpi4py()
{
    packages python3-dev python3-pip python3-setuptools
    mkdir -p "$work/src"
    cd "$work/src" || return 1
    [ -e $mpi4py ] || {
        /usr/bin/python3 -m pip download --disable-pip-version-check --no-deps --no-build-isolation --no-binary mpi4py \
            mpi4py==${mpi4py#*-} && tar -xf $mpi4py.tar.gz
    }
    [ -e "$work/mpi4py-$mpi/lib/mpi4py" ] ||
        (! command -v ccache >/dev/null || export MPICH_CC="ccache cc" OMPI_CC="ccache cc"
            cd $mpi4py && CFLAGS='-O0 -g0' /usr/bin/python3 setup.py build --build-base "$work/mpi4py-$mpi" \
            --build-lib "$work/mpi4py-$mpi/lib" --mpicc="mpicc.$mpi")
    cd - || return 1
}

ready_mpi4py()
{
    needs "$work/mpi4py-$mpi/lib/mpi4py" "$work/src/$mpi4py/test/runtests.py"
}

judge_mpi4py()
{
    verdict "$1" "$(grep -m 1 '^OK' log)" "$(sed -n 's/^Ran \([0-9]* tests\).*/\1/p' log | sort -u | head -1)"
}

# run_python NAME RANKS SECONDS OPTION...: run the tests that the options of its runner select.
run_python()
{
    python_name=$1 python_ranks=$2 python_limit=$3
    shift 3
    run_case "$python_name" "$python_ranks" "$python_limit" judge_mpi4py env PYTHONPATH="$work/mpi4py-$mpi/lib" \
        /usr/bin/python3 "$work/src/$mpi4py/test/runtests.py" -e test_spawn -e test_dynproc "$@"
}

# All tests with 2 ranks; those of communication also with 3 and 4. If --cases asks for "quick": without the modules that
# take most of the time, which are "slow": those of windows, messages and neighbours, of which twill takes nothing, and test_io.
run_mpi4py()
{
    run_python all-2 2 900
    for some_ranks in 2 3 4; do
        run_python some-$some_ranks $some_ranks 900 \
            -i '^test_(cco_(buf|nb_buf|obj|obj_inter)|comm|comm_topo|file|p2p_buf|request|rma|win)$'
    done
    case $cases in *quick*) ;; *) return ;; esac
    slow='^test_(cco_ngh_buf|io|p2p_.*|pack|rma.*|util_dtlib)$'
    run_python quick-2 2 900 -e "$slow"
    run_python slow-2 2 900 -i "$slow"
    run_python quick-3 3 900 -i '^test_(cco_(buf|nb_buf|vec|nb_vec|obj|obj_inter)|comm|comm_topo|file|request|win)$'
    run_python quick-4 4 900 -i '^test_(cco_(buf|obj|obj_inter)|comm|comm_topo|win)$'
}

# One run for each test module, so that a hang or crash in one does not end the others.
install_modules()
{
    install_mpi4py
}

ready_modules()
{
    ready_mpi4py
}

run_modules()
{
    for module_path in "$work/src/$mpi4py/test"/test_*.py; do
        module=$(basename "$module_path" .py)
        case $module in test_spawn | test_dynproc) continue ;; esac
        for module_ranks in 2 3 4; do
            run_python "$module-$module_ranks" $module_ranks 120 -i "^$module\$"
        done
    done
}
