/* SPDX-License-Identifier: Apache-2.0 */
/* Bootstraps without a network: one rank, the caller's callback, bad variables; hosts and
 * interfaces. */
#include "fabric/bootstrap/frames.h"
#include "fabric/bootstrap/oob_batch.h"
#include "fabric/host/host_identity.h"
#include "fabric/rails/rails.h"
#include "fabric/shm/shared_region.h"
#include "fabric/transports.h"
#include "tests/support/job_ranks.h"
#include "tests/support/tcp_ends.h"
#include "tests/support/unit.h"

#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/wait.h>

/* --- variables ------------------------------------------------------------------------------- */

static const struct {
    struct twill_bootstrap_params params;
    twill_status status;
    const char *says;
    bool filled; /* variables that are not given get right values */
} wrong[] = {
    {{.rank = "0"}, TWILL_ERR_CONFIG, "WORLD_SIZE MASTER_ADDR MASTER_PORT", false},
    {{.world_size = "2"}, TWILL_ERR_CONFIG, "not RANK MASTER_ADDR MASTER_PORT", false},
    {{.master_addr = "h"}, TWILL_ERR_CONFIG, "not RANK WORLD_SIZE MASTER_PORT", false},
    {{.master_port = "1"}, TWILL_ERR_CONFIG, "not RANK WORLD_SIZE MASTER_ADDR", false},
    {{.rank = "1", .world_size = "2", .master_port = "1"}, TWILL_ERR_CONFIG, "MASTER_ADDR", false},
    {{.rank = "1", .world_size = "2", .master_addr = "h"}, TWILL_ERR_CONFIG, "MASTER_PORT", false},
    {{.rank = "abc"}, TWILL_ERR_CONFIG, "RANK=abc is not a number", true},
    {{.rank = "-1"}, TWILL_ERR_CONFIG, "RANK=-1", true},
    {{.rank = " 1"}, TWILL_ERR_CONFIG, "RANK= 1", true},
    {{.rank = "1x"}, TWILL_ERR_CONFIG, "RANK=1x", true},
    {{.rank = "2"}, TWILL_ERR_CONFIG, "RANK=2 must be below WORLD_SIZE=2", true},
    {{.rank = "99999999999999999999"},
     TWILL_ERR_CONFIG,
     "RANK=99999999999999999999 is outside",
     true},
    {{.world_size = "0"}, TWILL_ERR_CONFIG, "WORLD_SIZE=0 is outside", true},
    {{.world_size = "two"}, TWILL_ERR_CONFIG, "WORLD_SIZE=two", true},
    {{.world_size = "65536"}, TWILL_ERR_CONFIG, "WORLD_SIZE=65536 is outside", true},
    {{.master_port = "0"}, TWILL_ERR_CONFIG, "MASTER_PORT=0", true},
    {{.master_port = "70000"}, TWILL_ERR_CONFIG, "MASTER_PORT=70000", true},
    {{.master_port = "http"}, TWILL_ERR_CONFIG, "MASTER_PORT=http", true},
    {{.job = "xyz"}, TWILL_ERR_CONFIG, "TWILL_JOB must have", true},
    {{.job = "0000"}, TWILL_ERR_CONFIG, "TWILL_JOB must not", true},
    {{.job = "12345678901234567890123456789012345678901234567890123456789012345"},
     TWILL_ERR_CONFIG,
     "TWILL_JOB must have 1 to 64",
     true},
    {{.job = "123"}, TWILL_ERR_CONFIG, "rank 1: TWILL_JOB has 3 hex digits", true},
    {{.key_file = "/dev/null"},
     TWILL_ERR_CONFIG,
     "rank 1: TWILL_KEY_FILE: /dev/null is not a file",
     true},
    {{.interface = "nosuch0"}, TWILL_ERR_CONFIG, "TWILL_INTERFACE=nosuch0", true},
    {{.rank = "1", .world_size = "2", .master_addr = "no.such.host.invalid", .master_port = "9"},
     TWILL_ERR_BOOTSTRAP,
     "rank 1: MASTER_ADDR=no.such.host.invalid",
     false},
    {{.rank = "0", .world_size = "2", .master_addr = "256.1.1.1", .master_port = "9"},
     TWILL_ERR_BOOTSTRAP,
     "rank 0: MASTER_ADDR=256.1.1.1",
     false},
};

