/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of transport tests. */
#include "tests/support/messages.h"
#include "fabric/shm/node_memory.h"
#include "tests/support/run.h"

#include <sched.h>
#include <unistd.h>

#define WINDOW    5 /* messages posted at a time on a stream of a flood */
#define SIGNATURE 0x5157u
/* The thread sanitizer is tens of times slower, and finds no more in longer messages. */
#define TSAN_MOST_BYTES ((size_t)500 << 10)

bool twill_test_world(struct twill_world *world, uint32_t size, uint32_t per_node)
{
    uint32_t label[64];
    TWILL_REQUIRE(size <= TWILL_ARRAY_LENGTH(label));
    for (uint32_t r = 0; r < size; r++)
        label[r] = r / per_node;
    return twill_world_create(world, size, label, NULL) == TWILL_OK;
}

/* --- ends ------------------------------------------------------------------------------------- */

bool end_begin(struct twill_test_end *end, twill_bootstrap *caller)
{
    uint32_t rank = (uint32_t)caller->rank;
    *end = (struct twill_test_end){.oob = twill_test_oob(caller),
                                   .rank = rank,
                                   .size = (uint32_t)caller->size,
                                   .peer = 1 - rank};
    end->params.oob = end->oob;
    return TWILL_NOTE(end->oob != NULL, "no memory");
}

bool end_opened(struct twill_test_end *end, twill_status status)
{
    TWILL_REQUIRE(status == TWILL_OK, "rank %u: open: %d: %s", end->rank, status,
                  end->error.message);
    const struct twill_transport_ops *ops = end->transport->ops;
    for (uint32_t r = 0; r < end->size && ops->connect != NULL; r++)
        TWILL_REQUIRE(r == end->rank || ops->connect(end->transport, r, &end->error) == TWILL_OK,
                      "rank %u: connect: %s", end->rank, end->error.message);
    return true;
}

bool end_more(struct twill_test_end *end, const struct twill_test_end *first, uint32_t comm)
{
    *end = *first;
    end->transport = NULL;
    end->params.comm = comm;
    const struct twill_transport_ops *ops = first->transport->ops;
    return end_opened(end, ops->open(&end->transport, &end->params, &end->error));
}

void end_close_more(struct twill_test_end *end)
{
    if (end->transport != NULL)
        end->transport->ops->close(end->transport);
    end->transport = NULL;
}

void end_close(struct twill_test_end *end)
{
    end_close_more(end);
    if (end->common != NULL)
        end->common->close(end->common);
    end->common = NULL;
    twill_test_oob_close(end->oob);
}

bool end_barrier(struct twill_test_end *end)
{
    unsigned char all[64], mine = 0;
    TWILL_REQUIRE(end->size <= sizeof(all));
    return twill_oob_allgather(end->oob, &mine, all, 1, &end->error) == TWILL_OK;
}

/* Ranks that wait together would take whole cores: after some turns they sleep. */
int end_progress(struct twill_test_end *end)
{
    static _Thread_local unsigned idle;
    int moved = end->transport->ops->progress(end->transport, &end->error);
    idle = moved > 0 ? 0 : idle + 1;
    if (idle > 100)
        usleep(100);
    else if (idle > 0)
        sched_yield();
    return moved;
}

bool end_works(struct twill_test_end *end)
{
    return TWILL_NOTE(end_progress(end) >= 0, "rank %u: progress: %s", end->rank,
                      end->error.message);
}

int end_linger(struct twill_test_end *end, uint64_t nanoseconds)
{
    int moved = 0;
    for (uint64_t until = twill_now() + nanoseconds; moved >= 0 && twill_now() < until;)
        moved = end_progress(end);
    return moved;
}

int end_until_failure(struct twill_test_end *end)
{
    return end_linger(end, TWILL_TEST_PATIENCE);
}

