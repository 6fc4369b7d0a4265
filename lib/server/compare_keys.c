/* SPDX-License-Identifier: Apache-2.0 */
/* Comparison of options and tensors over the ranks: the least and the greatest hash of each are
 * equal if all are. */
#include "lib/server/server.h"

#include <stdlib.h>
#include <string.h>

static uint64_t hash_double(uint64_t hash, double value)
{
    uint64_t word;
    memcpy(&word, &value, sizeof(word));
    return twill_hash_mix(hash, word);
}

static uint64_t hash_optimizer(uint64_t hash, const twill_optimizer *o)
{
    hash = twill_hash_mix(hash, (uint64_t)o->rule << 1 | (o->nesterov != 0));
    const double numbers[] = {o->rate,       o->weight_decay, o->momentum, o->dampening,
                              o->rate_decay, o->beta1,        o->beta2,    o->epsilon};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(numbers); i++)
        hash = hash_double(hash, numbers[i]);
    return hash;
}

static uint64_t hash_server_options(const struct twill_server *server)
{
    const twill_server_options *o = &server->options;
    const uint64_t numbers[] = {
        (uint64_t)o->layout,      (uint64_t)o->mode,     (uint64_t)o->k,
        (uint64_t)o->op,          (uint64_t)o->rate,     o->chunk_bytes,
        (uint64_t)o->threads,     (uint64_t)o->replicas, (uint64_t)o->credits,
        (uint64_t)o->compression, server->has_optimizer, o->error_feedback != 0};
    uint64_t hash = server->has_optimizer ? hash_optimizer(1, &server->declared) : 1;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(numbers); i++)
        hash = twill_hash_mix(hash, numbers[i]);
    for (uint32_t s = 0; s < server->servers; s++)
        hash = twill_hash_mix(hash, server->server_rank[s]);
    const double magnitudes[] = {o->distance_c, o->distance_most, o->compression_ratio,
                                 o->compression_threshold};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(magnitudes); i++)
        hash = hash_double(hash, magnitudes[i]);
    return hash;
}

static uint64_t hash_key(const struct twill_server_key *key)
{
    uint64_t hash = twill_hash_mix(twill_hash_mix(7, key->count), (uint64_t)key->type);
    for (const char *c = key->name; *c != '\0'; c++)
        hash = twill_hash_mix(hash, (unsigned char)*c);
    return twill_hash_mix(hash, key->code.used);
}

/* Explain a difference on all ranks: each describes what it has itself. */
static twill_status explain_key(struct twill_server *server, uint64_t key)
{
    const struct twill_server_key *own = &server->key[key];
    return TWILL_SERVER_FAIL(
        server, TWILL_ERR_MISMATCH,
        "rank %u: tensor %llu is not the same on all ranks: here it is '%.80s', "
        "%zu %s",
        server->rank, (unsigned long long)key, own->name, own->count, twill_type_name(own->type));
}

twill_status twill_server_compare(struct twill_server *server)
{
    uint64_t mine[4] = {hash_server_options(server), 0, server->keys, ~(uint64_t)server->keys};
    uint64_t least[4];
    mine[1] = ~mine[0];
    twill_status status = twill_allreduce(server->parent, mine, least, 4, TWILL_U64, TWILL_MIN);
    if (status != TWILL_OK)
        return TWILL_SERVER_FAIL(server, status, "%s", twill_comm_message(server->parent));
    if (least[0] != ~least[1])
        return TWILL_SERVER_FAIL(server, TWILL_ERR_MISMATCH,
                                 "rank %u: options are not the same on all ranks", server->rank);
    if (least[2] != ~least[3])
        return TWILL_SERVER_FAIL(server, TWILL_ERR_MISMATCH,
                                 "rank %u has %u tensors, not as many as other ranks", server->rank,
                                 server->keys);
    size_t n = server->keys;
    uint64_t *hash = calloc(2 * n + 1, sizeof(*hash));
    if (hash == NULL)
        return TWILL_SERVER_FAIL(server, TWILL_ERR_MEMORY, "out of memory to compare %zu tensors",
                                 n);
    for (size_t k = 0; k < n; k++)
        hash[n + k] = ~(hash[k] = hash_key(&server->key[k]));
    status = twill_allreduce(server->parent, hash, hash, 2 * n, TWILL_U64, TWILL_MIN);
    size_t differs = 0;
    while (differs < n && hash[differs] == ~hash[n + differs])
        differs++;
    free(hash);
    if (status != TWILL_OK)
        return TWILL_SERVER_FAIL(server, status, "%s", twill_comm_message(server->parent));
    return differs < n ? explain_key(server, differs) : TWILL_OK;
}
