/* SPDX-License-Identifier: Apache-2.0 */
/* Information about a server: parts, memory, versions, counters, staleness, description. */
#include "lib/base/plural.h"
#include "lib/server/server.h"

#include <stdio.h>
#include <string.h>

/* Return a key of a committed server, or NULL if there is none. */
static const struct twill_server_key *find_key(const struct twill_server *server, int key)
{
    if (server == NULL || key < 0 || (uint32_t)key >= server->keys || !server->committed)
        return NULL;
    return &server->key[key];
}

twill_server_part twill_server_role(const twill_server *server)
{
    unsigned part = 0;
    if (server != NULL && twill_server_works(server))
        part |= TWILL_SERVER_WORKS;
    if (server != NULL && twill_server_serves(server))
        part |= TWILL_SERVER_SERVES;
    return (twill_server_part)part;
}

void *twill_server_gradient(const twill_server *server, int key)
{
    const struct twill_server_key *found = find_key(server, key);
    return found != NULL && twill_server_works(server) ? found->gradient : NULL;
}

void *twill_server_parameters(const twill_server *server, int key)
{
    const struct twill_server_key *found = find_key(server, key);
    return found != NULL && twill_server_works(server) ? found->parameters : NULL;
}

uint64_t twill_server_version(const twill_server *server, int key)
{
    const struct twill_server_key *found = find_key(server, key);
    return found != NULL ? atomic_load_explicit(&found->version, memory_order_relaxed) : 0;
}

/* Add a shard's counters to those of the server. All shards count the same workers. So `workers`
 * becomes that of this shard, and `deaths` the greatest so far. The shard is locked. */
static void add_shard(const struct twill_shard *shard, twill_server_counters *to)
{
    to->chunks_here += shard->chunks;
    to->registrations += twill_replicas_registrations(shard);
    to->versions += shard->count.versions;
    to->updates += shard->count.updates;
    to->gradients += shard->count.gradients;
    to->dropped += shard->count.dropped;
    to->duplicates += shard->count.duplicates;
    to->bytes_sent += shard->usage.bytes_sent;
    to->bytes_received += shard->usage.bytes_received;
    to->bytes_messages += shard->usage.bytes_messages;
    to->bytes_metadata += shard->usage.bytes_metadata;
    to->bytes_copied += shard->usage.bytes_copied;
    to->workers = atomic_load(&shard->present);
    to->deaths = twill_max(to->deaths, shard->count.deaths);
}

/* Return TWILL_ERR_ARGUMENT if `out` is NULL or `call` comes before the commit, else TWILL_OK. */
static twill_status check_committed(struct twill_server *server, const void *out, const char *call)
{
    if (server == NULL || out == NULL)
        return TWILL_ERR_ARGUMENT;
    if (!server->committed)
        return TWILL_SERVER_REFUSE(server, "%s: call twill_server_commit() first", call);
    return TWILL_OK;
}

twill_status twill_server_count(twill_server *server, twill_server_counters *counters)
{
    twill_counters own;
    TWILL_TRY(NULL, check_committed(server, counters, "twill_server_count"));
    *counters = (twill_server_counters){.keys = server->keys,
                                        .chunks = server->cut.places,
                                        .chunk_bytes = server->cut.chunk_bytes,
                                        .most_bytes = server->cut.most_bytes,
                                        .least_bytes = server->cut.least_bytes};
    TWILL_TRY(NULL, twill_shards_lock(server, "twill_server_count"));
    for (uint32_t t = 0; twill_server_serves(server) && t < server->roles.threads; t++)
        add_shard(&server->shard[t], counters);
    twill_shards_unlock(server);
    pthread_mutex_lock(&server->work.posting);
    counters->bytes_sent += server->work.usage.bytes_sent;
    counters->bytes_received += server->work.usage.bytes_received;
    counters->bytes_messages += server->work.usage.bytes_messages;
    counters->bytes_metadata += server->work.usage.bytes_metadata;
    counters->credit_waits = server->work.usage.credit_waits;
    pthread_mutex_unlock(&server->work.posting);
    counters->bytes_copied += atomic_load(&server->work.copied);
    for (uint32_t i = 0; i < server->links; i++)
        if (twill_comm_counters(server->link[i].comm, &own) == TWILL_OK)
            counters->registrations += own.registrations;
    return TWILL_OK;
}

twill_status twill_server_staleness(twill_server *server, uint64_t *histogram, size_t most)
{
    TWILL_TRY(NULL, check_committed(server, histogram, "twill_server_staleness"));
    if (most == 0)
        return TWILL_SERVER_REFUSE(server, "twill_server_staleness: most is 0");
    memset(histogram, 0, most * sizeof(*histogram));
    TWILL_TRY(NULL, twill_shards_lock(server, "twill_server_staleness"));
    for (uint32_t t = 0; twill_server_serves(server) && t < server->roles.threads; t++)
        for (size_t s = 0; s < TWILL_STALENESS_MOST; s++)
            histogram[twill_min(s, most - 1)] += server->shard[t].count.staleness[s];
    twill_shards_unlock(server);
    return TWILL_OK;
}

