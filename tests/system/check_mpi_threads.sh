#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Threads of MPI_THREAD_MULTIPLE under the thread sanitizer, which has instrumented libtwill-mpi, twill and the program, but not
# the MPI: it sees the locks of the MPI, so what these order is no race to it. In the stage tsan only.
# shellcheck source-path=SCRIPTDIR source=../support/rules.sh
. "$(dirname "$0")/../support/rules.sh"
# shellcheck source-path=SCRIPTDIR source=../support/mpi.sh
. "$(dirname "$0")/../support/mpi.sh"
export UCX_MEM_EVENTS=n # its hook of madvise takes a lock as a thread ends, when the sanitizer has left the thread already
found=
for variant in $(mpis); do
    found=1
    compared "$variant" 2 threads
    must_end 0 "$variant: threads without a report" launch "$variant" 2 threads
done
[ -n "$found" ] || skip "no MPI is here that libtwill-mpi is built for"
finish
