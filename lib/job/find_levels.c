/* SPDX-License-Identifier: Apache-2.0 */
/* Finds or reads which units each rank is in. All ranks get the same result from the same infos. */
#include "lib/job/find_levels.h"
#include "algorithms/world/world.h"
#include "fabric/bootstrap/bootstrap.h"
#include "lib/base/lists.h"
#include "lib/base/plural.h"
#include "lib/job/config.h"
#include "numa/topology.h"

#include <stdlib.h>
#include <string.h>

/* Labels of ranks that are in no unit start here, above all unit indices. */
#define LEVEL_ALONE 0x10000u

void twill_levels_describe(const struct twill_topology *topology, const struct twill_cpus *cpus,
                           struct twill_level_info *info)
{
    struct twill_units units;
    struct twill_place place;
    twill_topology_units(topology, cpus, &units);
    twill_topology_place(topology, &place);
    memset(info, 0, sizeof(*info)); /* padding is also sent */
#define SET_UNIT(NOUN, name, noun, with) info->unit[TWILL_LEVEL_##NOUN] = (int16_t)units.name;
    TWILL_LEVELS_INSIDE_NODE(SET_UNIT, )
    info->roams = units.roams;
    info->elsewhere = !twill_topology_machine(topology)->is_this_machine;
    info->cpus = place.cpus;
    info->cpuset_hash = place.cpuset_hash;
}

/* Return TWILL_ERR_CONFIG, with a message that TWILL_LAYOUT=units=`text` is wrong at `at`. */
static twill_status fail_units(const char *text, const char *at, struct twill_error *error)
{
    return TWILL_FAIL(
        error, TWILL_ERR_CONFIG,
        "TWILL_LAYOUT=units=%s: cannot be read at \"%s\"; write the ranks of each unit, as in "
        "l3=2,numa=4,package=8",
        text, at);
}

/* Return whether the `length` characters at `text` are the whole name of the level. */
static bool level_is_named(twill_level level, const char *text, size_t length)
{
    const char *name = twill_level_name(level);
    return strlen(name) == length && strncmp(name, text, length) == 0;
}

/* Parse TWILL_LAYOUT=units into ranks[], the number of ranks per unit of each level, which is 0
 * before. Levels that are not declared stay 0. Returns TWILL_ERR_CONFIG if the text is malformed or
 * the units do not nest. */
static twill_status parse_units(const char *text, uint32_t ranks[TWILL_LEVEL_NODE],
                                struct twill_error *error)
{
    for (const char *at = text; *at != '\0';) {
        size_t length = strcspn(at, "=");
        unsigned level = 0;
        while (level < TWILL_LEVEL_NODE && !level_is_named((twill_level)level, at, length))
            level++;
        if (level == TWILL_LEVEL_NODE || at[length] != '=')
            return fail_units(text, at, error);
        char *end;
        const char *number = at + length + 1;
        long value = *number >= '0' && *number <= '9' ? strtol(number, &end, 10) : 0;
        if (value < 1 || value > TWILL_WORLD_MAX_RANKS || (*end != ',' && *end != '\0') ||
            (*end == ',' && end[1] == '\0'))
            return fail_units(text, number, error);
        ranks[level] = (uint32_t)value;
        at = *end == ',' ? end + 1 : end;
    }
    uint32_t inner = 1;
    for (unsigned level = 0; level < TWILL_LEVEL_NODE; level++) {
        if (ranks[level] != 0 && ranks[level] % inner != 0)
            return TWILL_FAIL(
                error, TWILL_ERR_CONFIG,
                "TWILL_LAYOUT=units=%s: %u rank%s of a %s are no multiple of %u of a smaller "
                "unit",
                text, ranks[level], TWILL_PLURAL(ranks[level]),
                twill_level_name((twill_level)level), inner);
        inner = ranks[level] != 0 ? ranks[level] : inner;
    }
    return TWILL_OK;
}

/* Set a level from infos, unless no rank knows its unit. A rank in no unit gets one for itself.
 * Fails only if out of memory. label[size] is scratch memory. */
static twill_status set_found(struct twill_world *world, const struct twill_level_info *info,
                              twill_level level, uint32_t *label, struct twill_error *error)
{
    bool known = false;
    for (uint32_t r = 0; r < world->size; r++) {
        known = known || info[r].unit[level] >= 0;
        label[r] = info[r].unit[level] >= 0 ? (uint32_t)info[r].unit[level] : LEVEL_ALONE + r;
    }
    return known ? twill_world_set_level(world, level, label, error) : TWILL_OK;
}

/* Set the levels that `text`, TWILL_LAYOUT=units, declares. label[size] is scratch memory. Returns
 * TWILL_OK or the error. */
