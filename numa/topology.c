/* SPDX-License-Identifier: Apache-2.0 */
/* Loads a topology: this machine, an XML file, or a synthetic description. Errors for which hwloc
 * returns only EINVAL, or takes minutes, are found beforehand, so that the message says what is
 * wrong. hwloc prints nothing unless HWLOC_XML_VERBOSE or HWLOC_SYNTHETIC_VERBOSE is set. */
#include "numa/topology_internal.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* hwloc's time grows with the square of the PUs: 16k take seconds, 64k minutes. */
#define MOST_SYNTHETIC_PUS 16384

/* Exclude components of hwloc. Those for GPUs start drivers and threads, which a library must not.
 * pci uses libpciaccess, which leaks memory, and sysfs shows its devices. */
static void leave_out(hwloc_topology_t hwloc)
{
#if HWLOC_API_VERSION >= 0x00020100
    static const char *const names[] = {"cuda", "nvml", "opencl", "rsmi", "levelzero", "gl", "pci"};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(names); i++)
        hwloc_topology_set_components(hwloc, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, names[i]);
#else
    (void)hwloc;
#endif
}

/* Return a text that says what is wrong with a topology XML, or NULL. It must start with a
 * <topology> element of a version that this hwloc reads. */
static const char *check_xml(FILE *file)
{
    char head[8192];
    size_t bytes = fread(head, 1, sizeof(head) - 1, file);
    if (ferror(file))
        return strerror(errno);
    if (bytes == 0)
        return "the file is empty";
    head[bytes] = '\0';
    const char *element = memmem(head, bytes, "<topology", strlen("<topology"));
    if (element == NULL)
        return "the file is not a topology XML (no <topology> element)";
    const char *end = strchr(element, '>');
    const char *version = strstr(element, " version=\"");
    unsigned major = 1; /* before 2.0 the attribute was not written */
    if (version != NULL && end != NULL && version < end)
        major = (unsigned)strtoul(version + strlen(" version=\""), NULL, 10);
    if (major > hwloc_get_api_version() >> 16)
        return "the file is a topology XML of a newer hwloc than the one in use";
    return NULL;
}

/* Let hwloc load from an XML file. Returns TWILL_ERR_CONFIG if that is unusable. */
static twill_status set_file(hwloc_topology_t hwloc, const char *path, const struct stat *status,
                             struct twill_error *error)
{
    const char *cause = NULL;
    if (S_ISDIR(status->st_mode))
        cause = "it is a directory, not a file";
    else if (!S_ISREG(status->st_mode))
        cause = "it is not a regular file";
    FILE *file = cause == NULL ? fopen(path, "re") : NULL;
    if (file != NULL) {
        cause = check_xml(file);
        fclose(file);
    } else if (cause == NULL) {
        cause = strerror(errno);
    }
    if (cause == NULL && hwloc_topology_set_xml(hwloc, path) != 0)
        cause = "the file is not a topology XML that hwloc can read";
    if (cause != NULL)
        return TWILL_FAIL(error, TWILL_ERR_CONFIG, "TWILL_LAYOUT=topology=%.200s: %s", path, cause);
    return TWILL_OK;
}

/* Return the PUs of a synthetic description, the product of its levels without [] and (). */
static double count_leaves(const char *text)
{
    double leaves = 1;
    int inside = 0;
    for (const char *c = text; *c != '\0'; c++) {
        inside += (*c == '[' || *c == '(') - (*c == ']' || *c == ')');
        bool starts = isdigit((unsigned char)*c) && (c == text || c[-1] == ':' || c[-1] == ' ');
        if (inside == 0 && starts) {
            char *end;
            leaves *= twill_read_real(c, &end);
            c = end - 1;
        }
    }
    return leaves;
}

/* Let hwloc load a synthetic description, or return TWILL_ERR_CONFIG. `cause` is the errno of
 * looking for a file of that name. */
