/* SPDX-License-Identifier: Apache-2.0 */
/* What each value of TWILL_MEMORY resolves to on each kind of machine, and which are refused. */
#include "numa/memory.h"
#include "tests/support/machines.h"
#include "tests/support/unit.h"

enum { DDR = TWILL_KIND_DDR, MCDRAM = TWILL_KIND_MCDRAM, CXL = TWILL_KIND_CXL };
enum {
    PREFERRED = TWILL_MODE_PREFERRED,
    DECIDE_BIND = TWILL_MODE_BIND,
    LEAVE = TWILL_MODE_INTERLEAVE
};

/* The policy of a value on a machine; `why` and `error` are contained in its messages. */
static const struct decision {
    const char *file, *cpus, *text, *hbw;
    int kind, mode;
    uint64_t nodes;
    const char *why, *error;
} decisions[] = {
    {"vm-knl-quadrant-flat.xml", NULL, "auto", NULL, MCDRAM, PREFERRED, 0x2,
     "251 MiB MCDRAM at NUMA 1", NULL},
    {"vm-knl-quadrant-flat.xml", NULL, "", NULL, MCDRAM, PREFERRED, 0x2, "auto: ", NULL},
    {"vm-knl-quadrant-flat.xml", NULL, NULL, NULL, MCDRAM, PREFERRED, 0x2, "auto: ", NULL},
    {"vm-knl-quadrant-flat.xml", NULL, "ddr", NULL, DDR, PREFERRED, 0, "ddr: DDR", NULL},
    {"vm-knl-quadrant-flat.xml", NULL, "ddr", "1", DDR, PREFERRED, 0, "ddr: DDR", NULL},
    {"vm-knl-quadrant-flat.xml", NULL, "mcdram", NULL, MCDRAM, PREFERRED, 0x2, "preferred", NULL},
    {"vm-knl-quadrant-flat.xml", NULL, "mcdram:bind", NULL, MCDRAM, DECIDE_BIND, 0x2, "bound",
     NULL},
    {"vm-knl-quadrant-flat.xml", NULL, "mcdram:interleave", NULL, MCDRAM, LEAVE, 0x2, "interleaved",
     NULL},
    {"vm-knl-snc4-flat.xml", "4-5", "auto", NULL, MCDRAM, PREFERRED, 0x40, "at NUMA 6", NULL},
    {"vm-knl-snc4-flat.xml", "0", "mcdram:bind", NULL, MCDRAM, DECIDE_BIND, 0x10, "at NUMA 4",
     NULL},
    {"vm-knl-snc4-flat.xml", "2-3", "mcdram:interleave", NULL, MCDRAM, LEAVE, 0xf0,
     "at NUMA 4,5,6,7", NULL},
    {"vm-knl-snc4-flat.xml", NULL, "mcdram:preferred", NULL, MCDRAM, PREFERRED, 0xf0, "503 MiB",
     NULL},
    {"synth-knl-quadrant-hybrid50.xml", NULL, "auto", NULL, MCDRAM, PREFERRED, 0x2,
     "125 MiB MCDRAM at NUMA 1", NULL},
    {"synth-knl-quadrant-hybrid50.xml", NULL, "mcdram:bind", NULL, MCDRAM, DECIDE_BIND, 0x2,
     "bound", NULL},
    {"synth-knl-quadrant-hybrid25.xml", NULL, "auto", NULL, MCDRAM, PREFERRED, 0x2,
     "188 MiB MCDRAM at NUMA 1", NULL},
    {"synth-knl-quadrant-hybrid25.xml", NULL, "mcdram:interleave", NULL, MCDRAM, LEAVE, 0x2,
     "interleaved", NULL},
    {"vm-knl-quadrant-cache.xml", NULL, "auto", NULL, DDR, PREFERRED, 0, "memory mode Cache", NULL},
    {"vm-knl-quadrant-cache.xml", NULL, "mcdram", NULL, DDR, PREFERRED, 0, "memory mode Cache",
     NULL},
    {"vm-knl-quadrant-cache.xml", NULL, "mcdram:bind", NULL, 0, 0, 0, NULL, "memory mode Cache"},
    {"linux-64intel64-fakeKNL-A2A-cache.xml", NULL, "auto", NULL, DDR, PREFERRED, 0, "Cache", NULL},
    {"linux-memorysidecaches.xml", NULL, "auto", NULL, DDR, PREFERRED, 0, "no MCDRAM", NULL},
    {"linux-40intel64-2g2n4c+pci.xml", NULL, "auto", NULL, DDR, PREFERRED, 0, "no MCDRAM", NULL},
    {"linux-40intel64-2g2n4c+pci.xml", NULL, "mcdram:interleave", NULL, DDR, PREFERRED, 0,
     "no MCDRAM", NULL},
    {"linux-40intel64-2g2n4c+pci.xml", NULL, "mcdram:bind", NULL, 0, 0, 0, NULL, "no MCDRAM"},
    {"linux-40intel64-2g2n4c+pci.xml", NULL, "mcdram:bind", "", 0, 0, 0, NULL, "no MCDRAM"},
    {"linux-40intel64-2g2n4c+pci.xml", NULL, "mcdram:bind", "1,3", MCDRAM, DECIDE_BIND, 0xa,
     "MEMKIND_HBW_NODES", NULL},
    {"linux-40intel64-2g2n4c+pci.xml", "1", "mcdram:bind", "0-2", MCDRAM, DECIDE_BIND, 0x2,
     "at NUMA 1,", NULL},
    {"linux-40intel64-2g2n4c+pci.xml", NULL, "auto", "2", MCDRAM, PREFERRED, 0x4, "at NUMA 2,",
     NULL},
    {"linux-40intel64-2g2n4c+pci.xml", NULL, "mcdram", "4", DDR, PREFERRED, 0,
     "MEMKIND_HBW_NODES=4 names", NULL},
    {"linux-40intel64-2g2n4c+pci.xml", NULL, "auto", "junk", DDR, PREFERRED, 0,
     "MEMKIND_HBW_NODES=junk is no", NULL},
    {"linux-40intel64-2g2n4c+pci.xml", NULL, "mcdram:bind", "4", 0, 0, 0, NULL,
     "MEMKIND_HBW_NODES=4"},
    {"linux-40intel64-2g2n4c+pci.xml", NULL, "mcdram:bind", "0,", 0, 0, 0, NULL,
     "MEMKIND_HBW_NODES=0,"},
    {"linux-40intel64-2g2n4c+pci.xml", NULL, "mcdram:bind", "3-1", 0, 0, 0, NULL,
     "MEMKIND_HBW_NODES"},
    {"linux-40intel64-2g2n4c+pci.xml", NULL, "mcdram:bind", "-1", 0, 0, 0, NULL,
     "MEMKIND_HBW_NODES"},
    {"linux-40intel64-2g2n4c+pci.xml", NULL, "mcdram:bind", "99999999999999999999", 0, 0, 0, NULL,
     "MEMKIND_HBW_NODES"},
    {"vm-knl-quadrant-flat.xml", NULL, "hbm", NULL, MCDRAM, PREFERRED, 0x2,
     "hbm: 251 MiB MCDRAM at NUMA 1, preferred", NULL},
    {"vm-knl-snc4-flat.xml", "0", "hbm:bind", NULL, MCDRAM, DECIDE_BIND, 0x10, "at NUMA 4, bound",
     NULL},
    {"vm-knl-quadrant-cache.xml", NULL, "hbm:bind", NULL, 0, 0, 0, NULL, "memory mode Cache"},
    {"linux-40intel64-2g2n4c+pci.xml", NULL, "hbm:preferred", NULL, DDR, PREFERRED, 0, "no MCDRAM",
     NULL},
    {"synth-hbm-nvm.xml", "0", "hbm:bind", NULL, MCDRAM, DECIDE_BIND, 0x2,
     "hbm:bind: 14 GiB HBM at NUMA 1, bound", NULL},
    {"synth-hbm-nvm.xml", "2", "mcdram:bind", NULL, MCDRAM, DECIDE_BIND, 0x10,
     "14 GiB HBM at NUMA 4", NULL},
    {"synth-hbm-nvm.xml", NULL, "hbm:interleave", NULL, MCDRAM, LEAVE, 0x12, "HBM at NUMA 1,4",
     NULL},
    {"synth-hbm-cxl.xml", "0", "cxl:bind", NULL, CXL, DECIDE_BIND, 0x4,
     "cxl:bind: 476 GiB CXL at NUMA 2, bound", NULL},
    {"synth-hbm-cxl.xml", NULL, "cxl:interleave", "1", CXL, LEAVE, 0x24, "CXL at NUMA 2,5", NULL},
    {"synth-hbm-cxl.xml", "0", "hbm:bind", NULL, MCDRAM, DECIDE_BIND, 0x2, "HBM at NUMA 1", NULL},
    {"synth-hbm-nvm.xml", NULL, "cxl:bind", NULL, 0, 0, 0, NULL, "no CXL node"},
    {"synth-hbm-nvm.xml", NULL, "cxl", NULL, DDR, PREFERRED, 0, "no CXL node", NULL},
    {"vm-knl-quadrant-flat.xml", NULL, "nvm", NULL, 0, 0, 0, NULL, "TWILL_MEMORY=nvm"},
    {"vm-knl-quadrant-flat.xml", NULL, "MCDRAM", NULL, 0, 0, 0, NULL, "mcdram:interleave"},
    {"vm-knl-quadrant-flat.xml", NULL, "mcdram:", NULL, 0, 0, 0, NULL,
     "valid are auto, ddr, mcdram"},
    {"vm-knl-quadrant-flat.xml", NULL, "mcdram:bind ", NULL, 0, 0, 0, NULL, "mcdram:preferred"},
    {"vm-knl-quadrant-flat.xml", NULL, "auto,ddr", NULL, 0, 0, 0, NULL, "TWILL_MEMORY"},
};

