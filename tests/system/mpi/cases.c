/* SPDX-License-Identifier: Apache-2.0 */
/* A case: one collective call by MPI and by PMPI, compared: see cases.h. The buffers are in
 * sides.c. */
#include "cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Return the elements that rank from has for rank to (-1: one shard for all). */
static int shard_elements(const struct spec *spec, int from, int to)
{
    int reduces = calls[spec->call].reduces;
    int grain = reduces || spec->layout == PLAIN ? 1 : GRAIN;
    int units = (spec->count + grain - 1) / grain;
    if (!calls[spec->call].vectors)
        return units * grain;
    if (spec->in_place && to >= 0 && from > to) { /* both send equal numbers */
        int other = from;
        from = to;
        to = other;
    }
    uint64_t draw = mix(mix(spec->seed, (uint64_t)from + 1), (uint64_t)(to + 1));
    int of = (int)(draw >> 8 & 0xffffff);
    return grain * (draw % 5 == 0 ? 0 : draw % 5 == 1 ? units : of % (units + 1));
}

/* Fill in one shard of this many elements, or one for each rank. */
static void one_shard(struct side *side, int elements)
{
    side->present = 1;
    side->shards = 1;
    side->elements[0] = elements;
}

static void shard_each(const struct mpi_case *c, struct side *side, int sends)
{
    const struct spec *spec = &c->spec;
    int all_to_all = spec->call >= ALLTOALL && spec->call <= ALLTOALLW;
    side->present = 1;
    side->shards = c->size;
    for (int r = 0; r < c->size; r++)
        side->elements[r] = !all_to_all ? shard_elements(spec, r, -1)
                            : sends     ? shard_elements(spec, c->rank, r)
                                        : shard_elements(spec, r, c->rank);
}

static int sum_counts(const int *numbers, int count)
{
    int all = 0;
    for (int i = 0; i < count; i++)
        all += numbers[i];
    return all;
}

/* Fill in what this rank sends and receives, before in-place is considered. */
static void shape(struct mpi_case *c)
{
    const struct spec *spec = &c->spec;
    int mine = shard_elements(spec, c->rank, -1), is_root = c->rank == spec->root;
    switch (spec->call) {
    case BARRIER:
        break;
    case BCAST:
        one_shard(&c->recv, mine);
        break;
    case REDUCE:
    case ALLREDUCE:
    case SCAN:
    case EXSCAN:
        one_shard(&c->send, mine);
        if (spec->call != REDUCE || is_root)
            one_shard(&c->recv, mine);
        break;
    case GATHER:
    case GATHERV:
    case ALLGATHER:
    case ALLGATHERV:
        one_shard(&c->send, mine);
        if (spec->call >= ALLGATHER || is_root)
            shard_each(c, &c->recv, 0);
        break;
    case SCATTER:
    case SCATTERV:
        one_shard(&c->recv, mine);
        if (is_root)
            shard_each(c, &c->send, 1);
        break;
    case ALLTOALL:
    case ALLTOALLV:
    case ALLTOALLW:
        shard_each(c, &c->send, 1);
        shard_each(c, &c->recv, 0);
        break;
    default: /* reduce_scatter: the operand is contiguous */
        shard_each(c, &c->send, 1);
        one_shard(&c->recv, mine);
        break;
    }
}

/* Return the side without a buffer, because its shard is in the other side's. */
static struct side *side_in_place(struct mpi_case *c)
{
    int is_root = c->rank == c->spec.root;
    switch (c->spec.in_place ? c->spec.call : BARRIER) {
    case BARRIER:
    case BCAST:
        return NULL;
    case REDUCE:
    case GATHER:
    case GATHERV:
        return is_root ? &c->send : NULL;
    case SCATTER:
    case SCATTERV:
        return is_root ? &c->recv : NULL;
    default:
        return &c->send;
    }
}

static int scatters(enum call call)
{
    return call == REDUCE_SCATTER || call == REDUCE_SCATTER_BLOCK;
}

/* The counts of a reduce_scatter are those of the receive side. */
static void scattered_counts(struct mpi_case *c, struct arguments *a)
{
    static const int nonsense = -1;
    a->recv_counts = &nonsense;
    for (int r = 0; r < c->size; r++)
        c->recv.counts[r] = shard_elements(&c->spec, r, -1);
    a->recv_counts = c->recv.counts;
    a->recv_count = c->recv.counts[c->rank];
}

