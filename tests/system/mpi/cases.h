/* SPDX-License-Identifier: Apache-2.0 */
/* A case: one collective call, made once by MPI and once by PMPI on equal input, and everything
 * compared: results, memory that must not be written, the input. All ranks use one spec. */
#ifndef TWILL_CASES_H
#define TWILL_CASES_H

#include "layouts.h"
#include "mpi_test_calls.h"
#include "mpi_test_types.h"
#include "userops.h"

enum { ANY_LAYOUT = LAYOUTS };

struct spec {
    enum call call;
    enum form form;
    MPI_Comm comm;
    const char *where; /* name of the communicator */
    int root;
    int count; /* elements of a shard; vectors: of the largest */
    const struct base *base;
    const struct operation *operation; /* of a reduction, or ... */
    const struct user_operation *user; /* ... this one, with a type of its own */
    int in_place;
    int layout; /* an enum layout, or ANY_LAYOUT: a different one on each rank */
    int misaligned, bottom;
    int strange; /* set ignored arguments to invalid values */
    uint64_t seed;
};

/* Memory with a buffer in it. */
struct arena {
    char *memory, *base;
};

/* The send or the receive side of a call on this rank. */
struct side {
    int present; /* has a buffer */
    int receives, vectors;
    int shards, elements[MOST_RANKS]; /* its contents */
    int total;
    MPI_Datatype type, at[2];
    int own, grain;
    int counts[MOST_RANKS], displs[MOST_RANKS];
    size_t before, after;  /* bytes around the base */
    struct arena arena[2]; /* tested, reference */
};

struct mpi_case {
    struct spec spec;
    int rank, size, round;
    struct side send, recv;
    struct arguments arguments[2];
    MPI_Datatype send_types[2][MOST_RANKS], recv_types[2][MOST_RANKS];
    int send_bytes[MOST_RANKS], recv_bytes[MOST_RANKS]; /* displacements of Alltoallw */
#if HAS_LARGE
    MPI_Count counts_c[2][MOST_RANKS];
    MPI_Aint displs_c[2][MOST_RANKS];
#endif
    MPI_Request request;
};

/* Return whether there is such a call. */
int spec_possible(const struct spec *spec);
/* As spec_possible(), where communicators differ in size between ranks and this one is the
 * smallest; equal on all ranks. */
int spec_possible_anywhere(const struct spec *spec, int least);
/* Record the case for a hang's report; print it if verbose. */
void case_print(const struct mpi_case *c);
/* Return whether it can be started again, and whether Testall must be avoided (defects of MPIs). */
int case_has_rounds(const struct mpi_case *c);
int case_is_careful(const struct mpi_case *c);
void case_prepare(struct mpi_case *c, const struct spec *spec);
/* Fill the buffers for the next round. */
void case_fill(struct mpi_case *c);
/* Call, start, or init and start; in later rounds of a persistent call: start. */
void case_start(struct mpi_case *c);
/* After completion: repeat it by PMPI and compare. */
void case_check(struct mpi_case *c);
void case_free(struct mpi_case *c);
/* Run all of these steps. */
void case_run(const struct spec *spec);

#endif
