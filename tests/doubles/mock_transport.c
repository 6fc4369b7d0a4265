/* SPDX-License-Identifier: Apache-2.0 */
/* A transport for tests that misbehaves on purpose. Its ranks must be threads of one process.
 *
 * Its script (test_use_mock(), or the setting TEST_MOCK of one rail) is a list of name=number,
 * separated by commas; defaults in parentheses: seed=S     seed of all random draws (0) delay=N a
 * message becomes visible after up to N calls of its receiver's progress (0) reorder=1  messages of
 * different (from, to, lane) overtake each other; never within one (0) again=P    P per cent of the
 * messages find the network busy for up to 16 calls of progress (0) chunk=B    messages arrive in
 * chunks of up to B bytes, a multiple of 8 (whole) fail=N:M   after N messages sent by a rank: 1
 * progress returns TWILL_ERR_FABRIC, 2 the next message is lost, 3 the next one carries another
 * signature, 4 no more are sent rank=R     only rank R fails (all)
 *
 * Draws depend on seed and message only, not on thread scheduling, except the order of overtaking.
 * It allocates memory for each message: do not take it as a model for a transport. */
#include "tests/doubles/mock_transport.h"
#include "fabric/bootstrap/bootstrap.h"
#include "fabric/host/host_identity.h"
#include "fabric/shm/node_memory.h"

#include <pthread.h>
#include <stdlib.h>

enum failure { FAIL_NEVER, FAIL_ERROR, FAIL_DROP, FAIL_SIGNATURE, FAIL_SILENT };

struct mock_script {
    uint64_t seed, delay, reorder, again, chunk, fail_after, fail_how, rank;
};

struct mock_message {
    struct mock_message *next;
    size_t bytes;
    uint32_t signature;
    uint32_t delay;
    unsigned char data[];
};

/* The messages on their way to one rank, a queue per (from, lane). Every rank of the communicator
 * holds a reference; the last to drop it frees it. */
struct inbox {
    pthread_mutex_t mutex;
    _Atomic uint32_t users;
    uint32_t streams;
    struct message_queue {
        struct mock_message *head, *tail;
    } queue[];
};

/* One (peer, lane) as this rank sees it. */
struct mock_stream {
    struct twill_transfer_queue send, recv;
    struct mock_message *current; /* being delivered */
    uint64_t sent;                /* messages sent; also the number of the next */
    uint32_t busy;                /* calls of progress until the network accepts the next one */
    bool drawn;                   /* `busy` is set for the message at the head */
};

struct mock {
    struct twill_transport base;
    struct mock_script script;
    uint32_t rank, size;
    uint64_t chance; /* state of the draws for `reorder` */
    uint64_t sent;
    struct inbox **inbox;       /* [size] */
    struct mock_stream *stream; /* [size * TWILL_LANES] */
};

struct mock_peer_info {
    struct twill_host host;
    uint64_t inbox; /* address */
};

/* --- script and chance ----------------------------------------------------------------------- */

static twill_status read_script(struct mock_script *script, const char *text,
                                struct twill_error *error)
{
    struct {
        const char *name;
        uint64_t *value, *second;
    } const words[] = {
        {"seed", &script->seed, NULL},       {"delay", &script->delay, NULL},
        {"reorder", &script->reorder, NULL}, {"again", &script->again, NULL},
        {"chunk", &script->chunk, NULL},     {"fail", &script->fail_after, &script->fail_how},
        {"rank", &script->rank, NULL},
    };
    *script = (struct mock_script){.rank = UINT64_MAX};
    for (const char *at = text; *at != '\0';) {
        size_t length = strcspn(at, "="), w = 0;
        while (w < TWILL_ARRAY_LENGTH(words) &&
               (strlen(words[w].name) != length || strncmp(words[w].name, at, length) != 0))
            w++;
        char *end = NULL;
        bool fine = w < TWILL_ARRAY_LENGTH(words) && at[length] == '=';
        if (fine)
            *words[w].value = strtoull(at + length + 1, &end, 10);
        fine = fine && end != at + length + 1;
        if (fine && words[w].second != NULL && *end == ':')
            *words[w].second = strtoull(end + 1, &end, 10);
        if (!fine || (*end != ',' && *end != '\0'))
            return TWILL_FAIL(error, TWILL_ERR_CONFIG,
                              "mock: cannot read \"%s\": see the head of mock_transport.c", at);
        at = *end == ',' ? end + 1 : end;
    }
    if (script->chunk % 8 != 0 || script->fail_how > FAIL_SILENT || script->again > 100)
        return TWILL_FAIL(error, TWILL_ERR_CONFIG, "mock: a number is out of range in \"%s\"",
                          text);
    return TWILL_OK;
}

