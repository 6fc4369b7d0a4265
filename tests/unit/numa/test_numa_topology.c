/* SPDX-License-Identifier: Apache-2.0 */
/* Recorded and synthetic machines: what they look like, and which descriptions are refused. */
#include "numa/topology.h"
#include "tests/support/machines.h"
#include "tests/support/unit.h"

#define GIB (UINT64_C(1) << 30)
#define MIB (UINT64_C(1) << 20)

/* Counts as hwloc-info prints them for the file. */
static const struct machine_expected {
    const char *file;
    unsigned packages, numa, cores, pus, pus_per_core, cores_per_l2;
    const char *memory_mode, *cluster_mode;
    unsigned mcdram;
    uint64_t mcdram_bytes, l3_bytes, side_bytes;
    const char *model; /* start of it */
} machines[] = {
    {"96em64t-4n4d3ca2co-pci.xml", 16, 4, 96, 96, 1, 2, "", "", 0, 0, 16 * MIB, 0, ""},
    {"linux-32amd64-4s2n4c-cgroup2.xml", 3, 6, 6, 6, 1, 1, "", "", 0, 0, 5118 << 10, 0,
     "AMD Opteron(tm) Processor 6134"},
    {"linux-40intel64-2g2n4c+pci.xml", 4, 4, 40, 40, 1, 1, "", "", 0, 0, 30 * MIB, 0,
     "Intel(R) Xeon(R) CPU E7- 4870"},
    {"linux-64intel64-fakeKNL-A2A-cache.xml", 1, 1, 16, 64, 4, 2, "Cache", "All2All", 0, 0, 0,
     16 * GIB, "06/57"},
    {"linux-memorysidecaches.xml", 2, 4, 40, 80, 2, 1, "", "", 0, 0, 28160 << 10, 384 * GIB,
     "Intel(R) Xeon(R) Gold 6230"},
    {"vm-knl-quadrant-cache.xml", 1, 1, 4, 8, 2, 1, "Cache", "Quadrant", 0, 0, 0, 16 * MIB,
     "Intel Xeon Phi Processor"},
    {"vm-knl-quadrant-flat.xml", 1, 2, 4, 8, 2, 1, "Flat", "Quadrant", 1, 263876608, 16 * MIB, 0,
     "Intel Xeon Phi Processor"},
    {"vm-knl-snc4-flat.xml", 1, 8, 8, 8, 1, 1, "Flat", "SNC4", 4, 527577088, 16 * MIB, 0,
     "Intel Xeon Phi Processor"},
    {"x86-AMD-19h-Zen3-2xEpyc-7763.xml", 2, 1, 128, 128, 1, 1, "", "", 0, 0, 32 * MIB, 0,
     "AMD EPYC 7763 64-Core Processor"},
    {"x86-Intel-KnightsLanding-XeonPhi-7210.xml", 1, 1, 64, 256, 4, 2, "", "", 0, 0, 0, 0,
     "Intel(R) Xeon Phi(TM) CPU 7210"},
    {"x86-Intel-Skylake-2xXeon6140.xml", 2, 1, 36, 72, 2, 1, "", "", 0, 0, 25344 << 10, 0,
     "Intel(R) Xeon(R) Gold 6140"},
};

static const char theta[] =
    "pack:1 [numa(memory=192GB)] [numa(memory=16GB)] l2:32 core:2 pu:4(indexes=4*64:1*4)";

/* Check what holds for every machine. */
static void check_invariants(const struct twill_machine *m)
{
    unsigned local = 0;
    assert_true(m->packages >= 1 && m->cores >= 1 && m->pus >= m->cores);
    assert_in_range(m->numa_nodes, 1, TWILL_MAX_NUMA);
    assert_in_range(m->allowed_pus, 1, m->pus);
    assert_in_range(m->pus_per_core, 1, m->pus);
    for (unsigned i = 0; i < m->numa_nodes; i++) {
        local += m->numa[i].local;
        if (m->numa[i].kind == TWILL_KIND_MCDRAM)
            assert_false(m->numa[i].has_cpus);
        if (!m->is_this_machine)
            assert_int_equal(m->numa[i].free_bytes, 0);
        for (unsigned j = 0; j < i; j++)
            assert_int_not_equal(m->numa[i].os_index, m->numa[j].os_index);
    }
    assert_true(local >= 1);
}

