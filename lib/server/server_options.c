/* SPDX-License-Identifier: Apache-2.0 */
/* Defaults and checks of options. Comparison of options and tensors over the ranks, by hashes. */
#include "kernels/training/optimizer.h"
#include "lib/base/plural.h"
#include "lib/server/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CREDITS_MOST    1024
#define DISTANCES_BELOW 1e30

void twill_server_defaults(twill_server_options *options)
{
    if (options != NULL)
        *options = (twill_server_options){.bytes = sizeof(*options),
                                          .servers = 1,
                                          .k = 1,
                                          .op = TWILL_AVG,
                                          .distance_c = 1,
                                          .distance_most = 1,
                                          .replicas = 1,
                                          .credits = 8,
                                          .error_feedback = 1,
                                          .compression_ratio = 0.01};
}

/* Return TWILL_OK if servers can apply the optimizer, if any, or else set *error. */
static twill_status check_optimizer(const twill_server_options *o, struct twill_error *error)
{
    if (o->optimizer == NULL)
        return TWILL_OK;
    TWILL_TRY(error, twill_optimizer_check(o->optimizer, error));
    if (o->optimizer->clip_norm > 0)
        return TWILL_FAIL(error, TWILL_ERR_UNSUPPORTED,
                          "options.optimizer: clip_norm needs the norm of all gradients, which are "
                          "divided among servers");
    if (twill_optimizer_takes_norms(o->optimizer->rule))
        return TWILL_FAIL(error, TWILL_ERR_UNSUPPORTED,
                          "options.optimizer: %s needs norms of whole tensors, which are divided "
                          "among servers",
                          twill_optimizer_name(o->optimizer->rule));
    return TWILL_OK;
}

/* Return TWILL_OK if options.rate, distance_c and distance_most are valid, which adapt the learning
 * rate to each gradient. Otherwise return TWILL_ERR_ARGUMENT and set *error. */
static twill_status check_rate(const twill_server_options *o, struct twill_error *error)
{
    if ((unsigned)o->rate > TWILL_SERVER_RATE_DISTANCE)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "options.rate %d is not a twill_server_rate",
                          (int)o->rate);
    if (!(o->distance_c > 0 && o->distance_c < DISTANCES_BELOW && o->distance_most > 0 &&
          o->distance_most < DISTANCES_BELOW))
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "options: distance_c %g and distance_most %g are not above 0",
                          o->distance_c, o->distance_most);
    if (o->rate == TWILL_SERVER_RATE_DISTANCE && o->mode != TWILL_SERVER_ASYNC &&
        o->mode != TWILL_SERVER_BOUNDED)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "options.rate by distance needs a mode with an update for each gradient");
    return TWILL_OK;
}

/* Return TWILL_OK if the options are valid alone and together, or else set *error. */
static twill_status check_server_options(const twill_server_options *o, struct twill_error *error)
{
    if ((unsigned)o->layout > TWILL_SERVER_NCS)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "options.layout %d is not a twill_server_layout", (int)o->layout);
    if ((unsigned)o->mode > TWILL_SERVER_BOUNDED)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "options.mode %d is not a twill_server_mode",
                          (int)o->mode);
    if (o->k < (o->mode == TWILL_SERVER_BOUNDED ? 0 : 1))
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "options.k %d is too small", o->k);
    if (o->op != TWILL_AVG && o->op != TWILL_SUM)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "options.op %d is neither sum nor avg",
                          (int)o->op);
    if (o->chunk_bytes != 0 && !twill_server_is_chunk_size(o->chunk_bytes))
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "options.chunk_bytes %zu is not a multiple of %u up to %zu",
                          o->chunk_bytes, TWILL_SERVER_CHUNK_STEP, TWILL_SERVER_CHUNK_MOST);
    if (o->threads < 0 || o->threads > (int)TWILL_SERVER_SHARDS_MOST)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "options.threads %d is outside 0 .. %u",
                          o->threads, TWILL_SERVER_SHARDS_MOST);
    if (o->replicas != 1 && o->replicas != 2)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "options.replicas %d is neither 1 nor 2",
                          o->replicas);
    if (o->credits < 1 || o->credits > CREDITS_MOST)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "options.credits %d is outside 1 .. %d",
                          o->credits, CREDITS_MOST);
    TWILL_TRY(error, check_rate(o, error));
    TWILL_TRY(error, check_optimizer(o, error));
    return twill_compression_check(o->compression, o->compression_ratio, o->compression_threshold,
                                   error);
}

