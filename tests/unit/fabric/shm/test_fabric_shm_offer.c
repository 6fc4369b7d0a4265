/* SPDX-License-Identifier: Apache-2.0 */
/* Long messages of the shm transport, which the receiver reads in place: their contents, and what
 * happens when they do not match, cannot be read, or are withdrawn. */
#include "fabric/shm/shared_region_state.h"
#include "fabric/shm/shm_channel.h"
#include "tests/support/shm_fixture.h"
#include "tests/support/unit.h"

#define LONG TWILL_SHM_FETCH_LEAST

/* Wait until all ranks are here. */
static bool wait_for_all(struct twill_test_shm *f)
{
    unsigned char all[4];
    return twill_oob_allgather(f->oob, all, all, 1, NULL) == TWILL_OK;
}

/* Post a message between ranks 0 and 1, from the former. */
static bool post(struct twill_test_shm *f, struct twill_transfer *request, void *buffer,
                 size_t bytes)
{
    *request = (struct twill_transfer){.kind = f->end.rank == 0 ? TWILL_TRANSFER_SEND
                                                                : TWILL_TRANSFER_RECV,
                                       .peer = 1 - f->end.rank,
                                       .buffer = buffer,
                                       .bytes = bytes};
    return f->end.transport->ops->post(f->end.transport, request, &f->end.error) == TWILL_OK;
}

/* All arrive, stored and reduced, and nothing is copied by the sender. */
static bool contents(struct twill_test_shm *f)
{
    static const size_t sizes[] = {LONG, LONG + 1, (1u << 20) + 8, (3u << 20) - 3};
    return twill_test_sweep(&f->end, sizes, TWILL_ARRAY_LENGTH(sizes)) &&
           TWILL_NOTE(f->end.transport->counters.copied == 0, "copied");
}

/* Long and short messages keep their order. */
static bool in_order(struct twill_test_shm *f)
{
    return twill_test_flood(&f->end, 20, 2 * LONG);
}

/* A message of another size fails at the receiver; the next one arrives. */
static bool other_size(struct twill_test_shm *f)
{
    struct twill_transfer wrong, right;
    unsigned char *buffer = calloc(2, LONG + 8);
    TWILL_REQUIRE(buffer != NULL);
    bool sends = f->end.rank == 0;
    memset(buffer, sends ? 7 : 0, LONG);
    bool good =
        post(f, &wrong, buffer + LONG + 8, LONG + (sends ? 8 : 0)) && post(f, &right, buffer, LONG);
    while (good && (wrong.status == TWILL_PENDING || right.status == TWILL_PENDING))
        good = f->end.transport->ops->progress(f->end.transport, &f->end.error) >= 0;
    good = good && wrong.status == (sends ? TWILL_OK : TWILL_ERR_MISMATCH) &&
           right.status == TWILL_OK && buffer[0] == 7 && buffer[LONG - 1] == 7;
    free(buffer);
    return TWILL_NOTE(good, "%d %d", wrong.status, right.status);
}