TWILL_TEST(test_recorded_machines)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(machines); i++) {
        const struct machine_expected *e = &machines[i];
        struct twill_topology *topology = open_recorded(e->file);
        const struct twill_machine *m = twill_topology_machine(topology);
        unsigned mcdram = 0;
        uint64_t bytes = 0;
        print_message("%s\n", e->file);
        check_invariants(m);
        assert_false(m->is_this_machine);
        assert_int_equal(strncmp(m->source, "file ", 5), 0);
        assert_int_equal(m->packages, e->packages);
        assert_int_equal(m->numa_nodes, e->numa);
        assert_int_equal(m->cores, e->cores);
        assert_int_equal(m->pus, e->pus);
        assert_int_equal(m->pus_per_core, e->pus_per_core);
        assert_int_equal(m->cores_per_l2, e->cores_per_l2);
        assert_string_equal(m->memory_mode, e->memory_mode);
        assert_string_equal(m->cluster_mode, e->cluster_mode);
        assert_int_equal(m->l3_bytes, e->l3_bytes);
        assert_int_equal(m->side_cache_bytes, e->side_bytes);
        assert_int_equal(strncmp(m->model, e->model, strlen(e->model)), 0);
        for (unsigned n = 0; n < m->numa_nodes; n++) {
            assert_int_not_equal(m->numa[n].kind, TWILL_KIND_OTHER);
            if (m->numa[n].kind == TWILL_KIND_MCDRAM) {
                mcdram++;
                bytes += m->numa[n].bytes;
            }
        }
        assert_int_equal(mcdram, e->mcdram);
        assert_int_equal(bytes, e->mcdram_bytes);
        twill_topology_close(topology);
    }
}

/* Return the set of PUs from .. to - 1. */
static struct twill_cpus cpus_of(unsigned from, unsigned to)
{
    struct twill_cpus cpus = {{0}};
    for (unsigned i = from; i < to; i++)
        cpus.word[i / 64] |= UINT64_C(1) << i % 64;
    return cpus;
}

/* Where a helper thread of a rank runs. */
TWILL_TEST(test_spare)
{
    /* two NUMA nodes of 4 cores of 2 PUs: 0 .. 7 and 8 .. 15 */
    struct twill_topology *topology = open_machine("numa:2 core:4 pu:2");
    struct twill_cpus ranks[6] = {cpus_of(0, 2), cpus_of(8, 10),  cpus_of(2, 4),
                                  cpus_of(4, 5), cpus_of(10, 16), cpus_of(0, 16)};
    /* whole cores of the rank's node first; the node's other ranks get the next PUs */
    assert_int_equal(twill_topology_spare(topology, ranks, 1, 0), 2);
    assert_int_equal(twill_topology_spare(topology, ranks, 2, 0), 2);
    assert_int_equal(twill_topology_spare(topology, ranks, 2, 1), 10);
    assert_int_equal(twill_topology_spare(topology, ranks, 4, 0), 6); /* core 3 has no rank */
    assert_int_equal(twill_topology_spare(topology, ranks, 4, 2),
                     5); /* rank 3 runs on its sibling */
    assert_int_equal(twill_topology_spare(topology, ranks, 4, 3), 7);
    /* none left in the node of ranks 1 and 4: one of another node; none left at all: -1 */
    assert_int_equal(twill_topology_spare(topology, ranks, 5, 1), 5);
    assert_int_equal(twill_topology_spare(topology, ranks, 6, 0), -1);
    /* two threads a rank: the next PUs; where ranks run everywhere, the last ones of their own, if
     * one is left */
    bool own = true;
    assert_int_equal(twill_topology_helper(topology, ranks, 2, 0, 2, 1, &own), 4);
    assert_false(own);
    assert_int_equal(twill_topology_helper(topology, ranks, 2, 1, 2, 1, &own), 12);
    assert_int_equal(twill_topology_helper(topology, &ranks[5], 1, 0, 2, 0, &own), 15);
    assert_true(own);
    assert_int_equal(twill_topology_helper(topology, &ranks[5], 1, 0, 2, 1, &own), 13);
    const struct twill_cpus shared[2] = {ranks[5], ranks[5]};
    assert_int_equal(twill_topology_helper(topology, shared, 2, 1, 7, 0, &own), 1);
    assert_int_equal(twill_topology_helper(topology, shared, 2, 1, 8, 0, &own), -1);
    struct twill_place place;
    twill_topology_place_pu(topology, 11, &place);
    assert_int_equal(place.numa, 1);
    assert_int_equal(place.core, 5);
    twill_topology_close(topology);
    struct twill_cpus here;
    topology = open_machine(NULL);
    twill_topology_cpus(topology, &here);
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
    for (unsigned i = 0; i < TWILL_CPUS_MOST; i++)
        assert_int_equal(here.word[i / 64] >> i % 64 & 1, CPU_ISSET(i, &set) != 0);
    twill_topology_close(topology);
}

