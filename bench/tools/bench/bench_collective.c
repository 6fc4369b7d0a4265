/* SPDX-License-Identifier: Apache-2.0 */
/* The table of collectives, their shards and their calls. */
#include "bench/tools/bench/bench_collective.h"
#include "bench/common/option_names.h"

#include <string.h>

/* distance of the payload positions of shards, so that no two shards are equal */
#define STRIDE 1000003u

#define ROW(noun, word, reads, writes, counted, ...)                                               \
    [TWILL_BENCH_##noun] = {.name = (word),                                                        \
                            .src = TWILL_BENCH_##reads,                                            \
                            .dst = TWILL_BENCH_##writes,                                           \
                            .bus = TWILL_BENCH_BUS_##counted,                                      \
                            __VA_ARGS__},

const struct twill_bench_facts *twill_bench_facts(enum twill_bench_collective collective)
{
    static const struct twill_bench_facts facts[] = {TWILL_MEASURED_COLLECTIVES(ROW)};
    return &facts[collective];
}

int twill_bench_find_collective(const char *name)
{
    name = twill_bench_collective_name(name);
    for (int i = 0; i < TWILL_BENCH_COLLECTIVE_COUNT; i++)
        if (strcmp(twill_bench_facts((enum twill_bench_collective)i)->name, name) == 0)
            return i;
    return -1;
}

double twill_bench_bus_factor(enum twill_bench_collective collective, int ranks)
{
    switch (twill_bench_facts(collective)->bus) {
    case TWILL_BENCH_BUS_TWICE:
        return 2.0 * (ranks - 1) / ranks;
    case TWILL_BENCH_BUS_MOST:
        return (double)(ranks - 1) / ranks;
    case TWILL_BENCH_BUS_ONE:
        return 1;
    default:
        return 0;
    }
}

static const struct twill_bench_facts *subject_facts(const struct twill_bench_subject *subject)
{
    return twill_bench_facts(subject->collective);
}

/* Return 0 if a shard of a vector call is large, or 1 if it is small. In alltoallv that follows
 * from rank + shard, otherwise from the shard. */
static int parity(const struct twill_bench_subject *subject, int rank, int shard)
{
    return (subject->collective == TWILL_BENCH_ALLTOALLV ? rank + shard : shard) % 2;
}

size_t twill_bench_shard_count(const struct twill_bench_subject *subject, int rank, int shard)
{
    size_t half = subject->count / 2;
    if (!subject_facts(subject)->vector)
        return subject->count;
    return parity(subject, rank, shard) == 0 ? subject->count + half : subject->count - half;
}

size_t twill_bench_shard_first(const struct twill_bench_subject *subject, int rank, int shard)
{
    size_t first = (size_t)shard * subject->count;
    /* a large shard and a small one are together as long as two even ones */
    if (subject_facts(subject)->vector && shard % 2 == 1)
        first += parity(subject, rank, shard - 1) == 0 ? subject->count / 2
                                                       : (size_t)0 - subject->count / 2;
    return first;
}

size_t twill_bench_buffer_bytes(const struct twill_bench_facts *facts, size_t bytes)
{
    return facts->vector ? bytes + bytes / 2 : bytes;
}

/* Return the bytes of an element of a call. */
static size_t element_of(const struct twill_bench_subject *subject)
{
    return twill_type_size(subject->type);
}

/* Return whether this rank is the root, or the collective has none. */
static bool is_root(const struct twill_bench_subject *subject)
{
    return subject->rank == subject->root || !subject_facts(subject)->rooted;
}

struct twill_bench_pointers twill_bench_pointers(const struct twill_bench_subject *subject,
                                                 char *src, char *dst)
{
    const struct twill_bench_facts *facts = subject_facts(subject);
    size_t own =
        twill_bench_shard_first(subject, subject->rank, subject->rank) * element_of(subject);
    if (!subject->in_place || facts->out_of_place)
        return (struct twill_bench_pointers){src, dst};
    if (!is_root(subject)) /* it has only one buffer */
        return (struct twill_bench_pointers){dst, dst};
    if (facts->src == TWILL_BENCH_OWN)
        return (struct twill_bench_pointers){dst + own, dst};
    if (facts->dst == TWILL_BENCH_OWN)
        return (struct twill_bench_pointers){dst, dst + own};
    return (struct twill_bench_pointers){dst, dst};
}

