/* SPDX-License-Identifier: Apache-2.0 */
/* The built-in machine models, and the fields of a model by name.
 * auto is the common case, nodes with one or two packages and Ethernet. The constants within a node
 * were measured with 2 ranks on 2 cores of a virtual Zen 5, 0.44 us for a synchronisation including
 * the call and 10 to 14 ps per byte mapped, and of a virtual Xeon with AMX, where a core reads what
 * another one has just stored at 16 to 25 GB/s. A message on a node is
 * matched and copied through slots (some 6 GB/s), so reading memory in place is preferred. Between
 * nodes they are those of twill's tcp over a virtual link between two cores of a Sapphire Rapids.
 * Half a round trip takes 4 to 5 us, most of it in the kernel, and the rate is 4.5 GB/s. The cores
 * move these bytes themselves, so two concurrent rings hide nothing behind each other.
 *
 * Fetching by a system call (process_vm_readv) is modelled as slow, so that it is chosen only where
 * measurements (TWILL_TUNING) or trials (lib/engine/staging.c) say that it pays. It reaches 10
 * to 11 GB/s each way and takes 1.15 us a call on a virtual Sapphire Rapids. It was not measured on
 * KNL.
 *
 * More ranks of a node slow down what passes through SHARED and slots. `contention` is fitted to 8
 * and 16 ranks on 16 virtual cores of an Emerald Rapids, where lines between cores take 82 to 97
 * ns. docs/inside/cost-model.md compares prices with these times.
 *
 * Within a node, the limit is the port that the ranks of a unit share. Its values are figures of
 * vendors, one way, not checked on hardware. They are 40 GB/s between packages (two or three UPI or
 * xGMI links), 50 between a core complex of EPYC and its I/O die, and 60 between quadrants of a
 * mesh. Only their order matters, and calibration can set them (link.node.port). Converting f32 to
 * a float of 8 or 16 bits and back takes the same time for all types, 9 GB/s a core with AVX-512.
 *
 * fattree, fattree2 and fattree4 have nodes like those of auto on InfiniBand EDR, not measured. The
 * leaf switches of the fat tree (the groups of TWILL_LAYOUT) have as many links upwards as
 * downwards, half or a quarter of them. The standard has 100 Gbit/s, hence 12 GB/s, and a message
 * of some 1.6 us, of which a switch takes 0.1. A message between groups has the rate of a link. The
 * nodes of a group share its links to others, of which each adds one, half or a quarter of one.
 *
 * theta is KNL 7230 on Aries, from measurements. A rank sends 0.71 million messages per second,
 * hence an overhead of 1.41 us. One rank injects 6.1 to 7.1 GB/s, hence a gap of 1/6.6 ns, and four
 * or more inject 7.8 GB/s from a node. STREAM triad of 88 GB/s (DDR) or 485 (MCDRAM) is shared by
 * 64 cores, hence some 5 GB/s for a copy by one core. A message on the node is copied twice, into a
 * slot and out of it (8 GB/s out of a cache that both cores share). Only the latency is fitted.
 * With it, recursive doubling, which MPICH uses, of 8 bytes on 12 nodes with one rank each costs
 * the measured 33.6 us. tests/unit/algorithms/test_algorithms_price.c repeats the fit, and compares
 * 24 and 48 nodes with the measurements. Converting was not measured and is taken as two reductions
 * of 16-bit floats. */
#include "algorithms/select/machine_model.h"
#include "lib/base/lists.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* The threads of a rank are published figures as well, not run on hardware. One core of a KNL
 * copies and reduces some 10 GB/s from MCDRAM, 64 cores some 400, so 40 times as much. Fork and
 * join of 64 threads take a few microseconds. An ordinary node has memory for some 16 times one
 * core. */
#define NS   UINT64_C(1000)
#define US   UINT64_C(1000000)
#define MB_S UINT64_C(1024000000) /* MB_S / x is picoseconds per KiB at x MB/s */
#define GB_S UINT64_C(1024000)    /* GB_S / x is picoseconds per KiB at x GB/s */

#define OVERLAP_UNIT ((size_t)4096) /* a page */

/* Memory limits the rate, so it hardly depends on the type, but narrow floats are converted. */
#define REDUCE_RATES(wide, integer, narrow, tiny)                                                  \
    {                                                                                              \
        TWILL_TYPES(RATE, (wide, integer, narrow, tiny))                                           \
    }