TWILL_TEST(test_theta_synthetic)
{
    struct twill_topology *topology = open_machine(theta);
    const struct twill_machine *m = twill_topology_machine(topology);
    check_invariants(m);
    assert_int_equal(strncmp(m->source, "synthetic pack:1", 16), 0);
    assert_int_equal(m->packages, 1);
    assert_int_equal(m->cores, 64);
    assert_int_equal(m->cores_per_l2, 2);
    assert_int_equal(m->pus_per_core, 4);
    assert_int_equal(m->pus, 256);
    assert_int_equal(m->numa_nodes, 2);
    assert_int_equal(m->numa[0].bytes, UINT64_C(192000000000));
    assert_int_equal(m->numa[1].bytes, UINT64_C(16000000000));
    assert_true(m->numa[0].has_cpus);
    assert_false(m->numa[1].has_cpus);
    /* The description names no kind of memory, so none is claimed. */
    assert_int_equal(m->numa[1].kind, TWILL_KIND_OTHER);
    char text[64];
    struct twill_error error = {0};
    assert_int_equal(twill_topology_advise(topology, 1, 16, text, sizeof(text), &error), TWILL_OK);
    assert_string_equal(text, "4-7,68-71,132-135,196-199");
    twill_topology_close(topology);
}

TWILL_TEST(test_this_machine)
{
    struct twill_topology *topology = open_machine(NULL);
    const struct twill_machine *m = twill_topology_machine(topology);
    check_invariants(m);
    if (getenv("HWLOC_XMLFILE") == NULL && getenv("HWLOC_SYNTHETIC") == NULL) {
        assert_true(m->is_this_machine);
        assert_string_equal(m->source, "this machine");
        assert_true(m->numa[0].free_bytes > 0);
    }
    struct twill_place place, again;
    twill_topology_place(topology, &place);
    twill_topology_place(topology, &again);
    assert_int_equal(place.cpus, m->allowed_pus);
    assert_true(place.cpuset_hash != 0 && place.cpuset_hash == again.cpuset_hash);
    struct twill_nic nic;
    for (size_t i = 0; twill_topology_nic(topology, i, &nic); i++)
        print_message("NIC %s (%s) near NUMA %d\n", nic.name, nic.kind, nic.numa);
    struct twill_error error = {0};
    assert_int_equal(twill_topology_locate(topology, "0", &error), TWILL_ERR_ARGUMENT);
    twill_topology_close(topology);
}

static unsigned count_kind(const struct twill_machine *m, enum twill_memory_kind kind)
{
    unsigned n = 0;
    for (unsigned i = 0; i < m->numa_nodes; i++)
        n += m->numa[i].kind == kind;
    return n;
}

/* Without a subtype the kind is decided by bandwidth, without that by the KNL's CPUID. */
TWILL_TEST(test_kinds_without_names)
{
    static const char *const changes[][5][2] = {
        {{" subtype=\"MCDRAM\"", ""},
         {"Number\" value=\"87\"", "Number\" value=\"99\""},
         {NULL, NULL}},
        {{" subtype=\"MCDRAM\"", ""}, {"name=\"Bandwidth\"", "name=\"Somewidth\""}, {NULL, NULL}},
        {{" subtype=\"MCDRAM\"", ""},
         {"Number\" value=\"87\"", "Number\" value=\"99\""},
         {"name=\"Bandwidth\"", "name=\"Somewidth\""},
         {NULL, NULL}},
        {{" subtype=\"MCDRAM\"", " subtype=\"HBM\""}, {NULL, NULL}},
        /* half as fast again as their DDR; one slower than its own, though not than other DDR */
        {{" subtype=\"MCDRAM\"", ""},
         {"Number\" value=\"87\"", "Number\" value=\"99\""},
         {"value=\"22500\"", "value=\"60000\""},
         {NULL, NULL}},
        {{" subtype=\"MCDRAM\"", ""},
         {"Number\" value=\"87\"", "Number\" value=\"99\""},
         {"index=\"44\" value=\"22500\"", "index=\"44\" value=\"99000\""},
         {NULL, NULL}},
    };
    static const unsigned mcdram[] = {4, 4, 0, 4, 4, 3};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(changes); i++) {
        struct twill_topology *topology = open_altered("vm-knl-snc4-flat.xml", changes[i]);
        const struct twill_machine *m = twill_topology_machine(topology);
        check_invariants(m);
        assert_int_equal(count_kind(m, TWILL_KIND_MCDRAM), mcdram[i]);
        assert_int_equal(count_kind(m, TWILL_KIND_DDR), 4);
        twill_topology_close(topology);
    }
}

