/* SPDX-License-Identifier: Apache-2.0 */
/* Which cores ranks are bound to, and which units sets of PUs are in. */
#include "numa/topology.h"
#include "tests/support/machines.h"
#include "tests/support/unit.h"

static const char *const recorded[] = {
    "96em64t-4n4d3ca2co-pci.xml",       "linux-32amd64-4s2n4c-cgroup2.xml",
    "linux-40intel64-2g2n4c+pci.xml",   "linux-64intel64-fakeKNL-A2A-cache.xml",
    "linux-memorysidecaches.xml",       "vm-knl-quadrant-cache.xml",
    "vm-knl-quadrant-flat.xml",         "vm-knl-snc4-flat.xml",
    "x86-AMD-19h-Zen3-2xEpyc-7763.xml", "x86-Intel-KnightsLanding-XeonPhi-7210.xml",
    "x86-Intel-Skylake-2xXeon6140.xml"};

/* Mark the PUs of a list in `seen`; with `once`, assert that none was marked. Returns how many. */
static unsigned mark(const char *list, unsigned char *seen, size_t size, bool once)
{
    unsigned count = 0;
    for (const char *c = list; *c != '\0';) {
        char *end;
        unsigned long from = strtoul(c, &end, 10), to = from;
        assert_ptr_not_equal(end, c);
        if (*end == '-')
            to = strtoul(end + 1, &end, 10);
        for (; from <= to; from++, count++) {
            assert_true(from < size);
            assert_false(once && seen[from]);
            seen[from] = 1;
        }
        c = *end == ',' ? end + 1 : end;
    }
    return count;
}

/* Check that each rank is within one unit of a level that has at most as many units as ranks. */
static void check_within(struct twill_topology *topology, unsigned n, const struct twill_cpus *cpus)
{
    const struct twill_machine *m = twill_topology_machine(topology);
    unsigned nodes = 0;
    for (unsigned i = 0; i < m->numa_nodes; i++)
        nodes += m->numa[i].has_cpus;
    for (unsigned l = 0; l < n; l++) {
        struct twill_units units;
        twill_topology_units(topology, &cpus[l], &units);
        if (n >= m->packages)
            assert_true(units.package >= 0);
        if (n >= nodes)
            assert_true(units.numa >= 0);
        if (n == m->cores)
            assert_false(units.roams);
    }
}

/* Check that all ranks get equally many whole cores, of their own if there are enough, and more
 * than half of an equal share. */
static void check_advice(struct twill_topology *topology, unsigned n)
{
    const struct twill_machine *m = twill_topology_machine(topology);
    unsigned char seen[1024] = {0};
    unsigned first = 0;
    struct twill_error error = {0};
    struct twill_cpus cpus[512];
    assert_true(n <= TWILL_ARRAY_LENGTH(cpus));
    assert_int_equal(twill_topology_bind(topology, n, TWILL_BOUND_TO_CORES, cpus, &error),
                     TWILL_OK);
    for (unsigned l = 0; l < n; l++) {
        char text[512], list[512];
        assert_int_equal(twill_topology_advise(topology, l, n, text, sizeof(text), &error),
                         TWILL_OK);
        assert_in_range(twill_cpus_list(&cpus[l], list, sizeof(list)), 1, sizeof(list) - 1);
        assert_string_equal(text, list);
        unsigned pus = mark(text, seen, sizeof(seen), n <= m->cores);
        assert_int_equal(pus % m->pus_per_core, 0);
        first = l == 0 ? pus : first;
        assert_int_equal(pus, first);
    }
    assert_true(2 * first / m->pus_per_core > m->cores / n);
    if (n > m->cores)
        for (size_t i = 0; i < sizeof(seen); i++) /* no core is unused */
            assert_true(seen[i] || i >= m->pus || m->allowed_pus < m->pus);
    if (n <= m->cores)
        check_within(topology, n, cpus);
}