static void large_forms(struct mpi_case *c, struct arguments *a)
{
#if HAS_LARGE
    int wide = c->spec.call == ALLTOALLW;
    for (int r = 0; r < c->size; r++) {
        c->counts_c[0][r] = c->send.counts[r];
        c->counts_c[1][r] = c->recv.counts[r];
        c->displs_c[0][r] = wide ? c->send_bytes[r] : c->send.displs[r];
        c->displs_c[1][r] = wide ? c->recv_bytes[r] : c->recv.displs[r];
    }
    a->send_counts_c = c->counts_c[0];
    a->recv_counts_c = c->counts_c[1];
    a->send_displs_c = c->displs_c[0];
    a->recv_displs_c = c->displs_c[1];
#else
    (void)c;
    (void)a;
#endif
}

static void wide_forms(struct mpi_case *c, struct arguments *a, int which)
{
    if (c->spec.call != ALLTOALLW)
        return;
    MPI_Aint lower, send_extent, recv_extent;
    PMPI_Type_get_extent(c->send.type, &lower, &send_extent);
    PMPI_Type_get_extent(c->recv.type, &lower, &recv_extent);
    for (int r = 0; r < c->size; r++) {
        c->send_types[which][r] = c->send.at[which];
        c->recv_types[which][r] = c->recv.at[which];
        c->send_bytes[r] = c->send.displs[r] * (int)send_extent;
        c->recv_bytes[r] = c->recv.displs[r] * (int)recv_extent;
    }
    a->send_types = c->send_types[which];
    a->recv_types = c->recv_types[which];
    a->send_displs = c->send_bytes;
    a->recv_displs = c->recv_bytes;
}

static void fill_arguments(struct mpi_case *c, int which)
{
    const struct spec *spec = &c->spec;
    struct arguments *a = &c->arguments[which];
    *a = (struct arguments){.comm = spec->comm, .root = spec->root};
    a->op = spec->user ? spec->user->op : spec->operation ? spec->operation->op : MPI_OP_NULL;
    a->send = side_address(&c->send, spec, which);
    a->recv = side_address(&c->recv, spec, which);
    a->send_type = c->send.at[which];
    a->recv_type = c->recv.at[which];
    a->send_count = c->send.counts[0];
    a->recv_count = c->recv.counts[0];
    a->send_counts = c->send.counts;
    a->recv_counts = c->recv.counts;
    a->send_displs = c->send.displs;
    a->recv_displs = c->recv.displs;
    if (scatters(spec->call))
        scattered_counts(c, a);
    if (calls[spec->call].reduces && !c->recv.present)
        a->recv_count = c->send.counts[0], a->recv_type = c->send.at[which];
    wide_forms(c, a, which);
    large_forms(c, a);
}

/* Set invalid values where the standard says that arguments are ignored. */
static void fill_nonsense(struct mpi_case *c, struct arguments *a, const struct side *in_place)
{
    int reduces = calls[c->spec.call].reduces;
    if (in_place == &c->send)
        a->send = MPI_IN_PLACE;
    if (in_place == &c->recv)
        a->recv = MPI_IN_PLACE;
    if (!c->spec.strange)
        return;
    if (!c->send.present) {
        if (in_place != &c->send)
            a->send = (const void *)(uintptr_t)24;
        a->send_count = -17;
        a->send_type = MPI_DATATYPE_NULL;
        a->send_counts = a->send_displs = NULL;
    }
    if (!c->recv.present && in_place != &c->recv)
        a->recv = (void *)(uintptr_t)40;
    if (!c->recv.present && !reduces) {
        a->recv_count = -19;
        a->recv_type = MPI_DATATYPE_NULL;
        a->recv_counts = a->recv_displs = NULL;
    }
}

/* Return whether the MPI below makes this call. */
static int is_passed_on(const struct spec *spec, int size)
{
    const struct user_operation *user = spec->user;
    int own = user && (user->holes || user->extent > 4096 || !form_is_blocking(spec->form));
    return !harness.twill || size == 1 || spec->call == ALLTOALLW || spec->call >= SCAN || own;
}

#ifdef MPI_ABI_VERSION
/* MPICH 5.0.2 leaves out the end of numbers of 16 bytes that are not contiguous, and ends with
 * SIGSEGV in nonblocking scans and reductions by the program's operations. */
static int is_defect_of_abi(const struct spec *spec)
{
    int long_numbers = spec->base && spec->base->size[0] == 16 && spec->layout != PLAIN;
    return long_numbers || ((spec->user || spec->call >= SCAN) && !form_is_blocking(spec->form));
}
#endif

/* Return whether the MPI itself fails. MPICH 4.0 mixes up pairs in an alltoall in place, crashes in
 * a reduction in place of three ranks to a root other than 0, and writes beyond its buffer in a
 * reduce_scatter of a type with holes. Ranks of Open MPI 4.1 wait for each other for ever some
 * nonblocking calls after one in which a rank had nothing to send or receive, and each rank chooses
 * an algorithm by its own datatype. */
