#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# twillrun: environment, exit codes, labels, standard input, signals, failures, and its own death.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
# shellcheck disable=SC2016 # the ranks' shells are to expand what is quoted here
. "$(dirname "$0")/../support/check.sh"
run=$bin/twillrun
[ -x "$run" ] || skip "no twillrun in $bin"

# --- arguments
expect 0 "Usage: twillrun" "$run" -h
expect 0 "twillrun (twill) 0." "$run" --version
expect 2 "how many ranks?" "$run" true
expect 2 "no program given" "$run" -n 2
expect 2 "-n 0: not a number of ranks" "$run" -n 0 true
expect 2 "-n 65536: not a number of ranks" "$run" --ranks=65536 true
expect 2 "-n 2x: not a number of ranks" "$run" -n 2x true
expect 2 "--grace soon: not a number" "$run" -n 1 --grace soon true
expect 2 "--grace -1: not a number" "$run" -n 1 --grace=-1 true
expect 2 "--bind socket: not none, core, l3, numa or package" "$run" -n 1 --bind socket true
expect 2 "--bind-to board: not none, core, hwthread, l3cache, numa, socket or package" "$run" -np 1 -bind-to board true
for to in none core hwthread l3cache numa socket package; do
    expect 0 "0 of 2" "$run" -np 2 --oversubscribe --bind-to $to sh -c 'echo $RANK of $WORLD_SIZE'
done
# A -np after the program belongs to the program.
expect 0 "of 2: -np 3" "$run" -np 2 --oversubscribe sh -c 'echo "of $WORLD_SIZE: $*"' sh -np 3
expect 2 "-x =1: a name is missing" "$run" -n 1 -x =1 true
expect 2 "-x NO_SUCH_VARIABLE: not set here" "$run" -n 1 -x NO_SUCH_VARIABLE true
expect 2 "unrecognized option '--foo'" "$run" --foo
# Options of other launchers: which one of twillrun is meant.
while IFS='|' read -r foreign meant; do
    # shellcheck disable=SC2086 # an option and its value
    expect 2 "twillrun: instead of ${foreign%% *}: $meant" "$run" $foreign true
done <<'END'
--nproc_per_node 2|-n RANKS
--nnodes 2|--hosts HOST:RANKS
-N 2|-n RANKS
-d 4|--threads-per-rank N
--mca btl self|-x NAME=VALUE
-genv NAME VALUE|-x NAME=VALUE
--tag-output|-l
-wdir /tmp|ranks start in the current directory
-f hosts|--hostfile FILE
END
expect 2 "instead of --nproc-per-node: " "$run" --nproc-per-node=2 true
expect 0 "0 of 2" "$run" -hosts localhost:2 -bind-to none sh -c 'echo "$RANK of $WORLD_SIZE"' # one dash, as mpirun's
# Ranks of a host.
expect 0 "1 of 2" "$run" --ppn 2 --oversubscribe sh -c 'echo "$RANK of $WORLD_SIZE"'
expect 2 "-n 3: --ppn 2 allows no more on this host" "$run" -n 3 -ppn 2 true
expect 2 "--ppn 0: not a number of ranks from 1 to 65535" "$run" --ppn 0 true
expect 0 "1 of 2" "$run" --map-by ppr:2:node --oversubscribe sh -c 'echo "$RANK of $WORLD_SIZE"'
expect 0 "0 1 1" "$run" --map-by ppr:1:node:PE=1 sh -c 'echo "$RANK $WORLD_SIZE $OMP_NUM_THREADS"'
expect 2 "--threads-per-rank x: not a number of cores" "$run" -n 1 --map-by slot:PE=x true
for how in ppr:1:socket ppr:1 ppr slot:x slot:PE=1:x :; do
    expect 2 "--map-by $how: not slot, core or node, or ppr:RANKS:node, with :PE=CORES behind it or not" \
        "$run" -n 1 --map-by $how true
