/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of transport tests. */
#include "tests/support/messages.h"
#include "fabric/shm/node_memory.h"
#include "tests/support/run.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW    5 /* messages posted at a time on a stream of a flood */
#define SIGNATURE 0x5157u
/* The thread sanitizer is tens of times slower, and finds no more in longer messages. */
#define TSAN_MOST_BYTES ((size_t)500 << 10)

/* A message with its buffers, as both ends know it. */
struct letter {
    struct twill_transfer request;
    uint32_t from, to, number;
    size_t seen; /* bytes reduced */
    bool wrong, in_chunks;
    unsigned char *buffer, *bounce;
};

bool twill_test_world(struct twill_world *world, uint32_t size, uint32_t per_node)
{
    uint32_t nodes = (size + per_node - 1) / per_node;
    uint32_t *all = calloc(4 * (size_t)size + 2 * (size_t)nodes + 1, sizeof(*all));
    if (all == NULL)
        return false;
    *world = (struct twill_world){.size = size,
                                  .nodes = nodes,
                                  .node = all,
                                  .local = all + size,
                                  .member = all + 2 * size,
                                  .node_size = all + 3 * size,
                                  .node_first = all + 3 * size + nodes};
    for (uint32_t r = 0; r < size; r++) {
        world->node[r] = r / per_node;
        world->local[r] = r % per_node;
        world->member[r] = r;
        world->node_size[r / per_node]++;
        world->node_first[r / per_node + 1] = r + 1;
    }
    return true;
}

void twill_test_world_free(struct twill_world *world)
{
    free(world->node);
}

/* Set `text` to bytes of a letter's contents. Not instrumented, as it only writes memory of the
 * caller's own: most of the time under a thread sanitizer was spent here. */
__attribute__((no_sanitize("thread"))) static void
letter_text(const struct letter *letter, size_t offset, unsigned char *text, size_t bytes)
{
    unsigned start =
        letter->from * 31 + letter->to * 17 + letter->request.lane * 5u + letter->number * 13 + 1;
    for (size_t i = 0; i < bytes; i++)
        text[i] = (unsigned char)((offset + i) * 7 + (offset + i) / 251 + start);
}

/* Return whether data is what a letter has at this offset. */
static bool is_text(const struct letter *letter, size_t offset, const unsigned char *data,
                    size_t bytes)
{
    unsigned char text[4096];
    for (size_t at = 0, more; at < bytes; at += more) {
        more = twill_min(bytes - at, sizeof(text));
        letter_text(letter, offset + at, text, more);
        if (memcmp(data + at, text, more) != 0)
            return false;
    }
    return true;
}

static void reduce(struct twill_transfer *request, size_t offset, const void *data, size_t bytes)
{
    struct letter *letter = request->reduce_context;
    bool last = offset + bytes == request->bytes;
    if ((offset != letter->seen && !letter->in_chunks) || offset + bytes > request->bytes ||
        (!last && bytes % 8 != 0))
        letter->wrong = true;
    letter->wrong = letter->wrong || !is_text(letter, offset, data, bytes);
    if (!letter->wrong)
        memcpy(letter->buffer + offset, data, bytes);
    letter->seen += bytes;
}

/* Write a letter's contents by memcpy(), which a thread sanitizer sees: others read the buffer. */
static void write_text(struct letter *letter)
{
    unsigned char text[4096];
    size_t bytes = letter->request.bytes;
    for (size_t at = 0, more; at < bytes; at += more) {
        more = twill_min(bytes - at, sizeof(text));
        letter_text(letter, at, text, more);
        memcpy(letter->buffer + at, text, more);
    }
}

