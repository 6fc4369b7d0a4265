/* SPDX-License-Identifier: Apache-2.0 */
/* What all MPI test programs share: see harness.h. */
#include "harness.h"

#include <execinfo.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct harness harness;

enum {
    MOST_FAILURES = 20, /* printed per rank; the rest repeats them */
    PATIENCE = 600,     /* seconds; guards against hangs, not against slow or busy machines */
    FRAMES = 40
};

long environment_number(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtol(text, NULL, 0) : otherwise;
}

/* The alarm's handler; the process ends, so async-signal safety matters little. check_mpi.sh looks
 * for this text. */
static void hangs(int signal)
{
    static char text[1000];
    void *frames[FRAMES];
    (void)signal;
    int length =
        snprintf(text, sizeof text, "%s: rank %d of %d hangs: after %s (%s), in\n", harness.program,
                 harness.rank, harness.size, harness.at ? harness.at : "the start", harness.doing);
    if (write(STDERR_FILENO, text, (size_t)length) == length)
        backtrace_symbols_fd(frames, backtrace(frames, FRAMES), STDERR_FILENO);
    sleep(2); /* the MPI ends the others with this one; let them print first */
    _exit(124);
}

void harness_begin(int *argc, char ***argv, const char *program)
{
    void *frame;
    harness = (struct harness){.program = program,
                               .thorough = environment_number("TEST_MPI_LONG", 0) != 0,
                               .verbose = environment_number("TEST_MPI_VERBOSE", 0) != 0,
                               .sabotage = environment_number("TEST_MPI_SABOTAGE", 0) != 0,
                               .twill = environment_number("TEST_MPI_TWILL", 0) != 0,
                               .seed = (uint64_t)environment_number("TEST_SEED", 1)};
    (void)backtrace(&frame, 1); /* loads a library, which must not happen in the handler */
    signal(SIGALRM, hangs);
    alarm(harness.thorough ? 10 * PATIENCE : PATIENCE);
    int initialized = 0;
    MPI_Initialized(&initialized);
    if (!initialized)
        MPI_Init(argc, argv);
    PMPI_Comm_rank(MPI_COMM_WORLD, &harness.rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &harness.size);
}

void harness_fail(const char *format, ...)
{
    char text[1000];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "%s: rank %d of %d: %s\n", harness.program, harness.rank, harness.size, text);
    if (++harness.failures >= MOST_FAILURES) {
        fprintf(stderr, "%s: rank %d gives up\n", harness.program, harness.rank);
        PMPI_Abort(MPI_COMM_WORLD, 1);
        exit(1);
    }
}

int harness_sum(void)
{
    unsigned long long mine[2] = {harness.cases, harness.failures}, all[2] = {0, 0};
    PMPI_Allreduce(mine, all, 2, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (harness.rank == 0)
        printf("%s: %d ranks, seed %llu: %llu cases, %llu wrong\n", harness.program, harness.size,
               (unsigned long long)harness.seed, all[0], all[1]);
    fflush(stdout);
    return all[1] != 0 || all[0] == 0;
}

int harness_end(void)
{
    int status = harness_sum();
    MPI_Finalize();
    return status;
}

uint64_t mix(uint64_t seed, uint64_t more)
{
    uint64_t z = seed * 0x9e3779b97f4a7c15u + more + 0x632be59bd9b4e019u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t next(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    return mix(*state, 1);
}

int below(uint64_t *state, int limit)
{
    return (int)(next(state) % (uint64_t)limit);
}

void fill_bytes(void *memory, size_t bytes, uint64_t seed)
{
    unsigned char *at = memory;
    for (; bytes >= sizeof seed; at += sizeof seed, bytes -= sizeof seed) {
        uint64_t word = next(&seed);
        memcpy(at, &word, sizeof word);
    }
    uint64_t word = next(&seed);
    memcpy(at, &word, bytes);
}

void comms_make(struct where where[SWEPT_COMMS])
{
    where[0] = (struct where){MPI_COMM_WORLD, "world", 0};
    where[1].name = "reversed";
    where[2].name = "dup";
    where[3].name = "halves";
    MPI_Comm_split(MPI_COMM_WORLD, 0, -harness.rank, &where[1].comm);
    MPI_Comm_dup(where[1].comm, &where[2].comm);
    MPI_Comm_split(MPI_COMM_WORLD, harness.rank % 2, harness.rank, &where[3].comm);
    for (int i = 0; i < SWEPT_COMMS; i++)
        PMPI_Comm_size(where[i].comm, &where[i].size);
}

void comms_free(struct where where[SWEPT_COMMS])
{
    for (int i = 1; i < SWEPT_COMMS; i++)
        MPI_Comm_free(&where[i].comm);
}

static void complete_by_array(MPI_Request *request, int style)
{
    MPI_Request all[3] = {MPI_REQUEST_NULL, *request, MPI_REQUEST_NULL};
    MPI_Status statuses[3];
    int indices[3] = {-1, -1, -1}, n = 0, flag = 0;
    switch (style) {
    case 2:
        OK(MPI_Waitall(3, all, statuses));
        break;
    case 3:
        OK(MPI_Waitany(3, all, &n, statuses));
        CHECK(n == 1, "Waitany of the second of three says %d", n);
        break;
    case 4:
        OK(MPI_Waitsome(3, all, &n, indices, MPI_STATUSES_IGNORE));
        CHECK(n == 1 && indices[0] == 1, "Waitsome: %d, %d", n, indices[0]);
        break;
    case BY_TESTALL:
        while (!flag && MPI_Testall(3, all, &flag, MPI_STATUSES_IGNORE) == MPI_SUCCESS)
            ;
        break;
    case 6:
        while (!flag && MPI_Testany(3, all, &n, &flag, statuses) == MPI_SUCCESS)
            ;
        CHECK(flag && n == 1, "Testany: %d, %d", flag, n);
        break;
    default:
        while (n == 0 && MPI_Testsome(3, all, &n, indices, statuses) == MPI_SUCCESS)
            ;
        CHECK(n == 1 && indices[0] == 1, "Testsome: %d, %d", n, indices[0]);
        break;
    }
    *request = all[1];
}

void complete(MPI_Request *request, int style)
{
    int flag = 0;
    MPI_Status status;
    switch (style % COMPLETION_STYLES) {
    case 0:
        OK(MPI_Wait(request, &status));
        break;
    case 1:
        while (!flag && MPI_Test(request, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS)
            ;
        break;
    case 8:
        while (!flag && MPI_Request_get_status(*request, &flag, &status) == MPI_SUCCESS)
            ;
        OK(MPI_Test(request, &flag, &status));
        CHECK(flag, "complete by Request_get_status, but not by Test");
        break;
    default:
        complete_by_array(request, style % COMPLETION_STYLES);
        break;
    }
}
