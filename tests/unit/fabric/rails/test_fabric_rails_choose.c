/* SPDX-License-Identifier: Apache-2.0 */
/* Which rails a job uses: the nearest ones, on recorded machines; and how ranks settle on them, for
 * each value of TWILL_RAILS. */
#include "fabric/bootstrap/oob_batch.h"
#include "fabric/host/interfaces.h"
#include "fabric/rails/rails.h"
#include "tests/support/machines.h"
#include "tests/support/messages.h"
#include "tests/support/unit.h"

/* --- distance -------------------------------------------------------------------------------- */

/* List the NICs of a recorded machine in the order for local rank l, which runs on these CPUs. */
static size_t order_recorded(const char *file, const char *cpus, uint32_t l,
                             struct twill_rail *rails, size_t most)
{
    struct twill_error error = {0};
    struct twill_topology *topology = open_recorded(file);
    struct twill_nic nic;
    size_t count = 0;
    assert_int_equal(twill_topology_locate(topology, cpus, &error), TWILL_OK);
    for (; count < most && twill_topology_nic(topology, count, &nic); count++) {
        rails[count] = (struct twill_rail){.mbits = 10000, .distance = nic.distance};
        snprintf(rails[count].name, sizeof(rails[count].name), "%.30s", nic.name);
    }
    struct twill_nic named, placed;
    assert_true(twill_topology_nic_named(topology, rails[0].name, &named));
    assert_int_equal(named.distance, rails[0].distance);
    assert_false(twill_topology_nic_named(topology, "nosuch0", &named));
    assert_false(twill_topology_nic_at(topology, 0xffff, 0xff, 0x1f, 7, &placed));
    if (strcmp(file, "96em64t-4n4d3ca2co-pci.xml") == 0) {
        assert_true(twill_topology_nic_at(topology, 0, 0x32, 0, 1, &placed));
        assert_string_equal(placed.name, "eth3");
        assert_int_equal(placed.numa, 1);
    }
    twill_topology_close(topology);
    twill_rails_order(rails, count, l);
    return count;
}

/* Four NUMA nodes with two NICs each. */
TWILL_TEST(test_nearest)
{
    static const struct {
        const char *cpus;
        uint32_t l;
        const char *first, *second;
    } table[] = {
        {"0-2", 0, "eth0", "eth1"},   {"3-5", 1, "eth1", "eth0"},   {"24-26", 0, "eth2", "eth3"},
        {"27-29", 3, "eth3", "eth2"}, {"48-71", 2, "eth4", "eth5"}, {"95", 7, "eth7", "eth6"},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(table); i++) {
        struct twill_rail rails[16];
        size_t n =
            order_recorded("96em64t-4n4d3ca2co-pci.xml", table[i].cpus, table[i].l, rails, 16);
        assert_int_equal(n, 8);
        assert_string_equal(rails[0].name, table[i].first);
        assert_string_equal(rails[1].name, table[i].second);
        assert_int_equal(rails[0].distance, 0);
        assert_int_equal(rails[1].distance, 0);
        assert_int_equal(rails[2].distance, 2);
    }
    /* A rank that may run anywhere is equally near to all: neighbours begin with different ones. */
    struct twill_rail a[16], b[16];
    order_recorded("96em64t-4n4d3ca2co-pci.xml", NULL, 0, a, 16);
    order_recorded("96em64t-4n4d3ca2co-pci.xml", NULL, 5, b, 16);
    assert_string_equal(a[0].name, "eth0");
    assert_string_equal(b[0].name, "eth5");
    for (int i = 0; i < 8; i++)
        assert_int_equal(a[i].distance, 0);
    assert_true(order_recorded("linux-40intel64-2g2n4c+pci.xml", "0", 0, a, 16) >= 5);
}

TWILL_TEST(test_order)
{
    struct twill_rail rails[] = {{.name = "slow", .mbits = 1000},
                                 {.name = "far", .mbits = 400000, .distance = 2},
                                 {.name = "fast", .mbits = 100000},
                                 {.name = "fast too", .mbits = 100000},
                                 {.name = "package", .mbits = 400000, .distance = 1}};
    static const char *const names[] = {"fast too", "fast", "slow", "package", "far"};
    twill_rails_order(rails, 5, 1);
    for (int i = 0; i < 5; i++)
        assert_string_equal(rails[i].name, names[i]);
    twill_rails_order(rails, 0, 3);
}

