/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of twill-simulate. */
#include "bench/common/exit_status.h"
#include "bench/common/option_table.h"
#include "bench/common/report.h"
#include "bench/tools/simulate/simulate_tool.h"
#include "lib/twill.h"

#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "Usage: twill-simulate [options] MODE...\n"
    "Simulate a parameter server and its workers: the time of an update, beside its\n"
    "closed form where there is one, the staleness of gradients, and the loss on a\n"
    "quadratic.\n"
    "\n"
    "MODE: sync, k-sync:K, k-batch-sync:K, k-async:K, k-batch-async:K, async,\n"
    "      softsync:N, bounded:S, groups:G\n"
    "LAW of times in seconds: const:TIME, exp:MEAN, shifted:SHIFT,MEAN,\n"
    "      uniform:MIN,MAX, pareto:MIN,SHAPE, list:FILE\n"
    "\n"
    "  -p, --workers N,N,...    numbers of workers (8)\n"
    "  -u, --updates N          updates of a run, of which the first tenth is not\n"
    "                           counted (20000)\n"
    "  -r, --runs N             runs, whose seeds follow each other (1)\n"
    "  -s, --seed N             of the first run (1)\n"
    "  -c, --compute LAW        time of a gradient (exp:1)\n"
    "  -l, --latency LAW        of a message (const:0)\n"
    "      --service LAW        time of the server for a push (const:0)\n"
    "      --slow N:FACTOR      N workers compute FACTOR times as long\n"
    "  -b, --bytes SIZE         of the parameters; 0: messages take no time on links\n"
    "                           (0)\n"
    "      --server-link SIZE   bytes per second of an endpoint of the server, each\n"
    "                           way (1G)\n"
    "      --worker-link SIZE   bytes per second of a worker (1G)\n"
    "      --endpoints N        of the server (1)\n"
    "      --credits N          messages on their way to the server at a time (no\n"
    "                           limit)\n"
    "      --shards N           of the parameters, which are updated each by itself\n"
    "                           (1)\n"
    "      --late               late gradients are not cancelled but dropped by the\n"
    "                           server\n"
    "      --rate A             minimise a quadratic with this learning rate (0: do\n"
    "                           not)\n"
    "      --rule RULE          fixed, staleness (A / staleness), distance:C (min(C /\n"
    "                           d, A))\n"
    "      --dimensions N       of the quadratic (10)\n"
    "      --condition C        its largest curvature, 1, over the smallest (10)\n"
    "      --noise S            standard deviation of a gradient in each dimension\n"
    "                           (1)\n"
    "      --curve              print the loss over time and updates, not the table\n"
    "      --histogram          print how often each staleness occurred, not the\n"
    "                           table\n"
    "      --csv, --json        print as CSV, as JSON\n"
    "  -h, --help  -V, --version\n"
    "\n"
    "Exit status: 0 success, 1 a simulation cannot be run, 2 a wrong command line.\n";

static bool read_positive(void *member, const char *text)
{
    char *end;
    double *number = member;
    *number = strtod(text, &end);
    return end != text && *end == '\0' && *number > 0 && isfinite(*number);
}

static bool read_noise(void *member, const char *text)
{
    *(double *)member = 0;
    return strcmp(text, "0") == 0 || read_positive(member, text);
}

static bool read_bytes(void *member, const char *text)
{
    size_t number;
    bool good = twill_bench_parse_size(text, &number);
    *(double *)member = good ? (double)number : 0;
    return good;
}

static bool read_speed(void *member, const char *text)
{
    return read_bytes(member, text) && *(double *)member >= 1;
}

static bool read_count(uint32_t *count, const char *text, uint32_t least, uint32_t most)
{
    size_t number = 0;
    bool good = twill_bench_parse_number(text, least, most, &number);
    *count = (uint32_t)number;
    return good;
}

static bool read_many(void *member, const char *text)
{
    return read_count(member, text, 1, 1000000);
}

static bool read_shards(void *member, const char *text)
{
    return read_count(member, text, 1, 10000);
}

static bool read_workers(void *member, const char *text)
{
    struct simulate_request *request = member;
    char *copy = strdup(text), *rest = NULL;
    bool good = copy != NULL;
    request->worker_count = 0;
    for (char *word = copy; good && (word = strtok_r(word, ",", &rest)) != NULL; word = NULL)
        good = request->worker_count < SIMULATE_WORKERS &&
               read_count(&request->workers[request->worker_count++], word, 1, 100000);
    free(copy);
    return good && request->worker_count > 0;
}

static bool read_slow(void *member, const char *text)
{
    struct simulation_setup *setup = member;
    char count[16];
    const char *colon = strchr(text, ':');
    if (colon == NULL || colon - text >= (ptrdiff_t)sizeof(count))
        return false;
    snprintf(count, sizeof(count), "%.*s", (int)(colon - text), text);
    return read_count(&setup->slow_workers, count, 0, 100000) &&
           read_positive(&setup->slow_factor, colon + 1);
}

static bool read_rule(void *member, const char *text)
{
    struct simulation_problem *problem = member;
    problem->distance_c = 0;
    problem->rule = strcmp(text, "staleness") == 0 ? RATE_STALENESS : RATE_FIXED;
    if (strncmp(text, "distance:", 9) != 0)
        return strcmp(text, "fixed") == 0 || problem->rule == RATE_STALENESS;
    problem->rule = RATE_DISTANCE;
    return read_positive(&problem->distance_c, text + 9);
}

static bool read_law(void *member, const char *text)
{
    const char *wrong;
    law_free(member);
    if (law_parse(member, text, &wrong))
        return true;
    fprintf(stderr, "twill-simulate: '%s': %s\n", text, wrong);
    return false;
}