/* Return whether this rank's source or result has shard `shard` of the message, where `holder` says
 * which shards the ranks have there. */
static bool subject_holds(const struct twill_bench_subject *subject, enum twill_bench_holder holder,
                          int shard)
{
    switch (holder) {
    case TWILL_BENCH_EVERYTHING:
        return true;
    case TWILL_BENCH_OWN:
        return shard == subject->rank;
    case TWILL_BENCH_ROOT:
        return subject->rank == subject->root;
    default:
        return false;
    }
}

/* Return the address of a shard in a buffer, which is its start if the rank has only this one. */
static char *shard_at(const struct twill_bench_subject *subject, enum twill_bench_holder holder,
                      char *base, int shard)
{
    if (holder == TWILL_BENCH_OWN)
        return base;
    return base + twill_bench_shard_first(subject, subject->rank, shard) * element_of(subject);
}

/* Return the description of the values of rank `from` in a round, or with -1 of the results. */
static struct twill_bench_payload payload_of(const struct twill_bench_subject *subject, int from,
                                             unsigned round)
{
    return (struct twill_bench_payload){.type = subject->type,
                                        .op = subject->op,
                                        .ranks = subject->ranks,
                                        .from = from,
                                        .round = round};
}

void twill_bench_fill_src(const struct twill_bench_subject *subject, struct twill_bench_pointers at,
                          unsigned round)
{
    const struct twill_bench_facts *facts = subject_facts(subject);
    struct twill_bench_payload payload =
        payload_of(subject, facts->reduces ? -1 : subject->rank, round);
    for (int shard = 0; shard < (facts->sharded ? subject->ranks : 1); shard++)
        if (subject_holds(subject, facts->src, shard))
            twill_bench_fill(&payload, subject->rank, (uint64_t)shard * STRIDE,
                             shard_at(subject, facts->src, at.src, shard),
                             twill_bench_shard_count(subject, subject->rank, shard));
}

/* Return the rank whose values shard `shard` of the result must have, or -1 if they are reduced
 * from those of all ranks. Either way set *first to the position of the shard's first element in
 * the sequence of values of that rank, or of each rank (twill_bench_fill()). */
static int element_source(const struct twill_bench_subject *subject, int shard, uint64_t *first)
{
    const struct twill_bench_facts *facts = subject_facts(subject);
    bool exchanges = facts->sharded && facts->src == TWILL_BENCH_EVERYTHING && !facts->reduces;
    *first = (uint64_t)(exchanges ? subject->rank : shard) * STRIDE;
    if (facts->reduces)
        return -1;
    if (subject->collective == TWILL_BENCH_SENDRECV)
        return (subject->rank + subject->ranks - 1) % subject->ranks;
    return facts->src == TWILL_BENCH_ROOT ? subject->root : shard;
}

size_t twill_bench_wrong_dst(const struct twill_bench_subject *subject,
                             struct twill_bench_pointers at, unsigned round)
{
    const struct twill_bench_facts *facts = subject_facts(subject);
    size_t wrong = 0;
    for (int shard = 0; shard < (facts->sharded ? subject->ranks : 1); shard++) {
        uint64_t first;
        if (!subject_holds(subject, facts->dst, shard))
            continue;
        int from = element_source(subject, shard, &first);
        struct twill_bench_payload payload = payload_of(subject, from, round);
        wrong +=
            twill_bench_count_wrong(&payload, first, shard_at(subject, facts->dst, at.dst, shard),
                                    twill_bench_shard_count(subject, subject->rank, shard));
    }
    return wrong;
}

