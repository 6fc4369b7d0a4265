/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/fuzz_server.h"

#include "kernels/kernels.h"
#include "kernels/thread_pool.h"
#include "lib/comm/comm.h"
#include "lib/job/context.h"
#include "lib/twill_recover.h"

#define SERVERS   2u
#define WORKERS   2u
#define KEYS      2u
#define REQUESTS  4096u
#define RAW_BYTES 160u /* longer messages repeat 4 bytes */

/* A message under way. */
struct fuzz_message {
    bool used, sends;
    const twill_comm *comm;
    unsigned char *bytes;
    size_t count;
    unsigned slow;
};

static struct fuzz_message messages[REQUESTS];
static struct twill_comm comms[16];
static size_t comms_made;
static const uint8_t *input;
static size_t input_size;
static unsigned slow_sends;
static struct twill_server *opened;
static struct twill_context context;

/* Tensors of several chunks, and of one. */
static const size_t counts[2][KEYS] = {{1500, 40}, {600, 20}};
static float parameters[1540], gradients[1540];

/* --- the input -------------------------------------------------------------------------------- */

void fuzz_server_feed(const uint8_t *data, size_t size)
{
    input = data;
    input_size = size;
}

bool fuzz_server_fed(void)
{
    return input_size == 0;
}

uint8_t fuzz_server_byte(void)
{
    if (input_size == 0)
        return 0;
    input_size--;
    return *input++;
}

/* Fill a head with what is right for a key of the link, but for what four bytes change. */
static void fill_head(const struct twill_server_link *link, struct twill_link_head *head)
{
    static const uint16_t kinds[] = {TWILL_ORDER_PUSH | TWILL_ORDER_PULL,
                                     TWILL_ORDER_PUSH,
                                     TWILL_ORDER_PULL,
                                     TWILL_LINK_PULLED,
                                     TWILL_LINK_PUSHED,
                                     TWILL_LINK_CREDIT,
                                     TWILL_ORDER_LEAVE,
                                     TWILL_LINK_LEFT};
    uint8_t what = fuzz_server_byte(), key = fuzz_server_byte(), number = fuzz_server_byte(),
            shift = fuzz_server_byte();
    uint32_t k = key % KEYS;
    bool data = what % 16 < 2 || what % 16 == 3;
    *head = (struct twill_link_head){.kind = kinds[what % 16 % 8],
                                     .credits = what / 16 % 4,
                                     .key = key < 250 ? k : UINT32_MAX,
                                     .push = number,
                                     .pull = number};
    head->first = data || what >= 224 ? link->key_first[k] + shift / 16 : 0;
    head->end = data || what >= 224 ? link->key_first[k + 1] - shift % 16 : 0;
}

/* Fill a message: a head from 4 bytes, or as it is; data with 4 bytes. What the input does not have
 * is zeros. */
static void fill_message(const twill_comm *comm, unsigned char *bytes, size_t count)
{
    size_t own = count <= RAW_BYTES ? count : 4;
    for (uint32_t i = 0; i < opened->links && count == sizeof(struct twill_link_head); i++)
        if (opened->link[i].comm == comm && fuzz_server_byte() < 240) {
            fill_head(&opened->link[i], (struct twill_link_head *)(void *)bytes);
            return;
        }
    for (size_t i = 0; i < own; i++)
        bytes[i] = fuzz_server_byte();
    for (size_t i = own; i < count; i++)
        bytes[i] = bytes[i - 4];
}

/* --- in the place of the library's ------------------------------------------------------------ */

static twill_status start_message(struct fuzz_message message, twill_request **request)
{
    size_t i = 0;
    fuzz_must(*request == NULL && fuzz_is_memory(message.bytes, message.count));
    while (i < REQUESTS && messages[i].used)
        i++;
    fuzz_must(i < REQUESTS); /* no more are under way than a link allows */
    messages[i] = message;
    *request = (twill_request *)(void *)&messages[i];
    return TWILL_OK;
}

