/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the instructions that libtwill-mpi itself takes in calls that repeat. They are those from
 * the entry of MPI's function until twill's begins, and from its end on. The processor's trap flag
 * stops at each of them. Also checks that remembered calls which alternate are not mixed up. */
#include "harness.h"

#include <limits.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

#define MOST        40 /* instructions of a call that a loop repeats */
#define MOST_OF_TWO 70 /* if calls alternate between two communicators */
#define MOST_SHARED 80 /* with MPI_THREAD_MULTIPLE, also if calls alternate */
#define MORE        34 /* for each side with a count for each rank, */
#define MORE_RANK   8  /* and for each rank */
#define ROUNDS      12
#define TRAP        0x100l /* in the flags of the processor */

static int shared; /* with MPI_THREAD_MULTIPLE */
static char in[4][4096], out[4][4096], expected[4096];
/* Arguments of calls in which each rank has its own count, set by set_counts(). */
static int counts[MOST_RANKS], places[MOST_RANKS], sent[MOST_RANKS], sent_from[MOST_RANKS], own;

/* The calls, of buffers i, a root and a communicator. */
#define CALLS(X)                                                                                   \
    X(Allreduce, (in[i], out[i], 8, MPI_DOUBLE, MPI_SUM, comm))                                    \
    X(Allreduce, (MPI_IN_PLACE, out[i], 8 + i, MPI_DOUBLE, i & 1 ? MPI_MAX : MPI_MIN, comm))       \
    X(Allreduce, (in[i], out[i], 5, i & 1 ? MPI_INT : MPI_FLOAT, MPI_SUM, comm))                   \
    X(Bcast, (out[i], 8, MPI_INT, root, comm))                                                     \
    X(Allgather, (in[i], 4, MPI_INT, out[0], 2 + 2, MPI_INT, comm))                                \
    X(Reduce, (in[i], out[i], 8, MPI_FLOAT, MPI_SUM, root, comm))                                  \
    X(Reduce_scatter_block, (in[i], out[i], 8, MPI_FLOAT, MPI_SUM, comm))                          \
    X(Barrier, (comm))                                                                             \
    X(Gather, (in[i], 4, MPI_INT, out[i], 4, MPI_INT, root, comm))                                 \
    X(Scatter, (in[i], 4, MPI_INT, out[i], 4, MPI_INT, root, comm))                                \
    X(Alltoall, (in[i], 4, MPI_INT, out[i], 4, MPI_INT, comm))                                     \
    X(Allgatherv, (in[i], own, MPI_INT, out[i], counts, places, MPI_INT, comm))                    \
    X(Gatherv, (in[i], own, MPI_INT, out[i], counts, places, MPI_INT, root, comm))                 \
    X(Scatterv, (in[i], counts, places, MPI_INT, out[i], own, MPI_INT, root, comm))                \
    X(Reduce_scatter, (in[i], out[i], counts, MPI_INT, MPI_SUM, comm))                             \
    X(Alltoallv, (in[i], sent, sent_from, MPI_INT, out[i], counts, places, MPI_INT, comm))
#define NAME(name, arguments) #name,
static const char *const names[] = {CALLS(NAME)};
#define KINDS ((int)(sizeof names / sizeof *names))

/* Return on how many sides of a call each rank has its own count. */
static unsigned counted_sides(int kind)
{
    if (strcmp(names[kind], "Alltoallv") == 0)
        return 2;
    return names[kind][strlen(names[kind]) - 1] == 'v' ||
           strcmp(names[kind], "Reduce_scatter") == 0;
}