static int is_defect(const struct spec *spec, int size)
{
#ifndef OPEN_MPI
    if (scatters(spec->call) && spec->user && spec->user->holes)
        return 1;
#endif
#ifdef MPI_ABI_VERSION
    if (is_defect_of_abi(spec))
        return 1;
#endif
    if (!is_passed_on(spec, size))
        return 0;
#ifdef OPEN_MPI
    return (!form_is_blocking(spec->form) && calls[spec->call].vectors) || spec->layout != PLAIN;
#else
    int all_to_all = spec->call >= ALLTOALL && spec->call <= ALLTOALLW;
    return spec->in_place &&
           (all_to_all || scatters(spec->call) || (spec->call == REDUCE && spec->root > 0));
#endif
}

static int is_possible(const struct spec *spec, int size)
{
    int in_place = spec->call != BARRIER && spec->call != BCAST;
    return calls[spec->call].form[spec->form] && spec->root < size && size <= MOST_RANKS &&
           (in_place || !spec->in_place) && !is_defect(spec, size);
}

int spec_possible(const struct spec *spec)
{
    int size;
    PMPI_Comm_size(spec->comm, &size);
    return is_possible(spec, size);
}

int spec_possible_anywhere(const struct spec *spec, int least)
{
    return is_possible(spec, least > 0 ? least : 1) && is_possible(spec, harness.size);
}

void case_prepare(struct mpi_case *c, const struct spec *spec)
{
    memset(c, 0, sizeof *c);
    c->spec = *spec;
    c->request = MPI_REQUEST_NULL;
    PMPI_Comm_rank(spec->comm, &c->rank);
    PMPI_Comm_size(spec->comm, &c->size);
    shape(c);
    struct side *in_place = side_in_place(c);
    if (scatters(spec->call)) { /* in place, the operand is where the result will be */
        one_shard(&c->send, sum_counts(c->send.elements, c->send.shards));
        if (in_place)
            one_shard(&c->recv, c->send.elements[0]);
    }
    if (in_place)
        in_place->present = 0;
    int vectors = calls[spec->call].vectors && !calls[spec->call].reduces;
    side_make(&c->send, spec, c->rank, 0, vectors && c->send.shards > 1);
    side_make(&c->recv, spec, c->rank, 1, vectors && c->recv.shards > 1);
    for (int which = 0; which < 2; which++) {
        fill_arguments(c, which);
        fill_nonsense(c, &c->arguments[which], in_place);
    }
}

void case_fill(struct mpi_case *c)
{
    struct side *input = c->send.present ? &c->send : &c->recv;
    side_fill(&c->send, &c->spec, mix(mix(c->spec.seed, (uint64_t)c->rank), (uint64_t)c->round),
              input == &c->send);
    side_fill(&c->recv, &c->spec,
              mix(mix(c->spec.seed, 99 + (uint64_t)c->rank), (uint64_t)c->round),
              input == &c->recv);
}

void case_start(struct mpi_case *c)
{
    const struct spec *spec = &c->spec;
    if (c->round == 0)
        OK(calls[spec->call].form[spec->form](&c->arguments[0], &c->request));
    if (!form_is_persistent(spec->form))
        return;
    if (c->round % 2 == 0)
        OK(MPI_Start(&c->request));
    else
        OK(MPI_Startall(1, &c->request));
}

static const char *describe_case(const struct mpi_case *c, char *text, size_t bytes)
{
    const struct spec *s = &c->spec;
    snprintf(
        text, bytes, "%s %s on %s (rank %d of %d), root %d, %d x %s %s, %s%s%s%s%s, round %d",
        calls[s->call].name, form_names[s->form], s->where, c->rank, c->size, s->root, s->count,
        s->user   ? s->user->name
        : s->base ? s->base->name
                  : "nothing",
        s->user        ? "(of a user)"
        : s->operation ? s->operation->name
                       : "",
        s->layout == ANY_LAYOUT ? "mixed" : layout_names[s->layout],
        s->in_place ? ", in place" : "", s->misaligned ? ", misaligned" : "",
        s->bottom ? ", from MPI_BOTTOM" : "", s->strange ? ", nonsense elsewhere" : "", c->round);
    return text;
}

static void case_check_side(struct mpi_case *c, struct side *side, const char *name)
{
    char text[400];
    if (!side->present)
        return;
    long at = side_difference(side, &c->spec);
    CHECK(at < 0, "%s: %s buffer (%d elements in %d blocks): %s",
          describe_case(c, text, sizeof text), name, side->total, side->shards,
          side_difference_text(side, at));
}

