/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators of one context on one libfabric endpoint: they receive only their own messages, any
 * of them makes progress for all, and one may end while others go on. */
#include "tests/support/ofi_ends.h"
#include "tests/support/unit.h"

static struct twill_ofi_endpoint *endpoint_of(const struct end *end)
{
    return ((struct twill_ofi *)end->transport)->endpoint;
}

static void common_close(struct twill_common *common)
{
    if (common != NULL)
        common->close(common);
}

/* Both directions, small and large, reduced and not, on several lanes. */
static bool exchange(struct end *end, uint32_t seed, uint32_t rounds)
{
    static const size_t sizes[] = {8, 300, 9000, 70000, 0, 1u << 18};
    uint32_t peer = 1 - end->rank;
    bool fine = true;
    for (uint32_t i = 0; i < rounds && fine; i++) {
        struct message *m = calloc(4, sizeof(*m));
        for (uint32_t k = 0; k < 4; k++)
            message_make(&m[k], end, k < 2 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV, peer,
                         i % TWILL_OFI_LANES, seed + i * 2 + k % 2,
                         sizes[(seed + i) % TWILL_ARRAY_LENGTH(sizes)], k == 3);
        fine = messages_run(end, m, 4);
        message_free(m, 4);
    }
    return fine;
}

/* --- one thread per communicator ------------------------------------------------------------- */

#define OFI_SHARED_COMMS 4

struct driver {
    struct end *end;
    uint32_t seed;
    bool fine;
};

static void *drive(void *user)
{
    struct driver *driver = user;
    driver->fine = exchange(driver->end, driver->seed, 24);
    return NULL;
}

static void rank_threads(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct end end[OFI_SHARED_COMMS];
    struct twill_common *common = NULL;
    struct driver driver[OFI_SHARED_COMMS];
    pthread_t thread[OFI_SHARED_COMMS];
    bool open = true;
    memset(end, 0, sizeof(end));
    for (uint32_t c = 0; c < OFI_SHARED_COMMS && open; c++)
        open = end_open_with(&end[c], caller, user, c * 1000 + 1, &common);
    if (open && rank_barrier(&end[0])) {
        for (uint32_t c = 1; c < OFI_SHARED_COMMS; c++)
            TWILL_NOTE(endpoint_of(&end[c]) == endpoint_of(&end[0]),
                       "communicator %u has an endpoint of its own", c);
        for (uint32_t c = 0; c < OFI_SHARED_COMMS; c++) {
            /* The ranks start them in opposite order. */
            uint32_t which = rank == 0 ? c : OFI_SHARED_COMMS - 1 - c;
            driver[which] = (struct driver){&end[which], which * 1000, false};
            pthread_create(&thread[which], NULL, drive, &driver[which]);
        }
        for (uint32_t c = 0; c < OFI_SHARED_COMMS; c++)
            pthread_join(thread[c], NULL);
        for (uint32_t c = 0; c < OFI_SHARED_COMMS; c++)
            TWILL_NOTE(driver[c].fine, "rank %d, communicator %u", rank, c);
        rank_barrier(&end[0]);
    }
    for (uint32_t c = 0; c < OFI_SHARED_COMMS; c++)
        end_close(&end[c]);
    common_close(common);
}

TWILL_TEST(test_threads)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(setups); i++)
        if (strcmp(setups[i].name, "net") != 0) /* each has its own endpoint there */
            twill_test_run_ranks(2, rank_threads, (void *)&setups[i]);
}

/* --- one of them ends while others are busy -------------------------------------------------- */

enum { OFI_SHARED_HOPELESS = 8 };

/* Receives of all kinds; rank 1 answers only the first two. */
static void post_in_vain(struct end *end, struct twill_transfer *r, unsigned char *data)
{
    uint32_t n = end->rank == 0 ? OFI_SHARED_HOPELESS : 2;
    for (uint32_t i = 0; i < n; i++) {
        r[i] = (struct twill_transfer){.kind = end->rank == 0 ? TWILL_TRANSFER_RECV
                                                              : TWILL_TRANSFER_SEND,
                                       .lane = (uint8_t)(i % 3),
                                       .peer = 1 - end->rank,
                                       .signature = 1,
                                       .buffer = data + ((size_t)i << 20),
                                       .bytes = i % 2 ? 64 : 1u << 20};
        post(end, &r[i]);
    }
}

