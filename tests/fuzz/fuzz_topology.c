/* SPDX-License-Identifier: Apache-2.0 */
/* Topologies of strange machines: what hwloc gives back of an XML file or a synthetic description
 * must crash no user of it. An input that begins with '<' is a file; one that begins with a letter
 * or '[' is a description; of others a file is made, a tree of objects that fit each other but for
 * what the input changes, as hwloc refuses nearly all else. */
#include "numa/topology.h"
#include "tests/fuzz/fuzz_input.h"

#include <assert.h>
#include <ctype.h>
#include <sanitizer/lsan_interface.h>
#include <setjmp.h>

#define OBJECTS   96
#define DEPTH     12
#define XML_BYTES (512u << 10)
#define RANKS     5
#define PUS_MOST  128 /* of a description: hwloc's time grows with their square */

enum type { PACKAGE, DIE, L3, L2, L1, CORE, GROUP, PU, NUMA, MEMCACHE, BRIDGE, NIC, MISC, TYPES };

/* An object of the tree; its sets are those of what is below it. */
struct object {
    uint8_t type, flags;
    unsigned number;
    uint64_t cpus, nodes;
    unsigned children, child[8];
};

static struct object object[OBJECTS];
static unsigned objects, pus, numas;
static const uint8_t *input;
static size_t input_size;
static char xml[XML_BYTES];
static size_t used;

/* What the whole machine has: the numbers of its PUs begin at this one, and which sets are left out
 * or wrong. */
static unsigned first_pu;
static uint8_t sets;

static uint8_t next_byte(void)
{
    if (input_size == 0)
        return 0;
    input_size--;
    return *input++;
}

/* Add an object and what is below it, up to a byte of children. Returns its index. */
static unsigned add_object(unsigned depth, uint8_t type)
{
    unsigned index = objects++;
    struct object *o = &object[index];
    *o = (struct object){.type = type, .flags = next_byte()};
    if (type == PU) {
        o->number = pus++ + (o->flags == 255);
        o->cpus = o->number < 64 ? UINT64_C(1) << o->number : 0;
    } else if (type == NUMA) {
        o->number = numas++;
        o->nodes = o->number < 64 ? UINT64_C(1) << o->number : 0;
    }
    unsigned children = type == PU || type == NUMA || depth == DEPTH ? 0 : next_byte() % 5;
    for (unsigned i = 0; i < children && objects < OBJECTS; i++) {
        unsigned child = add_object(depth + 1, next_byte() % TYPES);
        object[index].child[object[index].children++] = child;
        object[index].cpus |= object[child].cpus;
        object[index].nodes |= object[child].nodes;
    }
    return index;
}

static void TWILL_PRINTF(1, 2) put(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(xml + used, sizeof(xml) - used, format, arguments);
    va_end(arguments);
    used = twill_min(used + (size_t)length, sizeof(xml) - 1);
}

static void put_set(const char *name, uint64_t set, unsigned zeros, uint8_t flags)
{
    if (flags % 16 == 1) /* left out */
        return;
    if (flags % 16 == 2) {
        put(" %s=\"0xf...f\"", name);
        return;
    }
    if (flags % 16 == 3)
        set = 0;
    if (flags % 16 == 4)
        set |= 1;
    put(" %s=\"0x%08x,0x%08x", name, (unsigned)(set >> 32), (unsigned)set);
    for (unsigned i = 0; i < zeros / 32; i++)
        put(",0x0");
    put("\"");
}