/* --- the choice ------------------------------------------------------------------------------ */

/* The rails of each rank, each as NAMEnetwork:speed, with ~ if it is used on demand only and * if
 * it is distant; TWILL_RAILS; and TWILL_INTERFACE. */
enum { HAS, RAILS, INTERFACE, HAVING };
static const char *const (*havings)[HAVING];

static twill_status have(const struct twill_transport_params *params, const char *name,
                         struct twill_rail *rails, size_t most, size_t *count,
                         struct twill_error *error)
{
    *count = 0;
    for (const char *at = havings[params->oob->rank][HAS]; at != NULL && *count < most;) {
        struct twill_rail rail = {.mbits = 0};
        unsigned network, mbits;
        char kind = ' ';
        if (sscanf(at, "%1[a-z]%u:%u%c", rail.name, &network, &mbits, &kind) < 3)
            return TWILL_FAIL(error, TWILL_ERR_INTERNAL, "cannot read %s", at);
        snprintf(rail.label, sizeof(rail.label), "%s 10.0.0.1", rail.name);
        rail.network = network;
        rail.mbits = mbits;
        rail.on_demand = kind == '~';
        rail.distance = kind == '*' ? 2 : 0;
        if (name == NULL || strcmp(rail.name, name) == 0)
            rails[(*count)++] = rail;
        at = strchr(at, ' ') != NULL ? strchr(at, ' ') + 1 : NULL;
    }
    if (name != NULL && *count == 0)
        return TWILL_FAIL(error, TWILL_ERR_CONFIG, "there is no %s", name);
    return TWILL_OK;
}

struct choice_case {
    const char *what;
    const char *rank[2][HAVING];
    uint32_t count;      /* of rails; 0: an error */
    const char *weights; /* and "!": all ranks have a faster network that is not used */
    const char *says[2]; /* expected rails of each rank (NULL: the same), or text of the error */
};

static const struct choice_case choices[] = {
    {"two alike", {{"a1:100 b2:100"}, {"a1:100 b2:100", "auto"}}, 2, "11", {"ab"}},
    {"the other way round", {{"a1:100 b2:100"}, {"b2:100 a1:100"}}, 2, "11", {"ab"}},
    {"a slow one for management", {{"a1:100 m2:1"}, {"a1:100 m2:1"}}, 1, "1", {"a"}},
    {"the route is over a slow one", {{"m2:1 a1:100"}, {"m2:1 a1:100"}}, 1, "1!", {"m"}},
    {"one rank is not in a fast one", {{"m2:1 a1:100"}, {"m2:1"}}, 1, "1", {"m"}},
    {"virtual: its speed means nothing", {{"m2:1 v1:100~"}, {"m2:1 v1:100~"}}, 1, "1", {"m"}},
    {"virtual, or of unknown speed", {{"a1:100 v2:100~"}, {"a1:100 v2:0~"}}, 1, "1", {"a"}},
    {"nothing is known about the first", {{"a1:0 b2:0"}, {"a1:0 b2:0"}}, 1, "1", {"a"}},
    {"distant", {{"a0:100 f0:100*"}, {"a0:100 f0:100*"}}, 1, "1", {"a"}},
    {"one rank is not in one", {{"a1:100 b2:100"}, {"a1:100"}}, 1, "1", {"a"}},
    {"none in common: routed", {{"a1:100 b2:100"}, {"c3:100 d4:100"}}, 1, "1", {"a", "c"}},
    {"virtual ones", {{"a1:9 v2:0~", "2"}, {"a1:9 v2:9~", "2"}}, 2, "11", {"av"}},
    {"more than there are", {{"a1:100", "3"}, {"a1:100", "3"}}, 3, "111", {"aaa"}},
    {"one of two", {{"a1:100 b2:100", "1"}, {"a1:100 b2:100", "1"}}, 1, "1", {"a"}},
    {"by speed", {{"a1:100 b2:300", "a,b"}, {"x1:100 y2:300", "x,y"}}, 2, "13", {"ab", "xy"}},
    {"interfaces", {{"a1:9 b2:9", NULL, "b,a"}, {"x1:9 y2:9", NULL, "y,x"}}, 2, "11", {"ba", "yx"}},
    {"a list wins", {{"a1:9 b2:9", "a", "b,a"}, {"a1:9 b2:9", "a", "b,a"}}, 1, "1", {"a"}},
    {"twice", {{"a1:100", "a,a"}, {"x1:100", "x,x"}}, 2, "11", {"aa", "xx"}},
    {"not there", {{"a1:100", "a,q"}, {"a1:100", "a,a"}}, 0, NULL, {"rank 0: there is no q"}},
    {"none", {{"a1:100", "0"}, {"a1:100"}}, 0, NULL, {"TWILL_RAILS=0"}},
    {"too many", {{"a1:100", "9"}, {"a1:100", "9"}}, 0, NULL, {"1 to 8 rails"}},
    {"too long", {{"a1:100", "a,a,a,a,a,a,a,a,a"}, {"a1:100"}}, 0, NULL, {"more than 8 rails"}},
    {"an empty name", {{"a1:100", "a,,a"}, {"a1:100"}}, 0, NULL, {"is missing at"}},
    {"two lengths", {{"a1:9", "a,a"}, {"a1:9", "a"}}, 0, NULL, {"rank 1 lists 1 rail, rank 0"}},
};

