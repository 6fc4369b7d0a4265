/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of twill-bench latency and its kin. */
#include "bench/common/exit_status.h"
#include "bench/common/help.h"
#include "bench/common/report.h"
#include "bench/tools/bench/fabric/fabric.h"

#include <getopt.h>
#include <string.h>

enum {
    FABRIC_OPTION_WINDOW = 256,
    FABRIC_OPTION_TRANSPORT,
    FABRIC_OPTION_INTERFACE,
    FABRIC_OPTION_MEMORY,
    FABRIC_OPTION_PINGPONG,
    FABRIC_OPTION_CSV
};

static const struct {
    const char *name, *help;
} measurements[FABRIC_MEASUREMENT_COUNT] = {
#define FABRIC_NAMED(enumerator, name, help) [enumerator] = {name, help},
    FABRIC_MEASUREMENTS(FABRIC_NAMED)};

/* What --transport all tries. */
static const char *const known_transports[] = {
    "shm",      "tcp",     "ofi:tcp", "ofi:sockets", "ofi:udp", "ofi:verbs", "ofi:psm3",
    "ofi:psm2", "ofi:opx", "ofi:cxi", "ofi:gni",     "ofi:efa", "ofi:ucx"};

static const char usage[] =
    "Usage: twill-bench MEASUREMENT [options]\n"
    "Measure messages between ranks (see twillrun), with the columns of OSU's\n"
    "micro-benchmarks. The pair is rank 0 and rank P/2.\n"
#define FABRIC_HELP(enumerator, name, help) "  " name ": " help "\n"
    FABRIC_MEASUREMENTS(
        FABRIC_HELP) "\n"
                     "  -b, --minbytes SIZE    first size (1)\n"
                     "  -e, --maxbytes SIZE    last size (4M; rate: 4K)\n"
                     "  -f, --stepfactor N     multiply by this for the next size (2)\n"
                     "  -n, --iters N          iterations (1000, of windows 100; a tenth above "
                     "8K)\n"
                     "  -w, --warmup_iters N   iterations before those, at each size (10)\n"
                     "  -c, --check 0|1        send known bytes and count wrong ones, untimed (1)\n"
                     "  -T, --timeout SECONDS  give up a wait after this long\n"
                     "  -J, --json FILE        write the results as JSON too; never overwrites\n"
                     "      --csv              print comma-separated values\n"
                     "      --window N         messages in flight from a sender (64)\n"
                     "      --transport LIST   shm, tcp, ofi:PROVIDER, default (what the job "
                     "uses), or\n"
                     "                         all that are here (default)\n"
                     "      --interface NAME   calls: twill's messages; alone: the transport "
                     "without\n"
                     "                         the library above it; both (calls)\n"
                     "      --memory malloc|twill  where buffers come from (malloc)\n"
                     "      --pingpong         a column of libfabric's fi_pingpong, where it is\n"
                     "                         installed\n"
                     "  -h, --help  -V, --version\n"
                     "\n"
                     "Exit status: 0 success, 1 a wrong value or a failure, 2 a wrong command "
                     "line.\n";

int fabric_find(const char *name)
{
    for (int i = 0; i < FABRIC_MEASUREMENT_COUNT; i++)
        if (strcmp(name, measurements[i].name) == 0)
            return i;
    return -1;
}

const char *fabric_name(enum fabric_measurement measurement)
{
    return measurements[measurement].name;
}

static bool add_transport(struct fabric_options *options, const char *name, size_t length)
{
    bool known = (length == 3 && strncmp(name, "shm", 3) == 0) ||
                 (length == 3 && strncmp(name, "tcp", 3) == 0) ||
                 (length == 7 && strncmp(name, "default", 7) == 0) ||
                 (length > 4 && strncmp(name, "ofi:", 4) == 0);
    if (!known || length >= FABRIC_TRANSPORT_NAME || options->transports == FABRIC_MOST_TRANSPORTS)
        return false;
    snprintf(options->transport[options->transports++], FABRIC_TRANSPORT_NAME, "%.*s", (int)length,
             name);
    return true;
}

static bool set_transports(struct fabric_options *options, const char *text)
{
    options->transports = 0;
    options->all = strcmp(text, "all") == 0;
    for (size_t i = 0; options->all && i < sizeof(known_transports) / sizeof(char *); i++)
        (void)add_transport(options, known_transports[i], strlen(known_transports[i]));
    while (!options->all) {
        size_t length = strcspn(text, ",");
        if (!add_transport(options, text, length))
            return false;
        if (text[length] == '\0')
            return true;
        text += length + 1;
    }
    return true;
}

/* Set the interfaces by their name. */
static bool set_interface(struct fabric_options *options, const char *text)
{
    bool both = strcmp(text, "both") == 0;
    options->calls = both || strcmp(text, "calls") == 0;
    options->alone = both || strcmp(text, "alone") == 0;
    return options->calls || options->alone;
}