static twill_status set_declared(struct twill_world *world, const char *text, uint32_t *label,
                                 struct twill_error *error)
{
    uint32_t ranks[TWILL_LEVEL_NODE] = {0};
    TWILL_TRY(error, parse_units(text, ranks, error));
    /* units nest, so the outermost comes first */
    for (unsigned level = TWILL_LEVEL_NODE; level-- > 0;) {
        for (uint32_t r = 0; ranks[level] != 0 && r < world->size; r++)
            label[r] = world->local[r] / ranks[level];
        if (ranks[level] != 0)
            TWILL_TRY(error, twill_world_set_level(world, (twill_level)level, label, error));
    }
    return TWILL_OK;
}

/* Set the level of groups as TWILL_LAYOUT=groups declares. label[size] is scratch memory. Returns
 * TWILL_OK or the error. */
static twill_status set_groups(struct twill_world *world, const char *declared, uint32_t *label,
                               struct twill_error *error)
{
    uint32_t *group = calloc(world->nodes, sizeof(*group));
    if (group == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory");
    twill_status status = twill_world_parse_groups(declared, world->nodes, group, error);
    for (uint32_t r = 0; status == TWILL_OK && r < world->size; r++)
        label[r] = group[world->node[r]];
    free(group);
    TWILL_TRY(error, status);
    return twill_world_set_level(world, TWILL_LEVEL_GROUP, label, error);
}

twill_status twill_levels_declare(struct twill_world *world, const char *groups, const char *units,
                                  struct twill_error *error)
{
    twill_status status = TWILL_OK;
    uint32_t *label = calloc(world->size, sizeof(*label));
    if (label == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory");
    if (groups != NULL)
        status = set_groups(world, groups, label, error);
    if (status == TWILL_OK && units != NULL)
        status = set_declared(world, units, label, error);
    free(label);
    return status;
}

twill_status twill_levels_find(struct twill_world *world, const struct twill_level_info *info,
                               struct twill_error *error)
{
    twill_status status = TWILL_OK;
    uint32_t *label = calloc(world->size, sizeof(*label));
    if (label == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory");
    for (unsigned level = TWILL_LEVEL_NODE; level-- > 0 && status == TWILL_OK;)
        status = set_found(world, info, (twill_level)level, label, error);
    free(label);
    return status;
}

/* Set info[ranks] to where the ranks of a node would be bound. Fails if there are too few cores. */
static twill_status place_node(const struct twill_topology *topology, uint32_t ranks,
                               struct twill_level_info *info, struct twill_error *error)
{
    struct twill_cpus *cpus = calloc(ranks, sizeof(*cpus));
    if (cpus == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory");
    twill_status status = twill_topology_bind(topology, ranks, TWILL_BOUND_TO_CORES, cpus, error);
    for (uint32_t l = 0; status == TWILL_OK && l < ranks; l++)
        twill_levels_describe(topology, &cpus[l], &info[l]);
    free(cpus);
    return status;
}

twill_status twill_levels_place(struct twill_world *world, const struct twill_topology *topology,
                                struct twill_error *error)
{
    uint32_t widest = twill_world_widest(world), placed = 0;
    unsigned cores = twill_topology_cores(topology);
    twill_status status = TWILL_OK;
    if (widest > cores)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "%u ranks of a node do not fit the %u cores of %s", widest, cores,
                          twill_topology_machine(topology)->source);
    struct twill_level_info *node = calloc(widest, sizeof(*node));
    struct twill_level_info *info = calloc(world->size, sizeof(*info));
    if (node == NULL || info == NULL)
        status = TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory");
    for (uint32_t n = 0; n < world->nodes && status == TWILL_OK; n++) {
        if (world->node_size[n] != placed) /* else the same as the node before */
            status = place_node(topology, world->node_size[n], node, error);
        placed = world->node_size[n];
        for (uint32_t l = 0; l < placed; l++)
            info[twill_world_member(world, n, l)] = node[l];
    }
    if (status == TWILL_OK)
        status = twill_levels_find(world, info, error);
    free(node);
    free(info);
    return status;
}

/* If TWILL_LAYOUT=topology replaces any rank's machine, exchange infos again. No rank can be bound
 * on such a machine, so each of its ranks is assumed to be where twillrun would bind it. */
static twill_status exchange_places(struct twill_context *context, struct twill_level_info *info)
{
    struct twill_error *error = &context->error;
    const struct twill_world *world = &context->job.world;
    uint32_t me = (uint32_t)context->job.oob->rank, ranks = world->node_size[world->node[me]];
    struct twill_level_info mine = info[me];
    bool any_elsewhere = false;
    for (uint32_t r = 0; r < world->size; r++)
        any_elsewhere = any_elsewhere || info[r].elsewhere;
    if (!any_elsewhere)
        return TWILL_OK;
    if (mine.elsewhere && ranks <= twill_topology_cores(context->machine.topology)) {
        struct twill_level_info *node = calloc(ranks, sizeof(*node));
        if (node == NULL)
            return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory");
        twill_status status = place_node(context->machine.topology, ranks, node, error);
        mine = node[world->local[me]];
        free(node);
        TWILL_TRY(error, status);
    }
    return twill_oob_allgather(context->job.oob, &mine, info, sizeof(mine), error);
}

/* Return a rank that may run on several cores and is the first such one of its node, if a later
 * rank of the node may run on exactly the same CPUs. Return the world's size if there is none.
 * seen[size] is scratch memory. */
static uint32_t first_unbound(const struct twill_world *world, const struct twill_level_info *info,
                              uint32_t *seen)
{
    memset(seen, 0, world->size * sizeof(*seen));
    for (uint32_t r = 0; r < world->size; r++) {
        uint32_t *first = &seen[world->node[r]]; /* 1 + the node's first rank that roams, or 0 */
        if (!info[r].roams || info[r].elsewhere)
            continue;
        if (*first == 0)
            *first = r + 1;
        else if (info[*first - 1].cpuset_hash == info[r].cpuset_hash)
            return *first - 1;
    }
    return world->size;
}

/* Log that this rank, `first`, and others of its node may run on the same CPUs, as they are not
 * bound. It is a warning if the node has enough cores to bind them, and levels of the hierarchy are
 * unknown because they are unbound. Otherwise it is at level info. */
static void warn_unbound(struct twill_context *context, const struct twill_level_info *info,
                         uint32_t first)
{
    const struct twill_machine *m = twill_topology_machine(context->machine.topology);
    const struct twill_world *world = &context->job.world;
    const struct twill_level_info *its = &info[first];
    char lost[80] = "";
    if (m->packages > 1 && its->unit[TWILL_LEVEL_PACKAGE] < 0)
        strcat(lost, ", package");
    if (its->unit[TWILL_LEVEL_NUMA] < 0)
        strcat(lost, ", NUMA node");
    if (m->l3_bytes > 0 && its->unit[TWILL_LEVEL_L3] < 0)
        strcat(lost, ", L3 cache");
    if (m->cores_per_l2 > 1)
        strcat(lost, ", tile");
    bool fits =
        world->node_size[world->node[first]] <= twill_topology_cores(context->machine.topology);
    twill_say(
        &context->log, fits && lost[0] != '\0' ? TWILL_LOG_WARN : TWILL_LOG_INFO,
        "ranks are not bound: this one and others of its node may run on the same %u CPU%s%s%s"
        "; twillrun binds them, mpirun does with --bind-to core, srun with --cpu-bind=cores",
        its->cpus, TWILL_PLURAL(its->cpus),
        lost[0] != '\0' ? ", so these levels are unknown: " : "", lost[0] != '\0' ? lost + 2 : "");
}

twill_status twill_levels_open(struct twill_context *context, struct twill_level_info *info)
{
    struct twill_error *error = &context->error;
    struct twill_world *world = &context->job.world;
    const char *units = twill_config_text(context->config, TWILL_VARIABLE_UNITS);
    const char *groups = twill_config_text(context->config, TWILL_VARIABLE_GROUPS);
    uint32_t *seen = calloc(world->size, sizeof(*seen));
    if (seen == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory");
    uint32_t first = first_unbound(world, info, seen);
    free(seen);
    context->job.unbound = first < world->size;
    if (first == (uint32_t)context->job.oob->rank && units == NULL)
        warn_unbound(context, info, first);
    TWILL_TRY(error, twill_levels_declare(world, groups, units, error));
    if (units != NULL)
        return TWILL_OK;
    TWILL_TRY(error, exchange_places(context, info));
    return twill_levels_find(world, info, error);
}

void twill_levels_log_world(struct twill_context *context)
{
    char text[TWILL_WORLD_TEXT_BYTES], *rest = NULL;
    (void)twill_world_summarize(&context->job.world, text, sizeof(text));
    twill_context_note(context, "hierarchy: %s", text);
    twill_world_describe(&context->job.world, text);
    for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
        twill_context_note(context, "  %s", line);
}

void twill_levels_log_binding(struct twill_context *context)
{
    const struct twill_world *w = &context->job.world;
    uint32_t rank = (uint32_t)context->job.oob->rank, ranks = w->node_size[w->node[rank]];
    struct twill_cpus cpus;
    struct twill_error ignored = {0};
    char text[200];
    twill_topology_cpus(context->machine.topology, &cpus);
    (void)twill_cpus_list(&cpus, text, sizeof(text));
    if (twill_topology_machine(context->machine.topology)->is_this_machine)
        twill_context_note_rank(context, "binding: rank %u may run on CPUs %s%s", rank, text,
                                context->job.unbound
                                    ? "; ranks of a node are not bound: levels within it "
                                      "that they cross are not known"
                                    : "");
    if (ranks > 1 && context->job.unbound &&
        twill_topology_advise(context->machine.topology, w->local[rank], ranks, text, sizeof(text),
                              &ignored) == TWILL_OK)
        twill_context_note_rank(context, "binding advice: rank %u on CPUs %s", rank, text);
}
