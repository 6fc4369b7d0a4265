/* SPDX-License-Identifier: Apache-2.0 */
/* Windows on a node, between nodes, by messages and by writes of the network, and over private
 * memory: data and signals in their order, from
 * several threads, refused arguments, and failures on every rank, which no wait outlasts. */
#include "lib/extend.h"
#include "lib/twill_recover.h"
#include "lib/twill_window.h"
#include "lib/window/window.h"
#include "tests/support/unit.h"

#define WINDOW_MOST   300001 /* bytes of a put */
#define WINDOW_ROUNDS 100
#define WINDOW_SET    TWILL_TEST_PATIENT, "TWILL_TUNE=heap_limit=16M"
/* Libfabric, and one of its providers where a signal waits until the data have arrived. */
#define WINDOW_OFI     WINDOW_SET, "TWILL_PROVIDER=ofi:tcp"
#define WINDOW_SOCKETS WINDOW_SET, "TWILL_PROVIDER=ofi:sockets"

static const char *const worlds[] = {"1",   "2",   "4",
                                     "2x2", "3x1", "3+2 delay=5,reorder=1,chunk=64,again=20"};

#define OK(call)                                                                                   \
    do {                                                                                           \
        twill_status ok_ = (call);                                                                 \
        TWILL_CHECK(ok_ == TWILL_OK, "%d: %s", ok_, twill_window_message(window));                 \
    } while (0)

#define REFUSES(call, words) TWILL_CHECK(ends(window, call, TWILL_ERR_ARGUMENT, words))

/* Return whether a call ended with this status, and the window's message then has these words. */
static bool ends(twill_window *window, twill_status status, twill_status expected,
                 const char *words)
{
    TWILL_REQUIRE(status == expected, "%d: %s", status, twill_window_message(window));
    return TWILL_SAYS(twill_window_message(window), words);
}

/* Create a window of `bytes` new bytes, at *memory. */
static bool open_window(twill_window **window, twill_comm *comm, void *memory, size_t bytes,
                        int signals)
{
    void *new = NULL;
    TWILL_REQUIRE(twill_alloc(twill_comm_context(comm), &new, bytes) == TWILL_OK);
    memset(new, 0, bytes);
    memcpy(memory, &new, sizeof(new));
    return twill_test_fine(comm, twill_window_create(window, comm, new, bytes, signals));
}

static void close_window(twill_window *window, twill_comm *comm, void *memory)
{
    twill_window_destroy(window);
    TWILL_CHECK(twill_free(twill_comm_context(comm), memory) == TWILL_OK);
}

/* Fill the bytes of a put, or if `checks` return whether they are those. */
static bool fill(unsigned char *at, size_t bytes, int from, int to, unsigned round, bool checks)
{
    for (size_t i = 0; i < bytes; i++) {
        unsigned char byte = (unsigned char)(i + 3 * (unsigned)from + 5 * (unsigned)to + 7 * round);
        if (checks && at[i] != byte)
            return false;
        at[i] = byte;
    }
    return true;
}

/* Exchange puts of all sizes with every rank, each into the slot of its sender. By a signal, ranks
 * answer that they have read it. A rank continues when all have answered. */
static void exchange_all(twill_window *window, unsigned char *slot, int rank, int size)
{
    static const size_t sizes[] = {1, 0, 8, 107, 108, 109, 5000, WINDOW_MOST};
    unsigned char *src = malloc(WINDOW_MOST);
    TWILL_CHECK(src != NULL);
    for (unsigned round = 1; round <= 24; round++) {
        size_t bytes = sizes[round % TWILL_ARRAY_LENGTH(sizes)];
        for (int to = 0; to < size; to++) {
            (void)fill(src, bytes, rank, to, round, false);
            OK(twill_put(window, src, bytes, to, (size_t)rank * WINDOW_MOST, rank));
            OK(twill_window_flush(window));
        }
        for (int from = 0; from < size; from++) {
            uint64_t count;
            OK(twill_wait_signal(window, from, round, &count));
            TWILL_CHECK(count == round);
            TWILL_CHECK(fill(slot + (size_t)from * WINDOW_MOST, bytes, from, rank, round, true));
            OK(twill_signal(window, from, size));
        }
        OK(twill_wait_signal(window, size, (uint64_t)round * (unsigned)size, NULL));
    }
    free(src);
}

