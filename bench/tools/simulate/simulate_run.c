/* SPDX-License-Identifier: Apache-2.0 */
/* The simulations of twill-simulate, which simulate_tool.py starts. NAME=VALUE sets a member of the
 * setup, and MODE simulates it. Each run prints a line of NAME=VALUE words. */
#include "bench/common/tool_calls.h"
#include "bench/tools/simulate/simulation.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIMULATE_AT(member) offsetof(struct simulation_setup, member)

/* A member of struct simulation_setup that a word NAME=VALUE sets, and its offset `at`. Only
 * laws of probability are checked here. simulate_tool.py has checked the other values. */
static const struct simulate_member {
    const char *name;
    enum { MEMBER_LAW, MEMBER_REAL, MEMBER_WORD, MEMBER_LONG, MEMBER_TRUTH } kind;
    size_t at;
} members[] = {
    {"compute", MEMBER_LAW, SIMULATE_AT(compute)},
    {"latency", MEMBER_LAW, SIMULATE_AT(latency)},
    {"service", MEMBER_LAW, SIMULATE_AT(service)},
    {"workers", MEMBER_WORD, SIMULATE_AT(workers)},
    {"shards", MEMBER_WORD, SIMULATE_AT(shards)},
    {"endpoints", MEMBER_WORD, SIMULATE_AT(endpoints)},
    {"credits", MEMBER_WORD, SIMULATE_AT(credits)},
    {"slow_workers", MEMBER_WORD, SIMULATE_AT(slow_workers)},
    {"slow_factor", MEMBER_REAL, SIMULATE_AT(slow_factor)},
    {"bytes", MEMBER_REAL, SIMULATE_AT(bytes)},
    {"server_link", MEMBER_REAL, SIMULATE_AT(server_link)},
    {"worker_link", MEMBER_REAL, SIMULATE_AT(worker_link)},
    {"late", MEMBER_TRUTH, SIMULATE_AT(late_pushes)},
    {"updates", MEMBER_LONG, SIMULATE_AT(updates)},
    {"skipped", MEMBER_LONG, SIMULATE_AT(skipped)},
    {"seed", MEMBER_LONG, SIMULATE_AT(seed)},
    {"rate", MEMBER_REAL, SIMULATE_AT(problem.rate)},
    {"rule", MEMBER_WORD, SIMULATE_AT(problem.rule)},
    {"distance_c", MEMBER_REAL, SIMULATE_AT(problem.distance_c)},
    {"distance_most", MEMBER_REAL, SIMULATE_AT(problem.distance_most)},
    {"dimensions", MEMBER_WORD, SIMULATE_AT(problem.dimensions)},
    {"condition", MEMBER_REAL, SIMULATE_AT(problem.condition)},
    {"noise", MEMBER_REAL, SIMULATE_AT(problem.noise)},
};

/* Print what is wrong with a word of the command line. Returns STATUS_USAGE. */
static int refuse(const char *word, const char *wrong)
{
    fprintf(stderr, "twill-simulate: '%s': %s\n", word, wrong);
    return STATUS_USAGE;
}

/* Set a member by NAME=VALUE. Returns STATUS_GOOD, or STATUS_USAGE after a message. */
static int set_member(struct simulation_setup *setup, const char *word)
{
    const char *wrong = "no member of a setup", *value = strchr(word, '=') + 1;
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        const struct simulate_member *member = &members[i];
        void *at = (char *)setup + member->at;
        if (strncmp(word, member->name, (size_t)(value - 1 - word)) != 0 ||
            member->name[value - 1 - word] != '\0')
            continue;
        if (member->kind == MEMBER_LAW) {
            law_free(at);
            return law_parse(at, value, &wrong) ? STATUS_GOOD : refuse(value, wrong);
        }
        if (member->kind == MEMBER_REAL)
            *(double *)at = strtod(value, NULL);
        else if (member->kind == MEMBER_WORD)
            *(uint32_t *)at = (uint32_t)strtoul(value, NULL, 10);
        else if (member->kind == MEMBER_LONG)
            *(uint64_t *)at = strtoull(value, NULL, 10);
        else
            *(bool *)at = strcmp(value, "1") == 0;
        return STATUS_GOOD;
    }
    return refuse(word, wrong);
}

/* Print a line of NAME=VALUE words with all of the result. `exact` is the closed form of the time
 * of an update, and `mode` the text of the mode. */
static void print_result(const char *mode, const struct simulation_setup *setup,
                         const struct simulation_result *r)
{
    printf("mode=%s workers=%u exact=%.17g elapsed=%.17g busy=%.17g push_mean=%.17g "
           "staleness_sum=%.17g floor=%.17g",
           mode, setup->workers, simulation_closed_form(setup), r->elapsed, r->busy, r->push_mean,
           r->staleness_sum, r->floor);
    printf(" updates=%" PRIu64 " used=%" PRIu64 " dropped=%" PRIu64 " pushes=%" PRIu64
           " largest_staleness=%" PRIu64 " furthest_ahead=%u diverged=%" PRIu64 " staleness=",
           r->updates, r->used, r->dropped, r->pushes, r->largest_staleness, r->furthest_ahead,
           r->diverged);
    for (int i = 0; i < SIMULATION_STALENESS; i++)
        if (r->staleness[i] > 0)
            printf("%d:%" PRIu64 ",", i, r->staleness[i]);
    printf(" curve=");
    for (int i = 0; i < SIMULATION_POINTS && isfinite(r->curve[i].loss); i++)
        printf("%.17g:%.17g,", r->curve[i].time, r->curve[i].loss);
    printf("\n");
    fflush(stdout); /* whoever reads it shows the progress */
}

/* Simulate the setup `runs` times, with consecutive seeds from setup->seed on, and print a line for
 * each, with `mode` as its name. The seed is then restored. Returns STATUS_GOOD, or STATUS_FAILED
 * after a message at the first failure. */
static int run_mode(struct simulation_setup *setup, const char *mode, size_t runs)
{
    struct simulation_result *result = malloc(sizeof(*result));
    struct simulation_rules rules;
    const char *wrong = "out of memory";
    uint64_t seed = setup->seed;
    bool good =
        result != NULL && simulation_rules_of(&rules, setup->choice, setup->workers, &wrong);
    for (size_t i = 0; good && i < runs; i++) {
        setup->seed = seed + i;
        wrong = "out of memory";
        good = simulation_run(result, setup);
        if (good)
            print_result(mode, setup, result);
    }
    setup->seed = seed;
    free(result);
    if (!good)
        fprintf(stderr, "twill-simulate: %s of %u workers: %s\n", mode, setup->workers, wrong);
    return good ? STATUS_GOOD : STATUS_FAILED;
}

/* Run the simulations of twill-simulate. argv[1] is the number of runs. Each later argument sets a
 * member (NAME=VALUE) or names a mode, which is then simulated. If one is wrong, nothing is
 * simulated. Returns an exit status. */
int main(int argc, char **argv)
{
    struct simulation_setup setup = {.shards = 1};
    size_t runs = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
    int status = STATUS_GOOD;
    const char *wrong;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 2; i < argc && status == STATUS_GOOD; i++) {
            if (strchr(argv[i], '=') != NULL)
                status = set_member(&setup, argv[i]);
            else if (!simulation_parse_choice(&setup.choice, argv[i], &wrong))
                status = refuse(argv[i], wrong);
            else if (pass > 0)
                status = run_mode(&setup, argv[i], runs);
        }
    law_free(&setup.compute);
    law_free(&setup.latency);
    law_free(&setup.service);
    return status;
}