#define SIMULATE_AT(member) offsetof(struct simulate_request, member)
#define WRONG               "a valid value; see --help"

/* clang-format off */
static const struct twill_option table[] = {
    {'p', "workers", OPTION_OWN, 0, 0, 0, WRONG, read_workers, 0},
    {'u', "updates", OPTION_COUNT, SIMULATE_AT(setup.updates), 100, 1000000000, WRONG, NULL, 0},
    {'r', "runs", OPTION_COUNT, SIMULATE_AT(runs), 1, 100000, WRONG, NULL, 0},
    {'s', "seed", OPTION_COUNT, SIMULATE_AT(setup.seed), 0, 0, WRONG, NULL, 0},
    {'c', "compute", OPTION_OWN, SIMULATE_AT(setup.compute), 0, 0, WRONG, read_law, 0},
    {'l', "latency", OPTION_OWN, SIMULATE_AT(setup.latency), 0, 0, WRONG, read_law, 0},
    {0, "service", OPTION_OWN, SIMULATE_AT(setup.service), 0, 0, WRONG, read_law, 0},
    {0, "slow", OPTION_OWN, SIMULATE_AT(setup), 0, 0, WRONG, read_slow, 0},
    {'b', "bytes", OPTION_OWN, SIMULATE_AT(setup.bytes), 0, 0, WRONG, read_bytes, 0},
    {0, "server-link", OPTION_OWN, SIMULATE_AT(setup.server_link), 0, 0, WRONG, read_speed, 0},
    {0, "worker-link", OPTION_OWN, SIMULATE_AT(setup.worker_link), 0, 0, WRONG, read_speed, 0},
    {0, "endpoints", OPTION_OWN, SIMULATE_AT(setup.endpoints), 0, 0, WRONG, read_many, 0},
    {0, "credits", OPTION_OWN, SIMULATE_AT(setup.credits), 0, 0, WRONG, read_many, 0},
    {0, "shards", OPTION_OWN, SIMULATE_AT(setup.shards), 0, 0, WRONG, read_shards, 0},
    {0, "late", OPTION_SWITCH, SIMULATE_AT(setup.late_pushes), 0, 0, NULL, NULL, 0},
    {0, "rate", OPTION_OWN, SIMULATE_AT(setup.problem.rate), 0, 0, WRONG, read_positive, 0},
    {0, "rule", OPTION_OWN, SIMULATE_AT(setup.problem), 0, 0, WRONG, read_rule, 0},
    {0, "dimensions", OPTION_OWN, SIMULATE_AT(setup.problem.dimensions), 0, 0, WRONG, read_many, 0},
    {0, "condition", OPTION_OWN, SIMULATE_AT(setup.problem.condition), 0, 0, WRONG, read_positive, 0},
    {0, "noise", OPTION_OWN, SIMULATE_AT(setup.problem.noise), 0, 0, WRONG, read_noise, 0},
    {0, "curve", OPTION_SWITCH, SIMULATE_AT(curve), 0, 0, NULL, NULL, 0},
    {0, "histogram", OPTION_SWITCH, SIMULATE_AT(histogram), 0, 0, NULL, NULL, 0},
    {0, "csv", OPTION_SWITCH, SIMULATE_AT(csv), 0, 0, NULL, NULL, 0},
    {0, "json", OPTION_SWITCH, SIMULATE_AT(json), 0, 0, NULL, NULL, 0},
};
/* clang-format on */

static bool parse_modes(struct simulate_request *request, int count, char **texts)
{
    const char *wrong = "too many modes";
    for (int i = 0; i < count; i++) {
        if (i == SIMULATE_MODES ||
            !simulation_parse_choice(&request->modes[request->mode_count++], texts[i], &wrong)) {
            fprintf(stderr, "twill-simulate: '%s': %s\n", texts[i], wrong);
            return false;
        }
    }
    if (count == 0)
        fprintf(stderr, "twill-simulate: no MODE: name one, such as sync or k-sync:4\n");
    return count > 0;
}

/* Make one whole of options that depend on each other. */
static bool complete(struct simulate_request *request)
{
    struct simulation_problem *problem = &request->setup.problem;
    problem->distance_most = 1;
    if (problem->rate > 0) { /* min(C / d, A) is A * min((C / A) / d, 1) */
        problem->distance_c /= problem->rate;
        return true;
    }
    problem->dimensions = 0;
    if (request->curve)
        fprintf(stderr, "twill-simulate: --curve: there is no loss without --rate\n");
    return !request->curve;
}

int simulate_parse(struct simulate_request *request, int argc, char **argv)
{
    *request = (struct simulate_request){
        .workers = {8},
        .worker_count = 1,
        .runs = 1,
        .setup = {.shards = 1,
                  .compute = {.kind = LAW_EXPONENTIAL, .a = 1},
                  .server_link = 0x1p30,
                  .worker_link = 0x1p30,
                  .endpoints = 1,
                  .credits = UINT32_MAX,
                  .slow_factor = 1,
                  .updates = 20000,
                  .seed = 1,
                  .problem = {.dimensions = 10, .condition = 10, .noise = 1}},
    };
    const struct twill_command command = {"twill-simulate", usage, table,
                                          sizeof(table) / sizeof(table[0])};
    enum twill_parsed parsed = twill_options_parse(&command, request, argc, argv, true);
    if (parsed != TWILL_PARSED_RUN)
        return parsed == TWILL_PARSED_DONE ? STATUS_GOOD : STATUS_USAGE;
    request->setup.skipped = request->setup.updates / 10;
    bool good = parse_modes(request, argc - optind, argv + optind) && complete(request);
    return good ? -1 : STATUS_USAGE;
}
