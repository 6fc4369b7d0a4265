/* SPDX-License-Identifier: Apache-2.0 */
/* Single-copy access: tries the methods between the ranks of a node and agrees on the result. */
#include "fabric/shm/single_copy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first method that works is used, of those that fetch and of those that map. */
static const struct twill_single_copy_method *const methods[] = {&twill_single_copy_cma,
                                                                 &twill_single_copy_xpmem};
enum { METHODS = TWILL_ARRAY_LENGTH(methods) };

/* One rank's access to the others of its node, made by twill_single_copy_offer() or _derive(),
 * freed by twill_single_copy_close(). Used by one thread at a time. */
struct twill_single_copy {
    uint32_t peers; /* number of ranks of the node */
    void *state[METHODS];
    const struct twill_single_copy_method *fetches, *maps; /* method in use, or NULL */
    void *fetcher, *mapper;                                /* their state */
    unsigned char token[TWILL_NONCE_BYTES];                /* read by peers */
    uint64_t *pid;                                         /* [peers] */
    struct negotiation *negotiation;                       /* until it is concluded */
};

/* The result of one rank's probe of each single-copy method, as it is sent to the others. */
struct probe_result {
    uint8_t requested[METHODS]; /* by the setting; not bool, as a rank may send any byte */
    uint8_t open[METHODS];      /* works to all ranks of its node */
    uint32_t denied[METHODS];   /* the rank it failed with; the own rank if not tried or opened */
    int32_t cause[METHODS];     /* errno */
};

/* Data that ranks exchange to find out which methods work, freed when that is concluded. */
struct negotiation {
    struct twill_single_copy_info own_info, *info; /* [ranks] */
    struct probe_result own_result, *result;       /* [ranks] */
};

/* Connect to a peer by a method, and read its token. Returns 0 if it is right, ENXIO if wrong, else
 * an errno. */
static int read_token(struct twill_single_copy *single_copy, unsigned method, uint32_t peer,
                      const struct twill_single_copy_info *info)
{
    unsigned char token[TWILL_NONCE_BYTES] = {0};
    int cause = methods[method]->connect_peer(single_copy->state[method], peer, info);
    if (cause == 0 && methods[method]->fetch != NULL) {
        cause = methods[method]->fetch(single_copy->state[method], peer, token, info->token_at,
                                       sizeof(token));
    } else if (cause == 0) {
        struct twill_region *region;
        void *at;
        cause = methods[method]->attach(single_copy->state[method], peer, info->token_at,
                                        sizeof(token), &region, &at);
        if (cause == 0) {
            memcpy(token, at, sizeof(token));
            twill_region_release(region);
        }
    }
    if (cause == 0 && memcmp(token, info->token, sizeof(token)) != 0)
        cause = ENXIO; /* it is another process */
    return cause;
}

/* Try a method with each other rank of the node, up to the first with which it fails.
 * mine->open[method] then becomes false, denied[method] that rank, and cause[method] the errno.
 * Does nothing if mine->open[method] is false already. */
static void try_method(struct twill_single_copy *single_copy, unsigned method,
                       const struct twill_world *world, uint32_t me,
                       const struct twill_single_copy_info *infos, struct probe_result *mine)
{
    uint32_t first = world->node_first[world->node[me]];
    for (uint32_t i = 0; i < single_copy->peers && mine->open[method]; i++) {
        uint32_t rank = world->member[first + i];
        if (rank == me)
            continue;
        mine->cause[method] = read_token(single_copy, method, world->local[rank], &infos[rank]);
        mine->denied[method] = rank;
        mine->open[method] = mine->cause[method] == 0;
    }
}

/* Close the state of a method, if there is one. */
static void close_method(struct twill_single_copy *single_copy, unsigned method)
{
    if (single_copy->state[method] != NULL)
        methods[method]->close(single_copy->state[method]);
    single_copy->state[method] = NULL;
}

/* Write "NAME: " and why a method is not used. That is "not requested", or the first rank it failed
 * on, with the error. Returns the length of the whole text, as snprintf() does. */
static int describe_closed(const struct probe_result *results, uint32_t size, unsigned method,
                           char *text, size_t bytes)
{
    uint32_t r = 0;
    while (r < size - 1 && results[r].open[method])
        r++;
    const char *cause = strerror(results[r].cause[method]);
    if (!results[r].requested[method])
        return snprintf(text, bytes, "%s: not requested", methods[method]->name);
    if (results[r].denied[method] == r)
        return snprintf(text, bytes, "%s: none (rank %u: %s)", methods[method]->name, r, cause);
    return snprintf(text, bytes, "%s: none (rank %u reads rank %u: %s)", methods[method]->name, r,
                    results[r].denied[method], cause);
}