static void check_decision(const struct decision *d, const struct twill_machine *machine)
{
    struct twill_error error = {0};
    struct twill_memory_policy policy;
    print_message("%s %s %s\n", d->file, d->text != NULL ? d->text : "(none)",
                  d->hbw != NULL ? d->hbw : "");
    twill_status status = twill_memory_decide(&policy, d->text, machine, d->hbw, &error);
    if (d->error != NULL) {
        assert_int_equal(status, TWILL_ERR_CONFIG);
        assert_non_null(strstr(error.message, "TWILL_MEMORY"));
        if (strstr(error.message, d->error) == NULL)
            fail_msg("\"%s\" should say \"%s\"", error.message, d->error);
        return;
    }
    assert_int_equal(status, TWILL_OK);
    assert_int_equal(policy.kind, d->kind);
    assert_int_equal(policy.mode, d->mode);
    assert_int_equal(policy.nodes, d->nodes);
    assert_int_equal(policy.nominal != NULL, !machine->is_this_machine);
    if (strstr(policy.why, d->why) == NULL)
        fail_msg("\"%s\" should say \"%s\"", policy.why, d->why);
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
    struct twill_topology *topology = open_recorded("synth-hbm-nvm.xml");
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
    } machines[] = {{"synth-hbm-nvm.xml", 2},
                    {"x86-AMD-19h-Zen3-2xEpyc-7763.xml", 16},
                    {"vm-knl-quadrant-cache.xml", 0},
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
        {"max", NULL, "auto", NULL, MCDRAM, PREFERRED, 0x8, "64 GiB HBM at NUMA 3", NULL},
        {"max", NULL, "mcdram:bind", NULL, MCDRAM, DECIDE_BIND, 0x8, "64 GiB", NULL},
        {"max", NULL, "mcdram:interleave", NULL, MCDRAM, LEAVE, 0xc, "128 GiB", NULL},
        {"max", NULL, "mcdram:bind", "0", MCDRAM, DECIDE_BIND, 0x1, "at NUMA 0", NULL},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(rows); i++)
        check_decision(&rows[i], &machine);
    static const struct decision beyond[] = {
        {"max", NULL, "auto", NULL, DDR, PREFERRED, 0, "NUMA nodes of numbers above 127", NULL},
        {"max", NULL, "mcdram:bind", NULL, 0, 0, 0, NULL, "NUMA nodes of numbers above 127"},
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
        struct twill_topology *topology = open_altered("vm-knl-snc4-flat.xml", rows[i].changes);
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
        struct twill_topology *topology = open_altered("vm-knl-quadrant-flat.xml", changes[i]);
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
    struct twill_topology *topology = open_altered("linux-40intel64-2g2n4c+pci.xml", changes);
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
