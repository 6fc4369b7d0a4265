#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# twill-compare: twill and the bound alone, with doubles of peers (one that works, one that computes wrongly, one that
# fails, one that hangs, one that does not compile), and with the peers that are installed. The measurements are not
# judged, only that all are reported and agree.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
. "$(dirname "$0")/../support/check.sh"
compare=$bin/twill-compare
command -v python3 >/dev/null || skip "no python3"
doubles=$scratch/doubles
mkdir "$doubles"

# numbers ROWS ROUNDS: the JSON is good, each row has times, and ratios are those of the times.
numbers()
{
    cmake -DFILE="$scratch/c.json" -P "$(dirname "$0")/../support/check_compare.cmake" \
        >"$scratch/err" 2>&1 || fail "the JSON"
    # shellcheck disable=SC2016 # awk's dollars
    awk -v rows="$1" -v rounds="$2" '
        function bad(why) { print why ": " $0; failures++ }
        function near(a, b) { return a - b <= 0.001 * b && b - a <= 0.001 * b }
        function check(what, ratio, name) {
            if (name == "-" ? ratio != "-" : !near(ratio, median[$2, $3, name] / median[$2, $3, $4]))
                bad(what)
        }
        $1 == "contender" { kind[$2] = $3; tuned[$2] = $4 == "ON" || $4 == "true" }
        $1 == "row" { n++; bound = $4; installed = $5; tuned_best = $6; least[0] = least[1] = "" }
        $1 == "time" {
            times++
            median[$2, $3, $4] = $6
            if (!(0 < $5 && $5 <= $6 && $6 <= $7)) bad("min, median, p99")
            if ($9 != rounds && kind[$4] != "peer") bad("rounds")
            right = $8 == "ON" || $8 == "true"
            t = tuned[$4]
            if (kind[$4] == "peer" && right && (least[t] == "" || $6 < least[t]))
                least[t] = $6
        }
        $1 == "ratio" {
            ratios++
            if (least[0] == "" ? installed != "-" : median[$2, $3, installed] != least[0]) bad("best as installed")
            if (least[1] == "" ? tuned_best != "-" : median[$2, $3, tuned_best] != least[1]) bad("best tuned")
            if (kind[bound] != "bound") bad("bound")
            check("to the best as installed", $5, installed)
            check("to the best tuned", $6, tuned_best)
            check("share of the bound", $7, bound)
        }
        END {
            if (n != rows || times < 4 * rows || ratios < 2 * rows || ratios % rows)
                bad(n " rows, " times " times, " ratios " ratios")
            exit failures > 0
        }' "$scratch/err" >"$scratch/out" || fail "the numbers"
}

# pairs: the JSON of --mpi is good, and each ratio is that of a time without twill over the one with it.
pairs()
{
    cmake -DFILE="$scratch/c.json" -P "$(dirname "$0")/../support/check_compare.cmake" \
        >"$scratch/err" 2>&1 || fail "the JSON"
    # shellcheck disable=SC2016 # awk's dollars
    awk '
        function bad(why) { print why ": " $0; failures++ }
        $1 == "contender" { below[$2] = $6 }
        $1 == "time" {
            median[$2, $3, $4] = $6
            if ($8 != "ON" && $8 != "true") bad("values")
        }
        $1 == "ratio" {
            n++
            if (below[$4] != substr($4, 1, index($4, "+") - 1)) bad("beside whom")
            ratio = median[$2, $3, below[$4]] / median[$2, $3, $4]
            if ($8 - ratio > 0.001 * ratio || ratio - $8 > 0.001 * ratio) bad("ratio")
        }
        END { if (n == 0) bad("no pair"); exit failures > 0 }
        ' "$scratch/err" >"$scratch/out" || fail "the numbers of pairs"
}

# No peer is installed, which is reported and not an error. Every size is reported, no time is missing.
none=$scratch/alone
mkdir "$none"
ln -s "$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))')" "$none/python3" # of the driver itself
expect 0 "ompi-cma-tuned       left out: not installed: no mpicc.openmpi" env PATH="$none" "$compare" --quick \
    --sizes 8,1K,64K --rounds 1 --timeout 300 --json "$scratch/c.json" --csv "$scratch/c.csv" --plot "$scratch/p"
