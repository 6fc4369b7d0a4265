/* SPDX-License-Identifier: Apache-2.0 */
/* Bootstraps without a network: one rank, the caller's callback, bad variables; hosts and
 * interfaces. */
#include "fabric/bootstrap/frames.h"
#include "fabric/host/host_identity.h"
#include "tests/support/job_ranks.h"
#include "tests/support/unit.h"

#include <netinet/in.h>

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
    {{.job = "xyz"}, TWILL_ERR_CONFIG, "TWILL_JOB is not", true},
    {{.job = "0000"}, TWILL_ERR_CONFIG, "TWILL_JOB must not", true},
    {{.job = "12345678901234567890123456789012345678901234567890123456789012345"},
     TWILL_ERR_CONFIG,
     "TWILL_JOB is not 1 to 64",
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
        {{.rank = 0, .size = 0}, TWILL_ERR_ARGUMENT, "size 0"},
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