done
# Several programs, as with mpirun.
ranks 1 --bind none -l sh -c 'echo "first $* of $WORLD_SIZE"' sh x : -n 2 sh -c 'echo "second $*"' sh y : -np 1 echo third || fail "status $?"
printf '%s\n' "[0] first x of 4" "[1] second y" "[2] second y" "[3] third" >"$scratch/wanted"
sort "$scratch/out" | cmp - "$scratch/wanted" || fail "three programs"
expect 0 "a : b" "$run" -n 1 -- echo a : b
expect 0 "ends :" "$run" -n 1 echo ends :
expect 127 "cannot run no-such-program: No such file" "$run" -n 1 true : -n 1 no-such-program
expect 2 "after ':' there must be -n RANKS and another program" "$run" -n 1 echo a : b
expect 2 "after ':' there must be -n RANKS and another program" "$run" -n 1 true : -n 1 -x A=1 true
expect 2 "-n 65535: not a number of ranks from 1 to 65534" "$run" -n 1 true : -n 65535 true
expect 2 "with several programs there must be -n RANKS before each" "$run" --hosts localhost:2 true : -n 1 true
expect 2 "no program given" "$run" -n 1 : -n 1 true
expect 2 "--elastic takes one program" "$run" --elastic 1:2 true : -n 1 true
expect 2 "--check takes one program" "$run" --check -n 1 true : -n 1 true

# --- the environment of the ranks
export RANK=77 TWILL_LISTEN_FD=5 INHERITED=yes
ranks 16 -l -x GIVEN='a b' -x INHERITED sh -c \
    'echo "$RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR:$MASTER_PORT $TWILL_JOB $GIVEN $INHERITED"'
unset RANK TWILL_LISTEN_FD INHERITED
has_lines "$scratch/out" 16 || fail "not 16 lines"
sort -u "$scratch/out" | wc -l | grep -qx 16 || fail "ranks cannot be distinguished"
for r in 0 1 7 15; do
    grep -qE "^\[$r\] $r 16 $r 16 127\.0\.0\.1:[1-9][0-9]* [0-9a-f]{64} a b yes\$" "$scratch/out" ||
        fail "rank $r's environment"
done
cut -d' ' -f6-7 "$scratch/out" | sort -u | wc -l | grep -qx 1 || fail "ranks are of several jobs"
ranks 3 -l sh -c 'echo "${TWILL_LISTEN_FD:-none}"; [ -z "$TWILL_LISTEN_FD" ] || [ -S "/proc/self/fd/$TWILL_LISTEN_FD" ]'
grep -q '^\[0\] [0-9]' "$scratch/out" || fail "rank 0 has no listening socket"
[ "$(grep -c ' none$' "$scratch/out")" -eq 2 ] || fail "others have one too"

# twillrun sets FI_UNIVERSE_SIZE to the number of ranks, at least 256, unless the user has set it, in the environment or by -x.
universe='[ "$RANK" != 1 ] || echo "universe $FI_UNIVERSE_SIZE."'
expect 0 "universe 256." env -u FI_UNIVERSE_SIZE "$run" -n 2 sh -c "$universe"
expect 0 "universe 260." env -u FI_UNIVERSE_SIZE "$run" -n 260 sh -c "$universe"
expect 0 "universe 4." env FI_UNIVERSE_SIZE=4 "$run" -n 2 sh -c "$universe"
expect 0 "universe 5." env FI_UNIVERSE_SIZE=4 "$run" -n 2 -x FI_UNIVERSE_SIZE=5 sh -c "$universe"

# --- few descriptors: twillrun raises its soft limit to the hard limit; ranks start with the original limit
if command -v prlimit >/dev/null; then
    expect 0 "soft 64 of 39" prlimit --nofile=64: "$run" -n 40 sh -c '[ "$RANK" != 39 ] || echo "soft $(ulimit -n) of $RANK"'
    expect 0 "[39] x" prlimit --nofile=64: "$run" -n 40 -l echo x
    # If rank 0 has too few descriptors, it reports that at once.
    if [ -x "$bin/hello" ]; then
        expect 1 "rank 0 needs a descriptor for each of 24 ranks" prlimit --nofile=30 "$run" -n 24 --grace 0.2 "$bin/hello"
    fi
fi