/* Exchange in a new window. If `written`, the network writes between nodes, else it does not. */
static void use_window(twill_comm *comm, int rank, int size, bool written)
{
    twill_window *window;
    unsigned char *slot;
    TWILL_CHECK(open_window(&window, comm, &slot, (size_t)size * WINDOW_MOST, size + 1));
    const uint32_t *node = twill_extend_comm(comm).world->node;
    for (int r = 0; r < size; r++)
        TWILL_CHECK(window->peer[r].written == (written && node[r] != node[rank]), "rank %d", r);
    twill_window *second;
    TWILL_CHECK(twill_test_fine(comm, twill_window_create(&second, comm, slot, 8, 1)));
    twill_window_destroy(second); /* the first one stays as it is */
    exchange_all(window, slot, rank, size);
    close_window(window, comm, slot);
}

TWILL_TEST_ON(all_to_all, ranks, worlds, WINDOW_SET)
{
    use_window(comm, rank, size, false);
}

TWILL_TEST_ON(written, ranks, TWILL_LAYOUTS("2x1", "2x2"), WINDOW_OFI)
{
    use_window(comm, rank, size, true);
}

TWILL_TEST_ON(written_and_awaited, ranks, TWILL_LAYOUTS("2x1"), WINDOW_SOCKETS)
{
    use_window(comm, rank, size, true);
}

/* Puts without a signal, and a signal after them. The window of rank 1 has no bytes. */
TWILL_TEST_ON(written_without_signal, ranks, TWILL_LAYOUTS("3x1"), WINDOW_OFI)
{
    enum { BYTES = 20000, PUTS = 100 };
    twill_window *window;
    unsigned char *memory, *src = calloc(PUTS, BYTES);
    void *none = NULL;
    bool empty = rank == 1;
    TWILL_CHECK(src != NULL);
    if (empty)
        TWILL_CHECK(twill_test_fine(comm, twill_window_create(&window, comm, NULL, 0, 1)));
    else
        TWILL_CHECK(open_window(&window, comm, &memory, (size_t)PUTS * BYTES, 1));
    for (int i = 0; i < PUTS && empty; i++) {
        unsigned char *part = src + (size_t)i * BYTES;
        (void)fill(part, BYTES, 1, 0, (unsigned)i, false);
        OK(twill_put(window, part, BYTES, 2, (size_t)i * BYTES, TWILL_NO_SIGNAL));
    }
    if (empty)
        OK(twill_signal(window, 2, 0));
    if (rank == 2) {
        OK(twill_wait_signal(window, 0, 1, NULL));
        for (int i = 0; i < PUTS; i++)
            TWILL_CHECK(fill(memory + (size_t)i * BYTES, BYTES, 1, 0, (unsigned)i, true));
    }
    twill_window_destroy(window);
    TWILL_CHECK(twill_free(twill_comm_context(comm), empty ? none : memory) == TWILL_OK);
    free(src);
}

/* Ranks 1.. put to rank 0 without waiting. It sees the puts of each in their order, and those that
 * it does not wait for after the end of the window. Windows differ in size. */
TWILL_TEST_ON(run_ahead, ranks, worlds, WINDOW_SET)
{
    twill_window *window;
    uint32_t *last, number[WINDOW_ROUNDS + 1];
    size_t slots = rank == 0 ? ((size_t)size + 1) * WINDOW_ROUNDS + 1 : 1;
    TWILL_CHECK(open_window(&window, comm, &last, slots * sizeof(*last), size));
    for (uint32_t round = 1; rank > 0 && round <= WINDOW_ROUNDS; round++) {
        number[round] = round;
        OK(twill_put(window, &number[round], 4, 0, 4 * ((size_t)rank * WINDOW_ROUNDS + round),
                     rank));
    }
    for (int from = 1; rank == 0 && from < size; from++)
        for (uint64_t count = 0; count < WINDOW_ROUNDS / 2;) {
            OK(twill_wait_signal(window, from, count + 1, &count));
            TWILL_CHECK(last[(uint64_t)from * WINDOW_ROUNDS + count] == count);
        }
    twill_window_destroy(window);
    for (int from = 1; rank == 0 && from < size; from++)
        TWILL_CHECK(last[from * WINDOW_ROUNDS + WINDOW_ROUNDS] == WINDOW_ROUNDS);
    TWILL_CHECK(twill_free(twill_comm_context(comm), last) == TWILL_OK);
}

/* A rank has allocated all that it shares, so its window is private. Messages then carry the puts
 * to it, also on the node. */