TWILL_TEST(bad_variables)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(wrong); i++) {
        struct twill_bootstrap_params params = wrong[i].params;
        struct twill_oob *oob = (struct twill_oob *)&params;
        struct twill_error error = {0};
        params.timeout_ns = TWILL_TEST_SECOND;
        if (wrong[i].filled) {
            params.rank = params.rank ? params.rank : "1";
            params.world_size = params.world_size ? params.world_size : "2";
            params.master_addr = "127.0.0.1";
            params.master_port = params.master_port ? params.master_port : "9";
        }
        twill_status status = twill_bootstrap_open(&oob, &params, &error);
        if (status != wrong[i].status || !strstr(error.message, wrong[i].says))
            fail_msg("%zu: status %d, \"%s\"; wanted \"%s\"", i, status, error.message,
                     wrong[i].says);
        bool number = params.rank && strspn(params.rank, "0123456789") == strlen(params.rank);
        assert_true(!number || strncmp(error.message, "rank ", 5) == 0);
        assert_null(oob);
    }
}

TWILL_TEST(single)
{
    struct twill_bootstrap_params params = {
        .rank = "", .world_size = "", .timeout_ns = TWILL_TEST_SECOND};
    struct twill_error error = {0};
    struct twill_oob *oob;
    int mine = 42, all = 0;
    assert_int_equal(twill_bootstrap_open(&oob, &params, &error), TWILL_OK);
    assert_string_equal(oob->ops->name, "none");
    assert_int_equal(oob->rank, 0);
    assert_int_equal(oob->size, 1);
    assert_int_equal(twill_oob_allgather(oob, &mine, &all, sizeof(mine), &error), TWILL_OK);
    assert_int_equal(all, 42);
    twill_oob_close(oob);
    twill_oob_close(NULL);
}

/* --- the caller's callback ------------------------------------------------------------------- */

static void rank_by_caller(int rank, int size, twill_bootstrap *lent, void *user)
{
    struct twill_bootstrap_params params = {
        .caller = lent, .rank = "x", .timeout_ns = TWILL_TEST_SECOND};
    struct twill_error error = {0};
    struct twill_oob *oob;
    uint8_t nonces[16][TWILL_NONCE_BYTES];
    TWILL_CHECK_OK(&error, twill_bootstrap_open(&oob, &params, &error));
    TWILL_CHECK(oob->rank == rank && oob->size == size);
    TWILL_CHECK(strcmp(oob->address, "127.0.0.1") == 0);
    TWILL_CHECK_OK(&error, twill_oob_allgather(oob, oob->nonce, nonces, sizeof(nonces[0]), &error));
    for (int r = 0; r < size; r++)
        TWILL_CHECK(memcmp(nonces[r], oob->nonce, sizeof(nonces[0])) == 0);
    (void)(twill_test_gather(oob, 1000, 1) && twill_test_gather(oob, 0, 2));
    twill_oob_close(oob);
}

TWILL_TEST(caller_sizes)
{
    static const int sizes[] = {1, 2, 5};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(sizes); i++)
        twill_test_run_ranks(sizes[i], rank_by_caller, NULL);
}

static int failing_exchange(void *user, const void *mine, void *all, size_t bytes)
{
    return *(int *)user;
}

TWILL_TEST(caller_bad)
{
    int code = 17;
    const struct {
        twill_bootstrap lent;
        twill_status status;
        const char *says;
    } table[] = {
        {{.rank = 0, .size = 0}, TWILL_ERR_ARGUMENT, "size is 0"},
        {{.rank = -1, .size = 2}, TWILL_ERR_ARGUMENT, "rank -1"},
        {{.rank = 2, .size = 2}, TWILL_ERR_ARGUMENT, "rank 2"},
        {{.rank = 1, .size = 2}, TWILL_ERR_ARGUMENT, "exchange"},
        {{.rank = 1, .size = 2, .exchange = failing_exchange, .user = &code},
         TWILL_ERR_BOOTSTRAP,
         "returned 17"},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(table); i++) {
        struct twill_bootstrap_params params = {.caller = &table[i].lent,
                                                .timeout_ns = TWILL_TEST_SECOND};
        struct twill_error error = {0};
        struct twill_oob *oob;
        assert_int_equal(twill_bootstrap_open(&oob, &params, &error), table[i].status);
        assert_null(oob);
        assert_non_null(strstr(error.message, table[i].says));
    }
}

/* --- hosts and interfaces -------------------------------------------------------------------- */

