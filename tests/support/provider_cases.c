/* SPDX-License-Identifier: Apache-2.0 */
/* What every provider must do below the ofi transport, case by case. */
#include "tests/support/provider_cases.h"
#include "tests/support/run.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static bool start_with(struct end *end, twill_bootstrap *caller, struct run *run, uint32_t comm,
                       struct twill_ofi_options options, struct twill_common **common)
{
    run->setup = (struct setup){
        .name = run->provider->title, .provider = run->provider->name, .options = options};
    return end_open_at(end, caller, &run->setup, comm,
                       &(struct place){.common = common,
                                       .interface = run->provider->interface,
                                       .address = run->address});
}

static bool start(struct end *end, twill_bootstrap *caller, struct run *run, uint32_t comm,
                  struct twill_ofi_options options)
{
    return start_with(end, caller, run, comm, options, NULL);
}

/* Wait for all ranks while progressing, as ranks do inside twill calls. */
static bool gather(struct run *run, struct end *end, int rank, int size)
{
    unsigned mine = atomic_fetch_add(&run->outcome->arrived[rank], 1) + 1;
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    for (int r = 0; r < size;) {
        if ((int)(atomic_load(&run->outcome->arrived[r]) - mine) >= 0) {
            r++;
            continue;
        }
        TWILL_REQUIRE(!twill_test_failed());
        TWILL_REQUIRE(twill_now() < limit, "rank %d waits for rank %d to arrive", rank, r);
        rest_unless(end->transport != NULL &&
                    twill_ofi_transport.progress(end->transport, &end->error) > 0);
    }
    return true;
}

static bool stop(struct run *run, struct end *end)
{
    bool good = gather(run, end, (int)end->rank, 2);
    end_close(end);
    return good;
}

static void linger(struct end *end, uint64_t nanoseconds)
{
    uint64_t until = twill_now() + nanoseconds;
    while (twill_now() < until && progress(end))
        ;
}

/* After a failure: cancel, so that nothing is written to memory that the case frees. */
static void give_up(struct end *end, bool fine)
{
    if (!fine)
        twill_ofi_transport.cancel(end->transport);
}

/* Exchange messages of each size with the other rank, twice, both directions at the same time. */
static bool exchange(struct end *end, const size_t *bytes, size_t n, uint32_t number)
{
    struct message *m = calloc(4 * n, sizeof(*m));
    TWILL_REQUIRE(m != NULL);
    bool fine = true;
    for (uint32_t i = 0; i < 4 * n; i++)
        fine =
            fine && message_make(&m[i], end, i % 4 < 2 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV,
                                 1 - end->rank, i / 4 % TWILL_OFI_LANES, number + i / 4 * 2 + i % 2,
                                 bytes[i / 4], i % 4 == 3);
    fine = fine && messages_run(end, m, 4 * n);
    give_up(end, fine);
    message_free(m, 4 * n);
    return fine;
}

/* --- cases: each runs on every rank, opens its own ends and has a deadline -------------------- */