twill_status twill_server_set_options(struct twill_server *server,
                                      const twill_server_options *options,
                                      struct twill_error *error)
{
    twill_server_defaults(&server->options);
    if (options != NULL) {
        TWILL_TRY(error, twill_options_check_bytes(options->bytes, sizeof(*options),
                                                   "twill_server_defaults", error));
        server->options = *options;
    }
    TWILL_TRY(error, check_server_options(&server->options, error));
    const twill_server_options *o = &server->options;
    if (o->compression != TWILL_COMPRESS_NONE)
        server->coder =
            twill_coder_of(server->process.kernels, o->compression, o->compression_ratio,
                           o->compression_threshold, o->error_feedback != 0);
    server->cut.chunk_bytes = server->options.chunk_bytes;
    server->cut.chunk_choice = "as given";
    if (server->options.optimizer != NULL) {
        server->rule.optimizer = server->rule.declared = *server->options.optimizer;
        server->options.optimizer = &server->rule.declared;
        server->rule.has_optimizer = true;
        server->rule.states = twill_optimizer_states(&server->rule.optimizer);
    }
    return TWILL_OK;
}

/* An option's name and value, in a list on the stack of the comparison. */
struct compared_option {
    const char *name;
    bool is_number; /* a double, otherwise an integer */
    double number;
    uint64_t integer;
};

enum { OPTIONS_MOST = 32 };

/* Return an option's value as 64 bits. */
static uint64_t option_word(const struct compared_option *option)
{
    uint64_t word = option->integer;
    if (option->is_number)
        memcpy(&word, &option->number, sizeof(word));
    return word;
}

/* Return a hash of the number of servers and of their ranks. */
static uint64_t hash_servers(const struct twill_server *server)
{
    uint64_t hash = server->roles.servers;
    for (uint32_t s = 0; s < server->roles.servers; s++)
        hash = twill_hash_mix(hash, server->roles.server_rank[s]);
    return hash;
}

/* Fill list[OPTIONS_MOST] with the options and this rank's values. Returns how many there are. */
static size_t list_options(const struct twill_server *server, struct compared_option *list)
{
    const twill_server_options *o = &server->options;
    const twill_optimizer none = {0},
                          *rule = server->rule.has_optimizer ? &server->rule.declared : &none;
    const struct compared_option all[] = {
        {.name = "layout", .integer = (uint64_t)o->layout},
        {.name = "servers or ranks (a hash)", .integer = hash_servers(server)},
        {.name = "mode", .integer = (uint64_t)o->mode},
        {.name = "k", .integer = (uint64_t)o->k},
        {.name = "op", .integer = (uint64_t)o->op},
        {.name = "rate", .integer = (uint64_t)o->rate},
        {.name = "chunk_bytes", .integer = o->chunk_bytes},
        {.name = "threads", .integer = (uint64_t)o->threads},
        {.name = "replicas", .integer = (uint64_t)o->replicas},
        {.name = "credits", .integer = (uint64_t)o->credits},
        {.name = "compression", .integer = (uint64_t)o->compression},
        {.name = "error_feedback", .integer = o->error_feedback != 0},
        {.name = "distance_c", .is_number = true, .number = o->distance_c},
        {.name = "distance_most", .is_number = true, .number = o->distance_most},
        {.name = "compression_ratio", .is_number = true, .number = o->compression_ratio},
        {.name = "compression_threshold", .is_number = true, .number = o->compression_threshold},
        {.name = "optimizer (whether there is one)", .integer = server->rule.has_optimizer},
        {.name = "optimizer->rule", .integer = (uint64_t)rule->rule},
        {.name = "optimizer->nesterov", .integer = rule->nesterov != 0},
        {.name = "optimizer->rate", .is_number = true, .number = rule->rate},
        {.name = "optimizer->weight_decay", .is_number = true, .number = rule->weight_decay},
        {.name = "optimizer->momentum", .is_number = true, .number = rule->momentum},
        {.name = "optimizer->dampening", .is_number = true, .number = rule->dampening},
        {.name = "optimizer->rate_decay", .is_number = true, .number = rule->rate_decay},
        {.name = "optimizer->beta1", .is_number = true, .number = rule->beta1},
        {.name = "optimizer->beta2", .is_number = true, .number = rule->beta2},
        {.name = "optimizer->epsilon", .is_number = true, .number = rule->epsilon}};
    _Static_assert(TWILL_ARRAY_LENGTH(all) <= OPTIONS_MOST, "OPTIONS_MOST is too small");
    memcpy(list, all, sizeof(all));
    return TWILL_ARRAY_LENGTH(all);
}

/* Return a hash of what must be equal on all ranks of a tensor. */
static uint64_t hash_key(const struct twill_server_key *key)
{
    uint64_t hash = twill_hash_mix(twill_hash_mix(7, key->count), (uint64_t)key->type);
    return twill_hash_mix(twill_hash_text(hash, key->name), key->coded);
}

