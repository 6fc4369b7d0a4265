/* SPDX-License-Identifier: Apache-2.0 */
/* The functions for LightGBM, as it calls them: uneven blocks, reducers of sums and of the better
 * of two, input at the beginning of the output; and blocks that cannot be. */
#include "lib/twill_lightgbm.h"
#include "tests/support/unit.h"

#define RANKS 3

/* As LightGBM's reducers: output op= input. */
static void add(const char *input, char *output, int element, int32_t bytes)
{
    double in, out;
    for (int32_t i = 0; i < bytes; i += (int32_t)sizeof(in)) {
        memcpy(&in, input + i, sizeof(in));
        memcpy(&out, output + i, sizeof(out));
        out += in;
        memcpy(output + i, &out, sizeof(out));
    }
}

/* Elements of 5 bytes, the first of which is compared. */
static void better(const char *input, char *output, int element, int32_t bytes)
{
    for (int32_t i = 0; i < bytes; i += element)
        if (input[i] > output[i])
            memcpy(output + i, input + i, (size_t)element);
}

static void sums(twill_comm *comm, int rank)
{
    enum { ELEMENTS = 9, ELEMENT = sizeof(double) };
    const int32_t length[RANKS] = {4 * ELEMENT, 0, 5 * ELEMENT};
    const int32_t start[RANKS] = {0, 4 * ELEMENT, 4 * ELEMENT};
    const twill_lightgbm_reducer reducer = add;
    double in[ELEMENTS], out[ELEMENTS];
    for (int i = 0; i < ELEMENTS; i++)
        in[i] = i * (rank + 1);
    TWILL_CHECK(twill_lightgbm_reduce_scatter(comm, in, sizeof(in), ELEMENT, start, length, RANKS,
                                              out, sizeof(out), &reducer) == TWILL_OK);
    for (int i = 0; i < length[rank] / ELEMENT; i++)
        TWILL_CHECK(out[i] == 6.0 * (start[rank] / ELEMENT + i));
    TWILL_CHECK(twill_lightgbm_allgather(comm, out, length[rank], start, length, RANKS, out,
                                         sizeof(out)) == TWILL_OK);
    for (int i = 0; i < ELEMENTS; i++)
        TWILL_CHECK(out[i] == 6.0 * i);
}

static void best(twill_comm *comm, int rank)
{
    enum { ELEMENT = 5 };
    const int32_t length[RANKS] = {ELEMENT, ELEMENT, ELEMENT}, start[RANKS] = {0, 5, 10};
    const twill_lightgbm_reducer reducer = better;
    char in[RANKS * ELEMENT], out[ELEMENT];
    for (int i = 0; i < RANKS; i++)
        memset(in + i * ELEMENT, (rank + i) % RANKS, ELEMENT);
    TWILL_CHECK(twill_lightgbm_reduce_scatter(comm, in, sizeof(in), ELEMENT, start, length, RANKS,
                                              out, sizeof(out), &reducer) == TWILL_OK);
    for (int i = 0; i < ELEMENT; i++)
        TWILL_CHECK(out[i] == RANKS - 1);
}

/* A failed call leaves zeros, and fails on all ranks. */
static void refused(twill_comm *comm)
{
    const int32_t length[RANKS] = {8, 8, 7}, start[RANKS] = {0, 8, 16};
    const twill_lightgbm_reducer reducer = add;
    char in[24] = {0}, out[8] = {1, 1, 1, 1, 1, 1, 1, 1}, zeros[8] = {0};
    TWILL_CHECK(twill_lightgbm_reduce_scatter(comm, in, 23, 8, start, length, RANKS, out, 8,
                                              &reducer) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(memcmp(out, zeros, sizeof(out)) == 0);
    TWILL_CHECK(twill_lightgbm_allgather(comm, in, 8, start, length, RANKS, in, 24) ==
                TWILL_ERR_BROKEN);
}

TWILL_TEST_ON(as_lightgbm_calls, ranks, TWILL_LAYOUTS("3"), "TWILL_LOG=none")
{
    sums(comm, rank);
    sums(comm, rank); /* the slot of the operation is used again */
    best(comm, rank);
    if (twill_test_barrier(bootstrap))
        refused(comm);
}
