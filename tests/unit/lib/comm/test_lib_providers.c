/* SPDX-License-Identifier: Apache-2.0 */
/* Small jobs over doubles of providers that this machine lacks (tests/doubles): virtual nodes,
 * several communicators, all sizes. A double refuses, with a message, what its provider would not
 * accept. */
#include "tests/support/unit.h"

#include <sys/stat.h>

static const char *const names[] = {"gni", "cxi", "psm2", "opx", "efa"};
static char refusals[] = "/tmp/twill-doubles-XXXXXX";

/* Sums of known numbers, also of odd counts, and larger than one message of any provider. */
static bool sum_known(twill_comm *comm, size_t count)
{
    int rank = twill_comm_rank(comm), size = twill_comm_size(comm);
    float *src = malloc(count * sizeof(*src)), *dst = calloc(count, sizeof(*dst));
    TWILL_REQUIRE(src != NULL && dst != NULL);
    for (size_t i = 0; i < count; i++)
        src[i] = (float)(i % 97) + (float)rank;
    twill_status status = twill_allreduce(comm, src, dst, count, TWILL_F32, TWILL_SUM);
    bool fine =
        TWILL_NOTE(status == TWILL_OK, "allreduce of %zu: %s", count, twill_comm_message(comm));
    for (size_t i = 0; fine && i < count; i++)
        fine = TWILL_NOTE(dst[i] == (float)((int)(i % 97) * size + size * (size - 1) / 2),
                          "element %zu of %zu is wrong", i, count);
    free(src);
    free(dst);
    return fine;
}

static bool hand_on_bytes(twill_comm *comm, size_t bytes)
{
    unsigned char *data = malloc(bytes);
    TWILL_REQUIRE(data != NULL);
    for (int root = 0; root < twill_comm_size(comm); root++) {
        memset(data, twill_comm_rank(comm) == root ? root + 1 : 0, bytes);
        twill_status status = twill_broadcast(comm, data, data, bytes, TWILL_U8, root);
        TWILL_REQUIRE(status == TWILL_OK, "broadcast: %s", twill_comm_message(comm));
        for (size_t i = 0; i < bytes; i++)
            TWILL_REQUIRE(data[i] == root + 1);
    }
    free(data);
    return true;
}

static void rank_job(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    static const size_t counts[] = {0, 1, 2, 100, 5000, 65537, 300001};
    char provider[64];
    snprintf(provider, sizeof(provider), "TWILL_PROVIDER=%s", (const char *)user);
    twill_context *context = NULL;
    twill_comm *comm[6] = {NULL};
    bool fine = twill_test_join(&context, &comm[0], bootstrap, "2x2", provider,
                                "TWILL_INTERFACE=", TWILL_TEST_PATIENT);
    for (int c = 1; fine && c < 6; c++)
        fine = TWILL_NOTE(twill_comm_dup(&comm[c], comm[0]) == TWILL_OK, "dup %d: %s", c,
                          twill_comm_message(comm[0]));
    for (size_t i = 0; fine && i < TWILL_ARRAY_LENGTH(counts); i++)
        fine = sum_known(comm[i % 6], counts[i]) && hand_on_bytes(comm[(i + 1) % 6], counts[i] + 1);
    for (int c = 0; c < 6; c++)
        twill_test_disconnect(comm[c], context);
}

static void test_job(void **state)
{
    char path[512];
    struct stat before, after;
    snprintf(path, sizeof(path), "%s/%s", TEST_DOUBLES, (const char *)*state);
    setenv("FI_PROVIDER_PATH", path, 1);
    assert_int_equal(stat(refusals, &before), 0);
    twill_test_run_processes(4, rank_job, *state);
    assert_int_equal(stat(refusals, &after), 0);
    assert_int_equal(before.st_size, after.st_size);
}

int main(void)
{
    struct CMUnitTest tests[TWILL_ARRAY_LENGTH(names)];
    int file = mkstemp(refusals);
    if (file < 0)
        return 1;
    close(file);
    setenv("TEST_DOUBLE_LOG", refusals, 1);
    setenv("ALPS_APP_PE", "0", 1);
    setenv("IPATH_NO_BACKTRACE", "1",
           1); /* psm's library, which libfabric loads, catches signals */
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(names); i++) {
        print_message("a double stands for %s\n", names[i]);
        tests[i] = (struct CMUnitTest){
            .name = names[i], .test_func = test_job, .initial_state = (void *)names[i]};
    }
    int failed = _cmocka_run_group_tests("jobs over doubles", tests,
                                         TEST_FEWER ? 2 : TWILL_ARRAY_LENGTH(names), NULL, NULL);
    (void)unlink(refusals);
    return failed;
}
