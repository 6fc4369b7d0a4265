/* SPDX-License-Identifier: Apache-2.0 */
/* Resolves TWILL_MEMORY for a machine. Allocates nothing. */
#include "numa/memory.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A value of TWILL_MEMORY, constant. "mcdram" and "hbm" both mean any high-bandwidth memory. */
struct policy_form {
    const char *text;
    enum twill_memory_kind kind;
    bool required; /* it is an error if there is no such memory, which DDR replaces otherwise */
    enum twill_memory_mode mode;
};

#define FORMS_OF(name, kind)                                                                       \
    {name, kind, false, TWILL_MODE_PREFERRED}, {name ":bind", kind, true, TWILL_MODE_BIND},        \
        {name ":preferred", kind, false, TWILL_MODE_PREFERRED},                                    \
    {                                                                                              \
        name ":interleave", kind, false, TWILL_MODE_INTERLEAVE                                     \
    }
static const struct policy_form forms[] = {
    {"auto", TWILL_KIND_MCDRAM, false, TWILL_MODE_PREFERRED},
    {"ddr", TWILL_KIND_DDR, false, TWILL_MODE_PREFERRED},
    FORMS_OF("mcdram", TWILL_KIND_MCDRAM),
    FORMS_OF("hbm", TWILL_KIND_MCDRAM),
    FORMS_OF("cxl", TWILL_KIND_CXL),
};

/* Return the form of TWILL_MEMORY that the text has, or NULL if it is no value of that. */
static const struct policy_form *find_form(const char *text)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(forms); i++)
        if (strcmp(text, forms[i].text) == 0)
            return &forms[i];
    return NULL;
}

/* Return the set of one NUMA node, empty if its number is too large. */
static twill_numa_set bit_of(const struct twill_numa_node *node)
{
    return twill_numa_bit(node->os_index);
}

/* Return the machine's nodes of a kind, or with `nearest` only the local ones, if there are any. */
static twill_numa_set nodes_of(const struct twill_machine *machine, enum twill_memory_kind kind,
                               bool nearest)
{
    twill_numa_set all = 0, local = 0;
    for (unsigned i = 0; i < machine->numa_nodes; i++) {
        const struct twill_numa_node *node = &machine->numa[i];
        if (node->kind != kind)
            continue;
        all |= bit_of(node);
        local |= node->local ? bit_of(node) : 0;
    }
    return nearest && local != 0 ? local : all;
}

/* Parse a list such as "0,2-3" into a set. Returns false if it is no such list. */
static bool parse_nodes(const char *text, twill_numa_set *nodes)
{
    *nodes = 0;
    for (const char *c = text;;) {
        char *end;
        if (!isdigit((unsigned char)*c))
            return false;
        unsigned long from = strtoul(c, &end, 10), to = from;
        if (*end == '-' && isdigit((unsigned char)end[1]))
            to = strtoul(end + 1, &end, 10);
        if (to < from || to >= TWILL_MAX_NUMA)
            return false;
        for (unsigned long i = from; i <= to; i++)
            *nodes |= twill_numa_bit((unsigned)i);
        if (*end == '\0')
            return true;
        if (*end != ',')
            return false;
        c = end + 1;
    }
}

/* Parse MEMKIND_HBW_NODES, which names high-bandwidth nodes, into *nodes. Returns NULL, or the end
 * of a sentence that says why that fails. */
static const char *named_nodes(const struct twill_machine *machine, const char *text,
                               twill_numa_set *nodes)
{
    twill_numa_set known = 0, named = 0;
    for (unsigned i = 0; i < machine->numa_nodes; i++)
        known |= bit_of(&machine->numa[i]);
    if (!parse_nodes(text, &named))
        return "is not a list of NUMA nodes";
    if (named & ~known)
        return "names a NUMA node the machine does not have";
    *nodes = named;
    return NULL;
}

/* Return the local ones of these nodes, or all of them if none is local. */
static twill_numa_set nearest_of(const struct twill_machine *machine, twill_numa_set nodes)
{
    twill_numa_set near = 0;
    for (unsigned i = 0; i < machine->numa_nodes; i++)
        near |= machine->numa[i].local ? bit_of(&machine->numa[i]) & nodes : 0;
    return near != 0 ? near : nodes;
}

/* Print a set as a list such as "0,2". A list that is too long is cut. */
static void write_nodes(char *text, size_t bytes, twill_numa_set nodes)
{
    size_t used = 0;
    text[0] = '\0';
    for (unsigned i = 0; i < TWILL_MAX_NUMA && used < bytes; i++)
        if (nodes >> i & 1)
            used += (size_t)snprintf(text + used, bytes - used, "%s%u", used > 0 ? "," : "", i);
}

/* Return the name for messages of a machine's high-bandwidth memory, "MCDRAM" or "HBM". */
static const char *hbm_name(const struct twill_machine *machine)
{
    return machine->is_knl ? "MCDRAM" : "HBM";
}

/* Print policy->why, as in "auto: 16 GiB MCDRAM at NUMA 1, preferred". `form` is the setting at its
 * start. With `by_name` it adds that MEMKIND_HBW_NODES named these nodes. On machines other than
 * KNL it says HBM instead of MCDRAM. */
