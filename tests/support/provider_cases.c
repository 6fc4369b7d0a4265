/* SPDX-License-Identifier: Apache-2.0 */
/* Each provider must do this below the ofi transport, case by case. */
#include "tests/support/provider_cases.h"
#include "tests/support/run.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static bool start(const struct run *run, struct twill_test_end *end)
{
    return end_opened(end,
                      twill_ofi_open(&end->transport, &end->params, &run->options, &end->error));
}

/* Wait for all ranks while progressing, as ranks do inside twill calls. */
static bool gather(const struct run *run, struct twill_test_end *end)
{
    int rank = run->caller->rank;
    unsigned mine = atomic_fetch_add(&run->outcome->arrived[rank], 1) + 1;
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    for (int r = 0; r < run->caller->size;) {
        if ((int)(atomic_load(&run->outcome->arrived[r]) - mine) >= 0) {
            r++;
            continue;
        }
        TWILL_REQUIRE(!twill_test_failed());
        TWILL_REQUIRE(twill_now() < limit, "rank %d waits for rank %d to arrive", rank, r);
        (void)end_progress(end);
    }
    return true;
}

/* Exchange messages of each size with the other rank, twice, both directions at the same time. */
static bool exchange(struct twill_test_end *end, const size_t *bytes, size_t n, uint32_t number)
{
    struct letter *letters = calloc(4 * n, sizeof(*letters));
    TWILL_REQUIRE(letters != NULL);
    for (uint32_t i = 0; i < 4 * n; i++)
        letter_write(&letters[i], end, i % 4 < 2 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV,
                     end->peer, i / 4 % TWILL_OFI_LANES, number + i / 4 * 2 + i % 2, bytes[i / 4],
                     i % 4 == 3);
    bool fine = letters_run(end, letters, 4 * n);
    letters_free(end, letters, 4 * n);
    return fine;
}

/* --- cases ------------------------------------------------------------------------------------ */

static void describe(const struct run *run, const struct twill_test_end *end)
{
    const struct twill_ofi *t = ofi_of(end);
    struct outcome *o = run->outcome;
    snprintf(o->name, sizeof(o->name), "%.31s", t->endpoint->fi.info->fabric_attr->prov_name);
    snprintf(o->description, sizeof(o->description), "%.255s",
             twill_ofi_transport.describe(end->transport));
    o->address_bytes = t->endpoint->addresses.length[end->rank];
    o->max_message = t->endpoint->fi.info->ep_attr->max_msg_size;
    o->inject = t->endpoint->fi.info->tx_attr->inject_size;
    o->tag_format = t->endpoint->fi.info->ep_attr->mem_tag_format;
    o->mr_mode = t->endpoint->fi.info->domain_attr->mr_mode;
}

/* Where a lost connection crashes the provider while a message is pulled, none is long enough. */
static bool pulls_safely(const struct twill_ofi_endpoint *endpoint)
{
    const struct fi_fabric_attr *fabric = endpoint->fi.info->fabric_attr;
    bool crashes =
        strcmp(fabric->prov_name, "tcp;ofi_rxm") == 0 && FI_MAJOR(fabric->prov_version) < 118;
    return TWILL_NOTE(!crashes || endpoint->limits.max_message <= TWILL_OFI_PULLED,
                      "messages of %zu bytes", endpoint->limits.max_message);
}

/* Sizes from 0 to a megabyte and a bit, one after the other and all at the same time. */
static bool case_sizes(struct run *run, struct twill_test_end *end)
{
    enum { SHORT = TWILL_OFI_EAGER };
    static const size_t sizes[] = {
        0,    1,         8,     31,        32,    33,    48,    64,
        4095, SHORT - 1, SHORT, SHORT + 1, 16384, 16385, 65536, (1u << 20) + 3};
    if (!start(run, end))
        return false;
    if (end->rank == 0)
        describe(run, end);
    bool fine = pulls_safely(ofi_of(end)->endpoint);
    for (uint32_t i = 0; fine && i < TWILL_ARRAY_LENGTH(sizes); i++)
        fine = exchange(end, &sizes[i], 1, i * 100);
    fine = fine && exchange(end, sizes, TWILL_ARRAY_LENGTH(sizes), 5000);
    size_t expected = run->provider->address_bytes;
    size_t length = ofi_of(end)->endpoint->addresses.length[0];
    return fine && TWILL_NOTE(expected == 0 || length == expected,
                              "addresses of %zu bytes, not %zu", length, expected);
}

