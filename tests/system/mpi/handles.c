/* SPDX-License-Identifier: Apache-2.0 */
/* What twill asks an MPI about the program's handles: of no type is known what is another's, and no
 * question calls the program's error handlers. And requests that are freed while under way.
 * PMPI_Type_set_attr and PMPI_Type_get_attr are replaced: types may share one attribute, as some
 * predefined ones of Intel MPI do. */
#include "harness.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN __attribute__((visibility("default")))

/* --- types that share an attribute ------------------------------------------------------------ */

static struct {
    int on;            /* all types have one attribute */
    void *value;       /* its value */
    int of_predefined; /* times that it was set for a predefined type */
} shared;

static int is_predefined(MPI_Datatype type)
{
    int integers, addresses, types, combiner = -1;
    PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
    return combiner == MPI_COMBINER_NAMED;
}

SHOWN int PMPI_Type_set_attr(MPI_Datatype type, int keyval, void *value)
{
    int (*its)(MPI_Datatype, int, void *);
    *(void **)&its = dlsym(RTLD_NEXT, "PMPI_Type_set_attr");
    if (!shared.on)
        return its(type, keyval, value);
    shared.of_predefined += is_predefined(type);
    shared.value = value;
    return MPI_SUCCESS;
}

SHOWN int PMPI_Type_get_attr(MPI_Datatype type, int keyval, void *value, int *there)
{
    int (*its)(MPI_Datatype, int, void *, int *);
    *(void **)&its = dlsym(RTLD_NEXT, "PMPI_Type_get_attr");
    if (!shared.on)
        return its(type, keyval, value, there);
    *there = shared.value != NULL;
    memcpy(value, &shared.value, sizeof shared.value);
    return MPI_SUCCESS;
}

/* Broadcast elements of a type, by MPI and by PMPI. */
static void broadcast(MPI_Datatype type, int count, const char *what)
{
    MPI_Aint lb, extent;
    PMPI_Type_get_extent(type, &lb, &extent);
    const size_t bytes = (size_t)extent * (size_t)count;
    char *mine = malloc(bytes), *theirs = malloc(bytes);
    fill_bytes(mine, bytes, (uint64_t)harness.rank);
    fill_bytes(theirs, bytes, (uint64_t)harness.rank);
    OK(MPI_Bcast(mine, count, type, 0, MPI_COMM_WORLD));
    OK(PMPI_Bcast(theirs, count, type, 0, MPI_COMM_WORLD));
    CHECK(memcmp(mine, theirs, bytes) == 0, "%s: not all has been moved", what);
    free(mine);
    free(theirs);
}

/* The predefined ones after the first three are not in twill's own list. */
static void test_shared(void)
{
    const MPI_Datatype predefined[] = {
        MPI_INT,        MPI_DOUBLE,          MPI_CHAR,
#ifdef MPIX_C_FLOAT16
        MPIX_C_FLOAT16,
#endif
#ifdef MPIX_BFLOAT16
        MPIX_BFLOAT16,
#endif
#ifdef MPI_LOGICAL1
        MPI_LOGICAL1,
#endif
#ifdef MPI_2COMPLEX
        MPI_2COMPLEX,   MPI_2DOUBLE_COMPLEX,
#endif
    };
    enum { PREDEFINED = sizeof predefined / sizeof *predefined };
    MPI_Datatype derived[2];
    OK(MPI_Type_vector(2, 1, 2, MPI_INT, &derived[0]));
    OK(MPI_Type_contiguous(5, MPI_CHAR, &derived[1]));
    OK(MPI_Type_commit(&derived[0]));
    OK(MPI_Type_commit(&derived[1]));
    shared.on = 1;
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < PREDEFINED; i++) {
            int size = 0;
            PMPI_Type_size(predefined[i], &size);
            if (size > 0)
                broadcast(predefined[i], 3, "a predefined type");
        }
        broadcast(derived[0], 3, "a type with a gap");
        broadcast(derived[1], 3, "five characters");
    }
    shared.on = 0;
    CHECK(shared.of_predefined == 0, "%d attributes of predefined types", shared.of_predefined);
    OK(MPI_Type_free(&derived[0]));
    OK(MPI_Type_free(&derived[1]));
}

