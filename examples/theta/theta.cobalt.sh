#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#COBALT -t 60 -n 24 --attrs mcdram=flat:numa=quad
# Acceptance run on a Cray XC with KNL and Aries (Theta): Cobalt, aprun of ALPS. NOT RUN ON HARDWARE.
# Binaries for KNL do not run on the nodes that run this script. MCDRAM: flat is what TWILL_MEMORY places in.
nodes=${COBALT_JOBSIZE:-24}
common="-e TWILL_PROVIDER=gni -e TWILL_MEMORY=mcdram,ddr"
first=$(aprun -q -b -n 1 hostname)
LAUNCH_SPREAD="aprun -q -n $nodes -N 1 -d 64 -j 1 --cc depth $common -e WORLD_SIZE=$nodes -e MASTER_ADDR=$first"
LAUNCH_FULL="aprun -q -n $((nodes * 64)) -N 64 -d 1 -j 1 --cc depth $common -e WORLD_SIZE=$((nodes * 64)) -e MASTER_ADDR=$first"
LAUNCH_NODE="aprun -q -n 64 -N 64 -d 1 -j 1 --cc depth $common -e WORLD_SIZE=64 -e MASTER_ADDR=$first"
export LAUNCH_SPREAD LAUNCH_FULL LAUNCH_NODE
exec sh "$(dirname "$0")/acceptance.sh" "theta-$COBALT_JOBID.tuning"