TWILL_TEST_ON(private_memory, ranks, TWILL_LAYOUTS("3"), TWILL_TEST_PATIENT, "TWILL_LOG=none")
{
    twill_window *window;
    unsigned char *slot;
    void *all = NULL;
    const struct twill_extend_memory own = twill_extend_memory(comm, (uint32_t)rank);
    if (rank == 1)
        TWILL_CHECK(twill_alloc(twill_comm_context(comm), &all, own.bytes) == TWILL_OK);
    TWILL_CHECK(open_window(&window, comm, &slot, (size_t)size * WINDOW_MOST, size + 1));
    TWILL_CHECK((slot >= own.base && slot < own.base + own.bytes) == (rank != 1));
    exchange_all(window, slot, rank, size);
    close_window(window, comm, slot);
    TWILL_CHECK(twill_free(twill_comm_context(comm), all) == TWILL_OK);
}

/* --- threads -----------------------------------------------------------------------------------
 */

enum { THREADS = 3, THREAD_BYTES = 200 };
struct thread {
    twill_window *window;
    pthread_t thread;
    int number, to;
};

/* Each thread has a signal and a place for itself. */
static void *exchange_thread(void *own)
{
    struct thread *t = own;
    unsigned char data[THREAD_BYTES] = {0};
    for (unsigned round = 1; round <= WINDOW_ROUNDS && !twill_test_failed(); round++) {
        size_t bytes = round % 2 == 0 ? sizeof(data) : 8, at = (size_t)t->number * sizeof(data);
        twill_status status = twill_put(t->window, data, bytes, t->to, at, t->number);
        if (status == TWILL_OK)
            status = twill_window_flush(t->window);
        if (status == TWILL_OK)
            status = twill_wait_signal(t->window, t->number, round, NULL);
        TWILL_NOTE(status == TWILL_OK, "%d: %s", status, twill_window_message(t->window));
    }
    return NULL;
}

static void put_in_threads(twill_comm *comm, int rank, int size)
{
    struct thread thread[THREADS];
    twill_window *window;
    unsigned char *slot;
    TWILL_CHECK(open_window(&window, comm, &slot, THREADS * THREAD_BYTES, THREADS));
    for (int t = 0; t < THREADS; t++) {
        thread[t] = (struct thread){.window = window, .number = t, .to = (rank + 1) % size};
        TWILL_CHECK(pthread_create(&thread[t].thread, NULL, exchange_thread, &thread[t]) == 0);
    }
    for (int t = 0; t < THREADS; t++)
        pthread_join(thread[t].thread, NULL);
    close_window(window, comm, slot);
}

TWILL_TEST_ON(threads, ranks, TWILL_LAYOUTS("2", "3x1"), WINDOW_SET)
{
    put_in_threads(comm, rank, size);
}

TWILL_TEST_ON(threads_written, ranks, TWILL_LAYOUTS("3x1"), WINDOW_OFI)
{
    put_in_threads(comm, rank, size);
}

/* --- refused arguments -------------------------------------------------------------------------
 */

