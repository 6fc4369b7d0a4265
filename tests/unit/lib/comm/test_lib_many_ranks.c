/* SPDX-License-Identifier: Apache-2.0 */
/* Set-up of many ranks, each a process: the descriptors and memory that a rank then holds are
 * bounded; the time is only printed. TEST_RANKS: ranks with a node each (256; fewer under a
 * sanitizer). */
#include "lib/twill.h"
#include "tests/support/job_ranks.h"
#include "tests/support/noise.h"
#include "tests/support/unit.h"

#include <sys/resource.h>

#define CROWD_RANKS (TEST_SLOW ? 16 : 256)
#define ON_A_NODE   (TEST_SLOW ? 8 : 64)

/* A rank's report, in memory that all processes share. */
struct crowd_report {
    double context, comm; /* seconds since the first process was started */
    double cpu;           /* seconds */
    unsigned files;
    unsigned soft;    /* limit of descriptors */
    unsigned streams; /* standard streams that can be used */
    size_t own;       /* bytes of memory not shared with other processes */
    int status;       /* 1: has not got that far */
    char message[256];
};

static double now(void)
{
    return 1e-9 * (double)twill_now();
}

static size_t count_own(void)
{
    char line[128];
    size_t total = 0, kib;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, "Private_Clean: %zu", &kib) == 1 ||
            sscanf(line, "Private_Dirty: %zu", &kib) == 1)
            total += kib << 10;
    if (file)
        fclose(file);
    return total;
}

struct crowd {
    int ranks;
    const char *nodes;
    char port[8];
    double started;
    unsigned soft; /* limit of descriptors, for all that a rank opens; 0: as it is */
    bool closed;   /* its standard streams are closed */
    struct crowd_report *report;
};

static unsigned limit_now(void)
{
    struct rlimit files = {.rlim_cur = 0};
    (void)getrlimit(RLIMIT_NOFILE, &files);
    return (unsigned)files.rlim_cur;
}

/* Do what was done to the process before it becomes a rank. */
static void prepare(const struct crowd *crowd)
{
    struct rlimit files;
    for (int fd = 0; crowd->closed && fd < 3; fd++)
        close(fd);
    if (crowd->soft > 0 && getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = crowd->soft;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
}

/* Return how many standard streams can be written to or read from. */
static unsigned count_streams(void)
{
    unsigned count = 0;
    for (int fd = 0; fd < 3; fd++) {
        int flags = fcntl(fd, F_GETFL);
        count += flags >= 0 && (flags & O_PATH) == 0;
    }
    return count;
}

/* One rank: set-up, a report, and a barrier so that all ranks exist while each is measured. */
static void be_rank(const struct crowd *crowd, int rank)
{
    struct crowd_report *report = &crowd->report[rank];
    const char *settings[] = {twill_test_text("RANK=%d", rank),
                              twill_test_text("WORLD_SIZE=%d", crowd->ranks),
                              "MASTER_ADDR=127.0.0.1",
                              twill_test_text("MASTER_PORT=%s", crowd->port),
                              twill_test_text("TWILL_LAYOUT=nodes=%s", crowd->nodes),
                              "TWILL_JOB=c0ffeec0ffeec0ffee",
                              TWILL_TEST_PATIENT,
                              "TWILL_PROVIDER=tcp",
                              NULL};
    twill_context *context = NULL;
    twill_comm *comm = NULL;
    struct timespec cpu;
    float sum = 0, one = 1;
    prepare(crowd);
    report->status = twill_context_create(&context, NULL, settings);
    report->context = now() - crowd->started;
    if (report->status == TWILL_OK)
        report->status = twill_comm_create(&comm, context);
    report->comm = now() - crowd->started;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    report->cpu = (double)cpu.tv_sec + 1e-9 * (double)cpu.tv_nsec;
    if (report->status != TWILL_OK)
        snprintf(report->message, sizeof(report->message), "%s", twill_context_message(context));
    /* Not counted: two folders, this one, and the sockets that hold the test's ports. */
    report->files = (unsigned)twill_test_open_files() - 4;
    report->own = count_own();
    if (report->status == TWILL_OK &&
        (twill_allreduce(comm, &one, &sum, 1, TWILL_F32, TWILL_SUM) != TWILL_OK ||
         sum != (float)crowd->ranks || twill_barrier(comm) != TWILL_OK))
        report->status = 2;
    report->soft = limit_now();
    report->streams = count_streams();
    twill_test_disconnect(comm, context);
}

static void run_crowd(struct crowd *crowd)
{
    crowd->report = twill_test_shared((size_t)crowd->ranks * sizeof(*crowd->report));
    close(twill_test_listen("127.0.0.1", crowd->port));
    fflush(NULL);
    crowd->started = now();
    for (int r = 0; r < crowd->ranks; r++) {
        crowd->report[r].status = 1;
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            be_rank(crowd, r);
            _exit(0);
        }
    }
    while (wait(NULL) > 0)
        ;
}