grep -q '^# gloo  *left out: not installed, or its program does not compile: c++: No such file' \
    "$scratch/out" || fail "gloo is not missing"
grep -q '^# ucc  *left out: its path was not given: --ucc PREFIX' "$scratch/out" || fail "ucc is not missing"
grep -q 'no plot: gnuplot: No such file' "$scratch/out" || fail "gnuplot is not missing"
# reported before the measurement
sed '/^#/q' "$scratch/out" | grep -q "^twill-compare: --plot $scratch/p: gnuplot is not in PATH" || fail "the missing gnuplot is reported late"
[ "$(grep -c '^[a-z_]*,[0-9]*,"[^"]*",2,[0-9.e+-]*,[0-9.e+-]*,[0-9.e+-]*,[0-9.e+-]*,true$' "$scratch/c.csv")" -eq \
    "$(($(wc -l <"$scratch/c.csv") - 1))" ] || fail "a line of the CSV"
[ "$(cut -d, -f1,2 "$scratch/c.csv" | tail -n +2 | sort -u | wc -l)" -eq 16 ] || fail "rows of the CSV"
grep -q '^# [0-9]* s, 0 wrong$' "$scratch/out" || fail "no good end"
numbers 16 1 # five with sizes and the barrier

# A peer: an allreduce through the driver. Its launcher takes the last three words: program, link, memory.
cat >"$scratch/peer.c" <<'END'
#include "peer.h"
static int begin(struct peer *peer)
{
    peer->rank = atoi(getenv("RANK"));
    peer->size = atoi(getenv("WORLD_SIZE"));
    return 0;
}
static void end(struct peer *peer)
{
    (void)peer;
}
static int barrier(struct peer *peer)
{
    char all[TWILL_COMPARE_RANKS], mine = 0;
    return peer_exchange(peer, &mine, all, 1);
}
static int run(struct peer *peer, const struct peer_call *call)
{
    static float all[2 * TWILL_COMPARE_EXCHANGE / sizeof(float)];
    size_t bytes = call->count * sizeof(float);
    if (call->collective == TWILL_COMPARE_BARRIER)
        return WRONG == 2 ? 0 : barrier(peer);
    int answer = 0;
    if (peer_exchange_post(peer, call->src, bytes) != 0)
        return 1;
    while ((answer = peer_exchange_test(peer, all, bytes)) == 0)
        sched_yield();
    if (answer < 0)
        return 1;
    for (size_t i = 0; i < call->count; i++)
        call->dst[i] = all[i] + all[call->count + i] * (WRONG == 1 ? 0 : 1);
    return 0;
}
static int can(struct peer *peer, enum twill_compare_collective collective)
{
    (void)peer;
    return collective <= TWILL_COMPARE_ALLREDUCE_OUT || collective == TWILL_COMPARE_BARRIER;
}
int main(int argc, char **argv)
{
    static const struct peer_program program = {begin, end, run, barrier, NULL, NULL, NULL, NULL, can};
    return peer_main(argc, argv, &program);
}
END
cc=$(cached CMAKE_C_COMPILER)
double() # name line...
{
    double_name=$1
    shift
    printf '#!/bin/sh\n' >"$doubles/$double_name"
    printf '%s\n' "$@" >>"$doubles/$double_name"
    chmod +x "$doubles/$double_name"
}
compiler() # is it wrong? name
{
    # shellcheck disable=SC2016,SC2154 # the script's dollars; $source is of rules.sh
    double "$2" 'while [ "$1" != -o ]; do shift; done' \
        "exec $cc -O2 -D_GNU_SOURCE -DWRONG=$1 -I$source/bench/tools/compare/peers -o \"\$2\" $scratch/peer.c"
}
# shellcheck disable=SC2016 # the script's dollars
launcher='while [ $# -gt 3 ]; do shift; done'
compiler 0 mpicc.openmpi
compiler 1 mpicc.mpich
double mpirun.openmpi "$launcher" "exec $bin/twillrun -n 2 \"\$@\""
double mpiexec.mpich "$launcher" "exec $bin/twillrun -n 2 \"\$@\""
run_with_doubles() # status text argument...
{
    run_status=$1 run_text=$2
    shift 2
    expect "$run_status" "$run_text" env PATH="$doubles:$PATH" "$compare" "$@" --json "$scratch/c.json" \
        --timeout 300
}
run_with_doubles 0 "0 wrong" --quick --peers ompi-cma,mpich-tuned --sizes 8,16K \
    --only allreduce,broadcast,barrier --rounds 2 --details
for form in in out; do
    for bytes in 8 16384; do
        grep -q "mpich-tuned: [0-9]* wrong values in allreduce_$form of $bytes bytes" "$scratch/out" ||
            fail "values of allreduce_$form"
    done
done
numbers 7 2
grep -q '^row broadcast 8 [a-z-]* - -$' "$scratch/err" || fail "a peer that has no broadcast"
grep -q '^row allreduce_in 8 [a-z-]* ompi-cma ompi-cma-tuned$' "$scratch/err" || fail "the best peers"

# Too much for that peer: it fails in the middle, and the others go on.
run_with_doubles 0 "ompi-cma was left out: a call failed: more to exchange than the driver takes" --quick \
    --peers ompi-cma --sizes 8,128K --only allreduce_in
numbers 2 2

# A launcher that fails, one that hangs and has children, a compiler that cannot.
double mpirun.openmpi 'echo "====="' 'echo "no fabric today" >&2' 'exit 3'
run_with_doubles 0 "left out: it ended during its start with status 3: no fabric today" --quick --sizes 8 \
    --peers ompi-cma-tuned --only allreduce_in
double mpirun.openmpi 'sleep 600 &' "echo \$! >$scratch/pid" 'sleep 600'
expect 0 "left out: it hangs: its start took more than 8 s" env PATH="$doubles:$PATH" "$compare" --quick \
    --sizes 8 --peers ompi-cma-tuned --only allreduce_in --timeout 8
wait_for has_ended "$(cat "$scratch/pid")" # the child of the launcher that hung
double mpicc.openmpi 'echo "peer_mpi.c:7:10: fatal error: mpi.h: no" >&2' 'exit 1'
run_with_doubles 0 "its program does not compile: peer_mpi.c:7:10: fatal error: mpi.h: no" --quick \
    --sizes 8 --peers ompi-cma-tuned --only allreduce_in

# An MPI under the common names is identified by its launcher.
rm "$doubles"/*
compiler 0 mpicc
double mpiexec 'echo "HYDRA build details:"'
double mpirun "[ \"\$1\" != --version ] || exec echo 'mpirun (Open MPI) 9.9'" "$launcher" \
    "exec $bin/twillrun -n 2 \"\$@\""
expect 0 "" env PATH="$doubles:/usr/bin:/bin" "$compare" --list --peers ompi-cma,mpich
if ! command -v mpicc.openmpi >"$scratch/err"; then
    grep -q "^ompi-cma: .*/mpirun --oversubscribe --bind-to none -np 2 --mca pml ob1" "$scratch/out" ||
        fail "Open MPI under common names"
    grep -q "^mpich: .*/mpiexec -n 2 " "$scratch/out" || fail "MPICH under common names"
fi

# More ranks than cores; persistent calls; after an interrupt, all processes and files are gone.
cores=$(getconf _NPROCESSORS_ONLN)
expect 0 "# twill-alloc-persistent" "$compare" -n $((cores < 32 ? cores + 1 : 3)) --quick --peers none \
    --persistent --sizes 8,4K --rounds 1 --timeout 300 --only reduce_scatter,allreduce
: >"$scratch/out" # or the last head is taken for this one, and the signal comes before the program
"$compare" --peers none --rounds 100 --turn 10000 --only allreduce_in >"$scratch/out" 2>"$scratch/err" &
pid=$!
wait_for -p $pid grep -q '^# ' "$scratch/out" # the head of the table
kill -TERM $pid
code=0
wait $pid || code=$?
[ $code -eq 1 ] || fail "status $code, not 1, after SIGTERM"
grep -q "^twill-compare: interrupted" "$scratch/err" || fail "it was interrupted"

# Installed peers: times are not judged, but twill's and the bound's values are right.
if [ -z "$sanitize" ]; then
    timeout -k 10 "$patience" "$compare" --quick --sizes 8,64K --rounds 1 --timeout 300 --json "$scratch/c.json" --plot "$scratch/p" \
        --work "$scratch/work" >"$scratch/out" 2>"$scratch/err" || fail "with the peers that are here"
    [ -x "$scratch/work/compare-openmpi" ] || echo "no Open MPI here"
    command -v gnuplot >"$scratch/err" || echo "no gnuplot here"
    [ ! -s "$scratch/err" ] || [ -s "$scratch/p-allreduce_in.svg" ] || fail "no plot"
    numbers 11 1
fi

# MPI programs with and without twill; without an MPI, and with installed ones.
expect 0 "# ompi+twill           left out: not installed: no mpicc.openmpi" env PATH="$none" "$compare" --mpi --quick
for variant in openmpi mpich; do
    if [ ! -e "$bin/../lib/libtwill-mpi-$variant.so" ] || [ -n "$sanitize" ]; then
        continue
    fi
    name=$variant
    [ $name = mpich ] || name=ompi
    expect 0 "0 wrong" "$compare" --mpi --quick --rounds 1 --sizes 8,4K --timeout 300 --peers $name \
        --only allreduce_out,reduce,gather,scatter,alltoall,barrier,self --json "$scratch/c.json"
    grep -q "^# smallest ratio: [0-9]*\.[0-9][0-9] ($name.* bytes); below 1: [0-9]* of 33$" "$scratch/out" ||
        fail "the smallest ratio"
    grep -q "^# a call that is passed on takes -*[0-9]* ns more at most: .*, self_" "$scratch/out" ||
        fail "what is passed on"
    pairs
done

# Between hosts of this machine, if possible; and with unreachable hosts.
code=0
timeout -k 10 "$patience" sh "$(dirname "$0")/../../bench/tools/compare/compare_hosts.sh" "$compare" 1 --quick --peers none --sizes 8,64K --rounds 2 \
    --only allreduce_in,broadcast,barrier --timeout 300 --json "$scratch/c.json" >"$scratch/out" 2>&1 || code=$?
if [ $code -eq 77 ]; then
    cat "$scratch/out"
else
    [ $code -eq 0 ] || fail "status $code between hosts"
    grep -q '^# host h1 (h1): 1 rank, congestion control [a-z]' "$scratch/out" || fail "the second host"
    grep -q '^# raw-pingpong  *TCP, ping-pong' "$scratch/out" || fail "one way of TCP"
    grep -q '^# [0-9]* s, 0 wrong$' "$scratch/out" || fail "no good end between hosts"
    numbers 5 2
    sed -n 's/.*"congestion_control"://p' "$scratch/c.json" | grep -q '"[a-z]' || fail "congestion control"
    # A peer whose barrier takes no time, as if through the memory of the machine that these hosts are, is marked, and is not
    # the best.
    compiler 2 mpicc.openmpi
    # shellcheck disable=SC2016 # the script's dollars
    double mpirun.openmpi "$launcher" "exec $bin/twillrun --hosts h0:1,h1:1 --agent \"\$TEST_AGENT\" \"\$@\""
    # shellcheck disable=SC2154 # here is of rules.sh
    TEST_AGENT=$here/support/agent.sh PATH="$doubles:$PATH" timeout -k 10 "$patience" \
        sh "$(dirname "$0")/../../bench/tools/compare/compare_hosts.sh" "$compare" 1 --quick --peers ompi --sizes 8 --rounds 3 \
        --only allreduce_in,barrier --timeout 300 --bind shared --json "$scratch/c.json" >"$scratch/out" 2>&1 ||
        fail "status $? with a peer that is faster than the wire"
    grep -q '^# ompi[a-z-]*: 1 of its results (!) is faster than the wire' "$scratch/out" || fail "a result off the wire is not marked"
    cmake -DFILE="$scratch/c.json" -P "$(dirname "$0")/../support/check_compare.cmake" >"$scratch/err" 2>&1 || fail "the JSON"
    grep -q '^row barrier 0 [a-z-]* - -$' "$scratch/err" || fail "a result off the wire is the best"
fi
expect 1 "twill is left out: it ended during its start with status" "$compare" --hosts nowhere:1,there:1 \
    --agent false --quick --peers none --sizes 8 --only allreduce_in
expect 1 "twill-compare: --congestion cubic: nowhere: not today" "$compare" --hosts nowhere:1,there:1 \
    --agent "sh -c 'echo not today; exit 1'" --congestion cubic --quick --peers none

# Wrong command lines.
while IFS='|' read -r text arguments; do
    # shellcheck disable=SC2086 # a list of words
    expect 2 "$text" "$compare" $arguments
done <<'END'
-n/--ranks: '1' is not 2 to 64|-n 1
--sizes: '8,x' is not a list of sizes|--sizes 8,x
--sizes: '6' is not a list of sizes|--sizes 6
--sizes: ',' is not a list of sizes|--sizes ,
--max: '1T' is not a size from 8 to 4G|--max 1T
--only: 'allreduce,gathers' is not a list of collectives|--only allreduce,gathers
--bind: 'socket' is not core, none or shared|--bind socket
--hosts: 'a:1' is not a list of two hosts or more|--hosts a:1
--hosts: 'a:1,b:65' is not a list|--hosts a:1,b:65
--congestion: 'Cubic' is not the name of a congestion control|--congestion Cubic
--rounds: '0' is not 1 to 100|--rounds 0
--turn: 'x' is not 1 to 10000 ms|--turn x
unexpected argument: 'allreduce'|allreduce
--only: 'self' is not available without --mpi|--only self_barrier
--plot: 'p' is not available with --mpi|--mpi --plot p
END
expect 0 "Usage: twill-compare" "$compare" --help

# Training steps: both ways of both contenders, right sums, exposed = step - compute, the JSON.
printf '30000 20000000\n70\n' >"$scratch/model"
expect 0 "# exposed: step - compute" env PATH="$none" "$compare" --quick --rounds 1 --timeout 300 --steps "$scratch/model" \
    --json "$scratch/steps.json"
# shellcheck disable=SC2016 # awk's dollars
awk '/^  / { n++; off = $(NF - 2) - $(NF - 3) - $(NF - 1); if (off < 0) off = -off
        if (off > 0.0011 || $(NF - 3) <= 0) { print; bad = 1 } }
    END { exit bad || n != 4 }' "$scratch/out" || fail "the table of steps"
[ "$(grep -c '^  twill\(-thread\)\{0,1\} *gradient set' "$scratch/out")" -eq 2 ] || fail "gradient sets"
[ "$(grep -c '"values_right": *true' "$scratch/steps.json")" -eq 4 ] || fail "the JSON of steps"
if [ -z "$sanitize" ]; then # MPIs that are here
    timeout -k 10 "$patience" "$compare" --quick --rounds 1 --timeout 300 --steps "$scratch/model" --peers ompi-cma,mpich \
        >"$scratch/out" 2>"$scratch/err" || fail "steps with the peers that are here"
    ! grep ' wrong' "$scratch/out" "$scratch/err" | grep -v ', 0 wrong' || fail "wrong values in steps"
    grep -q 'by tensor' "$scratch/out" || grep -q 'left out: not installed' "$scratch/out" || fail "no step of an MPI"
fi
expect 1 "--steps: $scratch/none: No such file" env PATH="$none" "$compare" --quick --steps "$scratch/none"
echo 12 >"$scratch/idle"
expect 1 "--steps: $scratch/idle: no layer has multiply-adds" env PATH="$none" "$compare" --quick --steps "$scratch/idle"
expect 2 "--steps cannot be combined" "$compare" --steps "$scratch/model" --mpi
expect 0 "twill-compare 0." "$compare" -V
expect 1 "twill-compare: --work: /nonexistent/work:" "$compare" --work /nonexistent/work
echo "ok: twill-compare"
