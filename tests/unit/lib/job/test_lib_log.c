/* SPDX-License-Identifier: Apache-2.0 */
/* TWILL_LOG: the lines of each level, complete and with the prefix of their rank; keys are never
 * logged. */
#include "lib/job/log.h"
#include "tests/support/unit.h"

#include <sys/stat.h>

enum { LOG_RANKS = 4, LOG_CALLS = 3 };

#define KEY "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

struct log_scene {
    const char *level, *algorithm;
    char folder[64];
    char *text[LOG_RANKS]; /* contents of each rank's file */
};

static void make_calls(twill_comm *comm, int rank)
{
    float x[1024], y[1024];
    twill_comm *half = NULL;
    for (int i = 0; i < 1024; i++)
        x[i] = (float)rank;
    for (int i = 0; i < LOG_CALLS; i++)
        TWILL_CHECK(twill_allreduce(comm, x, y, 1024, TWILL_F32, TWILL_SUM) == TWILL_OK);
    TWILL_CHECK(y[7] == 6);
    TWILL_CHECK(twill_allreduce(comm, x, y, 1, TWILL_F32, TWILL_SUM) == TWILL_OK);
    TWILL_CHECK(twill_sendrecv(comm, x, 5, rank ^ 1, y, 5, rank ^ 1, TWILL_F32) == TWILL_OK);
    TWILL_CHECK(twill_comm_split(&half, comm, rank % 2, 0) == TWILL_OK);
    TWILL_CHECK(twill_barrier(half) == TWILL_OK);
    twill_comm_destroy(half);
}

static void run_logged(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct log_scene *scene = user;
    twill_comm *comm = NULL;
    if (twill_test_open(&comm, bootstrap, "2x2", twill_test_text("TWILL_LOG=%s", scene->level),
                        twill_test_text("TWILL_LOG_FILE=%s/100%%%%.%%r", scene->folder),
                        twill_test_text("TWILL_ALGORITHM=%s", scene->algorithm), "TWILL_JOB=" KEY))
        make_calls(comm, rank);
    twill_test_close(comm);
}

static char *read_whole(const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = NULL;
    size_t capacity = 0;
    if (file == NULL)
        return strdup("");
    if (getdelim(&text, &capacity, '\0', file) < 0 && text != NULL)
        text[0] = '\0';
    fclose(file);
    return text;
}

static void run_scene(struct log_scene *scene, const char *level, const char *algorithm)
{
    *scene = (struct log_scene){.level = level, .algorithm = algorithm};
    snprintf(scene->folder, sizeof(scene->folder), "/tmp/twill-log-XXXXXX");
    assert_non_null(mkdtemp(scene->folder));
    twill_test_run_ranks(LOG_RANKS, run_logged, scene);
    for (int r = 0; r < LOG_RANKS; r++) {
        const char *path = twill_test_text("%s/100%%.%d", scene->folder, r);
        scene->text[r] = read_whole(path);
        (void)unlink(path);
    }
    assert_int_equal(rmdir(scene->folder), 0);
}

static void end_scene(struct log_scene *scene)
{
    for (int r = 0; r < LOG_RANKS; r++)
        free(scene->text[r]);
}

/* Lines of a rank that contain both texts. */
static unsigned count_log(const struct log_scene *scene, int rank, const char *a, const char *b)
{
    unsigned n = 0;
    for (const char *line = scene->text[rank]; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        const char *first = memmem(line, length, a, strlen(a));
        const char *second = memmem(line, length, b, strlen(b));
        n += first != NULL && second != NULL;
        line += length + (line[length] == '\n');
    }
    return n;
}

#define EXPECT(times, rank, a, b)                                                                  \
    do {                                                                                           \
        if (count_log(&scene, rank, a, b) != (times))                                              \
            fail_msg("rank %d: %u lines with \"%s\" and \"%s\", not %u, in:\n%s", rank,            \
                     count_log(&scene, rank, a, b), a, b, (unsigned)(times), scene.text[rank]);    \
    } while (0)

/* Every line has the prefix of its rank, and the file ends with a newline. */
static void check_lines(const struct log_scene *scene, int rank)
{
    char host[65] = "";
    const char *text = scene->text[rank];
    assert_int_equal(gethostname(host, sizeof(host) - 1), 0);
    const char *prefix =
        twill_test_text("twill: %.50s:%d rank %d/%d ", host, (int)getpid(), rank, LOG_RANKS);
    assert_true(text[0] != '\0' && text[strlen(text) - 1] == '\n');
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1) {
        if (strncmp(line, prefix, strlen(prefix)) != 0)
            fail_msg("\"%.80s\" does not begin with \"%s\"", line, prefix);
        const char *level = line + strlen(prefix);
        if (strncmp(level, "info: ", 6) != 0 && strncmp(level, "debug: ", 7) != 0)
            fail_msg("\"%.100s\" has no level", line);
    }
    assert_null(strstr(text, KEY));
}