# --- exit codes
ranks 3 true || fail "status $? of a job that is well"
expect 7 "exited with status 7; ending the others" "$run" -n 4 --grace 0.2 sh -c '[ "$RANK" != 2 ] || exit 7; sleep 60'
grep -q '^twillrun: rank 2 (pid [0-9]*)' "$scratch/out" || fail "rank 2 is not named"
expect 139 "killed by signal 11" "$run" -n 1 sh -c 'kill -SEGV $$'
expect 127 "cannot run $scratch/none: No such file" "$run" -n 3 "$scratch/none"
expect 127 "cannot run no-such-program: No such file" "$run" -n 3 no-such-program
expect 126 "cannot run /etc/passwd: Permission denied" "$run" -n 3 /etc/passwd
# The first failure decides the exit status. The other ranks have the grace time to report their errors, and are not killed.
expect 5 "noticed 1" "$run" -n 3 -l --grace "$patience" sh -c \
    '[ "$RANK" != 2 ] || exit 5; until grep -q "status 5" "$0"; do sleep 0.05; done; echo "noticed $RANK"; exit 9' "$scratch/out"

# If several ranks end between two polls, a rank that was killed by a signal decides: others may have failed because of it.
: >"$scratch/pids"
"$run" -n 3 --grace "$patience" sh -c \
    'echo $$ >>"$0"; until [ -e "$0.go" ]; do sleep 0.05; done; [ "$RANK" != 1 ] || kill -SEGV $$; exit 4' "$scratch/pids" \
    >"$scratch/out" 2>&1 &
pid=$!
wait_for -p $pid has_lines "$scratch/pids" 3
kill -STOP $pid
: >"$scratch/pids.go"
while read -r rank_pid; do
    wait_for has_ended "$rank_pid"
done <"$scratch/pids"
kill -CONT $pid
code=0
wait $pid || code=$?
[ $code -eq 139 ] || fail "status $code, not 139, of several failures"
grep -q "^twillrun: rank 1 (pid [0-9]*) was killed by signal 11" "$scratch/out" || fail "not who was killed"
# A rank that the kernel kills because a memory limit is reached: which limit. The first is a cgroup in files.
if grep -q '^0::' /proc/self/cgroup && unshare -m true 2>/dev/null; then
    for counted in 2 3; do
        expect 137 "was killed by signal 9 (Killed)$([ $counted = 2 ] || echo ', as memory ran out: /sys/fs/cgroup/memory.max is 104857600 bytes (100 MiB)')" \
            unshare -m sh -c 'mount -t tmpfs none /sys/fs/cgroup && cd /sys/fs/cgroup && echo 104857600 >memory.max &&
                printf "oom 1\noom_kill 2\n" >memory.events && exec "$@"' sh \
            "$run" -n 1 sh -c "printf 'oom 1\noom_kill $counted\n' >memory.events; kill -KILL \$\$"
        [ "$(grep -c "as memory ran out" "$scratch/out")" -eq $((counted - 2)) ] || fail "killed $((counted - 2)) times"
    done
fi
limited=/sys/fs/cgroup/memory/twillrun-$$
if [ -e /sys/fs/cgroup/memory/memory.limit_in_bytes ] && mkdir $limited 2>/dev/null; then
    echo 60M >$limited/memory.limit_in_bytes
    { echo 60M >$limited/memory.memsw.limit_in_bytes; } 2>/dev/null || : # with swap
    expect 137 "as memory ran out: $limited/memory.limit_in_bytes is 62914560 bytes (60 MiB)" sh -c 'echo $$ >"$0/cgroup.procs"; exec "$@"' \
        $limited "$run" -n 1 perl -e '$x = "x" x 100e6'
    wait_for rmdir $limited
fi

# --- ranks that do not end, and grandchildren
expect 3 "killing rank 1," "$run" -n 2 --grace 0.1 sh -c '[ "$RANK" = 1 ] || { until [ -e "$0" ]; do sleep 0.05; done; exit 3; }
    trap "" TERM; : >"$0"; while :; do sleep 0.1; done' "$scratch/deaf"
: >"$scratch/pids"
expect 3 "ending the others" "$run" -n 3 --grace 0.1 sh -c \
    '[ "$RANK" != 0 ] || { until [ "$(wc -l <"$0")" -eq 2 ]; do sleep 0.05; done; exit 3; }; sleep 600 & echo $! >>"$0"; wait' "$scratch/pids"
wait_for all_gone

