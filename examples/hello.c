/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest twill program adds the numbers of all ranks. Run it by twillrun -n 4 hello */
#include <stdio.h>
#include <twill.h>

int main(void)
{
    twill_comm *comm;
    if (twill_init(&comm) != TWILL_OK)
        return 1; /* the reason was printed */

    int rank = twill_comm_rank(comm), size = twill_comm_size(comm);
    double mine = rank + 1, sum = 0;
    twill_status status = twill_allreduce(comm, &mine, &sum, 1, TWILL_F64, TWILL_SUM);
    if (status == TWILL_OK)
        printf("rank %d of %d on node %d of %d: the sum of 1..%d is %g\n", rank, size,
               twill_comm_node(comm), twill_comm_nodes(comm), size, sum);
    else
        fprintf(stderr, "hello: %s\n", twill_comm_message(comm));

    twill_finalize(comm);
    return status == TWILL_OK && sum == size * (size + 1) / 2.0 ? 0 : 1;
}
