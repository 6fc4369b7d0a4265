/* SPDX-License-Identifier: Apache-2.0 */
/* Parse twill-compare's command line. */
#include "bench/common/help.h"
#include "bench/common/option_names.h"
#include "bench/common/report.h"
#include "bench/tools/compare/compare.h"
#include "lib/twill.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

enum {
    COMPARE_OPTION_MAX = 256,
    COMPARE_OPTION_SIZES,
    COMPARE_OPTION_ROUNDS,
    COMPARE_OPTION_ONLY,
    COMPARE_OPTION_PEERS,
    COMPARE_OPTION_BIND,
    COMPARE_OPTION_PERSISTENT,
    COMPARE_OPTION_DETAILS,
    COMPARE_OPTION_QUICK,
    COMPARE_OPTION_LIST,
    COMPARE_OPTION_MPI,
    COMPARE_OPTION_TIMEOUT,
    COMPARE_OPTION_TURN,
    COMPARE_OPTION_JSON,
    COMPARE_OPTION_CSV,
    COMPARE_OPTION_PLOT,
    COMPARE_OPTION_WORK,
    COMPARE_OPTION_UCC,
    COMPARE_OPTION_ONECCL,
    COMPARE_OPTION_HOSTS,
    COMPARE_OPTION_AGENT,
    COMPARE_OPTION_CONGESTION,
    COMPARE_OPTION_ADDRESS,
    COMPARE_OPTION_STEPS,
    COMPARE_OPTION_BATCH,
    COMPARE_OPTION_GFLOPS,
    COMPARE_OPTION_DEVICE
};

static const struct option long_options[] = {
    {"ranks", required_argument, NULL, 'n'},
    {"max", required_argument, NULL, COMPARE_OPTION_MAX},
    {"sizes", required_argument, NULL, COMPARE_OPTION_SIZES},
    {"rounds", required_argument, NULL, COMPARE_OPTION_ROUNDS},
    {"only", required_argument, NULL, COMPARE_OPTION_ONLY},
    {"peers", required_argument, NULL, COMPARE_OPTION_PEERS},
    {"bind", required_argument, NULL, COMPARE_OPTION_BIND},
    {"persistent", no_argument, NULL, COMPARE_OPTION_PERSISTENT},
    {"prepared", no_argument, NULL, COMPARE_OPTION_PERSISTENT}, /* its name before 0.1.0 */
    {"details", no_argument, NULL, COMPARE_OPTION_DETAILS},
    {"quick", no_argument, NULL, COMPARE_OPTION_QUICK},
    {"list", no_argument, NULL, COMPARE_OPTION_LIST},
    {"mpi", no_argument, NULL, COMPARE_OPTION_MPI},
    {"timeout", required_argument, NULL, COMPARE_OPTION_TIMEOUT},
    {"turn", required_argument, NULL, COMPARE_OPTION_TURN},
    {"json", required_argument, NULL, COMPARE_OPTION_JSON},
    {"csv", required_argument, NULL, COMPARE_OPTION_CSV},
    {"plot", required_argument, NULL, COMPARE_OPTION_PLOT},
    {"work", required_argument, NULL, COMPARE_OPTION_WORK},
    {"ucc", required_argument, NULL, COMPARE_OPTION_UCC},
    {"oneccl", required_argument, NULL, COMPARE_OPTION_ONECCL},
    {"hosts", required_argument, NULL, COMPARE_OPTION_HOSTS},
    {"agent", required_argument, NULL, COMPARE_OPTION_AGENT},
    {"congestion", required_argument, NULL, COMPARE_OPTION_CONGESTION},
    {"address", required_argument, NULL, COMPARE_OPTION_ADDRESS},
    {"steps", required_argument, NULL, COMPARE_OPTION_STEPS},
    {"batch", required_argument, NULL, COMPARE_OPTION_BATCH},
    {"device-gflops", required_argument, NULL, COMPARE_OPTION_GFLOPS},
    {"device", no_argument, NULL, COMPARE_OPTION_DEVICE},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},
    {NULL, 0, NULL, 0},
};

