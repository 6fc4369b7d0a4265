/* SPDX-License-Identifier: Apache-2.0 */
/* Handles of requests that are ours. Included by shim.h. */
#ifndef TWILL_MPI_HANDLES_H
#define TWILL_MPI_HANDLES_H

/* Handles that the MPI below never makes. Open MPI: addresses that cannot be mapped. MPICH:
 * integers tagged as requests (11 << 26) but of no kind of request. The ABI: those of these that
 * are odd, so that no address is one, and that Fortran libraries for MPICH's handles can keep them
 * as integers. The bits below number our requests from 1. */
#if defined(OPEN_MPI)
#define TWILL_MPI_REQUESTS_BASE ((uintptr_t)1 << 63)
#define TWILL_MPI_REQUESTS_ODD  0u
typedef uintptr_t twill_mpi_request_bits;
#elif defined(MPI_ABI_VERSION)
#define TWILL_MPI_REQUESTS_BASE 0x2c000000u
#define TWILL_MPI_REQUESTS_ODD  1u
typedef uintptr_t twill_mpi_request_bits;
#else
#define TWILL_MPI_REQUESTS_BASE 0x2c000000u
#define TWILL_MPI_REQUESTS_ODD  0u
typedef unsigned twill_mpi_request_bits;
#endif
#define TWILL_MPI_REQUEST_SLABS (20u - TWILL_MPI_REQUESTS_ODD) /* of 64, 128, 256 ... requests */
/* Return a number that is no request's, or beyond all, if the handle is not one of ours. */
static inline twill_mpi_request_bits twill_mpi_request_number(MPI_Request handle)
{
    const twill_mpi_request_bits bits = (twill_mpi_request_bits)handle - TWILL_MPI_REQUESTS_BASE;
    if (TWILL_MPI_REQUESTS_ODD != 0)
        return bits % 2 != 0 ? bits / 2 : 0;
    return bits;
}
static inline MPI_Request twill_mpi_request_numbered(unsigned number)
{
    return (MPI_Request)(TWILL_MPI_REQUESTS_BASE +
                         (twill_mpi_request_bits)number * (1 + TWILL_MPI_REQUESTS_ODD) +
                         TWILL_MPI_REQUESTS_ODD);
}
static inline bool twill_mpi_request_is_ours(MPI_Request handle)
{
    return twill_mpi_request_number(handle) - 1 < (1u << (26 - TWILL_MPI_REQUESTS_ODD)) - 1;
}

#endif
