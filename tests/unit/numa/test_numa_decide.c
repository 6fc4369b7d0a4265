/* SPDX-License-Identifier: Apache-2.0 */
/* What each value of TWILL_MEMORY resolves to on each kind of machine, and which are refused. */
#include "numa/memory.h"
#include "tests/support/machines.h"
#include "tests/support/unit.h"

enum { DDR = TWILL_KIND_DDR, MCDRAM = TWILL_KIND_MCDRAM, CXL = TWILL_KIND_CXL };
enum {
    PREFERRED = TWILL_MODE_PREFERRED,
    BIND = TWILL_MODE_BIND,
    INTERLEAVE = TWILL_MODE_INTERLEAVE
};
enum { REFUSED = -1 };

#define FLAT     "vm-knl-quadrant-flat.xml"
#define CACHE    "vm-knl-quadrant-cache.xml"
#define SNC4     "vm-knl-snc4-flat.xml"
#define HYBRID25 "synth-knl-quadrant-hybrid25.xml"
#define HYBRID50 "synth-knl-quadrant-hybrid50.xml"
#define XEON     "linux-40intel64-2g2n4c+pci.xml"
#define HBM_NVM  "synth-hbm-nvm.xml"
#define HBM_CXL  "synth-hbm-cxl.xml"

/* The policy of a value on a machine, and what its reason or the refusal says. */
static const struct decision {
    const char *file, *cpus, *text, *hbw;
    int kind, mode;
    uint64_t nodes;
    const char *said;
} decisions[] = {
    {FLAT, NULL, "auto", NULL, MCDRAM, PREFERRED, 0x2, "251 MiB MCDRAM at NUMA 1"},
    {FLAT, NULL, "", NULL, MCDRAM, PREFERRED, 0x2, "auto: "},
    {FLAT, NULL, NULL, NULL, MCDRAM, PREFERRED, 0x2, "auto: "},
    {FLAT, NULL, "ddr", NULL, DDR, PREFERRED, 0, "ddr: DDR"},
    {FLAT, NULL, "ddr", "1", DDR, PREFERRED, 0, "ddr: DDR"},
    {FLAT, NULL, "mcdram", NULL, MCDRAM, PREFERRED, 0x2, "preferred"},
    {FLAT, NULL, "mcdram:bind", NULL, MCDRAM, BIND, 0x2, "bound"},
    {FLAT, NULL, "mcdram:interleave", NULL, MCDRAM, INTERLEAVE, 0x2, "interleaved"},
    {SNC4, "4-5", "auto", NULL, MCDRAM, PREFERRED, 0x40, "at NUMA 6"},
    {SNC4, "0", "mcdram:bind", NULL, MCDRAM, BIND, 0x10, "at NUMA 4"},
    {SNC4, "2-3", "mcdram:interleave", NULL, MCDRAM, INTERLEAVE, 0xf0, "at NUMA 4,5,6,7"},
    {SNC4, NULL, "mcdram:preferred", NULL, MCDRAM, PREFERRED, 0xf0, "503 MiB"},
    {HYBRID50, NULL, "auto", NULL, MCDRAM, PREFERRED, 0x2, "125 MiB MCDRAM at NUMA 1"},
    {HYBRID50, NULL, "mcdram:bind", NULL, MCDRAM, BIND, 0x2, "bound"},
    {HYBRID25, NULL, "auto", NULL, MCDRAM, PREFERRED, 0x2, "188 MiB MCDRAM at NUMA 1"},
    {HYBRID25, NULL, "mcdram:interleave", NULL, MCDRAM, INTERLEAVE, 0x2, "interleaved"},
    {CACHE, NULL, "auto", NULL, DDR, PREFERRED, 0, "memory mode Cache"},
    {CACHE, NULL, "mcdram", NULL, DDR, PREFERRED, 0, "memory mode Cache"},
    {CACHE, NULL, "mcdram:bind", NULL, REFUSED, 0, 0, "memory mode Cache"},
    {"linux-64intel64-fakeKNL-A2A-cache.xml", NULL, "auto", NULL, DDR, PREFERRED, 0, "Cache"},
    {"linux-memorysidecaches.xml", NULL, "auto", NULL, DDR, PREFERRED, 0, "no MCDRAM"},
    {XEON, NULL, "auto", NULL, DDR, PREFERRED, 0, "no MCDRAM"},
    {XEON, NULL, "mcdram:interleave", NULL, DDR, PREFERRED, 0, "no MCDRAM"},
    {XEON, NULL, "mcdram:bind", NULL, REFUSED, 0, 0, "no MCDRAM"},
    {XEON, NULL, "mcdram:bind", "", REFUSED, 0, 0, "no MCDRAM"},
    {XEON, NULL, "mcdram:bind", "1,3", MCDRAM, BIND, 0xa, "MEMKIND_HBW_NODES"},
    {XEON, "1", "mcdram:bind", "0-2", MCDRAM, BIND, 0x2, "at NUMA 1,"},
    {XEON, NULL, "auto", "2", MCDRAM, PREFERRED, 0x4, "at NUMA 2,"},
    {XEON, NULL, "mcdram", "4", DDR, PREFERRED, 0, "MEMKIND_HBW_NODES=4 names"},
    {XEON, NULL, "auto", "junk", DDR, PREFERRED, 0, "MEMKIND_HBW_NODES=junk is no"},
    {XEON, NULL, "mcdram:bind", "4", REFUSED, 0, 0, "MEMKIND_HBW_NODES=4"},
    {XEON, NULL, "mcdram:bind", "0,", REFUSED, 0, 0, "MEMKIND_HBW_NODES=0,"},
    {XEON, NULL, "mcdram:bind", "3-1", REFUSED, 0, 0, "MEMKIND_HBW_NODES"},
    {XEON, NULL, "mcdram:bind", "-1", REFUSED, 0, 0, "MEMKIND_HBW_NODES"},
    {XEON, NULL, "mcdram:bind", "99999999999999999999", REFUSED, 0, 0, "MEMKIND_HBW_NODES"},
    {FLAT, NULL, "hbm", NULL, MCDRAM, PREFERRED, 0x2, "hbm: 251 MiB MCDRAM at NUMA 1, preferred"},
    {SNC4, "0", "hbm:bind", NULL, MCDRAM, BIND, 0x10, "at NUMA 4, bound"},
    {CACHE, NULL, "hbm:bind", NULL, REFUSED, 0, 0, "memory mode Cache"},
    {XEON, NULL, "hbm:preferred", NULL, DDR, PREFERRED, 0, "no MCDRAM"},
    {HBM_NVM, "0", "hbm:bind", NULL, MCDRAM, BIND, 0x2, "hbm:bind: 14 GiB HBM at NUMA 1, bound"},
    {HBM_NVM, "2", "mcdram:bind", NULL, MCDRAM, BIND, 0x10, "14 GiB HBM at NUMA 4"},
    {HBM_NVM, NULL, "hbm:interleave", NULL, MCDRAM, INTERLEAVE, 0x12, "HBM at NUMA 1,4"},
    {HBM_CXL, "0", "cxl:bind", NULL, CXL, BIND, 0x4, "cxl:bind: 476 GiB CXL at NUMA 2, bound"},
    {HBM_CXL, NULL, "cxl:interleave", "1", CXL, INTERLEAVE, 0x24, "CXL at NUMA 2,5"},
    {HBM_CXL, "0", "hbm:bind", NULL, MCDRAM, BIND, 0x2, "HBM at NUMA 1"},
    {HBM_NVM, NULL, "cxl:bind", NULL, REFUSED, 0, 0, "no CXL node"},
    {HBM_NVM, NULL, "cxl", NULL, DDR, PREFERRED, 0, "no CXL node"},
    {FLAT, NULL, "nvm", NULL, REFUSED, 0, 0, "TWILL_MEMORY=nvm"},
    {FLAT, NULL, "MCDRAM", NULL, REFUSED, 0, 0, "mcdram:interleave"},
    {FLAT, NULL, "mcdram:", NULL, REFUSED, 0, 0, "valid are auto, ddr, mcdram"},
    {FLAT, NULL, "mcdram:bind ", NULL, REFUSED, 0, 0, "mcdram:preferred"},
    {FLAT, NULL, "auto,ddr", NULL, REFUSED, 0, 0, "TWILL_MEMORY"},
};