/* Sizes beyond the provider's longest message: real if that is short, else limited by an option. */
static bool case_beyond(struct run *run, struct twill_test_end *end)
{
    size_t longest = run->outcome->max_message;
    bool real = longest <= TWILL_OFI_CHUNK / 4;
    const size_t sizes[] = {real ? longest - 64 : 65536 - 64, real ? longest : 65536,
                            real ? longest + 1 : 65537, real ? 2 * longest + 68 : 300004};
    run->options.max_message = real ? 0 : 65536;
    return start(run, end) && exchange(end, sizes, TWILL_ARRAY_LENGTH(sizes), 0);
}

/* Many messages on all lanes between all ranks, and their counters. */
static bool case_lanes(struct run *run, struct twill_test_end *end)
{
    enum { each = 24 };
    const uint64_t n = (uint64_t)(end->size - 1) * TWILL_LANES * each;
    if (!start(run, end) || !twill_test_flood(end, each, 100000))
        return false;
    const struct twill_transport_counters *c = &end->transport->counters;
    return TWILL_NOTE(c->messages == n && c->bytes > 2 * n && c->header_bytes >= n * 32 &&
                          c->copied > 0 && (run->options.again == 0 || c->again > n / 2),
                      "counters");
}

/* Ranks that answer each other return credit in their headers, and send no other messages. */
static bool case_answers(struct run *run, struct twill_test_end *end)
{
    enum { each = 24 };
    struct letter *letter = calloc(1, sizeof(*letter));
    bool good = letter != NULL && start(run, end);
    for (uint32_t i = 0; good && i < 2 * each; i++) {
        letter_write(letter, end, i % 2 == end->rank ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV,
                     end->peer, 0, i, 8, false);
        good = letters_run(end, letter, 1);
    }
    letters_free(end, letter, 1);
    if (!good)
        return false;
    const struct twill_transport_counters *c = &end->transport->counters;
    return TWILL_NOTE(c->messages == each &&
                          (c->header_bytes == each * sizeof(struct twill_ofi_header) ||
                           ofi_of(end)->endpoint->limits.preposts),
                      "%llu bytes of headers", (unsigned long long)c->header_bytes);
}

/* Both ranks send thousands of messages before either posts a RECV. */
static bool case_unexpected(struct run *run, struct twill_test_end *end)
{
    const uint32_t many = TEST_FEWER ? 1500 : 3000;
    struct letter *letters = calloc(2 * many, sizeof(*letters));
    bool fine = letters != NULL && start(run, end);
    for (uint32_t i = 0; fine && i < 2 * many; i++) {
        uint32_t n = i % many;
        letter_write(&letters[i], end, i < many ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV,
                     end->peer, n % TWILL_OFI_LANES, n, n % 100 == 7 ? 20000 + 4 * n : n % 200,
                     n % 5 == 0);
        fine = i >= many || end_post(end, &letters[i].request);
    }
    fine = fine && end_linger(end, SECOND / 5) >= 0 && letters_run(end, letters + many, many);
    for (uint32_t i = 0; fine && i < many; i++)
        fine = end_await(end, &letters[i].request, 1) && letter_read(end, &letters[i]);
    letters_free(end, letters, 2 * many);
    return fine;
}

/* Messages that have come before their RECV is posted are seen. */
static bool case_early(struct run *run, struct twill_test_end *end)
{
    if (!start(run, end) || !twill_test_early(end))
        return false;
    bool fine = gather(run, end);
    twill_ofi_transport.cancel(end->transport);
    return fine;
}

/* The provider returns FI_EAGAIN at every other post, injects nothing and needs all memory
 * registered. */