/* Prepare a letter for posting; its memory is reused. */
static void write_letter(struct letter *letter, enum twill_transfer_kind kind, uint32_t lane,
                         size_t bytes, bool reduces)
{
    struct twill_transfer *request = &letter->request;
    letter->seen = 0;
    letter->wrong = false;
    letter->buffer = realloc(letter->buffer, bytes + 16);
    letter->bounce = realloc(letter->bounce, reduces ? bytes + 16 : 16);
    memset(request, 0, sizeof(*request));
    request->kind = (uint8_t)kind;
    request->lane = (uint8_t)lane;
    request->peer = kind == TWILL_TRANSFER_SEND ? letter->to : letter->from;
    request->signature = SIGNATURE + letter->number;
    request->buffer = letter->buffer;
    request->bytes = bytes;
    memset(letter->buffer, 0xee, bytes + 16);
    if (kind == TWILL_TRANSFER_SEND) {
        write_text(letter);
    } else if (reduces) {
        request->reduce = reduce;
        request->reduce_context = letter;
        request->bounce = letter->bounce;
        request->buffer = NULL;
    }
}

static void free_letters(struct letter *letters, size_t n)
{
    for (size_t i = 0; letters != NULL && i < n; i++) {
        free(letters[i].buffer);
        free(letters[i].bounce);
    }
    free(letters);
}

static bool post_letter(struct twill_test_end *end, struct letter *letter)
{
    letter->in_chunks = end->in_chunks;
    int status = end->transport->ops->post(end->transport, &letter->request, &end->error);
    return TWILL_NOTE(status == TWILL_OK, "rank %u: post: %s", end->rank, end->error.message);
}

static bool progress(struct twill_test_end *end)
{
    int moved = end->transport->ops->progress(end->transport, &end->error);
    if (moved == 0)
        sched_yield();
    return TWILL_NOTE(moved >= 0, "rank %u: progress: %s", end->rank, end->error.message);
}

bool twill_test_await(struct twill_test_end *end, const struct twill_transfer *requests, size_t n)
{
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    for (size_t i = 0; i < n; i++) {
        while (requests[i].status == TWILL_PENDING) {
            if (!progress(end))
                return false;
            TWILL_REQUIRE(twill_now() < limit);
        }
    }
    return true;
}

static bool await_letters(struct twill_test_end *end, struct letter *letters, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!twill_test_await(end, &letters[i].request, 1))
            return false;
    }
    return true;
}

/* Check that a letter arrived as it was written, and nothing was written beyond it. */
static bool read_letter(const struct twill_test_end *end, struct letter *letter)
{
    const struct twill_transfer *request = &letter->request;
    size_t bytes = request->bytes;
    bool good = request->status == TWILL_OK && !letter->wrong;
    if (request->kind == TWILL_TRANSFER_RECV && request->reduce != NULL)
        good = good && letter->seen == bytes;
    good = good && is_text(letter, 0, letter->buffer, bytes);
    for (size_t i = 0; good && i < 16; i++)
        good = letter->buffer[bytes + i] == 0xee;
    return TWILL_NOTE(good,
                      "rank %u, message %u from %u to %u, lane %u, %zu bytes: status %d, "
                      "%zu reduced, contents %s",
                      end->rank, letter->number, letter->from, letter->to, request->lane, bytes,
                      request->status, letter->seen, good ? "right" : "wrong");
}

static bool is_peer(const struct twill_test_end *end, uint32_t rank)
{
    return (rank == end->rank) == end->to_self;
}

/* Exchange one message with every peer in both directions. */
static bool swap_all(struct twill_test_end *end, struct letter *letters, size_t bytes,
                     uint32_t number, bool reduces)
{
    size_t n = 0;
    for (uint32_t half = 0; half < 2; half++) {
        bool sends = (half + end->rank + number) % 2 == 0;
        for (uint32_t peer = 0; peer < end->size; peer++) {
            if (!is_peer(end, peer))
                continue;
            struct letter *letter = &letters[n++];
            letter->from = sends ? end->rank : peer;
            letter->to = sends ? peer : end->rank;
            letter->number = number;
            write_letter(letter, sends ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV,
                         number % TWILL_LANES, bytes, reduces);
            if (!post_letter(end, letter))
                return false;
        }
    }
    if (!await_letters(end, letters, n))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!read_letter(end, &letters[i]))
            return false;
    return true;
}