static void check_decision(const struct decision *d, const struct twill_machine *machine)
{
    struct twill_error error = {0};
    struct twill_memory_policy policy;
    print_message("%s %s %s\n", d->file, d->text != NULL ? d->text : "(none)",
                  d->hbw != NULL ? d->hbw : "");
    twill_status status = twill_memory_decide(&policy, d->text, machine, d->hbw, &error);
    const char *said = d->kind == REFUSED ? error.message : policy.why;
    assert_int_equal(status, d->kind == REFUSED ? TWILL_ERR_CONFIG : TWILL_OK);
    if (strstr(said, d->said) == NULL)
        fail_msg("\"%s\" should say \"%s\"", said, d->said);
    if (d->kind == REFUSED) {
        assert_non_null(strstr(error.message, "TWILL_MEMORY"));
        return;
    }
    assert_int_equal(policy.kind, d->kind);
    assert_int_equal(policy.mode, d->mode);
    assert_int_equal(policy.nodes, d->nodes);
    assert_int_equal(policy.nominal != NULL, !machine->is_this_machine);
}

TWILL_TEST(test_decisions)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(decisions); i++) {
        struct twill_topology *topology = open_recorded(decisions[i].file);
        struct twill_error error = {0};
        assert_int_equal(twill_topology_locate(topology, decisions[i].cpus, &error), TWILL_OK);
        check_decision(&decisions[i], twill_topology_machine(topology));
        twill_topology_close(topology);
    }
}

