/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of twill-simulate. */
#include "bench/common/exit_status.h"
#include "bench/common/help.h"
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

enum simulate_option_code {
    SIMULATE_OPTION_SERVICE = 256,
    SIMULATE_OPTION_SLOW,
    SIMULATE_OPTION_SERVER_LINK,
    SIMULATE_OPTION_WORKER_LINK,
    SIMULATE_OPTION_ENDPOINTS,
    SIMULATE_OPTION_CREDITS,
    SIMULATE_OPTION_SHARDS,
    SIMULATE_OPTION_LATE,
    SIMULATE_OPTION_RATE,
    SIMULATE_OPTION_RULE,
    SIMULATE_OPTION_DIMENSIONS,
    SIMULATE_OPTION_CONDITION,
    SIMULATE_OPTION_NOISE,
    SIMULATE_OPTION_CURVE,
    SIMULATE_OPTION_HISTOGRAM,
    SIMULATE_OPTION_CSV,
    SIMULATE_OPTION_JSON
};

static const struct option options[] = {
    {"workers", required_argument, NULL, 'p'},
    {"updates", required_argument, NULL, 'u'},
    {"runs", required_argument, NULL, 'r'},
    {"seed", required_argument, NULL, 's'},
    {"compute", required_argument, NULL, 'c'},
    {"latency", required_argument, NULL, 'l'},
    {"service", required_argument, NULL, SIMULATE_OPTION_SERVICE},
    {"slow", required_argument, NULL, SIMULATE_OPTION_SLOW},
    {"bytes", required_argument, NULL, 'b'},
    {"server-link", required_argument, NULL, SIMULATE_OPTION_SERVER_LINK},
    {"worker-link", required_argument, NULL, SIMULATE_OPTION_WORKER_LINK},
    {"endpoints", required_argument, NULL, SIMULATE_OPTION_ENDPOINTS},
    {"credits", required_argument, NULL, SIMULATE_OPTION_CREDITS},
    {"shards", required_argument, NULL, SIMULATE_OPTION_SHARDS},
    {"late", no_argument, NULL, SIMULATE_OPTION_LATE},
    {"rate", required_argument, NULL, SIMULATE_OPTION_RATE},
    {"rule", required_argument, NULL, SIMULATE_OPTION_RULE},
    {"dimensions", required_argument, NULL, SIMULATE_OPTION_DIMENSIONS},
    {"condition", required_argument, NULL, SIMULATE_OPTION_CONDITION},
    {"noise", required_argument, NULL, SIMULATE_OPTION_NOISE},
    {"curve", no_argument, NULL, SIMULATE_OPTION_CURVE},
    {"histogram", no_argument, NULL, SIMULATE_OPTION_HISTOGRAM},
    {"csv", no_argument, NULL, SIMULATE_OPTION_CSV},
    {"json", no_argument, NULL, SIMULATE_OPTION_JSON},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},
    {NULL, 0, NULL, 0},
};

static bool parse_count(const char *text, uint32_t min, uint32_t max, uint32_t *count)
{
    size_t number = 0;
    bool good = twill_bench_parse_number(text, min, max, &number);
    *count = (uint32_t)number;
    return good;
}

static bool parse_positive(const char *text, double *number)
{
    char *end;
    *number = strtod(text, &end);
    return end != text && *end == '\0' && *number > 0 && isfinite(*number);
}

static bool parse_bytes(const char *text, size_t min, double *bytes)
{
    size_t number;
    if (!twill_bench_parse_size(text, &number) || number < min)
        return false;
    *bytes = (double)number;
    return true;
}

static bool parse_workers(struct simulate_request *request, char *text)
{
    request->worker_count = 0;
    char *rest = NULL;
    for (char *word = strtok_r(text, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest)) {
        if (request->worker_count == SIMULATE_WORKERS ||
            !parse_count(word, 1, 100000, &request->workers[request->worker_count]))
            return false;
        request->worker_count++;
    }
    return request->worker_count > 0;
}

static bool parse_slow(struct simulation_setup *setup, char *text)
{
    char *colon = strchr(text, ':');
    if (colon == NULL)
        return false;
    *colon = '\0';
    return parse_count(text, 0, 100000, &setup->slow_workers) &&
           parse_positive(colon + 1, &setup->slow_factor);
}