/* --- questions -------------------------------------------------------------------------------- */

static int called; /* calls of the handler of MPI_COMM_WORLD and MPI_COMM_SELF */

static void handler(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    called += *code != MPI_SUCCESS;
}

#if HAS_LARGE
/* Types that were made with large counts. More than 16 MiB of one are not looked at byte by byte.
 */
static void test_large(void)
{
    enum { TYPES = 9 };
    const MPI_Count lengths[2] = {2, 1}, displs[2] = {3, 0}, starts[2] = {1, 2}, sizes[2] = {4, 6},
                    parts[2] = {2, 3};
    MPI_Datatype type[TYPES];
    OK(MPI_Type_contiguous_c((1 << 24) + 8, MPI_BYTE, &type[0]));
    OK(MPI_Type_contiguous_c(5, MPI_SHORT, &type[1]));
    OK(MPI_Type_vector_c(3, 2, 4, MPI_INT, &type[2]));
    OK(MPI_Type_create_hvector_c(3, 1, 9, MPI_INT, &type[3]));
    OK(MPI_Type_indexed_c(2, lengths, displs, MPI_INT, &type[4]));
    OK(MPI_Type_create_subarray_c(2, sizes, parts, starts, MPI_ORDER_C, MPI_CHAR, &type[5]));
    OK(MPI_Type_create_resized_c(MPI_INT, 0, 7, &type[6]));
    OK(MPI_Type_dup(type[0], &type[7]));
    OK(MPI_Type_contiguous_c(3 << 20, type[2], &type[8]));
    for (int i = 0; i < TYPES; i++) {
        OK(MPI_Type_commit(&type[i]));
        for (int turn = 0; turn < 2; turn++)
            broadcast(type[i], i == 0 || i >= 7 ? 1 : 7, "a type made with large counts");
        OK(MPI_Type_free(&type[i]));
    }
    CHECK(called == 0, "the handler is called %d times", called);
}
#endif

/* MPIs whose handles are addresses cannot know that one is wrong. */
#if !defined(OPEN_MPI) && !defined(MPI_ABI_VERSION)
/* Make a call by MPI and by PMPI: the same error, in the handler of the same communicator. */
#define SAME_ERROR(name, ...)                                                                      \
    do {                                                                                           \
        int before = called, mine = MPI_##name(__VA_ARGS__), calls = called - before;              \
        before = called;                                                                           \
        int theirs = PMPI_##name(__VA_ARGS__);                                                     \
        PMPI_Error_class(mine, &mine);                                                             \
        PMPI_Error_class(theirs, &theirs);                                                         \
        CHECK(mine == theirs && calls == called - before,                                          \
              #name ": class %d, not %d; the handler of another is called %d times, not %d", mine, \
              theirs, calls, called - before);                                                     \
    } while (0)

static void add(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)in, (void)inout, (void)count, (void)type;
}

static void test_wrong(void)
{
    const MPI_Datatype type = (MPI_Datatype)12345;
    const MPI_Op wrong = (MPI_Op)12345;
    int in[MOST_RANKS] = {0}, out[MOST_RANKS];
    MPI_Comm comm;
    MPI_Op op;
    MPI_Request request;
    OK(MPI_Op_create(add, 1, &op));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    SAME_ERROR(Bcast, in, 1, type, 0, comm);
    SAME_ERROR(Gather, in, 1, type, out, 1, type, 0, comm);
    SAME_ERROR(Allgather, in, 1, MPI_INT, out, 1, type, comm);
    SAME_ERROR(Allreduce, in, out, 1, type, MPI_SUM, comm);
    SAME_ERROR(Allreduce, in, out, 1, type, op, comm);
    SAME_ERROR(Allreduce, in, out, 1, MPI_INT, wrong, comm);
    SAME_ERROR(Reduce_scatter_block, in, out, 1, MPI_INT, wrong, comm);
    SAME_ERROR(Iallreduce, in, out, 1, MPI_INT, wrong, comm, &request);
    OK(MPI_Op_free(&op));
    OK(MPI_Comm_free(&comm));
}
#endif