TWILL_TEST(hosts)
{
    struct twill_host a, b;
    twill_host_describe(&a);
    twill_host_describe(&b);
    assert_true(a.pid == (uint64_t)getpid());
    assert_true(a.boot_id[0] && a.name[0] && a.net_namespace && a.pid_namespace);
    assert_true(twill_host_same_node(&a, &b) && twill_host_same_process(&a, &b));
    b.pid++;
    assert_true(twill_host_same_node(&a, &b) && !twill_host_same_process(&a, &b));
    b = a;
    b.pid_namespace++;
    assert_true(twill_host_same_node(&a, &b) && !twill_host_same_process(&a, &b));
    b = a;
    b.net_namespace++;
    assert_false(twill_host_same_node(&a, &b) || twill_host_same_process(&a, &b));
    b = a;
    b.boot_id[0] ^= 1;
    assert_false(twill_host_same_node(&a, &b) || twill_host_same_process(&a, &b));
}

/* All processes of a kernel agree on when it was booted. */
TWILL_TEST(kernels)
{
    uint64_t own = twill_host_booted();
    pid_t child = fork();
    if (child == 0)
        _exit(twill_host_booted_together(twill_host_booted(), own) ? 0 : 1);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_false(twill_host_booted_together(own, own + 1000000));
    assert_false(twill_host_booted_together(own, own - 1000000));
}