/* Use the first method that copies and the first that maps of those that worked on all `size`
 * ranks. Others of these stay open. Close those that failed on a rank. Write to how[], of
 * how_bytes, "NAME: yes" for each method that worked on all, or why it did not. */
static void agree_access(struct twill_single_copy *single_copy, const struct probe_result *results,
                         uint32_t size, char *how, size_t how_bytes)
{
    size_t used = 0;
    for (unsigned w = 0; w < METHODS; w++) {
        bool all = true;
        for (uint32_t r = 0; r < size; r++)
            all = all && results[r].open[w];
        if (w > 0 && used < how_bytes)
            used += (size_t)snprintf(how + used, how_bytes - used, ", ");
        char *text = how + twill_min(used, how_bytes);
        size_t space = how_bytes - twill_min(used, how_bytes);
        if (!all) {
            used += (size_t)describe_closed(results, size, w, text, space);
            close_method(single_copy, w);
            continue;
        }
        used += (size_t)snprintf(text, space, "%s: yes", methods[w]->name);
        if (methods[w]->fetch != NULL && single_copy->fetches == NULL) {
            single_copy->fetches = methods[w];
            single_copy->fetcher = single_copy->state[w];
        } else if (methods[w]->attach != NULL && single_copy->maps == NULL) {
            single_copy->maps = methods[w];
            single_copy->mapper = single_copy->state[w];
        }
    }
}

/* Open the requested methods. Fills in *mine for peers, and in the result which are open. */
static void open_methods(struct twill_single_copy *single_copy, uint32_t me,
                         enum twill_single_copy_kind setting, struct twill_single_copy_info *mine,
                         struct probe_result *probe_result)
{
    for (unsigned w = 0; w < METHODS; w++) {
        probe_result->requested[w] =
            setting == TWILL_SINGLE_COPY_AUTO || setting == methods[w]->setting;
        probe_result->denied[w] = me;
        if (!probe_result->requested[w])
            continue;
        probe_result->cause[w] = methods[w]->open(&single_copy->state[w], single_copy->peers, mine);
        probe_result->open[w] = probe_result->cause[w] == 0;
        if (!probe_result->open[w])
            close_method(single_copy, w);
    }
}

/* Free a negotiation, which may be NULL. */
static void negotiation_destroy(struct negotiation *negotiation)
{
    if (negotiation != NULL) {
        free(negotiation->info);
        free(negotiation->result);
    }
    free(negotiation);
}

/* Return an empty negotiation, or NULL if out of memory. */
static struct negotiation *negotiation_create(size_t ranks)
{
    struct negotiation *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return NULL;
    made->info = calloc(ranks, sizeof(*made->info));
    made->result = calloc(ranks, sizeof(*made->result));
    if (made->info != NULL && made->result != NULL)
        return made;
    negotiation_destroy(made);
    return NULL;
}

/* Return a new object without methods, or NULL if out of memory. */
static struct twill_single_copy *single_copy_new(uint32_t peers)
{
    struct twill_single_copy *single_copy = calloc(1, sizeof(*single_copy));
    if (single_copy == NULL)
        return NULL;
    single_copy->peers = peers;
    single_copy->pid = calloc(peers, sizeof(*single_copy->pid));
    if (single_copy->pid != NULL)
        return single_copy;
    free(single_copy);
    return NULL;
}

bool twill_single_copy_applies(const struct twill_world *world, enum twill_single_copy_kind setting,
                               char *how, size_t how_bytes)
{
    bool alone = twill_world_widest(world) < 2;
    snprintf(how, how_bytes, "%s", alone ? "no rank shares a node" : "none (TWILL_TUNE=reach)");
    return !alone && setting != TWILL_SINGLE_COPY_NONE;
}

twill_status twill_single_copy_offer(struct twill_single_copy **single_copy, uint32_t me,
                                     const struct twill_world *world,
                                     enum twill_single_copy_kind setting,
                                     struct twill_oob_batch *batch, struct twill_error *error)
{
    struct twill_single_copy *made = single_copy_new(world->node_size[world->node[me]]);
    struct negotiation *negotiation = made != NULL ? negotiation_create(world->size) : NULL;
    struct twill_single_copy_info *own = negotiation != NULL ? &negotiation->own_info : NULL;
    twill_oob_batch_add(batch, own, own != NULL ? negotiation->info : NULL, sizeof(*own));
    *single_copy = made;
    if (own == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "no memory for the peer info of %u ranks",
                          world->size);
    made->negotiation = negotiation;
    TWILL_TRY(error, twill_bootstrap_random(made->token, error));
    own->token_at = (uint64_t)(uintptr_t)made->token;
    memcpy(own->token, made->token, sizeof(own->token));
    open_methods(made, me, setting, own, &negotiation->own_result);
    return TWILL_OK;
}

