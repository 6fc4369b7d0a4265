/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of twill-bench latency and its kin. */
#include "bench/common/option_table.h"
#include "bench/common/report.h"
#include "bench/common/tool_calls.h"
#include "bench/tools/bench/fabric/fabric.h"

#include <getopt.h>
#include <string.h>

static const struct {
    const char *name, *help;
} measurements[FABRIC_MEASUREMENT_COUNT] = {
#define FABRIC_NAMED(enumerator, name, help) [enumerator] = {name, help},
    FABRIC_MEASUREMENTS(FABRIC_NAMED)};

/* transports that --transport all tries */
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
                     "  -J, --json FILE        also write the results as JSON; never overwrites\n"
                     "      --csv              print comma-separated values\n"
                     "      --window N         messages in flight from a sender (64)\n"
                     "      --transport LIST   shm, tcp, ofi:PROVIDER, default (what the job "
                     "uses), or\n"
                     "                         all that are here (default)\n"
                     "      --interface NAME   calls: twill's messages; alone: the transport "
                     "without\n"
                     "                         the library above it; both; puts: into windows\n"
                     "                         (latency only) (calls)\n"
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

/* Add a transport by its name. Returns false if it is unknown, too long or one too many. */
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

/* Set the transports of `member`, a struct fabric_options, to those that the text of --transport
 * lists, or for "all" to all known ones. Returns false if a name is wrong. */
static bool read_transports(void *member, const char *text)
{
    struct fabric_options *options = member;
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

/* Set `use` of `member`, a struct fabric_options, from the text of --interface, which is "calls",
 * "alone", "both" or "puts". Returns false if it is none of them. */
static bool read_interface(void *member, const char *text)
{
    struct fabric_options *options = member;
    bool both = strcmp(text, "both") == 0;
    options->use[FABRIC_CALLS] = both || strcmp(text, "calls") == 0;
    options->use[FABRIC_ALONE] = both || strcmp(text, "alone") == 0;
    options->use[FABRIC_PUTS] = strcmp(text, "puts") == 0;
    return options->use[FABRIC_CALLS] || options->use[FABRIC_ALONE] || options->use[FABRIC_PUTS];
}

/* Set `member`, a bool, to whether the text of --memory is "twill". Returns false unless it is that
 * or "malloc". */
static bool read_memory(void *member, const char *text)
{
    bool *placed = member;
    *placed = strcmp(text, "twill") == 0;
    return *placed || strcmp(text, "malloc") == 0;
}

#define FABRIC_AT(member) offsetof(struct fabric_options, member)

/* clang-format off */
static const struct twill_option table[] = {
    {'b', "minbytes", OPTION_SIZE, FABRIC_AT(min_bytes), 0, 0, "a size", NULL, 0},
    {'e', "maxbytes", OPTION_SIZE, FABRIC_AT(max_bytes), 0, 0, "a size", NULL, 0},
    {'f', "stepfactor", OPTION_COUNT, FABRIC_AT(factor), 2, 1 << 20, "a number from 2", NULL, 0},
    {'n', "iters", OPTION_COUNT, FABRIC_AT(iterations), 1, 1 << 28, "a number from 1", NULL, 0},
    {'w', "warmup_iters", OPTION_COUNT, FABRIC_AT(warmups), 0, 1 << 28, "a number", NULL, 0},
    {'c', "check", OPTION_TRUTH, FABRIC_AT(check), 0, 0, NULL, NULL, 0},
    {'T', "timeout", OPTION_COUNT, FABRIC_AT(timeout), 1, 1 << 20, "a number from 1", NULL, 0},
    {'J', "json", OPTION_TEXT, FABRIC_AT(output), 0, 0, NULL, NULL, 0},
    {0, "csv", OPTION_SWITCH, FABRIC_AT(csv), 0, 0, NULL, NULL, 0},
    {0, "window", OPTION_COUNT, FABRIC_AT(window), 1, 4096, "a number from 1 to 4096", NULL, 0},
    {0, "transport", OPTION_OWN, 0, 0, 0, "all, or a list of shm, tcp, ofi:PROVIDER, default", read_transports, 0},
    {0, "interface", OPTION_OWN, 0, 0, 0, "calls, alone, both or puts", read_interface, 0},
    {0, "memory", OPTION_OWN, FABRIC_AT(placed), 0, 0, "malloc or twill", read_memory, 0},
    {0, "pingpong", OPTION_SWITCH, FABRIC_AT(pingpong), 0, 0, NULL, NULL, 0},
};
/* clang-format on */

/* Return what is wrong with the options together, or NULL. */
static const char *check_options(const struct fabric_options *options)
{
    if (options->min_bytes > options->max_bytes)
        return "-b/--minbytes is above -e/--maxbytes";
    if (options->min_bytes == 0)
        return "-b/--minbytes: sizes are multiplied, and begin at 1";
    if (options->use[FABRIC_PUTS] && options->measurement != FABRIC_LATENCY)
        return "--interface: puts are measured by latency only";
    if (options->use[FABRIC_ALONE] && options->placed)
        return "--interface: a transport alone has no memory of twill_alloc()";
    for (size_t i = 0; options->use[FABRIC_ALONE] && i < options->transports; i++)
        if (strcmp(options->transport[i], "default") == 0)
            return "--interface: alone needs --transport with the names of transports";
    return NULL;
}

bool fabric_parse(struct fabric_options *options, int argc, char **argv, bool speak, int *status)
{
    enum fabric_measurement measurement = (enum fabric_measurement)fabric_find(argv[1]);
    *options = (struct fabric_options){.measurement = measurement,
                                       .min_bytes = 1,
                                       .max_bytes = measurement == FABRIC_RATE ? 4096 : 4 << 20,
                                       .factor = 2,
                                       .warmups = 10,
                                       .window = 64,
                                       .check = true,
                                       .use[FABRIC_CALLS] = true};
    (void)add_transport(options, "default", 7);
    *status = STATUS_USAGE;
    char program[64];
    snprintf(program, sizeof(program), "twill-bench %s", argv[1]);
    const struct twill_command command = {program, usage, table, sizeof(table) / sizeof(table[0])};
    optind = 2;
    enum twill_parsed parsed = twill_options_parse(&command, options, argc, argv, speak);
    if (parsed == TWILL_PARSED_DONE)
        *status = STATUS_GOOD;
    if (parsed != TWILL_PARSED_RUN)
        return false;
    const char *mistake = optind < argc ? "unexpected argument" : check_options(options);
    if (mistake != NULL && speak)
        fprintf(stderr, "twill-bench %s: %s%s%s\n", argv[1], mistake, optind < argc ? ": " : "",
                optind < argc ? argv[optind] : "");
    return mistake == NULL;
}