/* Break the server, as tensor `key` differs between ranks. Returns TWILL_ERR_MISMATCH. */
static twill_status explain_key(struct twill_server *server, uint64_t key)
{
    const struct twill_server_key *own = &server->key[key];
    return TWILL_SERVER_FAIL(
        server, TWILL_ERR_MISMATCH,
        "rank %u: tensor %llu is not the same on all ranks: here it is '%.80s', "
        "%zu %s",
        server->rank, (unsigned long long)key, own->name, own->count, twill_type_name(own->type));
}

/* Break the server, as an option differs between ranks. Returns TWILL_ERR_MISMATCH. */
static twill_status explain_option(struct twill_server *server,
                                   const struct compared_option *option)
{
    char value[40];
    if (option->is_number)
        twill_print(value, sizeof(value), "%g", option->number);
    else
        snprintf(value, sizeof(value), "%llu", (unsigned long long)option->integer);
    return TWILL_SERVER_FAIL(server, TWILL_ERR_MISMATCH,
                             "rank %u: options.%s is not the same on all ranks: here it is %s",
                             server->rank, option->name, value);
}

/* Break the server because a rank has failed, and return the error. That is this rank's `status`
 * or, if this is TWILL_OK, `worst`, the worst status of all ranks. */
static twill_status explain_lack(struct twill_server *server, twill_status status,
                                 twill_status worst)
{
    if (status != TWILL_OK)
        return TWILL_SERVER_FAIL(server, status, "rank %u: %s", server->rank,
                                 server->failure.error.message[0] != '\0'
                                     ? server->failure.error.message
                                     : twill_strerror(status));
    return TWILL_SERVER_FAIL(server, worst, "rank %u: another rank has failed: %s", server->rank,
                             twill_strerror(worst));
}

/* Compare options and the number of tensors over the ranks. Also destroy the server that this one
 * replaces, if any, unless the exchange fails. Breaks the server and returns the error on all ranks
 * if they differ, or if `own`, a rank's status so far, is an error. Collective. */
static twill_status compare_options(struct twill_server *server, twill_status own)
{
    struct compared_option list[OPTIONS_MOST];
    uint64_t words[2 * (OPTIONS_MOST + 2)];
    size_t n = list_options(server, list), found;
    for (size_t i = 0; i < n; i++)
        words[i] = option_word(&list[i]);
    words[n] = server->keys;
    words[n + 1] = (uint64_t)-own;
    TWILL_TRY(NULL,
              twill_server_check_call(server, server->parent,
                                      twill_find_difference(server->parent, words, n + 2, &found)));
    /* No rank's old shards are running, because all ranks have come here. */
    twill_server_drop_old(server, TWILL_SERVER_END_STOPPED);
    uint64_t worst = ~words[2 * n + 3];
    if (worst != 0)
        return explain_lack(server, own, (twill_status) - (int)worst);
    if (found < n)
        return explain_option(server, &list[found]);
    if (found == n)
        return TWILL_SERVER_FAIL(server, TWILL_ERR_MISMATCH,
                                 "rank %u has %u tensor%s, not as many as other ranks",
                                 server->rank, server->keys, TWILL_PLURAL(server->keys));
    return TWILL_OK;
}

twill_status twill_server_fail_compare(struct twill_server *server, twill_status status)
{
    (void)compare_options(server, status);
    return status;
}

/* Compare the tensors over the ranks. Breaks the server and returns TWILL_ERR_MISMATCH if any
 * differs. hash[2n + 1], for n tensors, is scratch memory. Collective. */
static twill_status compare_keys(struct twill_server *server, uint64_t *hash)
{
    size_t n = server->keys, found;
    for (size_t k = 0; k < n; k++)
        hash[k] = hash_key(&server->key[k]);
    TWILL_TRY(NULL,
              twill_server_check_call(server, server->parent,
                                      twill_find_difference(server->parent, hash, n, &found)));
    return found < n ? explain_key(server, found) : TWILL_OK;
}

twill_status twill_server_compare(struct twill_server *server)
{
    uint64_t *hash = calloc(2 * (size_t)server->keys + 1, sizeof(*hash));
    twill_status status = server->past.lacking;
    if (hash == NULL && status == TWILL_OK)
        status = TWILL_FAIL(&server->failure.error, TWILL_ERR_MEMORY,
                            "out of memory to compare %u tensors", server->keys);
    status = compare_options(server, status);
    if (status == TWILL_OK)
        status = compare_keys(server, hash);
    free(hash);
    return status;
}
