/* SPDX-License-Identifier: Apache-2.0 */
/* Memory registration, for providers that require it (FI_MR_LOCAL).
 *
 * Memory known to stay (twill_alloc(), twill_register(), the library's own) is registered whole at
 * its first use, until it is freed. Other memory may be unmapped at any time and replaced by
 * something else. So we lock the memory (ofi_locked.c) and check before each use that all of it is
 * still the locked mapping. If the kernel cannot say, or refuses to lock, a registration ends with
 * its request. A lock moves with its memory (mremap(), realloc() of large blocks), so locked memory
 * may have come from elsewhere. As its old place is then no longer locked, each use checks all
 * cached registrations. If one has moved, none is trusted any more. While the process has more
 * memory locked than before, the moved memory may still exist, and nothing is cached.
 *
 * Providers with a cache (verbs, efa, gni) count ours as a user of theirs, which so lives longer.
 */
#include "fabric/ofi/ofi.h"

#include <rdma/fi_errno.h>
#include <stdlib.h>

enum registration_kind {
    ONCE,            /* for one request */
    CACHED,          /* while the memory stays locked in place */
    KEEP_PERSISTENT, /* until twill_ofi_forget() */
    DEAD             /* removed from the list but in use */
};

/* A registered range. It is in the endpoint's list unless its kind is ONCE or DEAD, and freed when
 * it is in no list and has no user. The endpoint's lock protects it. */
struct twill_ofi_registration {
    struct twill_ofi_registration *next;
    struct fid_mr *mr;
    unsigned char *start;
    size_t bytes;
    uint32_t users; /* requests */
    enum registration_kind kind;
};

twill_status twill_ofi_register(struct twill_ofi_endpoint *endpoint, const void *start,
                                size_t bytes, struct fid_mr **mr, struct twill_error *error)
{
    *mr = NULL;
    if (!endpoint->registrations.required || bytes == 0)
        return TWILL_OK;
    uint64_t mode = (uint64_t)endpoint->fi.info->domain_attr->mr_mode;
    uint64_t key = (mode & FI_MR_PROV_KEY) != 0 ? 0 : ++endpoint->registrations.next_key;
    uint64_t access = FI_SEND | FI_RECV;
    if (endpoint->limits.writes != TWILL_OFI_NO_WRITES)
        access |= FI_WRITE;
    int rc = fi_mr_reg(endpoint->fi.domain, start, bytes, access, 0, key, 0, mr, NULL);
    if (rc == 0 && (mode & FI_MR_ENDPOINT) != 0) {
        rc = fi_mr_bind(*mr, &endpoint->fi.ep->fid, 0);
        if (rc == 0)
            rc = fi_mr_enable(*mr);
    }
    if (rc == 0)
        return TWILL_OK;
    twill_ofi_unregister(mr);
    return TWILL_FAIL(
        error, TWILL_ERR_FABRIC, "libfabric %s cannot register %zu bytes: %s (see ulimit -l)",
        endpoint->fi.info->fabric_attr->prov_name, bytes, endpoint->library.explain(abs(rc)));
}

void twill_ofi_unregister(struct fid_mr **mr)
{
    if (*mr != NULL)
        fi_close(&(*mr)->fid);
    *mr = NULL;
}

void *twill_ofi_desc(const struct twill_ofi_registration *memory)
{
    return memory == NULL ? NULL : fi_mr_desc(memory->mr);
}

/* Deregister the memory and free `r`. */
static void end_registration(struct twill_ofi_registration *r)
{
    twill_ofi_unregister(&r->mr);
    free(r);
}

/* Add `more` to the bytes that all transports have locked and subtract `less`, if they are counted.
 * Called before memory is locked and after it is unlocked. */
static void count_pinned(struct twill_ofi_endpoint *endpoint, size_t more, size_t less)
{
    if (endpoint->params.persistent != NULL && endpoint->params.persistent->pinned != NULL)
        __atomic_fetch_add(endpoint->params.persistent->pinned, more - less, __ATOMIC_RELAXED);
}

/* Return the bytes locked by all transports of the context, or by this one if that is unknown. */
static size_t pinned_of(const struct twill_ofi_endpoint *endpoint)
{
    if (endpoint->params.persistent == NULL || endpoint->params.persistent->pinned == NULL)
        return endpoint->registrations.cached_bytes;
    return __atomic_load_n(endpoint->params.persistent->pinned, __ATOMIC_RELAXED);
}