/* Bindings of example machines. */
static const struct {
    const char *machine;
    unsigned ranks;
    enum twill_bound_to to;
    const char *cpus; /* a list for each rank */
} bound[] = {
    /* one rank: everything; two: a package each; three: two on the first, none spans both */
    {"pack:2 l3:2 core:4 pu:1", 1, TWILL_BOUND_TO_CORES, "0-15"},
    {"pack:2 l3:2 core:4 pu:1", 2, TWILL_BOUND_TO_CORES, "0-7 8-15"},
    {"pack:2 l3:2 core:4 pu:1", 3, TWILL_BOUND_TO_CORES, "0-3 4-7 8-11"},
    {"pack:2 l3:2 core:4 pu:1", 4, TWILL_BOUND_TO_CORES, "0-3 4-7 8-11 12-15"},
    {"pack:2 l3:2 core:4 pu:1", 6, TWILL_BOUND_TO_CORES, "0-1 2-3 4-5 8-9 10-11 12-13"},
    {"pack:2 l3:2 core:4 pu:1", 8, TWILL_BOUND_TO_CORES, "0-1 2-3 4-5 6-7 8-9 10-11 12-13 14-15"},
    {"pack:2 l3:2 core:4 pu:1", 4, TWILL_BOUND_TO_PACKAGE, "0-7 0-7 8-15 8-15"},
    {"pack:2 l3:2 core:4 pu:1", 5, TWILL_BOUND_TO_L3, "0-3 0-3 4-7 8-11 12-15"},
    {"pack:1 numa:2 core:2 pu:1", 3, TWILL_BOUND_TO_NUMA, "0-1 0-1 2-3"},
    {"pack:2 numa:4 l3:2 core:2 pu:1", 3, TWILL_BOUND_TO_CORES, "0-7 8-15 16-23"},
    {"pack:1 core:8 pu:1", 3, TWILL_BOUND_TO_CORES, "0-1 2-3 5-6"},
    {"pack:1 core:8 pu:1", 5, TWILL_BOUND_TO_CORES, "0 1 3 4 6"},
    /* both hardware threads of a core; more ranks than cores share them, neighbours with each other
     */
    {"pack:1 core:2 pu:2(indexes=2*2:1*2)", 2, TWILL_BOUND_TO_CORES, "0,2 1,3"},
    {"pack:1 core:2 pu:1", 4, TWILL_BOUND_TO_CORES, "0 0 1 1"},
    /* numa nodes that hold several packages go first; no L3 at all */
    {"numa:2 pack:2 core:2 pu:1", 2, TWILL_BOUND_TO_CORES, "0-3 4-7"},
    {"pack:1 core:4 pu:1", 4, TWILL_BOUND_TO_L3, "0 1 2 3"},
};

TWILL_TEST(test_bound)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(bound); i++) {
        struct twill_topology *topology = open_machine(bound[i].machine);
        struct twill_error error = {0};
        struct twill_cpus cpus[8];
        char text[256] = "";
        assert_int_equal(twill_topology_bind(topology, bound[i].ranks, bound[i].to, cpus, &error),
                         TWILL_OK);
        for (unsigned r = 0; r < bound[i].ranks; r++) {
            size_t used = strlen(text);
            used += (size_t)snprintf(text + used, sizeof(text) - used, r > 0 ? " " : "");
            twill_cpus_list(&cpus[r], text + used, sizeof(text) - used);
        }
        if (strcmp(text, bound[i].cpus) != 0)
            fail_msg("%u ranks on \"%s\": %s, not %s", bound[i].ranks, bound[i].machine, text,
                     bound[i].cpus);
        twill_topology_close(topology);
    }
    /* Usable are 7 cores in one package and 1 in each of two others: dealt by package each rank
     * would get one core. */
    struct twill_topology *topology = open_machine("pack:3 core:8 pu:1");
    struct twill_error error = {0};
    char text[64];
    assert_int_equal(twill_topology_locate(topology, "0-6,8,16", &error), TWILL_OK);
    assert_int_equal(twill_topology_cores(topology), 9);
    assert_int_equal(twill_topology_advise(topology, 1, 2, text, sizeof(text), &error), TWILL_OK);
    assert_string_equal(text, "4-6,8");
    twill_topology_close(topology);
}

