/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that the MPI below refuses to one rank, while others wait for it in twill (mpi_refused.c).
 * Included by shim.h. */
#ifndef TWILL_MPI_REFUSED_H
#define TWILL_MPI_REFUSED_H

#include "lib/twill.h"

#define TWILL_MPI_TAG_REFUSED 1 /* of the messages on `shadow` */

/* What a notice of a refused call has. */
struct twill_mpi_notice {
    int number; /* of the communicator */
    int call;   /* which of its calls, from 1 */
    int kind;   /* enum twill_mpi_kind */
};

/* Part of what is known of a communicator. */
struct twill_mpi_refusal {
    int number;        /* equal on its ranks, and of no other communicator of any of them */
    int calls;         /* that this rank has begun in twill, but for persistent ones */
    int waits_in;      /* kind of the blocking call under way, or -1 */
    int own;           /* the last call that was refused to this rank; 0: none */
    _Atomic int of;    /* the last call that was refused to another, by its notice; 0: none */
    int kind, rank;    /* of it: enum twill_mpi_kind, and the rank in MPI_COMM_WORLD */
    uint64_t found_at; /* when the notice was found */
    struct twill_mpi_notice notice; /* that this rank has sent */
    _Atomic bool given_up;          /* a call was given up, and the twill communicator with it */
};

struct twill_mpi_call;
struct twill_mpi_comm;
/* The MPI has refused this call: tell the other ranks, if twill makes the calls of its
 * communicator. */
void twill_mpi_refused(const struct twill_mpi_call *call);
/* Read the notices that have come, and look whether a call is to be given up. Between polls. */
void twill_mpi_refusals_read(void);
void twill_mpi_refusals_check(void);
/* Return whether a call failed because it was given up, so that it must not be passed on. */
bool twill_mpi_is_given_up(struct twill_mpi_comm *comm, twill_status status);
/* Of mpi_comms.c: translate the ranks of a communicator to those of `shadow`. */
bool twill_mpi_world_ranks(MPI_Comm handle, int size, int *ranks);

#endif
