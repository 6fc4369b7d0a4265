/* SPDX-License-Identifier: Apache-2.0 */
/* Find the MPI of a process: which library it is, and whose handles it has. Used by the libraries
 * for one MPI and by the one that detects the MPI. */
#ifndef TWILL_BELOW_H
#define TWILL_BELOW_H

#include <limits.h>
#include <stdbool.h>

/* Kinds of MPIs by the types and values of their handles. */
enum twill_below_kind {
    TWILL_BELOW_NONE, /* no MPI is loaded */
    TWILL_BELOW_OPENMPI,
    TWILL_BELOW_MPICH, /* and those of its ABI */
    TWILL_BELOW_ABI,   /* the standard ABI of MPI 5 */
    TWILL_BELOW_OTHER,
    TWILL_BELOW_KINDS
};
/* Return the name of a kind as part of the name of its library, "" for the others. */
const char *twill_below_variant(enum twill_below_kind kind);

struct twill_below {
    enum twill_below_kind kind;
    void *handle;        /* of dlopen; never closed */
    const void *base;    /* where the library lies */
    char path[PATH_MAX]; /* of its file */
    char version[128];   /* how it calls itself */
    const char *trouble; /* several MPIs, and nothing says which one is meant; else NULL */
};

/* Find the MPI whose functions calls from `caller`, an address in code, reach: one in global scope,
 * else one that the caller's library needs, else the only one in the process. */
void twill_below_find(const void *caller, struct twill_below *below);
/* Find the MPI that the library of `caller` needs. */
void twill_below_needed(const void *caller, struct twill_below *below);
/* Make the functions of the MPI visible in global scope. */
void twill_below_publish(const struct twill_below *below);
/* Return whether an MPI of another kind than `kind` is loaded, which `below` then is. */
bool twill_below_differs(enum twill_below_kind kind, struct twill_below *below);

#endif
