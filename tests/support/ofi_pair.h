/* SPDX-License-Identifier: Apache-2.0 */
/* Two ends of the ofi transport with a provider that needs registration (forced here), and memory
 * that is unmapped and mapped again. */
#ifndef TWILL_OFI_PAIR_H
#define TWILL_OFI_PAIR_H

#include "fabric/rails/rails.h"
#include "tests/support/ofi_ends.h"
#include "tests/support/unit.h"

#include <sys/mman.h>

#define PAGE  4096u
#define BYTES (1u << 20)

static const struct setup registering = {"registering", "tcp", {.force_registration = true}};

static inline void *map(void *where, size_t bytes)
{
    void *p = mmap(where, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | (where != NULL ? MAP_FIXED : 0), -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* Skip where locked memory cannot be observed: under sanitizers and with old kernels. */
static inline void need_locks(void)
{
    if (twill_locked_works())
        return;
    print_message("  skipped: locked memory cannot be observed here\n");
    skip();
}

struct pair {
    struct end end;
    struct twill_common *common;
    unsigned char *data[2]; /* sent, received */
    uint32_t number;
    struct twill_transfer r[2]; /* outlive a failure */
};

/* There are no persistent regions, but ranks of one process know what the others have pinned. */
static inline bool find_nothing(void *user, const void *start, size_t bytes, void **region,
                                size_t *region_bytes)
{
    return false;
}

/* Return the counters of a rank's end, with those of its rails. */
static inline struct twill_transport_counters counters(const struct pair *pair)
{
    struct twill_transport_counters sum;
    twill_transport_count(pair->end.transport, &sum);
    return sum;
}

/* Open an end. ops: how each of two rails is opened; NULL: without rails. */
static inline bool pair_open_on(struct pair *pair, twill_bootstrap *caller,
                                const struct setup *setup,
                                const struct twill_persistent *persistent,
                                const struct twill_transport_ops *ops)
{
    static const struct test_setting settings[] = {
        {"TWILL_TUNE=registration", "auto"}, {"TWILL_RAILS", "2"}, {NULL, NULL}};
    memset(pair, 0, sizeof(*pair));
    struct end *end = &pair->end;
    end->oob = twill_test_oob(caller);
    end->rank = (uint32_t)caller->rank;
    end->size = (uint32_t)caller->size;
    end->params = (struct twill_transport_params){.oob = end->oob,
                                                  .provider = setup->provider,
                                                  .common = &pair->common,
                                                  .persistent = persistent,
                                                  .setting = test_setting,
                                                  .settings = settings};
    for (unsigned i = 0; i < 2; i++)
        pair->data[i] = map(NULL, BYTES);
    twill_status status =
        ops != NULL ? twill_rails_open(&end->transport, ops, &end->params, &end->error)
                    : twill_ofi_open(&end->transport, &end->params, &setup->options, &end->error);
    return TWILL_NOTE(status == TWILL_OK && pair->data[1] != NULL, "%s", end->error.message) &&
           end->transport->ops->connect(end->transport, 1 - end->rank, &end->error) == TWILL_OK;
}

static inline bool pair_open(struct pair *pair, twill_bootstrap *caller, const struct setup *setup,
                             const struct twill_persistent *persistent)
{
    return pair_open_on(pair, caller, setup, persistent, NULL);
}

static inline void pair_close(struct pair *pair)
{
    end_close(&pair->end);
    if (pair->common != NULL)
        pair->common->close(pair->common);
    for (unsigned i = 0; i < 2; i++)
        munmap(pair->data[i], BYTES);
}

/* Exchange a large message in both directions, from `out` and into `in`, with new contents. */
static inline bool swap_at(struct pair *pair, unsigned char *out, unsigned char *in, size_t bytes)
{
    struct end *end = &pair->end;
    if (twill_test_failed())
        return false;
    struct twill_transfer *r = pair->r;
    uint32_t peer = 1 - end->rank, number = pair->number++;
    fill(out, bytes, end->rank, peer, number);
    memset(in, 0, bytes);
    for (unsigned i = 0; i < 2; i++) {
        r[i] = (struct twill_transfer){.kind = i == 0 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV,
                                       .peer = peer,
                                       .signature = 3,
                                       .buffer = i == 0 ? out : in,
                                       .bytes = bytes};
        if (!post(end, &r[i]))
            return false;
    }
    return wait_done(end, r, 2) && all_ok(r, 2) && filled(in, bytes, peer, end->rank, number);
}

static inline bool swap(struct pair *pair)
{
    return swap_at(pair, pair->data[0], pair->data[1], BYTES);
}

static inline bool counted(struct pair *pair, uint64_t made, uint64_t ended, uint64_t hits,
                           int line)
{
    struct twill_transport_counters c = counters(pair);
    return twill_test_note(
        c.registrations == made && c.deregistrations == ended && c.registration_hits == hits,
        __FILE__, line, "counted()",
        " rank %u: %llu registrations, %llu ended, %llu hits, not %llu %llu %llu", pair->end.rank,
        (unsigned long long)c.registrations, (unsigned long long)c.deregistrations,
        (unsigned long long)c.registration_hits, (unsigned long long)made,
        (unsigned long long)ended, (unsigned long long)hits);
}

/* Find the persistent regions of a test, of which `user` lists two. */
static inline bool find(void *user, const void *start, size_t bytes, void **region,
                        size_t *region_bytes)
{
    unsigned char **persistent = user;
    const unsigned char *p = start;
    for (unsigned i = 0; i < 2; i++) {
        *region = persistent[i];
        *region_bytes = BYTES;
        if (persistent[i] != NULL && p >= persistent[i] && p + bytes <= persistent[i] + BYTES)
            return true;
    }
    return false;
}

#endif
