/* SPDX-License-Identifier: Apache-2.0 */
/* A case: one collective call, made once by MPI and once by PMPI on the same input, and everything
 * compared: results, what must not be written, the input. All ranks make it of the same spec. */
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
    int count; /* elements of a block, as if; vectors: of the largest */
    const struct base *base;
    const struct operation *operation; /* of a reduction, or */
    const struct user_operation *user; /* this one, which has a type of its own */
    int in_place;
    int layout; /* an enum layout, or ANY_LAYOUT: another one on each rank */
    int misaligned, bottom;
    int strange; /* what is not significant is nonsense */
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
    int shards, elements[MOST_RANKS]; /* what it holds */
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

/* Is there such a call? */
int spec_possible(const struct spec *spec);
/* The same where communicators may have different sizes on different ranks, this one at least: all
 * ranks say the same. */
int spec_possible_anywhere(const struct spec *spec, int least);
/* What comes: for who hangs in it, and said if wanted. */
void case_print(const struct mpi_case *c);
/* Can it be started again? Must it not be completed by Testall? (Defects of MPIs.) */
int case_has_rounds(const struct mpi_case *c);
int case_is_careful(const struct mpi_case *c);
void case_prepare(struct mpi_case *c, const struct spec *spec);
/* Fill the buffers for the next round. */
void case_fill(struct mpi_case *c);
/* Call, start or init and start; a round of a persistent call after the first: start. */
void case_start(struct mpi_case *c);
/* After completion: the same by PMPI, and compare. */
void case_check(struct mpi_case *c);
void case_free(struct mpi_case *c);
/* All of that. */
void case_run(const struct spec *spec);

#endif