# --- output and input
ranks 2 -l --bind none sh -c 'printf "one\ntwo"; printf "err" >&2'
printf '[0] one\n[0] two\n[1] one\n[1] two\n' >"$scratch/wanted"
sort "$scratch/out" | cmp - "$scratch/wanted" || fail "labels on output"
printf '[0] err\n[1] err\n' >"$scratch/wanted"
sort "$scratch/err" | cmp - "$scratch/wanted" || fail "labels on errors"
ranks 4 -l sh -c 'i=0; while [ $i -lt 2000 ]; do echo "line $RANK $i of many words"; i=$((i + 1)); done'
[ "$(grep -cE '^\[([0-9])\] line \1 [0-9]+ of many words$' "$scratch/out")" -eq 8000 ] || fail "lines are mixed"
ranks 2 -l sh -c 'head -c 300000 /dev/zero | tr "\0" x'
[ "$(wc -c <"$scratch/out")" -eq 600010 ] || fail "long lines"
printf 'a\nb\n' | timeout -k 10 "$patience" "$run" -n 3 --bind none -l cat >"$scratch/out" 2>&1
printf '[0] a\n[0] b\n' | cmp - "$scratch/out" || fail "standard input"
head -c 1000000 /dev/zero | timeout -k 10 "$patience" "$run" -n 2 wc -c | sort -n | tr -d ' ' | tr '\n' ' ' >"$scratch/out"
[ "$(cat "$scratch/out")" = "0 1000000 " ] || fail "much standard input"

# --- binding: with enough cores all ranks get equally many; otherwise that is reported once
cpus_of() # LIST: the CPUs of "0-2,5", one a line
{
    echo "$1" | tr ',' '\n' | awk -F- '{ for (i = $1; i <= ($2 == "" ? $1 : $2); i++) print i }'
}
bound_to='echo "$RANK $(sed -n "s/^Cpus_allowed_list:[[:space:]]*//p" /proc/self/status)"'
here=$(sed -n "s/^Cpus_allowed_list:[[:space:]]*//p" /proc/self/status)
cores=$(for cpu in $(cpus_of "$here"); do
    cat "/sys/devices/system/cpu/cpu$cpu/topology/thread_siblings_list" 2>/dev/null || echo "$cpu"
done | sort -u | wc -l)
if [ "$cores" -ge 2 ]; then
    ranks 2 --report-bindings sh -c "$bound_to" || fail "2 bound ranks"
    has_lines "$scratch/out" 2 || fail "binding"
    while read -r rank list; do
        grep -q "^twillrun: rank $rank on $(hostname): bound to CPUs $list\(,.*\)*\$" "$scratch/err" ||
            fail "rank $rank is on $list, and not said to be"
        cpus_of "$list" >"$scratch/cpus.$rank"
    done <"$scratch/out"
    [ "$(wc -l <"$scratch/cpus.0")" -eq "$(wc -l <"$scratch/cpus.1")" ] || fail "unequal shares"
    [ "$(sort "$scratch/cpus.0" "$scratch/cpus.1" | uniq -d | wc -l)" -eq 0 ] || fail "two ranks share a core"
    has_lines "$scratch/err" 3 && fail "more than bindings was said"
    # Ranks stay within the CPUs that twillrun may use. A single rank gets all of them.
    ranks 1 sh -c "$bound_to"
    grep -qx "0 $here" "$scratch/out" || fail "one rank was bound"
    ranks 2 --bind none --report-bindings sh -c "$bound_to"
    grep -qx "1 $here" "$scratch/out" || fail "bound in spite of --bind none"
    grep -q "^twillrun: rank 1 on $(hostname): not bound, CPUs $here" "$scratch/err" || fail "not reported as unbound"
    [ "$(grep -c "ranks are not bound" "$scratch/err")" -eq 0 ] || fail "it was meant"
    one=$(cat "/sys/devices/system/cpu/cpu$(cpus_of "$here" | head -n 1)/topology/thread_siblings_list" 2>/dev/null) || one=
    if [ -n "$one" ] && command -v taskset >/dev/null; then
        timeout "$patience" taskset -c "$one" "$run" -n 2 sh -c "$bound_to" >"$scratch/out" 2>"$scratch/err"
        grep -q "^twillrun: ranks are not bound: 2 are more than the 1 core here" "$scratch/err" || fail "one core for two"
        grep -qx "1 $one" "$scratch/out" || fail "beyond what twillrun may use"
    fi