struct twill_transfer end_transfer(enum twill_transfer_kind kind, uint32_t peer, uint32_t lane,
                                   void *data, size_t bytes)
{
    return (struct twill_transfer){.kind = (uint8_t)kind,
                                   .peer = peer,
                                   .lane = (uint8_t)lane,
                                   .signature = 7,
                                   .buffer = data,
                                   .bytes = bytes};
}

struct twill_transfer end_one_way(const struct twill_test_end *end, uint32_t lane, void *data,
                                  size_t bytes)
{
    return end_transfer(end->rank == 0 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV, end->peer, lane,
                        data, bytes);
}

bool end_post(struct twill_test_end *end, struct twill_transfer *request)
{
    twill_status status = end->transport->ops->post(end->transport, request, &end->error);
    return TWILL_NOTE(status == TWILL_OK, "rank %u: post: %s", end->rank, end->error.message);
}

bool end_await(struct twill_test_end *end, const struct twill_transfer *requests, size_t n)
{
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    for (size_t i = 0; i < n; i++)
        while (requests[i].status == TWILL_PENDING) {
            if (!end_works(end) || twill_test_failed())
                return false;
            TWILL_REQUIRE(twill_now() < limit,
                          "rank %u: request %zu of %zu (%s, peer %u, lane %u, %zu bytes) hangs",
                          end->rank, i, n,
                          requests[i].kind == TWILL_TRANSFER_SEND ? "SEND" : "RECV",
                          requests[i].peer, requests[i].lane, requests[i].bytes);
        }
    return true;
}

bool end_complete(struct twill_test_end *end, struct twill_transfer *request)
{
    return end_post(end, request) && end_await(end, request, 1);
}

static void end_rank(int rank, int size, twill_bootstrap *caller, void *user)
{
    const struct end_test *test = user;
    struct twill_test_end end;
    if (end_begin(&end, caller) && test->open(&end, test->how)) {
        test->body(&end, test->user);
        if (!twill_test_failed())
            (void)end_barrier(&end); /* none closes while others still receive */
    }
    end_close(&end);
}

void end_test_run(struct end_test test)
{
    if (test.processes)
        twill_test_run_processes(test.ranks, end_rank, &test);
    else
        twill_test_run_ranks(test.ranks, end_rank, &test);
}

/* --- letters ---------------------------------------------------------------------------------- */

/* The thread sanitizer does not look at these loops over bytes, in which it spent most of its time.
 * They use their own memory. memcpy() and memcmp() read and write that of others. */
__attribute__((no_sanitize("thread"))) static void text_part(unsigned char *text, size_t offset,
                                                             size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++)
        text[i] = (unsigned char)((offset + i) * 7 + (offset + i) / 251 + seed);
}

void text_fill(unsigned char *data, size_t bytes, unsigned seed)
{
    unsigned char text[4096];
    for (size_t at = 0, more; at < bytes; at += more) {
        more = twill_min(bytes - at, sizeof(text));
        text_part(text, at, more, seed);
        memcpy(data + at, text, more);
    }
}

bool text_is(const unsigned char *data, size_t offset, size_t bytes, unsigned seed)
{
    unsigned char text[4096];
    for (size_t at = 0, more; at < bytes; at += more) {
        more = twill_min(bytes - at, sizeof(text));
        text_part(text, offset + at, more, seed);
        if (memcmp(data + at, text, more) != 0)
            return false;
    }
    return true;
}

static unsigned seed_of(const struct letter *letter)
{
    return letter->from * 31 + letter->to * 17 + letter->request.lane * 5u + letter->number * 13 +
           1;
}

static void reduce(struct twill_transfer *request, size_t offset, const void *data, size_t bytes)
{
    struct letter *letter = request->reduce_context;
    bool last = offset + bytes == request->bytes;
    if ((offset != letter->seen && !letter->in_chunks) || offset + bytes > request->bytes ||
        (!last && bytes % 8 != 0))
        letter->wrong = true;
    letter->wrong = letter->wrong || !text_is(data, offset, bytes, seed_of(letter));
    if (!letter->wrong)
        memcpy(letter->buffer + offset, data, bytes);
    letter->seen += bytes;
}