/* On SNC4 each cluster has its DDR (0..3) and its MCDRAM (4..7) by os_index. */
TWILL_TEST(test_local_nodes)
{
    struct twill_error error = {0};
    struct twill_topology *topology = open_recorded("vm-knl-snc4-flat.xml");
    const struct twill_machine *m = twill_topology_machine(topology);
    for (unsigned i = 0; i < m->numa_nodes; i++)
        assert_true(m->numa[i].local); /* it may run anywhere */
    static const struct {
        const char *cpus;
        unsigned nodes; /* os indices that are local, as bits */
        int numa, core;
    } places[] = {{"0-1", 0x11, 0, -1},
                  {"3", 0x22, 2, 3},
                  {"4-5", 0x44, 4, -1},
                  {"7", 0x88, 6, 7},
                  {"1-2", 0x33, -1, -1}};
    for (size_t p = 0; p < TWILL_ARRAY_LENGTH(places); p++) {
        struct twill_place place;
        assert_int_equal(twill_topology_locate(topology, places[p].cpus, &error), TWILL_OK);
        unsigned local = 0;
        for (unsigned i = 0; i < m->numa_nodes; i++)
            local |= m->numa[i].local ? 1u << m->numa[i].os_index : 0;
        assert_int_equal(local, places[p].nodes);
        twill_topology_place(topology, &place);
        assert_int_equal(place.numa, places[p].numa);
        assert_int_equal(place.core, places[p].core);
        assert_int_equal(place.package, 0);
        assert_int_equal(place.cpus, m->allowed_pus);
    }
    assert_int_equal(twill_topology_locate(topology, "100-200", &error), TWILL_ERR_ARGUMENT);
    twill_error_clear(&error);
    assert_int_equal(twill_topology_locate(topology, "junk", &error), TWILL_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "junk"));
    twill_topology_close(topology);
}

TWILL_TEST(test_nics)
{
    struct twill_topology *topology = open_recorded("linux-40intel64-2g2n4c+pci.xml");
    struct twill_nic nic;
    size_t n = 0;
    bool eth0 = false;
    for (; twill_topology_nic(topology, n, &nic); n++) {
        assert_true(strcmp(nic.kind, "network") == 0 || strcmp(nic.kind, "openfabrics") == 0);
        assert_in_range(nic.numa + 1, 0, 4);
        eth0 |= strcmp(nic.name, "eth0") == 0 && strcmp(nic.kind, "network") == 0;
    }
    assert_true(eth0 && n >= 4);
    assert_false(twill_topology_nic(topology, 1000, &nic));
    twill_topology_close(topology);
}

/* Check that a text is refused with a message that names the variable, the text and the cause. */
static void refuse_topology(const char *text, const char *cause)
{
    struct twill_error error = {0};
    struct twill_topology *topology = (struct twill_topology *)&error;
    assert_int_equal(twill_topology_open(&topology, text, &error), TWILL_ERR_CONFIG);
    assert_null(topology);
    if (strstr(error.message, "TWILL_LAYOUT=topology") == NULL ||
        strstr(error.message, text) == NULL || strstr(error.message, cause) == NULL)
        fail_msg("\"%s\" should name %s and \"%s\"", error.message, text, cause);
}

static void refuse_bytes(const void *bytes, size_t count, const char *cause)
{
    const char *name = write_machine(bytes, count);
    refuse_topology(name, cause);
    unlink(name);
}