/* A child takes its turns on a core with its parent, until it has a session of its own. */
TWILL_TEST(turns)
{
    struct twill_host host;
    twill_host_describe(&host);
    uint64_t own = twill_host_turns(&host);
    char text[2] = "";
    FILE *file = fopen("/proc/sys/kernel/sched_autogroup_enabled", "r");
    bool by_session = file != NULL && fgets(text, sizeof(text), file) != NULL && text[0] == '1';
    if (file != NULL)
        (void)fclose(file);
    pid_t child = fork();
    if (child == 0) {
        bool same = twill_host_turns(&host) == own;
        (void)setsid();
        _exit(same && (twill_host_turns(&host) != own) == by_session ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

TWILL_TEST(interfaces)
{
    static const struct {
        const char *requested, *peer, *address, *interface;
        twill_status status;
        const char *says;
    } table[] = {
        {NULL, "127.0.0.1", "127.0.0.1", "lo", TWILL_OK, "route to 127.0.0.1"},
        {"lo", NULL, "127.0.0.1", "lo", TWILL_OK, "TWILL_INTERFACE=lo"},
        {"127.0.0.1", NULL, "127.0.0.1", "lo", TWILL_OK, "TWILL_INTERFACE=127.0.0.1"},
        {"", "127.0.0.1", "127.0.0.1", "lo", TWILL_OK, "route"},
        {"nosuch0", NULL, NULL, NULL, TWILL_ERR_CONFIG, "lo 127.0.0.1"},
        {"203.0.113.77", NULL, NULL, NULL, TWILL_ERR_CONFIG, "TWILL_INTERFACE=203.0.113.77"},
    };
    char address[TWILL_ADDRESS_TEXT], interface[32], why[160];
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(table); i++) {
        struct twill_error error = {0};
        why[0] = '\0';
        twill_status status = twill_interface_choose(address, interface, table[i].requested,
                                                     table[i].peer, why, sizeof(why), &error);
        if (status != table[i].status || !strstr(status ? error.message : why, table[i].says))
            fail_msg("%zu: status %d, \"%s%s\"", i, status, why, error.message);
        if (status == TWILL_OK) {
            assert_string_equal(address, table[i].address);
            assert_string_equal(interface, table[i].interface);
            twill_interface_of(interface, address);
            assert_string_equal(interface, table[i].interface);
        }
    }
    /* Without a peer: some address, and never that of a bridge of containers. */
    struct twill_error error = {0};
    assert_int_equal(
        twill_interface_choose(address, interface, NULL, NULL, why, sizeof(why), &error), TWILL_OK);
    assert_true(strncmp(interface, "docker", 6) != 0 && strncmp(interface, "veth", 4) != 0);
    assert_true(address[0] && why[0]);
    twill_interface_of(interface, "203.0.113.77");
    assert_string_equal(interface, "");
}

/* Convert numeric texts to addresses and back. */
TWILL_TEST(addresses)
{
    static const struct {
        const char *text, *back; /* back NULL: not an address */
    } table[] = {
        {"127.0.0.1", "127.0.0.1"},
        {"::1", "::1"},
        {"fd88:0:0:0::7", "fd88::7"},
        {"::ffff:10.1.2.3", "10.1.2.3"},
        {"fe80::1%lo", "fe80::1%lo"},
        {"fe80::1%1", "fe80::1%lo"},
        {"fe80::1%nosuch0", NULL},
        {"fe80::1%", NULL},
        {"256.1.1.1", NULL},
        {"localhost", NULL},
        {"", NULL},
        {"0123:4567:89ab:cdef:0123:4567:89ab:cdef:0123:4567:89ab:cdef", NULL},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(table); i++) {
        struct sockaddr_storage address;
        struct twill_endpoint endpoint;
        socklen_t length;
        bool good = twill_endpoint_address(table[i].text, 4711, &address, &length);
        if (good != (table[i].back != NULL))
            fail_msg("%s: %d", table[i].text, good);
        if (good) {
            assert_true(twill_endpoint_of((struct sockaddr *)&address, length, &endpoint));
            assert_string_equal(endpoint.address, table[i].back);
            assert_int_equal(endpoint.port, 4711);
        }
    }
}

/* --- batches ---------------------------------------------------------------------------------- */

/* Parts of several modules in one exchange, and the failure of a rank on all ranks. */

enum { BATCHED = 3 };

/* Two parts, of which rank 1 has none to send and rank 2 takes none; one exchange after another. */
TWILL_TEST_OF_RANKS(test_parts, BATCHED)
{
    struct twill_oob *oob = twill_test_oob(bootstrap);
    struct twill_oob_batch batch = {.oob = oob};
    struct twill_error error = {0};
    for (unsigned turn = 1; turn <= 2; turn++) {
        uint64_t wide = 100 * turn + (unsigned)rank, wides[BATCHED] = {0};
        char narrow = (char)('a' + rank), narrows[BATCHED] = {0};
        twill_oob_batch_add(&batch, rank == 1 ? NULL : &narrow, narrows, sizeof(narrow));
        twill_oob_batch_add(&batch, &wide, rank == 2 ? NULL : wides, sizeof(wide));
        TWILL_CHECK_OK(&error, twill_oob_batch_exchange(&batch, TWILL_OK, &error));
        TWILL_CHECK(size == BATCHED && batch.parts == 0 && oob->rounds == turn);
        TWILL_CHECK(narrows[0] == 'a' && narrows[1] == '\0' && narrows[2] == 'c');
        for (unsigned r = 0; r < BATCHED; r++)
            TWILL_CHECK(wides[r] == (rank == 2 ? 0 : 100 * turn + r));
    }
    twill_test_oob_close(oob);
}

/* Ranks 1 and 2 fail: all ranks report the first of them, and have the parts nevertheless. */
static void failing_rank(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct twill_oob *oob = twill_test_oob(caller);
    struct twill_oob_batch batch = {.oob = oob};
    struct twill_error error = {0};
    const bool *names = user;
    twill_status status = TWILL_OK;
    uint8_t mine = (uint8_t)(rank + 1), all[BATCHED] = {0};
    if (rank == 1)
        status = TWILL_FAIL(&error, TWILL_ERR_SYSTEM, "%sno socket", *names ? "rank 1: " : "");
    if (rank == 2)
        status = TWILL_FAIL(&error, TWILL_ERR_MEMORY, "no memory");
    twill_oob_batch_add(&batch, &mine, all, sizeof(mine));
    TWILL_CHECK(twill_oob_batch_exchange(&batch, status, &error) == TWILL_ERR_SYSTEM);
    TWILL_CHECK(all[0] == 1 && all[1] == 2 && all[2] == 3);
    TWILL_CHECK(error.status == TWILL_ERR_SYSTEM &&
                strcmp(error.message, rank == 1 && !*names ? "no socket" : "rank 1: no socket") ==
                    0);
    twill_test_oob_close(oob);
}

TWILL_TEST(test_failure)
{
    for (int i = 0; i < 2; i++) {
        bool names = i == 1;
        twill_test_run_ranks(BATCHED, failing_rank, &names);
    }
}

/* The exchange itself fails: what this rank has noticed before is the reason. */
static twill_status broken(struct twill_oob *oob, const void *mine, void *all, size_t bytes,
                           struct twill_error *error)
{
    return TWILL_FAIL(error, TWILL_ERR_BOOTSTRAP, "no answer");
}

TWILL_TEST(test_suspicion)
{
    static const struct twill_bootstrap_ops ops = {.allgather = broken};
    struct twill_oob oob = {.ops = &ops, .size = 2};
    struct twill_oob_batch batch = {.oob = &oob};
    struct twill_error error = {0}, again = {0}, own = {0};
    twill_oob_batch_suspect(&batch, TWILL_ERR_PEER, "lost rank %d", 1);
    assert_int_equal(twill_oob_batch_exchange(&batch, TWILL_OK, &error), TWILL_ERR_PEER);
    assert_string_equal(error.message, "lost rank 1; then: no answer");
    assert_int_equal(twill_oob_batch_exchange(&batch, TWILL_OK, &again), TWILL_ERR_BOOTSTRAP);
    assert_string_equal(again.message, "no answer");
    (void)TWILL_FAIL(&own, TWILL_ERR_MEMORY, "mine");
    assert_int_equal(twill_oob_batch_exchange(&batch, TWILL_ERR_MEMORY, &own), TWILL_ERR_MEMORY);
    assert_string_equal(own.message, "mine");
}

/* --- damaged records -------------------------------------------------------------------------- */

/* Records of a rank whose memory is damaged, in all-gathers: they are refused with a sentence. The
 * fuzzers `exchange` and `endpoints` found these, or were written after them. */

enum { DAMAGED = 2 };

/* An exchange in which rank 1 says what rank 0 does, but for 4 bytes at some offsets. */
struct damaged {
    struct twill_oob oob;
    unsigned exchange; /* which one, from 1 */
    size_t changes;
    struct {
        size_t offset;
        int32_t value;
    } change[3];
};

static twill_status exchange(struct twill_oob *oob, const void *mine, void *all, size_t bytes,
                             struct twill_error *error)
{
    const struct damaged *damaged = (const struct damaged *)oob;
    for (size_t r = 0; r < DAMAGED; r++)
        memcpy((char *)all + r * bytes, mine, bytes);
    for (size_t i = 0; i < damaged->changes && oob->rounds == damaged->exchange; i++)
        memcpy((char *)all + bytes + damaged->change[i].offset, &damaged->change[i].value, 4);
    return TWILL_OK;
}

static const struct twill_bootstrap_ops ops = {.name = "damaged", .allgather = exchange};

static struct twill_oob oob_of_two(void)
{
    return (struct twill_oob){
        .ops = &ops, .size = DAMAGED, .timeout_ns = 2000000000, .address = "127.0.0.1"};
}

/* TWILL_TRY would take a positive status for success. */
TWILL_TEST(test_status)
{
    struct damaged damaged = {oob_of_two(), 1, 1, {{0, 5}}};
    struct twill_oob_batch batch = {.oob = &damaged.oob};
    struct twill_error error = {0};
    assert_int_equal(twill_oob_batch_exchange(&batch, TWILL_OK, &error), TWILL_ERR_INTERNAL);
    assert_memory_equal(error.message, "rank 1 sent 5, which is not a status: ", 38);
    assert_int_equal(twill_status_received(TWILL_STATUS_LOWEST), TWILL_STATUS_LOWEST);
    assert_int_equal(twill_status_received(TWILL_STATUS_LOWEST - 1), TWILL_ERR_INTERNAL);
    assert_int_equal(twill_status_received(INT64_C(1) << 32), TWILL_ERR_INTERNAL);
}

/* The second word of what ranks send when tcp opens is their status. */
TWILL_TEST(test_tcp)
{
    struct damaged damaged = {oob_of_two(), 1, 1, {{4, 1}}};
    const uint32_t label[] = {0, 1};
    struct twill_world world;
    struct twill_error error = {0};
    struct twill_transport *transport;
    assert_int_equal(twill_world_create(&world, DAMAGED, label, &error), TWILL_OK);
    const struct twill_transport_params params = {.oob = &damaged.oob, .world = &world, .comm = 1};
    assert_int_equal(twill_tcp_transport.open(&transport, &params, &error), TWILL_ERR_INTERNAL);
    assert_null(transport);
    assert_memory_equal(error.message, "rank 1: ", 8);
    twill_world_destroy(&world);
}

TWILL_TEST(test_rails)
{
    static const uint32_t requested[] = {0, TWILL_RAILS_MOST + 1, UINT32_MAX};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(requested); i++) {
        struct twill_rails_info infos[DAMAGED];
        struct twill_error error = {0};
        uint32_t place[TWILL_RAILS_MOST], weight[TWILL_RAILS_MOST], count = 0;
        memset(infos, 0, sizeof(infos));
        for (size_t r = 0; r < DAMAGED; r++) {
            infos[r].setting = TWILL_RAILS_NUMBER;
            infos[r].requested = requested[i];
            infos[r].count = 1;
        }
        assert_int_equal(twill_rails_agree(infos, DAMAGED, 0, place, weight, &count, &error),
                         TWILL_ERR_INTERNAL);
        assert_memory_equal(error.message, "rank 0 sent an unknown kind of rails: ", 38);
    }
}

/* A rank that has waited for the memory of one that does not exist: in the second exchange, behind
 * the status, which has 256 bytes. */
TWILL_TEST(test_shared_memory)
{
    static const uint32_t job[] = {7, 9};
    struct damaged damaged = {oob_of_two(), 2, 2, {{256 + 20, 1}, {256 + 28, -1}}};
    struct twill_oob_batch batch = {.oob = &damaged.oob};
    struct twill_error error = {0};
    struct twill_shm_region *region;
    uint32_t label[] = {0, 0};
    const char *why;
    damaged.oob.job = job;
    twill_status status = twill_shm_region_offer(&region, &damaged.oob, &batch, &error);
    assert_int_equal(twill_oob_batch_exchange(&batch, status, &error), TWILL_OK);
    status =
        twill_shm_region_attach(region, label, 4096, 0, "twill-comm", NULL, NULL, &batch, &error);
    assert_int_equal(twill_oob_batch_exchange(&batch, status, &error), TWILL_OK);
    assert_int_equal(twill_shm_region_conclude(region, label, &why, &error), TWILL_ERR_TIMEOUT);
    assert_non_null(strstr(error.message, "rank 9 of the job (1 here) waited 2 s for the memory of "
                                          "another rank"));
    twill_shm_region_close(region);
}

/* --- connections that cannot be accepted ------------------------------------------------------ */

/* Connections that cannot be accepted for a while for want of resources of the host: peers wait,
 * and nothing fails. This program's accept4() fails as often as a test sets. */

/* Every other call fails, `refusals` times in all; `allowed` connections succeed. */
static atomic_int refusals, allowed, asked;

int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
    static const int causes[] = {ENFILE, ENOBUFS, EINTR, ENOMEM, ECONNABORTED};
    int (*real)(int, struct sockaddr *, socklen_t *, int) =
        (int (*)(int, struct sockaddr *, socklen_t *, int))dlsym(RTLD_NEXT, "accept4");
    unsigned number = (unsigned)atomic_fetch_add(&asked, 1);
    errno = causes[number / 2 % TWILL_ARRAY_LENGTH(causes)];
    if (number % 2 == 0 && atomic_fetch_sub(&refusals, 1) > 0)
        return -1;
    errno = EMFILE; /* Linux reports this even if no connection waits */
    int accepted = atomic_load(&allowed) > 0 ? real(fd, address, length, flags) : -1;
    if (accepted >= 0)
        atomic_fetch_sub(&allowed, 1);
    return accepted;
}

