#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# twillrun --elastic on several hosts (namespaces): a rank that fails is replaced on its host, those of a lost host on a spare one,
# and new processes are told when no rank is left that they could join.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
# shellcheck disable=SC2016 # the ranks' shells are to expand what is quoted here
. "$(dirname "$0")/../support/check.sh"
# shellcheck source-path=SCRIPTDIR source=../support/hosts.sh
. "$(dirname "$0")/../support/hosts.sh"
run=$bin/twillrun replaced=$build/tests/replaced
[ -x "$run" ] || skip "no twillrun in $bin"
command -v pgrep >/dev/null || skip "no pgrep"
export TMPDIR="$scratch/tmp" TWILL_TIMEOUT=240
mkdir "$TMPDIR"
hosts_up 3

# Ranks of both hosts die, rank 0 and its host's others among them. Each is replaced where it was.
hosts_job h0:2,h1:2 --elastic 2:4 "$replaced" 3 kill || fail "status $?"
[ "$(grep -c 'on h[01] (pid [0-9]*) was killed by signal 9 (Killed); 3 others go on; starting restart [1-3] on h[01]$' "$scratch/err")" -eq 3 ] ||
    fail "not three restarts"
! sed -n 's/.* on \(h.\) (pid.* on \(h.\)$/\1 \2/p' "$scratch/err" | grep -v -e 'h0 h0' -e 'h1 h1' || fail "restarted on another host"
[ "$(grep -c '^rank [0-3] of 4, epoch 3, step ' "$scratch/out")" -eq 4 ] || fail "not four ranks at the end"
[ "$(grep -o 'step [0-9]*' "$scratch/out" | sort -u | wc -l)" -eq 1 ] || fail "ranks differ in their steps"
[ -z "$(ls "$TMPDIR")" ] || fail "left in TMPDIR: $(ls "$TMPDIR")"

# A rank that fails as soon as twill_init() has returned is replaced: on its own host, "started" and its end come in order.
hosts_job h0,h1 --elastic 1:2 "$replaced" 1 early || fail "status $?"
grep -q '^twillrun: rank 1 on h1 (pid [0-9]*) exited with status 3; 1 others go on; starting restart 1 on h1$' "$scratch/err" || fail "no restart"

# What fails before all have started ends the job.
code=0
hosts_job h0,h1 --elastic 1:2 sh -c 'exit 4' || code=$?
[ $code -eq 4 ] || fail "status $code of ranks that fail at once"
! grep -q restart "$scratch/err" || fail "a rank was replaced before the job had started"
hosts_job h0,h1 --elastic 1:2 true || fail "status $? of ranks that are no job"

# No rank is left: the new process, on the other host, is told, and its host ends.
code=0
hosts_job h0,h1 --elastic 1:2 -n 1 sh -c 'case $TWILL_ELASTIC in join:*) exec "$0" 0 ;; esac; exec "$0" 1 alone' "$replaced" || code=$?
[ $code -eq 3 ] || fail "status $code, not that of the last rank"
grep -q "no rank of the job is left that [12] new processes could join" "$scratch/err" || fail "the end is not explained"
grep -q "all ranks of the job have failed before this process joined" "$scratch/err" || fail "the new process was not told"
[ -z "$(ls "$TMPDIR")" ] || fail "left in TMPDIR: $(ls "$TMPDIR")"

# The last old rank, on h0, ends when the new process on h1 has just joined, and before twillrun can know that: it asks h1, and the new
# rank goes on. The ranks are shells that write the files of twill_init.
cat >"$scratch/late" <<'END'
mode=$1 dir=$2 err=$3 folder=${TWILL_ELASTIC#join:} folder=${folder%%,*}
await() { until "$@" 2>/dev/null; do sleep 0.05; done; }
waits() { ls "$folder/wait.$1".* >"$dir/list"; }
ended() { ! kill -0 "$(cat "$dir/old")"; }
put() { : >"$folder/part.9.$$"; mv "$folder/part.9.$$" "$folder/$1"; }
case $TWILL_ELASTIC,$RANK in # of a new process: join:FOLDER,HOST,ADDRESS,
join:*,0,*)
    echo "rank 0 is replaced"
    : >"$dir/done"
    ;;
