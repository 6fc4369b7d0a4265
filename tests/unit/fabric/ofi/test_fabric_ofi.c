/* SPDX-License-Identifier: Apache-2.0 */
/* The ofi transport between ranks that are threads, over the providers of this machine. */
#include "lib/base/base.h"
#include "tests/support/leap.h"
#include "tests/support/messages.h"
#include "tests/support/ofi_ends.h"
#include "tests/support/unit.h"

#include <sys/stat.h>

/* --- sizes, both directions at once, reduced and not ----------------------------------------- */

static const size_t sizes[] = {0,
                               1,
                               8,
                               32,
                               33,
                               48,
                               4095,
                               TWILL_OFI_EAGER - 1,
                               TWILL_OFI_EAGER,
                               TWILL_OFI_EAGER + 1,
                               40000,
                               65536,
                               (1u << 20) + 3};

static struct twill_test_end end_of(const struct end *end)
{
    return (struct twill_test_end){
        .transport = end->transport, .rank = end->rank, .size = end->size};
}

static void rank_sizes(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct end end;
    if (end_open(&end, caller, user, 1)) {
        struct twill_test_end it = end_of(&end);
        (void)twill_test_sweep(&it, sizes, TWILL_ARRAY_LENGTH(sizes));
        rank_barrier(&end);
    }
    end_close(&end);
}

TWILL_TEST(test_sizes)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(setups); i++) {
        print_message("  %s\n", setups[i].name);
        twill_test_run_ranks(2, rank_sizes, (void *)&setups[i]);
    }
}

/* Several huge messages at the same time. The thread sanitizer makes the loops over bytes slow;
 * other stages have the whole. */
#define HUGE_BYTES ((TEST_TSAN ? 5u : 20u) << 20)

static void rank_huge(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct end end;
    uint32_t peer = (uint32_t)(1 - rank);
    if (end_open(&end, caller, user, 2)) {
        struct message *m = calloc(4, sizeof(*m));
        for (uint32_t i = 0; i < 4; i++)
            message_make(&m[i], &end, i < 2 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV, peer, 0,
                         i % 2, HUGE_BYTES + i % 2 * 5, i == 3);
        messages_run(&end, m, 4);
        message_free(m, 4);
        rank_barrier(&end);
    }
    end_close(&end);
}

TWILL_TEST(test_huge)
{
    twill_test_run_ranks(2, rank_huge, (void *)TCP);
    twill_test_run_ranks(2, rank_huge, (void *)&setups[1]);
}

/* --- many messages on all lanes, three ranks -------------------------------------------------- */

#define OFI_EACH 24

static void rank_lanes(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct end end;
    if (end_open(&end, caller, user, 3)) {
        struct twill_test_end it = end_of(&end);
        const uint64_t n = (uint64_t)(size - 1) * TWILL_LANES * OFI_EACH;
        if (twill_test_flood(&it, OFI_EACH, 100000)) {
            const struct twill_transport_counters *c = &end.transport->counters;
            const struct setup *setup = user;
            TWILL_NOTE(c->messages == n && c->bytes > 2 * n && c->header_bytes >= n * 32 &&
                           c->copied > 0 && (setup->options.again == 0 || c->again > n / 2),
                       "counters");
        }
        rank_barrier(&end);
    }
    end_close(&end);
}

TWILL_TEST(test_lanes)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(setups); i++) {
        print_message("  %s\n", setups[i].name);
        twill_test_run_ranks(i == 0 ? 3 : 2, rank_lanes, (void *)&setups[i]);
    }
}

/* --- a sender far ahead of the receiver ------------------------------------------------------ */

#define OFI_AHEAD 300

static void rank_unexpected(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct end end;
    if (end_open(&end, caller, user, 4)) {
        struct message *m = calloc(OFI_AHEAD, sizeof(*m));
        uint64_t until = twill_now() + SECOND / 5;
        while (rank == 1 && twill_now() < until && progress(&end))
            ;
        for (uint32_t i = 0; i < OFI_AHEAD; i++)
            message_make(&m[i], &end, rank == 0 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV,
                         (uint32_t)(1 - rank), i % 2, i, i % 7 == 0 ? 9000 + i : i, i % 5 == 0);
        messages_run(&end, m, OFI_AHEAD);
        message_free(m, OFI_AHEAD);
        rank_barrier(&end);
    }
    end_close(&end);
}

TWILL_TEST(test_unexpected)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(setups); i++)
        twill_test_run_ranks(2, rank_unexpected, (void *)&setups[i]);
}

/* --- ranks that disagree ---------------------------------------------------------------------- */

static const struct disagreement {
    size_t sent, received;
    uint32_t signature; /* of the receiver; the sender's is 7 */
} disagreements[] = {{8, 16, 7},
                     {16, 8, 7},
                     {8, 8, 6},
                     {0, 8, 7},
                     {8, 100000, 7},
                     {100000, 8, 7},
                     {100000, 100000, 6},
                     {100000, 200000, 7},
                     {200000, 100000, 7},
                     {TWILL_OFI_EAGER, TWILL_OFI_EAGER + 1, 7},
                     {TWILL_OFI_EAGER + 1, TWILL_OFI_EAGER, 7},
                     {8, 0, 7}};

