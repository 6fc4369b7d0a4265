/* SPDX-License-Identifier: Apache-2.0 */
/* The ofi transport between ranks that are threads: what every provider must do, with each option
 * of the transport; communicators that share an endpoint; settings that are impossible; devices. */
#include "fabric/ofi/ofi.h"
#include "lib/base/base.h"
#include "tests/support/leap.h"
#include "tests/support/provider_cases.h"
#include "tests/support/unit.h"

#include <sys/stat.h>

static const struct setup setups[] = {
    {"tcp", {0}},
    {"tcp", {.force_registration = true}},
    {"tcp", {.no_inject = true}},
    {"tcp", {.max_message = 4160}}, /* short */
    {"tcp", {.again = 3, .max_message = 65536}},
    {"tcp", {true, true, 100000, 2, .no_order = true}},
    {"tcp", {.no_order = true}},
    {"sockets", {0}},
};
enum { REGISTERS = 1, BUSY = 4 };

/* --- where a message is cut ------------------------------------------------------------------ */

/* A reduction takes whole elements, of up to 16 bytes. */
TWILL_TEST(chunks_end_between_elements)
{
    static const size_t most[] = {4160 / 64 * 64, 1 << 16, TWILL_OFI_CHUNK},
                        pieces[] = {0, 320000, (5u << 18) + 8, 7u << 18, 64u << 18};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(most) * TWILL_ARRAY_LENGTH(pieces); i++)
        for (size_t bytes = 16; bytes < (size_t)64 << 20; bytes = bytes * 3 + 16) {
            size_t piece = pieces[i / TWILL_ARRAY_LENGTH(most)],
                   chunk =
                       twill_ofi_reduced_chunk(most[i % TWILL_ARRAY_LENGTH(most)], piece, bytes);
            assert_int_equal(twill_ofi_reduced_together(piece, bytes) % 16, 0);
            for (size_t at = 0, end = 0; at < bytes; at = end) {
                end = at + twill_ofi_chunk_bytes(bytes, at, chunk);
                assert_true(end > at && end <= bytes && end % 16 == 0);
            }
        }
}

/* --- what every provider must do ------------------------------------------------------------- */

struct case_run {
    const struct provider_case *c;
    struct run run;
};

static void rank_case(int rank, int size, twill_bootstrap *caller, void *user)
{
    const struct case_run *one = user;
    (void)test_provider_run(one->c, &one->run, caller);
}

TWILL_TEST(test_cases)
{
    static const struct provider provider = {.title = "tcp", .name = "tcp"};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(setups); i++) {
        struct outcome outcome = {.cases = 0};
        struct case_run one = {
            .run = {.provider = &provider, .outcome = &outcome, .options = setups[i].options}};
        if (strcmp(setups[i].provider, "tcp") != 0) /* test_fabric_providers has the others */
            continue;
        for (one.c = test_provider_cases; one.c->name != NULL; one.c++) {
            memset(outcome.arrived, 0, sizeof(outcome.arrived));
            if (!one.c->alone)
                twill_test_run_ranks(one.c->ranks, rank_case, &one);
        }
    }
}

/* --- shared endpoints ------------------------------------------------------------------------- */

/* Communicators of one context on one libfabric endpoint: they receive only their own messages, any
 * of them makes progress for all, and one may end while others go on. */

/* Both directions, small and large, reduced and not, on several lanes. */
static bool exchange(struct twill_test_end *end, uint32_t seed, uint32_t rounds)
{
    static const size_t sizes[] = {8, 300, 9000, 70000, 0, 1u << 18};
    struct letter *letters = calloc(4, sizeof(*letters));
    bool fine = letters != NULL;
    for (uint32_t i = 0; i < rounds && fine; i++) {
        for (uint32_t k = 0; k < 4; k++)
            letter_write(&letters[k], end, k < 2 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV,
                         end->peer, i % TWILL_OFI_LANES, seed + i * 2 + k % 2,
                         sizes[(seed + i) % TWILL_ARRAY_LENGTH(sizes)], k == 3);
        fine = letters_run(end, letters, 4);
    }
    letters_free(end, letters, 4);
    return fine;
}