bool twill_test_sweep(struct twill_test_end *end, const size_t *sizes, size_t n)
{
    struct letter *letters = calloc(2 * (size_t)end->size, sizeof(*letters));
    bool good = letters != NULL;
    for (size_t i = 0; good && i < 2 * n; i++)
        if (!TEST_TSAN || n == 1 || sizes[i / 2] < TSAN_MOST_BYTES)
            good = swap_all(end, letters, sizes[i / 2], (uint32_t)i, i % 2 == 1);
    free_letters(letters, 2 * (size_t)end->size);
    return good;
}

/* --- flood ------------------------------------------------------------------------------------ */

static size_t size_of_letter(const struct letter *letter, uint32_t lane, size_t max_bytes)
{
    uint32_t x = letter->from * 2654435761u + letter->to * 40503u + lane * 977u +
                 letter->number * 2246822519u + 1;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    /* half of them fit into a line */
    return x & 1 ? (x >> 1) % 49 : (x >> 1) % (max_bytes + 1);
}

/* One direction of one lane with one peer: up to WINDOW letters posted, in order of their
 * numbers. */
struct stream {
    struct letter letter[WINDOW];
    uint32_t lane, posted, done;
    bool sends;
};

static bool stream_step(struct twill_test_end *end, struct stream *stream, uint32_t messages,
                        size_t max_bytes)
{
    while (stream->done < stream->posted) {
        struct letter *oldest = &stream->letter[stream->done % WINDOW];
        if (oldest->request.status == TWILL_PENDING)
            break;
        if (!read_letter(end, oldest))
            return false;
        stream->done++;
    }
    while (stream->posted < messages && stream->posted < stream->done + WINDOW) {
        struct letter *letter = &stream->letter[stream->posted % WINDOW];
        letter->number = stream->posted++;
        write_letter(letter, stream->sends ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV,
                     stream->lane, size_of_letter(letter, stream->lane, max_bytes),
                     letter->number % 3 == 1);
        if (!post_letter(end, letter))
            return false;
    }
    return true;
}

static void stream_start(struct twill_test_end *end, struct stream *stream, uint32_t peer,
                         uint32_t lane, bool sends)
{
    stream->lane = lane;
    stream->sends = sends;
    for (uint32_t w = 0; w < WINDOW; w++) {
        stream->letter[w].from = sends ? end->rank : peer;
        stream->letter[w].to = sends ? peer : end->rank;
    }
}

bool twill_test_flood(struct twill_test_end *end, uint32_t messages, size_t max_bytes)
{
    size_t n = 0, finished = 0;
    struct stream *streams = calloc((size_t)end->size * TWILL_LANES * 2, sizeof(*streams));
    TWILL_REQUIRE(streams != NULL);
    for (uint32_t s = 0; s < end->size * TWILL_LANES * 2; s++)
        if (is_peer(end, s / (TWILL_LANES * 2)))
            stream_start(end, &streams[n++], s / (TWILL_LANES * 2), s / 2 % TWILL_LANES,
                         s % 2 == 0);
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    bool good = true;
    while (good && finished < n) {
        finished = 0;
        for (size_t s = 0; good && s < n; s++) {
            good = stream_step(end, &streams[s], messages, max_bytes);
            finished += streams[s].done == messages;
        }
        good = good && progress(end) &&
               TWILL_NOTE(twill_now() < limit, "rank %u: the flood hangs", end->rank);
    }
    for (size_t s = 0; s < n; s++)
        for (uint32_t w = 0; w < WINDOW; w++) {
            free(streams[s].letter[w].buffer);
            free(streams[s].letter[w].bounce);
        }
    free(streams);
    return good;
}

/* --- mismatch --------------------------------------------------------------------------------- */

