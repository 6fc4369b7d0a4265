/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which ranks serve and work, how tensors are cut, and which shard has which chunk. All of
 * it is equal on all ranks, because it depends only on values that they have compared. */
#include "lib/base/balance.h"
#include "lib/server/layout/layout.h"

#include <stdlib.h>
#include <string.h>

/* Return how many ranks serve in this layout. */
static uint32_t servers_of_layout(const struct twill_server *server)
{
    switch (server->options.layout) {
    case TWILL_SERVER_CS:
        return server->size;
    case TWILL_SERVER_NCS:
        return (uint32_t)server->options.servers;
    default:
        return 1;
    }
}

/* Give servers and workers their numbers, and list their ranks, in server->roles. serves[r] says
 * whether rank r serves. In the layouts CS and CC all ranks work, and in the other layouts those
 * that do not serve. */
static void number_ranks(struct twill_server *server, const bool *serves)
{
    bool both = server->options.layout <= TWILL_SERVER_CC;
    uint32_t servers = 0, workers = 0;
    server->roles.server = server->roles.worker = UINT32_MAX;
    for (uint32_t r = 0; r < server->size; r++) {
        if (serves[r]) {
            if (r == server->rank)
                server->roles.server = servers;
            server->roles.server_rank[servers++] = r;
        }
        if (!serves[r] || both) {
            if (r == server->rank)
                server->roles.worker = workers;
            server->roles.worker_rank[workers++] = r;
        }
    }
    server->roles.servers = servers;
    server->roles.workers = workers;
}

twill_status twill_server_cast(struct twill_server *server)
{
    const twill_server_options *o = &server->options;
    uint32_t n = servers_of_layout(server);
    bool separate = o->layout == TWILL_SERVER_NC || o->layout == TWILL_SERVER_NCS;
    if (n < 1 || n + separate > server->size)
        return TWILL_FAIL(&server->failure.error, TWILL_ERR_ARGUMENT,
                          "options.servers %d leaves no worker in a communicator of size %u",
                          o->servers, server->size);
    /* If all ranks serve, a survivor may be alone until others join it. */
    if (o->replicas > (int)n && o->layout != TWILL_SERVER_CS)
        return TWILL_FAIL(&server->failure.error, TWILL_ERR_ARGUMENT,
                          "options.replicas %d: two servers are needed", o->replicas);
    struct twill_error *error = &server->failure.error;
    bool *serves;
    TWILL_NEW(error, server->roles.server_rank, server->size, "ranks");
    TWILL_NEW(error, server->roles.worker_rank, server->size, "ranks");
    TWILL_NEW(error, server->roles.suspect, server->size, "ranks");
    TWILL_NEW(error, serves, server->size, "ranks");
    twill_status status = TWILL_OK;
    for (uint32_t s = 0; s < n && status == TWILL_OK; s++) {
        int rank = o->ranks != NULL ? o->ranks[s] : (int)s;
        if (rank < 0 || rank >= (int)server->size || serves[rank])
            status = TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                                "options.ranks[%u] is %d: not a rank, or listed twice", s, rank);
        else
            serves[rank] = true;
    }
    if (status == TWILL_OK)
        number_ranks(server, serves);
    free(serves);
    server->roles.threads = (uint32_t)twill_max((size_t)o->threads, 1);
    server->roles.shards = server->roles.servers * server->roles.threads;
    return status;
}

bool twill_server_is_chunk_size(size_t bytes)
{
    return bytes == TWILL_SERVER_WHOLE_TENSORS ||
           (bytes > 0 && bytes % TWILL_SERVER_CHUNK_STEP == 0 && bytes <= TWILL_SERVER_CHUNK_MOST);
}

/* Return the bytes that `count` elements of a gradient take when pushed. */
static size_t wire_bytes(const struct twill_server *server, const struct twill_server_key *key,
                         size_t count)
{
    const struct twill_coder *coder = &server->coder;
    if (!key->coded)
        return count * twill_type_size(key->type);
    return (coder->kind == TWILL_CODING_SPARSE ? TWILL_LIST_HEAD : 0) +
           twill_coder_units(coder, count) * twill_coder_unit_bytes(coder);
}

/* Return the elements of a tensor's chunks, of which the last may have fewer. */
static size_t chunk_elements(const struct twill_server *server, const struct twill_server_key *key)
{
    size_t bytes = server->cut.chunk_bytes;
    return bytes == TWILL_SERVER_WHOLE_TENSORS ? key->count : bytes / twill_type_size(key->type);
}

/* Fill cut.place with the chunks of all tensors, without their shards. Also set each key's
 * first_chunk, chunks and wire_bytes. Fails if they are too many or memory is short. */
static twill_status cut_tensors(struct twill_server *server)
{
    size_t places = 0;
    for (uint32_t k = 0; k < server->keys; k++) {
        size_t most = chunk_elements(server, &server->key[k]);
        places += (server->key[k].count + most - 1) / most;
    }
    if (places > UINT32_MAX / 4)
        return TWILL_FAIL(&server->failure.error, TWILL_ERR_ARGUMENT,
                          "%zu chunks: options.chunk_bytes is too small", places);
    TWILL_NEW(&server->failure.error, server->cut.place, places, "chunks");
    for (uint32_t k = 0; k < server->keys; k++) {
        struct twill_server_key *key = &server->key[k];
        size_t most = chunk_elements(server, key);
        key->first_chunk = server->cut.places;
        key->chunks = 0;
        key->wire_bytes = 0;
        for (size_t first = 0; first < key->count; first += most) {
            size_t count = twill_min(most, key->count - first);
            struct twill_chunk_place *place = &server->cut.place[server->cut.places++];
            *place = (struct twill_chunk_place){
                k, 0, first, count, key->wire_bytes, wire_bytes(server, key, count)};
            key->wire_bytes += place->wire_bytes;
            key->chunks++;
        }
    }
    return TWILL_OK;
}

/* Set each chunk's shard so that the shards' bytes are balanced, and cut.most_bytes and
 * least_bytes. Fails only if out of memory. */
static twill_status divide_chunks(struct twill_server *server)
{
    struct twill_load *load;
    uint64_t *total;
    TWILL_NEW(&server->failure.error, load, server->cut.places, "chunks");
    twill_status status =
        twill_new(&server->failure.error, &total, server->roles.shards, sizeof(*total), "shards");
    if (status != TWILL_OK) {
        free(load);
        return status;
    }
    for (uint32_t i = 0; i < server->cut.places; i++)
        load[i] =
            (struct twill_load){server->cut.place[i].count *
                                    twill_type_size(server->key[server->cut.place[i].key].type),
                                i, 0};
    twill_balance(load, server->cut.places, total, server->roles.shards);
    for (uint32_t i = 0; i < server->cut.places; i++)
        server->cut.place[load[i].item].shard = load[i].bin;
    server->cut.least_bytes = UINT64_MAX;
    for (uint32_t c = 0; c < server->roles.shards; c++) {
        server->cut.most_bytes = twill_max(server->cut.most_bytes, total[c]);
        server->cut.least_bytes = twill_min(server->cut.least_bytes, total[c]);
    }
    free(load);
    free(total);
    return TWILL_OK;
}

void twill_server_unplace(struct twill_server *server)
{
    free(server->cut.place);
    server->cut.place = NULL;
    server->cut.places = 0;
    server->cut.most_bytes = server->cut.least_bytes = 0;
}

twill_status twill_server_place(struct twill_server *server)
{
    twill_status status = cut_tensors(server);
    if (status == TWILL_OK)
        status = divide_chunks(server);
    if (status != TWILL_OK)
        twill_server_unplace(server);
    return status;
}