void twill_bench_describe(const struct twill_bench_subject *subject,
                          const struct twill_bench_vectors *vectors)
{
    for (int shard = 0; shard < subject->ranks; shard++) {
        vectors->src_count[shard] = vectors->dst_count[shard] =
            twill_bench_shard_count(subject, subject->rank, shard);
        vectors->src_first[shard] = vectors->dst_first[shard] =
            twill_bench_shard_first(subject, subject->rank, shard);
    }
}

/* Call the blocking, nonblocking or persistent form. */
#define COLLECTIVE_FORM(name, ...)                                                                 \
    (form == TWILL_BENCH_BLOCKING      ? twill_##name(__VA_ARGS__)                                 \
     : form == TWILL_BENCH_NONBLOCKING ? twill_##name##_start(__VA_ARGS__, request)                \
                                       : twill_##name##_init(__VA_ARGS__, request))

/* Make a call whose shards are equal, as twill_bench_begin() does. */
static twill_status even_start(const struct twill_bench_subject *s, twill_comm *comm,
                               struct twill_bench_pointers at, enum twill_bench_form form,
                               twill_request **request)
{
    int next = (s->rank + 1) % s->ranks, before = (s->rank + s->ranks - 1) % s->ranks;
    switch (s->collective) {
    case TWILL_BENCH_ALLREDUCE:
        return COLLECTIVE_FORM(allreduce, comm, at.src, at.dst, s->count, s->type, s->called);
    case TWILL_BENCH_BROADCAST:
        return COLLECTIVE_FORM(broadcast, comm, at.src, at.dst, s->count, s->type, s->root);
    case TWILL_BENCH_REDUCE:
        return COLLECTIVE_FORM(reduce, comm, at.src, at.dst, s->count, s->type, s->called, s->root);
    case TWILL_BENCH_ALLGATHER:
        return COLLECTIVE_FORM(allgather, comm, at.src, at.dst, s->count, s->type);
    case TWILL_BENCH_REDUCE_SCATTER:
        return COLLECTIVE_FORM(reduce_scatter, comm, at.src, at.dst, s->count, s->type, s->called);
    case TWILL_BENCH_GATHER:
        return COLLECTIVE_FORM(gather, comm, at.src, at.dst, s->count, s->type, s->root);
    case TWILL_BENCH_SCATTER:
        return COLLECTIVE_FORM(scatter, comm, at.src, at.dst, s->count, s->type, s->root);
    case TWILL_BENCH_ALLTOALL:
        return COLLECTIVE_FORM(alltoall, comm, at.src, at.dst, s->count, s->type);
    case TWILL_BENCH_SENDRECV:
        return COLLECTIVE_FORM(sendrecv, comm, at.src, s->count, next, at.dst, s->count, before,
                               s->type);
    default:
        return COLLECTIVE_FORM(barrier, comm);
    }
}

twill_status twill_bench_begin(const struct twill_bench_subject *s, twill_comm *comm,
                               struct twill_bench_pointers at, const struct twill_bench_vectors *v,
                               enum twill_bench_form form, twill_request **request)
{
    size_t own = twill_bench_shard_count(s, s->rank, s->rank);
    switch (s->collective) {
    case TWILL_BENCH_ALLGATHERV:
        return COLLECTIVE_FORM(allgatherv, comm, at.src, at.dst, v->dst_count, v->dst_first,
                               s->type);
    case TWILL_BENCH_REDUCE_SCATTERV:
        return COLLECTIVE_FORM(reduce_scatterv, comm, at.src, at.dst, v->src_count, s->type,
                               s->called);
    case TWILL_BENCH_GATHERV:
        return COLLECTIVE_FORM(gatherv, comm, at.src, own, at.dst, v->dst_count, v->dst_first,
                               s->type, s->root);
    case TWILL_BENCH_SCATTERV:
        return COLLECTIVE_FORM(scatterv, comm, at.src, v->src_count, v->src_first, at.dst, own,
                               s->type, s->root);
    case TWILL_BENCH_ALLTOALLV:
        return COLLECTIVE_FORM(alltoallv, comm, at.src, v->src_count, v->src_first, at.dst,
                               v->dst_count, v->dst_first, s->type);
    default:
        return even_start(s, comm, at, form, request);
    }
}