/* --- one thread per communicator ------------------------------------------------------------- */

#define OFI_SHARED_COMMS 4

struct driver {
    struct twill_test_end *end;
    uint32_t seed;
    bool fine;
};

static void *drive(void *user)
{
    struct driver *driver = user;
    driver->fine = exchange(driver->end, driver->seed, 24);
    return NULL;
}

static void use_in_threads(struct twill_test_end *end, void *user)
{
    struct twill_test_end more[OFI_SHARED_COMMS];
    struct driver driver[OFI_SHARED_COMMS];
    pthread_t thread[OFI_SHARED_COMMS];
    for (uint32_t c = 0; c < OFI_SHARED_COMMS; c++) {
        TWILL_CHECK(end_more(&more[c], end, c * 1000 + 1));
        TWILL_CHECK(ofi_of(&more[c])->endpoint == ofi_of(end)->endpoint,
                    "communicator %u has an endpoint of its own", c);
    }
    for (uint32_t c = 0; c < OFI_SHARED_COMMS; c++) {
        /* The ranks start them in opposite order. */
        uint32_t which = end->rank == 0 ? c : OFI_SHARED_COMMS - 1 - c;
        driver[which] = (struct driver){&more[which], which * 1000, false};
        pthread_create(&thread[which], NULL, drive, &driver[which]);
    }
    for (uint32_t c = 0; c < OFI_SHARED_COMMS; c++)
        pthread_join(thread[c], NULL);
    for (uint32_t c = 0; c < OFI_SHARED_COMMS; c++)
        TWILL_CHECK(driver[c].fine, "rank %u, communicator %u", end->rank, c);
    TWILL_CHECK(end_barrier(end));
    for (uint32_t c = 0; c < OFI_SHARED_COMMS; c++)
        end_close_more(&more[c]);
}

TWILL_TEST(test_threads)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(setups); i++)
        end_test_run((struct end_test){
            .ranks = 2, .open = ofi_open_shared, .how = &setups[i], .body = use_in_threads});
}

/* --- one of them ends while others are busy -------------------------------------------------- */

enum { OFI_SHARED_HOPELESS = 8 };

/* Receives of all kinds; rank 1 answers only the first two. */
static bool post_in_vain(struct twill_test_end *end, struct twill_transfer *r, unsigned char *data)
{
    bool sends = end->rank == 1;
    for (uint32_t i = 0; i < (sends ? 2 : OFI_SHARED_HOPELESS); i++) {
        r[i] = end_transfer(sends ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV, end->peer, i % 3,
                            data + ((size_t)i << 20), i % 2 ? 64 : 1u << 20);
        TWILL_REQUIRE(end_post(end, &r[i]));
    }
    return true;
}

static void end_one(struct twill_test_end *end, void *user)
{
    const struct setup *setup = user;
    struct twill_test_end first;
    unsigned char *data = page_map((size_t)OFI_SHARED_HOPELESS << 20);
    struct twill_transfer *r = (struct twill_transfer *)(void *)page_map(1u << 20);
    TWILL_CHECK(end_more(&first, end, 1) && end_barrier(end));
    TWILL_CHECK(post_in_vain(&first, r, data) && exchange(end, 0, 6) && end_barrier(end));
    uint64_t began = twill_now();
    twill_ofi_transport.cancel(first.transport);
    TWILL_CHECK(twill_now() - began < TWILL_TEST_PATIENCE, "cancel hangs");
    munmap(data, (size_t)OFI_SHARED_HOPELESS << 20); /* a late write is a crash */
    munmap(r, 1u << 20);
    if (!setup->options.no_cancel) {
        TWILL_CHECK(exchange(end, 100, 6));
    } else if (end->rank == 0) {
        TWILL_CHECK(twill_ofi_transport.progress(end->transport, &end->error) < 0 &&
                        strstr(end->error.message, "communicator 1 failed") != NULL,
                    "it says \"%s\"", end->error.message);
        struct twill_transport *late = NULL;
        struct twill_transport_params params = end->params;
        params.comm = 3;
        TWILL_CHECK(twill_ofi_transport.open(&late, &params, &end->error) == TWILL_ERR_FABRIC,
                    "a closed endpoint is used again");
    }
    TWILL_CHECK(end_barrier(end));
    end_close_more(&first);
}

