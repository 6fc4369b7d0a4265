/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments that all ranks give alike (type, operation, count, root) and that are wrong: every form
 * of call is refused, and the communicator stays usable. If one rank alone gives them, the others
 * hear of it. And addresses, which are a rank's own: all are taken. */
#include "lib/comm/comm.h"
#include "tests/support/unit.h"

#define MANY 20000

struct arguments_job {
    twill_context *context;
    twill_comm *comm;
    float *src, *dst;
};

static twill_status reduce_right(struct arguments_job *j, size_t count)
{
    return twill_allreduce(j->comm, j->src, j->dst, count, TWILL_F32, TWILL_SUM);
}

static const struct alike_call {
    const char *said;
    twill_type type;
    twill_op op;
    size_t count;
    int root;
} wrong[] = {{"type 77", (twill_type)77, TWILL_SUM, 8, 0},
             {"op -3", TWILL_F32, (twill_op)-3, 8, 0},
             {"does not take type f32", TWILL_F32, TWILL_BAND, 8, 0},
             {"overflows memory", TWILL_F32, TWILL_SUM, SIZE_MAX / 3, 0},
             {"root 12", TWILL_F32, TWILL_SUM, 8, 12}};

/* Between two good calls. Leaves the message of the one that is refused. */
static twill_status call_in_group(struct arguments_job *j, const struct alike_call *w)
{
    (void)TWILL_NOTE(twill_group_start(j->comm) == TWILL_OK && reduce_right(j, 8) == TWILL_OK,
                     "the start of the group");
    twill_status status = twill_reduce(j->comm, j->src, j->dst, w->count, w->type, w->op, w->root);
    struct twill_error refused = j->comm->error;
    (void)TWILL_NOTE(reduce_right(j, MANY) == TWILL_OK && twill_group_end(j->comm) == TWILL_OK,
                     "the rest of the group: %s", twill_comm_message(j->comm));
    j->comm->error = refused;
    return status;
}

static twill_status call_wrong(struct arguments_job *j, const struct alike_call *w, int form)
{
    twill_request *request = NULL;
    switch (form) {
    case 0:
        return twill_reduce(j->comm, j->src, j->dst, w->count, w->type, w->op, w->root);
    case 1:
        return twill_reduce_start(j->comm, j->src, j->dst, w->count, w->type, w->op, w->root,
                                  &request);
    case 2:
        return twill_reduce_init(j->comm, j->src, j->dst, w->count, w->type, w->op, w->root,
                                 &request);
    default:
        return call_in_group(j, w);
    }
}

static void refuse_alike(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    static const char *const settings[] = {TWILL_TEST_PATIENT, "TWILL_TUNE=heap_limit=8M", NULL};
    struct arguments_job j = {.src = calloc(MANY, sizeof(float)),
                              .dst = calloc(MANY, sizeof(float))};
    const char *nodes = user;
    if (!twill_test_connect(&j.context, &j.comm, bootstrap, nodes, NULL, settings))
        return;
    for (size_t i = 0; i < 4 * TWILL_ARRAY_LENGTH(wrong); i++) {
        const struct alike_call *w = &wrong[i / 4];
        twill_status status = call_wrong(&j, w, (int)(i % 4));
        const char *message = twill_comm_message(j.comm);
        TWILL_CHECK(status == TWILL_ERR_ARGUMENT && strstr(message, w->said) &&
                        strncmp(message, "rank ", 5) == 0,
                    "form %zu: %d: %s", i % 4, status, message);
        j.src[0] = 1;
        TWILL_CHECK(reduce_right(&j, 8) == TWILL_OK && j.dst[0] == (float)size);
    }
    /* One rank alone: the others do not wait for it until the deadline. */
    bool odd = rank == size - 1;
    twill_status status = odd ? call_wrong(&j, wrong, 0) : reduce_right(&j, 8);
    if (odd) {
        TWILL_CHECK(status == TWILL_ERR_ARGUMENT);
        status = reduce_right(&j, 8);
    }
    (void)TWILL_NOTE(status == TWILL_ERR_MISMATCH, "rank %d: %d: %s", rank, status,
                     twill_comm_message(j.comm));
    TWILL_CHECK(odd || nodes[0] != '\0' ||
                strstr(twill_comm_message(j.comm), "calls reduce #") != NULL);
    (void)twill_test_barrier(bootstrap);
    twill_test_disconnect(j.comm, j.context);
    free(j.src);
    free(j.dst);
}

/* A message from and to odd addresses, of one rank or of both. */
static void message_anywhere(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct arguments_job j;
    char out[64], in[64];
    if (!twill_test_connect(&j.context, &j.comm, bootstrap, user, NULL,
                            (const char *const[]){TWILL_TEST_PATIENT, NULL}))
        return;
    for (int odd = 0; odd < 4; odd++) {
        const int64_t mine[3] = {rank, odd, 7}, want[3] = {1 - rank, odd, 7};
        const int moved = odd >> rank & 1 ? 3 : 0;
        memcpy(out + moved, mine, sizeof(mine));
        TWILL_CHECK(twill_sendrecv(j.comm, out + moved, 3, 1 - rank, in + moved, 3, 1 - rank,
                                   TWILL_I64) == TWILL_OK);
        TWILL_CHECK(memcmp(in + moved, want, sizeof(want)) == 0);
    }
    twill_test_disconnect(j.comm, j.context);
}

TWILL_TEST(messages_at_any_address)
{
    twill_test_run_ranks(2, message_anywhere, "");
    twill_test_run_ranks(2, message_anywhere, "2x1");
}

TWILL_TEST(arguments_that_all_give_alike)
{
    twill_test_run_ranks(2, refuse_alike, "");
    twill_test_run_ranks(3, refuse_alike, "");
    twill_test_run_ranks(2, refuse_alike, "2x1");
}