/* Check what a rank is to use. */
static void check_choice(const struct choice_case *c, int rank,
                         const struct twill_rails_choice *choice)
{
    char names[TWILL_RAILS_MOST + 1] = "", weights[TWILL_RAILS_MOST + 2] = "", taken[32];
    const char *says = rank == 1 && c->says[1] != NULL ? c->says[1] : c->says[0];
    for (uint32_t k = 0; k < choice->count && k < TWILL_RAILS_MOST; k++) {
        names[k] = choice->way[k].rail.name[0];
        weights[k] = (char)('0' + choice->way[k].weight);
    }
    if (choice->faster)
        strcat(weights, "!");
    TWILL_CHECK(choice->count == c->count && strcmp(names, says) == 0 &&
                    strcmp(weights, c->weights) == 0,
                "%s, rank %d: %s (%s)", c->what, rank, names, weights);
    snprintf(taken, sizeof(taken), "rank %d %c", rank, names[0]);
    TWILL_CHECK(strncmp(choice->taken, taken, strlen(taken)) == 0, "%s, rank %d: taken: %s",
                c->what, rank, choice->taken);
}

static void rank_choice(int rank, int size, twill_bootstrap *caller, void *user)
{
    const struct choice_case *c = user;
    static const struct twill_transport_ops ops = {.name = "fake", .rails = have};
    const struct test_setting settings[] = {{"TWILL_RAILS", c->rank[rank][RAILS]}, {NULL, NULL}};
    struct twill_test_end end;
    struct twill_world world;
    struct twill_rails_opening *opening;
    struct twill_rails_choice *choice = NULL;
    TWILL_CHECK(end_begin(&end, caller) && twill_test_world(&world, (uint32_t)size, 1));
    end.params.world = &world;
    end.params.setting = test_setting;
    end.params.settings = settings;
    end.params.interface = c->rank[rank][INTERFACE];
    struct twill_oob_batch batch = {.oob = end.oob};
    twill_status status = twill_rails_offer(&opening, &ops, &end.params, &batch, &end.error);
    status = twill_oob_batch_exchange(&batch, status, &end.error);
    if (status == TWILL_OK)
        status = twill_rails_conclude(opening, &end.params, &choice, &end.error);
    twill_rails_opening_end(opening);
    bool as_expected =
        c->count > 0 ? status == TWILL_OK && choice != NULL
                     : status == TWILL_ERR_CONFIG && strstr(end.error.message, c->says[0]) != NULL;
    TWILL_NOTE(as_expected, "%s, rank %d: %d: %s", c->what, rank, status, end.error.message);
    if (choice != NULL) {
        if (as_expected)
            check_choice(c, rank, choice);
        choice->common.close(&choice->common);
    }
    twill_world_destroy(&world);
    end_close(&end);
}

TWILL_TEST(test_choices)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(choices); i++) {
        havings = choices[i].rank;
        twill_test_run_ranks(2, rank_choice, (void *)&choices[i]);
    }
}