fi
ranks $((cores + 1)) sh -c "$bound_to" || fail "more ranks than cores"
[ "$(grep -c "^[0-9]* $here\$" "$scratch/out")" -eq $((cores + 1)) ] || fail "bound although they do not fit"
[ "$(grep -c "^twillrun: ranks are not bound: $((cores + 1)) are more than the $cores core" "$scratch/err")" -eq 1 ] ||
    fail "it was not said once"
ranks $((cores + 1)) --bind core sh -c "$bound_to" || fail "sharing cores"
[ ! -s "$scratch/err" ] || fail "something was said"
[ "$cores" -eq 1 ] || [ "$(grep -c "^[0-9]* $here\$" "$scratch/out")" -eq 0 ] || fail "not bound"
for wide in l3 numa package; do
    ranks 2 --bind $wide sh -c "$bound_to" || fail "--bind $wide"
    has_lines "$scratch/out" 2 || fail "--bind $wide"
done
expect 0 "ranks are not bound: HWLOC_* variables describe another machine" env HWLOC_SYNTHETIC="pack:2 core:4 pu:1" \
    "$run" -n 2 true
# --- several cores a rank, which its program and twill may use
threads='echo "$RANK $OMP_NUM_THREADS $TWILL_THREADS"'
ranks 1 --threads-per-rank "$cores" --report-bindings sh -c "$threads" || fail "all cores for one rank"
grep -qx "0 $cores auto" "$scratch/out" || fail "threads of a rank with all cores"
grep -q "^twillrun: rank 0 on $(hostname): bound to CPUs $here, $cores core" "$scratch/err" || fail "the cores are not reported"
ranks 1 --cpus-per-task=1 sh -c "$bound_to" || fail "one core for one rank"
[ "$cores" -eq 1 ] || ! grep -qx "0 $here" "$scratch/out" || fail "one rank was not bound to one core"
ranks 1 --threads-per-rank auto -x TWILL_THREADS=1 env OMP_NUM_THREADS=7 sh -c "$threads" || fail "auto"
grep -qx "0 7 1" "$scratch/out" || fail "variables that were set are changed"
OMP_NUM_THREADS=5 ranks 1 --threads-per-rank auto sh -c "$threads" || fail "auto with a variable"
grep -qx "0 5 auto" "$scratch/out" || fail "a variable of twillrun's is changed"
# OpenMP may bind a program's first thread to one core before main(). The rank has all of them nevertheless.
OMP_PROC_BIND=close ranks 1 --threads-per-rank "$cores" "$bin/twill-info" || fail "twill-info in a program with bound threads"
grep -q "^binding .*CPUs* $here\$" "$scratch/out" || fail "cores of a rank whose first thread OpenMP has bound"
need="2 ranks with $cores core.* each need $((2 * cores)), and $cores may be used here"
code=0
ranks 2 --threads-per-rank "$cores" true || code=$?
[ $code -eq 1 ] || fail "status $code of too many cores"
grep -q "^twillrun: --threads-per-rank $cores on $(hostname): $need\$" "$scratch/err" || fail "too many cores: what is said"
ranks 2 --cpus-per-rank "$cores" --oversubscribe sh -c "$bound_to" || fail "ranks that share cores"
[ "$(grep -c "^[01] $here\$" "$scratch/out")" -eq 2 ] || fail "cores that are shared"
expect 1 "--threads-per-rank auto on $(hostname): $((cores + 1)) ranks with 1 core each need $((cores + 1)), and $cores may" \
    "$run" -n $((cores + 1)) --threads-per-rank auto true
expect 1 "--threads-per-rank 1 on $(hostname): HWLOC_* variables describe another machine" \
    env HWLOC_SYNTHETIC="pack:2 core:4 pu:1" "$run" -n 2 --threads-per-rank 1 true
expect 2 "--threads-per-rank 0: not a number of cores from 1 to 1022, or auto" "$run" -n 1 --threads-per-rank 0 true
expect 2 "--bind none: --threads-per-rank binds ranks to cores" "$run" -n 1 --threads-per-rank 1 --bind none true
expect 1 "localhost: cannot start its ranks: --threads-per-rank 1022 on $(hostname): 1 rank with 1022 cores each need 1022, and" \
    "$run" -n 1 --threads-per-rank 1022 --check