/* Set an option. Returns NULL, or what its value should have been. */
static const char *set_option(struct fabric_options *options, int letter, const char *text)
{
    size_t number;
    switch (letter) {
    case 'b':
        return twill_bench_parse_size(text, &options->min_bytes) ? NULL : "a size";
    case 'e':
        return twill_bench_parse_size(text, &options->max_bytes) ? NULL : "a size";
    case 'f':
        return twill_bench_parse_number(text, 2, 1 << 20, &options->factor) ? NULL
                                                                            : "a number from 2";
    case 'n':
        return twill_bench_parse_number(text, 1, 1 << 28, &options->iterations) ? NULL
                                                                                : "a number from 1";
    case 'w':
        return twill_bench_parse_number(text, 0, 1 << 28, &options->warmups) ? NULL : "a number";
    case 'T':
        return twill_bench_parse_number(text, 1, 1 << 20, &options->timeout) ? NULL
                                                                             : "a number from 1";
    case 'c':
        if (!twill_bench_parse_number(text, 0, 1, &number))
            return "0 or 1";
        options->check = number == 1;
        return NULL;
    case FABRIC_OPTION_WINDOW:
        return twill_bench_parse_number(text, 1, 4096, &options->window)
                   ? NULL
                   : "a number from 1 to 4096";
    case FABRIC_OPTION_TRANSPORT:
        return set_transports(options, text) ? NULL
                                             : "all, or a list of shm, tcp, ofi:PROVIDER, default";
    case FABRIC_OPTION_INTERFACE:
        return set_interface(options, text) ? NULL : "calls, alone or both";
    case FABRIC_OPTION_MEMORY:
        options->placed = strcmp(text, "twill") == 0;
        return options->placed || strcmp(text, "malloc") == 0 ? NULL : "malloc or twill";
    case 'J':
        options->output = text;
        return NULL;
    case FABRIC_OPTION_CSV:
        options->csv = true;
        return NULL;
    case FABRIC_OPTION_PINGPONG:
        options->pingpong = true;
        return NULL;
    }
    return "";
}

static const char *check_options(const struct fabric_options *options)
{
    if (options->min_bytes > options->max_bytes)
        return "-b/--minbytes is above -e/--maxbytes";
    if (options->min_bytes == 0)
        return "-b/--minbytes: sizes are multiplied, and begin at 1";
    if (options->alone && options->placed)
        return "--interface: a transport alone has no memory of twill_alloc()";
    for (size_t i = 0; options->alone && i < options->transports; i++)
        if (strcmp(options->transport[i], "default") == 0)
            return "--interface: alone needs --transport with the names of transports";
    return NULL;
}

bool fabric_parse(struct fabric_options *options, int argc, char **argv, bool speak, int *status)
{
    static const struct option names[] = {
        {"minbytes", required_argument, NULL, 'b'},
        {"maxbytes", required_argument, NULL, 'e'},
        {"stepfactor", required_argument, NULL, 'f'},
        {"iters", required_argument, NULL, 'n'},
        {"warmup_iters", required_argument, NULL, 'w'},
        {"check", required_argument, NULL, 'c'},
        {"timeout", required_argument, NULL, 'T'},
        {"json", required_argument, NULL, 'J'},
        {"csv", no_argument, NULL, FABRIC_OPTION_CSV},
        {"window", required_argument, NULL, FABRIC_OPTION_WINDOW},
        {"transport", required_argument, NULL, FABRIC_OPTION_TRANSPORT},
        {"interface", required_argument, NULL, FABRIC_OPTION_INTERFACE},
        {"memory", required_argument, NULL, FABRIC_OPTION_MEMORY},
        {"pingpong", no_argument, NULL, FABRIC_OPTION_PINGPONG},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},
        {NULL, 0, NULL, 0},
    };
    int letter;
    enum fabric_measurement measurement = (enum fabric_measurement)fabric_find(argv[1]);
    *options = (struct fabric_options){.measurement = measurement,
                                       .min_bytes = 1,
                                       .max_bytes = measurement == FABRIC_RATE ? 4096 : 4 << 20,
                                       .factor = 2,
                                       .warmups = 10,
                                       .window = 64,
                                       .check = true,
                                       .calls = true};
    (void)add_transport(options, "default", 7);
    *status = STATUS_USAGE;
    opterr = speak;
    optind = 2;
    while ((letter = getopt_long(argc, argv, "b:e:f:n:w:c:T:J:hV", names, NULL)) != -1) {
        if (twill_bench_help(letter, "twill-bench", usage, speak)) {
            *status = STATUS_GOOD;
            return false;
        }
        const char *expected = letter == '?' ? "" : set_option(options, letter, optarg);
        if (expected == NULL)
            continue;
        if (speak && expected[0] != '\0')
            fprintf(stderr, "twill-bench %s: '%s' is not %s\n", argv[1], optarg, expected);
        return false;
    }
    const char *mistake = optind < argc ? "unexpected argument" : check_options(options);
    if (mistake != NULL && speak)
        fprintf(stderr, "twill-bench %s: %s%s%s\n", argv[1], mistake, optind < argc ? ": " : "",
                optind < argc ? argv[optind] : "");
    return mistake == NULL;
}