TWILL_TEST(test_end_of_one)
{
    static const struct setup keeping = {"tcp", {.no_cancel = true}};
    const struct setup *const all[] = {&tcp, &setups[REGISTERS], &setups[BUSY], &keeping};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(all); i++)
        end_test_run((struct end_test){.ranks = 2,
                                       .open = ofi_open_shared,
                                       .how = all[i],
                                       .body = end_one,
                                       .user = (void *)all[i]});
}

/* --- subsets of the job, numbers of communicators, known addresses --------------------------- */

/* Directed receives need all addresses from the start; others only those of their peers. */
static bool knows(const struct twill_test_end *end, uint32_t peers)
{
    const struct twill_ofi_endpoint *endpoint = ofi_of(end)->endpoint;
    uint32_t n = 0, expected = endpoint->matching.directed ? endpoint->size - 1 : peers;
    for (uint32_t r = 0; r < endpoint->size; r++)
        n += endpoint->addresses.contact[r].known ? 1 : 0;
    return TWILL_NOTE(n == expected, "rank %u knows %u addresses, not %u", end->rank, n, expected);
}

/* Ranks 2 and 0 of three, as ranks 0 and 1: they open without any exchange. */
static void open_subset(struct twill_test_end *whole, uint32_t comm, uint32_t known)
{
    static const uint32_t job[] = {2, 0};
    struct twill_oob oob = *whole->oob;
    struct twill_test_end end = {.params = whole->params, .size = 2};
    end.rank = whole->rank == 2 ? 0 : 1;
    end.peer = 1 - end.rank;
    oob.rank = (int)end.rank;
    oob.size = 2;
    oob.ops = NULL; /* not even asked */
    end.params.oob = &oob;
    end.params.comm = comm;
    end.params.job = job;
    twill_status status = TWILL_OK;
    if (whole->rank != 1)
        status = twill_ofi_transport.open(&end.transport, &end.params, &end.error);
    TWILL_CHECK(status == TWILL_OK && knows(whole, known), "%s", end.error.message);
    TWILL_CHECK(end_barrier(whole));
    if (end.transport != NULL) {
        TWILL_CHECK_OK(&end.error,
                       twill_ofi_transport.connect(end.transport, end.peer, &end.error));
        TWILL_CHECK(knows(whole, 1) && exchange(&end, 7, 4));
    }
    TWILL_CHECK(end_barrier(whole));
    end_close_more(&end);
}

/* The first communicator has not connected to anybody. */
static bool open_unconnected(struct twill_test_end *end, const void *how)
{
    end->params.common = &end->common;
    end->params.provider = "tcp";
    return TWILL_NOTE(twill_ofi_open(&end->transport, &end->params, &tcp.options, &end->error) ==
                          TWILL_OK,
                      "open: %s", end->error.message);
}

END_TEST(test_subsets, 3, false, open_unconnected, NULL)
{
    const uint32_t last = (1u << TWILL_OFI_COMM_BITS) - 1, comms[] = {5, 6, last};
    TWILL_CHECK(knows(end, 0));
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(comms); i++)
        open_subset(end, comms[i], i == 0 || end->rank == 1 ? 0 : 1);
    TWILL_CHECK(knows(end, end->rank == 1 ? 0 : 1));
    struct twill_transport *late = NULL;
    struct twill_transport_params params = end->params;
    params.comm = last + 1;
    TWILL_CHECK(twill_ofi_transport.open(&late, &params, NULL) == TWILL_ERR_UNSUPPORTED,
                "a number that tags cannot name");
}

/* --- a suspended machine ---------------------------------------------------------------------- */