static void describe_policy(struct twill_memory_policy *policy, const char *form,
                            const struct twill_machine *machine, bool by_name)
{
    static const char *const modes[] = {"preferred", "bound", "interleaved"};
    char list[48];
    uint64_t sum = 0;
    write_nodes(list, sizeof(list), policy->nodes);
    for (unsigned i = 0; i < machine->numa_nodes; i++)
        if (bit_of(&machine->numa[i]) & policy->nodes)
            sum += machine->numa[i].bytes;
    bool gib = sum >= UINT64_C(10) << 30;
    char size[32] = "an unknown size of";
    if (sum > 0)
        snprintf(size, sizeof(size), "%llu %s", (unsigned long long)(gib ? sum >> 30 : sum >> 20),
                 gib ? "GiB" : "MiB");
    snprintf(policy->why, sizeof(policy->why), "%s: %s %s at NUMA %s, %s%s%s", form, size,
             policy->kind == TWILL_KIND_CXL ? "CXL" : hbm_name(machine), list, modes[policy->mode],
             by_name ? ", so named by MEMKIND_HBW_NODES" : "",
             policy->nominal != NULL ? " (not applied: not this machine)" : "");
}

/* Return whether the machine has memory of the kind, but at no NUMA node that a set can name. */
static bool is_beyond(const struct twill_machine *machine, enum twill_memory_kind kind)
{
    bool beyond = false;
    for (unsigned i = 0; i < machine->numa_nodes; i++)
        beyond = beyond || machine->numa[i].kind == kind;
    return beyond && nodes_of(machine, kind, false) == 0;
}

/* Print why there is no memory of the kind. `unusable` is what is wrong with hbw_nodes, or NULL. */
static void describe_none(char *text, size_t bytes, const struct twill_machine *machine,
                          enum twill_memory_kind kind, const char *hbw_nodes, const char *unusable)
{
    char list[48];
    write_nodes(list, sizeof(list), machine->barred_hbm);
    if (is_beyond(machine, kind))
        snprintf(text, bytes, "it is at NUMA nodes of numbers above %d, which twill cannot bind to",
                 TWILL_MAX_NUMA - 1);
    else if (kind == TWILL_KIND_CXL)
        snprintf(text, bytes, "%.60s has no CXL node", machine->source);
    else if (unusable != NULL)
        snprintf(text, bytes, "MEMKIND_HBW_NODES=%.32s %s", hbw_nodes, unusable);
    else if (machine->barred_hbm != 0)
        snprintf(text, bytes, "%s at NUMA %s is not allowed here (cpuset)", hbm_name(machine),
                 list);
    else if (strcmp(machine->memory_mode, "Cache") == 0)
        snprintf(text, bytes, "MCDRAM is a cache of DDR here (memory mode Cache)");
    else
        snprintf(text, bytes, "%.60s has no MCDRAM or HBM node", machine->source);
}

twill_status twill_memory_decide(struct twill_memory_policy *policy, const char *text,
                                 const struct twill_machine *machine, const char *hbw_nodes,
                                 struct twill_error *error)
{
    const struct policy_form *form = find_form(text != NULL && text[0] != '\0' ? text : "auto");
    if (form == NULL)
        return TWILL_FAIL(
            error, TWILL_ERR_CONFIG,
            "TWILL_MEMORY=%.60s: not a kind of memory; valid are auto, ddr, mcdram, "
            "mcdram:bind, mcdram:preferred, mcdram:interleave, or hbm or cxl for mcdram",
            text);
    *policy = (struct twill_memory_policy){.kind = TWILL_KIND_DDR, .mode = TWILL_MODE_PREFERRED};
    policy->nominal = machine->elsewhere;
    policy->automatic = strcmp(form->text, "auto") == 0;
    if (form->kind == TWILL_KIND_DDR) {
        snprintf(policy->why, sizeof(policy->why), "%s: DDR, as the system places it", form->text);
        return TWILL_OK;
    }
    bool by_name = hbw_nodes != NULL && hbw_nodes[0] != '\0' && form->kind == TWILL_KIND_MCDRAM;
    bool nearest = form->mode != TWILL_MODE_INTERLEAVE;
    twill_numa_set nodes = 0;
    const char *unusable = by_name ? named_nodes(machine, hbw_nodes, &nodes) : NULL;
    if (by_name)
        nodes = nearest ? nearest_of(machine, nodes) : nodes;
    else
        nodes = nodes_of(machine, form->kind, nearest);
    if (policy->automatic && !by_name && nodes != 0 && !machine->hbm_is_faster) {
        char list[48];
        write_nodes(list, sizeof(list), nodes);
        snprintf(policy->why, sizeof(policy->why),
                 "%s: DDR: %s at NUMA %s is not near all CPUs of this rank, and not known to be "
                 "faster for them",
                 form->text, hbm_name(machine), list);
        return TWILL_OK;
    }
    if (nodes != 0) {
        policy->kind = form->kind;
        policy->mode = form->mode;
        policy->nodes = nodes;
        describe_policy(policy, form->text, machine, by_name);
        return TWILL_OK;
    }
    char none[120];
    describe_none(none, sizeof(none), machine, form->kind, hbw_nodes, unusable);
    if (form->required)
        return TWILL_FAIL(error, TWILL_ERR_CONFIG, "TWILL_MEMORY=%s: %s", form->text, none);
    snprintf(policy->why, sizeof(policy->why), "%s: DDR: %s", form->text, none);
    policy->missed = !policy->automatic || unusable != NULL;
    return TWILL_OK;
}
