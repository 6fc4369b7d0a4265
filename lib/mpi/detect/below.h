/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the MPI of a process, which library it is and whose handles it uses. Part of the library
 * that detects the MPI, and of the libraries for one MPI if built without it. */
#ifndef TWILL_BELOW_H
#define TWILL_BELOW_H

#include <limits.h>
#include <stdbool.h>

/* Kinds of MPI, by the types and values of their handles. */
enum twill_below_kind {
    TWILL_BELOW_NONE, /* no MPI is loaded */
    TWILL_BELOW_OPENMPI,
    TWILL_BELOW_MPICH, /* and MPIs with its ABI */
    TWILL_BELOW_ABI,   /* the standard ABI of MPI 5 */
    TWILL_BELOW_OTHER,
    TWILL_BELOW_KINDS
};
/* Return the name of this kind in names of libraries, such as "openmpi", or "" if it has none. */
const char *twill_below_variant(enum twill_below_kind kind);

/* An MPI that has been found. The caller owns it. */
struct twill_below {
    enum twill_below_kind kind;
    void *handle;        /* of dlopen, never closed */
    const void *base;    /* address at which the library is loaded */
    char path[PATH_MAX]; /* of its file */
    char version[128];   /* as the MPI calls itself */
    const char *trouble; /* reason why it cannot be used, or NULL */
};

/* Find the MPI that calls made at the code address `caller` reach, and describe it in *below. It is
 * the one in global scope, otherwise the one that the caller's library needs, otherwise the only
 * one in the process. If there is none, below->kind is TWILL_BELOW_NONE. */
void twill_below_find(const void *caller, struct twill_below *below);
/* Describe in *below the MPI that the library with the code address `caller` needs. If it needs
 * none, below->kind is TWILL_BELOW_NONE. */
void twill_below_needed(const void *caller, struct twill_below *below);
/* Make the functions of the MPI, if one was found, visible in global scope. */
void twill_below_publish(const struct twill_below *below);
/* Return whether an MPI of another kind than `kind` is loaded. If so, *below describes it. */
bool twill_below_differs(enum twill_below_kind kind, struct twill_below *below);

#endif
