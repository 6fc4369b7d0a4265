#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# examples/worker.c trains the tumour set and the digits in every mode, and in layouts and on several nodes; workers that are
# killed do not stop the others, and new ones take their places.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
# shellcheck disable=SC2154 # source, bin, scratch, patience: of rules.sh and check.sh
. "$(dirname "$0")/../support/check.sh"

# worker RANKS ACCURACY ARGUMENT...: train, and have at least this accuracy on every worker.
worker()
{
    worker_ranks=$1 worker_accuracy=$2
    shift 2
    timeout -k 10 "$patience" "$bin/twillrun" -n "$worker_ranks" "$bin/worker" "$@" >"$scratch/out" 2>"$scratch/err" ||
        fail "worker $*: $(cat "$scratch/err")"
    awk -v least="$worker_accuracy" '/held-out/ { n++; for (i = 1; i < NF; i++) if ($i == "accuracy" && $(i + 1) + 0 < least) bad = 1 }
        END { exit bad || n == 0 }' "$scratch/out" || fail "worker $*: $(cat "$scratch/out")"
}

tumours=$source/examples/data/wdbc.csv digits=$source/examples/data/digits.csv
for mode in sync k-sync k-batch-sync k-async k-batch-async async softsync bounded groups; do
    worker 4 0.9 --data "$tumours" --layout nc --mode $mode --k 2
    worker 4 0.9 --data "$digits" --layout nc --mode $mode --k 2 --epochs 12
done
worker 3 0.9 --data "$digits" --layout cs --threads 1 --epochs 10 --optimizer adam --rate 0.005
worker 4 0.9 --data "$digits" --layout cs --mode groups --k 2 --epochs 10 --optimizer adagrad --rate 0.05
TWILL_LAYOUT=nodes=2+1+1 worker 4 0.9 --data "$tumours" --layout ncs --servers 2 --mode bounded --k 1 --rate-rule staleness
# Of a rank that is alone on its node, memory comes from malloc, which may have been used before.
GLIBC_TUNABLES=glibc.malloc.perturb=165 TWILL_LAYOUT=nodes=3x1 worker 3 0.9 --data "$tumours" --layout cc

# A worker dies at its 10th step: twillrun reports it, the others train on to the end.
timeout -k 10 "$patience" "$bin/twillrun" -n 4 --grace 60 "$bin/worker" --data "$tumours" --layout nc --kill 2:10 \
    >"$scratch/out" 2>"$scratch/err" && fail "a killed rank is no failure of the job"
[ "$(grep -c 'held-out' "$scratch/out")" -eq 2 ] || fail "killed worker: $(cat "$scratch/out" "$scratch/err")"
grep -q 'server 0: .* deaths 1' "$scratch/out" || fail "killed worker: $(cat "$scratch/out")"

# The same, but a new process takes the dead one's place: all four ranks end the training, which has learned.
# joins ARGUMENT...
joins()
{
    TWILL_TIMEOUT=240 timeout -k 10 "$patience" "$bin/twillrun" -n 4 --elastic 2:4 "$bin/worker" --data "$digits" --epochs 12 --rounds 4 --kill 2:20 "$@" \
        >"$scratch/out" 2>"$scratch/err" || fail "worker $*, with a new process: $(cat "$scratch/err")"
    grep -q 'killed by signal 9' "$scratch/err" || fail "worker $*: no rank was killed"
    [ "$(awk '/held-out/ { for (i = 1; i < NF; i++) if ($i == "accuracy" && $(i + 1) >= 0.9) n++ } END { print n + 0 }' "$scratch/out")" -ge 3 ] ||
        fail "worker $*, with a new process: $(cat "$scratch/out" "$scratch/err")"
}
joins --layout nc --mode sync
joins --layout nc --mode async
joins --layout cs --mode sync --replicas 2
# Without copies the parameters of a server are lost with it: the training gives up, and says why.
timeout -k 10 "$patience" "$bin/twillrun" -n 4 --elastic 2:4 "$bin/worker" --data "$tumours" --epochs 4 --rounds 2 --kill 2:20 \
    >"$scratch/out" 2>"$scratch/err" && fail "a training whose parameters are lost has ended well"
grep -q "^worker: .*no rank has the parameters of '.*': their server has died, and there are no replicas" "$scratch/err" ||
    fail "lost parameters: $(cat "$scratch/err")"

# A slice of the campaign: ranks are killed at random moments and replaced, and no update is lost or made twice.
# deaths DEATHS SEED LAYOUT MODE REPLICAS
deaths()
{
    rm -f "$scratch/counts"
    TWILL_TIMEOUT=240 timeout -k 10 "$patience" "$bin/twillrun" -n 4 --elastic 2:4 "$build/tests/server_campaign" "$@" "$scratch/counts" \
        >"$scratch/out" 2>"$scratch/err" || fail "server_campaign $*: $(cat "$scratch/err")"
    [ "$(grep -c "^rank [0-3] of 4, epoch $1\$" "$scratch/out")" -eq 4 ] || fail "server_campaign $*: $(cat "$scratch/out")"
}
deaths 8 "${TEST_SEED:-1}" nc sync 1
deaths 6 "${TEST_SEED:-1}" cs sync 2
deaths 4 "${TEST_SEED:-1}" nc async 1
deaths 3 "${TEST_SEED:-1}" nc k-batch-async 1

"$bin/worker" --mode nonsense 2>"$scratch/err" && fail "a mode that is none"
grep -q 'usage: worker' "$scratch/err" || fail "no usage"
echo "ok: server"