static bool parse_rule(struct simulation_problem *problem, const char *text)
{
    problem->distance_c = 0;
    problem->rule = strcmp(text, "staleness") == 0 ? RATE_STALENESS : RATE_FIXED;
    if (strncmp(text, "distance:", 9) != 0)
        return strcmp(text, "fixed") == 0 || problem->rule == RATE_STALENESS;
    problem->rule = RATE_DISTANCE;
    return parse_positive(text + 9, &problem->distance_c);
}

static bool parse_law(struct law *law, const char *text, const char **wrong)
{
    law_free(law);
    return law_parse(law, text, wrong);
}

/* Store an option of the times and the network. Returns whether its value is valid; if not, *wrong
 * may say why. */
static bool store_times(struct simulate_request *request, int code, const char **wrong)
{
    struct simulation_setup *setup = &request->setup;
    size_t number = 0;
    bool good;
    switch (code) {
    case 'p':
        return parse_workers(request, optarg);
    case 'u':
        good = twill_bench_parse_number(optarg, 100, 1000000000, &number);
        setup->updates = number;
        setup->skipped = number / 10;
        return good;
    case 'r':
        return twill_bench_parse_number(optarg, 1, 100000, &request->runs);
    case 's':
        good = twill_bench_parse_number(optarg, 0, SIZE_MAX, &number);
        setup->seed = number;
        return good;
    case 'c':
        return parse_law(&setup->compute, optarg, wrong);
    case 'l':
        return parse_law(&setup->latency, optarg, wrong);
    case SIMULATE_OPTION_SERVICE:
        return parse_law(&setup->service, optarg, wrong);
    case SIMULATE_OPTION_SLOW:
        return parse_slow(setup, optarg);
    case 'b':
        return parse_bytes(optarg, 0, &setup->bytes);
    case SIMULATE_OPTION_SERVER_LINK:
        return parse_bytes(optarg, 1, &setup->server_link);
    case SIMULATE_OPTION_WORKER_LINK:
        return parse_bytes(optarg, 1, &setup->worker_link);
    case SIMULATE_OPTION_ENDPOINTS:
        return parse_count(optarg, 1, 1000000, &setup->endpoints);
    case SIMULATE_OPTION_CREDITS:
        return parse_count(optarg, 1, 1000000, &setup->credits);
    case SIMULATE_OPTION_SHARDS:
        return parse_count(optarg, 1, 10000, &setup->shards);
    default:
        return false;
    }
}

/* Store another option; the rest as above. */
static bool store_option(struct simulate_request *request, int code, const char **wrong)
{
    struct simulation_problem *problem = &request->setup.problem;
    switch (code) {
    case SIMULATE_OPTION_LATE:
        return request->setup.late_pushes = true;
    case SIMULATE_OPTION_RATE:
        return parse_positive(optarg, &problem->rate);
    case SIMULATE_OPTION_RULE:
        return parse_rule(problem, optarg);
    case SIMULATE_OPTION_DIMENSIONS:
        return parse_count(optarg, 1, 1000000, &problem->dimensions);
    case SIMULATE_OPTION_CONDITION:
        return parse_positive(optarg, &problem->condition);
    case SIMULATE_OPTION_NOISE:
        return strcmp(optarg, "0") == 0 ? (problem->noise = 0, true)
                                        : parse_positive(optarg, &problem->noise);
    case SIMULATE_OPTION_CURVE:
        return request->curve = true;
    case SIMULATE_OPTION_HISTOGRAM:
        return request->histogram = true;
    case SIMULATE_OPTION_CSV:
        request->format = SIMULATE_CSV;
        return true;
    case SIMULATE_OPTION_JSON:
        request->format = SIMULATE_JSON;
        return true;
    default:
        return store_times(request, code, wrong);
    }
}

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
                  .skipped = 2000,
                  .seed = 1,
                  .problem = {.dimensions = 10, .condition = 10, .noise = 1}},
    };
    int code, index = -1;
    while ((code = getopt_long(argc, argv, "p:u:r:s:c:l:b:hV", options, &index)) != -1) {
        const char *wrong = "not a valid value; see --help";
        if (twill_bench_help(code, "twill-simulate", usage, true))
            return STATUS_GOOD;
        if (code == '?')
            return STATUS_USAGE;
        if (!store_option(request, code, &wrong)) {
            fprintf(stderr, "twill-simulate: '%s': %s\n", optarg, wrong);
            return STATUS_USAGE;
        }
    }
    bool good = parse_modes(request, argc - optind, argv + optind) && complete(request);
    return good ? -1 : STATUS_USAGE;
}