join:*,1,*)
    put "wait.1.$$"
    await test -e "$dir/counted"
    case $mode in
    stopped*) kill -STOP $PPID ;; # its host agent reports nothing more
    *) put "joining.1.$$" ;;
    esac
    rm "$folder/wait.1.$$"
    : >"$dir/joined"
    case $mode in
    stopped-0)
        await test -e "$dir/old"
        await ended
        sleep 1 # twillrun has had the time to end what waits
        ;;
    *) await grep -q 'asking the hosts whether a rank of the job is left$' "$err" ;;
    esac
    case $mode in
    stopped*) kill -CONT $PPID ;;
    joining) rm "$folder/joining.1.$$" ;;
    never) exec sleep 1000 ;;
    esac
    : >"$dir/takes"
    await test -e "$dir/done"
    echo "the new rank went on"
    ;;
join:*,2,*)
    put "wait.2.$$"
    await test -e "$dir/takes"
    rm "$folder/wait.2.$$"
    : >"$dir/done"
    echo "taken in by the new rank"
    ;;
*,[12]) put started && exit 3 ;;
*)
    await waits 1
    [ "$mode" != stopped-0 ] || await waits 2
    : >"$dir/counted" # twillrun has counted the new processes, as h0 has their files
    await test -e "$dir/joined"
    [ "$mode" = stopped-0 ] || exit 4
    echo $$ >"$dir/old.part" && exec mv "$dir/old.part" "$dir/old"
    ;;
esac
END
# late MODE HOSTS MIN:MAX: run it. The status is that of the job.
late()
{
    mkdir "$scratch/$1"
    hosts_job "$2" --elastic "$3" sh "$scratch/late" "$1" "$scratch/$1" "$scratch/err"
}
for mode in stopped joining; do
    late $mode h0,h1 1:2 || fail "$mode: status $?"
    grep -q '^the new rank went on' "$scratch/out" || fail "$mode: a rank of the job was ended"
    grep -q '^rank 0 is replaced' "$scratch/out" || fail "$mode: the last old rank was not replaced"
    grep -q '^twillrun: starting rank 0 again on h0 (restart 2)$' "$scratch/err" || fail "$mode: no restart"
done
# The same with status 0: a process that waits on a third host is not ended, the new rank takes it in.
late stopped-0 h0,h1,h2 1:3 || fail "stopped-0: status $?"
grep -q '^the new rank went on' "$scratch/out" || fail "stopped-0: a rank of the job was ended"
grep -q '^taken in by the new rank' "$scratch/out" || fail "stopped-0: a process that waited was ended"
# A process that has a handle and never joins is no rank.
code=0
late never h0,h1 1:2 || code=$?
[ $code -eq 4 ] || fail "never: status $code, not that of the last rank"
grep -q "no rank of the job is left that 1 new processes could join" "$scratch/err" || fail "never: the end is not explained"
[ -z "$(ls "$TMPDIR")" ] || fail "left in TMPDIR: $(ls "$TMPDIR")"

# A job on one host is joined from another. That is lost: its rank starts again on a spare one, and the training goes on.
[ -x "$bin/train" ] || exit 0
data=$(cd "$here/.." && pwd)/examples/data/wdbc.csv
timeout -k 10 "$patience" "$hosts_in" 0 "$run" --timeout "$patience" --hosts h0,h1,h2 --agent "$hosts_agent" --elastic 1:2 -n 1 \
    sh -c 'test "$LOCAL_RANK" -lt "$LOCAL_WORLD_SIZE" || exit 9; exec "$@"' - "$bin/train" --data "$data" --epochs 160 --elastic --pause 3 >"$scratch/out" 2>"$scratch/err" &
job=$!
wait_for -p $job grep -q 'grown to 2 ranks' "$scratch/out"
kill -9 "$(pgrep --ns "$(host_pid 1)" --nslist net -x twillrun)"
wait $job || fail "the job whose host was lost"
grep -q '^twillrun: host h1: lost: its agent was killed by signal 9; 1 others go on$' "$scratch/err" || fail "the loss is not said"
grep -q '^twillrun: starting rank 1 again on h2 (restart 1)$' "$scratch/err" || fail "not started again on the spare host"
[ "$(grep -c 'grown to 2 ranks' "$scratch/out")" -eq 2 ] || fail "not grown twice"
grep -q '^parameters *bit-identical on 2 ranks' "$scratch/out" || fail "ranks differ"
