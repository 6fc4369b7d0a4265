#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What one rank of an MPI program lacks, memory or operations, or does differently, must not hang any rank.
# shellcheck source-path=SCRIPTDIR source=../support/rules.sh
. "$(dirname "$0")/../support/rules.sh"
# shellcheck source-path=SCRIPTDIR source=../support/mpi.sh
. "$(dirname "$0")/../support/mpi.sh"

found=
# shellcheck disable=SC2034 # of mpi.sh
lacks=memory
# shellcheck disable=SC3045 # Debian's sh has it
ulimit -n "$(ulimit -H -n)" # many communicators
for variant in $(mpis); do
    found=1
    compared "$variant" 3 alone
    if [ "$variant" = openmpi ]; then # which then looks at no argument
        # shellcheck disable=SC2034 # of mpi.sh
        options="--mca mpi_param_check 0"
        compared openmpi 3 alone
        options=
    fi
done
[ -n "$found" ] || skip "no MPI is here that libtwill-mpi is built for"
finish