twill_status twill_send_start(twill_comm *comm, const void *src, size_t count, twill_type type,
                              int to, twill_request **request)
{
    fuzz_must(comm != NULL && type == TWILL_U8);
    *request = NULL;
    return start_message((struct fuzz_message){.used = true,
                                               .sends = true,
                                               .bytes = (unsigned char *)(uintptr_t)src,
                                               .count = count,
                                               .slow = slow_sends},
                         request);
}

twill_status twill_recv_start(twill_comm *comm, void *dst, size_t count, twill_type type, int from,
                              twill_request **request)
{
    fuzz_must(comm != NULL && type == TWILL_U8);
    *request = NULL;
    return start_message(
        (struct fuzz_message){.used = true, .comm = comm, .bytes = dst, .count = count}, request);
}

/* Complete a send after some tests; a receive with what the input says, whose first byte may be
 * that nothing has come, or that the peer has died. */
twill_status twill_test(twill_request **request, int *done)
{
    struct fuzz_message *message = (struct fuzz_message *)(void *)*request;
    *done = 1;
    if (message == NULL)
        return TWILL_OK;
    fuzz_must(message->used && fuzz_is_memory(message->bytes, message->count));
    uint8_t what = message->sends || input_size == 0 ? 0 : fuzz_server_byte();
    if (message->sends ? message->slow-- > 0 : input_size == 0 || what == 0xfe) {
        *done = 0;
        return TWILL_OK;
    }
    if (!message->sends && what != 0xff)
        fill_message(message->comm, message->bytes, message->count);
    message->used = false;
    *request = NULL;
    return what == 0xff ? TWILL_ERR_PEER : TWILL_OK;
}

twill_status twill_comm_create_group(twill_comm **made, twill_comm *comm, int count,
                                     const int *ranks)
{
    fuzz_must(comms_made < TWILL_ARRAY_LENGTH(comms));
    *made = &comms[comms_made++];
    return TWILL_OK;
}

void twill_comm_leave(twill_comm *comm)
{
}

void twill_comm_destroy(twill_comm *comm)
{
}

twill_status twill_comm_counters(const twill_comm *comm, twill_counters *counters)
{
    *counters = (twill_counters){.registrations = 0};
    return TWILL_OK;
}

twill_status twill_extend_fail(twill_comm *comm, enum twill_extend_failure what, const char *call,
                               twill_status status, const char *format, ...)
{
    fuzz_must(what == TWILL_EXTEND_ENDS && status == opened->failure.error.status);
    return status;
}

void twill_extend_ring(twill_comm *comm, uint32_t rank)
{
    fuzz_must(rank < opened->size);
}

twill_status twill_alloc(twill_context *of, void **memory, size_t bytes)
{
    *memory = aligned_alloc(64, twill_round_up(bytes, 64));
    return *memory != NULL ? TWILL_OK : TWILL_ERR_MEMORY;
}

twill_status twill_free(twill_context *of, void *memory)
{
    free(memory);
    return TWILL_OK;
}

void twill_shard_place_memory(const struct twill_shard *shard, void *memory, size_t bytes)
{
    fuzz_must(shard != NULL && (memory == NULL || fuzz_is_memory(memory, bytes)));
}

void twill_shard_unplace_memory(const struct twill_shard *shard, void *memory, size_t bytes)
{
    twill_shard_place_memory(shard, memory, bytes);
}

static const uint64_t not_forked = 1;

/* Define a function that answers a value. */
#define ANSWER(type, name, value, ...)                                                             \
    type name(__VA_ARGS__)                                                                         \
    {                                                                                              \
        return value;                                                                              \
    }
ANSWER(twill_status, twill_comm_set_timeout, comm != NULL ? TWILL_OK : TWILL_ERR_ARGUMENT,
       twill_comm *comm, double seconds)
ANSWER(twill_status, twill_comm_revoke, comm != NULL ? TWILL_OK : TWILL_ERR_ARGUMENT,
       twill_comm *comm)
ANSWER(const char *, twill_comm_message, "", const twill_comm *comm)
ANSWER(const char *, twill_context_message, "", const twill_context *of)
ANSWER(bool, twill_extend_is_dead, false, twill_comm *comm, uint32_t rank)
ANSWER(struct twill_extend_comm, twill_extend_comm,
       ((struct twill_extend_comm){.timeout_ns = comm->tuning.timeout_ns, .error = &comm->error}),
       const twill_comm *comm)