TWILL_TEST_ON(refused, ranks, TWILL_LAYOUTS("2", "2x1"), WINDOW_SET)
{
    twill_window *window;
    unsigned char *slot;
    char byte = 1;
    int other = 1 - rank;
    uint64_t count = 9;
    TWILL_CHECK(open_window(&window, comm, &slot, rank == 0 ? 8 : 16, 2));
    REFUSES(twill_put(window, &byte, 1, 2, 0, 0), "twill_put: to: rank 2 is outside 0 .. 1");
    REFUSES(twill_put(window, &byte, 1, -1, 0, 0), "to: rank -1 is outside");
    REFUSES(twill_put(window, &byte, 1, 0, 8, 0), "offset 8 + 1 bytes are outside the 8 bytes of");
    REFUSES(twill_put(window, &byte, SIZE_MAX, 1, 9, 0), "outside the 16 bytes of rank 1");
    REFUSES(twill_put(window, NULL, 1, other, 0, 0), "src is NULL");
    REFUSES(twill_put(window, &byte, 1, other, 0, 2), "signal 2 is outside 0 .. 1");
    REFUSES(twill_signal(window, other, TWILL_NO_SIGNAL), "twill_signal: signal -1 is outside");
    REFUSES(twill_wait_signal(window, 2, 1, NULL), "signal 2 is outside 0 .. 1");
    TWILL_CHECK(twill_put(NULL, &byte, 1, 0, 0, 0) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(TWILL_SAYS(twill_window_message(NULL), "NULL"));
    TWILL_CHECK(twill_free(twill_comm_context(comm), slot) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(TWILL_SAYS(twill_context_message(twill_comm_context(comm)), "that of a window"));
    OK(twill_wait_signal(window, 0, 0, &count));
    TWILL_CHECK(count == 0);
    OK(twill_put(window, &byte, 1, other, 7, TWILL_NO_SIGNAL)); /* it is usable, and to the edge */
    OK(twill_signal(window, other, 1));
    OK(twill_wait_signal(window, 1, 1, NULL));
    TWILL_CHECK(slot[7] == 1);
    close_window(window, comm, slot);
}

/* What the last rank passes wrongly fails on all ranks, and the communicator stays usable. */
TWILL_TEST_ON(refused_creation, ranks, TWILL_LAYOUTS("1", "3", "2x1"), WINDOW_SET)
{
    static char own[64];
    void *memory;
    TWILL_CHECK(twill_alloc(twill_comm_context(comm), &memory, 64) == TWILL_OK);
    const struct {
        void *buffer;
        size_t bytes;
        int signals;
        const char *words;
    } wrong[] = {{own, 64, 1, "twill_window_create: buffer: 64 bytes at "},
                 {memory, 65, 1, "are not memory of twill_alloc(), or freed"},
                 {memory, 64, 0, "signals: 0 is outside 1 .. 65536"},
                 {memory, 64, 2, "signals is 1 on rank 0 and 2 on rank"}};
    twill_window *window = (void *)comm;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(wrong) - (size == 1); i++) {
        bool mine = rank == size - 1, mismatch = i == TWILL_ARRAY_LENGTH(wrong) - 1;
        twill_status status = mine ? twill_window_create(&window, comm, wrong[i].buffer,
                                                         wrong[i].bytes, wrong[i].signals)
                                   : twill_window_create(&window, comm, memory, 64, 1);
        TWILL_CHECK(TWILL_ENDS(comm, status, mismatch ? TWILL_ERR_MISMATCH : TWILL_ERR_ARGUMENT,
                               mine || mismatch ? wrong[i].words : "failed on rank"));
        TWILL_CHECK(window == NULL);
    }
    TWILL_CHECK(twill_group_start(comm) == TWILL_OK);
    TWILL_CHECK(TWILL_ENDS(comm, twill_window_create(&window, comm, memory, 64, 1),
                           TWILL_ERR_ARGUMENT, "a group of calls is open"));
    TWILL_CHECK(twill_group_end(comm) == TWILL_OK);
    TWILL_CHECK(twill_free(twill_comm_context(comm), memory) == TWILL_OK);
    TWILL_CHECK(TWILL_ENDS(comm, twill_window_create(&window, comm, memory, 64, 1),
                           TWILL_ERR_ARGUMENT, "freed"));
    TWILL_CHECK(twill_test_fine(comm, twill_window_create(&window, comm, NULL, 0, 1)));
    OK(twill_signal(window, (rank + 1) % size, 0));
    OK(twill_wait_signal(window, 0, 1, NULL));
    twill_window_destroy(window);
}

/* --- failures ----------------------------------------------------------------------------------
 */

/* A signal that is never raised, on rank 0 only, ends the waits of all ranks. */
TWILL_TEST_ON(timeouts, ranks, TWILL_LAYOUTS("3", "3x1"), TWILL_TEST_PATIENT)
{
    twill_window *window;
    unsigned char *slot;
    if (rank == 0)
        TWILL_CHECK(twill_test_fine(comm, twill_comm_set_timeout(comm, 1)));
    TWILL_CHECK(open_window(&window, comm, &slot, 8, 2));
    OK(twill_signal(window, 0, 1));
    TWILL_CHECK(ends(window, twill_wait_signal(window, 1, 4, NULL), TWILL_ERR_TIMEOUT,
                     "rank 0: twill_wait_signal: signal 1 is at 3 and has not reached 4 within "));
    TWILL_CHECK(ends(window, twill_signal(window, 0, 0), TWILL_ERR_BROKEN, "has not reached 4"));
    twill_window_destroy(window);
}

TWILL_TEST_ON(revoked, ranks, TWILL_LAYOUTS("3", "3x1"), WINDOW_SET)
{
    twill_window *window;
    unsigned char *slot;
    TWILL_CHECK(open_window(&window, comm, &slot, 8, 1));
    if (rank == 1)
        TWILL_CHECK(twill_comm_revoke(comm) == TWILL_OK);
    TWILL_CHECK(ends(window, twill_wait_signal(window, 0, 1, NULL), TWILL_ERR_REVOKED, "rank 1"));
    twill_window_destroy(window);
}

/* The last rank dies, or ends the window while others wait in it. */
TWILL_TEST_ON(deaths, processes, TWILL_LAYOUTS("3", "3x1", "2+1"), WINDOW_SET)
{
    twill_window *window;
    unsigned char *slot;
    TWILL_CHECK(open_window(&window, comm, &slot, 8, 1));
    OK(twill_signal(window, 0, 0));
    OK(twill_window_flush(window));
    if (rank == 0)
        OK(twill_wait_signal(window, 0, 3, NULL));
    TWILL_CHECK(twill_test_barrier(bootstrap));
    if (rank == size - 1)
        _exit(0);
    twill_status status = TWILL_OK;
    while (status == TWILL_OK) /* looking without waiting also finds it */
        status = twill_wait_signal(window, 0, rank == 0 ? 9 : 0, NULL);
    TWILL_CHECK(ends(window, status, TWILL_ERR_PEER, "rank 2"));
    TWILL_CHECK(ends(window, twill_window_flush(window), TWILL_ERR_BROKEN, "rank 2"));
    twill_window_destroy(window);
    _exit(0);
}

/* The last rank dies while rank 0 writes into its window, and then rank 0 uses the communicator of
 * the others. */
TWILL_TEST_ON(deaths_written, processes, TWILL_LAYOUTS("3x1"), WINDOW_OFI, "TWILL_LOG=none")
{
    twill_window *window;
    twill_comm *rest;
    unsigned char *slot;
    float sum[2] = {1, 2};
    TWILL_CHECK(twill_test_fine(comm, twill_comm_split(&rest, comm, rank == 2, 0)));
    TWILL_CHECK(open_window(&window, comm, &slot, WINDOW_MOST, 1));
    OK(twill_put(window, slot, WINDOW_MOST, (rank + 1) % size, 0, 0));
    OK(twill_wait_signal(window, 0, 1, NULL));
    TWILL_CHECK(twill_test_barrier(bootstrap));
    if (rank == 2)
        _exit(0);
    twill_status status = TWILL_OK;
    while (status == TWILL_OK && rank == 0)
        status = twill_put(window, slot, WINDOW_MOST, 2, 0, TWILL_NO_SIGNAL);
    while (status == TWILL_OK)
        status = twill_wait_signal(window, 0, 9, NULL);
    TWILL_CHECK(ends(window, status, TWILL_ERR_PEER, "rank 2"));
    twill_window_destroy(window);
    TWILL_CHECK(twill_test_fine(rest, twill_allreduce(rest, sum, sum, 2, TWILL_F32, TWILL_SUM)));
    TWILL_CHECK(sum[1] == 4);
    _exit(0);
}

/* The memory of the others becomes private when they continue without a rank that lives. Their
 * window, which that rank is not in, would then lose what they put. */
TWILL_TEST_ON(left_behind, processes, TWILL_LAYOUTS("3"), WINDOW_SET, "TWILL_LOG=none")
{
    twill_window *window;
    twill_comm *pair, *smaller;
    unsigned char *slot;
    TWILL_CHECK(twill_test_fine(comm, twill_comm_split(&pair, comm, rank == 2, 0)));
    TWILL_CHECK(open_window(&window, pair, &slot, 8, 1));
    TWILL_CHECK(twill_test_fine(comm, twill_comm_set_timeout(comm, 1)));
    if (rank != 2) {
        TWILL_CHECK(twill_test_fine(comm, twill_comm_shrink(&smaller, comm)));
        TWILL_CHECK(ends(window, twill_signal(window, 1 - rank, 0), TWILL_ERR_PEER, "private"));
        twill_window_destroy(window);
        TWILL_CHECK(twill_test_fine(smaller, twill_window_create(&window, smaller, slot, 8, 1)));
        OK(twill_put(window, "12345678", 8, 1 - rank, 0, 0));
        OK(twill_wait_signal(window, 0, 1, NULL));
        TWILL_CHECK(memcmp(slot, "12345678", 8) == 0);
        twill_window_destroy(window);
    }
    TWILL_CHECK(twill_test_barrier(bootstrap));
    _exit(0);
}