static bool case_again(struct run *run, struct twill_test_end *end)
{
    static const size_t sizes[] = {0, 8, 5000, 48, 16384, 8192, 30000, 1, 100000, 64, 16, 200004};
    run->options.again = 2;
    run->options.no_inject = true;
    run->options.max_message = 40000;
    if (!start(run, end))
        return false;
    for (uint32_t i = 0; i < 5; i++)
        if (!exchange(end, sizes, TWILL_ARRAY_LENGTH(sizes), i * 1000))
            return false;
    return TWILL_NOTE(end->transport->counters.again > 100, "\"later\" %llu times only",
                      (unsigned long long)end->transport->counters.again);
}

/* One rank is late, first to connect and later to receive. */
static bool case_late(struct run *run, struct twill_test_end *end)
{
    static const size_t sizes[] = {8, 100, 8000, 50000, 1 << 20, 8, 0};
    if (end->rank == 1)
        usleep(200000);
    if (!start(run, end))
        return false;
    if (end->rank == 1)
        usleep(500000);
    bool fine = exchange(end, sizes, TWILL_ARRAY_LENGTH(sizes), 0);
    if (end->rank == 0)
        usleep(100000);
    return fine && exchange(end, sizes, TWILL_ARRAY_LENGTH(sizes), 100);
}

/* The bytes that rank 0 sends, and those that rank 1 expects, which differ. */
static const struct disagreement {
    size_t bytes[2];
    uint32_t signature; /* added by rank 1 */
} disagreements[] = {
    {{8, 16}, 0},
    {{16, 8}, 0},
    {{8, 8}, 1},
    {{0, 8}, 0},
    {{8, 0}, 0},
    {{8, 100000}, 0},
    {{100000, 8}, 0},
    {{100000, 100000}, 1},
    {{100000, 200000}, 0},
    {{200000, 100000}, 0},
    {{TWILL_OFI_EAGER, TWILL_OFI_EAGER + 1}, 0},
    {{TWILL_OFI_EAGER + 1, TWILL_OFI_EAGER}, 0},
    {{TWILL_OFI_BUFFER_BYTES, TWILL_OFI_BUFFER_BYTES + 1}, 0},
    {{TWILL_OFI_BUFFER_BYTES + 1, TWILL_OFI_BUFFER_BYTES}, 0},
};

/* Both ranks get an error, and no provider ever sees too small a receive. But a short message is
 * sent without an answer, and there is none to a long SEND that meets a short RECV. */
static bool disagree(const struct run *run, struct twill_test_end *end,
                     const struct disagreement *d)
{
    size_t most = ofi_of(end)->endpoint->limits.split;
    unsigned char *data = calloc(1, 200000);
    struct twill_transfer r = end_one_way(end, 0, data, d->bytes[end->rank]);
    twill_status expected = TWILL_ERR_MISMATCH;
    r.signature += end->rank * d->signature;
    if (end->rank == 0 && d->bytes[0] <= most)
        expected = TWILL_OK;
    else if (end->rank == 0 && d->bytes[1] <= most)
        expected = TWILL_PENDING;
    bool fine = data != NULL && end_post(end, &r) &&
                (expected == TWILL_PENDING || end_await(end, &r, 1)) && gather(run, end);
    twill_ofi_transport.cancel(end->transport);
    free(data);
    return fine &&
           TWILL_NOTE(r.status == expected, "rank %u: status %d, not %d", end->rank, r.status,
                      expected) &&
           TWILL_NOTE(expected != TWILL_ERR_MISMATCH ||
                          (r.peer_bytes == d->bytes[end->peer] &&
                           r.peer_signature == 7 + end->peer * d->signature),
                      "rank %u: %llu bytes, signature %u", end->rank,
                      (unsigned long long)r.peer_bytes, r.peer_signature);
}

static bool case_differ(struct run *run, struct twill_test_end *end)
{
    bool fine = true;
    for (uint32_t i = 0; fine && i < TWILL_ARRAY_LENGTH(disagreements); i++) {
        end_close_more(end);
        fine = start(run, end) && disagree(run, end, &disagreements[i]);
    }
    return fine;
}

enum { PROVIDER_CASES_HOPELESS = 12 };