ANSWER(twill_status, twill_extend_await,
       waitable.done(waitable.awaited) ? TWILL_OK : TWILL_ERR_TIMEOUT, twill_comm *comm,
       struct twill_waitable waitable, uint64_t deadline)
ANSWER(bool, twill_wait_for_thread, done(awaited), bool (*done)(const void *awaited),
       const void *awaited, uint64_t deadline)

/* One rank's: what it has is what all have. */
twill_status twill_allreduce(twill_comm *comm, const void *src, void *dst, size_t count,
                             twill_type type, twill_op op)
{
    fuzz_must(src == dst && type == TWILL_U64 && fuzz_is_memory(src, count * sizeof(uint64_t)));
    return TWILL_OK;
}

twill_status twill_broadcast(twill_comm *comm, const void *src, void *dst, size_t count,
                             twill_type type, int root)
{
    fuzz_must(src == dst && type == TWILL_U8 && root == 0 && fuzz_is_memory(src, count));
    return TWILL_OK;
}

twill_status twill_send(twill_comm *comm, const void *src, size_t count, twill_type type, int to)
{
    fuzz_must(fuzz_is_memory(src, count) && type == TWILL_U8);
    fuzz_must(to > 0 && to < (int)FUZZ_SERVER_RANKS);
    return TWILL_OK;
}

twill_status twill_recv(twill_comm *comm, void *dst, size_t count, twill_type type, int from)
{
    fuzz_must(fuzz_is_memory(dst, count) && type == TWILL_U8);
    fuzz_must(from > 0 && from < (int)FUZZ_SERVER_RANKS);
    return TWILL_ERR_PEER; /* no other rank has a record */
}

/* Kernels: what they read and write must be memory. */

static uint32_t add_bytes(uint32_t crc, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        crc = crc * 31 + ((const unsigned char *)data)[i];
    return crc;
}

static struct twill_kernels fuzz_kernels = {.crc32c = add_bytes};

/* There is no pool of threads. */
unsigned twill_pool_threads(const struct twill_thread_pool *pool, size_t written, size_t read)
{
    fuzz_must(pool == NULL);
    return 1;
}

bool twill_pool_run(struct twill_thread_pool *pool, unsigned parts, twill_part_fn run, void *job)
{
    fuzz_must(pool == NULL);
    return false;
}

void twill_kernels_copy(const struct twill_kernels *table, void *dst, const void *src, size_t bytes,
                        unsigned flags, struct twill_thread_pool *pool)
{
    fuzz_must(table == &fuzz_kernels && flags == 0 && pool == NULL);
    memcpy(dst, src, bytes);
}

void twill_kernels_reduce(const struct twill_kernels *table,
                          const struct twill_reduction *reduction, void *dst,
                          const void *const *src, unsigned nsrc, size_t count)
{
    size_t width = twill_type_size(reduction->type);
    fuzz_must(table == &fuzz_kernels && nsrc >= 1 && nsrc <= 8 && reduction->divisor >= 1);
    for (unsigned i = 0; i < nsrc; i++)
        fuzz_must(fuzz_is_memory(src[i], count * width));
    memmove(dst, src[0], count * width);
}

void twill_kernels_scale(const struct twill_kernels *table, twill_type type, void *dst,
                         const void *src, const void *factor, bool rounds, size_t count,
                         struct twill_thread_pool *pool)
{
    fuzz_must(table == &fuzz_kernels && type == TWILL_F32 && !rounds && pool == NULL);
    fuzz_must(fuzz_is_memory(dst, count * 4) && fuzz_is_memory(src, count * 4) &&
              fuzz_is_memory(factor, 4));
}

void twill_accumulate(const struct twill_kernels *table, float *residual, twill_type type,
                      const void *gradient, float prescale, size_t count,
                      struct twill_thread_pool *pool)
{
    fuzz_must(table == &fuzz_kernels && pool == NULL &&
              fuzz_is_memory(residual, count * sizeof(float)) &&
              fuzz_is_memory(gradient, count * twill_type_size(type)));
    residual[0] += 1;
}