/* A message that the kernel refuses to read is streamed, and so are later ones. */
static bool unreadable(struct twill_test_shm *f)
{
    struct twill_transfer request;
    bool sends = f->end.rank == 0;
    unsigned char *buffer =
        mmap(NULL, LONG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TWILL_REQUIRE(buffer != MAP_FAILED);
    memset(buffer, sends ? 9 : 0, LONG);
    if (sends)
        TWILL_REQUIRE(mprotect(buffer, LONG, PROT_NONE) == 0 && post(f, &request, buffer, LONG));
    TWILL_REQUIRE(wait_for_all(f));
    if (!sends)
        TWILL_REQUIRE(post(f, &request, buffer, LONG) && request.status == TWILL_PENDING);
    TWILL_REQUIRE(wait_for_all(f));
    if (sends)
        TWILL_REQUIRE(mprotect(buffer, LONG, PROT_READ | PROT_WRITE) == 0);
    TWILL_REQUIRE(twill_test_await(&f->end, &request, 1) && request.status == TWILL_OK);
    TWILL_REQUIRE(buffer[0] == 9 && buffer[LONG - 1] == 9);
    TWILL_REQUIRE(!sends || f->end.transport->counters.copied == LONG);
    return munmap(buffer, LONG) == 0;
}

/* A sender sees that its message is being read, so that a long one does not time out. */
static bool followed(struct twill_test_shm *f)
{
    const struct twill_transport_ops *ops = f->end.transport->ops;
    struct twill_transfer request;
    unsigned char *buffer = calloc(1, 4 * LONG);
    TWILL_REQUIRE(buffer != NULL);
    bool sends = f->end.rank == 0, good = !sends || post(f, &request, buffer, 4 * LONG);
    good = good && (!sends || ops->progress(f->end.transport, &f->end.error) == 0);
    good = wait_for_all(f) && good &&
           (sends || post(f, &request, buffer, 4 * LONG)); /* reads one half */
    good = wait_for_all(f) && good;
    for (int moved = 1; sends && moved >= 0; moved--)
        good = good && ops->progress(f->end.transport, &f->end.error) == moved;
    good = good && request.status == TWILL_PENDING && request.moved == 2 * LONG;
    good = wait_for_all(f) && good && twill_test_await(&f->end, &request, 1);
    free(buffer);
    return TWILL_NOTE(good && request.status == TWILL_OK, "%d", request.status);
}

static void add(struct twill_transfer *request, size_t offset, const void *data, size_t bytes)
{
    unsigned char *to = (unsigned char *)request->buffer + offset;
    for (size_t i = 0; i < bytes; i++)
        to[i] = (unsigned char)(to[i] + ((const unsigned char *)data)[i]);
}

/* Of a message whose first half alone can be read, the other one is streamed. */
static bool read_by_half(struct twill_test_shm *f, bool reduces)
{
    const size_t half = 2 * LONG;
    struct twill_transfer request;
    bool sends = f->end.rank == 0, good = true;
    unsigned char *buffer =
        mmap(NULL, 2 * half, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TWILL_REQUIRE(buffer != MAP_FAILED);
    memset(buffer, sends ? 9 : 0, 2 * half);
    if (sends)
        TWILL_REQUIRE(mprotect(buffer + half, half, PROT_NONE) == 0 &&
                      post(f, &request, buffer, 2 * half));
    TWILL_REQUIRE(wait_for_all(f));
    if (!sends) {
        request = (struct twill_transfer){.kind = TWILL_TRANSFER_RECV,
                                          .buffer = buffer,
                                          .bytes = 2 * half,
                                          .reduce = reduces ? add : NULL};
        const struct twill_transport_ops *ops = f->end.transport->ops;
        TWILL_REQUIRE(ops->post(f->end.transport, &request, &f->end.error) == TWILL_OK);
        for (int i = 0; i < 40; i++)
            good = good && ops->progress(f->end.transport, &f->end.error) >= 0;
        TWILL_REQUIRE(good && request.status == TWILL_PENDING && request.moved == half);
    }
    TWILL_REQUIRE(wait_for_all(f));
    if (sends)
        TWILL_REQUIRE(mprotect(buffer, 2 * half, PROT_READ | PROT_WRITE) == 0);
    TWILL_REQUIRE(twill_test_await(&f->end, &request, 1) && request.status == TWILL_OK);
    for (size_t i = 0; i < 2 * half; i++)
        good = good && buffer[i] == 9;
    TWILL_REQUIRE(good && (!sends || f->end.transport->counters.copied == half));
    return munmap(buffer, 2 * half) == 0;
}

static bool half_stored(struct twill_test_shm *f)
{
    return read_by_half(f, false);
}

static bool half_reduced(struct twill_test_shm *f)
{
    return read_by_half(f, true);
}

/* A receiver does not complete a message whose sender's process has ended, even if its pid is in
 * use. The sender only looks as if it had: it has lost the lock of its memory. */
static bool ended(struct twill_test_shm *f)
{
    const struct twill_transport_ops *ops = f->end.transport->ops;
    struct twill_transfer request;
    unsigned char *buffer = calloc(1, LONG);
    TWILL_REQUIRE(buffer != NULL);
    bool sends = f->end.rank == 0, good = !sends || post(f, &request, buffer, LONG);
    int lock = f->node->region->fd; /* -1: ranks are threads, and die together */
    good = good && (!sends || lock < 0 || close(dup(lock)) == 0);
    good = wait_for_all(f) && good && (sends || post(f, &request, buffer, LONG));
    for (int i = 0; !sends && i < 10; i++)
        good = good && ops->progress(f->end.transport, &f->end.error) >= 0;
    good = good && (sends || request.status == (lock < 0 ? TWILL_OK : TWILL_PENDING));
    good = wait_for_all(f) && good;
    ops->cancel(f->end.transport);
    free(buffer);
    return TWILL_NOTE(good, "%d", request.status);
}

/* A receiver does not complete a message whose sender has given up. */
static bool withdrawn(struct twill_test_shm *f)
{
    const struct twill_transport_ops *ops = f->end.transport->ops;
    struct twill_transfer request;
    unsigned char *buffer = calloc(1, 4 * LONG);
    TWILL_REQUIRE(buffer != NULL);
    bool sends = f->end.rank == 0, good = !sends || post(f, &request, buffer, 4 * LONG);
    good = wait_for_all(f) && good &&
           (sends || post(f, &request, buffer, 4 * LONG)); /* reads a part */
    good = wait_for_all(f) && good;
    if (sends)
        ops->cancel(f->end.transport);
    good = wait_for_all(f) && good;
    for (int i = 0; !sends && i < 10; i++)
        good = good && ops->progress(f->end.transport, &f->end.error) >= 0;
    good = good && request.status == TWILL_PENDING;
    free(buffer);
    return TWILL_NOTE(good, "%d", request.status);
}

#define OFFER_TEST(name)                                                                           \
    static void name##_rank(int rank, int size, twill_bootstrap *caller, void *user)               \
    {                                                                                              \
        twill_test_shm_run(caller, &twill_shm_transport, name, TWILL_TEST_READS);                  \
    }                                                                                              \
    TWILL_TEST(test_##name)                                                                        \
    {                                                                                              \
        twill_test_run_ranks(2, name##_rank, NULL);                                                \
        twill_test_run_processes(2, name##_rank, NULL);                                            \
    }
OFFER_TEST(contents)
OFFER_TEST(in_order)
OFFER_TEST(other_size)
OFFER_TEST(unreadable)
OFFER_TEST(followed)
OFFER_TEST(half_stored)
OFFER_TEST(half_reduced)
OFFER_TEST(ended)
OFFER_TEST(withdrawn)
