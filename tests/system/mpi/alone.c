/* SPDX-License-Identifier: Apache-2.0 */
/* What one rank alone lacks or does differently must not leave the others waiting: every call ends,
 * with equal results on all ranks. Memory is refused to twill only: this program defines malloc()
 * for its process and looks at the caller. PMPI_Pack and PMPI_Type_contiguous are replaced, too. */
#include "harness.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- memory ----------------------------------------------------------------------------------- */

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);

/* How many allocations twill may still make; then one is refused, and it is -1. */
static _Atomic long until = -2;

static int caller_is_refused(void *caller)
{
    Dl_info info;
    if (atomic_load(&until) < 0 || dladdr(caller, &info) == 0 || info.dli_fname == NULL ||
        strstr(info.dli_fname, "libtwill") == NULL || atomic_fetch_sub(&until, 1) != 0)
        return 0;
    errno = ENOMEM;
    return 1;
}

/* If set, PMPI_Pack or PMPI_Type_contiguous fails. */
static _Atomic int no_pack, no_type;

#define SHOWN __attribute__((visibility("default")))

SHOWN void *malloc(size_t bytes)
{
    return caller_is_refused(__builtin_return_address(0)) ? NULL : __libc_malloc(bytes);
}

SHOWN void *calloc(size_t count, size_t bytes)
{
    return caller_is_refused(__builtin_return_address(0)) ? NULL : __libc_calloc(count, bytes);
}

SHOWN void *aligned_alloc(size_t alignment, size_t bytes)
{
    return caller_is_refused(__builtin_return_address(0)) ? NULL
                                                          : __libc_memalign(alignment, bytes);
}

SHOWN int PMPI_Pack(const void *in, int count, MPI_Datatype type, void *out, int bytes,
                    int *position, MPI_Comm comm)
{
    int (*its)(const void *, int, MPI_Datatype, void *, int, int *, MPI_Comm);
    *(void **)&its = dlsym(RTLD_NEXT, "PMPI_Pack");
    return atomic_load(&no_pack) && count > 0 ? MPI_ERR_OTHER
                                              : its(in, count, type, out, bytes, position, comm);
}

SHOWN int PMPI_Type_contiguous(int count, MPI_Datatype of, MPI_Datatype *type)
{
    int (*its)(int, MPI_Datatype, MPI_Datatype *);
    *(void **)&its = dlsym(RTLD_NEXT, "PMPI_Type_contiguous");
    return atomic_load(&no_type) ? MPI_ERR_OTHER : its(count, of, type);
}

/* Refuse the n-th allocation of one rank from now on ... */
static void refuse_memory(int rank, long n)
{
    atomic_store(&until, harness.twill && rank == harness.rank ? n : -2);
}

/* ... and stop. Returns whether it has been refused on some rank. */
static int was_refused(int rank)
{
    int mine = rank == harness.rank && atomic_exchange(&until, -2) == -1, all = 0;
    PMPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return all;
}

/* --- communicators and persistent calls ------------------------------------------------------- */

static int sum_over(MPI_Comm comm)
{
    int in = harness.rank + 1, out = -1;
    OK(MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, comm));
    return out;
}

static int sum_of_ranks(void)
{
    return harness.size * (harness.size + 1) / 2;
}

/* Return the next allocation to refuse: not each of hundreds, except with TEST_MPI_LONG. */
static long next_refusal(long n)
{
    return n + 1 + (harness.thorough ? 0 : n / 8);
}

/* Refuse to each rank in turn every allocation of creating a communicator. */
static void test_communicators(void)
{
    for (int rank = 0; rank < harness.size; rank++)
        for (long n = 0, more = 1; more; n = next_refusal(n)) {
            MPI_Comm comm;
            refuse_memory(rank, n);
            OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
            more = was_refused(rank);
            CHECK(sum_over(comm) == sum_of_ranks(), "rank %d without allocation %ld: the sum", rank,
                  n);
            OK(MPI_Comm_free(&comm));
        }
}

