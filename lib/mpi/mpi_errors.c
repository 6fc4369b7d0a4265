/* SPDX-License-Identifier: Apache-2.0 */
/* Reports twill's failures as MPI does. The message goes to standard error. Then the communicator's
 * error handler is called with a code for which MPI_Error_string() returns the message. */
#include "lib/mpi/shim.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Error class of operations on a revoked object, in MPIs with user-level failure mitigation. */
#if defined(MPIX_ERR_REVOKED)
#define CLASS_REVOKED MPIX_ERR_REVOKED
#elif defined(OPEN_MPI)
#define CLASS_REVOKED 77 /* Open MPI 5; release 4 has no MPIX_Comm_revoke() */
#else
#define CLASS_REVOKED MPI_ERR_OTHER
#endif

bool twill_mpi_is_revoked(struct twill_mpi_comm *comm, twill_status status)
{
    if (TWILL_LIKELY(status == TWILL_OK) || twill_mpi_is_given_up(comm, status))
        return false;
    if (status == TWILL_ERR_REVOKED)
        atomic_store(&comm->revoked, true);
    return atomic_load(&comm->revoked);
}

/* Return the MPI error class of a status, which is MPI_ERR_OTHER if no class describes it. */
static int status_class(twill_status status)
{
    switch (status) {
    case TWILL_ERR_ARGUMENT:
        return MPI_ERR_ARG;
    case TWILL_ERR_MISMATCH: /* the MPI reports that one rank sends more than another takes */
        return MPI_ERR_TRUNCATE;
    case TWILL_ERR_MEMORY:
        return MPI_ERR_NO_MEM;
    case TWILL_ERR_INTERNAL:
        return MPI_ERR_INTERN;
    default:
        return MPI_ERR_OTHER;
    }
}

/* Return a new error code whose string is `sentence`, in a class for failures that no MPI class
 * describes. MPICH can add codes only to added classes. Returns MPI_ERR_OTHER on failure. */
static int code_with(const char *sentence)
{
    struct twill_mpi *mpi = &twill_mpi;
    char text[MPI_MAX_ERROR_STRING];
    int code = MPI_ERR_OTHER;
    pthread_mutex_lock(&mpi->errors.lock);
    if (mpi->errors.class == 0 && PMPI_Add_error_class(&mpi->errors.class) == MPI_SUCCESS)
        PMPI_Add_error_string(mpi->errors.class, "twill failed, see standard error");
    snprintf(text, sizeof(text), "%s", sentence);
    if (mpi->errors.class == 0 || PMPI_Add_error_code(mpi->errors.class, &code) != MPI_SUCCESS ||
        PMPI_Add_error_string(code, text) != MPI_SUCCESS)
        code = MPI_ERR_OTHER;
    pthread_mutex_unlock(&mpi->errors.lock);
    return code;
}

void twill_mpi_say(const char *format, ...)
{
    char text[640];
    va_list arguments;
    va_start(arguments, format);
    twill_print_list(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (!twill_mpi.silent)
        fprintf(stderr, "libtwill-mpi: %s\n", text);
}

/* Return the error code of a failure and print its message. A status that a class of MPI describes
 * gets that class, others get a code that is made here. It is kept for later calls that return
 * TWILL_ERR_BROKEN, which print nothing. Two threads that see a failure at once make a code each.
 * If the communicator is revoked, prints nothing and returns the class for that. */
static int code_of(struct twill_mpi_comm *comm, twill_status status)
{
    char given_up[160];
    const char *message = comm->comm != NULL ? twill_comm_message(comm->comm) : "";
    if (*message == '\0')
        message = twill_strerror(status);
    int code = comm->broken_code;
    if (twill_mpi_is_given_up(comm, status)) {
        snprintf(
            given_up, sizeof(given_up),
            "the MPI has refused a collective to rank %d of MPI_COMM_WORLD, which has not made "
            "it again since: its communicator fails",
            comm->refusal.rank);
        message = given_up;
    }
    if (twill_mpi_is_revoked(comm, status)) {
        comm->broken_code = CLASS_REVOKED;
        return CLASS_REVOKED;
    }
    if (status == TWILL_ERR_BROKEN && code != 0)
        return code;
    code = status_class(status);
    if (code == MPI_ERR_OTHER)
        code = code_with(message);
    comm->broken_code = code;
    twill_mpi_say("%s", message);
    return code;
}

int twill_mpi_fault_of(struct twill_mpi_comm *comm, twill_status status,
                       struct twill_mpi_fault *fault)
{
    if (TWILL_LIKELY(status == TWILL_OK))
        return MPI_SUCCESS;
    int code = code_of(comm, status);
    if (fault->code == MPI_SUCCESS)
        *fault = (struct twill_mpi_fault){twill_mpi_error_comm(comm), code};
    return code;
}

int twill_mpi_refuse_child(void)
{
    if (!twill_mpi.forked_told)
        twill_mpi_say("process %ld was forked from a rank: its MPI calls fail", (long)getpid());
    twill_mpi.forked_told = true;
    return MPI_ERR_OTHER;
}

void twill_mpi_raise(const struct twill_mpi_fault *fault)
{
    if (TWILL_UNLIKELY(fault->code != MPI_SUCCESS))
        PMPI_Comm_call_errhandler(fault->comm, fault->code);
}

int twill_mpi_outcome(struct twill_mpi_comm *comm, twill_status status)
{
    struct twill_mpi_fault fault = TWILL_MPI_NO_FAULT;
    int code = twill_mpi_fault_of(comm, status, &fault);
    twill_mpi_raise(&fault);
    return code;
}
