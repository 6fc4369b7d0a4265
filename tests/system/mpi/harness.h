/* SPDX-License-Identifier: Apache-2.0 */
/* What all MPI test programs share: start and end, random numbers that all ranks agree on, and how
 * failures are printed. They compare MPI_X (twill's, when it is preloaded) with PMPI_X. */
#ifndef TWILL_HARNESS_H
#define TWILL_HARNESS_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

/* Open MPI 4 has persistent collectives under other names. */
#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION < 5
#include <mpi-ext.h>
#define PERSISTENT(name) MPIX_##name##_init
#else
#define PERSISTENT(name) MPI_##name##_init
#endif
#define HAS_LARGE (MPI_VERSION >= 4)

enum { MOST_RANKS = 16 };

struct harness {
    const char *program;
    int rank, size;
    int thorough;  /* TEST_MPI_LONG=1 */
    int verbose;   /* TEST_MPI_VERBOSE=1: print each case before it runs */
    int sabotage;  /* TEST_MPI_SABOTAGE=1: damage results before comparing */
    int twill;     /* twill is preloaded (TEST_MPI_TWILL=1) */
    uint64_t seed; /* TEST_SEED */
    uint64_t cases, failures;
    const char *at;  /* the last CHECK */
    char doing[400]; /* the last case */
};
extern struct harness harness;

/* MPI_Init with an alarm: a process that hangs prints where, and ends. */
void harness_begin(int *argc, char ***argv, const char *program);
/* Sum the counts, print them on rank 0 and finalize. Returns main()'s status. */
int harness_end(void);
/* As harness_end(), without MPI_Finalize. */
int harness_sum(void);
__attribute__((format(printf, 1, 2))) void harness_fail(const char *format, ...);

#define LINE_TEXT(line)       LINE_TEXT_AGAIN(line)
#define LINE_TEXT_AGAIN(line) #line
#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        harness.at = __FILE__ ":" LINE_TEXT(__LINE__);                                             \
        harness.cases++;                                                                           \
        if (!(condition))                                                                          \
            harness_fail(__VA_ARGS__);                                                             \
    } while (0)
#define OK(call) CHECK((call) == MPI_SUCCESS, "%s:%d: %s", __FILE__, __LINE__, #call)

/* Hash two numbers. */
uint64_t mix(uint64_t seed, uint64_t more);
/* Return the next random number of a sequence. */
uint64_t next(uint64_t *state);
/* 0 .. limit-1 */
int below(uint64_t *state, int limit);
void fill_bytes(void *memory, size_t bytes, uint64_t seed);
long environment_number(const char *name, long otherwise);
/* The communicators that sweeps use: all ranks, twice in reverse order, and half of them. */
enum { SWEPT_COMMS = 4 };
struct where {
    MPI_Comm comm;
    const char *name;
    int size;
};
void comms_make(struct where where[SWEPT_COMMS]);
void comms_free(struct where where[SWEPT_COMMS]);
/* Complete the request in one of COMPLETION_STYLES ways. */
void complete(MPI_Request *request, int style);
enum { BY_TESTALL = 5, COMPLETION_STYLES = 9 };

#endif