void twill_ofi_monitor(struct twill_ofi_endpoint *endpoint)
{
    size_t locked =
        endpoint->registrations.caches && twill_locked_works() ? twill_locked_bytes() : SIZE_MAX;
    size_t pinned = pinned_of(endpoint);
    endpoint->registrations.monitors = locked != SIZE_MAX;
    endpoint->registrations.locked_before = locked > pinned ? locked - pinned : 0;
}

/* Unlock start .. end-1, except for the pages that other cached registrations also use. */
static void unpin(struct twill_ofi_endpoint *endpoint, unsigned char *start, unsigned char *end)
{
    for (struct twill_ofi_registration *r = endpoint->registrations.list; r != NULL; r = r->next) {
        if (r->kind != CACHED || r->start >= end || start >= r->start + r->bytes)
            continue;
        if (start < r->start)
            unpin(endpoint, start, r->start);
        if (r->start + r->bytes < end)
            unpin(endpoint, r->start + r->bytes, end);
        return;
    }
    twill_locked_drop(start, (size_t)(end - start));
}

/* Remove *at from the list. If it is a cached one, unlock the pages that no other cached one uses.
 * If they were no longer locked at its address, set registrations.suspects, after which is_clear()
 * decides on caching. Returns true if it is freed here, false if its last user frees it. */
static bool unlink_registration(struct twill_ofi_endpoint *endpoint,
                                struct twill_ofi_registration **at)
{
    struct twill_ofi_registration *r = *at;
    *at = r->next;
    if (r->kind == CACHED) {
        endpoint->registrations.cached--;
        endpoint->registrations.cached_bytes -= r->bytes;
        endpoint->registrations.suspects =
            endpoint->registrations.suspects || !twill_locked_still(r->start, r->bytes);
        unpin(endpoint, r->start, r->start + r->bytes);
        count_pinned(endpoint, 0, r->bytes);
    }
    r->kind = DEAD;
    if (r->users > 0)
        return false;
    end_registration(r);
    return true;
}

void twill_ofi_forget(struct twill_ofi_endpoint *endpoint, const void *start, size_t bytes)
{
    struct twill_ofi_registration **at = &endpoint->registrations.list;
    uintptr_t from = (uintptr_t)start;
    while (*at != NULL) {
        uintptr_t own = (uintptr_t)(*at)->start;
        if (start == NULL || (own < from + bytes && from < own + (*at)->bytes))
            (void)unlink_registration(endpoint, at);
        else
            at = &(*at)->next;
    }
}

/* Return the address of the pointer in the list to the least recently used cached registration
 * without user, or NULL if there is none. */
static struct twill_ofi_registration **oldest_cached(struct twill_ofi_endpoint *endpoint)
{
    struct twill_ofi_registration **found = NULL;
    for (struct twill_ofi_registration **at = &endpoint->registrations.list; *at != NULL;
         at = &(*at)->next)
        if ((*at)->kind == CACHED && (*at)->users == 0)
            found = at;
    return found;
}

/* Drop cached registrations until one of `more` bytes fits. Returns false if it cannot. */
static bool evict_cache(struct twill_ofi *t, size_t more)
{
    struct twill_ofi_endpoint *endpoint = t->endpoint;
    uint32_t most = endpoint->options.cached != 0 ? endpoint->options.cached : TWILL_OFI_CACHED;
    while (endpoint->registrations.cached >= most ||
           endpoint->registrations.cached_bytes + more > TWILL_OFI_CACHED_BYTES) {
        struct twill_ofi_registration **at = oldest_cached(endpoint);
        if (at == NULL)
            return false;
        twill_counter_add(&t->base.counters.deregistrations,
                          unlink_registration(endpoint, at) ? 1 : 0);
    }
    return true;
}

/* Return whether all cached memory is still mapped and locked at its addresses. Of the registration
 * `hit` it checks every page, and of each other one only the first. */
static bool all_still(const struct twill_ofi_endpoint *endpoint,
                      const struct twill_ofi_registration *hit)
{
    if (endpoint->registrations.suspects)
        return false;
    for (const struct twill_ofi_registration *r = endpoint->registrations.list; r != NULL;
         r = r->next)
        if (r->kind == CACHED && r != hit && !twill_locked_begins(r->start))
            return false;
    return twill_locked_still(hit->start, hit->bytes);
}