const char *test_provider_way_back(const struct provider *provider)
{
    static const char variable[] = "TEST_DOUBLE_CANCEL=";
    const char *settings = provider->settings;
    size_t n = sizeof(variable) - 1;
    return settings != NULL && strncmp(settings, variable, n) == 0 ? settings + n : NULL;
}

bool test_provider_has(const struct provider *provider, const struct provider_case *c)
{
    return c->cancels || test_provider_way_back(provider) == NULL;
}

/* Count the receives of a communicator that its provider has not returned. */
static uint32_t receives_out(const struct twill_ofi *t)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < t->size; r++) {
        for (uint32_t l = 0; t->peers[r] != NULL && l < TWILL_OFI_LANES; l++) {
            const struct twill_ofi_channel *channel = &t->peers[r]->channels[l];
            for (uint32_t i = 0; i < TWILL_OFI_HEADERS; i++)
                n += channel->header_in[i].posted;
            for (uint32_t i = 0; i < TWILL_OFI_CHUNKS; i++)
                n += channel->chunk_in[i].posted;
        }
    }
    return n;
}

/* Check what a communicator that was cancelled has left at its provider. Sends may stay there as
 * long as nobody receives them. */
static bool came_back(const struct run *run, const struct twill_test_end *end)
{
    const struct twill_ofi *t = ofi_of(end);
    const char *way = test_provider_way_back(run->provider);
    if (way == NULL)
        return true;
    bool back = strcmp(way, "twice") == 0 || strcmp(way, "error") == 0;
    uint32_t out = receives_out(t);
    return TWILL_NOTE(back == (out == 0), "%s: %u receives are out", way, out) &&
           TWILL_NOTE(twill_ofi_is_closed(t->endpoint) == (t->chunks_busy > 0),
                      "%s: the endpoint is %s with %u chunks out", way,
                      t->endpoint->fi.ep == NULL ? "closed" : "open", t->chunks_busy) &&
           TWILL_NOTE(t->endpoint->strays > 0 || !back, "%s: no completion was in vain", way);
}

/* Requests that never complete, with memory that becomes invalid. */
struct hopeless {
    struct twill_transfer *requests;
    unsigned char *data;
};

/* Post receives and sends of all kinds. *moved: the status with which the transport refuses one. */
static bool post_hopeless(struct twill_test_end *end, struct hopeless *h, size_t n, int *moved)
{
    h->data = page_map((size_t)PROVIDER_CASES_HOPELESS << 20);
    h->requests = (struct twill_transfer *)(void *)page_map(1u << 20);
    TWILL_REQUIRE(h->data != NULL && h->requests != NULL);
    for (size_t i = 0; i < n && *moved >= 0; i++) {
        h->requests[i] =
            end_transfer(i % 2 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV, end->peer,
                         (uint32_t)(1 + i / 2 % 3), h->data + (i << 20), i % 4 < 2 ? 64 : 1u << 20);
        *moved = twill_ofi_transport.post(end->transport, &h->requests[i], &end->error);
    }
    return true;
}

static void cancel_hopeless(struct twill_test_end *end, const struct hopeless *h)
{
    twill_ofi_transport.cancel(end->transport);
    munmap(h->data, (size_t)PROVIDER_CASES_HOPELESS << 20);
    munmap(h->requests, 1u << 20);
}

/* One rank cancels with much in progress. The other continues. It may fail but not hang. */
static bool case_cancel(struct run *run, struct twill_test_end *end)
{
    struct hopeless h;
    int moved = 0;
    size_t n = end->rank == 0 ? PROVIDER_CASES_HOPELESS : PROVIDER_CASES_HOPELESS / 2;
    if (!start(run, end) || !post_hopeless(end, &h, n, &moved))
        return false;
    (void)end_linger(end, SECOND / 20);
    bool fine = gather(run, end);
    if (end->rank == 0) {
        cancel_hopeless(end, &h);
        fine = came_back(run, end) && fine;
    }
    fine = gather(run, end) && fine;
    if (end->rank == 1)
        cancel_hopeless(end, &h);
    struct twill_transfer late = end_transfer(TWILL_TRANSFER_SEND, end->peer, 0, NULL, 0);
    TWILL_REQUIRE(twill_ofi_transport.post(end->transport, &late, NULL) == TWILL_ERR_BROKEN);
    TWILL_REQUIRE(twill_ofi_transport.progress(end->transport, NULL) < 0);
    return fine;
}