TWILL_TEST(test_measured)
{
    static const struct {
        uint32_t mbits[3], before[3], after[3];
    } cases[] = {
        {{9400, 9100, 5000}, {1, 1, 1}, {1, 1, 1}},        /* equal, as far as it matters */
        {{95, 9400, 9300}, {1, 1, 1}, {0, 2, 2}},          /* a slow one is left out */
        {{9400, 23500, 4700}, {1, 1, 1}, {4, 10, 2}},      /* drivers say nothing */
        {{9400, 23500, 9400}, {10, 25, 10}, {10, 25, 10}}, /* drivers are right */
        {{940, 9400, 940}, {1, 10, 1}, {1, 10, 1}},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(cases); i++) {
        uint32_t weight[3];
        memcpy(weight, cases[i].before, sizeof(weight));
        twill_rails_weigh(cases[i].mbits, 3, weight);
        for (int k = 0; k < 3; k++)
            if (weight[k] != cases[i].after[k])
                fail_msg("case %zu, rail %d: %u", i, k, weight[k]);
    }
}

/* --- lists of interfaces, and addresses with a scope ----------------------------------------- */

TWILL_TEST(test_list)
{
    char text[120];
    static const struct twill_link links[] = {
        {.name = "lo", .address = "127.0.0.1", .kind = TWILL_LINK_LOOPBACK},
        {.name = "docker0", .address = "172.17.0.1", .kind = TWILL_LINK_INNER},
        {.name = "eth0", .address = "10.0.0.1", .kind = TWILL_LINK_REAL},
        {.name = "eth0", .address = "fe80::1%eth0", .six = true, .link_local = true},
        {.name = "eth1", .address = "fd00::1", .kind = TWILL_LINK_REAL, .six = true},
        {.name = "br7", .address = "10.7.0.1", .kind = TWILL_LINK_BRIDGE},
    };
    twill_links_list(links, TWILL_ARRAY_LENGTH(links), text, sizeof(text));
    assert_string_equal(text, "eth0 10.0.0.1, eth1 fd00::1, lo 127.0.0.1, br7 10.7.0.1, docker0 "
                              "172.17.0.1");
    twill_links_list(links, TWILL_ARRAY_LENGTH(links), text, 50);
    assert_string_equal(text, "eth0 10.0.0.1, eth1 fd00::1 and 3 more");
    twill_links_list(&links[3], 1, text, sizeof(text));
    assert_string_equal(text, "eth0 fe80::1%eth0");
    twill_links_list(links, 0, text, sizeof(text));
    assert_string_equal(text, "");
}

TWILL_TEST(test_faster)
{
    const struct twill_link links[] = {
        {.name = "eth0", .kind = TWILL_LINK_REAL, .mbits = 100, .network = 1},
        {.name = "eth1", .kind = TWILL_LINK_REAL, .mbits = 10000, .network = 2},
        {.name = "eth2", .kind = TWILL_LINK_REAL, .mbits = 1000, .network = 3},
        {.name = "eth3", .kind = TWILL_LINK_REAL, .mbits = 100000, .network = 1},
        {.name = "eth4",
         .kind = TWILL_LINK_REAL,
         .mbits = 100000,
         .network = 4,
         .link_local = true},
        {.name = "veth0", .kind = TWILL_LINK_PAIR, .mbits = 100000, .network = 5},
        {.name = "eth5", .kind = TWILL_LINK_REAL, .network = 6},
    };
    assert_ptr_equal(twill_link_faster(links, 7, "eth0"), &links[1]);
    assert_ptr_equal(twill_link_faster(links, 7, "eth2"), &links[3]);
    assert_null(twill_link_faster(links, 3, "eth1"));
    assert_null(twill_link_faster(links, 7, "eth5")); /* of unknown speed */
    assert_null(twill_link_faster(links, 7, "eth9"));
}

TWILL_TEST(test_localise)
{
    static const char *const table[][3] = {
        {"fe80::2%eth1", "fe80::1%eth0", "fe80::2%eth0"},
        {"fe80::2%en0", "fe80::1%enp129s0f0", "fe80::2%enp129s0f0"},
        {"10.0.0.2", "10.0.0.1", "10.0.0.2"},
        {"fd00::2", "fe80::1%eth0", "fd00::2"},
        {"fe80::2%eth1", "fd00::1", "fe80::2%eth1"},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(table); i++) {
        char address[TWILL_ADDRESS_TEXT];
        snprintf(address, sizeof(address), "%s", table[i][0]);
        twill_address_localise(address, table[i][1]);
        assert_string_equal(address, table[i][2]);
    }
}
