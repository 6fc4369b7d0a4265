/* SPDX-License-Identifier: Apache-2.0 */
/* The ofi transport where it cannot work: impossible settings, peers that differ, are cancelled or
 * dead. */
#include "tests/support/ofi_ends.h"
#include "tests/support/unit.h"

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
    {"tcp", NULL, "mlx5_0", TWILL_ERR_CONFIG, {"TWILL_TUNE=domain=mlx5_0", "there are", " ("}},
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
    struct twill_oob *oob = twill_test_oob(caller);
    struct twill_error error = {0};
    struct twill_transport *transport = NULL;
    bool mine = rank == 0 || s->status == TWILL_OK;
    const struct test_setting own[] = {{"TWILL_TUNE=domain", mine ? s->domain : NULL},
                                       {NULL, NULL}};
    struct twill_transport_params params = {.oob = oob,
                                            .comm = 1,
                                            .provider = mine ? s->provider : NULL,
                                            .interface = mine ? s->interface : NULL,
                                            .setting = test_setting,
                                            .settings = own};
    twill_status status = twill_ofi_transport.open(&transport, &params, &error);
    const char *text = status == TWILL_OK ? twill_ofi_transport.describe(transport) : error.message;
    TWILL_NOTE(status == s->status, "rank %d: status %d, not %d: %s", rank, status, s->status,
               text);
    for (size_t i = 0; i < 3; i++)
        TWILL_NOTE(strstr(text, s->says[i]) != NULL, "rank %d: \"%s\" does not say \"%s\"", rank,
                   text, s->says[i]);
    TWILL_NOTE(rank == 0 || status == TWILL_OK || strstr(text, "rank 0") != NULL,
               "\"%s\" does not name rank 0", text);
    TWILL_NOTE((transport != NULL) == (status == TWILL_OK), "transport");
    int all[2];
    if (size == 2 && transport != NULL)
        twill_oob_allgather(oob, &rank, all, sizeof(rank), NULL);
    if (transport != NULL)
        twill_ofi_transport.close(transport);
    twill_test_oob_close(oob);
}

TWILL_TEST(test_settings)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(settings); i++) {
        twill_test_run_ranks(1, rank_setting, (void *)&settings[i]);
        twill_test_run_ranks(2, rank_setting, (void *)&settings[i]);
    }
}

TWILL_TEST_OF_RANKS(test_other_provider, 3)
{
    struct twill_oob *oob = twill_test_oob(bootstrap);
    struct twill_error error = {0};
    struct twill_transport *transport = NULL;
    struct twill_transport_params params = {.oob = oob, .provider = rank == 1 ? "sockets" : "tcp"};
    TWILL_CHECK(twill_ofi_transport.open(&transport, &params, &error) == TWILL_ERR_CONFIG);
    TWILL_CHECK(transport == NULL && strstr(error.message, "sockets") != NULL &&
                strstr(error.message, "tcp") != NULL);
    twill_test_oob_close(oob);
}

/* --- failure: whatever was posted, cancel and close are safe ---------------------------------- */

static void rank_cancel(int rank, int size, twill_bootstrap *caller, void *user)
{
    enum { n = 12 };
    struct end end;
    if (end_open(&end, caller, user, 6)) {
        unsigned char *data = page_map((size_t)n << 20);
        struct twill_transfer *r = (struct twill_transfer *)(void *)page_map(1u << 20);
        (void)post_hopeless(&end, r, rank == 0 ? n : 6, data);
        uint64_t until = twill_now() + SECOND / 20;
        while (twill_now() < until && progress(&end))
            ;
        rank_barrier(&end);
        /* Rank 0 cancels while rank 1 goes on sending. */
        if (rank == 0) {
            twill_ofi_transport.cancel(end.transport);
            munmap(data, (size_t)n << 20);
            munmap(r, 1u << 20);
            struct twill_transfer late = {.kind = TWILL_TRANSFER_SEND, .peer = 1};
            TWILL_NOTE(twill_ofi_transport.post(end.transport, &late, NULL) == TWILL_ERR_BROKEN &&
                           twill_ofi_transport.progress(end.transport, NULL) < 0,
                       "a cancelled transport still works");
        } else {
            until = twill_now() + SECOND / 5;
            while (twill_now() < until &&
                   twill_ofi_transport.progress(end.transport, &end.error) >= 0)
                sched_yield();
            twill_ofi_transport.cancel(end.transport);
            munmap(data, (size_t)n << 20);
            munmap(r, 1u << 20);
        }
        rank_barrier(&end);
    }
    end_close(&end);
}

TWILL_TEST(test_cancel)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(setups); i++)
        twill_test_run_ranks(2, rank_cancel, (void *)&setups[i]);
}

/* A peer that is killed. Libfabric may notice or not (that is the failure detector's task); but
 * there must be no hang, no crash, and no message that seems to have arrived. */
static void rank_death(int rank, int size, twill_bootstrap *caller, void *user)
{
    enum { n = 12 };
    struct end end;
    if (rank == 1)
        twill_test_expect_death(1);
    TWILL_CHECK(end_open(&end, caller, user, 7));
    struct message *m = calloc(2, sizeof(*m));
    message_make(&m[0], &end, TWILL_TRANSFER_SEND, (uint32_t)(1 - rank), 0, 1, 50000, false);
    message_make(&m[1], &end, TWILL_TRANSFER_RECV, (uint32_t)(1 - rank), 0, 1, 50000, false);
    TWILL_CHECK(messages_run(&end, m, 2));
    message_free(m, 2);
    TWILL_CHECK(rank_barrier(&end)); /* what completed here may still be in flight to the peer */
    if (rank == 1)
        _exit(9);
    static struct twill_transfer r[n];
    unsigned char *data = page_map((size_t)n << 20);
    (void)post_hopeless(&end, r, n, data);
    uint64_t until = twill_now() + SECOND;
    int moved = 0;
    while (twill_now() < until && moved >= 0)
        moved = twill_ofi_transport.progress(end.transport, &end.error);
    TWILL_CHECK(moved >= 0 || moved == TWILL_ERR_PEER);
    for (size_t i = 0; i < n; i += 2)
        TWILL_CHECK(r[i].status == TWILL_PENDING);
    twill_ofi_transport.cancel(end.transport);
    munmap(data, (size_t)n << 20);
    end_close(&end);
}

TWILL_TEST(test_death)
{
    twill_test_run_processes(2, rank_death, (void *)TCP);
    twill_test_run_processes(2, rank_death, (void *)&setups[1]);
}