twill_status twill_server_set_optimizer(twill_server *server, const twill_optimizer *optimizer)
{
    struct twill_error error = {0};
    TWILL_TRY(NULL, check_committed(server, optimizer, "twill_server_set_optimizer"));
    if (twill_optimizer_check(optimizer, &error) != TWILL_OK)
        return TWILL_SERVER_REFUSE(server, "%s", error.message);
    if (!server->rule.has_optimizer || optimizer->rule != server->rule.optimizer.rule ||
        (optimizer->momentum != 0) != (server->rule.optimizer.momentum != 0))
        return TWILL_SERVER_REFUSE(server, "twill_server_set_optimizer: rule or momentum differs");
    if (optimizer->clip_norm > 0)
        return TWILL_SERVER_REFUSE(server, "twill_server_set_optimizer: clip_norm needs the norm "
                                           "of all gradients");
    TWILL_TRY(NULL, twill_shards_lock(server, "twill_server_set_optimizer"));
    server->rule.optimizer = *optimizer;
    server->rule.settings++;
    twill_shards_unlock(server);
    return TWILL_OK;
}

/* Write the mode, k and gradients of an update to text[bytes]. Returns `text`. */
static const char *mode_text(const struct twill_server *server, char *text, size_t bytes)
{
    static const char *const names[] = {"sync",          "K-sync", "K-batch-sync", "K-async",
                                        "K-batch-async", "async",  "n-softsync",   "bounded"};
    snprintf(text, bytes, "%s, k %d: updates of %u gradients", names[server->options.mode],
             server->options.k,
             server->options.mode == TWILL_SERVER_SYNC ? server->roles.workers : server->rule.need);
    return text;
}

/* Return a chunk size as text, such as "65536 bytes" or "whole tensors", in text[most] or a
 * constant. */
static const char *size_text(size_t bytes, char *text, size_t most)
{
    if (bytes == TWILL_SERVER_WHOLE_TENSORS)
        return "whole tensors";
    snprintf(text, most, "%zu bytes", bytes);
    return text;
}

/* Append to server->line, at byte `used`, on which CPU and NUMA node the thread of shard number
 * `shard` runs. Append nothing if that shard is on another rank or has no thread. */
static void describe_place(struct twill_server *server, uint32_t shard, size_t used)
{
    const struct twill_shard *own;
    if (!twill_server_serves(server) || shard / server->roles.threads != server->roles.server ||
        server->options.threads == 0)
        return;
    own = &server->shard[shard % server->roles.threads];
    if (own->thread.pu < 0)
        snprintf(server->line + used, sizeof(server->line) - used,
                 "; thread not bound, as no PU is left for it");
    else if (own->thread.numa_node < 0)
        snprintf(server->line + used, sizeof(server->line) - used, "; thread on PU %d",
                 own->thread.pu);
    else
        snprintf(server->line + used, sizeof(server->line) - used,
                 "; thread on PU %d, memory in NUMA node %d", own->thread.pu,
                 own->thread.numa_node);
}

/* Write to server->line the rank, chunks and bytes of shard number `shard` and, on its rank, where
 * its thread runs. */
static void describe_shard(struct twill_server *server, uint32_t shard)
{
    int used;
    uint64_t bytes = 0, chunks = 0;
    for (uint32_t i = 0; i < server->cut.places; i++)
        if (server->cut.place[i].shard == shard) {
            bytes += server->cut.place[i].count *
                     twill_type_size(server->key[server->cut.place[i].key].type);
            chunks++;
        }
    used = snprintf(server->line, sizeof(server->line),
                    "shard %u of server rank %u: %llu chunk%s, %llu bytes",
                    shard % server->roles.threads, twill_shard_rank(server, shard),
                    (unsigned long long)chunks, TWILL_PLURAL(chunks), (unsigned long long)bytes);
    describe_place(server, shard, (size_t)used);
}

const char *twill_server_describe(twill_server *server, size_t index)
{
    static const char *const layouts[] = {"cs", "cc", "nc", "ncs"};
    char mode[100], size[40];
    if (server == NULL || !server->committed)
        return NULL;
    if (index == 0)
        snprintf(server->line, sizeof(server->line),
                 "layout %s: %u server%s of %u shard%s, %u worker%s; %s; %s",
                 layouts[server->options.layout], server->roles.servers,
                 TWILL_PLURAL(server->roles.servers), server->roles.threads,
                 TWILL_PLURAL(server->roles.threads), server->roles.workers,
                 TWILL_PLURAL(server->roles.workers), mode_text(server, mode, sizeof(mode)),
                 server->rule.has_optimizer ? twill_optimizer_name(server->rule.optimizer.rule)
                                            : "no optimizer");
    else if (index == 1)
        snprintf(server->line, sizeof(server->line),
                 "%u tensor%s in %u chunk%s of %s (%s); a shard has %llu to %llu bytes",
                 server->keys, TWILL_PLURAL(server->keys), server->cut.places,
                 TWILL_PLURAL(server->cut.places),
                 size_text(server->cut.chunk_bytes, size, sizeof(size)), server->cut.chunk_choice,
                 (unsigned long long)server->cut.least_bytes,
                 (unsigned long long)server->cut.most_bytes);
    else if (index - 2 < server->roles.shards)
        describe_shard(server, (uint32_t)(index - 2));
    else
        return NULL;
    return server->line;
}
