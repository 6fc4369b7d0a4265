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

# A new process is not ended where it has just joined, on h1, although the last old rank ends on h0 before twillrun knows that.
# (The server on h1 is stopped meanwhile. The ranks are shells that write the files of twill_init. h0 has the new process's file
# when twillrun has counted it.)
mkdir "$scratch/late"
hosts_job h0,h1 --elastic 1:2 sh -c 'folder=${TWILL_ELASTIC#join:} folder=${folder%%,*}
    await() { until [ -e "$1" ]; do sleep 0.05; done; }
    put() { : >"$folder/part"; mv "$folder/part" "$folder/$1"; }
    case $TWILL_ELASTIC,$RANK in
    join:*)
        put "wait.1.$$"
        await "$0/counted"
        kill -STOP $PPID
        rm "$folder/wait.1.$$"
        : >"$0/joined"
        await "$0/old"
        while kill -0 "$(cat "$0/old")" 2>/dev/null; do sleep 0.05; done
        sleep 1
        kill -CONT $PPID
        sleep 1
        echo "the new rank went on"
        ;;
    *,1) put started && exit 3 ;;
    *)
        until ls "$folder"/wait.1.* >"$0/list" 2>&1; do sleep 0.05; done
        : >"$0/counted"
        await "$0/joined"
        echo $$ >"$0/old.part" && exec mv "$0/old.part" "$0/old"
        ;;
    esac' "$scratch/late" || fail "status $?"
grep -q '^the new rank went on' "$scratch/out" || fail "a rank of the job was ended"
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