static void test_questions(void)
{
    MPI_Errhandler mine;
    OK(MPI_Comm_create_errhandler(handler, &mine));
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, mine));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, mine));
#if HAS_LARGE
    test_large();
#endif
#if !defined(OPEN_MPI) && !defined(MPI_ABI_VERSION)
    test_wrong();
#endif
    OK(MPI_Errhandler_free(&mine));
}

/* --- requests --------------------------------------------------------------------------------- */

enum { BELOW = 2 }; /* forms: 0 nonblocking, 1 persistent; plus BELOW: by PMPI */

static void sum_begin(int form, const int *in, int *out, MPI_Comm comm, MPI_Request *request)
{
    if (form == 0)
        OK(MPI_Iallreduce(in, out, 1, MPI_INT, MPI_SUM, comm, request));
    else if (form == BELOW)
        OK(PMPI_Iallreduce(in, out, 1, MPI_INT, MPI_SUM, comm, request));
    else
        OK(MPI_Start(request));
}

/* Rank 0 frees a request while the others have not begun the call. Returns whether it was refused;
 * then the request is complete in the end, with the sum. */
static int free_active(int form, MPI_Comm comm)
{
    static int in = 1, sums[2 * BELOW]; /* a freed call ends later */
    MPI_Request request = MPI_REQUEST_NULL;
    int *out = &sums[form], code = MPI_SUCCESS, class = 0;
    *out = -1;
    if (form == 1)
        OK(PERSISTENT(Allreduce)(&in, out, 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request));
#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION < 5
    if (form == 1 + BELOW)
        OK(PMPIX_Allreduce_init(&in, out, 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request));
#elif defined(OPEN_MPI)
    if (form == 1 + BELOW)
        OK(PMPI_Allreduce_init(&in, out, 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request));
#endif
    if (harness.rank > 0)
        PMPI_Recv(NULL, 0, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    sum_begin(form, &in, out, comm, &request);
    if (harness.rank == 0) {
        code = MPI_Request_free(&request);
        PMPI_Error_class(code, &class);
        for (int to = 1; to < harness.size; to++)
            PMPI_Send(NULL, 0, MPI_INT, to, 7, MPI_COMM_WORLD);
    }
    CHECK((code == MPI_SUCCESS) == (class == 0) &&
              (request == MPI_REQUEST_NULL) == (harness.rank == 0 && code == MPI_SUCCESS),
          "form %d: class %d, and the handle is %s", form, class,
          request == MPI_REQUEST_NULL ? "null" : "kept");
    if (request != MPI_REQUEST_NULL) {
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        CHECK(*out == harness.size, "form %d: the sum is %d", form, *out);
    }
    if (request != MPI_REQUEST_NULL)
        OK(MPI_Request_free(&request));
    PMPI_Barrier(MPI_COMM_WORLD);
    return code != MPI_SUCCESS;
}

/* MPI forbids to free an active nonblocking collective; a persistent one Open MPI refuses, too. */
static void test_freed(void)
{
    MPI_Comm comm;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
#if defined(OPEN_MPI)
    for (int form = 0; form < BELOW; form++) {
        const int mine = free_active(form, comm), theirs = free_active(form + BELOW, comm);
        CHECK(mine == theirs, "form %d: refused: %d, by the MPI %d", form, mine, theirs);
    }
#else
    CHECK(free_active(0, comm) == (harness.rank == 0), "a nonblocking call is freed");
    CHECK(free_active(1, comm) == 0, "a persistent call is not freed");
#endif
    OK(MPI_Comm_free(&comm));
}

int main(int argc, char **argv)
{
    harness_begin(&argc, &argv, "handles");
    test_shared();
    test_questions();
    test_freed();
    return harness_end();
}
