#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sweep.sh BIN [RANKS [EPOCHS]] trains the classifier of examples/train.c with every mini-batch of BATCHES and every
# learning rate of RATES, from one seed. SCALES (linear, sqrt, none) says how the rate is scaled with the mini-batch. It
# prints a table with the synchronisations in all, seconds, loss and accuracy, and the processor time of all ranks, which
# other programs disturb less. DATA (wdbc.csv) and HIDDEN (16) are those of train. BIN is the folder of twillrun and
# train.
set -eu
bin=$(cd "$1" && pwd) ranks=${2:-2} epochs=${3:-40}
data=${DATA:-$(cd "$(dirname "$0")/.." && pwd)/data/wdbc.csv}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
printf '%6s %7s %7s %6s %9s %11s %13s %9s %10s\n' batch rate scaled syncs seconds train-loss held-out-loss accuracy processor
for scale in ${SCALES:-linear sqrt none}; do
    scaled=
    [ "$scale" = none ] || scaled="--scale-rate $scale"
    for rate in ${RATES:-0.05 0.2}; do
        for batch in ${BATCHES:-16 32 64 128}; do
            # shellcheck disable=SC2086 # two words or none
            "$bin/twillrun" -n "$ranks" "$bin/train" --data "$data" --hidden "${HIDDEN:-16}" --epochs "$epochs" --batch "$batch" --rate "$rate" $scaled >"$scratch/out"
            awk -v batch="$batch" -v rate="$rate" -v scale="$scale" '
                /^train loss/ { loss = $3 } /^held-out loss/ { held = $3 } /^held-out accuracy/ { right = $3 }
                /^exchange/ { syncs = $2 } /^processor/ { processor = $2 } /^train  / { seconds = $4 }
                END { printf "%6d %7g %7s %6d %9.3f %11.6f %13.6f %9.4f %10.4f\n", batch, rate, scale, syncs, seconds, loss, held, right, processor }' "$scratch/out"
        done
    done
done