/* Remove all cached registrations from the list. Those without users are freed here and added to
 * the counter of deregistrations. */
static void drop_cached(struct twill_ofi *t)
{
    struct twill_ofi_registration **at = &t->endpoint->registrations.list;
    while (*at != NULL) {
        if ((*at)->kind == CACHED)
            twill_counter_add(&t->base.counters.deregistrations,
                              unlink_registration(t->endpoint, at) ? 1 : 0);
        else
            at = &(*at)->next;
    }
}

/* Return whether memory may be cached, true unless registrations.suspects is set. If set, drop the
 * cache, count what others in the process have locked, and lower locked_before to that. If it was
 * at most locked_before, reset `suspects` and return true. If more, it may be the moved memory, so
 * return false. */
static bool is_clear(struct twill_ofi *t)
{
    struct twill_ofi_endpoint *endpoint = t->endpoint;
    if (!endpoint->registrations.suspects)
        return true;
    drop_cached(t);
    size_t before = pinned_of(endpoint);
    size_t locked = twill_locked_bytes();
    size_t pinned = twill_max(before, pinned_of(endpoint));
    size_t theirs = locked > pinned ? locked - pinned : 0;
    endpoint->registrations.suspects = theirs > endpoint->registrations.locked_before;
    endpoint->registrations.locked_before =
        twill_min(endpoint->registrations.locked_before, theirs);
    return !endpoint->registrations.suspects;
}

/* Return a registration that contains the range, now first in the list, or NULL if there is none.
 * If it is cached and the memory of any cached one has moved, drop all cached ones. Then only a
 * persistent one can be returned. */
static struct twill_ofi_registration *look_up_registration(struct twill_ofi *t,
                                                           const unsigned char *start, size_t bytes)
{
    struct twill_ofi_registration **at = &t->endpoint->registrations.list;
    while (*at != NULL) {
        struct twill_ofi_registration *r = *at;
        size_t skipped = (size_t)(start - r->start);
        if (start < r->start || bytes > r->bytes || skipped > r->bytes - bytes) {
            at = &r->next;
        } else if (r->kind == CACHED && !all_still(t->endpoint, r)) {
            drop_cached(t);
            at = &t->endpoint->registrations.list; /* a persistent one may contain it */
        } else {
            *at = r->next;
            r->next = t->endpoint->registrations.list;
            t->endpoint->registrations.list = r;
            return r;
        }
    }
    return NULL;
}

/* Set *made to a new registration, without user, in the list unless `kind` is ONCE, or fail. */
static twill_status make_registration(struct twill_ofi *t, enum registration_kind kind, void *start,
                                      size_t bytes, struct twill_ofi_registration **made,
                                      struct twill_error *error)
{
    struct twill_ofi_registration *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "ofi: no memory for a registration");
    *r = (struct twill_ofi_registration){.start = start, .bytes = bytes, .kind = kind};
    twill_status status = twill_ofi_register(t->endpoint, start, bytes, &r->mr, error);
    if (status != TWILL_OK) {
        free(r);
        return status;
    }
    twill_counter_add(&t->base.counters.registrations, 1);
    if (kind != ONCE) {
        r->next = t->endpoint->registrations.list;
        t->endpoint->registrations.list = r;
    }
    if (kind == CACHED) {
        t->endpoint->registrations.cached++;
        t->endpoint->registrations.cached_bytes += bytes;
    }
    *made = r;
    return TWILL_OK;
}

/* Return whether this page is in a cached registration, and so locked by this library. */
static bool page_is_pinned(const struct twill_ofi_endpoint *endpoint, const unsigned char *page)
{
    for (const struct twill_ofi_registration *r = endpoint->registrations.list; r != NULL;
         r = r->next)
        if (r->kind == CACHED && page >= r->start && (size_t)(page - r->start) < r->bytes)
            return true;
    return false;
}

/* Set *made to a new registration that contains the range. It is persistent for declared memory,
 * else cached, with its memory locked. Returns false, with nothing locked, if keeping registrations
 * is off, impossible or fails. The caller then registers the range for one request. */