# Where binding is refused, as in some containers: not bound and said once; an error if it was asked for.
refusing() # COMMAND...: exec a command whose sched_setaffinity fails with EPERM
{
    perl -e 'use constant { PRCTL => 157, AFFINITY => 203 }; # of x86-64
        my $code = pack("(SCCL)4", 0x20,0,0,0,  0x15,0,1,AFFINITY,  0x06,0,0,0x00050001,  0x06,0,0,0x7fff0000);
        syscall(PRCTL, 38, 1, 0, 0, 0) == 0 or exit 77;
        syscall(PRCTL, 22, 2, pack("Sx6P", 4, $code), 0, 0) == 0 or exit 77;
        exec { $ARGV[0] } @ARGV; exit 77' "$@"
}
if [ "$cores" -ge 2 ] && [ "$(uname -m)" = x86_64 ] && refusing true; then
    refusing "$run" -n 2 sh -c "$bound_to" >"$scratch/out" 2>"$scratch/err" || fail "status $? where binding is refused"
    [ "$(grep -c "^[01] $here\$" "$scratch/out")" -eq 2 ] || fail "binding was refused, and ranks are bound"
    [ "$(cat "$scratch/err")" = "twillrun: ranks are not bound: sched_setaffinity: Operation not permitted" ] || fail "refused"
    got=0
    refusing "$run" -n 2 --bind core true >"$scratch/out" 2>"$scratch/err" || got=$?
    [ $got -eq 126 ] || fail "status $got, not 126, of a binding that was asked for and refused"
    grep -qx "twillrun: cannot bind rank 0: Operation not permitted" "$scratch/err" || fail "refused --bind"
    refusing "$run" -n 2 --threads-per-rank 1 true >"$scratch/out" 2>"$scratch/err" && fail "--threads-per-rank was refused"
    # The same holds for threads of the library.
    [ ! -x "$bin/train" ] || refusing env TWILL_GRADIENTS=threads=1 "$bin/train" --data "$source/examples/data/wdbc.csv" --epochs 1 \
        >"$scratch/out" 2>&1 || fail "status $? with a thread that cannot be bound"
fi

# --- hosts that lack files, as containers may: jobs run, and nothing is printed about it
if unshare -m true 2>/dev/null && [ -x "$bin/hello" ]; then
    lacking_proc=proc
    [ -z "$sanitize" ] || lacking_proc= # the leak sanitizer reads it
    for lacking in dev sys $lacking_proc; do
        unshare -m sh -c 'mount -t tmpfs none "/$0" && mkdir -p /dev/shm && exec "$@"' "$lacking" \
            "$run" -n 2 --bind none "$bin/hello" >"$scratch/out" 2>"$scratch/err" </etc/passwd || fail "status $? without /$lacking"
        has_lines "$scratch/out" 2 || fail "a job without /$lacking"
        [ ! -s "$scratch/err" ] || fail "what a job without /$lacking says"
    done
    echo one | unshare -m sh -c 'mount -t tmpfs none /dev && exec "$@"' sh "$run" -n 2 --bind none cat >"$scratch/out" 2>&1
    echo one | cmp - "$scratch/out" || fail "standard input without /dev/null"
    [ -z "$lacking_proc" ] || [ ! -x "$build/libexec/twill/twill-check" ] || expect 0 "Test job of 2 ranks" unshare -m sh -c 'mount -t tmpfs none /proc && exec "$@"' sh \
        "$run" -n 2 --bind none --oversubscribe --check
fi
long=$scratch/$(printf '%0200d' 7)
mkdir "$long"
expect 0 "$long/twillrun-" env TMPDIR="$long" "$run" --elastic 1:2 --bind none sh -c 'cd "${TWILL_ELASTIC%%,*}" && pwd'
rmdir "$long" || fail "--elastic has left files"
expect 1 "--elastic: no folder in TMPDIR (No such file or directory): $scratch/nowhere" env TMPDIR="$scratch/nowhere" "$run" --elastic 1:2 true

# --- signals are passed on
for signal in INT TERM HUP USR1 USR2; do
    reaches $signal env -u RANK "$run" -n 3
