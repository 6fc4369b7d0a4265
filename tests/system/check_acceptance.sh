#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# examples/theta/acceptance.sh on two virtual nodes: one file, which TWILL_TUNING and twill-info --model read. The job
# scripts are checked by the shell's parser only.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
. "$(dirname "$0")/../support/check.sh"
info=$bin/twill-info
scripts=$(cd "$(dirname "$0")/../../examples/theta" && pwd)
cd "$scratch" || exit 1

for script in "$scripts"/*.sh; do
    sh -n "$script" || fail "$script"
done
expect 2 "LAUNCH_SPREAD is not set" env -u LAUNCH_SPREAD sh "$scripts/acceptance.sh" none
expect 1 "nothing could be calibrated" env LAUNCH_SPREAD=false sh "$scripts/acceptance.sh" none
[ ! -e none ] || fail "a file without a model"

launch="env TWILL_LAYOUT=nodes=2x1 TWILL_PROVIDER=tcp $bin/twillrun -n 2"
expect 0 "wrote model.tuning" env BIN="$bin" LARGEST=64 REPEATS=1 LAUNCH_SPREAD="$launch" LAUNCH_THREADS="$launch -x TWILL_THREADS=2" LAUNCH_NODE=false LAUNCH_SHAPES="2x2=$launch
none=false" MPI_ALLREDUCE="echo its own" \
    sh "$scripts/acceptance.sh" model.tuning
grep -q '^model link.network.latency' model.tuning || fail "no latency of the network"
grep -q '^measured allreduce' model.tuning || fail "no algorithm was measured"
grep -q '^# == allreduce of 2K, 2x2' model.tuning || fail "the shapes are missing"
grep -q '^# rank 1: [0-9]* threads* on ' model.tuning || fail "where threads work is missing"
grep -q '^# .*i_p99' model.tuning || fail "no percentiles"
[ "$(grep -c '^# its own' model.tuning)" -eq 6 ] || fail "the MPI's own allreduce is missing"
grep -q '^# == latency of a message, spread' model.tuning || fail "no latency of messages"
grep -q '^# calibrating node' model.tuning || grep -q '^# FAILED' model.tuning || fail "a failure is not noted"
expect 1 "model.tuning exists" env LAUNCH_SPREAD="$launch" sh "$scripts/acceptance.sh" model.tuning

# What was measured is what is chosen by.
expect 0 "is chosen" "$info" --why allreduce 8 f32 --world 2x1 --model model.tuning
grep -Eq '^  [a-z_:@0-9=]+ +[0-9.]+ +[0-9.]+' "$scratch/out" || fail "no measurement"
expect 1 "nosuch.tuning" "$info" --why allreduce 8 --world 2x1 --model nosuch.tuning
expect 2 "--model" "$info" --model