/* A machine that is suspended while the provider is to return cancelled operations: it must be
 * polled all the same. The clock of this program jumps when a test says so. */
END_TEST(what_is_cancelled_comes_back, 2, false, ofi_open, &tcp)
{
    unsigned char data[64];
    struct twill_transfer in = end_transfer(TWILL_TRANSFER_RECV, end->peer, 0, data, sizeof(data));
    TWILL_CHECK(end_post(end, &in) && end_works(end));
    const struct twill_ofi *t = ofi_of(end);
    TWILL_CHECK(t->headers_busy > 0, "nothing is posted");
    leap = 2;
    twill_ofi_transport.cancel(end->transport);
    leap = 0;
    TWILL_CHECK(t->headers_busy == 0, "%u are still out", t->headers_busy);
}

/* --- impossible settings --------------------------------------------------------------------- */

static const struct ofi_setting {
    const char *provider, *interface, *domain;
    twill_status status;
    const char *says[3];
} settings[] = {
    {"tpc", NULL, NULL, TWILL_ERR_CONFIG, {"TWILL_PROVIDER=tpc", "tcp", "sockets"}},
    {"t", NULL, NULL, TWILL_ERR_CONFIG, {"TWILL_PROVIDER=t:", "tcp", ""}},
    {"gni", NULL, NULL, TWILL_ERR_CONFIG, {"TWILL_PROVIDER=gni", "no such provider", "tcp"}},
    {"tcp", "eth99", NULL, TWILL_ERR_CONFIG, {"TWILL_INTERFACE=eth99", "it has", " ("}},
    {NULL, "203.0.113.9", NULL, TWILL_ERR_CONFIG, {"TWILL_INTERFACE=203.0.113.9", "it has", " ("}},
    {"tcp", NULL, "mlx5_0", TWILL_ERR_CONFIG, {"TWILL_TUNE=domain=mlx5_0", "it has", " ("}},
    {NULL, NULL, NULL, TWILL_OK, {"tcp", "domain lo", "127.0.0.1"}},
    {"tcp", "lo", NULL, TWILL_OK, {"tcp", "TWILL_INTERFACE", "127.0.0.1"}},
    {"tcp", "::1", NULL, TWILL_OK, {"tcp", "TWILL_INTERFACE", "[::1]"}},
    {"TCP", "", "lo", TWILL_OK, {"TWILL_PROVIDER", "TWILL_TUNE=domain", "lo"}},
    {"sockets", NULL, NULL, TWILL_OK, {"sockets", "TWILL_PROVIDER", "127.0.0.1"}},
};

/* Rank 0 has a setting, rank 1 has none: both must get the error. */
static void rank_setting(int rank, int size, twill_bootstrap *caller, void *user)
{
    const struct ofi_setting *s = user;
    bool mine = rank == 0 || s->status == TWILL_OK;
    const struct test_setting own[] = {{"TWILL_TUNE=domain", mine ? s->domain : NULL},
                                       {NULL, NULL}};
    struct twill_test_end end;
    TWILL_CHECK(end_begin(&end, caller));
    end.params.provider = mine ? s->provider : NULL;
    end.params.interface = mine ? s->interface : NULL;
    end.params.setting = test_setting;
    end.params.settings = own;
    twill_status status = twill_ofi_transport.open(&end.transport, &end.params, &end.error);
    const char *text =
        status == TWILL_OK ? twill_ofi_transport.describe(end.transport) : end.error.message;
    TWILL_NOTE(status == s->status && (end.transport != NULL) == (status == TWILL_OK),
               "rank %d: status %d, not %d: %s", rank, status, s->status, text);
    for (size_t i = 0; i < 3; i++)
        TWILL_NOTE(strstr(text, s->says[i]) != NULL, "rank %d: \"%s\" does not say \"%s\"", rank,
                   text, s->says[i]);
    TWILL_NOTE(rank == 0 || status == TWILL_OK || strstr(text, "rank 0") != NULL,
               "\"%s\" does not name rank 0", text);
    if (status == TWILL_OK)
        (void)end_barrier(&end);
    end_close(&end);
}