done
: >"$scratch/ready"
"$run" -n 2 --grace 0.1 sh -c 'echo >>'"$scratch/ready"'; sleep 60' >"$scratch/out" 2>"$scratch/err" &
pid=$!
wait_for -p $pid has_lines "$scratch/ready" 2
kill -TERM $pid
code=0
wait $pid || code=$?
[ $code -eq 143 ] || fail "status $code, not 143, after SIGTERM"

# One SIGTERM ends a job whose ranks ignore it, or are stopped.
ends_deaf "twillrun: killing rank 0 1 2, which did not end on SIGTERM" "$run" -n 3
# Each rank gets the signal once, and stopped ranks are continued, so that they can end in order.
: >"$scratch/pids"
: >"$scratch/got"
mkfifo "$scratch/unread"
exec 3<>"$scratch/unread"
"$run" -n 3 -l --grace 10 sh -c 'trap "echo >>'"$scratch/got"'; exit 0" TERM
    echo $$ >>'"$scratch/pids"'; [ "$RANK" != 1 ] || kill -STOP $$; [ "$RANK" != 2 ] || exec yes; while :; do sleep 0.05; done' >&3 2>"$scratch/err" &
pid=$!
wait_for -p $pid has_lines "$scratch/pids" 3
kill -TERM $pid
wait_for has_ended $pid
wait $pid || :
has_lines "$scratch/got" 2 || fail "ranks 0 and 1 did not end in order"
! has_lines "$scratch/got" 3 || fail "SIGTERM came twice"
exec 3>&-
wait_for all_gone

# --- a rank that ends before the others are in twill_init: they are notified at once
if [ -x "$bin/hello" ]; then
    for ended in 0 2; do
        for code in 0 3; do
            expect $((code == 0 ? 1 : code)) "rank $ended ended (exit code $code) before it called twill_init" \
                "$run" -n 4 --grace "$patience" --bind none sh -c '[ "$RANK" = 3 ] || [ "$RANK" != "$1" ] || exit "$2"; exec "$0"' "$bin/hello" $ended $code
            # one rank joins late
            expect $((code == 0 ? 1 : code)) "rank $ended ended (exit code $code) before it called twill_init" \
                "$run" -n 4 --grace "$patience" --bind none sh -c '[ "$RANK" != "$1" ] || exit "$2"; sleep 0.3; exec "$0"' "$bin/hello" $ended $code
        done
    done
    expect 137 "rank 2 was killed by signal 9 (Killed) before it called twill_init" \
        "$run" -n 3 --grace "$patience" --bind none sh -c '[ "$RANK" != 2 ] || kill -KILL $$; exec "$0"' "$bin/hello"
    # No notification in a job without that rank, nor when a process ends whose child becomes the rank.
    expect 0 "rank 1 of 2" "$run" -n 4 --grace "$patience" --bind none sh -c '[ "$RANK" -lt 2 ] || exit 0; sleep 0.3; WORLD_SIZE=2 exec "$0"' "$bin/hello"
    expect 0 "rank 0 of 3" "$run" -n 3 --grace "$patience" --bind none sh -c '[ "$RANK" != 1 ] || { { sleep 0.3; exec "$0"; } & exit 0; }; exec "$0"' "$bin/hello"
    wait_for grep -q "rank 1 of 3" "$scratch/out" # although that rank has not joined
fi

# --- what a rank has sent as its last is printed, also if twillrun reads it only after the rank has ended and left a notice unread
cat >"$scratch/last.py" <<'END'
import os, signal, socket, struct, time
time.sleep(0.3)
sent = int(os.environ["TWILL_LAUNCHER_FD"].split(",")[0])
twillrun = os.getppid()
os.kill(twillrun, signal.SIGSTOP)
if os.fork() == 0:
    os.close(sent)
    time.sleep(0.3)
    os.kill(twillrun, signal.SIGCONT)
    os._exit(0)
socket.socket(fileno=sent).send(struct.pack("i", 0) + b"said as the last")
END
# shellcheck disable=SC2016 # that shell's
expect 3 "twill[0]: said as the last" "$run" -n 2 --bind none sh -c '[ "$RANK" = 0 ] || exit 3; exec python3 "$0"' "$scratch/last.py"

