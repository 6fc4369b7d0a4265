/* SPDX-License-Identifier: Apache-2.0 */
/* A program that has called setlocale(): settings are read, and texts and files are written, with a
 * point, and words are compared as in English. The Turkish locale of this test prints 1.5
 * as 1,5, and I is not the capital of i there. */
#include "lib/comm/comm.h"
#include "lib/report/job_view.h"
#include "lib/twill_train.h"
#include "tests/support/unit.h"

#include <ctype.h>
#include <locale.h>

struct locale_job {
    char folder[64];
};

/* Enter the locale, which is made in a folder of this test: a machine may have none but C. */
static int enter_locale(void **state)
{
    static struct locale_job job = {"/tmp/twill-locale-XXXXXX"};
    char command[128], text[8];
    assert_non_null(mkdtemp(job.folder));
    snprintf(command, sizeof(command), "localedef -i tr_TR -f ISO-8859-9 %s/tr", job.folder);
    assert_int_equal(system(command), 0);
    assert_int_equal(setenv("LOCPATH", job.folder, 1), 0);
    assert_non_null(setlocale(LC_ALL, "tr"));
    /* Not translated: glibc's cache of translations is a race to the thread sanitizer. */
    setlocale(LC_MESSAGES, "C");
    snprintf(text, sizeof(text), "%g", 1.5);
    assert_string_equal(text, "1,5");        /* else nothing here would be tested */
    assert_int_not_equal(tolower('I'), 'i'); /* so strcasecmp("GNI", "gni") is not 0 */
    *state = &job;
    return 0;
}

static int leave_locale(void **state)
{
    struct locale_job *job = *state;
    char command[128];
    setlocale(LC_ALL, "C");
    snprintf(command, sizeof(command), "rm -r %s", job->folder);
    return system(command);
}

TWILL_TEST(texts_have_no_locale)
{
    struct twill_error error;
    char text[32], *end;
    twill_print(text, sizeof(text), "%.2f", 1.25);
    assert_string_equal(text, "1.25");
    assert_true(twill_read_real("1.25,5", &end) == 1.25);
    assert_string_equal(end, ",5");
    assert_true(twill_words_equal("GNI", "gni", SIZE_MAX));
    assert_true(twill_words_equal("CXL-DRAM", "cxl", 3));
    assert_false(twill_words_equal("gni", "gn", SIZE_MAX));
    twill_error_clear(&error);
    (void)TWILL_FAIL(&error, TWILL_ERR_TIMEOUT, "within %.1f s", 1.5);
    assert_string_equal(error.message, "within 1.5 s");
    struct twill_job_view view = {0};
    twill_job_add_line(&view, "call\t%.6f", 1.5);
    assert_string_equal(view.line[0], "call\t1.500000");
    free(view.line[0]);
    free(view.line);
    snprintf(text, sizeof(text), "%g", 1.5);
    assert_string_equal(text, "1,5"); /* the program's own is as it was */
}

static bool check_gradients(twill_comm *comm)
{
    twill_tensor tensor = {.name = "weights", .count = 256, .type = TWILL_F32};
    twill_gradients_options options;
    twill_gradients *set = NULL;
    twill_gradients_defaults(&options);
    TWILL_REQUIRE(twill_gradients_create(&set, comm, &options) == TWILL_OK);
    TWILL_REQUIRE(twill_gradients_add(set, &tensor, NULL) == TWILL_OK);
    TWILL_REQUIRE(twill_gradients_commit(set) == TWILL_OK);
    TWILL_REQUIRE(strstr(twill_gradients_describe(set, 0), "ratio=0.125,threshold=0.25") != NULL);
    twill_gradients_destroy(set);
    return true;
}

/* The last field of the first line of twill_comm_times() that has a number. */
static bool check_times(twill_comm *comm)
{
    const char *line = twill_comm_times(comm, 0);
    const char *percent = line != NULL ? strstr(line, " %") : NULL;
    TWILL_REQUIRE(percent != NULL && percent - line > 3);
    return TWILL_NOTE(percent[-2] == '.', "no point in: %s", line);
}

static void run_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct locale_job *job = user;
    float x = 1;
    twill_comm *comm;
    if (twill_test_open(&comm, bootstrap, "",
                        twill_test_text("TWILL_METRICS=%s/metrics", job->folder),
                        "TWILL_TIMEOUT=240.5", "TWILL_TUNE=metrics_every=1.5",
                        "TWILL_GRADIENTS=ratio=0.125,threshold=0.25")) {
        TWILL_CHECK_OK(&comm->error, twill_allreduce(comm, &x, &x, 1, TWILL_F32, TWILL_SUM));
        if (!check_times(comm) || !check_gradients(comm))
            return;
    }
    twill_test_close(comm);
}

TWILL_TEST(settings_and_files_have_points)
{
    struct locale_job *job = *state;
    char line[512];
    unsigned seconds = 0;
    twill_test_run_ranks(2, run_rank, job);
    FILE *file = fopen(twill_test_text("%s/metrics.1", job->folder), "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL)
        if (line[0] != '#' && strstr(line, "_seconds_total{") != NULL) {
            assert_non_null(strchr(strrchr(line, ' '), '.'));
            assert_null(strchr(strrchr(line, ' '), ','));
            seconds++;
        }
    fclose(file);
    assert_true(seconds > 0);
}

TWILL_TEST_GROUP(enter_locale, leave_locale)