static const char usage[] =
    "Usage: twill-compare [options]\n"
    "Time twill, the other libraries on this machine (Open MPI, MPICH, Gloo; UCC and\n"
    "oneCCL if their paths are given) and a bound that copies nothing, in turns, with\n"
    "one timing loop. Nothing is installed; what is missing is reported and left out.\n"
    "\n"
    "  -n, --ranks N        ranks on this machine (2)\n"
    "      --max SIZE       largest size (256M; K, M, G or KB, MB, GB are binary)\n"
    "      --sizes LIST     comma-separated sizes instead of 8, 64, 256, 1K, 4K ...\n"
    "                       --max\n"
    "      --rounds N       turns of each contender at each size (5)\n"
    "      --mpi            MPI programs with and without libtwill-mpi, for each MPI,\n"
    "                       and the cost of calls that are passed on\n"
    "      --only LIST      of allreduce (in and out of place), allreduce_in,\n"
    "                       allreduce_out, broadcast, allgather, reduce_scatter,\n"
    "                       barrier (all); reduce, gather, scatter, alltoall (with\n"
    "                       --mpi), self (--mpi: calls passed on)\n"
    "      --peers LIST     parts of names of contenders; twill and the bound always\n"
    "                       take part (all; none)\n"
    "      --bind core|none a core for each rank, or unbound (core if there are\n"
    "                       enough); shared: as core, and hosts share the cores of\n"
    "                       one machine\n"
    "      --persistent     twill's persistent calls too\n"
    "      --turn MS        time for calls in a turn, where calls are short (20)\n"
    "      --details        minimum, median and 99th percentile of every contender\n"
    "      --quick          few sizes, two rounds, short turns: a test\n"
    "      --list           print the contenders and their commands, and exit\n"
    "      --timeout S      a contender that takes longer for its start or a turn is\n"
    "                       left out (60)\n"
    "      --json FILE      write all results as JSON\n"
    "      --csv FILE       write the times as comma-separated values\n"
    "      --plot PREFIX    write PREFIX-COLLECTIVE.svg, if gnuplot is installed;\n"
    "                       replaces them\n"
    "      --work DIR       keep compiled programs and contenders' output there\n"
    "      --ucc PREFIX     where UCC is installed\n"
    "      --oneccl PREFIX  where oneCCL is installed\n"
    "      --hosts LIST     between hosts: NAME:RANKS,NAME:RANKS; with raw TCP and\n"
    "                       fi_pingpong\n"
    "      --agent COMMAND  runs commands on hosts: COMMAND HOST WORDS... (ssh)\n"
    "      --congestion NAME congestion control of TCP on all hosts meanwhile (bbr,\n"
    "                       cubic ...)\n"
    "      --address LIST   addresses by which hosts reach this one (all it has)\n"
    "      --steps FILES    instead: training steps of the models of gradient lists,\n"
    "                       with their computing played, and the gradients reduced by\n"
    "                       tensor or in one call\n"
    "      --batch N        samples of a step (32)\n"
    "      --device-gflops N speed of what computes (10000)\n"
    "      --device         a device computes, not the rank's core\n"
    "  -h, --help  -V, --version\n"
    "\n"
    "Exit status: 0 success, also when contenders were left out; 1 a wrong value of\n"
    "twill, or a failure; 2 a wrong command line.\n";

static const char *const names[TWILL_COMPARE_COLLECTIVES] = {
    [TWILL_COMPARE_ALLREDUCE] = "allreduce_in",
    [TWILL_COMPARE_ALLREDUCE_OUT] = "allreduce_out",
    [TWILL_COMPARE_BROADCAST] = "broadcast",
    [TWILL_COMPARE_ALLGATHER] = "allgather",
    [TWILL_COMPARE_REDUCE_SCATTER] = "reduce_scatter",
    [TWILL_COMPARE_BARRIER] = "barrier",
    [TWILL_COMPARE_REDUCE] = "reduce",
    [TWILL_COMPARE_GATHER] = "gather",
    [TWILL_COMPARE_SCATTER] = "scatter",
    [TWILL_COMPARE_ALLTOALL] = "alltoall",
    [TWILL_COMPARE_SELF_BARRIER] = "self_barrier",
    [TWILL_COMPARE_SELF_ALLREDUCE] = "self_allreduce",
    [TWILL_COMPARE_SELF_MESSAGE] = "self_message",
};