void letter_write(struct letter *letter, const struct twill_test_end *end,
                  enum twill_transfer_kind kind, uint32_t peer, uint32_t lane, uint32_t number,
                  size_t bytes, bool reduces)
{
    bool sends = kind == TWILL_TRANSFER_SEND;
    struct twill_transfer *request = &letter->request;
    letter->from = sends ? end->rank : peer;
    letter->to = sends ? peer : end->rank;
    letter->number = number;
    letter->in_chunks = end->in_chunks;
    letter->seen = 0;
    letter->wrong = false;
    letter->buffer = realloc(letter->buffer, bytes + 16);
    letter->bounce = realloc(letter->bounce, reduces ? bytes + 16 : 16);
    *request = end_transfer(kind, peer, lane, letter->buffer, bytes);
    request->signature = SIGNATURE + number;
    memset(letter->buffer, 0xee, bytes + 16);
    if (sends) {
        text_fill(letter->buffer, bytes, seed_of(letter));
        request->last = (struct twill_last_entry){
            .ticks = twill_ticks(), .rank = end->rank, .news = number % 4};
    } else if (reduces) {
        request->reduce = reduce;
        request->reduce_context = letter;
        request->bounce = letter->bounce;
        request->buffer = NULL;
    }
}

bool letter_read(const struct twill_test_end *end, struct letter *letter)
{
    const struct twill_transfer *request = &letter->request;
    size_t bytes = request->bytes;
    bool good = request->status == TWILL_OK && !letter->wrong;
    if (request->kind == TWILL_TRANSFER_RECV && request->reduce != NULL)
        good = good && letter->seen == bytes;
    if (request->kind == TWILL_TRANSFER_RECV && request->last.ticks != 0) /* it is carried */
        good = good && request->last.news == letter->number % 4;
    good = good && text_is(letter->buffer, 0, bytes, seed_of(letter));
    for (size_t i = 0; good && i < 16; i++)
        good = letter->buffer[bytes + i] == 0xee;
    return TWILL_NOTE(good,
                      "rank %u, message %u from %u to %u, lane %u, %zu bytes: status %d, "
                      "%zu reduced, contents %s",
                      end->rank, letter->number, letter->from, letter->to, request->lane, bytes,
                      request->status, letter->seen, good ? "right" : "wrong");
}

bool letters_run(struct twill_test_end *end, struct letter *letters, size_t n)
{
    bool good = true;
    for (size_t i = 0; good && i < n; i++)
        good = end_post(end, &letters[i].request);
    for (size_t i = 0; good && i < n; i++)
        good = end_await(end, &letters[i].request, 1) && letter_read(end, &letters[i]);
    return good;
}

void letters_free(const struct twill_test_end *end, struct letter *letters, size_t n)
{
    if (twill_test_failed() && end->transport != NULL)
        end->transport->ops->cancel(end->transport);
    for (size_t i = 0; letters != NULL && i < n; i++) {
        free(letters[i].buffer);
        free(letters[i].bounce);
    }
    free(letters);
}

/* --- sweep ------------------------------------------------------------------------------------ */

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
        for (uint32_t peer = 0; peer < end->size; peer++)
            if (is_peer(end, peer))
                letter_write(&letters[n++], end, sends ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV,
                             peer, number % TWILL_LANES, number, bytes, reduces);
    }
    return letters_run(end, letters, n);
}

bool twill_test_sweep(struct twill_test_end *end, const size_t *sizes, size_t n)
{
    struct letter *letters = calloc(2 * (size_t)end->size, sizeof(*letters));
    bool good = letters != NULL;
    for (size_t i = 0; good && i < 2 * n; i++)
        if (!TEST_TSAN || n == 1 || sizes[i / 2] < TSAN_MOST_BYTES)
            good = swap_all(end, letters, sizes[i / 2], (uint32_t)i, i % 2 == 1);
    letters_free(end, letters, 2 * (size_t)end->size);
    return good;
}

