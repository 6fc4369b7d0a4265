/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of each mode, and the mean time of an update where it is known exactly. Dutta, Joshi,
 * Ghosh, Dube and Nagpurkar 2018 (the K modes), Zhang, Gupta, Lian and Liu 2016 (n-softsync), Ho et
 * al. 2013 (bounded staleness), Kurth et al. 2017 (groups). */
#include "bench/tools/simulate/simulation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *parameter;
} modes[] = {
#define X(NOUN, name, parameter, help) {name, parameter},
    SIMULATION_MODES(X)
#undef X
};

bool simulation_parse_choice(struct simulation_choice *choice, const char *text, const char **wrong)
{
    size_t length = strcspn(text, ":");
    for (int mode = 0; mode < SIMULATION_MODE_COUNT; mode++) {
        if (strlen(modes[mode].name) != length || strncmp(modes[mode].name, text, length) != 0)
            continue;
        *choice = (struct simulation_choice){.mode = (enum simulation_mode)mode};
        bool has_parameter = text[length] == ':', needs_one = modes[mode].parameter[0] != '\0';
        *wrong = needs_one ? "this mode needs a parameter, a number: MODE:NUMBER"
                           : "this mode has no parameter";
        if (has_parameter != needs_one || !needs_one)
            return has_parameter == needs_one;
        char *end;
        unsigned long value = strtoul(text + length + 1, &end, 10);
        choice->parameter = (uint32_t)value;
        return text[length + 1] >= '0' && text[length + 1] <= '9' && *end == '\0' &&
               value <= 1000000;
    }
    *wrong = "no such mode";
    return false;
}

bool simulation_rules_of(struct simulation_rules *rules, struct simulation_choice choice,
                         uint32_t workers, const char **wrong)
{
    uint32_t parameter = choice.parameter;
    *rules = (struct simulation_rules){
        .actors = workers, .members = 1, .needed = 1, .bound = UINT32_MAX};
    *wrong = "its parameter is a number from 1 to the workers";
    if (choice.mode != SIMULATION_BOUNDED && modes[choice.mode].parameter[0] != '\0' &&
        (parameter < 1 || parameter > workers))
        return false;
    switch (choice.mode) {
    case SIMULATION_SYNC:
        rules->needed = workers;
        rules->waits = true;
        return true;
    case SIMULATION_K_SYNC:
        rules->needed = parameter;
        rules->waits = rules->cancels = true;
        return true;
    case SIMULATION_K_BATCH_SYNC:
        rules->needed = parameter;
        rules->cancels = true;
        return true;
    case SIMULATION_K_ASYNC:
        rules->needed = parameter;
        rules->waits = true;
        return true;
    case SIMULATION_K_BATCH_ASYNC:
        rules->needed = parameter;
        return true;
    case SIMULATION_SOFTSYNC:
        rules->needed = workers / parameter;
        return true;
    case SIMULATION_BOUNDED:
        rules->bound = parameter;
        return true;
    case SIMULATION_GROUPS:
        *wrong = "the number of groups must divide the workers";
        rules->actors = parameter;
        rules->members = workers / parameter;
        return workers % parameter == 0;
    default:
        return true;
    }
}

/* Return the mean time from one update to the next, if it takes `needed` gradients and workers
 * never wait. This is exact for any law. */
static double renewals(const struct law *compute, uint32_t needed, uint32_t workers)
{
    return needed * law_mean(compute) / workers;
}

double simulation_closed_form(const struct simulation_setup *setup)
{
    const struct law *compute = &setup->compute;
    uint32_t workers = setup->workers;
    const char *wrong;
    struct simulation_rules rules;
    bool memoryless = compute->kind == LAW_EXPONENTIAL;
    if (!simulation_rules_of(&rules, setup->choice, workers, &wrong) || setup->bytes > 0 ||
        !law_is_zero(&setup->latency) || !law_is_zero(&setup->service) || setup->slow_workers > 0 ||
        (rules.cancels && setup->late_pushes && rules.needed < workers))
        return NAN;
    if (setup->choice.mode == SIMULATION_GROUPS)
        return law_order_statistic(compute, rules.members, rules.members) / rules.actors;
    if (rules.bound == 0) /* all begin each gradient together, and each is an update */
        return law_order_statistic(compute, workers, workers) / workers;
    if (rules.bound != UINT32_MAX)
        return NAN;
    if (rules.needed == workers && rules.waits)
        return law_order_statistic(compute, workers, workers);
    if (rules.waits && rules.needed > 1) /* those that continue are as good as new if memoryless */
        return rules.cancels || memoryless ? law_order_statistic(compute, rules.needed, workers)
                                           : NAN;
    if (rules.cancels && rules.needed == 1)
        return law_order_statistic(compute, 1, workers);
    if (rules.cancels && !memoryless)
        return NAN;
    return renewals(compute, rules.needed, workers);
}