/* Communicators in use at the same time, the ranks in opposite order. */
static bool case_communicators(struct run *run, struct twill_test_end *end)
{
    enum { comms = 6, messages = 4 * comms };
    struct twill_test_end more[comms], *at[comms] = {end};
    struct letter *letters = calloc(messages, sizeof(*letters));
    end->params.common = &end->common;
    end->params.comm = 4095;
    bool fine = letters != NULL && start(run, end);
    for (uint32_t c = 1; fine && c < comms; c++) {
        at[c] = &more[c];
        fine = end_more(at[c], end, c);
    }
    for (uint32_t i = 0; fine && i < messages; i++) {
        uint32_t c = end->rank == 0 ? i % comms : comms - 1 - i % comms;
        letter_write(&letters[i], end, i / comms & 2 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV,
                     end->peer, 3, c * 100 + i / comms % 2, i / comms % 2 ? 70000 : 80, false);
        fine = end_post(at[c], &letters[i].request);
    }
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    for (uint32_t i = 0; fine && i < messages;) {
        for (uint32_t c = 0; fine && c < comms; c++)
            fine = end_works(at[c]);
        fine = fine && TWILL_NOTE(twill_now() < limit, "message %u hangs", i);
        i += letters[i].request.status != TWILL_PENDING ? 1 : 0;
    }
    for (uint32_t i = 0; fine && i < messages; i++)
        fine = letter_read(end, &letters[i]);
    for (uint32_t c = 0; fine && c < comms; c++)
        fine = gather(run, at[c]);
    for (uint32_t c = 1; fine && c < comms; c++)
        end_close_more(at[c]);
    letters_free(end, letters, messages);
    return fine;
}

/* --- unauthenticated and dead peers ----------------------------------------------------------- */

/* Ranks 0 and 1 are a job; rank 2 believes that it is rank 1 of a job with rank 0. */
struct view {
    struct twill_oob oob;
    twill_bootstrap *caller;
};

static twill_status view_gather(struct twill_oob *oob, const void *mine, void *all, size_t bytes,
                                struct twill_error *error)
{
    const struct view *view = (const struct view *)oob;
    unsigned char *gathered = malloc(3 * bytes);
    if (gathered == NULL ||
        view->caller->exchange(view->caller->user, mine, gathered, bytes) != 0) {
        free(gathered);
        return TWILL_FAIL(error, TWILL_ERR_BOOTSTRAP, "the test's exchange failed");
    }
    memcpy(all, gathered, bytes);
    memcpy((unsigned char *)all + bytes, gathered + (view->caller->rank == 2 ? 2 : 1) * bytes,
           bytes);
    free(gathered);
    return TWILL_OK;
}

static const struct twill_bootstrap_ops view_ops = {
    .size_of = sizeof(struct twill_bootstrap_ops),
    .name = "view",
    .allgather = view_gather,
};

/* Open an end of two ranks seen from the three; the other job has another nonce. */
static bool view_open(struct view *view, const struct run *run, struct twill_test_end *end)
{
    bool intrudes = end->rank == 2;
    end->rank = end->rank == 0 ? 0 : 1;
    end->peer = 1 - end->rank;
    end->size = 2;
    view->caller = run->caller;
    view->oob = *end->oob;
    view->oob.ops = &view_ops;
    view->oob.rank = (int)end->rank;
    view->oob.size = 2;
    for (size_t i = 0; intrudes && i < TWILL_NONCE_BYTES; i++)
        view->oob.nonce[i] ^= 0x5a;
    end->params.oob = &view->oob;
    return start(run, end);
}

/* Prepare what goes from rank 1 to rank 0. */
static struct letter *view_letters(const struct twill_test_end *end)
{
    struct letter *letters = calloc(4, sizeof(*letters));
    for (uint32_t i = 0; letters != NULL && i < 4; i++)
        letter_write(&letters[i], end, end->rank == 1 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV,
                     end->peer, i / 2, i % 2, i % 2 == 0 ? 64 : 100000, false);
    return letters;
}