/* Which units hold a set of PUs: -1 for one that it spans several of, or that the machine lacks. */
TWILL_TEST(test_units)
{
    static const struct {
        const char *machine, *cpus;
        struct twill_units units;
    } where[] = {
        {"pack:2 numa:2 l3:2 l2:2 core:2 pu:1", "3", {1, 0, 0, 0, false}},
        {"pack:2 numa:2 l3:2 l2:2 core:2 pu:1", "2-3", {1, 0, 0, 0, false}},
        {"pack:2 numa:2 l3:2 l2:2 core:2 pu:1", "1-2", {-1, 0, 0, 0, true}},
        {"pack:2 numa:2 l3:2 l2:2 core:2 pu:1", "0-4", {-1, -1, 0, 0, true}},
        {"pack:2 numa:2 l3:2 l2:2 core:2 pu:1", "0-31", {-1, -1, -1, -1, true}},
        {"pack:2 numa:2 l3:2 l2:2 core:2 pu:1", "16-31", {-1, -1, -1, 1, true}},
        /* the machine has only one of these, so every set is in it */
        {"pack:1 numa:1 l3:1 l2:4 core:1 pu:2", "0-7", {-1, 0, 0, 0, true}},
        {"pack:1 core:4 pu:2", "0-1", {-1, -1, 0, 0, false}}, /* one core */
        /* a node with several packages: they count as its first */
        {"numa:2 pack:2 core:2 pu:1", "2-3", {-1, -1, 0, 0, true}},
        {"numa:2 pack:2 core:2 pu:1", "5-6", {-1, -1, 1, 2, true}},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(where); i++) {
        struct twill_topology *topology = open_machine(where[i].machine);
        struct twill_error error = {0};
        struct twill_units units;
        assert_int_equal(twill_topology_locate(topology, where[i].cpus, &error), TWILL_OK);
        twill_topology_units(topology, NULL, &units);
        print_message("%s: PUs %s\n", where[i].machine, where[i].cpus);
        assert_int_equal(units.tile, where[i].units.tile);
        assert_int_equal(units.l3, where[i].units.l3);
        assert_int_equal(units.numa, where[i].units.numa);
        assert_int_equal(units.package, where[i].units.package);
        assert_int_equal(units.roams, where[i].units.roams);
        twill_topology_close(topology);
    }
}

TWILL_TEST(test_own_node)
{
    static const struct {
        const char *machine, *cpus;
        int node;
    } where[] = {{"numa:2 core:2 pu:1", "0-1", 0},
                 {"numa:2 core:2 pu:1", "3", 1},
                 {"numa:2 core:2 pu:1", "1-2", -1},
                 {"numa:1 core:2 pu:1", "1", 0}};
    for (size_t i = 0; i < sizeof(where) / sizeof(where[0]); i++) {
        struct twill_topology *topology = open_machine(where[i].machine);
        struct twill_error error = {0};
        assert_int_equal(twill_topology_locate(topology, where[i].cpus, &error), TWILL_OK);
        assert_int_equal(twill_machine_own_node(twill_topology_machine(topology)), where[i].node);
        twill_topology_close(topology);
    }
}