static atomic_bool received; /* by rank 1, whatever it was */

static void rank_disagree(int rank, int size, twill_bootstrap *caller, void *user)
{
    const struct disagreement *d = user;
    struct end end;
    unsigned char *data = calloc(1, 1u << 20);
    if (data != NULL && end_open(&end, caller, TCP, 5)) {
        struct twill_transfer r = {.kind = rank == 0 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV,
                                   .peer = (uint32_t)(1 - rank),
                                   .signature = rank == 0 ? 7 : d->signature,
                                   .buffer = data,
                                   .bytes = rank == 0 ? d->sent : d->received};
        uint64_t until = twill_now() + TWILL_TEST_PATIENCE;
        post(&end, &r);
        /* A large SEND to a small RECV gets no answer: the receiver reports the mismatch. */
        bool never = rank == 0 && d->sent > TWILL_OFI_EAGER && d->received <= TWILL_OFI_EAGER;
        while (r.status == TWILL_PENDING && twill_now() < until && progress(&end) &&
               !(never && atomic_load(&received)))
            ;
        if (rank == 1)
            atomic_store(&received, true);
        if (rank == 1) {
            TWILL_NOTE(r.status == TWILL_ERR_MISMATCH && r.peer_bytes == d->sent &&
                           r.peer_signature == 7,
                       "RECV: %d, %llu bytes, signature %u", r.status,
                       (unsigned long long)r.peer_bytes, r.peer_signature);
        } else if (d->sent > TWILL_OFI_EAGER && !never) {
            TWILL_NOTE(r.status == TWILL_ERR_MISMATCH && r.peer_bytes == d->received &&
                           r.peer_signature == d->signature,
                       "SEND: %d, %llu bytes, signature %u", r.status,
                       (unsigned long long)r.peer_bytes, r.peer_signature);
        }
        rank_barrier(&end);
        twill_ofi_transport.cancel(end.transport);
        memset(&r, 0x5a, sizeof(r));
        end_close(&end);
    }
    free(data);
}

TWILL_TEST(test_disagree)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(disagreements); i++) {
        atomic_store(&received, false);
        twill_test_run_ranks(2, rank_disagree, (void *)&disagreements[i]);
    }
}

/* --- messages without a RECV ------------------------------------------------------------------ */

static void rank_early(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct end end;
    if (end_open(&end, caller, user, 6)) {
        struct twill_test_end it = end_of(&end);
        (void)twill_test_early(&it);
        rank_barrier(&end);
        twill_ofi_transport.cancel(end.transport);
    }
    end_close(&end);
}

TWILL_TEST(test_early)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(setups); i++)
        twill_test_run_ranks(3, rank_early, (void *)&setups[i]);
}

/* --- two communicators ------------------------------------------------------------------------ */

static void rank_two_comms(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct end end[2] = {{0}, {0}};
    uint32_t peer = (uint32_t)(1 - rank);
    if (end_open(&end[0], caller, user, 1) && end_open(&end[1], caller, user, 4095)) {
        struct message *m = calloc(8, sizeof(*m));
        bool fine = true;
        for (uint32_t i = 0; i < 8; i++) {
            /* The ranks use the communicators in opposite order; same lane, same sizes. */
            uint32_t c = (i & 1) ^ (uint32_t)rank;
            message_make(&m[i], &end[c], i & 2 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV, peer, 3,
                         c * 100 + i / 4, i & 4 ? 70000 : 80, false);
            fine = fine && post(&end[c], &m[i].request);
        }
        uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
        for (uint32_t i = 0; fine && i < 8;) {
            fine = progress(&end[0]) && progress(&end[1]) && twill_now() < limit;
            i += m[i].request.status != TWILL_PENDING ? 1 : 0;
        }
        for (uint32_t i = 0; i < 8; i++)
            TWILL_NOTE(fine && m[i].request.status == TWILL_OK && message_check(&m[i], &end[0]),
                       "rank %d, message %u", rank, i);
        message_free(m, 8);
        rank_barrier(&end[0]);
    }
    end_close(&end[0]);
    end_close(&end[1]);
}

TWILL_TEST(test_two_comms)
{
    twill_test_run_ranks(2, rank_two_comms, (void *)TCP);
}

/* --- shared endpoints ------------------------------------------------------------------------- */