size_t twill_block_bytes(struct twill_block_format format)
{
    return sizeof(float) + format.elements;
}

size_t twill_block_count(struct twill_block_format format, size_t count)
{
    return (count + format.elements - 1) / format.elements;
}

void twill_dequantize(const struct twill_kernels *table, struct twill_block_format format,
                      twill_type type, void *dst, const void *const *blocks, unsigned sources,
                      float scale, size_t count, struct twill_thread_pool *pool)
{
    fuzz_must(table == &fuzz_kernels && type == TWILL_F32 && sources == 1 && pool == NULL);
    fuzz_must(
        fuzz_is_memory(blocks[0], twill_block_count(format, count) * twill_block_bytes(format)));
    memset(dst, 0, count * sizeof(float));
}

/* Of workers, which are not here. */
void twill_narrow(const struct twill_kernels *table, twill_type narrow, void *dst, twill_type type,
                  const void *gradient, float *residual, float prescale, size_t count,
                  struct twill_thread_pool *pool)
{
    fuzz_must(false);
}

void twill_quantize(const struct twill_kernels *table, struct twill_block_format format,
                    void *blocks, twill_type type, const void *gradient, float *residual,
                    float prescale, size_t count, struct twill_thread_pool *pool)
{
    fuzz_must(false);
}

void twill_optimizer_update(const struct twill_kernels *table,
                            const struct twill_optimizer_step *step, size_t count)
{
    fuzz_must(table == &fuzz_kernels && step->sources >= 1 && step->sources <= 8);
    for (unsigned i = 0; i < step->sources; i++)
        fuzz_must(fuzz_is_memory(step->gradient[i], count * twill_type_size(step->gradient_type)));
    memset(step->parameter, 0, count * sizeof(float));
    memset(step->state[0], 0, count * sizeof(float));
}

/* --- a server --------------------------------------------------------------------------------- */

static uint32_t server_ranks[SERVERS] = {0, 1}, worker_ranks[WORKERS] = {2, 3};

static void set_roles(struct twill_server *server, bool worker)
{
    server->rank = worker ? 2 : 0;
    server->size = FUZZ_SERVER_RANKS;
    server->roles = (struct twill_server_roles){.servers = SERVERS,
                                                .workers = WORKERS,
                                                .server_rank = server_ranks,
                                                .worker_rank = worker_ranks,
                                                .server = worker ? UINT32_MAX : 0,
                                                .worker = worker ? 0 : UINT32_MAX,
                                                .threads = 1,
                                                .shards = SERVERS};
}

static void add_keys(struct twill_server *server, bool compressed, const size_t *count)
{
    static char names[KEYS][8] = {"first", "second"};
    size_t at = 0;
    server->keys = KEYS;
    server->key = calloc(KEYS, sizeof(*server->key));
    fuzz_must(server->key != NULL);
    for (uint32_t k = 0; k < KEYS; at += count[k++])
        server->key[k] = (struct twill_server_key){.name = names[k],
                                                   .count = count[k],
                                                   .bytes = count[k] * sizeof(float),
                                                   .type = TWILL_F32,
                                                   .coded = compressed,
                                                   .gradient = gradients + at,
                                                   .parameters = parameters + at};
}

/* What server_memory.c makes of a server that shares none. */
static void make_shards(struct twill_server *server)
{
    server->shard = calloc(1, sizeof(*server->shard));
    fuzz_must(server->shard != NULL);
    struct twill_shard *shard = server->shard;
    shard->server = server;
    shard->thread.numa_node = shard->thread.pu = -1;
    shard->present = WORKERS;
    shard->worker = calloc(WORKERS, sizeof(*shard->worker));
    shard->worker_key = calloc((size_t)WORKERS * KEYS, sizeof(*shard->worker_key));
    struct twill_answer *answers = calloc((size_t)WORKERS * KEYS, sizeof(*answers));
    fuzz_must(shard->worker != NULL && shard->worker_key != NULL && answers != NULL);
    server->memory.control = answers;
    for (uint32_t w = 0; w < WORKERS; w++)
        shard->worker[w] = (struct twill_shard_worker){.rank = worker_ranks[w],
                                                       .answer = answers + (size_t)w * KEYS,
                                                       .key = shard->worker_key + (size_t)w * KEYS};
    fuzz_must(twill_shards_open(server) == TWILL_OK);
}