static bool keep_registration(struct twill_ofi *t, const void *start, size_t bytes,
                              struct twill_ofi_registration **made)
{
    const struct twill_persistent *persistent = t->endpoint->params.persistent;
    void *region;
    size_t all;
    if (!t->endpoint->registrations.caches)
        return false;
    if (persistent != NULL && persistent->find(persistent->user, start, bytes, &region, &all))
        return make_registration(t, KEEP_PERSISTENT, region, all, made, NULL) == TWILL_OK;
    if (!t->endpoint->registrations.monitors)
        return false;
    uintptr_t from = (uintptr_t)start & ~(uintptr_t)(TWILL_PINNED_PAGE - 1);
    all = twill_round_up((uintptr_t)start + bytes, TWILL_PINNED_PAGE) - from;
    region = (void *)from;
    if (!evict_cache(t, all) || !is_clear(t))
        return false;
    count_pinned(t->endpoint, all, 0);
    if (twill_locked_take(region, all, page_is_pinned(t->endpoint, region))) {
        if (make_registration(t, CACHED, region, all, made, NULL) == TWILL_OK)
            return true;
        unpin(t->endpoint, region, (unsigned char *)region + all);
    }
    count_pinned(t->endpoint, 0, all);
    return false;
}

twill_status twill_ofi_hold(struct twill_ofi *t, const void *start, size_t bytes,
                            struct twill_ofi_registration **memory, struct twill_error *error)
{
    *memory = NULL;
    if (!t->endpoint->registrations.required || bytes == 0)
        return TWILL_OK;
    *memory = look_up_registration(t, start, bytes);
    if (*memory != NULL)
        twill_counter_add(&t->base.counters.registration_hits, 1);
    else if (!keep_registration(t, start, bytes, memory))
        TWILL_TRY(error,
                  make_registration(t, ONCE, (void *)(uintptr_t)start, bytes, memory, error));
    (*memory)->users++;
    return TWILL_OK;
}

twill_status twill_ofi_hold_buffer(struct twill_ofi *t, struct twill_transfer *request,
                                   struct twill_error *error)
{
    struct twill_ofi_private *private = twill_ofi_private(request);
    if (private->posted > 0 || private->memory != NULL)
        return TWILL_OK;
    return twill_ofi_hold(t, request->buffer, request->bytes, &private->memory, error);
}

void twill_ofi_release(struct twill_ofi *t, struct twill_ofi_registration **memory)
{
    struct twill_ofi_registration *r = *memory;
    *memory = NULL;
    if (r == NULL || --r->users > 0 || r->kind == CACHED || r->kind == KEEP_PERSISTENT)
        return;
    twill_counter_add(&t->base.counters.deregistrations, 1);
    end_registration(r);
}

/* Release the registrations of all requests of a queue. */
static void release_queue(struct twill_ofi *t, const struct twill_transfer_queue *queue)
{
    for (struct twill_transfer *r = queue->head; r != NULL; r = r->next)
        twill_ofi_release(t, &twill_ofi_private(r)->memory);
}

/* Release the registrations of all requests of a channel that have data to move. */
static void release_channel(struct twill_ofi *t, struct twill_ofi_channel *channel)
{
    release_queue(t, &channel->headers_out); /* a WRITE of which a part is posted */
    release_queue(t, &channel->payload_out);
    release_queue(t, &channel->in);
    twill_ofi_release(t, &channel->orphan);
    for (uint32_t i = 0; i < TWILL_OFI_OUT; i++)
        if (channel->chunk_out[i].request != NULL)
            twill_ofi_release(t, &twill_ofi_private(channel->chunk_out[i].request)->memory);
}

void twill_ofi_release_all(struct twill_ofi *t)
{
    for (uint32_t r = 0; r < t->size; r++)
        for (uint32_t l = 0; t->peers[r] != NULL && l < TWILL_OFI_LANES; l++)
            release_channel(t, &t->peers[r]->channels[l]);
}

void twill_ofi_unregister_peers(struct twill_ofi *t)
{
    for (uint32_t r = 0; r < t->size; r++) {
        if (t->peers[r] == NULL)
            continue;
        twill_ofi_unregister(&t->peers[r]->mr);
        twill_ofi_window_close(&t->peers[r]->window);
    }
}