static void describe(struct run *run, const struct end *end)
{
    const struct twill_ofi *t = (const struct twill_ofi *)end->transport;
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
static bool case_sizes(struct run *run, twill_bootstrap *caller)
{
    static const size_t sizes[] = {0,
                                   1,
                                   8,
                                   31,
                                   32,
                                   33,
                                   48,
                                   64,
                                   4095,
                                   TWILL_OFI_EAGER - 1,
                                   TWILL_OFI_EAGER,
                                   TWILL_OFI_EAGER + 1,
                                   16384,
                                   16385,
                                   65536,
                                   (1u << 20) + 3};
    struct end end;
    if (!start(&end, caller, run, 1, (struct twill_ofi_options){0}))
        return false;
    if (end.rank == 0)
        describe(run, &end);
    bool fine = pulls_safely(((struct twill_ofi *)end.transport)->endpoint);
    for (uint32_t i = 0; fine && i < TWILL_ARRAY_LENGTH(sizes); i++)
        fine = exchange(&end, &sizes[i], 1, i * 100);
    fine = fine && exchange(&end, sizes, TWILL_ARRAY_LENGTH(sizes), 5000);
    size_t expected = run->provider->address_bytes;
    const struct twill_ofi *t = (const struct twill_ofi *)end.transport;
    fine = fine && TWILL_NOTE(expected == 0 || t->endpoint->addresses.length[0] == expected,
                              "addresses of %zu bytes, not %zu", t->endpoint->addresses.length[0],
                              expected);
    return stop(run, &end) && fine;
}

/* Sizes beyond the provider's longest message: real if that is short, else limited by an option. */
static bool case_beyond(struct run *run, twill_bootstrap *caller)
{
    size_t longest = run->outcome->max_message;
    bool real = longest <= TWILL_OFI_CHUNK / 4;
    const size_t sizes[] = {real ? longest - 64 : 65536 - 64, real ? longest : 65536,
                            real ? longest + 1 : 65537, real ? 2 * longest + 68 : 300004};
    struct end end;
    if (!start(&end, caller, run, 2, (struct twill_ofi_options){.max_message = real ? 0 : 65536}))
        return false;
    bool fine = exchange(&end, sizes, TWILL_ARRAY_LENGTH(sizes), 0);
    return stop(run, &end) && fine;
}

/* Both ranks send thousands of messages before either posts a RECV. */
static bool case_unexpected(struct run *run, twill_bootstrap *caller)
{
    const uint32_t many = TEST_FEWER ? 1500 : 3000;
    struct end end;
    if (!start(&end, caller, run, 3, (struct twill_ofi_options){0}))
        return false;
    struct message *m = calloc(2 * many, sizeof(*m));
    bool fine = m != NULL;
    for (uint32_t i = 0; fine && i < 2 * many; i++) {
        uint32_t n = i % many;
        fine = message_make(&m[i], &end, i < many ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV,
                            1 - end.rank, n % TWILL_OFI_LANES, n,
                            n % 100 == 7 ? 20000 + 4 * n : n % 200, n % 5 == 0) &&
               (i >= many || post(&end, &m[i].request));
    }
    if (fine)
        linger(&end, SECOND / 5);
    for (uint32_t i = many; fine && i < 2 * many; i++)
        fine = post(&end, &m[i].request);
    for (uint32_t i = 0; fine && i < 2 * many; i++)
        fine = wait_done(&end, &m[i].request, 1) && all_ok(&m[i].request, 1) &&
               message_check(&m[i], &end);
    give_up(&end, fine);
    message_free(m, m == NULL ? 0 : 2 * many);
    return stop(run, &end) && fine;
}

/* The provider returns FI_EAGAIN at every other post, injects nothing and needs all memory
 * registered. */
static bool case_again(struct run *run, twill_bootstrap *caller)
{
    static const size_t sizes[] = {0, 8, 5000, 48, 9000, 8192, 30000, 1, 100000, 64, 16, 200004};
    struct end end;
    if (!start(&end, caller, run, 4,
               (struct twill_ofi_options){.again = 2, .no_inject = true, .max_message = 40000}))
        return false;
    bool fine = true;
    for (uint32_t i = 0; fine && i < 5; i++)
        fine = exchange(&end, sizes, TWILL_ARRAY_LENGTH(sizes), i * 1000);
    fine = fine && TWILL_NOTE(end.transport->counters.again > 100, "\"later\" %llu times only",
                              (unsigned long long)end.transport->counters.again);
    return stop(run, &end) && fine;
}

/* One rank is late, first to connect and later to receive. */
static bool case_late(struct run *run, twill_bootstrap *caller)
{
    static const size_t sizes[] = {8, 100, 8000, 50000, 1 << 20, 8, 0};
    struct end end;
    if (caller->rank == 1)
        usleep(200000);
    if (!start(&end, caller, run, 5, (struct twill_ofi_options){0}))
        return false;
    if (end.rank == 1)
        usleep(500000);
    bool fine = exchange(&end, sizes, TWILL_ARRAY_LENGTH(sizes), 0);
    if (end.rank == 0)
        usleep(100000);
    fine = fine && exchange(&end, sizes, TWILL_ARRAY_LENGTH(sizes), 100);
    return stop(run, &end) && fine;
}

/* Ranks disagree about a size: both get an error, and no provider ever sees too small a receive. */
static bool case_differ(struct run *run, twill_bootstrap *caller)
{
    static const size_t pairs[][2] = {{8, 16}, {16, 8}, {100000, 200000}, {200000, 100000}};
    bool fine = true;
    for (uint32_t i = 0; fine && i < TWILL_ARRAY_LENGTH(pairs); i++) {
        struct end end;
        unsigned char *data = calloc(1, 200000);
        if (data == NULL || !start(&end, caller, run, 6, (struct twill_ofi_options){0}))
            return false;
        struct twill_transfer r = {.kind =
                                       end.rank == 0 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV,
                                   .peer = 1 - end.rank,
                                   .signature = 7,
                                   .buffer = data,
                                   .bytes = pairs[i][end.rank]};
        fine = post(&end, &r) && wait_done(&end, &r, 1);
        bool eager = end.rank == 0 && pairs[i][0] <= TWILL_OFI_EAGER;
        fine = fine && TWILL_NOTE(r.status == (eager ? TWILL_OK : TWILL_ERR_MISMATCH),
                                  "rank %u, pair %u: status %d", end.rank, i, r.status);
        fine = gather(run, &end, caller->rank, 2) && fine;
        twill_ofi_transport.cancel(end.transport);
        end_close(&end);
        free(data);
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
static bool came_back(const struct run *run, const struct end *end)
{
    const struct twill_ofi *t = (const struct twill_ofi *)end->transport;
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

/* One rank cancels with much in progress; the other, which goes on, may fail but not hang. */
static bool case_cancel(struct run *run, twill_bootstrap *caller)
{
    struct end end;
    if (!start(&end, caller, run, 7, (struct twill_ofi_options){0}))
        return false;
    unsigned char *data = page_map((size_t)PROVIDER_CASES_HOPELESS << 20);
    struct twill_transfer *r = (struct twill_transfer *)(void *)page_map(1u << 20);
    TWILL_REQUIRE(data != NULL && r != NULL);
    bool fine = post_hopeless(
        &end, r, end.rank == 0 ? PROVIDER_CASES_HOPELESS : PROVIDER_CASES_HOPELESS / 2, data);
    linger(&end, SECOND / 20);
    fine = gather(run, &end, caller->rank, 2) && fine;
    if (end.rank == 0) {
        twill_ofi_transport.cancel(end.transport);
        fine = came_back(run, &end) && fine;
    }
    fine = gather(run, &end, caller->rank, 2) && fine;
    if (end.rank == 1)
        twill_ofi_transport.cancel(end.transport);
    munmap(data, (size_t)PROVIDER_CASES_HOPELESS << 20);
    munmap(r, 1u << 20);
    struct twill_transfer late = {.kind = TWILL_TRANSFER_SEND, .peer = 1 - end.rank};
    TWILL_REQUIRE(twill_ofi_transport.post(end.transport, &late, NULL) == TWILL_ERR_BROKEN);
    TWILL_REQUIRE(twill_ofi_transport.progress(end.transport, NULL) < 0);
    return stop(run, &end) && fine;
}

/* Communicators in use at the same time, the ranks in opposite order. */
static bool case_communicators(struct run *run, twill_bootstrap *caller)
{
    enum { comms = 6 };
    struct twill_common *common = NULL;
    struct end end[comms];
    struct message m[4 * comms];
    bool fine = true;
    for (uint32_t c = 0; c < comms; c++)
        if (!start_with(&end[c], caller, run, c == 0 ? 4095 : c, (struct twill_ofi_options){0},
                        &common))
            return false;
    for (uint32_t i = 0; i < 4 * comms; i++) {
        uint32_t c = end[0].rank == 0 ? i % comms : comms - 1 - i % comms;
        fine =
            fine &&
            message_make(&m[i], &end[c], i / comms & 2 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV,
                         1 - end[0].rank, 3, c * 100 + i / comms % 2, i / comms % 2 ? 70000 : 80,
                         false) &&
            post(&end[c], &m[i].request);
    }
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    for (uint32_t i = 0; fine && i < 4 * comms;) {
        for (uint32_t c = 0; c < comms; c++)
            fine = fine && progress(&end[c]);
        fine = fine && TWILL_NOTE(twill_now() < limit, "message %u hangs", i);
        i += m[i].request.status != TWILL_PENDING ? 1 : 0;
    }
    for (uint32_t i = 0; fine && i < 4 * comms; i++)
        fine = all_ok(&m[i].request, 1) && message_check(&m[i], &end[0]);
    for (uint32_t c = 0; c < comms; c++)
        give_up(&end[c], fine);
    for (uint32_t i = 0; i < 4 * comms; i++) {
        free(m[i].data);
        free(m[i].bounce);
    }
    for (uint32_t c = 0; c < comms; c++)
        fine = gather(run, &end[c], caller->rank, 2) && fine;
    for (uint32_t c = 0; c < comms; c++)
        end_close(&end[c]);
    if (common != NULL)
        common->close(common);
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

static void view_close(struct twill_oob *oob)
{
}

static const struct twill_bootstrap_ops view_ops = {
    .size_of = sizeof(struct twill_bootstrap_ops),
    .name = "view",
    .allgather = view_gather,
    .close = view_close,
};

/* Open an end of two ranks seen from the three; the other job has another nonce. */
static bool view_open(struct view *view, struct end *end, struct run *run)
{
    memset(end, 0, sizeof(*end));
    end->rank = view->caller->rank == 0 ? 0 : 1;
    end->size = 2;
    end->oob = twill_test_oob(view->caller);
    TWILL_REQUIRE(end->oob != NULL);
    view->oob = *end->oob;
    if (run->address != NULL)
        snprintf(view->oob.address, sizeof(view->oob.address), "%s", run->address);
    view->oob.ops = &view_ops;
    view->oob.rank = (int)end->rank;
    view->oob.size = 2;
    if (view->caller->rank == 2)
        for (size_t i = 0; i < TWILL_NONCE_BYTES; i++)
            view->oob.nonce[i] ^= 0x5a;
    end->params = (struct twill_transport_params){.oob = &view->oob,
                                                  .comm = 9,
                                                  .provider = run->provider->name,
                                                  .interface = run->provider->interface};
    twill_status status = twill_ofi_open(&end->transport, &end->params, NULL, &end->error);
    TWILL_REQUIRE(TWILL_NOTE(status == TWILL_OK, "open: %s", end->error.message));
    uint32_t peer = 1 - end->rank;
    return twill_ofi_transport.connect(end->transport, peer, &end->error) == TWILL_OK;
}

/* Send to rank 0 with valid rank, communicator and channels; may fail. */
static void intrude(struct run *run, struct end *end)
{
    struct twill_transfer r[4];
    unsigned char *data = calloc(1, 100000);
    for (uint32_t i = 0; data != NULL && i < 4; i++) {
        r[i] = (struct twill_transfer){.kind = TWILL_TRANSFER_SEND,
                                       .lane = (uint8_t)(i / 2),
                                       .signature = 1000 + i % 2,
                                       .buffer = data,
                                       .bytes = i % 2 == 0 ? 64 : 100000};
        if (twill_ofi_transport.post(end->transport, &r[i], NULL) != TWILL_OK)
            break;
    }
    uint64_t until = twill_now() + SECOND / 5;
    while (twill_now() < until && twill_ofi_transport.progress(end->transport, NULL) >= 0)
        rest_unless(false);
    gather(run, end, 2, 3);
    gather(run, end, 2, 3);
    twill_ofi_transport.cancel(end->transport);
    free(data);
}

/* Another job writes to rank 0 as if it were rank 1. Rank 0 accepts nothing of it, and everything
 * from its own rank 1 afterwards. */
static bool case_intruder(struct run *run, twill_bootstrap *caller)
{
    struct view view = {.caller = caller};
    struct end end;
    if (!view_open(&view, &end, run))
        return false;
    bool fine = true;
    struct message *m = calloc(4, sizeof(*m));
    for (uint32_t i = 0; caller->rank != 2 && i < 4; i++)
        fine = fine && message_make(&m[i], &end,
                                    caller->rank == 0 ? TWILL_TRANSFER_RECV : TWILL_TRANSFER_SEND,
                                    1 - end.rank, i / 2, i % 2, i % 2 == 0 ? 64 : 100000, false);
    for (uint32_t i = 0; caller->rank == 0 && fine && i < 4; i++)
        fine = post(&end, &m[i].request);
    if (caller->rank == 2) {
        intrude(run, &end);
    } else {
        linger(&end, SECOND / 4);
        for (uint32_t i = 0; caller->rank == 0 && i < 4; i++)
            fine = fine && TWILL_NOTE(m[i].request.status == TWILL_PENDING,
                                      "RECV %u ended with %d by an unauthenticated message", i,
                                      m[i].request.status);
        fine = gather(run, &end, caller->rank, 3) && fine;
        for (uint32_t i = 0; caller->rank == 1 && fine && i < 4; i++)
            fine = post(&end, &m[i].request);
        for (uint32_t i = 0; fine && i < 4; i++)
            fine = wait_done(&end, &m[i].request, 1) && all_ok(&m[i].request, 1) &&
                   message_check(&m[i], &end);
        fine = gather(run, &end, caller->rank, 3) && fine;
    }
    give_up(&end, fine);
    message_free(m, 4);
    end_close(&end);
    return fine;
}

/* A peer is killed. The provider need not notice (the detector does); there must be no hang, no
 * crash, and no message that seems to have arrived. */
static bool case_death(struct run *run, twill_bootstrap *caller)
{
    static const size_t sizes[] = {50000, 8};
    struct end end;
    if (caller->rank == 1)
        twill_test_expect_death(1);
    if (!start(&end, caller, run, 7, (struct twill_ofi_options){0}) ||
        !exchange(&end, sizes, 2, 0) || !gather(run, &end, caller->rank, 2))
        return false;
    if (caller->rank == 1)
        _exit(9);
    unsigned char *data = page_map((size_t)PROVIDER_CASES_HOPELESS << 20);
    struct twill_transfer *r = (struct twill_transfer *)(void *)page_map(1u << 20);
    TWILL_REQUIRE(data != NULL && r != NULL);
    bool posted = post_hopeless(&end, r, PROVIDER_CASES_HOPELESS, data);
    uint64_t until = twill_now() + SECOND / 2;
    int moved = posted ? 0 : (int)TWILL_ERR_PEER;
    while (twill_now() < until && moved >= 0) {
        moved = twill_ofi_transport.progress(end.transport, &end.error);
        rest_unless(moved > 0);
    }
    bool fine = TWILL_NOTE(moved >= 0 || moved == TWILL_ERR_PEER || moved == TWILL_ERR_FABRIC,
                           "status %d: %s", moved, end.error.message);
    for (size_t i = 0; posted && i < PROVIDER_CASES_HOPELESS; i += 2)
        fine = fine && TWILL_NOTE(r[i].status == TWILL_PENDING, "RECV %zu from the dead rank: %d",
                                  i, r[i].status);
    twill_ofi_transport.cancel(end.transport);
    munmap(data, (size_t)PROVIDER_CASES_HOPELESS << 20);
    end_close(&end);
    return fine;
}

const struct provider_case test_provider_cases[] = {
    {"sizes", 2, false, true, case_sizes},
    {"beyond the longest message", 2, false, false, case_beyond},
    {"unexpected messages", 2, false, false, case_unexpected},
    {"later, later", 2, false, false, case_again},
    {"late peers", 2, false, false, case_late},
    {"sizes that differ", 2, false, false, case_differ},
    {"cancel", 2, false, true, case_cancel},
    {"communicators", 2, false, true, case_communicators},
    {"unauthenticated peers", 3, true, false, case_intruder},
    {"death", 2, true, true, case_death},
    {NULL, 0, false, false, NULL},
};
