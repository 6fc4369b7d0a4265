/* SPDX-License-Identifier: Apache-2.0 */
/* A user's program in C: checks every value, prints one line, and exits with 0 only if all is
 * right. */
#include <stdio.h>
#include <twill.h>

#define CONSUMER_COUNT 1000

int main(void)
{
    twill_comm *comm;
    float values[CONSUMER_COUNT];
    int wrong = 0;
    if (twill_init(&comm) != TWILL_OK)
        return 1;
    int rank = twill_comm_rank(comm), size = twill_comm_size(comm);
    for (int i = 0; i < CONSUMER_COUNT; i++)
        values[i] = (float)((rank + 1) * (i + 1));
    twill_status status =
        twill_allreduce(comm, values, values, CONSUMER_COUNT, TWILL_F32, TWILL_SUM);
    for (int i = 0; i < CONSUMER_COUNT; i++)
        wrong += values[i] != (float)(size * (size + 1) / 2 * (i + 1));
    printf("consumer: rank %d of %d, twill %s: %s, %d wrong\n", rank, size, twill_version(),
           twill_strerror(status), wrong);
    twill_finalize(comm);
    return status == TWILL_OK && wrong == 0 ? 0 : 1;
}
