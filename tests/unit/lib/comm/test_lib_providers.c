/* SPDX-License-Identifier: Apache-2.0 */
/* Small jobs over doubles of providers that this machine lacks (tests/doubles): virtual nodes,
 * several communicators, all sizes. A double refuses, with a message, what its provider would not
 * accept. */
#include "tests/support/unit.h"

#include <sys/stat.h>

static const char *const names[] = {"gni", "cxi", "psm2", "opx", "efa"};

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
    twill_context *context = NULL;
    twill_comm *comm[6] = {NULL};
    bool fine = twill_test_join(&context, &comm[0], bootstrap, "2x2",
                                twill_test_text("TWILL_PROVIDER=%s", (const char *)user),
                                "TWILL_INTERFACE=", TWILL_TEST_PATIENT);
    for (int c = 1; fine && c < 6; c++)
        fine = twill_test_fine(comm[0], twill_comm_dup(&comm[c], comm[0]));
    for (size_t i = 0; fine && i < TWILL_ARRAY_LENGTH(counts); i++)
        fine = sum_known(comm[i % 6], counts[i]) && hand_on_bytes(comm[(i + 1) % 6], counts[i] + 1);
    for (int c = 0; c < 6; c++)
        twill_test_disconnect(comm[c], context);
}

TWILL_TEST(jobs_over_doubles)
{
    char refusals[] = "/tmp/twill-doubles-XXXXXX";
    int file = mkstemp(refusals);
    assert_true(file >= 0);
    setenv("TEST_DOUBLE_LOG", refusals, 1);
    setenv("ALPS_APP_PE", "0", 1);
    setenv("IPATH_NO_BACKTRACE", "1", 1); /* libfabric loads psm's library, which catches signals */
    for (size_t i = 0; i < (TEST_FEWER ? 2 : TWILL_ARRAY_LENGTH(names)); i++) {
        struct stat after;
        print_message("a double stands for %s\n", names[i]);
        setenv("FI_PROVIDER_PATH", twill_test_text("%s/%s", TEST_DOUBLES, names[i]), 1);
        twill_test_run_processes(4, rank_job, (void *)(uintptr_t)names[i]);
        assert_int_equal(fstat(file, &after), 0);
        assert_int_equal(after.st_size, 0);
    }
    close(file);
    (void)unlink(refusals);
}
