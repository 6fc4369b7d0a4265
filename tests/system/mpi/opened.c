/* SPDX-License-Identifier: Apache-2.0 */
/* What opener.c opens: a sum by the MPI that this was compiled for, and broadcasts of sizes of
 * which one MPI or another is known to be quicker than twill. */
#include <mpi.h>
#include <stdio.h>

__attribute__((visibility("default"))) int work(void);

int work(void)
{
    static char bytes[7000];
    int rank, size, sum = -1;
    if (MPI_Init(NULL, NULL) != MPI_SUCCESS || MPI_Comm_rank(MPI_COMM_WORLD, &rank) != MPI_SUCCESS)
        return 3;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Bcast(bytes, 7000, MPI_BYTE, 0, MPI_COMM_WORLD);
    MPI_Bcast(bytes, 7000, MPI_BYTE, 0, MPI_COMM_WORLD);
    MPI_Bcast(bytes, 100, MPI_BYTE, 0, MPI_COMM_WORLD);
    printf("the sum is %d\n", sum);
    fflush(stdout);
    MPI_Finalize();
    return sum == size * (size - 1) / 2 ? 0 : 1;
}