const char *twill_compare_name(enum twill_compare_collective collective)
{
    return names[collective];
}

const char *twill_compare_of_what(enum twill_compare_collective collective)
{
    bool sharded =
        twill_compare_shards(collective, 2, 0) == 2 || twill_compare_shards(collective, 2, 1) == 2;
    return sharded ? " (bytes: one rank's shard)" : "";
}

static bool complain_option(const char *option, const char *text, const char *expected)
{
    fprintf(stderr, "twill-compare: %s: '%s' is not %s\n", option, text, expected);
    return false;
}

/* Return the next word of a comma-separated list, or NULL. Cuts the text. */
static char *next_word(char **rest)
{
    char *word = strsep(rest, ",");
    return word != NULL && *word == '\0' ? next_word(rest) : word;
}

static bool set_sizes(struct twill_compare_options *options, const char *text)
{
    char *copy = strdup(text), *rest = copy;
    bool good = copy != NULL;
    options->n_sizes = 0;
    for (char *word; good && (word = next_word(&rest)) != NULL;) {
        size_t bytes;
        good = options->n_sizes < TWILL_COMPARE_SIZES && twill_bench_parse_size(word, &bytes) &&
               bytes >= 4 && bytes % 4 == 0 && bytes <= (size_t)4 << 30;
        if (good)
            options->sizes[options->n_sizes++] = bytes;
    }
    free(copy);
    return (good && options->n_sizes > 0) ||
           complain_option("--sizes", text,
                           "a list of sizes from 4 to 4G, multiples of 4, such as 8,64K,1M");
}

static bool set_only(struct twill_compare_options *options, const char *text)
{
    char *copy = strdup(text), *rest = copy;
    bool good = copy != NULL;
    memset(options->selected, 0, sizeof(options->selected));
    for (const char *word; good && (word = next_word(&rest)) != NULL;) {
        good = false;
        word = twill_bench_collective_name(word);
        for (int i = 0; i < TWILL_COMPARE_COLLECTIVES; i++)
            if (strcmp(word, names[i]) == 0 ||
                (strcmp(word, "allreduce") == 0 && i <= TWILL_COMPARE_ALLREDUCE_OUT) ||
                (strcmp(word, "self") == 0 && i >= TWILL_COMPARE_SELF_BARRIER))
                good = options->selected[i] = true;
    }
    free(copy);
    return good || complain_option("--only", text, "a list of collectives, see --help");
}

/* Parse NAME:RANKS,NAME:RANKS. */
static bool set_hosts(struct twill_compare_options *options, const char *text)
{
    char *copy = strdup(text), *rest = copy;
    bool good = copy != NULL;
    options->n_hosts = options->ranks = 0;
    for (char *word; good && (word = next_word(&rest)) != NULL;) {
        const char *name = strsep(&word, ":");
        size_t ranks = 1;
        good = options->n_hosts < TWILL_COMPARE_HOSTS && name[0] != '\0' &&
               strlen(name) < sizeof(options->hosts[0].name) &&
               strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_@") ==
                   strlen(name) &&
               (word == NULL || twill_bench_parse_number(word, 1, TWILL_COMPARE_RANKS, &ranks)) &&
               options->ranks + (int)ranks <= TWILL_COMPARE_RANKS;
        if (!good)
            break;
        struct twill_compare_host *host = &options->hosts[options->n_hosts++];
        strcpy(host->name, name);
        host->ranks = (int)ranks;
        options->ranks += host->ranks;
    }
    free(copy);
    return (good && options->n_hosts > 1) ||
           complain_option("--hosts", text,
                           "a list of two hosts or more, such as a:1,b:1, of 64 ranks at most");
}

