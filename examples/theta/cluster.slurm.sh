#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#SBATCH --nodes=24 --exclusive --time=01:00:00
# Acceptance run on a cluster with Slurm. NOT RUN ON HARDWARE.
# NETWORK is verbs (InfiniBand, the default), psm2 (Omni-Path), cxi (Slingshot) or tcp. RANKS is the number of ranks on
# each node (its cores).
network=${NETWORK:-verbs}
ranks=${RANKS:-$SLURM_CPUS_ON_NODE}
export TWILL_PROVIDER="$network"
# A rank of a node has all of its cores (--cpus-per-task). It uses one of them for the model.
LAUNCH_SPREAD="env TWILL_THREADS=1 srun -n $SLURM_NNODES --ntasks-per-node=1 --cpus-per-task=$ranks --cpu-bind=cores"
LAUNCH_THREADS="env TWILL_THREADS=$ranks OMP_NUM_THREADS=$ranks srun -n $SLURM_NNODES --ntasks-per-node=1 --cpus-per-task=$ranks --cpu-bind=cores"
LAUNCH_FULL="srun -n $((SLURM_NNODES * ranks)) --ntasks-per-node=$ranks --cpu-bind=cores"
LAUNCH_NODE="srun -N 1 -n $ranks --cpu-bind=cores"
LAUNCH_SHAPES=$(for each in 4 16; do # ranks of each node
    [ "$each" -ge "$ranks" ] || echo "${SLURM_NNODES}x$each=srun -n $((SLURM_NNODES * each)) --ntasks-per-node=$each --cpu-bind=cores"
done)
export LAUNCH_SPREAD LAUNCH_THREADS LAUNCH_FULL LAUNCH_NODE LAUNCH_SHAPES
exec sh "${ACCEPTANCE:-acceptance.sh}" "$network-$SLURM_JOB_ID.tuning"