TWILL_TEST(test_advice)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(recorded); i++) {
        struct twill_topology *topology = open_recorded(recorded[i]);
        unsigned cores = twill_topology_machine(topology)->cores;
        const unsigned counts[] = {1, 2, 3, 4, 7, cores / 2, cores, cores + 1, 2 * cores + 3};
        for (size_t c = 0; c < TWILL_ARRAY_LENGTH(counts); c++)
            check_advice(topology, counts[c]);
        twill_topology_close(topology);
    }
    struct twill_topology *topology = open_recorded("x86-Intel-KnightsLanding-XeonPhi-7210.xml");
    char text[128];
    struct twill_error error = {0};
    assert_int_equal(twill_topology_advise(topology, 3, 64, text, sizeof(text), &error), TWILL_OK);
    assert_string_equal(text, "3,67,131,195");
    assert_int_equal(twill_topology_advise(topology, 4, 4, text, sizeof(text), &error),
                     TWILL_ERR_ARGUMENT);
    assert_int_equal(twill_topology_advise(topology, 0, 0, text, sizeof(text), &error),
                     TWILL_ERR_ARGUMENT);
    assert_int_equal(twill_topology_advise(topology, 3, 64, text, 4, &error), TWILL_ERR_ARGUMENT);
    /* Only what the process may use. */
    assert_int_equal(twill_topology_locate(topology, "8-9,72", &error), TWILL_OK);
    assert_int_equal(twill_topology_advise(topology, 0, 2, text, sizeof(text), &error), TWILL_OK);
    assert_string_equal(text, "8,72");
    assert_int_equal(twill_topology_advise(topology, 1, 2, text, sizeof(text), &error), TWILL_OK);
    assert_string_equal(text, "9");
    twill_topology_close(topology);
}

/* Bindings of a fixed number of cores a rank. */
TWILL_TEST(test_bound_each)
{
    static const struct {
        const char *machine, *here;
        unsigned ranks, each;
        bool shared;
        const char *cpus; /* a list for each rank, or NULL if they do not fit */
    } each[] = {
        /* spread as equal shares are */
        {"pack:2 l3:2 core:4 pu:1", NULL, 2, 4, false, "0-3 8-11"},
        {"pack:2 l3:2 core:4 pu:1", NULL, 4, 4, false, "0-3 4-7 8-11 12-15"},
        {"pack:2 l3:2 core:4 pu:1", NULL, 1, 16, false, "0-15"},
        {"pack:1 l2:4 core:2 pu:2(indexes=2*8:8*1)", NULL, 2, 2, false, "0-1,8-9 4-5,12-13"},
        /* a tile that is whole comes before the first core */
        {"pack:1 l2:4 core:2 pu:1", "1-7", 1, 2, false, "2-3"},
        /* three L3 caches have room for a rank each, and the fourth rank gets the other cores */
        {"l3:3 core:6 pu:1", NULL, 4, 4, false, "0-3 6-9 12-15 4-5,10-11"},
        {"pack:2 core:6 pu:1", NULL, 3, 4, false, "0-3 6-9 4-5,10-11"},
        /* too many */
        {"pack:1 core:4 pu:2", NULL, 2, 3, false, NULL},
        {"pack:1 core:4 pu:2", NULL, 2, 3, true, "0-5 0-5"},
        {"pack:1 core:4 pu:2", NULL, 1, 5, true, NULL},
        {"pack:1 core:4 pu:2", NULL, 1, 0, false, NULL},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(each); i++) {
        struct twill_topology *topology = open_machine(each[i].machine);
        struct twill_error error = {0};
        struct twill_cpus cpus[4];
        char text[256] = "";
        assert_int_equal(twill_topology_locate(topology, each[i].here, &error), TWILL_OK);
        twill_status status = twill_topology_bind_each(topology, each[i].ranks, each[i].each,
                                                       each[i].shared, cpus, &error);
        assert_int_equal(status, each[i].cpus != NULL ? TWILL_OK : TWILL_ERR_ARGUMENT);
        for (unsigned r = 0; status == TWILL_OK && r < each[i].ranks; r++) {
            size_t used = strlen(text);
            used += (size_t)snprintf(text + used, sizeof(text) - used, r > 0 ? " " : "");
            twill_cpus_list(&cpus[r], text + used, sizeof(text) - used);
        }
        if (each[i].cpus != NULL && strcmp(text, each[i].cpus) != 0)
            fail_msg("%u ranks with %u cores on \"%s\": %s, not %s", each[i].ranks, each[i].each,
                     each[i].machine, text, each[i].cpus);
        twill_topology_close(topology);
    }
}

