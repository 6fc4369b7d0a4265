/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks with a transport each, and what every transport must do with messages, as bodies that its
 * tests run on each rank. Each returns false once a check has failed (ranks.h). */
#ifndef TWILL_MESSAGES_H
#define TWILL_MESSAGES_H

#include "fabric/transport.h"
#include "tests/support/ranks.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* One rank's transport, with what it was opened with. */
struct twill_test_end {
    struct twill_transport *transport;
    struct twill_transport_params params;
    struct twill_oob *oob;
    struct twill_common *common; /* closed with the end, if params.common has led to one */
    uint32_t rank, size;
    uint32_t peer;  /* the other one of two ranks */
    bool to_self;   /* the only peer is this rank itself */
    bool in_chunks; /* chunks of a reduced message may come in any order */
    struct twill_error error;
};

/* Create a world with per_node ranks on each node. */
bool twill_test_world(struct twill_world *world, uint32_t size, uint32_t per_node);

/* Fill in a rank's end with its exchange; it has no transport yet. Close it in any case. */
bool end_begin(struct twill_test_end *end, twill_bootstrap *caller);
/* Check the status with which its transport was opened, and connect it to all other ranks. */
bool end_opened(struct twill_test_end *end, twill_status status);
/* Open another communicator with the parameters of the first. Close it with end_close_more(). */
bool end_more(struct twill_test_end *end, const struct twill_test_end *first, uint32_t comm);
void end_close_more(struct twill_test_end *end);
void end_close(struct twill_test_end *end);
/* Wait for all ranks. */
bool end_barrier(struct twill_test_end *end);

/* Make progress, or rest for a moment. Returns what progress() returned. */
int end_progress(struct twill_test_end *end);
/* The same; an error is noted. */
bool end_works(struct twill_test_end *end);
/* Make progress for so long, or until an error. Returns the last status. */
int end_linger(struct twill_test_end *end, uint64_t nanoseconds);
/* Make progress until it fails, for TWILL_TEST_PATIENCE at most. Returns the last status. */
int end_until_failure(struct twill_test_end *end);
/* Return a request with a signature of 7. */
struct twill_transfer end_transfer(enum twill_transfer_kind kind, uint32_t peer, uint32_t lane,
                                   void *data, size_t bytes);
/* Return the request of a message from rank 0 to rank 1, on either of them. */
struct twill_transfer end_one_way(const struct twill_test_end *end, uint32_t lane, void *data,
                                  size_t bytes);
bool end_post(struct twill_test_end *end, struct twill_transfer *request);
/* Progress until none of n requests is pending; false on an error or after TWILL_TEST_PATIENCE. */
bool end_await(struct twill_test_end *end, const struct twill_transfer *requests, size_t n);
/* Post a request and wait until it has ended. */
bool end_complete(struct twill_test_end *end, struct twill_transfer *request);

/* Ranks with an end each: open() gives it a transport, body() uses it, and it is closed when all
 * ranks are there. */
struct end_test {
    int ranks;
    bool processes; /* else threads */
    bool (*open)(struct twill_test_end *end, const void *how);
    const void *how;
    void (*body)(struct twill_test_end *end, void *user);
    void *user;
};
void end_test_run(struct end_test test);
/* Define such a test; the body follows. */
#define END_TEST(name, ranks, processes, open, how)                                                \
    static void body_of_##name(struct twill_test_end *end, void *user);                            \
    TWILL_TEST(name)                                                                               \
    {                                                                                              \
        end_test_run((struct end_test){ranks, processes, open, how, body_of_##name, NULL});        \
    }                                                                                              \
    static void body_of_##name(struct twill_test_end *end, void *user)

/* Set data to a text that differs by seed; return whether data is such a text from `offset` on. */
void text_fill(unsigned char *data, size_t bytes, unsigned seed);
bool text_is(const unsigned char *data, size_t offset, size_t bytes, unsigned seed);

/* A message with its buffers, as both ends know it. */
struct letter {
    struct twill_transfer request;
    uint32_t from, to, number;
    size_t seen; /* bytes reduced */
    bool wrong, in_chunks;
    unsigned char *buffer, *bounce;
};
/* Prepare a letter to or from a peer for posting; its memory is reused. */
void letter_write(struct letter *letter, const struct twill_test_end *end,
                  enum twill_transfer_kind kind, uint32_t peer, uint32_t lane, uint32_t number,
                  size_t bytes, bool reduces);
/* Check that it arrived as it was written, and nothing was written beyond it. */
bool letter_read(const struct twill_test_end *end, struct letter *letter);
/* Post, await and check letters. */
bool letters_run(struct twill_test_end *end, struct letter *letters, size_t n);
/* Free letters; after a failure they are first cancelled. */
void letters_free(const struct twill_test_end *end, struct letter *letters, size_t n);

/* Send from every rank to every other one: each size, stored and reduced, posted before and
 * after. */
bool twill_test_sweep(struct twill_test_end *end, const size_t *sizes, size_t n);
/* Exchange on all lanes with all peers in both directions, several messages at a time, of random
 * sizes up to max_bytes. */
bool twill_test_flood(struct twill_test_end *end, uint32_t messages, size_t max_bytes);
/* Rank 0 sends to rank 1 messages of wrong size or signature, then a right one. */
bool twill_test_mismatch(struct twill_test_end *end);
/* Rank 0 sends to rank 1 messages that it sees before it posts a RECV, with the calls that they are
 * of. For transports with ops->early. */
bool twill_test_early(struct twill_test_end *end);

/* Variables of transports, without a context: .setting = test_setting, .settings = a list that ends
 * with a variable of NULL. */
struct test_setting {
    const char *variable, *value;
};

static inline const char *test_setting(const void *settings, const char *variable)
{
    for (const struct test_setting *s = settings; s->variable != NULL; s++)
        if (strcmp(s->variable, variable) == 0)
            return s->value;
    return NULL;
}

/* Return memory that becomes invalid when unmapped, so that a late write crashes. */
static inline unsigned char *page_map(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

#endif