static _Atomic(const char *) script_for_all;

void test_use_mock(const char *script)
{
    atomic_store(&script_for_all, script);
}

static const char *script_of(const struct twill_transport_params *params)
{
    const char *own = twill_transport_setting(params, "TEST_MOCK");
    return own != NULL ? own : atomic_load(&script_for_all);
}

static uint64_t scramble_bits(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Return a random number for a message; `what` tells its uses apart. */
static uint64_t draw_chance(const struct mock *mock, uint32_t peer, uint32_t lane, uint64_t number,
                            uint32_t what)
{
    uint64_t place = ((uint64_t)mock->rank << 40) | ((uint64_t)peer << 16) | (lane << 8) | what;
    return scramble_bits(mock->script.seed ^ scramble_bits(place ^ scramble_bits(number)));
}

/* --- inboxes --------------------------------------------------------------------------------- */

static struct inbox *inbox_create(uint32_t ranks)
{
    uint32_t streams = ranks * TWILL_LANES;
    struct inbox *inbox = calloc(1, sizeof(*inbox) + streams * sizeof(inbox->queue[0]));
    if (inbox == NULL)
        return NULL;
    pthread_mutex_init(&inbox->mutex, NULL);
    atomic_init(&inbox->users, ranks);
    inbox->streams = streams;
    return inbox;
}

static void inbox_drop(struct inbox *inbox, uint32_t users)
{
    if (inbox == NULL || atomic_fetch_sub(&inbox->users, users) != users)
        return;
    for (uint32_t s = 0; s < inbox->streams; s++) {
        while (inbox->queue[s].head != NULL) {
            struct mock_message *message = inbox->queue[s].head;
            inbox->queue[s].head = message->next;
            free(message);
        }
    }
    pthread_mutex_destroy(&inbox->mutex);
    free(inbox);
}

static void inbox_put(struct inbox *inbox, size_t stream, struct mock_message *message)
{
    pthread_mutex_lock(&inbox->mutex);
    struct message_queue *queue = &inbox->queue[stream];
    if (queue->head == NULL)
        queue->head = message;
    else
        queue->tail->next = message;
    queue->tail = message;
    pthread_mutex_unlock(&inbox->mutex);
}

/* Take the next message of a stream. Returns NULL if there is none or it is still delayed. */
static struct mock_message *inbox_take(struct inbox *inbox, size_t stream)
{
    pthread_mutex_lock(&inbox->mutex);
    struct mock_message *message = inbox->queue[stream].head;
    if (message != NULL && message->delay > 0) {
        message->delay--;
        message = NULL;
    } else if (message != NULL) {
        inbox->queue[stream].head = message->next;
    }
    pthread_mutex_unlock(&inbox->mutex);
    return message;
}

/* --- sending --------------------------------------------------------------------------------- */

static twill_status transmit(struct mock *mock, uint32_t peer, uint32_t lane,
                             struct twill_error *error)
{
    const struct mock_script *script = &mock->script;
    struct mock_stream *stream = &mock->stream[peer * (size_t)TWILL_LANES + lane];
    const struct twill_transfer *request = stream->send.head;
    bool fails = script->fail_how != FAIL_NEVER && mock->sent == script->fail_after &&
                 (script->rank == UINT64_MAX || script->rank == mock->rank);
    mock->sent++;
    if (fails && script->fail_how == FAIL_DROP)
        return TWILL_OK;
    struct mock_message *message = calloc(1, sizeof(*message) + request->bytes);
    if (message == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "mock: no memory for %zu bytes", request->bytes);
    message->bytes = request->bytes;
    message->signature =
        request->signature ^ (fails && script->fail_how == FAIL_SIGNATURE ? 1u : 0u);
    message->delay =
        (uint32_t)(draw_chance(mock, peer, lane, stream->sent, 'd') % (script->delay + 1));
    if (request->bytes > 0)
        memcpy(message->data, request->buffer, request->bytes);
    inbox_put(mock->inbox[peer], mock->rank * (size_t)TWILL_LANES + lane, message);
    return TWILL_OK;
}

/* Return whether the network accepts the message at the head now. */
static bool is_taken(struct mock *mock, struct mock_stream *stream, uint32_t peer, uint32_t lane)
{
    if (!stream->drawn) {
        uint64_t chance = draw_chance(mock, peer, lane, stream->sent, 'a');
        stream->busy = chance % 100 < mock->script.again ? 1 + (uint32_t)(chance >> 32) % 16 : 0;
        stream->drawn = true;
    }
    if (stream->busy == 0)
        return true;
    stream->busy--;
    twill_counter_add(&mock->base.counters.again, 1);
    return false;
}

/* Return whether this rank has reached the point from which it fails in this way for good. */
static bool has_failed(const struct mock *mock, enum failure how)
{
    const struct mock_script *script = &mock->script;
    return script->fail_how == how && mock->sent >= script->fail_after &&
           (script->rank == UINT64_MAX || script->rank == mock->rank);
}

static int push_message(struct mock *mock, uint32_t peer, uint32_t lane, struct twill_error *error)
{
    struct mock_stream *stream = &mock->stream[peer * (size_t)TWILL_LANES + lane];
    if (stream->send.head == NULL || has_failed(mock, FAIL_SILENT) ||
        !is_taken(mock, stream, peer, lane))
        return 0;
    TWILL_TRY(error, transmit(mock, peer, lane, error));
    twill_counter_add(&mock->base.counters.messages, 1);
    twill_counter_add(&mock->base.counters.bytes, stream->send.head->bytes);
    twill_counter_add(&mock->base.counters.copied, stream->send.head->bytes);
    stream->sent++;
    stream->drawn = false;
    twill_transfer_pop(&stream->send, TWILL_OK);
    return 1;
}

/* --- receiving ------------------------------------------------------------------------------- */

/* Deliver the next chunk of the current message. Returns TWILL_PENDING, TWILL_OK at its end, or an
 * error. */
static twill_status deliver_chunk(const struct mock *mock, struct mock_stream *stream)
{
    struct twill_transfer *request = stream->recv.head;
    const struct mock_message *message = stream->current;
    if (!twill_transfer_matches(request, message->signature, message->bytes))
        return TWILL_ERR_MISMATCH;
    size_t left = message->bytes - request->moved;
    size_t chunk = mock->script.chunk > 0 ? twill_min(left, mock->script.chunk) : left;
    unsigned char *to = request->reduce != NULL ? request->bounce : request->buffer;
    if (chunk == 0)
        return TWILL_OK;
    if (to == NULL)
        return TWILL_ERR_INTERNAL;
    to += request->moved;
    memcpy(to, message->data + request->moved, chunk);
    if (request->reduce != NULL)
        request->reduce(request, request->moved, to, chunk);
    request->moved += chunk;
    return request->moved < request->bytes ? TWILL_PENDING : TWILL_OK;
}

static int pull_message(struct mock *mock, uint32_t peer, uint32_t lane)
{
    size_t at = peer * (size_t)TWILL_LANES + lane;
    struct mock_stream *stream = &mock->stream[at];
    if (stream->recv.head == NULL)
        return 0;
    if (stream->current == NULL)
        stream->current = inbox_take(mock->inbox[mock->rank], at);
    if (stream->current == NULL)
        return 0;
    int status = deliver_chunk(mock, stream);
    if (status != TWILL_PENDING) {
        free(stream->current);
        stream->current = NULL;
        twill_transfer_pop(&stream->recv, status);
    }
    return 1;
}

/* --- the transport --------------------------------------------------------------------------- */

static int mock_progress(struct twill_transport *transport, struct twill_error *error)
{
    struct mock *mock = (struct mock *)transport;
    uint32_t streams = mock->size * TWILL_LANES, first = 0;
    if (has_failed(mock, FAIL_ERROR))
        return TWILL_FAIL(error, TWILL_ERR_FABRIC, "mock: rank %u fails after %llu messages",
                          mock->rank, (unsigned long long)mock->script.fail_after);
    if (mock->script.reorder != 0)
        first = (uint32_t)((mock->chance = scramble_bits(mock->chance)) % streams);
    int moved = 0;
    for (uint32_t i = 0; i < streams; i++) {
        uint32_t s = (first + i) % streams;
        if (mock->script.reorder != 0 && ((mock->chance = scramble_bits(mock->chance)) & 1) != 0)
            continue;
        int rc = push_message(mock, s / TWILL_LANES, s % TWILL_LANES, error);
        if (rc < 0)
            return rc;
        moved += rc + pull_message(mock, s / TWILL_LANES, s % TWILL_LANES);
    }
    return moved;
}

static twill_status mock_post(struct twill_transport *transport, struct twill_transfer *request,
                              struct twill_error *error)
{
    struct mock *mock = (struct mock *)transport;
    if (request->peer >= mock->size || request->lane >= TWILL_LANES)
        return TWILL_FAIL(error, TWILL_ERR_INTERNAL, "mock: no stream to rank %u on lane %u",
                          request->peer, request->lane);
    struct mock_stream *stream = &mock->stream[request->peer * (size_t)TWILL_LANES + request->lane];
    twill_transfer_push(request->kind == TWILL_TRANSFER_SEND ? &stream->send : &stream->recv,
                        request);
    return TWILL_OK;
}

static void mock_cancel(struct twill_transport *transport)
{
    struct mock *mock = (struct mock *)transport;
    for (uint32_t s = 0; s < mock->size * TWILL_LANES; s++)
        mock->stream[s].send.head = mock->stream[s].recv.head = NULL;
}

static void mock_close(struct twill_transport *transport)
{
    struct mock *mock = (struct mock *)transport;
    for (uint32_t s = 0; mock->stream != NULL && s < mock->size * TWILL_LANES; s++)
        free(mock->stream[s].current);
    for (uint32_t r = 0; mock->inbox != NULL && r < mock->size; r++)
        inbox_drop(mock->inbox[r], 1);
    free(mock->inbox);
    free(mock->stream);
    free(mock);
}

/* Create this rank's inbox and exchange the addresses of all. */
static twill_status find_inboxes(struct mock *mock, struct twill_oob *oob,
                                 struct twill_error *error)
{
    struct mock_peer_info mine, *all = calloc(mock->size, sizeof(*all));
    struct inbox *own = inbox_create(mock->size);
    twill_status status = TWILL_OK;
    memset(&mine, 0, sizeof(mine));
    twill_host_describe(&mine.host);
    mine.inbox = (uintptr_t)own;
    if (all == NULL || own == NULL)
        status = TWILL_FAIL(error, TWILL_ERR_MEMORY, "mock: no memory for %u ranks", mock->size);
    else
        status = twill_oob_allgather(oob, &mine, all, sizeof(mine), error);
    for (uint32_t r = 0; status == TWILL_OK && r < mock->size; r++)
        if (!twill_host_same_process(&all[r].host, &mine.host))
            status = TWILL_FAIL(error, TWILL_ERR_UNSUPPORTED,
                                "mock: rank %u and rank %u are different processes; the "
                                "mock connects threads only",
                                r, mock->rank);
    for (uint32_t r = 0; status == TWILL_OK && r < mock->size; r++)
        mock->inbox[r] = (struct inbox *)(uintptr_t)all[r].inbox;
    if (status != TWILL_OK)
        inbox_drop(own, mock->size);
    free(all);
    return status;
}

static twill_status mock_open(struct twill_transport **transport,
                              const struct twill_transport_params *params,
                              struct twill_error *error)
{
    twill_status status;
    struct mock *mock = calloc(1, sizeof(*mock));
    *transport = NULL;
    if (mock == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "mock: no memory for a transport");
    mock->base.ops = &twill_mock_transport;
    mock->rank = (uint32_t)params->oob->rank;
    mock->size = (uint32_t)params->oob->size;
    mock->inbox = calloc(mock->size, sizeof(struct inbox *));
    mock->stream = calloc(mock->size * (size_t)TWILL_LANES, sizeof(*mock->stream));
    if (mock->inbox == NULL || mock->stream == NULL) {
        status = TWILL_FAIL(error, TWILL_ERR_MEMORY, "mock: no memory for %u ranks", mock->size);
        goto fail;
    }
    TWILL_TRY_OR_FAIL(error, read_script(&mock->script, script_of(params), error));
    mock->chance = scramble_bits(mock->script.seed + mock->rank);
    TWILL_TRY_OR_FAIL(error, find_inboxes(mock, params->oob, error));
    *transport = &mock->base;
    return TWILL_OK;
fail:
    mock_close(&mock->base);
    return status;
}

static bool mock_reaches(const struct twill_transport_params *params, uint32_t from, uint32_t to)
{
    const char *script = script_of(params);
    return script != NULL && script[0] != '\0' && from != to;
}

static const char *mock_describe(const struct twill_transport *transport)
{
    return "mock: threads only, misbehaves as its script says";
}

const struct twill_transport_ops twill_mock_transport = {
    .name = "mock",
    .needs_bounce = true,
    .sleeps_on_doorbell = false,
    .reaches = mock_reaches,
    .open = mock_open,
    .close = mock_close,
    .post = mock_post,
    .progress = mock_progress,
    .cancel = mock_cancel,
    .describe = mock_describe,
};

/* The library's list of transports, under another name: this one puts the mock after the first. */
#define twill_transport_at registered_transport
const struct twill_transport_ops *registered_transport(size_t index);
#include "fabric/transports.c"
#undef twill_transport_at
const struct twill_transport_ops *twill_transport_at(size_t index);

const struct twill_transport_ops *twill_transport_at(size_t index)
{
    return index == 1 ? &twill_mock_transport : registered_transport(index > 1 ? index - 1 : index);
}
