/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a trial from a seed and its number. */
#include "tests/support/run.h"
#include "tests/system/campaign/campaign.h"

#include <stdio.h>

const char *const campaign_work_names[WORK_COUNT] = {
#define X(name, text) [WORK_##name] = (text),
    CAMPAIGN_WORK(X)
#undef X
};
const char *const campaign_fault_names[FAULT_COUNT] = {
#define X(name, text) [FAULT_##name] = (text),
    CAMPAIGN_FAULTS(X)
#undef X
};

bool campaign_is_death(enum campaign_fault fault)
{
    return fault == FAULT_KILL || fault == FAULT_EXIT || fault == FAULT_ABORT ||
           fault == FAULT_HALF_OPEN;
}

bool campaign_is_cut(enum campaign_fault fault)
{
    return fault == FAULT_LINK_DOWN || fault == FAULT_HOST_LOST;
}

int campaign_host_of(const struct campaign_trial *trial, int rank)
{
    return rank < trial->ranks ? rank * trial->hosts / trial->ranks : 0;
}

int campaign_processes(const struct campaign_trial *trial)
{
    return trial->ranks + (trial->work == WORK_GROW);
}

/* The larger job has the new process, too. */
bool campaign_goes_on_in(const struct campaign_trial *trial, int rank, bool larger)
{
    int ranks = larger ? campaign_processes(trial) : trial->ranks;
    int with_it = 0, cut_off = campaign_host_of(trial, trial->victim);
    bool is_off = campaign_host_of(trial, rank) == cut_off;
    if (rank == trial->second || (rank == trial->victim && trial->fault != FAULT_LINK_DOWN))
        return false;
    if (!campaign_is_cut(trial->fault))
        return true;
    bool lowest = false;
    for (int r = ranks - 1; r >= 0; r--) {
        bool lives = r != trial->victim || trial->fault == FAULT_LINK_DOWN;
        lowest = lives && (campaign_host_of(trial, r) == cut_off) == is_off;
        with_it += lowest;
    }
    return 2 * with_it > ranks || (2 * with_it == ranks && lowest);
}

bool campaign_goes_on(const struct campaign_trial *trial, int rank)
{
    return campaign_goes_on_in(trial, rank, false);
}

static unsigned below(uint64_t *state, unsigned limit)
{
    return (unsigned)(campaign_random(state) % limit);
}

/* Half of the trials are deaths. Ranks that are stopped for ever take seconds: they are fewer. */
static enum campaign_fault choose_fault(uint64_t *state, int hosts)
{
    static const enum campaign_fault choices[] = {
        FAULT_KILL,       FAULT_KILL,  FAULT_KILL,           FAULT_KILL,      FAULT_KILL,
        FAULT_EXIT,       FAULT_EXIT,  FAULT_ABORT,          FAULT_STOP_EVER, FAULT_STOP_SHORT,
        FAULT_STOP_SHORT, FAULT_RESET, FAULT_NO_DESCRIPTORS, FAULT_NO_MEMORY,
    };
    static const enum campaign_fault between[] = {
        FAULT_KILL,       FAULT_KILL,      FAULT_EXIT,      FAULT_ABORT,      FAULT_STOP_EVER,
        FAULT_STOP_SHORT, FAULT_LINK_DOWN, FAULT_LINK_DOWN, FAULT_LINK_FLAPS, FAULT_HOST_LOST,
        FAULT_RESET,      FAULT_HALF_OPEN, FAULT_LOSS,
    };
    enum campaign_fault fault = hosts > 0
                                    ? between[below(state, sizeof(between) / sizeof(between[0]))]
                                    : choices[below(state, sizeof(choices) / sizeof(choices[0]))];
    if (TEST_SLOW && fault == FAULT_NO_MEMORY) /* its allocator ends the process */
        fault = FAULT_EXIT;
    return fault;
}

/* Some works are of use with some faults only: after others there is nothing that the survivors
 * know. */