/* Communicators of one context on one libfabric endpoint: they receive only their own messages, any
 * of them makes progress for all, and one may end while others go on. */

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
    static const size_t shared_sizes[] = {8, 300, 9000, 70000, 0, 1u << 18};
    uint32_t peer = 1 - end->rank;
    bool fine = true;
    for (uint32_t i = 0; i < rounds && fine; i++) {
        struct message *m = calloc(4, sizeof(*m));
        for (uint32_t k = 0; k < 4; k++)
            message_make(&m[k], end, k < 2 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV, peer,
                         i % TWILL_OFI_LANES, seed + i * 2 + k % 2,
                         shared_sizes[(seed + i) % TWILL_ARRAY_LENGTH(shared_sizes)], k == 3);
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

/* --- a suspended machine ---------------------------------------------------------------------- */

/* A machine that is suspended while the provider is to return cancelled operations: it must be
 * polled all the same. The clock of this program jumps when a test says so. */

static void cancelling_rank(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct end end;
    unsigned char data[64];
    struct twill_transfer in = {.kind = TWILL_TRANSFER_RECV,
                                .peer = 1 - (uint32_t)rank,
                                .signature = 1,
                                .buffer = data,
                                .bytes = sizeof(data)};
    if (end_open(&end, caller, user, 1) && post(&end, &in) && progress(&end)) {
        struct twill_ofi *t = (struct twill_ofi *)end.transport;
        TWILL_NOTE(t->headers_busy > 0, "nothing is posted");
        leap = 2;
        twill_ofi_transport.cancel(end.transport);
        leap = 0;
        TWILL_NOTE(t->headers_busy == 0, "%u are still out", t->headers_busy);
        (void)rank_barrier(&end);
    }
    end_close(&end);
}

TWILL_TEST(what_is_cancelled_comes_back)
{
    twill_test_run_ranks(2, cancelling_rank, (void *)TCP);
}

/* --- devices ---------------------------------------------------------------------------------- */

/* What /sys says of networks: libfabric is not asked only where there is nothing but Ethernet. */

static const struct machine {
    const char *title;
    const char *files[8]; /* path=text; a path that ends with a slash is a folder */
    bool only_ethernet;
} machines[] = {
    {"no /sys", {NULL}, false},
    {"no interface", {"class/net/", NULL}, false},
    {"loopback", {"class/net/lo/type=772\n", NULL}, true},
    {"Ethernet", {"class/net/lo/type=772\n", "class/net/eth0/type=1\n", NULL}, true},
    {"a bond", {"class/net/bond0/type=1\n", "class/net/bonding_masters=bond0\n", NULL}, true},
    {"tunnels",
     {"class/net/eth0/type=1\n", "class/net/tun0/type=65534\n", "class/net/sit0/type=776\n", NULL},
     true},
    {"IP over Infiniband", {"class/net/eth0/type=1\n", "class/net/ib0/type=32\n", NULL}, false},
    {"an interface of an unknown type", {"class/net/x0/type=4242\n", NULL}, false},
    {"an interface without a type", {"class/net/x0/", NULL}, false},
    {"RoCE, EFA", {"class/net/eth0/type=1\n", "class/infiniband/efa_0/", NULL}, false},
    {"no RDMA device", {"class/net/eth0/type=1\n", "class/infiniband/", NULL}, true},
    {"Slingshot", {"class/net/hsn0/type=1\n", "class/cxi_user/cxi0/", NULL}, false},
    {"Omni-Path", {"class/net/eth0/type=1\n", "class/hfi1_user/hfi1_0/", NULL}, false},
    {"a disk on PCI",
     {"class/net/eth0/type=1\n", "bus/pci/devices/0/class=0x010802\n", NULL},
     true},
    {"Ethernet on PCI",
     {"class/net/eth0/type=1\n", "bus/pci/devices/0/class=0x020000\n", NULL},
     true},
    {"a fabric on PCI without a driver",
     {"class/net/eth0/type=1\n", "bus/pci/devices/0/class=0x020000\n",
      "bus/pci/devices/1/class=0x020800\n", NULL},
     false},
    {"a device on PCI without a class",
     {"class/net/eth0/type=1\n", "bus/pci/devices/0/", NULL},
     false},
};

/* Make a file with its folders, or a folder. */
static void make(const char *root, const char *entry)
{
    char path[256];
    const char *text = strchr(entry, '=');
    int length = text != NULL ? (int)(text - entry) : (int)strlen(entry);
    assert_true(snprintf(path, sizeof(path), "%s/%.*s", root, length, entry) < (int)sizeof(path));
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        (void)mkdir(path, 0700);
        *slash = '/';
    }
    if (text == NULL)
        return;
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text + 1, file);
    assert_int_equal(fclose(file), 0);
}

TWILL_TEST(test_machines)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(machines); i++) {
        char root[] = "/tmp/twill-sys-XXXXXX", remove[64];
        assert_non_null(mkdtemp(root));
        for (const char *const *file = machines[i].files; *file != NULL; file++)
            make(root, *file);
        bool only = twill_ofi_only_ethernet(root);
        snprintf(remove, sizeof(remove), "rm -r %s", root);
        assert_int_equal(system(remove), 0);
        if (only != machines[i].only_ethernet)
            fail_msg("%s: libfabric is %s", machines[i].title, only ? "not asked" : "asked");
    }
}