/* Persistent memory is neither DDR nor HBM, and has no CPUs: next to DRAM and HBM, next to HBM
 * only, and with a set of CPUs that no other node has. */
TWILL_TEST(test_nvm)
{
    static const struct {
        unsigned os_index;
        int kind;
        bool has_cpus;
    } nodes[] = {{0, DDR, true},    {1, MCDRAM, false},           {2, TWILL_KIND_OTHER, false},
                 {4, MCDRAM, true}, {5, TWILL_KIND_OTHER, false}, {6, TWILL_KIND_OTHER, false}};
    struct twill_topology *topology = open_recorded(HBM_NVM);
    const struct twill_machine *m = twill_topology_machine(topology);
    assert_int_equal(m->numa_nodes, TWILL_ARRAY_LENGTH(nodes));
    for (unsigned i = 0; i < m->numa_nodes; i++) {
        assert_int_equal(m->numa[i].os_index, nodes[i].os_index);
        assert_int_equal(m->numa[i].kind, nodes[i].kind);
        assert_int_equal(m->numa[i].has_cpus, nodes[i].has_cpus);
    }
    twill_topology_close(topology);
}

TWILL_TEST(test_l3_caches)
{
    static const struct {
        const char *file;
        unsigned caches;
    } machines[] = {{HBM_NVM, 2},
                    {"x86-AMD-19h-Zen3-2xEpyc-7763.xml", 16},
                    {CACHE, 0},
                    {"linux-memorysidecaches.xml", 2}};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(machines); i++) {
        struct twill_topology *topology = open_recorded(machines[i].file);
        assert_int_equal(twill_topology_machine(topology)->l3_caches, machines[i].caches);
        twill_topology_close(topology);
    }
}

/* Two sockets of a Xeon Max in flat mode: DDR 0 and 1, HBM 2 and 3; the process on socket 1. */
TWILL_TEST(test_xeon_max)
{
    struct twill_machine machine = {
        .is_this_machine = true, .numa_nodes = 4, .hbm_is_faster = true};
    for (unsigned i = 0; i < 4; i++)
        machine.numa[i] = (struct twill_numa_node){
            .os_index = i,
            .kind = i < 2 ? TWILL_KIND_DDR : TWILL_KIND_MCDRAM,
            .bytes = (uint64_t)(i < 2 ? 256 : 64) << 30,
            .has_cpus = i < 2,
            .local = i % 2 == 1,
        };
    static const struct decision rows[] = {
        {"max", NULL, "auto", NULL, MCDRAM, PREFERRED, 0x8, "64 GiB HBM at NUMA 3"},
        {"max", NULL, "mcdram:bind", NULL, MCDRAM, BIND, 0x8, "64 GiB"},
        {"max", NULL, "mcdram:interleave", NULL, MCDRAM, INTERLEAVE, 0xc, "128 GiB"},
        {"max", NULL, "mcdram:bind", "0", MCDRAM, BIND, 0x1, "at NUMA 0"},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(rows); i++)
        check_decision(&rows[i], &machine);
    static const struct decision beyond[] = {
        {"max", NULL, "auto", NULL, DDR, PREFERRED, 0, "NUMA nodes of numbers above 127"},
        {"max", NULL, "mcdram:bind", NULL, REFUSED, 0, 0, "NUMA nodes of numbers above 127"},
    };
    machine.numa[2].os_index = 128;
    machine.numa[3].os_index = 129;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(beyond); i++)
        check_decision(&beyond[i], &machine);
}