#define RATE(NOUN, name, bits, kind, pairs, rates)  [TWILL_##NOUN] = RATE_##kind(bits, rates),
#define RATE_FLOAT(bits, rates)                     RATE_WIDE rates
#define RATE_SIGNED(bits, rates)                    RATE_INTEGER rates
#define RATE_UNSIGNED(bits, rates)                  RATE_INTEGER rates
#define RATE_NARROW(bits, rates)                    RATE_NARROW_##bits rates
#define RATE_WIDE(wide, integer, narrow, tiny)      (wide)
#define RATE_INTEGER(wide, integer, narrow, tiny)   (integer)
#define RATE_NARROW_16(wide, integer, narrow, tiny) (narrow)
#define RATE_NARROW_8(wide, integer, narrow, tiny)  (tiny)

/* The part that ordinary nodes have in common, whatever connects them. */
#define ORDINARY_LINKS                                                                             \
    [TWILL_LINK_TILE] = {300 * NS,  250 * NS,   GB_S / 8,           250 * NS,                      \
                         GB_S / 50, GB_S / 150, .fetched = GB_S / 8},                              \
    [TWILL_LINK_L3] = {400 * NS,  300 * NS,   GB_S / 6,           300 * NS,                        \
                       GB_S / 25, GB_S / 150, .fetched = GB_S / 8},                                \
    [TWILL_LINK_NUMA] = {400 * NS,                                                                 \
                         300 * NS,                                                                 \
                         GB_S / 6,                                                                 \
                         300 * NS,                                                                 \
                         GB_S / 25,                                                                \
                         GB_S / 150,                                                               \
                         .fetched = GB_S / 8,                                                      \
                         .port = GB_S / 50},                                                       \
    [TWILL_LINK_PACKAGE] = {400 * NS,                                                              \
                            300 * NS,                                                              \
                            GB_S / 6,                                                              \
                            350 * NS,                                                              \
                            GB_S / 25,                                                             \
                            GB_S / 120,                                                            \
                            .fetched = GB_S / 8,                                                   \
                            .port = GB_S / 60},                                                    \
    [TWILL_LINK_NODE] = {400 * NS,                                                                 \
                         300 * NS,                                                                 \
                         GB_S / 6,                                                                 \
                         350 * NS,                                                                 \
                         GB_S / 25,                                                                \
                         GB_S / 120,                                                               \
                         .fetched = GB_S / 8,                                                      \
                         .port = GB_S / 40}
#define ORDINARY_CORES                                                                             \
    .start = 50 * NS, .addresses = 350 * NS, .fetch = 1200 * NS, .step = 2 * NS, .raise = 20 * NS, \
    .poll = 50 * NS, .turn = 500 * NS, .copy = GB_S / 100, .bounce = GB_S / 40,                    \
    .convert = GB_S / 9, .reduce = REDUCE_RATES(GB_S / 100, GB_S / 100, GB_S / 40, GB_S / 10),     \
    .segment = 256 << 10, .segment_rank = 64 << 10, .segment_net = 4 << 20,                        \
    .window = TWILL_WINDOW, .contention = 320,                                                     \
    .thread = {{0, GB_S / 10, GB_S / 10},         {1 * US, GB_S / 20, GB_S / 20},                  \
               {1200 * NS, GB_S / 40, GB_S / 40}, {1500 * NS, GB_S / 75, GB_S / 75},               \
               {2 * US, GB_S / 120, GB_S / 120},  {3 * US, GB_S / 150, GB_S / 150},                \
               {5 * US, GB_S / 160, GB_S / 160}}

/* A fat tree. A group (a leaf switch) has 1 / ratio as many links to others as nodes. */
#define FAT_TREE(tree, ratio)                                                                      \
    {                                                                                              \
        .name = tree,                                                                              \
        .link = {ORDINARY_LINKS,                                                                   \
                 [TWILL_LINK_NETWORK] = {.overhead = 500 * NS, 600 * NS, MB_S / 12000},            \
                 [TWILL_LINK_GROUP] = {.overhead = 500 * NS,                                       \
                                       900 * NS,                                                   \
                                       MB_S / 12000,                                               \
                                       .port = (ratio)*MB_S / 12000}},                             \
        ORDINARY_CORES, .interface = MB_S / 12000                                                  \
    }