bool twill_test_mismatch(struct twill_test_end *end)
{
    static const struct {
        size_t sent, requested;
        uint32_t signature; /* added to the sender's */
    } cases[] = {{100, 64, 0},        {64, 100, 0},      {40000, 30000, 0}, {30000, 70000, 0},
                 {8, 8, 1},           {20000, 20000, 1}, {0, 8, 0},         {8, 0, 0},
                 {100000, 100000, 0}, {8, 8, 0},         {48, 49, 0},       {0, 0, 0}};
    struct letter *letter = calloc(1, sizeof(*letter));
    bool good = letter != NULL;
    for (uint32_t i = 0; good && end->rank < 2 && i < TWILL_ARRAY_LENGTH(cases); i++) {
        bool sends = end->rank == 0;
        bool fits = cases[i].sent == cases[i].requested && cases[i].signature == 0;
        letter->from = 0;
        letter->to = 1;
        letter->number = i;
        write_letter(letter, sends ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV, 3,
                     sends ? cases[i].sent : cases[i].requested, i % 2 == 1);
        letter->request.signature += sends ? cases[i].signature : 0;
        struct twill_transfer *request = &letter->request;
        good = post_letter(end, letter) && twill_test_await(end, request, 1);
        if (!good || sends || fits) {
            good = good && read_letter(end, letter);
            continue;
        }
        good = TWILL_NOTE(request->status == TWILL_ERR_MISMATCH &&
                              request->peer_bytes == cases[i].sent &&
                              request->peer_signature == request->signature + cases[i].signature &&
                              letter->seen == 0,
                          "case %u: status %d, peer sent %llu bytes, %#x", i, request->status,
                          (unsigned long long)request->peer_bytes, request->peer_signature);
        for (size_t b = 0; good && b < request->bytes + 16; b++)
            good = TWILL_NOTE(letter->buffer[b] == 0xee, "case %u: byte %zu was written", i, b);
    }
    free_letters(letter, 1);
    return good;
}

/* --- messages that come too early ------------------------------------------------------------- */

static const struct twill_message_call early_call = {
    .sequence = 0xfffffff0u, .what = 0x00030281u, .count = 0xfedcba987654u, .root = 0xfffe};

struct sighting {
    uint32_t expected; /* sender */
    unsigned count;
    bool wrong;
};

static bool is_early_call(const struct twill_message_call *call)
{
    return memcmp(call, &early_call, sizeof(*call)) == 0;
}

static void see_early(void *user, uint32_t from, const struct twill_message_call *call)
{
    struct sighting *seen = user;
    if (call->sequence == 0)
        return; /* of another test, which its sender has begun */
    seen->count++;
    seen->wrong = seen->wrong || from != seen->expected || !is_early_call(call);
}

/* Look until a message is there, twice, as looking must not take it. */
static bool await_early(struct twill_test_end *end)
{
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    struct sighting seen = {.expected = 0};
    for (unsigned times = 0; times < 2;) {
        seen.count = 0;
        end->transport->ops->early(end->transport, true, see_early, &seen);
        if (seen.count > 0)
            times++;
        if (!progress(end))
            return false;
        TWILL_REQUIRE(!seen.wrong && twill_now() < limit);
    }
    return true;
}

bool twill_test_early(struct twill_test_end *end)
{
    static const struct {
        size_t bytes;
        uint32_t signature;                             /* added to the receiver's */
    } cases[] = {{100, 0}, {0, 0}, {40000, 0}, {8, 1}}; /* the last one ends an ofi lane */
    const struct twill_transport_ops *ops = end->transport->ops;
    struct letter *letter = calloc(1, sizeof(*letter));
    bool good = letter != NULL;
    for (uint32_t i = 0; good && end->rank < 2 && i < TWILL_ARRAY_LENGTH(cases); i++) {
        bool sends = end->rank == 0;
        letter->from = 0;
        letter->to = 1;
        letter->number = i;
        write_letter(letter, sends ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV, 2, cases[i].bytes,
                     false);
        struct twill_transfer *request = &letter->request;
        if (sends)
            request->call = early_call;
        else
            request->signature += cases[i].signature;
        good = (sends || await_early(end)) &&
               ops->connect(end->transport, 1 - end->rank, &end->error) == TWILL_OK &&
               post_letter(end, letter) && twill_test_await(end, request, 1);
        if (good && (sends || cases[i].signature == 0))
            good = read_letter(end, letter);
        else if (good)
            good = TWILL_NOTE(
                request->status == TWILL_ERR_MISMATCH && is_early_call(&request->peer_call),
                "status %d, peer's call %#x", request->status, request->peer_call.what);
    }
    free_letters(letter, 1);
    return good;
}
