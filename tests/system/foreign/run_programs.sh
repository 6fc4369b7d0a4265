#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run MPI programs that others wrote, from the distribution's packages, without twill and with libtwill-mpi preloaded.
# What a program reports of its own run (passed, failed, residuals, energies) must be the same both times. Prints a line
# for each: its report without twill, with twill, and how many calls twill took and passed on.
#   run_programs.sh [--mpi openmpi|mpich] [--install] [--again] [--without | --doubts] [--cases REGEX] [program...]
# Default: all programs of programs.sh, with both MPIs. --cases: only cases whose names match. --install: first install
# packages, fetch sources and build what is missing (root; apt-get). --again: repeat the runs without twill; by default
# their results are kept. --without: run without twill only. --doubts: run with twill first, then without it what has failed.
# A case that fails without twill, too, does not count as a failure: it is named, with both results.
# TEST_BUILD: the build with lib/libtwill-mpi-*.so. TEST_FOREIGN: the folder for sources, builds and logs (/tmp/foreign).
# shellcheck source-path=SCRIPTDIR source=programs.sh
set -u
foreign=$(cd "$(dirname "$0")" && pwd)
build=${TEST_BUILD:-$(cd "$foreign/../../.." && pwd)/build}
work=${TEST_FOREIGN:-/tmp/foreign}
mpis='' install=false again=false both=true doubts=false cases=. kept=results
. "$foreign/programs.sh"

complain()
{
    echo "run_programs.sh: $*" >&2
    exit 2
}

while [ $# -gt 0 ]; do
    case $1 in
    --mpi) mpis="$mpis ${2:-}" && shift ;;
    --install) install=true ;;
    --again) again=true ;;
    --without) both=false ;;
    --doubts) doubts=true again=true ;;
    --cases) cases=${2:-} kept=results-some again=true && shift ;;
    -*) complain "no such option: $1" ;;
    *) break ;;
    esac
    shift
done
# shellcheck disable=SC2086,SC2154 # words; of programs.sh
[ $# -gt 0 ] || set -- $programs
mkdir -p "$work"
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl_base_warn_component_unused=0

# has_passed VERDICTS NAME RANKS
has_passed()
{
    awk -F '\t' -v name="$2" -v ranks="$3" '
        $1 == name && $2 == ranks && $4 ~ /^passed/ { found = 1 }
        END { exit !found }' "$1"
}

# run_case NAME RANKS SECONDS JUDGE command...: run a case in a folder of its own, with its output in ./log, and write the
# line NAME RANKS SECONDS-TAKEN VERDICT. The judge gets the exit status and prints "passed" or "failed", and details that
# must be the same with twill.
run_case()
{
    case_name=$1 case_ranks=$2 case_limit=$3 case_judge=$4 case_status=0
    shift 4
    echo "$case_name" | grep -q -e "$cases" || return 0
    ! $doubts || [ "$mode" = twill ] || ! has_passed "$with/verdicts" "$case_name" "$case_ranks" || return 0
    case_folder=$results/$(echo "$case_name" | tr '/ ' '__').$case_ranks
    [ -d "$case_folder" ] || mkdir -p "$case_folder"
    case_before=$(echo "$case_folder" | sed "s|/twill/$program/|/below/$program/|")
    case_start=$(date +%s)
    (
        cd "$case_folder" || exit 1
        preload=$yield
        [ "$mode" = below ] || preload="$preload $build/lib/libtwill-mpi-$mpi.so"
        # It has passed without twill. Allow more time with it: the machine may be busy, and time is not judged.
        [ "$mode" = below ] || $doubts || ! has_passed "$below/verdicts" "$case_name" "$case_ranks" ||
            case_limit=$((2 * case_limit))
        exec timeout -k 5 "$case_limit" "mpirun.$mpi" -n "$case_ranks" env LD_PRELOAD="$preload" \
            TWILL_MPI_REPORT="$case_folder/report" "$@" >log 2>&1 </dev/null
    ) || case_status=$?
    case_verdict=$(cd "$case_folder" && "$case_judge" "$case_status" "$case_before")
    printf '%s\t%s\t%s\t%s\n' "$case_name" "$case_ranks" $(($(date +%s) - case_start)) "$case_verdict" \
        >>"$results/verdicts"
}

# Run the cases of this program in this mode; the verdicts go to $results/verdicts.
run_program()
{
    mode=$1
    if [ "$mode" = twill ]; then results=$with; else results=$below; fi
    [ "$mode" = twill ] || $again || [ ! -s "$results/complete" ] || return 0
    rm -rf "$results"
    mkdir -p "$results"
    : >"$results/verdicts"
    "run_$program"
    date >"$results/complete"
}

tally()
{
    awk -F '\t' '{ n[substr($4, 1, 6)]++ } END { printf NR ? "%d of %d passed" : "-", n["passed"], NR }' "$1"
}

# Print the calls taken and passed on, summed over the reports of all cases.
calls()
{
    find "$1" -name report -exec cat {} + | awk '
        $1 == "twill-mpi:" && $2 == "all" { taken += $3; passed += $4 }
        END { printf "%d/%d", taken, passed }'
}

# Print what differs with twill, and what has not passed without it.
differences()
{
    awk -F '\t' -v where="$program ($mpi)" '
        FILENAME == ARGV[1] { said[$1, $2] = $4; next }
        ($1, $2) in said && (said[$1, $2] != $4 || $4 !~ /^passed/) {
            print (said[$1, $2] ~ /^passed/ ? "WORSE " : "NO VERDICT ") where " " $1 ", " $2 " ranks: " $4 \
                "; without twill: " said[$1, $2]
        }' "$1" "$2"
}

bad=0 ran=0
printf '%-10s %-8s %-8s %-22s %-22s %s\n' program MPI ranks 'without twill' 'with twill' 'calls taken/passed on'
for mpi in ${mpis:-openmpi mpich}; do
    [ -e "$build/lib/libtwill-mpi-$mpi.so" ] || complain "no $build/lib/libtwill-mpi-$mpi.so"
    yield=''
    [ "$mpi" = openmpi ] || {
        yield=$work/yield.so
        cc -O2 -shared -fPIC -o "$yield" "$foreign/yield.c" -ldl || exit 2
    }
    for program; do
        ! $install || "install_$program" >"$work/install.log" 2>&1 || echo "$program ($mpi): installing failed"
        why=$("ready_$program") || {
            printf '%-10s %-8s not run: %s\n' "$program" "$mpi" "$why"
            continue
        }
        below=$work/$kept/$mpi/below/$program with=$work/$kept/$mpi/twill/$program
        $doubts || run_program below
        $both || continue
        run_program twill
        ! $doubts || run_program below
        printf '%-10s %-8s %-8s %-22s %-22s %s\n' "$program" "$mpi" \
            "$(cut -f 2 "$with/verdicts" | sort -n | sed -n '1p;$p' | uniq | paste -sd -)" \
            "$(tally "$below/verdicts")" "$(tally "$with/verdicts")" "$(calls "$with")"
        differences "$below/verdicts" "$with/verdicts" >"$with/differences"
        cat "$with/differences"
        bad=$((bad + $(grep -c '^WORSE' "$with/differences"))) ran=$((ran + 1))
    done
done
echo "$ran programs run, $bad cases worse with twill"
[ $bad -eq 0 ]