static const struct twill_machine_model models[] = {
    {
        .name = "auto",
        .link =
            {
                ORDINARY_LINKS,
                [TWILL_LINK_NETWORK] = {.overhead = 2 * US, 1 * US, MB_S / 4500},
                [TWILL_LINK_GROUP] = {.overhead = 2 * US, 3 * US, MB_S / 4500, .port = MB_S / 3000},
            },
        ORDINARY_CORES,
        .moves = 1,
        .interface = MB_S / 4500,
    },
    FAT_TREE("fattree", 1),
    FAT_TREE("fattree2", 2),
    FAT_TREE("fattree4", 4),
    {
        .name = "theta",
        .link =
            {
                [TWILL_LINK_TILE] = {500 * NS, 500 * NS, GB_S / 8 + GB_S / 5, 500 * NS, GB_S / 8,
                                     GB_S / 8, .fetched = GB_S / 3},
                [TWILL_LINK_L3] = {600 * NS, 800 * NS, GB_S / 5 * 2, 800 * NS, GB_S / 5, GB_S / 5,
                                   .fetched = GB_S / 3},
                [TWILL_LINK_NUMA] = {600 * NS, 800 * NS, GB_S / 5 * 2, 800 * NS, GB_S / 5, GB_S / 5,
                                     .fetched = GB_S / 3},
                [TWILL_LINK_PACKAGE] = {600 * NS, 800 * NS, GB_S / 5 * 2, 800 * NS, GB_S / 5,
                                        GB_S / 5, .fetched = GB_S / 3},
                [TWILL_LINK_NODE] = {600 * NS, 800 * NS, GB_S / 5 * 2, 800 * NS, GB_S / 5, GB_S / 5,
                                     .fetched = GB_S / 3},
                [TWILL_LINK_NETWORK] = {.overhead = 1410 * NS, 4804 * NS, MB_S / 6600},
                [TWILL_LINK_GROUP] = {.overhead = 1410 * NS, 4804 * NS, MB_S / 6600},
            },
        .start = 200 * NS,
        .addresses = 800 * NS,
        .fetch = 4 * US,
        .step = 10 * NS,
        .raise = 100 * NS,
        .poll = 150 * NS,
        .turn = 2 * US,
        .copy = GB_S / 5,
        .bounce = GB_S / 5,
        .convert = 2 * GB_S / 3,
        .interface = MB_S / 7800,
        .reduce = REDUCE_RATES(GB_S / 5, GB_S / 5, GB_S / 3, GB_S),
        .segment = 256 << 10,
        .segment_rank = 64 << 10,
        .segment_net = 4 << 20,
        .window = TWILL_WINDOW,
        .thread = {{0, GB_S / 10, GB_S / 10},
                   {800 * NS, GB_S / 20, GB_S / 20},
                   {1 * US, GB_S / 40, GB_S / 40},
                   {1300 * NS, GB_S / 80, GB_S / 80},
                   {1800 * NS, GB_S / 160, GB_S / 160},
                   {2600 * NS, GB_S / 300, GB_S / 300},
                   {4 * US, GB_S / 400, GB_S / 400}},
    },
};

const struct twill_machine_model *twill_machine_model_at(size_t index)
{
    return index < TWILL_ARRAY_LENGTH(models) ? &models[index] : NULL;
}

/* The last segment of n overlaps nothing, so all take (1 + 1/n) T + n S, where T is the time of one
 * copy of the message, and S that of a signal and of looking at all ranks. This is least where
 * n * n = T / S. */
size_t twill_overlap_segment(const struct twill_machine_model *model, uint32_t ranks,
                             uint32_t shards, size_t bytes, size_t most)
{
    const uint64_t copy = twill_rate_time(model->bounce, bytes);
    const uint64_t signal =
        model->link[TWILL_LINK_NODE].signal + (twill_max(ranks, 2) - 2) * model->poll;
    size_t parts = (bytes + most - 1) / most;
    while (signal > 0 && parts * (parts + 1) < copy / signal)
        parts++;
    size_t each = twill_round_up(bytes / twill_max(parts, (size_t)1), OVERLAP_UNIT);
    return twill_min(twill_max(each, 2 * OVERLAP_UNIT * shards), most);
}