/* Keep the paths of gradient lists, comma-separated. */
static bool set_lists(struct twill_compare_options *options, char *text)
{
    char *rest = text, *word;
    options->played.n_lists = 0;
    while ((word = next_word(&rest)) != NULL) {
        if (options->played.n_lists == TWILL_COMPARE_LISTS)
            return complain_option("--steps", word, "needed: 16 lists are the most");
        options->played.lists[options->played.n_lists++] = word;
    }
    return options->played.n_lists > 0 || complain_option("--steps", "", "a list of files");
}

static bool set_congestion(struct twill_compare_options *options, const char *text)
{
    options->congestion = text;
    return (text[0] != '\0' && strlen(text) < 16 &&
            strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_-") == strlen(text)) ||
           complain_option("--congestion", text, "the name of a congestion control");
}

static bool set_bind(struct twill_compare_options *options, const char *text)
{
    options->shared = strcmp(text, "shared") == 0;
    options->bind = options->shared ? -1 : strcmp(text, "core") == 0;
    return options->bind != 0 || strcmp(text, "none") == 0 ||
           complain_option("--bind", text, "core, none or shared");
}

static bool number_set(const char *option, const char *text, size_t min, size_t max,
                       const char *expected, size_t *number)
{
    return twill_bench_parse_number(text, min, max, number) ||
           complain_option(option, text, expected);
}

static bool set_counted(struct twill_compare_options *options, int letter, const char *text)
{
    size_t number = 0;
    bool good = true;
    if (letter == 'n') {
        good = number_set("-n/--ranks", text, 2, TWILL_COMPARE_RANKS, "2 to 64", &number);
        options->ranks = (int)number;
    } else if (letter == COMPARE_OPTION_ROUNDS) {
        good = number_set("--rounds", text, 1, TWILL_COMPARE_ROUNDS, "1 to 100", &number);
        options->rounds = (int)number;
    } else if (letter == COMPARE_OPTION_TIMEOUT) {
        good = number_set("--timeout", text, 1, 100000, "a number of seconds from 1", &number);
        options->timeout = (double)number;
    } else if (letter == COMPARE_OPTION_TURN) {
        good = number_set("--turn", text, 1, 10000, "1 to 10000 ms", &number);
        options->turn_seconds = (double)number / 1e3;
    } else if (letter == COMPARE_OPTION_BATCH) {
        good = number_set("--batch", text, 1, 1000000, "a number of samples from 1",
                          &options->played.batch);
    } else if (letter == COMPARE_OPTION_GFLOPS) {
        good = number_set("--device-gflops", text, 1, 1000000000, "a speed in Gflop/s from 1",
                          &options->played.gflops);
    }
    return good;
}

static bool set_compare_option(struct twill_compare_options *options, int letter, char *text)
{
    switch (letter) {
    case COMPARE_OPTION_STEPS:
        return set_lists(options, text);
    case COMPARE_OPTION_DEVICE:
        return options->played.device = true;
    case COMPARE_OPTION_MAX:
        return (twill_bench_parse_size(text, &options->max_bytes) && options->max_bytes >= 8 &&
                options->max_bytes <= (size_t)4 << 30) ||
               complain_option("--max", text, "a size from 8 to 4G");
    case COMPARE_OPTION_SIZES:
        return set_sizes(options, text);
    case COMPARE_OPTION_ONLY:
        return set_only(options, text);
    case COMPARE_OPTION_BIND:
        return set_bind(options, text);
    case COMPARE_OPTION_PERSISTENT:
        return options->persistent = true;
    case COMPARE_OPTION_DETAILS:
        return options->details = true;
    case COMPARE_OPTION_QUICK:
        return options->quick = true;
    case COMPARE_OPTION_LIST:
        return options->list = true;
    case COMPARE_OPTION_MPI:
        return options->mpi = true;
    case COMPARE_OPTION_PEERS:
        options->peers = text;
        return true;
    case COMPARE_OPTION_JSON:
        options->paths.json = text;
        return true;
    case COMPARE_OPTION_CSV:
        options->paths.csv = text;
        return true;
    case COMPARE_OPTION_PLOT:
        options->paths.plot = text;
        return true;
    case COMPARE_OPTION_WORK:
        options->paths.work = text;
        return true;
    case COMPARE_OPTION_UCC:
        options->paths.ucc = text;
        return true;
    case COMPARE_OPTION_HOSTS:
        return set_hosts(options, text);
    case COMPARE_OPTION_CONGESTION:
        return set_congestion(options, text);
    case COMPARE_OPTION_AGENT:
        options->agent = text;
        return true;
    case COMPARE_OPTION_ADDRESS:
        options->address = text;
        return true;
    case COMPARE_OPTION_ONECCL:
        options->paths.oneccl = text;
        return true;
    default:
        return set_counted(options, letter, text);
    }
}

/* Select all collectives if none was named. Those of one rank alone need --mpi. */
static bool complete_selection(struct twill_compare_options *options)
{
    bool any = false, self = false;
    for (int i = 0; i < TWILL_COMPARE_COLLECTIVES; i++) {
        any |= options->selected[i];
        self |= options->selected[i] && twill_compare_is_self((enum twill_compare_collective)i);
    }
    for (int i = 0; i < TWILL_COMPARE_COLLECTIVES && !any; i++)
        options->selected[i] = options->mpi || i < TWILL_COMPARE_COMMON;
    if (options->mpi && options->paths.plot != NULL)
        return complain_option("--plot", options->paths.plot, "available with --mpi");
    return !self || options->mpi || complain_option("--only", "self", "available without --mpi");
}

/* Set the sizes that were not given, and the defaults of --quick. */
static void complete_options(struct twill_compare_options *options)
{
    static const size_t quick[] = {8, 4 << 10, 256 << 10, 4 << 20};
    if (options->quick) {
        options->rounds = options->rounds == 0 ? 2 : options->rounds;
        options->turn_seconds = options->turn_seconds > 0 ? options->turn_seconds : 0.002;
    }
    options->rounds = options->rounds == 0 ? 5 : options->rounds;
    options->turn_seconds = options->turn_seconds > 0 ? options->turn_seconds : 0.02;
    if (options->n_sizes == 0 && options->quick)
        for (size_t i = 0; i < sizeof(quick) / sizeof(quick[0]); i++)
            options->sizes[options->n_sizes++] = quick[i];
    if (options->n_sizes > 0)
        return;
    options->sizes[options->n_sizes++] = 8;
    for (size_t bytes = 64; bytes <= options->max_bytes; bytes *= 4)
        options->sizes[options->n_sizes++] = bytes;
}

enum twill_compare_parsed twill_compare_parse(struct twill_compare_options *options, int argc,
                                              char **argv)
{
    int letter;
    *options = (struct twill_compare_options){.ranks = 2,
                                              .max_bytes = 256 << 20,
                                              .bind = -1,
                                              .agent = "ssh",
                                              .timeout = 60,
                                              .played = {.batch = 32, .gflops = 10000}};
    while ((letter = getopt_long(argc, argv, "n:hV", long_options, NULL)) != -1) {
        if (twill_bench_help(letter, "twill-compare", usage, true))
            return TWILL_COMPARE_DONE;
        if (letter == '?' || !set_compare_option(options, letter, optarg))
            return TWILL_COMPARE_USAGE;
    }
    if (optind < argc) {
        fprintf(stderr, "twill-compare: unexpected argument: '%s'\n", argv[optind]);
        return TWILL_COMPARE_USAGE;
    }
    if (options->played.n_lists > 0 &&
        (options->mpi || options->paths.plot != NULL || options->paths.csv != NULL)) {
        fprintf(stderr, "twill-compare: --steps cannot be combined with --mpi, --plot and --csv\n");
        return TWILL_COMPARE_USAGE;
    }
    complete_options(options);
    return complete_selection(options) ? TWILL_COMPARE_RUN : TWILL_COMPARE_USAGE;
}