# --- what the library says in several ranks alike is printed once, with the ranks; here twillrun sees it at one time
if [ -x "$bin/hello" ]; then
    for label in "" -l; do
        rm -f "$scratch/go"
        : >"$scratch/pids"
        # shellcheck disable=SC2086 # an option, or none
        env TWILL_LAYOUT=nodes=3x1 "$run" -n 5 $label --bind none --grace "$patience" sh -c 'echo $$ >>"$1"; until [ -e "$2" ]; do sleep 0.05; done
            [ "$RANK" != 3 ] || exec 2>"$3"; exec "$0"' "$bin/hello" "$scratch/pids" "$scratch/go" "$scratch/own" >"$scratch/out" 2>"$scratch/err" &
        pid=$!
        wait_for -p $pid has_lines "$scratch/pids" 5
        kill -STOP $pid
        : >"$scratch/go"
        while read -r rank_pid; do
            wait_for has_ended "$rank_pid"
        done <"$scratch/pids"
        kill -CONT $pid
        ! wait $pid || fail "a layout of 3 ranks was taken for 5"
        wrong="invalid configuration: TWILL_LAYOUT=nodes=3x1: describes 3 ranks, but there are 5"
        [ "$(grep -v '^twillrun:' "$scratch/err")" = "twill[0-2,4]: $wrong (4 ranks)" ] || fail "what 4 ranks say"
        [ "$(cat "$scratch/own")" = "twill[3]: $wrong" ] || fail "a rank whose standard error is a file of its own"
    done
fi

# --- the port of the rendezvous accepts no connection once all ranks have joined
if [ -x "$bin/twill-bench" ]; then
    : >"$scratch/out"
    "$run" -n 2 sh -c 'echo "$MASTER_PORT" >"$0"; exec "$@"' "$scratch/port" "$bin/twill-bench" allreduce \
        -b 8 -e 8 -n 100 -N 0 -w 0 -c 0 >"$scratch/out" 2>"$scratch/err" &
    pid=$!
    wait_for_row $pid
    perl -MIO::Socket::INET -e 'exit(defined IO::Socket::INET->new("127.0.0.1:$ARGV[0]"))' "$(cat "$scratch/port")" ||
        fail "the port is open still"
    kill -TERM $pid
    wait $pid || :
fi

# --- ranks that have summed are killed while they go on: one of them, and twillrun. TEST_WHOLE=1: up to 1,024 ranks
many=8
[ "${TEST_WHOLE:-}" != 1 ] || many="8 512 1024"
[ -x "$bin/twill-bench" ] || many=
for count in $many; do
    for victim in rank twillrun; do
        [ "$count $victim" != "1024 twillrun" ] || continue
        : >"$scratch/pids"
        : >"$scratch/out"
        begun=$(date +%s)
        "$run" -n "$count" --oversubscribe --bind none sh -c 'echo $$ >>"$0"; exec "$@"' "$scratch/pids" "$bin/twill-bench" allreduce \
            -b 8 -e 8 -n 2 -w 0 -c 1 -N 0 >"$scratch/out" 2>"$scratch/err" &
        pid=$!
        wait_for_row $pid
        has_lines "$scratch/pids" "$count" || fail "not $count ranks"
        summed=$(date +%s)
        if [ $victim = rank ]; then
            kill -KILL "$(sed -n "$((count / 2))p" "$scratch/pids")"
        else
            kill -KILL $pid
        fi
        code=0
        wait $pid 2>/dev/null || code=$?
        [ $code -eq 137 ] || fail "status $code, not 137, after $victim of $count ranks was killed"
        wait_for all_gone
        [ "$count" -lt 512 ] || echo "$count ranks: summed after $((summed - begun)) s, $victim killed and all gone $(($(date +%s) - summed)) s later"
    done
done

# --- twillrun itself is killed
: >"$scratch/pids"
"$run" -n 16 sh -c 'echo $$ >>'"$scratch/pids"'; exec sleep 600' >"$scratch/out" 2>"$scratch/err" &
pid=$!
wait_for -p $pid has_lines "$scratch/pids" 16
kill -KILL $pid
wait $pid 2>/dev/null || :
wait_for all_gone
echo "ok: twillrun"