const struct twill_machine_model *twill_machine_model_find(const char *name)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(models); i++)
        if (strcmp(models[i].name, name) == 0)
            return &models[i];
    return NULL;
}

const char *twill_machine_model_names(char *text, size_t bytes)
{
    size_t used = 0;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(models) && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, i > 0 ? ", %s" : "%s", models[i].name);
    return text;
}

const char *twill_link_class_name(enum twill_link_class link)
{
#define LINK_NAME(NOUN, name, noun, with) [TWILL_LINK_##NOUN] = #name,
    static const char *const names[] = {TWILL_LEVELS(LINK_NAME, )[TWILL_LINK_NETWORK] = "network"};
    _Static_assert(TWILL_ARRAY_LENGTH(names) == TWILL_LINK_COUNT, "a name for each");
    return (unsigned)link < TWILL_LINK_COUNT ? names[link] : "?";
}

/* The links inside a node have the same numbers as the levels. */
#define LINK_AGREES(NOUN, name, noun, with)                                                        \
    _Static_assert((int)TWILL_LINK_##NOUN == (int)TWILL_LEVEL_##NOUN, #NOUN);
TWILL_LEVELS_INSIDE_NODE(LINK_AGREES, )
_Static_assert((int)TWILL_LINK_NODE == (int)TWILL_LEVEL_NODE, "NODE");

/* Return whether the units of a level are known, and two ranks are in the same one. */
static bool same_unit(const struct twill_world *world, unsigned level, uint32_t a, uint32_t b)
{
    const uint32_t *unit = world->unit[level];
    return unit != NULL && unit[a] == unit[b];
}

enum twill_link_class twill_link_between(const struct twill_world *world, uint32_t a, uint32_t b)
{
    if (world->node[a] != world->node[b])
        return world->unit[TWILL_LEVEL_GROUP] == NULL || same_unit(world, TWILL_LEVEL_GROUP, a, b)
                   ? TWILL_LINK_NETWORK
                   : TWILL_LINK_GROUP;
    for (unsigned level = 0; level < TWILL_LEVEL_NODE; level++)
        if (same_unit(world, level, a, b))
            return (enum twill_link_class)level;
    return TWILL_LINK_NODE;
}

unsigned twill_link_leaves(const struct twill_world *world, enum twill_link_class link)
{
    for (unsigned level = link; level-- > 0 && link <= TWILL_LINK_NODE;)
        if (world->unit[level] != NULL)
            return level;
    return TWILL_LEVEL_COUNT;
}

/* The name of a number in a model or in the costs of a link, and its byte offset. Constant. */
struct model_field {
    const char *name;
    size_t offset;
};

static const struct model_field of_link[] = {
    {"overhead", offsetof(struct twill_link_cost, overhead)},
    {"latency", offsetof(struct twill_link_cost, latency)},
    {"gap", offsetof(struct twill_link_cost, gap)},
    {"signal", offsetof(struct twill_link_cost, signal)},
    {"shared", offsetof(struct twill_link_cost, shared)},
    {"mapped", offsetof(struct twill_link_cost, mapped)},
    {"fetched", offsetof(struct twill_link_cost, fetched)},
    {"port", offsetof(struct twill_link_cost, port)},
};

static const struct model_field of_model[] = {
    {"start", offsetof(struct twill_machine_model, start)},
    {"vote", offsetof(struct twill_machine_model, addresses)},
    {"fetch", offsetof(struct twill_machine_model, fetch)},
    {"step", offsetof(struct twill_machine_model, step)},
    {"raise", offsetof(struct twill_machine_model, raise)},
    {"poll", offsetof(struct twill_machine_model, poll)},
    {"turn", offsetof(struct twill_machine_model, turn)},
    {"copy", offsetof(struct twill_machine_model, copy)},
    {"stage", offsetof(struct twill_machine_model, bounce)},
    {"convert", offsetof(struct twill_machine_model, convert)},
    {"contention", offsetof(struct twill_machine_model, contention)},
    {"moves", offsetof(struct twill_machine_model, moves)},
    {"interface", offsetof(struct twill_machine_model, interface)},
    {"slice", offsetof(struct twill_machine_model, segment)},
    {"slice_rank", offsetof(struct twill_machine_model, segment_rank)},
    {"slice_net", offsetof(struct twill_machine_model, segment_net)},
    {"window", offsetof(struct twill_machine_model, window)},
    {"crowd", offsetof(struct twill_machine_model, crowd)},
    {"threads", offsetof(struct twill_machine_model, threads)},
};

static const struct model_field of_threads[] = {
    {"fork", offsetof(struct twill_thread_cost, fork)},
    {"copy", offsetof(struct twill_thread_cost, copy)},
    {"reduce", offsetof(struct twill_thread_cost, reduce)},
};

/* Return the address of the number at a byte offset of a model or of the costs of a link. */
static uint64_t *field_at(void *of, size_t offset)
{
    return (uint64_t *)(void *)((char *)of + offset);
}

/* Return what `low` more threads change a cost to, if `added` more change it from `before` to `at`.
 * It is at least 1. */
static uint64_t extended(uint64_t before, uint64_t at, uint64_t low, uint64_t added)
{
    int64_t change = ((int64_t)at - (int64_t)before) * (int64_t)low / (int64_t)added;
    return (uint64_t)((int64_t)before + change > 1 ? (int64_t)before + change : 1);
}

void twill_machine_model_measure(struct twill_machine_model *model,
                                 const struct twill_thread_rates *rates)
{
    unsigned step = 0;
    if (rates->steps < 2)
        return;
    model->measured = *rates;
    memset(model->thread, 0, sizeof(model->thread));
    for (unsigned i = 0; i < TWILL_THREAD_COSTS; i++) {
        uint64_t low = i > 0 ? UINT64_C(1) << (i - 1) : 0;
        while (step + 1 < rates->steps && rates->step[step].threads < UINT64_C(1) << i)
            step++;
        const struct twill_thread_rate *rate = &rates->step[step];
        struct twill_thread_cost *cost = &model->thread[i];
        if (rate->threads <= low) /* no more steps */
            break;
        *cost = (struct twill_thread_cost){.fork = NS * rate->fork_join_ns,
                                           .copy = MB_S / twill_max(rate->copy_mbs[1], 1),
                                           .reduce = MB_S / twill_max(rate->reduce_mbs[1], 1)};
        if (i == 0 || rate->threads == 2 * low)
            continue;
        const struct twill_thread_cost *before = cost - 1;
        uint64_t added = rate->threads - low;
        cost->fork = extended(before->fork, cost->fork, low, added);
        cost->copy = extended(before->copy, cost->copy, low, added);
        cost->reduce = extended(before->reduce, cost->reduce, low, added);
    }
}

bool twill_machine_model_field(struct twill_machine_model *model, size_t index, char name[40],
                               uint64_t **value)
{
    const size_t links = TWILL_LINK_COUNT * TWILL_ARRAY_LENGTH(of_link);
    if (index < links) {
        unsigned link = (unsigned)(index / TWILL_ARRAY_LENGTH(of_link));
        const struct model_field *field = &of_link[index % TWILL_ARRAY_LENGTH(of_link)];
        snprintf(name, 40, "link.%s.%s", twill_link_class_name((enum twill_link_class)link),
                 field->name);
        *value = field_at(&model->link[link], field->offset);
        return true;
    }
    index -= links;
    if (index < TWILL_ARRAY_LENGTH(of_model)) {
        snprintf(name, 40, "%s", of_model[index].name);
        *value = field_at(model, of_model[index].offset);
        return true;
    }
    index -= TWILL_ARRAY_LENGTH(of_model);
    const size_t shared = TWILL_THREAD_COSTS * TWILL_ARRAY_LENGTH(of_threads);
    if (index < shared) {
        size_t step = index / TWILL_ARRAY_LENGTH(of_threads);
        const struct model_field *field = &of_threads[index % TWILL_ARRAY_LENGTH(of_threads)];
        snprintf(name, 40, "threads.%u.%s", 1u << step, field->name);
        *value = field_at(&model->thread[step], field->offset);
        return true;
    }
    index -= shared;
    if (index >= TWILL_TYPE_COUNT)
        return false;
    const char *type = twill_type_name((twill_type)index);
    snprintf(name, 40, "reduce.%s", type != NULL ? type : "?");
    *value = &model->reduce[index];
    return true;
}