/* Send to rank 0 with valid rank, communicator and channels; may fail. */
static bool intrude(const struct run *run, struct twill_test_end *end)
{
    struct letter *letters = view_letters(end);
    int moved = 0;
    for (uint32_t i = 0; letters != NULL && i < 4 && moved >= 0; i++)
        moved = twill_ofi_transport.post(end->transport, &letters[i].request, NULL);
    (void)end_linger(end, SECOND / 5);
    bool fine = gather(run, end);
    fine = gather(run, end) && fine;
    twill_ofi_transport.cancel(end->transport);
    letters_free(end, letters, 4);
    return fine;
}

/* Rank 0 receives nothing for a while, and then what rank 1 sends. */
static bool receive_own(const struct run *run, struct twill_test_end *end)
{
    struct letter *letters = view_letters(end);
    bool sends = end->rank == 1, fine = letters != NULL;
    for (uint32_t i = 0; fine && !sends && i < 4; i++)
        fine = end_post(end, &letters[i].request);
    fine = fine && end_linger(end, SECOND / 4) >= 0;
    for (uint32_t i = 0; fine && !sends && i < 4; i++)
        fine = TWILL_NOTE(letters[i].request.status == TWILL_PENDING,
                          "RECV %u ended with %d by an unauthenticated message", i,
                          letters[i].request.status);
    fine = gather(run, end) && fine;
    for (uint32_t i = 0; fine && sends && i < 4; i++)
        fine = end_post(end, &letters[i].request);
    for (uint32_t i = 0; fine && i < 4; i++)
        fine = end_await(end, &letters[i].request, 1) && letter_read(end, &letters[i]);
    fine = gather(run, end) && fine;
    letters_free(end, letters, 4);
    return fine;
}

/* Another job writes to rank 0 as if it were rank 1. Rank 0 accepts nothing of it, and everything
 * from its own rank 1 afterwards. */
static bool case_intruder(struct run *run, struct twill_test_end *end)
{
    struct view view;
    bool fine = view_open(&view, run, end) &&
                (run->caller->rank == 2 ? intrude(run, end) : receive_own(run, end));
    end_close_more(end); /* the view ends */
    return fine;
}

/* A peer is killed. The provider need not notice (the detector does); there must be no hang, no
 * crash, and no message that seems to have arrived. */
static bool case_death(struct run *run, struct twill_test_end *end)
{
    static const size_t sizes[] = {50000, 8};
    const bool tcp_notices = strcmp(run->provider->name, "tcp") == 0;
    struct hopeless h;
    int moved = 0;
    if (end->rank == 1)
        twill_test_expect_death(1);
    if (!start(run, end) || !exchange(end, sizes, 2, 0) || !gather(run, end))
        return false;
    if (end->rank == 1)
        _exit(9);
    TWILL_REQUIRE(post_hopeless(end, &h, PROVIDER_CASES_HOPELESS, &moved));
    bool posted = moved >= 0;
    if (posted)
        moved = end_linger(end, SECOND / 2);
    bool fine = TWILL_NOTE(moved >= 0 || moved == TWILL_ERR_PEER ||
                               (moved == TWILL_ERR_FABRIC && !tcp_notices),
                           "status %d: %s", moved, end->error.message);
    for (size_t i = 0; posted && i < PROVIDER_CASES_HOPELESS; i += 2)
        fine = fine && TWILL_NOTE(h.requests[i].status == TWILL_PENDING,
                                  "RECV %zu from the dead rank: %d", i, h.requests[i].status);
    cancel_hopeless(end, &h);
    end_close_more(end);
    return fine;
}

bool test_provider_run(const struct provider_case *c, const struct run *run,
                       twill_bootstrap *caller)
{
    struct run own = *run;
    struct twill_test_end end;
    own.caller = caller;
    if (!end_begin(&end, caller))
        return false;
    if (run->address != NULL)
        snprintf(end.oob->address, sizeof(end.oob->address), "%s", run->address);
    end.params.provider = run->provider->name;
    end.params.interface = run->provider->interface;
    end.params.comm = 1;
    bool fine = c->fn(&own, &end);
    if (end.transport != NULL) /* none closes while others still receive */
        fine = gather(&own, &end) && fine;
    end_close(&end);
    return fine;
}