/* Refuse an allocation of a persistent call, too; the broadcast needs bounce memory. */
static void without_memory(int rank, long n, MPI_Datatype gaps, int broadcasts)
{
    int in[4] = {harness.rank + 1, 0, 0, 0}, out[4] = {-1, 0, 0, 0};
    MPI_Request request;
    refuse_memory(rank, n);
    if (broadcasts)
        OK(PERSISTENT(Bcast)(in, 1, gaps, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
    else
        OK(PERSISTENT(Allreduce)(in, out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL,
                                 &request));
    if (atomic_load(&until) >= 0) /* starting it is not tested here */
        atomic_store(&until, -2);
    OK(MPI_Start(&request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(broadcasts ? in[0] == 1 : out[0] == sum_of_ranks(),
          "rank %d without allocation %ld: %d, %d", rank, n, in[0], out[0]);
    OK(MPI_Request_free(&request));
}

static void test_persistent(void)
{
    MPI_Datatype gaps;
    OK(MPI_Type_vector(2, 1, 2, MPI_INT, &gaps));
    OK(MPI_Type_commit(&gaps));
    for (int rank = 0; rank < harness.size; rank++)
        for (int broadcasts = 0; broadcasts < 2; broadcasts++)
            for (long n = 0, more = 1; more; n = next_refusal(n)) {
                without_memory(rank, n, gaps, broadcasts);
                more = was_refused(rank);
            }
    OK(MPI_Type_free(&gaps));
}

/* --- starting calls --------------------------------------------------------------------------- */

static MPI_Comm fragile(void)
{
    MPI_Comm comm;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    return comm;
}

/* A call that needs bounce memory and gets none fails on all ranks. */
static void test_bounced(int form)
{
    char plain[2][64] = {"", ""};
    for (int rank = 0; rank < harness.size; rank++) {
        MPI_Comm comm = fragile();
        MPI_Request request = MPI_REQUEST_NULL;
        void *in = plain[0] + 1, *out = plain[1] + 1; /* not aligned for int */
        refuse_memory(rank, 0);
        int code = form == 0 ? MPI_Allreduce(in, out, 8, MPI_INT, MPI_SUM, comm)
                             : MPI_Iallreduce(in, out, 8, MPI_INT, MPI_SUM, comm, &request);
        if (code == MPI_SUCCESS && form == 1)
            code = MPI_Wait(&request, MPI_STATUS_IGNORE);
        int refused = was_refused(rank);
        CHECK((code != MPI_SUCCESS) == refused, "rank %d has no memory: code %d", rank, code);
        CHECK(refused == harness.twill, "memory has not been asked for");
        OK(MPI_Comm_free(&comm));
    }
}

/* One rank cannot pack: allgather of a type with gaps, in all forms. */
static void test_packing(int form, int without_type)
{
    MPI_Comm comm = fragile();
    MPI_Datatype gaps;
    MPI_Request request = MPI_REQUEST_NULL;
    int in[4] = {1, 2, 3, 4}, out[4 * MOST_RANKS], code = MPI_SUCCESS;
    OK(MPI_Type_vector(2, 1, 2, MPI_INT, &gaps));
    OK(MPI_Type_commit(&gaps));
    if (form == 2)
        OK(PERSISTENT(Allgather)(in, 1, gaps, out, 2, MPI_INT, comm, MPI_INFO_NULL, &request));
    else /* so that twill knows the type */
        OK(MPI_Allgather(in, 1, gaps, out, 2, MPI_INT, comm));
    const int lacks = harness.twill && harness.rank == harness.size - 1;
    atomic_store(without_type ? &no_type : &no_pack, lacks);
    if (form == 0)
        code = MPI_Allgather(in, 1, gaps, out, 2, MPI_INT, comm);
    else
        code = form == 1 ? MPI_Iallgather(in, 1, gaps, out, 2, MPI_INT, comm, &request)
                         : MPI_Start(&request);
    if (code == MPI_SUCCESS && form > 0)
        code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    atomic_store(&no_type, 0);
    atomic_store(&no_pack, 0);
    CHECK((code != MPI_SUCCESS) == harness.twill, "form %d: a rank cannot pack: code %d", form,
          code);
    PMPI_Barrier(MPI_COMM_WORLD); /* no rank may still wait for the next call on the communicator */
    if (request != MPI_REQUEST_NULL)
        OK(MPI_Request_free(&request));
    OK(MPI_Type_free(&gaps));
    OK(MPI_Comm_free(&comm));
}

static void add_ints(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *count; i++)
        ((int *)inout)[i] += ((int *)in)[i];
}

/* Some ranks have as many persistent reductions with user functions as fit, one has fewer. */
static void test_operations(void)
{
    enum { MANY = 192 };
    static MPI_Op op[MANY + 1];
    static MPI_Request request[MANY + 1];
    static int in[MANY + 1], out[MANY + 1];
    const int first = harness.size - 1, prepares = harness.rank < first;
    MPI_Comm most;
    OK(MPI_Comm_split(MPI_COMM_WORLD, prepares, 0, &most));
    for (int i = 0; i <= MANY; i++) {
        OK(MPI_Op_create(add_ints, 1, &op[i]));
        in[i] = i;
        MPI_Comm comm = i < MANY ? most : MPI_COMM_WORLD;
        if (prepares || i == MANY)
            OK(PERSISTENT(Allreduce)(&in[i], &out[i], 1, MPI_INT, op[i], comm, MPI_INFO_NULL,
                                     &request[i]));
    }
    int begin = prepares ? 0 : MANY;
    for (int i = begin; i <= MANY; i++)
        OK(MPI_Start(&request[i]));
    OK(MPI_Waitall(MANY + 1 - begin, request + begin, MPI_STATUSES_IGNORE));
    for (int i = 0; i <= MANY; i++)
        OK(MPI_Op_free(&op[i]));
    for (int i = begin; i <= MANY; i++) {
        CHECK(out[i] == i * (i < MANY ? first : harness.size), "sum %d is %d", i, out[i]);
        OK(MPI_Request_free(&request[i]));
    }
    OK(MPI_Comm_free(&most));
}

/* --- a rank's own shard ----------------------------------------------------------------------- */

enum { ALONE_SHARD = 5, ROOT = 1 };

/* Receive fewer elements from itself than fit, or send fewer than it receives. MPI forbids it, but
 * the MPIs do it. */
static void test_short(int given)
{
    int in[ALONE_SHARD] = {1, 2, 3, 4, harness.rank}, all[MOST_RANKS * ALONE_SHARD],
        mine[ALONE_SHARD];
    int counts[MOST_RANKS], displs[MOST_RANKS];
    const int n = harness.rank == ROOT ? given : ALONE_SHARD;
    for (int r = 0; r < harness.size; r++) {
        counts[r] = ALONE_SHARD;
        displs[r] = r * ALONE_SHARD;
    }
    for (int turn = 0; turn < 4; turn++) {
        memset(all, -1, sizeof all);
        memset(mine, -1, sizeof mine);
        for (int again = 0; again < 2 && turn == 0; again++) { /* twill remembers calls */
            in[0] = again;
            OK(MPI_Gather(in, n, MPI_INT, all, ALONE_SHARD, MPI_INT, ROOT, MPI_COMM_WORLD));
        }
        if (turn == 1)
            OK(MPI_Gatherv(in, n, MPI_INT, all, counts, displs, MPI_INT, ROOT, MPI_COMM_WORLD));
        if (turn > 1)
            OK(MPI_Allgatherv(in, n, MPI_INT, all, counts, displs, MPI_INT, MPI_COMM_WORLD));
        for (int r = 0; r < harness.size && (turn > 1 || harness.rank == ROOT); r++)
            for (int i = 0; i < (r == ROOT ? given : ALONE_SHARD); i++)
                CHECK(all[r * ALONE_SHARD + i] == (i < ALONE_SHARD - 1 ? i + 1 : r),
                      "turn %d, of rank %d: %d", turn, r, all[r * ALONE_SHARD + i]);
    }
}

/* More than fits is an error on all ranks. */
static void test_long(void)
{
    int in[2 * ALONE_SHARD] = {0}, all[MOST_RANKS * ALONE_SHARD], class = 0;
    MPI_Comm comm = fragile();
    int code = MPI_Gather(in, harness.rank == ROOT ? 2 * ALONE_SHARD : ALONE_SHARD, MPI_INT, all,
                          ALONE_SHARD, MPI_INT, ROOT, comm);
    MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_TRUNCATE || (harness.rank != ROOT && class == MPI_SUCCESS),
          "class %d, not MPI_ERR_TRUNCATE", class);
    OK(MPI_Comm_free(&comm));
}

/* --- a call that is wrong on one rank --------------------------------------------------------- */

/* Return whether the MPI below checks arguments. */
static int checks(void)
{
    MPI_Comm comm = fragile();
    int code = PMPI_Send(NULL, 0, MPI_INT, MPI_PROC_NULL, -5, comm);
    OK(MPI_Comm_free(&comm));
    return code != MPI_SUCCESS;
}

#if defined(OPEN_MPI)
enum { IS_OPEN_MPI = 1 };
#else
enum { IS_OPEN_MPI = 0 };
#endif

/* Make calls with errors that the MPI below would not detect, or would hang in. Sets *skipped for
 * errors that another MPI misses. */
static int make_wrong(int which, int wrong, MPI_Comm comm, int *skipped)
{
    static MPI_Datatype uncommitted = MPI_DATATYPE_NULL;
    const int checked = checks();
    int in[2 * MOST_RANKS] = {0}, out[2 * MOST_RANKS], counts[MOST_RANKS], displs[MOST_RANKS];
    for (int r = 0; r < MOST_RANKS; r++) {
        counts[r] = 1;
        displs[r] = r;
    }
    if (uncommitted == MPI_DATATYPE_NULL)
        OK(MPI_Type_vector(2, 1, 2, MPI_INT, &uncommitted));
    const int open = !checked || IS_OPEN_MPI, other = !checked || !IS_OPEN_MPI;
    /* Without checks, an uncommitted type is not detected. */
    const int known[] = {1, open, checked && open, other, other, other, other};
    *skipped = !known[which];
    if (*skipped)
        return MPI_SUCCESS;
    switch (which) {
    case 0:
        return MPI_Alltoall(in, wrong ? 2 : 1, MPI_INT, out, 1, MPI_INT, comm);
    case 1:
        return MPI_Allreduce(in, wrong ? NULL : out, 1, MPI_INT, MPI_SUM, comm);
    case 2:
        return MPI_Allgather(in, 2, MPI_INT, out, wrong ? 1 : 2, wrong ? uncommitted : MPI_INT,
                             comm);
    case 3:
        return MPI_Bcast(wrong ? MPI_IN_PLACE : in, 1, MPI_INT, 0, comm);
    case 4:
        return MPI_Allgatherv(in, 1, MPI_INT, out, counts, wrong ? NULL : displs, MPI_INT, comm);
    case 5:
        return MPI_Alltoallv(in, wrong ? NULL : counts, displs, MPI_INT, out, counts, displs,
                             MPI_INT, comm);
    default:
        return MPI_Allreduce(in, out, wrong ? -1 : 1, MPI_INT, MPI_SUM, comm);
    }
}

static void test_wrong(void)
{
    for (int which = 0; harness.twill && which < 7; which++)
        for (int rank = 0; rank < harness.size; rank++) {
            int skipped, mine = rank == harness.rank;
            MPI_Comm comm = fragile();
            int code = make_wrong(which, mine, comm, &skipped);
            CHECK(skipped || !mine || code != MPI_SUCCESS, "call %d is wrong on rank %d", which,
                  rank);
            PMPI_Barrier(MPI_COMM_WORLD);
            OK(MPI_Comm_free(&comm));
        }
}

/* The MPI refuses a call to one rank, at once, while the others are in it. `again`: this rank makes
 * the call once more, rightly, and all is well. Else it waits for the others outside of twill, so
 * they must not wait for it. */
static void test_refused(int again)
{
    char in = 1, out[MOST_RANKS];
    MPI_Comm comm = fragile();
    const int is_wrong = harness.rank == ROOT;
    int code = MPI_SUCCESS, theirs;
    if (is_wrong) {
        code = MPI_Allgather(&in, 1, MPI_BYTE, out, -1, MPI_BYTE, comm);
        CHECK(code != MPI_SUCCESS, "a negative count");
    }
    if (!is_wrong || again)
        code = MPI_Allgather(&in, 1, MPI_BYTE, out, 1, MPI_BYTE, comm);
    CHECK((code == MPI_SUCCESS) == again, "code %d, made again: %d", code, again);
    if (code != MPI_SUCCESS && !is_wrong) {
        char text[MPI_MAX_ERROR_STRING];
        int length;
        PMPI_Error_string(code, text, &length);
        CHECK(strstr(text, "has refused a collective to rank 1 ") != NULL, "%s", text);
    }
    for (int r = 0; is_wrong && r < harness.size; r++)
        if (r != ROOT)
            PMPI_Recv(&theirs, 1, MPI_INT, r, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (!is_wrong)
        PMPI_Send(&code, 1, MPI_INT, ROOT, 3, MPI_COMM_WORLD);
    CHECK((MPI_Barrier(comm) == MPI_SUCCESS) == again, "the next call, made again: %d", again);
    OK(MPI_Comm_free(&comm));
}

/* All ranks make a call that the MPI refuses; then one is late for the next one. */
static void test_refused_to_all(void)
{
    enum { LATE_S = 7 };
    MPI_Comm comm = fragile();
    char byte = 0, all[MOST_RANKS];
    int code = MPI_Gather(&byte, -1, MPI_BYTE, all, 1, MPI_BYTE, ROOT, comm);
    CHECK(code != MPI_SUCCESS, "a negative count");
    if (harness.rank == ROOT)
        sleep(LATE_S);
    OK(MPI_Gather(&byte, 1, MPI_BYTE, all, 1, MPI_BYTE, ROOT, comm));
    OK(MPI_Comm_free(&comm));
}

/* NULL displacements with zero counts, on one rank. */
static void test_no_displacements(void)
{
    int in[1] = {0}, out[MOST_RANKS], none[MOST_RANKS] = {0}, displs[MOST_RANKS] = {0};
    const int *of_mine = harness.twill && harness.rank == 1 ? NULL : displs;
    OK(MPI_Alltoallv(in, none, of_mine, MPI_INT, out, none, of_mine, MPI_INT, MPI_COMM_WORLD));
    OK(MPI_Gatherv(in, 0, MPI_INT, out, none, of_mine, MPI_INT, 1, MPI_COMM_WORLD));
    OK(MPI_Allgatherv(in, 0, MPI_INT, out, none, of_mine, MPI_INT, MPI_COMM_WORLD));
    OK(MPI_Scatterv(in, none, of_mine, MPI_INT, out, 0, MPI_INT, 1, MPI_COMM_WORLD));
}

int main(int argc, char **argv)
{
    harness_begin(&argc, &argv, "alone");
    test_communicators();
    test_persistent();
    test_bounced(0);
    test_bounced(1);
    test_operations();
    test_short(0);
    test_short(ALONE_SHARD - 2);
    test_long();
    for (int form = 0; form < 3; form++)
        test_packing(form, 0);
    test_packing(1, 1);
    test_wrong();
    test_no_displacements();
    if (harness.twill && checks()) {
        test_refused(1);
        test_refused(0);
        if (harness.thorough)
            test_refused_to_all();
    }
    return harness_end();
}