static void refuse_connections(int times, int connections)
{
    atomic_store(&refusals, times);
    atomic_store(&allowed, connections);
    atomic_store(&asked, 0);
}

TWILL_TEST(tcp_rendezvous)
{
    for (int times = 0; times <= 20; times += 10) { /* and with the last descriptor */
        refuse_connections(times, 4);
        twill_test_job_run("127.0.0.1", 5, -1, twill_test_rank_gathers);
        assert_int_equal(atomic_load(&allowed), 0);
    }
}

static void swap_ranks(struct twill_test_end *end, void *user)
{
    uint32_t out = end->rank + 5, in = 0;
    struct twill_transfer one[2] = {
        end_transfer(TWILL_TRANSFER_SEND, end->peer, 0, &out, sizeof(out)),
        end_transfer(TWILL_TRANSFER_RECV, end->peer, 0, &in, sizeof(in)),
    };
    TWILL_CHECK(end_post(end, &one[0]) && end_post(end, &one[1]) && end_await(end, one, 2));
    TWILL_CHECK(one[0].status == TWILL_OK && one[1].status == TWILL_OK && in == end->peer + 5,
                "rank %u: %d, %d, got %u", end->rank, one[0].status, one[1].status, in);
}

#define CONNECTIONS 2 /* of the exchange: the lane's and the next one's */

TWILL_TEST(transport_connects)
{
    for (int times = 0; times <= 20; times += 10) {
        refuse_connections(times, CONNECTIONS);
        end_test_run((struct end_test){.ranks = 2, .open = tcp_open, .body = swap_ranks});
        assert_true(atomic_load(&allowed) < CONNECTIONS);
    }
}
