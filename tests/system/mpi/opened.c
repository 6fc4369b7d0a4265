/* SPDX-License-Identifier: Apache-2.0 */
/* What opener.c opens: a sum by the MPI that this was compiled for, and rooted calls of some sizes.
 */
#include <mpi.h>
#include <stdio.h>

__attribute__((visibility("default"))) int work(void);

static void call_with(int bytes, int size)
{
    static char in[4 * 8192], out[4 * 8192];
    if (size > 4)
        return;
    MPI_Bcast(in, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    MPI_Reduce(in, out, bytes, MPI_BYTE, MPI_BOR, 0, MPI_COMM_WORLD);
    MPI_Gather(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    MPI_Scatter(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
}

int work(void)
{
    static const int sizes[] = {1, 8, 64, 256, 1024, 6144, 8192};
    int rank, size, sum = -1;
    if (MPI_Init(NULL, NULL) != MPI_SUCCESS || MPI_Comm_rank(MPI_COMM_WORLD, &rank) != MPI_SUCCESS)
        return 3;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        call_with(sizes[i], size);
    printf("the sum is %d\n", sum);
    fflush(stdout);
    MPI_Finalize();
    return sum == size * (size - 1) / 2 ? 0 : 1;
}