static void put_object(unsigned index, uint64_t above_cpus, uint64_t above_nodes)
{
    static const char *const names[TYPES] = {"Package", "Die",   "L3Cache", "L2Cache",  "L1Cache",
                                             "Core",    "Group", "PU",      "NUMANode", "MemCache",
                                             "Bridge",  "OSDev", "Misc"};
    const struct object *o = &object[index];
    bool memory = o->type == NUMA || o->type == MEMCACHE, io = o->type >= BRIDGE;
    uint64_t cpus = memory ? above_cpus : o->cpus;
    uint64_t nodes = o->type == NUMA || o->nodes != 0 ? o->nodes : above_nodes;
    put("<object type=\"%s\" gp_index=\"%u\"", names[o->type], index + 2);
    if (!io || o->flags == 254) {
        put(" os_index=\"%u\"", o->number + (o->type == PU ? first_pu : 0));
        put_set("cpuset", cpus, first_pu, o->flags);
        put_set("complete_cpuset", cpus, first_pu, o->flags / 16 == 15 ? o->flags : 0);
        put_set("nodeset", nodes, 0, o->flags / 16 == 14 ? o->flags : 0);
        put_set("complete_nodeset", nodes, 0, o->flags / 16 == 13 ? o->flags : 0);
    }
    if (o->type >= L3 && o->type <= L1)
        put(" cache_size=\"%u\" depth=\"%d\" cache_linesize=\"64\" cache_associativity=\"8\" "
            "cache_type=\"%d\"",
            o->flags << 10, L1 - o->type + 1, o->flags % 3);
    if (o->type == MEMCACHE)
        put(" cache_size=\"4096\" depth=\"1\" cache_linesize=\"64\" cache_associativity=\"1\" "
            "cache_type=\"0\"");
    if (o->type == NUMA)
        put(" local_memory=\"%u\"", o->flags << 20);
    if (o->flags / 32 == 3)
        put(" subtype=\"%s\"", o->flags % 2 ? "MCDRAM" : "MemorySideCache");
    if (o->type == BRIDGE)
        put(" bridge_type=\"0-1\" depth=\"0\" bridge_pci=\"0000:[00-%02x]\"", o->flags);
    if (o->type == NIC)
        put(" name=\"eth%u\" osdev_type=\"%u\"", index, o->flags % 4 == 0 ? 3 : 2);
    put(">");
    for (unsigned i = 0; i < o->children; i++)
        put_object(o->child[i], cpus, nodes);
    put("</object>");
}

static void write_xml(void)
{
    objects = pus = numas = 0;
    used = 0;
    first_pu = next_byte() / 64 * 512;
    sets = next_byte();
    unsigned child[8], children = 1 + next_byte() % 6;
    uint64_t cpus = 0, nodes = 0;
    for (unsigned i = 0; i < children && objects < OBJECTS; i++) {
        child[i] = add_object(1, next_byte() % TYPES);
        cpus |= object[child[i]].cpus;
        nodes |= object[child[i]].nodes;
        children = objects < OBJECTS ? children : i + 1;
    }
    put("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
        "<topology version=\"2.0\">\n<object type=\"Machine\" os_index=\"0\" gp_index=\"1\"");
    put_set("cpuset", cpus, first_pu, sets);
    put_set("complete_cpuset", cpus, first_pu, 0);
    put_set("allowed_cpuset", cpus, first_pu, sets / 16);
    put_set("nodeset", nodes, 0, 0);
    put_set("complete_nodeset", nodes, 0, 0);
    put_set("allowed_nodeset", nodes, 0, 0);
    put(">");
    for (unsigned i = 0; i < children; i++)
        put_object(child[i], cpus, nodes);
    put("</object></topology>\n");
}

/* --- hwloc's own faults ----------------------------------------------------------------------- */

static jmp_buf refused;
static bool loading;

/* Some files fail assertions of hwloc, which is not what is tested: they count as refused. hwloc
 * finds this function in place of the C library's, which <assert.h> declares unless NDEBUG is set.
 */
TWILL_EXPORTED void __assert_fail(const char *assertion, const char *file, unsigned line,
                                  const char *function);
TWILL_EXPORTED void __assert_fail(const char *assertion, const char *file, unsigned line,
                                  const char *function)
{
    fprintf(stderr, "%s:%u: %s: %s\n", file, line, function, assertion);
    if (!loading)
        abort();
    longjmp(refused, 1);
}

/* Open a topology, or leave what hwloc then has allocated. */
static twill_status load(struct twill_topology **topology, const char *text,
                         struct twill_error *error)
{
    volatile twill_status status = TWILL_ERR_CONFIG;
    __lsan_disable();
    loading = true;
    if (setjmp(refused) == 0)
        status = twill_topology_open(topology, text, error);
    else
        (void)TWILL_FAIL(error, TWILL_ERR_CONFIG, "hwloc has failed");
    loading = false;
    __lsan_enable();
    return status;
}

/* --- what users do with it -------------------------------------------------------------------- */

static void check_machine(const struct twill_machine *m)
{
    fuzz_must(memchr(m->source, '\0', sizeof(m->source)) != NULL);
    fuzz_must(memchr(m->model, '\0', sizeof(m->model)) != NULL);
    fuzz_must(memchr(m->cpu, '\0', sizeof(m->cpu)) != NULL);
    fuzz_must(m->numa_nodes <= TWILL_MAX_NUMA && !m->is_this_machine);
}

