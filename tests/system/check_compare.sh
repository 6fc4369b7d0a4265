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

# numbers [ROWS ROUNDS]: check the JSON.
numbers()
{
    python3 "$(dirname "$0")/../support/check_compare.py" "$scratch/c.json" "$@" >"$scratch/err" 2>&1 || fail "the JSON"
}

# No peer is installed, which is reported and not an error. Every size is reported, no time is missing.
none=$scratch/alone
mkdir "$none"
ln -s "$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))')" "$none/python3" # of the driver itself
alone=$scratch/bare # twill-compare without peers
printf '#!/bin/sh\nPATH=%s XDG_CACHE_HOME=%s exec %s "$@"\n' "$none" "$scratch/cache" "$compare" >"$alone"
chmod +x "$alone"
expect 0 "ompi-cma             left out: not installed: no mpicc.openmpi" "$alone" --quick \
    --sizes 8,16K --only broadcast,reduce_scatter,alltoall,barrier --rounds 1 --timeout 300 --json "$scratch/c.json" --csv "$scratch/c.csv" --plot "$scratch/p"
grep -q '^# gloo  *left out: not installed, or its program does not compile: c++: No such file' \
    "$scratch/out" || fail "gloo is not missing"
grep -q '^# ucc  *left out: its path was not given: --ucc PREFIX' "$scratch/out" || fail "ucc is not missing"
grep -q "^# impi  *left out: not in $scratch/cache/twill/peers: --fetch takes it from PyPI" "$scratch/out" || fail "impi is not missing"
grep -q '^# vllm  *left out: no --source vllm=DIR' "$scratch/out" || fail "vllm is not missing"
grep -q 'no plot: gnuplot: No such file' "$scratch/out" || fail "gnuplot is not missing"
# reported before the measurement
sed '/^#/q' "$scratch/out" | grep -q "^twill-compare: --plot $scratch/p: gnuplot is not in PATH" || fail "the missing gnuplot is reported late"
[ "$(grep -c '^[a-z_]*,[0-9]*,"[^"]*",2,\(fresh\|again\),[0-9.e+-]*,[0-9.e+-]*,[0-9.e+-]*,true$' "$scratch/c.csv")" -eq \
    "$(($(wc -l <"$scratch/c.csv") - 1))" ] || fail "a line of the CSV"
[ "$(cut -d, -f1,2 "$scratch/c.csv" | tail -n +2 | sort -u | wc -l)" -eq 7 ] || fail "rows of the CSV"
grep -q '^# slower than the best peer, or than the MPI below, by more than the spread: none$' "$scratch/out" || fail "no last list"
grep -q '^# [0-9]* s, 0 wrong$' "$scratch/out" || fail "no good end"
numbers 7 1

# --resume measures what the file lacks, and nothing else.
expect 0 "" "$alone" --quick --sizes 8 --rounds 1 --only allreduce_in,reduce --timeout 300 --json "$scratch/c.json"
numbers 2 1
first() { python3 -c 'import json, sys; print([one["turns"][0]["fresh"] for one in json.load(open(sys.argv[1]))["results"][0]["times"]])' "$scratch/c.json"; }
first >"$scratch/first"
expect 0 "0 wrong" "$alone" --quick --sizes 8,4K --rounds 1 --only allreduce,allgather,reduce,gather,scatter --timeout 300 \
    --json "$scratch/c.json" --resume
numbers 12 1
first | cmp -s - "$scratch/first" || fail "a cell is measured again"
expect 1 "has another rounds: 1, not 2" "$alone" --quick --json "$scratch/c.json" --resume

# --fetch, with a double of pip that has only one of the packages.
mkdir -p "$scratch/pip/pip"
: >"$scratch/pip/pip/__init__.py"
cat >"$scratch/pip/pip/__main__.py" <<'END'
import sys, zipfile
if not sys.argv[-1].startswith("mpich"):
    sys.exit("no net today")
with zipfile.ZipFile(sys.argv[sys.argv.index("-d") + 1] + "/mpich-5.whl", "w") as wheel:
    for name in ("data/include/mpi.h", "scripts/mpiexec"):
        wheel.writestr("mpich-5.data/" + name, "#error fetched\n")
END
expect 0 "its program does not compile" env PYTHONPATH="$scratch/pip" "$compare" --fetch --cache "$scratch/fetched" --list --peers mpich5,impi
grep -q "^twill-compare: --fetch: impi: no net today" "$scratch/out" || fail "a package that cannot be had is not reported"
grep -q "^mpich5: $scratch/fetched/mpich5/bin/mpiexec -n 2 " "$scratch/out" || fail "the launcher that was fetched"
[ -x "$scratch/fetched/mpich5/bin/mpiexec" ] || fail "its launcher cannot be run"
expect 0 "left out: --source vllm=$scratch: there is no csrc/cpu/shm.cpp" "$compare" --list --peers vllm --source "vllm=$scratch"

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
    if (WRONG == 3 && call->collective == TWILL_COMPARE_ALLREDUCE_OUT)
        sleep(30);
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
    static const struct peer_program program = {begin, end, run, barrier, NULL, NULL, NULL, NULL, can, NULL, 0, NULL, NULL};
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
        --timeout 300 --cache "$scratch/cache"
}
run_with_doubles 0 "0 wrong" --quick --peers ompi-cma,mpich-copy --sizes 8,16K \
    --only allreduce,broadcast,barrier --rounds 2 --details
for form in in out; do
    for bytes in 8 16384; do
        grep -q "mpich-copy: [0-9]* wrong values in allreduce_$form of $bytes bytes" "$scratch/out" ||
            fail "values of allreduce_$form"
    done
done
numbers 7 2
grep -q '^row broadcast 8 fresh [a-z-]* -$' "$scratch/err" || fail "a peer that has no broadcast"
grep -q '^row allreduce_in 8 again [a-z-]* ompi-cma$' "$scratch/err" || fail "the best peer"

# A peer that exceeds the limit of a cell is left out there, and started again for the next row.
compiler 3 mpicc.openmpi
run_with_doubles 0 "0 wrong" --quick --peers ompi-cma --sizes 8 --only allreduce,barrier --rounds 1 --cell 3
numbers 3 1
grep -q '^time allreduce_out 8 ompi-cma 0 more than 3 s$' "$scratch/err" || fail "no limit of a cell"
grep -q '^row allreduce_out 8 fresh [a-z-]* -$' "$scratch/err" || fail "a cell beyond its limit is the best"
grep -q '^time barrier 0 ompi-cma [1-9][0-9]* -$' "$scratch/err" || fail "it does not come back"
grep -q ' >3s' "$scratch/out" || fail "the limit is not printed"
compiler 0 mpicc.openmpi

# Too much for that peer: it fails in the middle, and the others go on.
run_with_doubles 0 "ompi-cma was left out: a call failed: more to exchange than the driver takes" --quick \
    --peers ompi-cma --sizes 8,128K --only allreduce_in
numbers 2 2

# A launcher that fails, one that hangs and has children, a compiler that cannot.
double mpirun.openmpi 'echo "====="' 'echo "no fabric today" >&2' 'exit 3'
run_with_doubles 0 "left out: it ended during its start with status 3: no fabric today" --quick --sizes 8 \
    --peers ompi-cma --only allreduce_in
double mpirun.openmpi 'sleep 600 &' "echo \$! >$scratch/pid" 'sleep 600'
expect 0 "left out: it hangs: its start took more than 8 s" env PATH="$doubles:$PATH" "$compare" --quick \
    --sizes 8 --peers ompi-cma --only allreduce_in --timeout 8
wait_for has_ended "$(cat "$scratch/pid")" # the child of the launcher that hung
double mpicc.openmpi 'echo "peer_mpi.c:7:10: fatal error: mpi.h: no" >&2' 'exit 1'
run_with_doubles 0 "its program does not compile: peer_mpi.c:7:10: fatal error: mpi.h: no" --quick \
    --sizes 8 --peers ompi-cma --only allreduce_in

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
        --only allreduce_in,barrier --cache "$scratch/cache" --work "$scratch/work" >"$scratch/out" 2>"$scratch/err" || fail "with the peers that are here"
    [ -x "$scratch/work/compare-openmpi" ] || echo "no Open MPI here"
    command -v gnuplot >"$scratch/err" || echo "no gnuplot here"
    [ ! -s "$scratch/err" ] || [ -s "$scratch/p-allreduce_in.svg" ] || fail "no plot"
    numbers 3 1
fi

# MPI programs with and without twill; without an MPI, and with installed ones.
expect 0 "# ompi+twill           left out: not installed: no mpicc.openmpi" "$alone" --mpi --quick
for variant in openmpi mpich; do
    if [ ! -e "$bin/../lib/libtwill-mpi-$variant.so" ] || [ -n "$sanitize" ]; then
        continue
    fi
    name=$variant
    [ $name = mpich ] || name=ompi
    expect 0 "0 wrong" "$compare" --mpi --quick --rounds 1 --sizes 4K --timeout 300 --peers $name \
        --only reduce,gather,scatter,alltoall,self --json "$scratch/c.json" --cache "$scratch/cache"
    grep -q "^# alltoall.*, again, us; x: time of the MPI alone over the same with twill" "$scratch/out" || fail "no pairs"
    grep -q "^# a call that is passed on takes -*[0-9]* ns more at most: .*, self_" "$scratch/out" ||
        fail "what is passed on"
    numbers 7 1
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
    numbers
    grep -q '^row barrier 0 fresh [a-z-]* -$' "$scratch/err" || fail "a result off the wire is the best"
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
--source: 'horovod=x' is not deepspeed=DIR|--source horovod=x
--resume needs --json FILE|--resume
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
expect 0 "# exposed: step - compute" "$alone" --quick --rounds 1 --timeout 300 --steps "$scratch/model" \
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
expect 1 "--steps: $scratch/none: No such file" "$alone" --quick --steps "$scratch/none"
echo 12 >"$scratch/idle"
expect 1 "--steps: $scratch/idle: no layer has multiply-adds" "$alone" --quick --steps "$scratch/idle"
expect 2 "--steps cannot be combined" "$compare" --steps "$scratch/model" --mpi
expect 0 "twill-compare 0." "$compare" -V
expect 1 "twill-compare: --work: /nonexistent/work:" "$compare" --work /nonexistent/work
echo "ok: twill-compare"
