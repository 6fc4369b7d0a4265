#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#PBS -l select=24:system=cluster,walltime=01:00:00
# Acceptance run on an HPE Cray EX with Slingshot, by PBS and mpiexec of PALS. NOT RUN ON HARDWARE.
# RANKS is the number of ranks on each node (64).
nodes=$(sort -u "$PBS_NODEFILE" | wc -l)
ranks=${RANKS:-64}
common="--env TWILL_PROVIDER=cxi --cpu-bind depth"
# A rank of a node has all of its cores (--depth). It uses one of them for the model.
LAUNCH_SPREAD="mpiexec -n $nodes --ppn 1 --depth $ranks --env TWILL_THREADS=1 $common"
LAUNCH_THREADS="mpiexec -n $nodes --ppn 1 --depth $ranks --env TWILL_THREADS=$ranks --env OMP_NUM_THREADS=$ranks $common"
LAUNCH_FULL="mpiexec -n $((nodes * ranks)) --ppn $ranks --depth 1 $common"
LAUNCH_NODE="mpiexec -n $ranks --ppn $ranks --depth 1 $common"
LAUNCH_SHAPES=$(for each in 4 16; do # ranks of each node
    [ "$each" -ge "$ranks" ] || echo "${nodes}x$each=mpiexec -n $((nodes * each)) --ppn $each --depth $((ranks / each)) --env TWILL_THREADS=1 $common"
done)
export LAUNCH_SPREAD LAUNCH_THREADS LAUNCH_FULL LAUNCH_NODE LAUNCH_SHAPES
cd "$PBS_O_WORKDIR" && exec sh "${ACCEPTANCE:-acceptance.sh}" "slingshot-$PBS_JOBID.tuning"