static void check_units(const struct twill_topology *topology, const struct twill_cpus *cpus)
{
    const struct twill_machine *m = twill_topology_machine(topology);
    struct twill_units units;
    twill_topology_units(topology, cpus, &units);
    /* CPUs whose node is missing have a number for each package, above those of nodes. */
    fuzz_must(units.numa < (int)(m->numa_nodes + m->packages) && units.package < (int)m->packages);
}

/* As twillrun and twill-place do for ranks of a host. */
static void bind_ranks(const struct twill_topology *topology)
{
    struct twill_cpus cpus[RANKS], whole;
    struct twill_error error = {0};
    char text[64];
    bool own;
    twill_topology_cpus(topology, &whole);
    for (unsigned n = 1; n <= RANKS; n++) {
        enum twill_bound_to to = (enum twill_bound_to)(n % (TWILL_BOUND_TO_PACKAGE + 1));
        if (twill_topology_bind(topology, n, to, cpus, &error) != TWILL_OK)
            continue;
        for (unsigned r = 0; r < n; r++) {
            for (unsigned w = 0; w < TWILL_CPUS_MOST / 64; w++)
                fuzz_must((cpus[r].word[w] & ~whole.word[w]) == 0);
            check_units(topology, &cpus[r]);
            int pu[2 * RANKS];
            if (twill_topology_threads(topology, &cpus[r], 2 * n, pu) > 0)
                for (unsigned t = 0; t < 2 * n; t++)
                    fuzz_must(cpus[r].word[pu[t] / 64] >> pu[t] % 64 & 1);
            (void)twill_topology_spare(topology, cpus, n, r);
            (void)twill_topology_helper(topology, cpus, n, r, 2, 1, &own);
        }
        (void)twill_topology_bind_each(topology, n, 2, true, cpus, &error);
        (void)twill_topology_advise(topology, n - 1, n, text, sizeof(text), &error);
    }
    fuzz_must(memchr(error.message, '\0', sizeof(error.message)) != NULL);
}

static void look_at_nics(const struct twill_topology *topology)
{
    struct twill_nic nic;
    for (size_t i = 0; i < 8 && twill_topology_nic(topology, i, &nic); i++) {
        fuzz_must(memchr(nic.name, '\0', sizeof(nic.name)) != NULL && nic.distance <= 2);
        (void)twill_topology_nic_named(topology, nic.name, &nic);
    }
    (void)twill_topology_nic_at(topology, 0, 0, 2, 0, &nic);
}

static void use_topology(const char *text)
{
    struct twill_topology *topology = NULL;
    struct twill_error error = {0};
    struct twill_place place;
    if (load(&topology, text, &error) != TWILL_OK) {
        fuzz_must(error.message[0] != '\0' && topology == NULL);
        return;
    }
    check_machine(twill_topology_machine(topology));
    for (int turn = 0; turn < 2; turn++) {
        twill_topology_place(topology, &place);
        check_units(topology, NULL);
        (void)twill_topology_cores(topology);
        bind_ranks(topology);
        if (twill_topology_locate(topology, "1,3,5-600", &error) != TWILL_OK)
            break;
    }
    twill_topology_place_pu(topology, 1, &place);
    look_at_nics(topology);
    twill_topology_close(topology);
}

/* Return whether hwloc would take long for it. */
static bool is_large(const char *text)
{
    double all = 1;
    for (const char *c = text; *c != '\0';) {
        char *end = NULL;
        double n = isdigit((unsigned char)*c) ? strtod(c, &end) : 1;
        all *= n > 1 ? n : 1;
        c = end != NULL && end > c ? end : c + 1;
    }
    return all > PUS_MOST;
}

static void use_file(const void *data, size_t size)
{
    char path[64];
    int fd = fuzz_file(data, size, path);
    use_topology(path);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct twill_topology *kept; /* so that hwloc does not look for its plugins each time */
    struct twill_error error = {0};
    if (kept == NULL) {
        setenv("HWLOC_LIBXML_IMPORT", "0", 1); /* hwloc's own parser, which is quicker */
        fuzz_must(twill_topology_open(&kept, "pu:1", &error) == TWILL_OK);
    }
    if (size == 0)
        return 0;
    if (data[0] == '<') {
        use_file(data, size);
    } else if (isalpha(data[0]) || data[0] == '[') {
        char *text = fuzz_text(data, size);
        if (!is_large(text) && strchr(text, '/') == NULL && access(text, F_OK) != 0)
            use_topology(text);
        free(text);
    } else {
        input = data + 1;
        input_size = size - 1;
        write_xml();
        use_file(xml, used);
    }
    return 0;
}