static void rank_end_of_one(int rank, int size, twill_bootstrap *caller, void *user)
{
    const struct setup *setup = user;
    struct end end[2];
    struct twill_common *common = NULL;
    memset(end, 0, sizeof(end));
    if (end_open_with(&end[0], caller, setup, 1, &common) &&
        end_open_with(&end[1], caller, setup, 2, &common) && rank_barrier(&end[0])) {
        unsigned char *data = page_map((size_t)OFI_SHARED_HOPELESS << 20);
        struct twill_transfer *r = (struct twill_transfer *)(void *)page_map(1u << 20);
        post_in_vain(&end[0], r, data);
        exchange(&end[1], 0, 6);
        rank_barrier(&end[0]);
        uint64_t began = twill_now();
        twill_ofi_transport.cancel(end[0].transport);
        TWILL_NOTE(twill_now() - began < TWILL_TEST_PATIENCE, "cancel hangs");
        munmap(data, (size_t)OFI_SHARED_HOPELESS << 20); /* a late write is a crash */
        munmap(r, 1u << 20);
        if (!setup->options.no_cancel) {
            exchange(&end[1], 100, 6);
        } else if (rank == 0) {
            TWILL_NOTE(twill_ofi_transport.progress(end[1].transport, &end[1].error) < 0 &&
                           strstr(end[1].error.message, "communicator 1 failed") != NULL,
                       "it says \"%s\"", end[1].error.message);
            struct end late = {0};
            end[1].params.comm = 3;
            TWILL_NOTE(twill_ofi_transport.open(&late.transport, &end[1].params, &late.error) ==
                           TWILL_ERR_FABRIC,
                       "a closed endpoint is used again");
        }
        rank_barrier(&end[0]);
    }
    end_close(&end[0]);
    end_close(&end[1]);
    common_close(common);
}

TWILL_TEST(test_end_of_one)
{
    static const struct setup keeping = {"keeping", "tcp", {.no_cancel = true}};
    twill_test_run_ranks(2, rank_end_of_one, (void *)TCP);
    twill_test_run_ranks(2, rank_end_of_one, (void *)&setups[1]);
    twill_test_run_ranks(2, rank_end_of_one, (void *)&setups[4]);
    twill_test_run_ranks(2, rank_end_of_one, (void *)&keeping);
}

/* --- subsets of the job, numbers of communicators, known addresses --------------------------- */

/* Directed receives need all addresses from the start; others only those of their peers. */
static uint32_t expected(const struct end *end, uint32_t peers)
{
    return endpoint_of(end)->matching.directed ? endpoint_of(end)->size - 1 : peers;
}

static uint32_t known(const struct end *end)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < endpoint_of(end)->size; r++)
        n += endpoint_of(end)->addresses.contact[r].known ? 1 : 0;
    return n;
}

/* Ranks 2 and 0 of three, as ranks 0 and 1: they open without any exchange. */
static void open_subset(struct end *whole, struct twill_common **common, uint32_t comm)
{
    static const uint32_t job[] = {2, 0};
    struct twill_oob oob = *whole->oob;
    struct end end = {.size = 2, .rank = whole->rank == 2 ? 0 : 1};
    oob.rank = (int)end.rank;
    oob.size = 2;
    oob.ops = NULL; /* not even asked */
    end.params = whole->params;
    end.params.oob = &oob;
    end.params.comm = comm;
    end.params.job = job;
    end.params.common = common;
    uint32_t before = known(whole);
    twill_status status = TWILL_OK;
    if (whole->rank != 1)
        status = twill_ofi_transport.open(&end.transport, &end.params, &end.error);
    TWILL_NOTE(status == TWILL_OK && known(whole) == before, "%s", end.error.message);
    rank_barrier(whole);
    if (end.transport != NULL) {
        status = twill_ofi_transport.connect(end.transport, 1 - end.rank, &end.error);
        TWILL_NOTE(status == TWILL_OK && known(whole) == expected(whole, 1), "connect: %s",
                   end.error.message);
        exchange(&end, 7, 4);
    }
    rank_barrier(whole);
    if (end.transport != NULL)
        twill_ofi_transport.close(end.transport);
}

static void rank_subsets(int rank, int size, twill_bootstrap *caller, void *user)
{
    const struct setup *setup = user;
    struct twill_common *common = NULL;
    struct end end = {.oob = twill_test_oob(caller), .rank = (uint32_t)rank, .size = 3};
    end.params = (struct twill_transport_params){
        .oob = end.oob, .comm = 0, .provider = setup->provider, .common = &common};
    if (TWILL_NOTE(twill_ofi_open(&end.transport, &end.params, &setup->options, &end.error) ==
                       TWILL_OK,
                   "open: %s", end.error.message)) {
        TWILL_NOTE(known(&end) == expected(&end, 0), "addresses inserted too early or too late");
        for (uint32_t comm = 5; comm < 8; comm++) /* the last one has the greatest number */
            open_subset(&end, &common, comm < 7 ? comm : (1u << TWILL_OFI_COMM_BITS) - 1);
        TWILL_NOTE(known(&end) == expected(&end, rank == 1 ? 0u : 1u), "rank %d knows %u", rank,
                   known(&end));
        struct twill_transport *late = NULL;
        struct twill_transport_params params = end.params;
        params.comm = 1u << TWILL_OFI_COMM_BITS;
        TWILL_NOTE(twill_ofi_transport.open(&late, &params, NULL) == TWILL_ERR_UNSUPPORTED,
                   "a number that tags cannot name");
        rank_barrier(&end);
    }
    end_close(&end);
    common_close(common);
}

TWILL_TEST(test_subsets)
{
    twill_test_run_ranks(3, rank_subsets, (void *)TCP);
}
