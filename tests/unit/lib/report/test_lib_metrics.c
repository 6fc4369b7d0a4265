/* SPDX-License-Identifier: Apache-2.0 */
/* TWILL_METRICS: the file is in the text format of Prometheus, one for each rank, and its sums are
 * those of the communicator's counters. */
#include "lib/comm/comm.h"
#include "tests/support/unit.h"

#define SMALL_CALLS 7
#define LARGE_CALLS 3
#define LARGE_COUNT 20000u

struct metrics_job {
    char folder[64];
    uint64_t calls[2]; /* by rank, as counted */
    double seconds[2];
};

static void run_counted(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct metrics_job *job = user;
    static double x[2][LARGE_COUNT];
    twill_comm *comm;
    twill_counters counters;
    if (twill_test_open(&comm, bootstrap, "",
                        twill_test_text("TWILL_METRICS=%s/%%%%m", job->folder))) {
        for (int i = 0; i < SMALL_CALLS; i++)
            TWILL_CHECK_OK(&comm->error,
                           twill_allreduce(comm, x[rank], x[rank], 1, TWILL_F64, TWILL_SUM));
        for (int i = 0; i < LARGE_CALLS; i++)
            TWILL_CHECK_OK(&comm->error,
                           twill_broadcast(comm, x[rank], x[rank], LARGE_COUNT, TWILL_F64, 0));
        TWILL_CHECK(twill_comm_counters(comm, &counters) == TWILL_OK);
        job->calls[rank] = counters.calls;
        job->seconds[rank] = counters.seconds;
    }
    twill_test_close(comm);
}

/* What the samples of a file add up to. */
struct metrics_sums {
    double calls, bytes, small_calls, broadcast_bytes, seconds;
    unsigned samples;
};

/* Check a sample's form, NAME{LABEL="VALUE",...} NUMBER, and add it. */
static void add_sample(struct metrics_sums *sums, const char *line, int rank)
{
    char name[64], labels[256], start[16];
    double value;
    int end = 0;
    assert_int_equal(sscanf(line, "%63[a-z_]{%255[^}]} %lf\n%n", name, labels, &value, &end), 3);
    assert_int_equal(end, strlen(line));
    snprintf(start, sizeof(start), "rank=\"%d\",", rank);
    assert_memory_equal(labels, start, strlen(start));
    assert_non_null(strstr(labels, ",algorithm=\""));
    assert_true(value >= 0);
    if (strcmp(name, "twill_calls_total") == 0) {
        sums->calls += value;
        if (strstr(labels, "collective=\"allreduce\",size=\"1K\"") != NULL)
            sums->small_calls += value;
    } else if (strcmp(name, "twill_bytes_total") == 0) {
        sums->bytes += value;
        if (strstr(labels, "collective=\"broadcast\",size=\"1M\"") != NULL)
            sums->broadcast_bytes += value;
    } else {
        assert_true(strcmp(name, "twill_waiting_seconds_total") == 0 ||
                    strcmp(name, "twill_moving_seconds_total") == 0);
        sums->seconds += value;
    }
    sums->samples++;
}

static void check_metrics_file(const struct metrics_job *job, int rank)
{
    struct metrics_sums sums = {0};
    char path[128], line[512], family[64] = "";
    snprintf(path, sizeof(path), "%s/%%m.%d", job->folder, rank);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "# HELP ", 7) == 0)
            assert_int_equal(sscanf(line, "# HELP %63[a-z_] ", family), 1);
        else if (strncmp(line, "# TYPE ", 7) == 0)
            assert_memory_equal(line + 7, family, strlen(family)); /* and before its samples */
        else
            add_sample(&sums, line, rank);
        if (line[0] != '#')
            assert_memory_equal(line, family, strlen(family));
    }
    fclose(file);
    unlink(path);
    assert_true(sums.samples >= 8);
    assert_true(sums.calls == (double)job->calls[rank] + 1); /* the end is a barrier */
    assert_true(sums.small_calls == SMALL_CALLS);
    assert_true(sums.broadcast_bytes == LARGE_CALLS * LARGE_COUNT * sizeof(double));
    assert_true(sums.seconds > 0 && sums.seconds <= 2 * job->seconds[rank] + 1);
}

TWILL_TEST(file_has_the_counters)
{
    struct metrics_job job = {.folder = "/tmp/twill-metrics-XXXXXX"};
    assert_non_null(mkdtemp(job.folder));
    twill_test_run_ranks(2, run_counted, &job);
    for (int rank = 0; rank < 2; rank++)
        check_metrics_file(&job, rank);
    assert_int_equal(rmdir(job.folder), 0); /* no part is left */
}