static twill_status set_synthetic(hwloc_topology_t hwloc, const char *text, int cause,
                                  struct twill_error *error)
{
    size_t length = strlen(text);
    bool path = strchr(text, '/') != NULL || (length > 4 && strcmp(text + length - 4, ".xml") == 0);
    if (path)
        return TWILL_FAIL(error, TWILL_ERR_CONFIG,
                          "TWILL_LAYOUT=topology=%.200s: file not found: %s", text,
                          strerror(cause));
    if (count_leaves(text) > MOST_SYNTHETIC_PUS)
        return TWILL_FAIL(error, TWILL_ERR_CONFIG,
                          "TWILL_LAYOUT=topology=%.200s: describes more than %d PUs", text,
                          MOST_SYNTHETIC_PUS);
    if (hwloc_topology_set_synthetic(hwloc, text) != 0)
        return TWILL_FAIL(
            error, TWILL_ERR_CONFIG,
            "TWILL_LAYOUT=topology=%.200s: neither a file nor a synthetic description "
            "such as \"pack:2 [numa] core:4 pu:2\"",
            text);
    return TWILL_OK;
}

/* Set where hwloc loads from, and machine->source. Returns TWILL_ERR_CONFIG if `text` is neither
 * NULL, "", a usable file nor a synthetic description. */
static twill_status set_source(struct twill_topology *topology, const char *text,
                               struct twill_error *error)
{
    struct twill_machine *machine = &topology->machine;
    struct stat status;
    if (text == NULL || text[0] == '\0') {
        snprintf(machine->source, sizeof(machine->source), "this machine");
    } else if (stat(text, &status) == 0) {
        snprintf(machine->source, sizeof(machine->source), "file %.150s", text);
        TWILL_TRY(error, set_file(topology->hwloc, text, &status, error));
    } else {
        int cause = errno;
        snprintf(machine->source, sizeof(machine->source), "synthetic %.145s", text);
        TWILL_TRY(error, set_synthetic(topology->hwloc, text, cause, error));
    }
    return TWILL_OK;
}

/* Exclude PCI devices. The kernel reads their configuration space slowly and for one process at a
 * time, which would dominate set-up with many ranks on a node. NICs are found without them. */