/* --- flood ------------------------------------------------------------------------------------ */

/* One direction of one lane with one peer: up to WINDOW letters posted, in order of their
 * numbers. */
struct stream {
    struct letter letter[WINDOW];
    uint32_t peer, lane, posted, done;
    enum twill_transfer_kind kind;
};

static size_t size_of_letter(const struct twill_test_end *end, const struct stream *stream,
                             uint32_t number, size_t max_bytes)
{
    bool sends = stream->kind == TWILL_TRANSFER_SEND;
    uint32_t from = sends ? end->rank : stream->peer, to = sends ? stream->peer : end->rank;
    uint32_t x = from * 2654435761u + to * 40503u + stream->lane * 977u + number * 2246822519u + 1;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    /* half of them fit into a line */
    return x & 1 ? (x >> 1) % 49 : (x >> 1) % (max_bytes + 1);
}

static bool stream_step(struct twill_test_end *end, struct stream *stream, uint32_t messages,
                        size_t max_bytes)
{
    while (stream->done < stream->posted) {
        struct letter *oldest = &stream->letter[stream->done % WINDOW];
        if (oldest->request.status == TWILL_PENDING)
            break;
        if (!letter_read(end, oldest))
            return false;
        stream->done++;
    }
    while (stream->posted < messages && stream->posted < stream->done + WINDOW) {
        struct letter *letter = &stream->letter[stream->posted % WINDOW];
        uint32_t number = stream->posted++;
        letter_write(letter, end, stream->kind, stream->peer, stream->lane, number,
                     size_of_letter(end, stream, number, max_bytes), number % 3 == 1);
        if (!end_post(end, &letter->request))
            return false;
    }
    return true;
}

bool twill_test_flood(struct twill_test_end *end, uint32_t messages, size_t max_bytes)
{
    size_t n = 0, finished = 0;
    struct stream *streams = calloc((size_t)end->size * TWILL_LANES * 2, sizeof(*streams));
    TWILL_REQUIRE(streams != NULL);
    for (uint32_t s = 0; s < end->size * TWILL_LANES * 2; s++)
        if (is_peer(end, s / (TWILL_LANES * 2)))
            streams[n++] =
                (struct stream){.peer = s / (TWILL_LANES * 2),
                                .lane = s / 2 % TWILL_LANES,
                                .kind = s % 2 == 0 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV};
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    bool good = true;
    while (good && finished < n) {
        finished = 0;
        for (size_t s = 0; good && s < n; s++) {
            good = stream_step(end, &streams[s], messages, max_bytes);
            finished += streams[s].done == messages;
        }
        good = good && end_works(end) &&
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
        letter_write(letter, end, sends ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV, end->peer, 3,
                     i, sends ? cases[i].sent : cases[i].requested, i % 2 == 1);
        letter->request.signature += sends ? cases[i].signature : 0;
        struct twill_transfer *request = &letter->request;
        good = end_complete(end, request);
        if (!good || sends || fits) {
            good = good && letter_read(end, letter);
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
    letters_free(end, letter, 1);
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
        if (!end_works(end))
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
        letter_write(letter, end, sends ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV, end->peer, 2,
                     i, cases[i].bytes, false);
        struct twill_transfer *request = &letter->request;
        if (sends)
            request->call = early_call;
        else
            request->signature += cases[i].signature;
        good = (sends || await_early(end)) &&
               (ops->connect == NULL ||
                ops->connect(end->transport, end->peer, &end->error) == TWILL_OK) &&
               end_complete(end, request);
        if (good && (sends || cases[i].signature == 0))
            good = letter_read(end, letter);
        else if (good)
            good = TWILL_NOTE(
                request->status == TWILL_ERR_MISMATCH && is_early_call(&request->peer_call),
                "status %d, peer's call %#x", request->status, request->peer_call.what);
    }
    letters_free(end, letter, 1);
    return good;
}
