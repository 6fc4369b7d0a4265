#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# twillrun --elastic: ranks that fail are replaced, by one call in the program; and when it gives up.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
# shellcheck disable=SC2016 # the ranks' shells are to expand what is quoted here
. "$(dirname "$0")/../support/check.sh"
run=$bin/twillrun replaced=$build/tests/replaced
[ -x "$run" ] || skip "no twillrun in $bin"
export TMPDIR="$scratch/tmp" TWILL_TIMEOUT=240
mkdir "$TMPDIR"

# elastic MIN:MAX STATUS TEXT args: run a job, which must end with this status and print this text; nothing is left of it.
elastic()
{
    elastic_range=$1
    shift
    elastic_status=$1 elastic_text=$2
    shift 2
    expect "$elastic_status" "$elastic_text" "$run" --elastic "$elastic_range" "$@"
    [ -z "$(ls "$TMPDIR")" ] || fail "left in TMPDIR: $(ls "$TMPDIR")"
}

# --- arguments
for range in 3 3:2 0:2 1:x :2 2: ''; do
    expect 2 "--elastic $range: not MIN:MAX" "$run" --elastic "$range" true
done
expect 2 "-n 1: outside --elastic 2:4" "$run" --elastic 2:4 -n 1 true
expect 2 "--elastic MIN:3: the hosts have places for 2 ranks" "$run" --elastic 1:3 --hosts a:2 true

# --- four ranks die, rank 0 among them, and are replaced
elastic 2:3 0 "epoch 4, step" "$replaced" 4 kill
[ "$(grep -c 'was killed by signal 9 (Killed); 2 others go on; starting restart [1-4]$' "$scratch/out")" -eq 4 ] ||
    fail "not four restarts"
[ "$(grep -c '^rank [0-2] of 3, epoch 4, step ' "$scratch/out")" -eq 3 ] || fail "not three ranks at the end"
[ "$(grep -o 'step [0-9]*' "$scratch/out" | sort -u | wc -l)" -eq 1 ] || fail "ranks differ in their steps"
for how in exit early; do
    elastic 1:2 0 "exited with status 3; 1 others go on" "$replaced" 1 $how
done

# A new process may have as many threads as the one that it replaces.
unset OMP_NUM_THREADS TWILL_THREADS
elastic 1:2 0 "joins with 1 auto" --threads-per-rank 1 --oversubscribe \
    sh -c 'echo "${TWILL_ELASTIC%%[:/]*}s with $OMP_NUM_THREADS $TWILL_THREADS"; exec "$0" 1 kill' "$replaced"

# --- it gives up
elastic 3:3 137 "2 ranks remain, fewer than --elastic 3:3 asks for" --grace 0.1 "$replaced" 1 kill
joiners_fail='case $TWILL_ELASTIC in join:*) exit 5 ;; esac; exec "$0" 1 kill'
elastic 1:2 5 "more than 10 restarts within 10 s" --grace 0.1 sh -c "$joiners_fail" "$replaced"
elastic 1:2 4 "exited with status 4" sh -c 'exit 4'
! grep -q "restart" "$scratch/out" || fail "a rank was replaced before the job had started"

# --- a new process that the job does not take in ends with it
[ ! -x "$bin/hello" ] ||
    elastic 1:2 0 "was not taken in before the job ended" -n 1 sh -c 'sleep 0.3; exec "$0"' "$bin/hello"
# All ranks of the job have failed: a new process is told, whether it waits by then or begins to.
newcomer='case $TWILL_ELASTIC in join:*) sleep $1; exec "$2" 0 ;; esac; exec "$2" 1 alone'
for late in 0 0.3; do
    elastic 1:2 3 "all ranks of the job have failed before this process joined" -n 1 sh -c "$newcomer" - $late "$replaced"
    grep -q "no rank of the job is left that [12] new processes could join" "$scratch/out" || fail "the end is not explained"
done

# The last old rank ends when the new process has joined, but for the removal of its file, by which twillrun knows: it waits for that,
# and passes output on meanwhile.
mkdir "$scratch/joined"
elastic 1:2 0 "exited with status 4; waiting for processes that are joining the job" sh -c 'folder=${TWILL_ELASTIC#join:} folder=${folder%%,*}
    await() { until "$@" 2>/dev/null; do sleep 0.05; done; }
    put() { : >"$folder/part.9.$$" && mv "$folder/part.9.$$" "$folder/$1"; }
    case $TWILL_ELASTIC,$LOCAL_RANK in
    join:*,0) : >"$0/replaced" ;;
    join:*)
        put "joining.0.$$"
        : >"$0/joining"
        await grep -q "waiting for processes that are joining the job$" "$1"
        echo "still joining"
        await grep -q "^still joining" "$1"
        rm "$folder/joining.0.$$"
        await test -e "$0/replaced"
        ;;
    *,1) put started && exit 3 ;;
    *)
        await test -e "$0/joining"
        exit 4
        ;;
    esac' "$scratch/joined" "$scratch/out"
grep -q 'starting rank 0 again (restart 2)$' "$scratch/out" || fail "the last old rank was not replaced"

# --- the training example: ranks are killed and replaced while it runs, and it is as good as without
[ -x "$bin/train" ] || exit 0
data=$(dirname "$0")/../../examples/data/wdbc.csv
accuracy()
{
    sed -n 's/^held-out accuracy *\([0-9.]*\).*/\1/p' "$scratch/out"
}
# disturbed OPTION...: what the training with these options comes to when three ranks are killed.
disturbed()
{
    ranks 4 "$bin/train" --data "$data" --epochs 60 "$@" || fail "the training that no rank dies in: $*"
    undisturbed=$(accuracy)
    timeout -k 10 "$patience" "$run" --elastic 2:4 "$bin/train" --data "$data" --epochs 60 --elastic --pause 3 "$@" \
        >"$scratch/out" 2>"$scratch/err" &
    launcher=$!
    grown=0
    for nth in 4 1 2; do # of twillrun's children
        wait_for -p $launcher sh -c "[ \$(grep -c 'grown to 4 ranks' '$scratch/out') -ge $grown ]"
        epoch=$(grep -c 'epoch' "$scratch/out") || epoch=0
        wait_for -p $launcher sh -c "[ \$(grep -c 'epoch' '$scratch/out') -gt $((epoch + 3)) ]"
        kill -9 "$(pgrep -P "$(pgrep -P $launcher -x twillrun)" -x train | sed -n ${nth}p)"
        grown=$((grown + 1))
    done
    wait $launcher || fail "train --elastic $*"
    [ "$(grep -c 'was killed by signal 9 (Killed); 3 others go on; starting restart' "$scratch/err")" -eq 3 ] || fail "not three deaths"
    [ "$(grep -c 'grown to 4 ranks' "$scratch/out")" -eq 3 ] || fail "not grown three times"
    grep -q '^parameters *bit-identical on 4 ranks' "$scratch/out" || fail "ranks differ"
    echo "$(accuracy) $undisturbed" | awk '{ exit !(NF == 2 && $1 > $2 - 0.02) }' ||
        fail "accuracy $(accuracy), not that of the undisturbed training, $undisturbed: $*"
}
disturbed
# The optimizer's state is in shards: what a dead rank had is on its neighbour.
disturbed --fused --momentum 0.9 --rate 0.02
