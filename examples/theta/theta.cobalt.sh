#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#COBALT -t 60 -n 24 --attrs mcdram=flat:numa=quad
# Acceptance run on a Cray XC with KNL and Aries (Theta), by Cobalt and aprun of ALPS. NOT RUN ON HARDWARE.
# The nodes that run this script cannot run binaries for KNL. MCDRAM is flat, as TWILL_MEMORY needs it.
nodes=${COBALT_JOBSIZE:-24}
common="-e TWILL_PROVIDER=gni -e TWILL_MEMORY=mcdram,ddr"
first=$(aprun -q -b -n 1 hostname)
# A rank of a node has all of its 64 cores (-d 64). It uses one of them in what was published, and for the model.
LAUNCH_SPREAD="aprun -q -n $nodes -N 1 -d 64 -j 1 --cc depth $common -e TWILL_THREADS=1 -e WORLD_SIZE=$nodes -e MASTER_ADDR=$first"
LAUNCH_THREADS="aprun -q -n $nodes -N 1 -d 64 -j 1 --cc depth $common -e TWILL_THREADS=64 -e OMP_NUM_THREADS=64 -e WORLD_SIZE=$nodes -e MASTER_ADDR=$first"
LAUNCH_FULL="aprun -q -n $((nodes * 64)) -N 64 -d 1 -j 1 --cc depth $common -e WORLD_SIZE=$((nodes * 64)) -e MASTER_ADDR=$first"
LAUNCH_NODE="aprun -q -n 64 -N 64 -d 1 -j 1 --cc depth $common -e WORLD_SIZE=64 -e MASTER_ADDR=$first"
# The shapes are the published rows of docs/results/theta.md, as far as the job has nodes, and their part inside a node.
# Three results decide between the causes that are named there. They are whether the fastest of 1,000 calls on 384 nodes
# is also slow, what 16 ranks of a node take alone, and MPI_ALLREDUCE of Cray's MPI.
LAUNCH_SHAPES=$(for shape in 12x1 24x1 48x1 384x1 48x4 48x16 1x4 1x16; do
    [ "${shape%x*}" -gt "$nodes" ] ||
        echo "$shape=aprun -q -n $((${shape%x*} * ${shape#*x})) -N ${shape#*x} -d $((64 / ${shape#*x})) -j 1 --cc depth $common -e TWILL_THREADS=1 -e WORLD_SIZE=$((${shape%x*} * ${shape#*x})) -e MASTER_ADDR=$first"
done)
export LAUNCH_SPREAD LAUNCH_THREADS LAUNCH_FULL LAUNCH_NODE LAUNCH_SHAPES
exec sh "$(dirname "$0")/acceptance.sh" "theta-$COBALT_JOBID.tuning"