/* Make a call, or make it in the MPI below if `direct`. */
#define MAKE(name, arguments)                                                                      \
    if (kind == at++)                                                                              \
        OK(direct ? PMPI_##name arguments : MPI_##name arguments);
static void make(int kind, int i, int root, MPI_Comm comm, int direct)
{
    int at = 0;
    CALLS(MAKE)
}

/* Set the arrays of counts by `seed`, in the same memory as before. Seeds that differ by 3 have the
 * same counts with other displacements. */
static void set_counts(int seed)
{
    for (int r = 0; r < harness.size; r++) {
        counts[r] = 1 + (seed + r) % 3;
        places[r] = r == 0 ? seed / 3 : places[r - 1] + counts[r - 1] + seed % 2;
    }
    own = counts[harness.rank];
    for (int r = 0; r < harness.size; r++) {
        sent[r] = own;
        sent_from[r] = r * (own + seed / 3);
    }
}

/* Make random calls that alternate, on two communicators, and compare them with the MPI's. */
static void alternate(MPI_Comm other)
{
    uint64_t state = harness.seed;
    for (int round = 0; round < 1000; round++) {
        const int kind = below(&state, KINDS), i = below(&state, 4);
        const int root = below(&state, harness.size);
        const MPI_Comm comm = below(&state, 3) == 0 ? other : MPI_COMM_WORLD;
        set_counts(below(&state, 6));
        for (int k = 0; k < 1024; k++) { /* integers that are also fine floats */
            ((int *)in[i])[k] = 0x40000000 + 4096 * below(&state, 64) + 64 * harness.rank;
            ((int *)out[i])[k] = ((int *)in[i])[k] + round % 64;
        }
        char before[4096];
        char *result = kind == 4 ? out[0] : out[i];
        memcpy(before, result, sizeof before);
        make(kind, i, root, comm, 1);
        memcpy(expected, result, sizeof expected);
        memcpy(result, before, sizeof before);
        make(kind, i, root, comm, 0);
        CHECK(memcmp(result, expected, sizeof expected) == 0, "%s in round %d", names[kind], round);
    }
}

/* Calls that move no data need no displacements, and in place no arrays of what is sent. Some come
 * in place of a remembered call. */
static void make_empty(MPI_Comm comm)
{
    static const int none[MOST_RANKS];
    for (int i = 0; i < 40; i++) {
        const int *displs = i % 2 == 0 ? none : NULL;
        set_counts(i % 3);
        OK(MPI_Allgatherv(in[0], 0, MPI_INT, out[0], none, displs, MPI_INT, comm));
        OK(MPI_Allgatherv(in[0], own, MPI_INT, out[i % 4], counts, places, MPI_INT, comm));
        OK(MPI_Alltoallv(MPI_IN_PLACE, NULL, NULL, MPI_INT, out[0], none, displs, MPI_INT, comm));
        OK(MPI_Alltoallv(in[0], none, displs, MPI_INT, out[0], none, displs, MPI_INT, comm));
        OK(MPI_Alltoallv(in[0], sent, sent_from, MPI_INT, out[i % 4], counts, places, MPI_INT,
                         comm));
        OK(MPI_Gatherv(in[0], 0, MPI_INT, out[0], none, displs, MPI_INT, i % 2, comm));
    }
}

/* Calls with wrong arrays in place of those of a remembered call must fail. */
static void make_wrong(MPI_Comm comm)
{
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    set_counts(0);
    for (int i = 0; i < 3; i++)
        OK(MPI_Allgatherv(in[0], own, MPI_INT, out[0], counts, places, MPI_INT, comm));
    CHECK(MPI_Allgatherv(in[0], own, MPI_INT, out[0], counts, NULL, MPI_INT, comm) != MPI_SUCCESS,
          "displacements are missing");
    CHECK(MPI_Allgatherv(in[0], own, MPI_INT, out[0], NULL, places, MPI_INT, comm) != MPI_SUCCESS,
          "counts are missing");
    counts[0] = -1;
    CHECK(MPI_Allgatherv(in[0], own, MPI_INT, out[0], counts, places, MPI_INT, comm) != MPI_SUCCESS,
          "a count is negative");
    set_counts(0);
    OK(MPI_Allgatherv(in[0], own, MPI_INT, out[0], counts, places, MPI_INT, comm));
}

#if defined(__x86_64__)

/* The mapped addresses of this program and of libtwill.so. */
static struct object_range {
    uintptr_t begin, end;
} program, twill;
static volatile unsigned long steps;

/* Where twill returns to instead of its caller. This traps again and continues there. */
void *cost_caller;
void cost_return(void);
__asm__("cost_return:\n"
        "  pushfq\n  orq $0x100, (%rsp)\n  popfq\n"
        "  jmp *cost_caller(%rip)\n");

static int find_range(struct dl_phdr_info *info, size_t size, void *user)
{
    const char *name = strrchr(info->dlpi_name, '/');
    struct object_range *range = program.end == 0 ? &program : &twill;
    (void)size, (void)user;
    if (range == &twill && (name == NULL || strncmp(name, "/libtwill.so", 12) != 0))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const uintptr_t at = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        if (info->dlpi_phdr[i].p_type != PT_LOAD)
            continue;
        range->begin = range->begin == 0 ? at : range->begin;
        range->end = at + info->dlpi_phdr[i].p_memsz;
    }
    return 0;
}