/* Which PU each thread of a rank works on. */
TWILL_TEST(test_threads)
{
    static const struct {
        const char *machine, *cpus;
        unsigned threads, cores;
        int pu[8];
    } order[] = {
        {"pack:2 core:4 pu:1", NULL, 8, 8, {0, 1, 2, 3, 4, 5, 6, 7}},
        {"pack:2 core:4 pu:1", NULL, 2, 8, {0, 4}},
        {"pack:2 core:4 pu:1", NULL, 3, 8, {0, 2, 5}},
        {"pack:1 core:4 pu:2(indexes=2*4:4*1)", NULL, 4, 4, {0, 1, 2, 3}},
        {"pack:1 core:4 pu:2(indexes=2*4:4*1)", NULL, 8, 4, {0, 4, 1, 5, 2, 6, 3, 7}},
        {"pack:1 core:4 pu:2(indexes=2*4:4*1)", "2-3", 4, 2, {2, 2, 3, 3}}, /* more than PUs */
        {"pack:1 core:4 pu:2(indexes=2*4:4*1)", "1-3,7", 4, 3, {1, 2, 3, 7}},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(order); i++) {
        struct twill_topology *topology = open_machine(order[i].machine);
        struct twill_error error = {0};
        int pu[8] = {0};
        assert_int_equal(twill_topology_locate(topology, order[i].cpus, &error), TWILL_OK);
        print_message("%s: %u threads\n", order[i].machine, order[i].threads);
        assert_int_equal(twill_topology_threads(topology, NULL, order[i].threads, pu),
                         order[i].cores);
        for (unsigned t = 0; t < order[i].threads; t++)
            assert_int_equal(pu[t], order[i].pu[t]);
        twill_topology_close(topology);
    }
}

/* On recorded machines ranks with several cores have cores of their own, near each other, and their
 * threads are on these, a core each. */
TWILL_TEST(test_threads_of_machines)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(recorded); i++) {
        struct twill_topology *topology = open_recorded(recorded[i]);
        const struct twill_machine *m = twill_topology_machine(topology);
        unsigned cores = twill_topology_cores(topology);
        for (unsigned ranks = 1; ranks <= cores; ranks *= 2) {
            unsigned each = cores / ranks;
            unsigned char seen[1024] = {0};
            struct twill_error error = {0};
            struct twill_cpus cpus[512];
            assert_int_equal(twill_topology_bind_each(topology, ranks, each, false, cpus, &error),
                             TWILL_OK);
            for (unsigned r = 0; r < ranks; r++) {
                struct twill_place place, last = {.core = -1};
                char list[512];
                int pu[512];
                twill_cpus_list(&cpus[r], list, sizeof(list));
                assert_int_equal(mark(list, seen, sizeof(seen), true) % m->pus_per_core, 0);
                assert_int_equal(twill_topology_threads(topology, &cpus[r], each, pu), each);
                for (unsigned t = 0; t < each; t++, last = place) {
                    assert_true(cpus[r].word[pu[t] / 64] >> pu[t] % 64 & 1);
                    twill_topology_place_pu(topology, (unsigned)pu[t], &place);
                    assert_true(place.core > last.core);
                }
            }
        }
        twill_topology_close(topology);
    }
    /* On KNL each tile has a thread, in the order of the tiles. */
    struct twill_topology *topology = open_recorded("x86-Intel-KnightsLanding-XeonPhi-7210.xml");
    int pu[64];
    assert_int_equal(twill_topology_threads(topology, NULL, 32, pu), 64);
    for (unsigned t = 0; t < 32; t++) {
        struct twill_place place;
        twill_topology_place_pu(topology, (unsigned)pu[t], &place);
        assert_int_equal(place.l2, t);
    }
    twill_topology_close(topology);
}