static void leave_out_pci(hwloc_topology_t hwloc)
{
    hwloc_topology_set_type_filter(hwloc, HWLOC_OBJ_PCI_DEVICE, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(hwloc, HWLOC_OBJ_BRIDGE, HWLOC_TYPE_FILTER_KEEP_NONE);
}

/* Return a text that says what describes another machine: our setting (`replaced`) or hwloc's. */
static const char *another_machine(bool replaced)
{
    return replaced ? "TWILL_LAYOUT=topology describes another machine than this one"
           : getenv("HWLOC_XMLFILE") != NULL
               ? "HWLOC_XMLFILE describes another machine than this one (HWLOC_THISSYSTEM=1 says "
                 "that it is this one)"
               : "HWLOC_SYNTHETIC or another variable of hwloc describes another machine than this "
                 "one";
}

/* Load what `text` describes, with flags of hwloc. Also sets is_this_machine, elsewhere and source
 * of the machine. The caller destroys topology->hwloc, also after a failure unless that is NULL. */
static twill_status load_topology(struct twill_topology *topology, const char *text,
                                  unsigned long flags, struct twill_error *error)
{
    bool replaced = text != NULL && text[0] != '\0';
    if (hwloc_topology_init(&topology->hwloc) != 0) {
        topology->hwloc = NULL;
        return TWILL_FAIL(error, TWILL_ERR_SYSTEM, "hwloc_topology_init: %s", strerror(errno));
    }
    leave_out(topology->hwloc);
    hwloc_topology_set_io_types_filter(topology->hwloc, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    if (!replaced)
        leave_out_pci(topology->hwloc);
#if HWLOC_API_VERSION >= 0x00020100
    hwloc_topology_set_type_filter(topology->hwloc, HWLOC_OBJ_MEMCACHE, HWLOC_TYPE_FILTER_KEEP_ALL);
#endif
    TWILL_TRY(error, set_source(topology, text, error));
    hwloc_topology_set_flags(topology->hwloc, flags);
    errno = 0;
    if (hwloc_topology_load(topology->hwloc) != 0) {
        if (replaced)
            return TWILL_FAIL(error, TWILL_ERR_CONFIG,
                              "TWILL_LAYOUT=topology=%.200s: hwloc cannot load it: the topology is "
                              "damaged or incomplete",
                              text);
        return TWILL_FAIL(error, TWILL_ERR_SYSTEM, "hwloc cannot read this machine: %s",
                          errno != 0 ? strerror(errno) : "no reason given");
    }
    /* Some versions of hwloc load a file without PUs and crash when asked for their depth. */
    if (hwloc_get_nbobjs_by_type(topology->hwloc, HWLOC_OBJ_PU) < 1)
        return TWILL_FAIL(
            error, TWILL_ERR_CONFIG, "%s%.200s: the topology has no hardware threads (PU)",
            replaced ? "TWILL_LAYOUT=topology=" : "this machine", replaced ? text : "");
    struct twill_machine *machine = &topology->machine;
    machine->is_this_machine = !replaced && hwloc_topology_is_thissystem(topology->hwloc);
    if (!machine->is_this_machine)
        machine->elsewhere = another_machine(replaced);
    if (!replaced && !machine->is_this_machine)
        snprintf(machine->source, sizeof(machine->source), "the machine of %s",
                 getenv("HWLOC_XMLFILE") != NULL ? "HWLOC_XMLFILE" : "hwloc's variables");
    return TWILL_OK;
}

/* If this process may not use some NUMA nodes, load a topology with all nodes. By comparison with
 * it, correct the kinds of memory of the usable ones, and set barred_hbm. `text` is that of
 * twill_topology_open(). If loading fails, nothing changes. */
static void compare_with_barred(struct twill_topology *topology, const char *text)
{
    struct twill_topology all = {0};
    struct twill_error ignored = {0};
    if (!twill_machine_is_restricted(topology))
        return;
    if (load_topology(&all, text, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED, &ignored) == TWILL_OK) {
        twill_machine_describe(&all);
        twill_machine_compare(&topology->machine, &all.machine);
    }
    if (all.hwloc != NULL)
        hwloc_topology_destroy(all.hwloc);
}

twill_status twill_topology_open(struct twill_topology **topology, const char *text,
                                 struct twill_error *error)
{
    twill_status status;
    *topology = NULL;
    struct twill_topology *opened = calloc(1, sizeof(*opened));
    if (opened == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory for the topology");
    TWILL_TRY_OR_FAIL(error, load_topology(opened, text, 0, error));
    twill_machine_describe(opened);
    compare_with_barred(opened, text);
    TWILL_TRY_OR_FAIL(error, twill_topology_locate(opened, NULL, error));
    *topology = opened;
    return TWILL_OK;
fail:
    twill_topology_close(opened);
    return status;
}

void twill_topology_close(struct twill_topology *topology)
{
    if (topology == NULL)
        return;
    hwloc_bitmap_free(topology->here);
    hwloc_bitmap_free(topology->more);
    if (topology->hwloc != NULL)
        hwloc_topology_destroy(topology->hwloc);
    free(topology);
}

int twill_machine_own_node(const struct twill_machine *machine)
{
    int node = -1;
    for (unsigned i = 0; i < machine->numa_nodes && i < TWILL_MAX_NUMA; i++) {
        if (!machine->numa[i].local || machine->numa[i].kind != TWILL_KIND_DDR)
            continue;
        if (node >= 0)
            return -1;
        node = (int)machine->numa[i].os_index;
    }
    return node;
}

const struct twill_machine *twill_topology_machine(const struct twill_topology *topology)
{
    return &topology->machine;
}