/* Rank 0 writes into memory of rank 1, twice as many parts as may be under way, and then sends a
 * message on the same lane. When that is there, the data are. */
static bool case_writes(struct run *run, struct twill_test_end *end)
{
    enum { PARTS = 2 * TWILL_OFI_CHUNKS, APART = 150000 };
    static const size_t sizes[PARTS] = {109, 4095, 1, 70001, 65536, 130003, 8, 33333};
    struct twill_transfer writes[PARTS + 1];
    struct twill_remote all[2], own = {0};
    unsigned char *memory = aligned_alloc(4096, PARTS * APART / 4096 * 4096 + 4096), note = 7;
    TWILL_REQUIRE(memory != NULL && start(run, end));
    const struct twill_transport_ops *ops = end->transport->ops;
    bool writable = ops->expose(end->transport, memory, PARTS * APART, &own);
    const char *name = ofi_of(end)->endpoint->fi.info->fabric_attr->prov_name;
    TWILL_REQUIRE(writable == test_provider_writes(name), "%s: %d", name, writable);
    TWILL_REQUIRE(twill_oob_allgather(end->oob, &own, all, sizeof(own), &end->error) == TWILL_OK);
    for (unsigned round = 0; writable && round < 3; round++) {
        for (unsigned i = 0; i < PARTS; i++) {
            unsigned char *part = memory + (size_t)i * APART;
            memset(part, 0, APART);
            if (end->rank == 0)
                text_fill(part, sizes[i], i + round);
            writes[i] = end_transfer(TWILL_TRANSFER_WRITE, end->peer, 1, part, sizes[i]);
            writes[i].remote = (struct twill_remote){all[1].at + (size_t)i * APART, all[1].key};
        }
        TWILL_REQUIRE(gather(run, end));
        writes[PARTS] = end_one_way(end, 1, &note, 1);
        for (unsigned i = end->rank == 0 ? 0 : PARTS; i <= PARTS; i++)
            TWILL_REQUIRE(end_post(end, &writes[i]));
        TWILL_REQUIRE(
            end_await(end, &writes[end->rank == 0 ? 0 : PARTS], end->rank == 0 ? PARTS + 1 : 1));
        for (unsigned i = 0; i < PARTS; i++)
            TWILL_REQUIRE(text_is(memory + (size_t)i * APART, 0, sizes[i], i + round) &&
                              memory[(size_t)i * APART + sizes[i]] == 0,
                          "rank %u, round %u, part %u", end->rank, round, i);
    }
    TWILL_REQUIRE(gather(run, end));
    if (writable)
        ops->conceal(end->transport, &own);
    TWILL_REQUIRE(ofi_of(end)->endpoint->exposures == NULL);
    free(memory);
    return true;
}

bool test_provider_writes(const char *name)
{
    static const char *const writers[] = {"tcp;ofi_rxm", "verbs;ofi_rxm", "tcp",
                                          "sockets",     "gni",           "cxi"};
    bool found = false;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(writers); i++)
        found = found || strcmp(name, writers[i]) == 0;
    return found;
}

const struct provider_case test_provider_cases[] = {
    {"sizes", 2, false, true, case_sizes},
    {"beyond the longest message", 2, false, false, case_beyond},
    {"lanes", 3, false, false, case_lanes},
    {"answers", 2, false, false, case_answers},
    {"writes", 2, false, false, case_writes},
    {"unexpected messages", 2, false, false, case_unexpected},
    {"early messages", 3, false, false, case_early},
    {"later, later", 2, false, false, case_again},
    {"late peers", 2, false, false, case_late},
    {"ranks that differ", 2, false, false, case_differ},
    {"cancel", 2, false, true, case_cancel},
    {"communicators", 2, false, true, case_communicators},
    {"unauthenticated peers", 3, true, false, case_intruder},
    {"death", 2, true, true, case_death},
    {NULL, 0, false, false, NULL},
};