void twill_single_copy_probe(struct twill_single_copy *single_copy, uint32_t me,
                             const struct twill_world *world, struct twill_oob_batch *batch)
{
    struct negotiation *negotiation = single_copy->negotiation;
    for (unsigned w = 0; w < METHODS; w++)
        try_method(single_copy, w, world, me, negotiation->info, &negotiation->own_result);
    twill_oob_batch_add(batch, &negotiation->own_result, negotiation->result,
                        sizeof(negotiation->own_result));
}

void twill_single_copy_conclude(struct twill_single_copy **single_copy, uint32_t me,
                                const struct twill_world *world, char *how, size_t how_bytes)
{
    struct twill_single_copy *of = *single_copy;
    agree_access(of, of->negotiation->result, world->size, how, how_bytes);
    for (uint32_t r = 0; r < world->size; r++)
        if (world->node[r] == world->node[me])
            of->pid[world->local[r]] = of->negotiation->info[r].pid;
    negotiation_destroy(of->negotiation);
    of->negotiation = NULL;
    if (of->fetches != NULL || of->maps != NULL)
        return;
    twill_single_copy_close(of);
    *single_copy = NULL;
}

bool twill_single_copy_is_known(const struct twill_single_copy *of)
{
    /* By cma alone, which reads a process by its pid in any subset of the ranks. */
    return of != NULL && of->fetches == &twill_single_copy_cma && of->maps == NULL;
}

twill_status twill_single_copy_derive(struct twill_single_copy **single_copy,
                                      const struct twill_single_copy *of,
                                      const struct twill_world *of_world, const uint32_t *ranks,
                                      const struct twill_world *world, uint32_t me,
                                      struct twill_error *error)
{
    struct twill_single_copy_info own;
    *single_copy = NULL;
    if (twill_world_widest(world) < 2)
        return TWILL_OK;
    struct twill_single_copy *made = single_copy_new(world->node_size[world->node[me]]);
    unsigned cma = 0;
    while (methods[cma] != &twill_single_copy_cma)
        cma++;
    int cause = ENOMEM;
    if (made != NULL)
        cause = methods[cma]->open(&made->state[cma], made->peers, &own);
    for (uint32_t r = 0; cause == 0 && r < world->size; r++) {
        if (world->node[r] != world->node[me])
            continue;
        struct twill_single_copy_info theirs = {.pid = of->pid[of_world->local[ranks[r]]]};
        made->pid[world->local[r]] = theirs.pid;
        cause = methods[cma]->connect_peer(made->state[cma], world->local[r], &theirs);
    }
    if (cause != 0) {
        twill_single_copy_close(made);
        return TWILL_FAIL(error, cause == ENOMEM ? TWILL_ERR_MEMORY : TWILL_ERR_SYSTEM,
                          "reading the memory of other ranks (%s): %s", methods[cma]->name,
                          strerror(cause));
    }
    made->fetches = methods[cma];
    made->fetcher = made->state[cma];
    *single_copy = made;
    return TWILL_OK;
}

void twill_single_copy_close(struct twill_single_copy *single_copy)
{
    if (single_copy == NULL)
        return;
    for (unsigned w = 0; w < METHODS; w++)
        close_method(single_copy, w);
    negotiation_destroy(single_copy->negotiation);
    free(single_copy->pid);
    free(single_copy);
}

bool twill_single_copy_fetches(const struct twill_single_copy *single_copy)
{
    return single_copy != NULL && single_copy->fetches != NULL;
}

bool twill_single_copy_maps(const struct twill_single_copy *single_copy)
{
    return single_copy != NULL && single_copy->maps != NULL;
}

int twill_single_copy_fetch(struct twill_single_copy *single_copy, uint32_t peer, void *to,
                            uint64_t from, size_t bytes)
{
    return single_copy->fetches->fetch(single_copy->fetcher, peer, to, from, bytes);
}

int twill_single_copy_attach(struct twill_single_copy *single_copy, uint32_t peer, uint64_t from,
                             size_t bytes, struct twill_region **region, void **at)
{
    return single_copy->maps->attach(single_copy->mapper, peer, from, bytes, region, at);
}
