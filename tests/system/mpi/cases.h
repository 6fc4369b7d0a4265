/* SPDX-License-Identifier: Apache-2.0 */
/* A case: one collective call, made once by MPI and once by PMPI on equal input, and everything
 * compared: results, memory that must not be written, the input. All ranks use one spec. */
#ifndef TWILL_CASES_H
#define TWILL_CASES_H

#include "harness.h"

/* --- the calls, as a table (mpi_calls.c) ------------------------------------------------------ */

enum call {
    BARRIER,
    BCAST,
    REDUCE,
    ALLREDUCE,
    GATHER,
    GATHERV,
    SCATTER,
    SCATTERV,
    ALLGATHER,
    ALLGATHERV,
    ALLTOALL,
    ALLTOALLV,
    ALLTOALLW,
    REDUCE_SCATTER,
    REDUCE_SCATTER_BLOCK,
    SCAN,
    EXSCAN,
    CALLS
};

enum form {
    BLOCKING,
    NONBLOCKING,
    PERSISTENT_FORM,
    BLOCKING_C,
    NONBLOCKING_C,
    PERSISTENT_C,
    FORMS
};

/* Arguments of all calls; each uses those it has. displs of ALLTOALLW are bytes. */
struct arguments {
    MPI_Comm comm;
    int root;
    const void *send;
    void *recv;
    int send_count, recv_count;
    const int *send_counts, *send_displs, *recv_counts, *recv_displs;
    MPI_Datatype send_type, recv_type;
    const MPI_Datatype *send_types, *recv_types;
    MPI_Op op;
#if HAS_LARGE
    const MPI_Count *send_counts_c, *recv_counts_c; /* of the _c forms */
    const MPI_Aint *send_displs_c, *recv_displs_c;
#endif
};

struct call_entry {
    const char *name;
    int reduces, vectors, rooted;
    /* NULL: this MPI has no such form. Blocking forms ignore the request; persistent ones are not
     * started. */
    int (*form[FORMS])(const struct arguments *a, MPI_Request *request);
    int (*reference)(const struct arguments *a); /* by PMPI, blocking */
};
extern const struct call_entry calls[CALLS];
extern const char *const form_names[FORMS];

static inline int form_is_persistent(enum form form)
{
    return form == PERSISTENT_FORM || form == PERSISTENT_C;
}

static inline int form_is_blocking(enum form form)
{
    return form == BLOCKING || form == BLOCKING_C;
}

/* --- types and operations (operands.c) -------------------------------------------------------- */

/* The predefined types of MPI and their structure, so that operands can be made for which every
 * operation is exact, and padding is not compared. */
enum kind { WHOLE, TRUTH, BINARY32, BINARY64, EXTENDED, QUAD };
enum second { ALONE, TWICE, WITH_INT };

struct base {
    const char *name;
    MPI_Datatype type;
    enum kind kind;     /* of the value; WHOLE and TRUTH have the size of the type */
    enum second second; /* complex, pair of equal types, pair of the value and an int */
    int pair;           /* TWICE is {value, index} */
    size_t extent;
    size_t size[2], offset[2], significant[2]; /* of value and second; 0 if absent */
};

struct operation {
    const char *name;
    MPI_Op op;
    int index;
};

enum { MOST_BASES = 80, PREDEFINED_OPS = 12 };
/* All types that this MPI has. */
struct bases {
    int count;
    struct base base[MOST_BASES];
};
extern struct bases bases;
extern struct operation operations[PREDEFINED_OPS];
enum { SUM, PROD, MIN, MAX, LAND, LOR, LXOR, BAND, BOR, BXOR, MINLOC, MAXLOC };

void bases_find(void);
const struct base *base_of(MPI_Datatype type);
/* Return whether the MPI below accepts them together. */
int operation_takes(const struct operation *operation, const struct base *base);
/* Fill memory with operands for an operation. */
void base_fill(const struct base *base, const struct operation *operation, void *memory,
               size_t count, uint64_t seed);
/* Zero what is not compared. */
void base_wipe_padding(const struct base *base, void *memory, size_t count);

/* User-defined operations, with types for them. */
struct user_operation {
    const char *name;
    MPI_Op op;
    MPI_Datatype type;
    size_t extent;
    int own;   /* the type must be freed */
    int holes; /* the type is not contiguous */
};

enum { USER_OPERATIONS = 6 };
extern struct user_operation user_operations[USER_OPERATIONS];
void userops_make(void);
void userops_free(void);
/* Fill with operands; those of text show any change of their order. */
void userop_fill(const struct user_operation *user, void *memory, size_t count, uint64_t seed);

/* Datatypes of one signature with different memory layouts. */
enum layout {
    PLAIN,
    CONTIGUOUS,
    VECTOR,
    INDEXED,
    PERMUTED, /* size equals extent, but the bytes are in another order */
    STRUCTURE,
    RESIZED,
    NEGATIVE,   /* begins before its address */
    TRANSPOSED, /* the items of a buffer are interleaved */
    SUBARRAY,
    DUPLICATE,
    NESTED,
    LAYOUTS
};
enum { GRAIN = 6 }; /* elements are multiples of this where layouts other than PLAIN may be drawn */

extern const char *const layout_names[LAYOUTS];
/* Return a committed type of *elements (a divisor of GRAIN, chosen by seed) of base. items: how
 * many the buffer will have, for TRANSPOSED. */
MPI_Datatype layout_make(enum layout layout, MPI_Datatype base, int *elements, int items,
                         uint64_t seed);
/* Return the type at an absolute address, for MPI_BOTTOM. */
MPI_Datatype layout_at(MPI_Datatype type, const void *address);

/* --- cases (cases.c) -------------------------------------------------------------------------- */

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

/* The buffers of a case (sides.c): make types, counts, displacements and memory for a side. */
void side_make(struct side *side, const struct spec *spec, int rank, int receives, int vectors);
/* Make a side of the plain type with the elements of another. */
void side_make_alike(struct side *side, const struct side *of, const struct spec *spec, int rank);
/* Copy the reference's elements to another side of equal length. */
void side_transfer(const struct side *from, struct side *to);
/* Fill with random bytes; if operand: with elements that the case's operation accepts. */
void side_fill(struct side *side, const struct spec *spec, uint64_t seed, int operand);
void side_free(struct side *side);
/* Return what to pass to MPI (0: tested) or PMPI (1). */
void *side_address(const struct side *side, const struct spec *spec, int which);
/* Do not compare the contents from this element on. */
void side_forget(struct side *side, const struct spec *spec, int from);
/* Return where the two arenas first differ, from base - before, or -1. */
long side_difference(struct side *side, const struct spec *spec);
const char *side_difference_text(const struct side *side, long at);

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