/* After each instruction. In twill nothing is counted until it returns. */
static void stepped(int number, siginfo_t *info, void *user)
{
    mcontext_t *machine = &((ucontext_t *)user)->uc_mcontext;
    const uintptr_t at = (uintptr_t)machine->gregs[REG_RIP];
    (void)number, (void)info;
    if (at >= twill.begin && at < twill.end) {
        void **top = (void **)machine->gregs[REG_RSP];
        cost_caller = *top;
        *(void (**)(void))top = cost_return;
        machine->gregs[REG_EFL] &= ~TRAP;
    } else {
        steps += at < program.begin || at >= program.end;
    }
}

/* Return the instructions of the shortest of some calls, which alternate between these two
 * communicators. Rank 0 counts. The others make the same calls and return ULONG_MAX. */
static unsigned long least_of(int kind, MPI_Comm one, MPI_Comm other)
{
    unsigned long least = ULONG_MAX;
    for (int round = 0; round < ROUNDS; round++) {
        steps = 0;
        if (harness.rank == 0)
            __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() | TRAP);
        make(kind, 0, 1, round % 2 == 0 ? one : other, 0);
        __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() & ~TRAP);
        least = harness.rank == 0 && steps < least ? steps : least;
    }
    return least;
}

/* Calls alternate between these two communicators, which may be the same. */
static void count(MPI_Comm one, MPI_Comm other)
{
    for (int kind = 0; kind < KINDS; kind++) {
        const unsigned long most =
            (shared         ? MOST_SHARED
             : one == other ? MOST
                            : MOST_OF_TWO) +
            (MORE + MORE_RANK * (unsigned long)harness.size) * counted_sides(kind);
        const unsigned long least = least_of(kind, one, other);
        if (harness.rank > 0)
            continue;
        printf("%s: %lu instructions%s\n", names[kind], least,
               one == other ? "" : " with two communicators");
        CHECK(least <= most, "%s takes %lu instructions", names[kind], least);
    }
}

/* While a window is open, each call makes progress on the MPI's messages, and no call after it. */
static void count_beside_window(MPI_Comm comm)
{
    MPI_Win window;
    OK(MPI_Win_create(expected, sizeof expected, 1, MPI_INFO_NULL, comm, &window));
    const unsigned long open = least_of(0, comm, comm);
    OK(MPI_Win_free(&window));
    const unsigned long closed = least_of(0, comm, comm);
    CHECK(open > MOST_SHARED, "with a window a call takes only %lu instructions", open);
    CHECK(harness.rank > 0 || closed <= MOST_SHARED, "after a window a call takes %lu", closed);
}

static void count_all(MPI_Comm other)
{
    dl_iterate_phdr(find_range, NULL);
    sigaction(SIGTRAP, &(struct sigaction){.sa_sigaction = stepped, .sa_flags = SA_SIGINFO}, NULL);
    set_counts(0);
    count(MPI_COMM_WORLD, MPI_COMM_WORLD);
    count(MPI_COMM_WORLD, other);
    count_beside_window(other);
}

#else

static void count_all(MPI_Comm other)
{
    (void)other;
}

#endif

int main(int argc, char **argv)
{
    MPI_Comm other;
    int level = MPI_THREAD_SINGLE;
    if (argc > 1 && strcmp(argv[1], "threads") == 0)
        MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    shared = level == MPI_THREAD_MULTIPLE;
    harness_begin(&argc, &argv, "cost");
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &other));
    count_all(other);
    alternate(other);
    make_empty(other);
    make_wrong(other);
    OK(MPI_Comm_free(&other));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &other)); /* which may have the same handle */
    alternate(other);
    OK(MPI_Comm_free(&other));
    CHECK(MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS, "after a communicator was freed");
    return harness_end();
}