struct crowd_limits {
    unsigned root, other; /* descriptors */
    size_t own;           /* bytes, of any rank */
    unsigned soft;        /* as in struct crowd */
    bool closed;
};

/* Find the most that any rank other than 0 has of each. */
static struct crowd_report report_most(const struct crowd *crowd)
{
    struct crowd_report most = {.files = 0};
    for (int r = 0; r < crowd->ranks; r++) {
        const struct crowd_report *report = &crowd->report[r];
        if (report->status != TWILL_OK)
            print_error("rank %d: status %d: %s\n", r, report->status, report->message);
        assert_int_equal(report->status, TWILL_OK);
        assert_int_equal(report->soft, crowd->soft > 0 ? crowd->soft : limit_now());
        assert_int_equal(report->streams, crowd->closed ? 0 : 3);
        most.cpu += report->cpu / crowd->ranks;
        most.context = report->context > most.context ? report->context : most.context;
        most.comm = report->comm > most.comm ? report->comm : most.comm;
        if (r > 0 && report->files > most.files)
            most.files = report->files;
        if (r > 0 && report->own > most.own)
            most.own = report->own;
    }
    return most;
}

static void measure_crowd(const char *nodes, const struct crowd_limits *limits)
{
    int ranks = twill_test_size(nodes);
    struct crowd crowd = {
        .ranks = ranks, .nodes = nodes, .soft = limits->soft, .closed = limits->closed};
    run_crowd(&crowd);
    struct crowd_report most = report_most(&crowd), root = crowd.report[0];
    print_message("%d ranks, nodes %s: context after %.2f s, communicator after %.2f s, %.1f ms of "
                  "processor each\n"
                  "    rank 0: %u descriptors, %zu KiB of its own; the others at most %u and %zu "
                  "KiB\n",
                  ranks, nodes, most.context, most.comm, 1e3 * most.cpu, root.files, root.own >> 10,
                  most.files, most.own >> 10);
    assert_true(root.files <= limits->root && most.files <= limits->other);
    assert_true(TEST_SLOW || (root.own <= limits->own && most.own <= limits->own));
    assert_int_equal(munmap(crowd.report, (size_t)ranks * sizeof(*crowd.report)), 0);
}

/* One node per rank: descriptors for the connection to rank 0, and the failure detector's to every
 * other node. */
TWILL_TEST(apart)
{
    const char *given = getenv("TEST_RANKS");
    unsigned ranks = given ? (unsigned)atoi(given) : CROWD_RANKS;
    struct crowd_limits limits = {2 * ranks + 15, ranks + 16, (2u << 20) + ranks * 2048, 0, false};
    measure_crowd(twill_test_text("%ux1", ranks), &limits);
}

/* One node: as many descriptors as with two ranks, and one for each connection of rank 0. A limit
 * below that is no obstacle, as the hard one is not, and stays as it was. */
TWILL_TEST(together)
{
    struct crowd_limits limits = {ON_A_NODE + 17, 18, 4u << 20, 48, false};
    measure_crowd(twill_test_text("1x%d", ON_A_NODE), &limits);
}

/* Standard streams that were closed stay closed: what the program prints goes nowhere. */
TWILL_TEST(closed_streams)
{
    struct crowd_limits limits = {32, 32, 4u << 20, 0, true};
    measure_crowd("1x4", &limits);
    measure_crowd("2x2", &limits);
}