static bool goes_with(enum campaign_work work, enum campaign_fault fault)
{
    if (work == WORK_RECONFIGURE)
        return campaign_is_death(fault) || fault == FAULT_STOP_EVER || fault == FAULT_STOP_SHORT;
    return work != WORK_SHRINK || campaign_is_death(fault);
}

static void choose_layout(struct campaign_trial *trial, uint64_t *state)
{
    int ranks = trial->ranks;
    if (trial->hosts > 0) {
        snprintf(trial->layout, sizeof(trial->layout), "%d ranks on %d hosts", ranks, trial->hosts);
        return;
    }
    switch (below(state, 4)) {
    case 0: /* one node */
        snprintf(trial->layout, sizeof(trial->layout), "nodes=%d", ranks);
        break;
    case 1: /* each rank on its own */
        snprintf(trial->layout, sizeof(trial->layout), "nodes=%dx1", ranks);
        break;
    case 2:
        snprintf(trial->layout, sizeof(trial->layout), "nodes=1+%d", ranks - 1);
        break;
    default:
        snprintf(trial->layout, sizeof(trial->layout), "nodes=%d+%d", (ranks + 1) / 2, ranks / 2);
    }
}

static void choose_settings(struct campaign_trial *trial, uint64_t *state)
{
    static const enum campaign_protection choices[] = {PROTECTION_NONE,     PROTECTION_NONE,
                                                       PROTECTION_NONE,     PROTECTION_SUMS,
                                                       PROTECTION_SUMS_ALL, PROTECTION_ENCRYPTED};
    trial->protection = choices[below(state, sizeof(choices) / sizeof(choices[0]))];
    trial->threads = (int)below(state, 3);
    trial->optimizer = trial->threads < 2 && below(state, 2) == 1;
}

void campaign_plan(struct campaign_trial *trial, const struct campaign_settings *settings,
                   int number)
{
    uint64_t state = settings->seed * UINT64_C(1000003) + (uint64_t)number;
    int hosts = settings->hosts;
    trial->seed = campaign_random(&state);
    trial->number = number;
    trial->ranks = 2 + (int)below(&state, 4);
    trial->work = (enum campaign_work)below(&state, WORK_COUNT);
    if (settings->work >= 0)
        trial->work = (enum campaign_work)settings->work;
    if (trial->work == WORK_SHRINK && trial->ranks == 2)
        trial->ranks = 4;
    trial->hosts = hosts < trial->ranks ? hosts : trial->ranks;
    choose_layout(trial, &state);
    trial->fault = choose_fault(&state, hosts);
    if (settings->fault >= 0)
        trial->fault = (enum campaign_fault)settings->fault;
    if (!goes_with(trial->work, trial->fault))
        trial->fault = FAULT_KILL;
    trial->victim = (int)below(&state, (unsigned)campaign_processes(trial));
    trial->second = -1;
    if (trial->work == WORK_SHRINK)
        trial->second =
            (trial->victim + 1 + (int)below(&state, (unsigned)trial->ranks - 1)) % trial->ranks;
    /* Short delays are frequent: set-up and the first calls differ most from the rest. */
    trial->delay_us = below(&state, 1u << (4 + below(&state, 12)));
    trial->second_delay_us = below(&state, 1u << (4 + below(&state, 12)));
    trial->pause_us = 1000 + below(&state, 200000);
    trial->timeout = 4;
    trial->loss = 1 + trial->pause_us % 10;
    if (trial->fault == FAULT_STOP_EVER)
        trial->timeout = 2;
    else if (trial->fault == FAULT_LOSS)
        trial->timeout = 20;
    else if (trial->work == WORK_START)
        trial->timeout = 5;
    else if (campaign_is_death(trial->fault) && trial->work != WORK_FINALIZE &&
             trial->work != WORK_GROW)
        trial->timeout = 20; /* deaths are found without it */
    else if (trial->fault == FAULT_STOP_SHORT || trial->fault == FAULT_LINK_FLAPS ||
             campaign_is_cut(trial->fault))
        trial->timeout = 20;
    choose_settings(trial, &state);
}