static void make_ports(struct twill_server *server)
{
    server->work.port = calloc(SERVERS, sizeof(*server->work.port));
    fuzz_must(server->work.port != NULL);
    for (uint32_t c = 0; c < SERVERS; c++) {
        struct twill_port *port = &server->work.port[c];
        port->shard = c;
        port->rank = server_ranks[c];
        port->chunks = calloc(KEYS, sizeof(*port->chunks));
        port->own_answer = calloc(KEYS, sizeof(*port->own_answer));
        fuzz_must(port->chunks != NULL && port->own_answer != NULL);
        port->answer = port->own_answer;
        for (uint32_t i = 0; i < server->cut.places; i++)
            port->chunks[server->cut.place[i].key] += server->cut.place[i].shard == c;
    }
    for (uint32_t k = 0; k < KEYS; k++) { /* of their exact sizes */
        server->key[k].sent = calloc(server->key[k].wire_bytes, 1);
        server->key[k].landed = calloc(server->key[k].bytes, 1);
        fuzz_must(server->key[k].sent != NULL && server->key[k].landed != NULL);
    }
}

struct twill_server *fuzz_server_open(struct fuzz_server_kind kind)
{
    struct twill_server *server = calloc(1, sizeof(*server));
    fuzz_must(server != NULL && pthread_mutex_init(&server->failure.lock, NULL) == 0);
    comms_made = 1;
    slow_sends = kind.slow;
    server->process.context = &context;
    server->process.kernels = &fuzz_kernels;
    server->process.fork_guard = &not_forked;
    opened = server;
    server->comm = server->parent = &comms[0];
    server->options = (twill_server_options){.mode = kind.mode,
                                             .rate = kind.rate,
                                             .op = TWILL_AVG,
                                             .k = 1,
                                             .credits = 4,
                                             .distance_c = 1,
                                             .distance_most = 1,
                                             .compression = kind.compression,
                                             .compression_ratio = 0.1,
                                             .replicas = kind.replicas ? 2 : 1};
    if (kind.compression != TWILL_COMPRESS_NONE)
        server->coder = twill_coder_of(&fuzz_kernels, kind.compression, 0.1, 0, false);
    server->rule = (struct twill_server_rule){
        .need = 1 + (kind.mode % 2), .has_optimizer = kind.slow % 2, .states = kind.slow % 2};
    set_roles(server, kind.worker);
    add_keys(server, kind.compression != TWILL_COMPRESS_NONE, counts[kind.small]);
    server->cut.chunk_bytes = kind.uncut ? 0 : 1024;
    if (kind.uncut)
        return server;
    fuzz_must(twill_server_place(server) == TWILL_OK);
    if (kind.worker)
        make_ports(server);
    else
        make_shards(server);
    return server;
}

static bool maps_nothing(const struct twill_server *server, uint64_t *all, uint32_t worker,
                         uint32_t rank)
{
    return false;
}

void fuzz_server_connect(struct twill_server *server)
{
    fuzz_must(twill_links_open(server, maps_nothing, NULL) == TWILL_OK);
    if (server->shard != NULL)
        fuzz_must(twill_replicas_open(server) == TWILL_OK);
}

void fuzz_server_close(struct twill_server *server)
{
    if (server->shard != NULL)
        twill_replicas_close(server, false);
    twill_links_close(server, false);
    memset(messages, 0, sizeof(messages));
    for (uint32_t c = 0; server->work.port != NULL && c < SERVERS; c++) {
        free(server->work.port[c].chunks);
        free(server->work.port[c].own_answer);
    }
    free(server->work.port);
    for (uint32_t k = 0; k < KEYS; k++) {
        free(server->key[k].sent);
        free(server->key[k].landed);
    }
    if (server->shard != NULL)
        twill_shards_close(server);
    free(server->memory.control);
    twill_server_drop_state(server);
    twill_server_unplace(server);
    free(server->key);
    pthread_mutex_destroy(&server->failure.lock);
    free(server);
}
