/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of the transport between nodes, among three of this program's own: the best that all
 * ranks have, or the one that is named. */
#include "fabric/bootstrap/oob_batch.h"
#include "fabric/transports.h"
#include "tests/support/messages.h"
#include "tests/support/unit.h"

/* What each of two ranks, one a node, says of each transport. */
struct internode_case {
    uint32_t priority[3][2]; /* [transport][rank] */
    const char *provider;    /* TWILL_PROVIDER */
    const char *chosen;      /* NULL: none */
    const char *why[2];      /* a part of each rank's reason */
};

static const struct internode_case *current;

static uint32_t offer(unsigned transport, const struct twill_transport_params *params, char *why,
                      size_t bytes)
{
    static const char *const names[] = {"one", "two", "three"};
    bool named = params->provider != NULL;
    uint32_t priority = current->priority[transport][params->oob->rank];
    if (named)
        priority = strcmp(params->provider, names[transport]) == 0 ? TWILL_PRIORITY_NAMED
                                                                   : TWILL_PRIORITY_NONE;
    snprintf(why, bytes, "%s has %u", names[transport], (unsigned)priority);
    return priority;
}

#define FAKE_TRANSPORT(id, number)                                                                 \
    static uint32_t priority_##id(const struct twill_transport_params *params, char *why,          \
                                  size_t bytes)                                                    \
    {                                                                                              \
        return offer(number, params, why, bytes);                                                  \
    }                                                                                              \
    static const struct twill_transport_ops id = {.name = #id, .priority = priority_##id}

FAKE_TRANSPORT(one, 0);
FAKE_TRANSPORT(two, 1);
FAKE_TRANSPORT(three, 2);

/* In place of fabric/transports.c. */
const struct twill_transport_ops *twill_transport_at(size_t index)
{
    static const struct twill_transport_ops *const transports[] = {&one, &two, &three};
    return index < TWILL_ARRAY_LENGTH(transports) ? transports[index] : NULL;
}

static void rank_agrees(int rank, int size, twill_bootstrap *caller, void *user)
{
    const struct internode_case *c = user;
    struct twill_test_end end;
    struct twill_world world;
    struct twill_internode_choice choice;
    char why[256];
    TWILL_CHECK(end_begin(&end, caller) && twill_test_world(&world, (uint32_t)size, 1));
    struct twill_transport_params *params = &end.params;
    params->world = &world;
    params->provider = c->provider;
    struct twill_oob_batch batch = {.oob = end.oob};
    twill_status status = twill_internode_offer(params, &choice, &batch, &end.error);
    TWILL_CHECK_OK(&end.error, twill_oob_batch_exchange(&batch, status, &end.error));
    twill_internode_conclude(params, &choice, why, sizeof(why));
    free(choice.all);
    const char *name = params->internode != NULL ? params->internode->name : "none";
    TWILL_NOTE(strcmp(name, c->chosen != NULL ? c->chosen : "none") == 0 &&
                   strstr(why, c->why[rank]) != NULL,
               "rank %d: %s: %s", rank, name, why);
    size_t number = twill_transport_between(params, 0, 1);
    TWILL_NOTE(twill_transport_at(number) == params->internode, "rank %d: number %zu", rank,
               number);
    twill_world_destroy(&world);
    end_close(&end);
}

TWILL_TEST(test_choice)
{
    static const struct internode_case cases[] = {
        {{{50, 50}, {60, 60}, {10, 10}}, NULL, "two", {"two has 60: one has 50", "two has 60"}},
        /* Only rank 0 has the fast one. */
        {{{50, 50}, {60, 10}, {0, 0}}, NULL, "one", {"rank 1 has nothing better", "one has 50"}},
        {{{50, 50}, {60, 0}, {0, 60}}, NULL, "one", {"rank 1", "rank 0"}},
        {{{50, 50}, {60, 60}, {10, 10}}, "three", "three", {"three has 90", "three has 90"}},
        {{{0, 50}, {60, 0}, {0, 0}}, NULL, NULL, {"none: ", "none: "}},
        {{{50, 50}, {60, 60}, {10, 10}}, "four", NULL, {"none: ", "none: "}},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(cases); i++) {
        current = &cases[i];
        twill_test_run_ranks(2, rank_agrees, (void *)(uintptr_t)&cases[i]);
    }
}
