/* SPDX-License-Identifier: Apache-2.0 */
/* What every transport must do with messages, as bodies that its tests run on each rank. Each
 * returns false once a check has failed (ranks.h). */
#ifndef TWILL_MESSAGES_H
#define TWILL_MESSAGES_H

#include "fabric/transport.h"
#include "tests/support/ranks.h"

#include <string.h>
#include <sys/mman.h>

/* One rank's transport. */
struct twill_test_end {
    struct twill_transport *transport;
    uint32_t rank, size;
    bool to_self;   /* the only peer is this rank itself */
    bool in_chunks; /* chunks of a reduced message may come in any order */
    struct twill_error error;
};

/* Make a world with per_node ranks on each node, without calling other modules. Free with
 * world_free. */
bool twill_test_world(struct twill_world *world, uint32_t size, uint32_t per_node);
void twill_test_world_free(struct twill_world *world);

/* Progress until none of n requests is pending; false on an error or after TWILL_TEST_PATIENCE. */
bool twill_test_await(struct twill_test_end *end, const struct twill_transfer *requests, size_t n);
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