TWILL_TEST(test_settings)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(settings); i++)
        for (int ranks = 1; ranks <= 2; ranks++)
            twill_test_run_ranks(ranks, rank_setting, (void *)&settings[i]);
}

TWILL_TEST_OF_RANKS(test_other_provider, 3)
{
    struct twill_test_end end;
    TWILL_CHECK(end_begin(&end, bootstrap));
    end.params.provider = rank == 1 ? "sockets" : "tcp";
    TWILL_CHECK(twill_ofi_transport.open(&end.transport, &end.params, &end.error) ==
                TWILL_ERR_CONFIG);
    TWILL_CHECK(end.transport == NULL && strstr(end.error.message, "sockets") != NULL &&
                strstr(end.error.message, "tcp") != NULL);
    end_close(&end);
}

/* --- devices ---------------------------------------------------------------------------------- */

/* What /sys says of networks: libfabric is not asked only where there is nothing but Ethernet. */

static const struct machine {
    const char *title;
    const char *files; /* path=text, between spaces; a path that ends with a slash is a folder */
    bool only_ethernet;
} machines[] = {
    {"no /sys", "", false},
    {"no interface", "class/net/", false},
    {"loopback", "class/net/lo/type=772", true},
    {"Ethernet", "class/net/lo/type=772 class/net/eth0/type=1", true},
    {"a bond", "class/net/bond0/type=1 class/net/bonding_masters=bond0", true},
    {"tunnels", "class/net/eth0/type=1 class/net/tun0/type=65534 class/net/sit0/type=776", true},
    {"IP over Infiniband", "class/net/eth0/type=1 class/net/ib0/type=32", false},
    {"an interface of an unknown type", "class/net/x0/type=4242", false},
    {"an interface without a type", "class/net/x0/", false},
    {"RoCE, EFA", "class/net/eth0/type=1 class/infiniband/efa_0/", false},
    {"no RDMA device", "class/net/eth0/type=1 class/infiniband/", true},
    {"Slingshot", "class/net/hsn0/type=1 class/cxi_user/cxi0/", false},
    {"Omni-Path", "class/net/eth0/type=1 class/hfi1_user/hfi1_0/", false},
    {"a disk on PCI", "class/net/eth0/type=1 bus/pci/devices/0/class=0x010802", true},
    {"Ethernet on PCI", "class/net/eth0/type=1 bus/pci/devices/0/class=0x020000", true},
    {"a fabric on PCI without a driver",
     "class/net/eth0/type=1 bus/pci/devices/0/class=0x020000 bus/pci/devices/1/class=0x020800",
     false},
    {"a device on PCI without a class", "class/net/eth0/type=1 bus/pci/devices/0/", false},
};

/* Make a file with its folders, or a folder, from the first word of a text. */
static void make(const char *root, const char *entry)
{
    char path[256];
    int length = (int)strcspn(entry, "= "), end = (int)strcspn(entry, " ");
    assert_true(snprintf(path, sizeof(path), "%s/%.*s", root, length, entry) < (int)sizeof(path));
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        (void)mkdir(path, 0700);
        *slash = '/';
    }
    if (end == length)
        return;
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "%.*s\n", end - length - 1, entry + length + 1);
    assert_int_equal(fclose(file), 0);
}

TWILL_TEST(test_machines)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(machines); i++) {
        char root[] = "/tmp/twill-sys-XXXXXX", remove[64];
        assert_non_null(mkdtemp(root));
        for (const char *at = machines[i].files; *at != '\0'; at += strspn(at, " ")) {
            make(root, at);
            at += strcspn(at, " ");
        }
        bool only = twill_ofi_only_ethernet(root);
        snprintf(remove, sizeof(remove), "rm -r %s", root);
        assert_int_equal(system(remove), 0);
        if (only != machines[i].only_ethernet)
            fail_msg("%s: libfabric is %s", machines[i].title, only ? "not asked" : "asked");
    }
}