static void refer_case(const struct mpi_case *c)
{
    struct arguments a = c->arguments[1];
    enum call call = c->spec.call;
    int all_to_all = call >= ALLTOALL && call <= ALLTOALLW;
    char *copy = NULL;
    if ((call == REDUCE || scatters(call) || all_to_all) &&
        a.send == MPI_IN_PLACE) { /* see is_defect() */
        copy = malloc(c->recv.before + c->recv.after);
        memcpy(copy, c->recv.arena[1].base - c->recv.before, c->recv.before + c->recv.after);
        a.send = copy + c->recv.before;
    }
    if (copy && all_to_all) {
        a.send_count = a.recv_count;
        a.send_type = a.recv_type;
        a.send_counts = a.recv_counts;
        a.send_displs = a.recv_displs;
        a.send_types = a.recv_types;
    }
    OK(calls[c->spec.call].reference(&a));
    free(copy);
}

/* Get the reference with plain types, as MPIs disagree about types that differ between ranks. */
static void refer_plainly(struct mpi_case *c)
{
    struct mpi_case plain = *c;
    struct side *sides[2] = {&plain.send, &plain.recv}, *of[2] = {&c->send, &c->recv};
    plain.spec.layout = PLAIN;
    plain.spec.bottom = 0;
    for (int i = 0; i < 2; i++) {
        side_make_alike(sides[i], of[i], &plain.spec, c->rank);
        side_transfer(of[i], sides[i]);
    }
    fill_arguments(&plain, 1);
    fill_nonsense(&plain, &plain.arguments[1], side_in_place(c));
    if (plain.spec.in_place && c->arguments[1].send == MPI_IN_PLACE)
        plain.arguments[1].send = MPI_IN_PLACE;
    if (plain.spec.in_place && c->arguments[1].recv == MPI_IN_PLACE)
        plain.arguments[1].recv = MPI_IN_PLACE;
    refer_case(&plain);
    side_transfer(sides[1], of[1]);
    side_free(sides[0]);
    side_free(sides[1]);
}

void case_check(struct mpi_case *c)
{
    const struct spec *spec = &c->spec;
    if (spec->layout == PLAIN)
        refer_case(c);
    else
        refer_plainly(c);
    if (c->send.present && c->spec.in_place && scatters(spec->call))
        harness_fail("a send buffer in place");
    if (scatters(spec->call) && spec->in_place) /* the rest of the operand is undefined */
        side_forget(&c->recv, spec, shard_elements(spec, c->rank, -1));
    if (harness.sabotage && c->recv.present && c->recv.total > 0)
        c->recv.arena[0].base[0] ^= 1;
    if (spec->call == EXSCAN && c->rank == 0)
        side_forget(&c->recv, spec, 0);
    case_check_side(c, &c->recv, "receive");
    case_check_side(c, &c->send, "send");
    c->round++;
}

void case_free(struct mpi_case *c)
{
    char text[400];
    if (form_is_persistent(c->spec.form))
        OK(MPI_Request_free(&c->request));
    CHECK(c->request == MPI_REQUEST_NULL, "%s: the request is left",
          describe_case(c, text, sizeof text));
    side_free(&c->send);
    side_free(&c->recv);
}

int case_has_rounds(const struct mpi_case *c)
{
#ifdef OPEN_MPI
    return form_is_persistent(c->spec.form);
#else /* MPICH 4.0 sends the first round's data in the second round of its persistent gather */
    return form_is_persistent(c->spec.form) && !is_passed_on(&c->spec, c->size);
#endif
}

int case_is_careful(const struct mpi_case *c)
{
#ifdef OPEN_MPI
    (void)c;
    return 0;
#else /* MPICH 4.0 reports an error from Testall of its persistent collectives */
    return form_is_persistent(c->spec.form) && is_passed_on(&c->spec, c->size);
#endif
}

static int completion_style(const struct mpi_case *c)
{
    int style = (int)(mix(c->spec.seed, (uint64_t)(c->rank + c->round)) % COMPLETION_STYLES);
    return style == BY_TESTALL && case_is_careful(c) ? BY_TESTALL - 1 : style;
}

void case_print(const struct mpi_case *c)
{
    describe_case(c, harness.doing, sizeof harness.doing);
    if (harness.verbose)
        fprintf(stderr, "%s\n", harness.doing);
}

void case_run(const struct spec *spec)
{
    struct mpi_case c;
    case_prepare(&c, spec);
    case_print(&c);
    int rounds = case_has_rounds(&c) ? 2 : 1;
    for (int round = 0; round < rounds; round++) {
        case_fill(&c);
        case_start(&c);
        if (!form_is_blocking(spec->form))
            complete(&c.request, completion_style(&c));
        case_check(&c);
    }
    case_free(&c);
}