/* Of MCDRAM at one cluster only: where auto takes it, and where DDR is the faster. */
TWILL_TEST(test_hbm_is_faster)
{
    static const char *const local[][2] = {
        {"allowed_nodeset=\"0x000000ff\"", "allowed_nodeset=\"0x0000001f\""}, {NULL, NULL}};
    static const char *const known[][2] = {
        {"allowed_nodeset=\"0x000000ff\"", "allowed_nodeset=\"0x0000001f\""},
        {"index=\"49\" value=\"90000\"", "index=\"48\" value=\"90000\""},
        {"index=\"50\" value=\"90000\"", "index=\"48\" value=\"15000\""},
        {NULL, NULL}};
    static const struct {
        const char *const (*changes)[2];
        const char *cpus;
        bool faster;
    } rows[] = {{local, "0", true},   {local, "2", false}, {local, "0,2", false},
                {local, NULL, false}, {known, "0", true},  {known, "2", true},
                {known, "4", false},  {known, "6", false}, {known, "0-3", true}};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(rows); i++) {
        struct twill_error error = {0};
        struct twill_memory_policy policy;
        struct twill_topology *topology = open_altered(SNC4, rows[i].changes);
        assert_int_equal(twill_topology_locate(topology, rows[i].cpus, &error), TWILL_OK);
        const struct twill_machine *m = twill_topology_machine(topology);
        print_message("CPUs %s\n", rows[i].cpus != NULL ? rows[i].cpus : "all");
        assert_int_equal(m->barred_hbm, 0xe0);
        assert_int_equal(m->hbm_is_faster, rows[i].faster);
        assert_int_equal(twill_memory_decide(&policy, "auto", m, NULL, &error), TWILL_OK);
        assert_int_equal(policy.nodes, rows[i].faster ? 0x10 : 0);
        assert_false(policy.missed);
        assert_int_equal(twill_memory_decide(&policy, "mcdram", m, NULL, &error), TWILL_OK);
        assert_int_equal(policy.nodes, 0x10);
        twill_topology_close(topology);
    }
}

/* A cpuset allows one of two NUMA nodes: kinds are the same, and what is not allowed is not said
 * to be missing. */
TWILL_TEST(test_restricted)
{
    static const char *const changes[][4][2] = {
        {{"allowed_nodeset=\"0x00000003\"", "allowed_nodeset=\"0x00000001\""}, {NULL, NULL}},
        {{"allowed_nodeset=\"0x00000003\"", "allowed_nodeset=\"0x00000002\""}, {NULL, NULL}},
        {{"allowed_nodeset=\"0x00000003\"", "allowed_nodeset=\"0x00000002\""},
         {" subtype=\"MCDRAM\"", ""},
         {"Number\" value=\"87\"", "Number\" value=\"99\""},
         {NULL, NULL}},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(changes); i++) {
        struct twill_error error = {0};
        struct twill_memory_policy policy;
        struct twill_topology *topology = open_altered(FLAT, changes[i]);
        const struct twill_machine *m = twill_topology_machine(topology);
        assert_int_equal(m->numa_nodes, 1);
        twill_status status = twill_memory_decide(&policy, "mcdram:bind", m, NULL, &error);
        if (i == 0) {
            assert_int_equal(status, TWILL_ERR_CONFIG);
            assert_non_null(strstr(error.message, "MCDRAM at NUMA 1 is not allowed here (cpuset)"));
        } else {
            assert_int_equal(status, TWILL_OK);
            assert_int_equal(policy.nodes, 2);
            assert_int_equal(twill_memory_decide(&policy, "auto", m, NULL, &error), TWILL_OK);
            assert_int_equal(policy.nodes, 2);
            assert_false(m->numa[0].has_cpus);
        }
        twill_topology_close(topology);
    }
}

/* CPUs whose NUMA node has no memory are together with those of their package. */
TWILL_TEST(test_no_memory)
{
    static const char *const changes[][2] = {
        {"allowed_nodeset=\"0x0000000f\"", "allowed_nodeset=\"0x00000005\""}, {NULL, NULL}};
    struct twill_topology *topology = open_altered(XEON, changes);
    struct twill_units units[8];
    assert_int_equal(twill_topology_machine(topology)->numa_nodes, 2);
    for (unsigned pu = 0; pu < 8; pu++) { /* of packages 0, 1, 2, 3, 0, ... */
        struct twill_cpus one = {{UINT64_C(1) << pu}};
        twill_topology_units(topology, &one, &units[pu]);
        assert_int_equal(units[pu].package, pu % 4);
        assert_true(units[pu].l3 >= 0 && units[pu].numa >= 0);
    }
    for (unsigned a = 0; a < 8; a++)
        for (unsigned b = 0; b < 8; b++)
            assert_int_equal(units[a].numa == units[b].numa, a % 4 == b % 4);
    struct twill_cpus two = {{0x3}}, empty = {{0xe}};
    twill_topology_units(topology, &two, &units[0]);
    twill_topology_units(topology, &empty, &units[1]);
    assert_int_equal(units[0].numa, -1);
    assert_int_equal(units[1].numa, -1);
    twill_topology_close(topology);
}