TWILL_TEST(test_bad_input)
{
    refuse_topology("/nowhere/knl.xml", "file not found: No such file");
    refuse_topology("missing.xml", "file not found: No such file");
    refuse_topology("/tmp", "directory");
    refuse_topology("/dev/zero", "not a regular file");
    refuse_topology("junk", "neither a file nor a synthetic");
    refuse_topology("pack:2 junk:4", "neither a file nor a synthetic");
    refuse_topology("pack:2 core:0 pu:1", "neither a file nor a synthetic");
    refuse_topology("pack:2 [numa core:2 pu:1", "neither a file nor a synthetic");
    refuse_topology("numa:99999999 pu:1", "more than");
    refuse_topology("pack:1000 core:1000 pu:1000", "more than");
    refuse_bytes("", 0, "empty");
    unsigned char random[3000];
    srand(7);
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < sizeof(random); i++)
            random[i] = (unsigned char)rand();
        refuse_bytes(random, sizeof(random), "not a topology XML");
    }
    static const char *const texts[][2] = {
        {"<?xml version=\"1.0\"?><html><body/></html>", "not a topology XML"},
        {"<topology version=\"9.0\"></topology>", "newer hwloc"},
        {"<topology version=\"2.0\"></topology>", "damaged"},
        {"<topology version=\"2.0\"><object type=\"Machine\" os_in", "hwloc can"}};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(texts); i++)
        refuse_bytes(texts[i][0], strlen(texts[i][0]), texts[i][1]);
}

#define STRANGE(sets, objects)                                                                     \
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"      \
    "<topology version=\"2.0\"><object type=\"Machine\" os_index=\"0\" gp_index=\"1\" "            \
    "allowed_cpuset="                                                                              \
    "\"0xf\" nodeset=\"0x1\" complete_nodeset=\"0x1\" allowed_nodeset=\"0x1\" " sets ">" objects   \
    "</object></topology>\n"
#define STRANGE_NODE(set)                                                                          \
    "<object type=\"NUMANode\" gp_index=\"2\" os_index=\"0\" nodeset=\"0x1\" "                     \
    "complete_nodeset=\"0x1\" "                                                                    \
    "cpuset=\"" set "\" complete_cpuset=\"" set "\" local_memory=\"4096\"/>"
#define STRANGE_PU(number, set)                                                                    \
    "<object type=\"PU\" gp_index=\"1" #number "\" os_index=\"" #number "\" nodeset=\"0x1\" "      \
    "complete_nodeset=\"0x1\" cpuset=\"" set "\" complete_cpuset=\"" set "\"/>"

/* Files that hwloc loads, of machines that do not exist: without hardware threads; with sets that
 * overlap. The fuzzer `topology` found them. */
TWILL_TEST(test_strange)
{
    static const char none[] =
        STRANGE("cpuset=\"0x1\" complete_cpuset=\"0x1\"",
                STRANGE_NODE("0x1") "<object type=\"Package\" gp_index=\"3\" "
                                    "cpuset=\"0x1\" complete_cpuset=\"0x1\" "
                                    "nodeset=\"0x1\" complete_nodeset=\"0x1\"/>");
    static const char overlap[] =
        STRANGE("cpuset=\"0xf\" complete_cpuset=\"0xf\"",
                STRANGE_NODE("0xf") STRANGE_PU(0, "0x1") STRANGE_PU(1, "0x3") STRANGE_PU(2, "0x5")
                    STRANGE_PU(3, "0x9"));
    refuse_bytes(none, strlen(none), "the topology has no hardware threads");
    struct twill_error error = {0};
    struct twill_cpus cpus[4];
    const char *name = write_machine(overlap, strlen(overlap));
    struct twill_topology *topology = open_machine(name);
    unlink(name);
    for (unsigned ranks = 1; ranks <= 4; ranks++) {
        assert_int_equal(twill_topology_bind(topology, ranks, TWILL_BOUND_TO_CORES, cpus, &error),
                         TWILL_OK);
        for (unsigned r = 0; r < ranks; r++)
            assert_true(cpus[r].word[0] != 0 && cpus[r].word[0] <= 0xf);
    }
    twill_topology_close(topology);
}

/* A file that is truncated anywhere is refused. */
TWILL_TEST(test_truncated)
{
    static char text[1 << 16];
    FILE *in = fopen(test_data("topologies/vm-knl-snc4-flat.xml"), "r");
    assert_non_null(in);
    size_t bytes = fread(text, 1, sizeof(text), in);
    fclose(in);
    assert_in_range(bytes, 5000, sizeof(text) - 1);
    for (size_t to = 200; to < bytes - 20; to += 997)
        refuse_bytes(text, to, "hwloc can");
}