TWILL_TEST(info_logs_decisions)
{
    struct log_scene scene;
    run_scene(&scene, "info", "");
    for (int r = 0; r < LOG_RANKS; r++) {
        bool first = r % 2 == 0; /* rank of its node */
        check_lines(&scene, r);
        EXPECT(first, r, "info: machine: ", "PUs");
        EXPECT(first, r, "info: TWILL_LAYOUT=nodes=2x2", "(caller)");
        EXPECT(first, r, "info: TWILL_JOB=(a key)", "(caller)");
        EXPECT(1, r, "info: binding: ", "PUs");
        EXPECT(1, r, "info: ranks: 4 on 2 nodes; this is rank ", "");
        EXPECT(first, r, "info: interface: lo ",
               "127.0.0.1"); /* all ranks of a node have it alike */
        EXPECT(first, r, "info: kernels: ", "");
        EXPECT(first, r, "info: between nodes: ", "");
        EXPECT(1, r, "info: transport: ", "tcp at 127.0.0.1:");
        EXPECT(first, r, "info: transport: ", "shm: 2 ranks");
        EXPECT(first, r, "info: communicator 0: 4 ranks: ", "2 nodes");
        /* Three calls of one shape are logged once; another size is another shape. */
        EXPECT(first, r, "communicator 0: allreduce of 4096 bytes, f32: ", " us by the model");
        EXPECT(first, r, "communicator 0: allreduce of 4 bytes, f32: ", "; next is ");
        EXPECT(0, r, "by TWILL_ALGORITHM", "");
        EXPECT(1, r, "info: communicator 1: 2 ranks: ", "2 nodes"); /* alone on its node there */
        EXPECT(0, r, "debug: ", "");
    }
    end_scene(&scene);
}

TWILL_TEST(debug_logs_each_call)
{
    struct log_scene scene;
    run_scene(&scene, "debug", "ring");
    for (int r = 0; r < LOG_RANKS; r++) {
        check_lines(&scene, r);
        EXPECT(1, r, "machine: ", "PUs");
        EXPECT(LOG_CALLS, r, "debug: communicator 0: allreduce #", "(count 1024, f32 sum) begins");
        EXPECT(LOG_CALLS, r, "(count 1024, f32 sum) ends: success, ring, ", " us");
        EXPECT(1, r, "allreduce #1 (count 1024, f32 sum) begins: src 0x", ", dst 0x");
        EXPECT(1, r, "debug: communicator 0: send of 5 f32 to rank ", "begins: src 0x");
        EXPECT(1, r, ", recv of 5 f32 from rank ", " ends: success, point to point, ");
        EXPECT(1, r, "allreduce of 4096 bytes, f32: ring, asked for by TWILL_ALGORITHM", " us");
    }
    end_scene(&scene);
}

TWILL_TEST(warnings_only_by_default)
{
    struct log_scene scene;
    run_scene(&scene, "warn", "");
    for (int r = 0; r < LOG_RANKS; r++)
        assert_string_equal(scene.text[r], "");
    end_scene(&scene);
}

/* A FIFO without a reader is an error; a full one does not block. */
TWILL_TEST(a_fifo_is_not_waited_for)
{
    char folder[] = "/tmp/twill-log-XXXXXX";
    assert_non_null(mkdtemp(folder));
    const char *path = twill_test_text("%s/fifo", folder),
               *setting = twill_test_text("TWILL_LOG_FILE=%s", path);
    assert_int_equal(mkfifo(path, 0600), 0);
    const char *settings[] = {setting, "TWILL_LOG=info", NULL};
    twill_context *context = NULL;
    alarm(TWILL_TEST_PATIENCE / 1000000000);
    assert_int_equal(twill_context_create(&context, NULL, settings), TWILL_ERR_CONFIG);
    assert_non_null(strstr(twill_context_message(context), setting));
    assert_non_null(strstr(twill_context_message(context), "No such device"));
    twill_context_destroy(context);

    int reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_true(reader >= 0);
    int capacity = fcntl(reader, F_SETPIPE_SZ, 1);
    assert_true(capacity > 0);
    assert_int_equal(twill_context_create(&context, NULL, settings), TWILL_OK);
    for (int written = 0; written < 2 * capacity; written += 500)
        twill_say(&context->log, TWILL_LOG_INFO, "%0500d", written);
    twill_context_destroy(context);
    alarm(0);
    close(reader);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}
