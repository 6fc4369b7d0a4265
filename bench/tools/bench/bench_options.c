/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the command line of twill-bench. Anything unknown is an error that names the argument. */
#include "bench/tools/bench/bench_options.h"
#include "bench/common/measured_collectives.h"
#include "bench/common/option_names.h"
#include "bench/common/option_table.h"
#include "bench/tools/bench/bench_collective.h"
#include "bench/tools/bench/fabric/fabric.h"
#include "bench/tools/bench/steps/played_step.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

/* lists for the text, each name after a blank */
#define QUOTED(NOUN, name, ...)               " " name
#define NAMES_WHOLE                           TWILL_MEASURED_WHOLE(QUOTED)
#define NAMES_SHARDS                          TWILL_MEASURED_SHARDS(QUOTED)
#define NAMES_UNEVEN                          TWILL_MEASURED_UNEVEN(QUOTED)
#define NAMES_TYPES                           TWILL_TYPES(TWILL_BENCH_NAME, )
#define MESSAGES_NAME(enumerator, name, help) " " name
#define NAMES_MESSAGES                        FABRIC_MEASUREMENTS(MESSAGES_NAME)

static const char usage[] =
    "Usage: twill-bench COLLECTIVE [options]\n"
    "       twill-bench kernels [NAME] [-b -e -f -n -J]\n"
    "       twill-bench MEASUREMENT [options]\n"
    "       twill-bench train --help\n"
    "COLLECTIVE:   " NAMES_WHOLE "\n"
    "  of shards:  " NAMES_SHARDS "\n"
    "  uneven ones:" NAMES_UNEVEN "\n"
    "Time a collective over the ranks it was started on (see twillrun) and check\n"
    "every value.\n"
    "kernels: time this machine's sums, optimizer steps and codes, those with NAME in\n"
    "their name, against the scalar ones and memory bandwidth, on one core.\n"
    "MEASUREMENT: " NAMES_MESSAGES "\n"
    "Messages between ranks over each transport: twill-bench latency -h has their\n"
    "options.\n"
    "train: how the training step of a model scales.\n"
    "\n"
    "Sizes take K, M, G, or KB, MiB ... (binary). Options and columns are those of\n"
    "nccl-tests, and so are names: all_reduce, fp32.\n"
    "  -b, --minbytes SIZE       first size (32M)\n"
    "  -e, --maxbytes SIZE       last size (32M)\n"
    "  -i, --stepbytes SIZE      add this for the next size (1M)\n"
    "  -f, --stepfactor N        or multiply by this (off)\n"
    "  -n, --iters N             timed iterations (20)\n"
    "  -w, --warmup_iters N      iterations before those (1)\n"
    "  -m, --agg_iters N         operations in each iteration (1)\n"
    "  -N, --run_cycles N        repeat the whole table (1; 0: forever)\n"
    "  -a, --average 0|1|2|3     time of rank 0, average, minimum, maximum over ranks\n"
    "                            (1)\n"
    "  -c, --check N             check results N times for each size (1; 0: never)\n"
    "  -o, --op NAME|all        " TWILL_BENCH_NAMES_OF_OPS "\n"
    "                            (sum)\n"
    "  -d, --datatype NAME|all   as nccl-tests has them (float, bfloat16, uint8 ...),\n"
    "                            or of (f32)\n"
    "       " NAMES_TYPES "\n"
    "  -r, --root RANK|all       root of a rooted collective (0)\n"
    "  -z, --blocking 0|1        a barrier after each operation (0)\n"
    "  -T, --timeout SECONDS     give up a wait after this long (TWILL_TIMEOUT)\n"
    "  -J, --output_file FILE    also write the results as JSON; never overwrites\n"
    "      --csv                 print the table as comma-separated values only\n"
    "  -u, --unalign N           index of the first element in each buffer (0)\n"
    "  -I, --per_iter_timing 0|1 columns i_min i_max i_p99 i_cv% over iterations (0)\n"
    "  -K, --per_iter_skip N     leave the first N iterations out of those (0)\n"
    "      --list FILE           sizes from a gradient list, reduced last to first as\n"
    "                            one step\n"
    "      --memory malloc|twill|promoted\n"
    "                            where buffers come from (twill)\n"
    "      --align BYTES         alignment of the buffers, a power of two (64)\n"
    "      --form FORM           calls: blocking, nonblocking or persistent\n"
    "                            (blocking)\n"
    "      --verify              check all three forms of the call, not only the one\n"
    "                            timed\n"
    "      --overlap test|none   columns overall compute pure overlap: start a call,\n"
    "                            compute for as long as it takes alone (with\n"
    "                            twill_test() or without), wait; with --list: a\n"
    "                            training step with its computing played, and the\n"
    "                            gradients reduced by a gradient set\n"
    "      --batch N             samples of that step (32)\n"
    "      --device-gflops N     speed of the computing, in 1e9 operations/s (10000)\n"
    "      --device              a device computes, not the rank's core\n"
    "      --bucket SIZE,...     bucket sizes to measure (that of the library)\n"
    "      --gradients SETTINGS  TWILL_GRADIENTS for this run, such as compress=int8\n"
    "      --priority            the first layers' buckets first\n"
    "      --times               columns wait wire stack: of the time, waiting for\n"
    "                            the last rank, for data, and the rest (copying,\n"
    "                            reducing, sending)\n"
    "      --reproducible        columns repro ratio: the same calls with\n"
    "                            TWILL_REPRODUCIBLE=1\n"
    "      --team T              columns join team ratio: T threads of each rank make\n"
    "                            team calls, against meeting, a call by one thread,\n"
    "                            and meeting; bound to CPUs if the rank has as many\n"
    "      --narrow TYPE         columns time ratio bytes: as many elements of f16,\n"
    "                            bf16, f8e4m3 or f8e5m2 with narrow partial sums,\n"
    "                            against f32\n"
    "      --reduce-delay NS     each sum of a KiB takes NS nanoseconds more, asleep:\n"
    "                            what a slower reduction, and segments beside it,\n"
    "                            would cost\n"
    "      --energy              columns node rank: joules and mean watts of the\n"
    "                            timed calls, by pm_counters, RAPL or hwmon; n/a\n"
    "                            where there is none\n"
    "      --sysfs DIR           where their counters are (/sys)\n"
    "      --algorithm NAME      TWILL_ALGORITHM for this run\n"
    "      --split N|LEVEL       N groups of ranks (rank modulo N) at once, or one\n"
    "                            for each unit of a level:\n"
    "                           " TWILL_BENCH_NAMES_OF_LEVELS ";\n"
    "                            the table is that of the slowest\n"
    "      --calibrate FILE      instead: measure all algorithms, at sizes up to\n"
    "                            --maxbytes, and write FILE for TWILL_TUNING\n"
    "  -h, --help  -V, --version\n"
    "\n"
    "Exit status: 0 success, 1 a wrong value or a failure, 2 a wrong command line.\n";

/* Parse -d into an int, a type or TWILL_BENCH_ALL. Returns false if it is neither. */
static bool read_type(void *member, const char *text)
{
    int type = twill_bench_type_parse(text);
    *(int *)member = type < 0 ? TWILL_BENCH_ALL : type;
    return type >= 0 || strcmp(text, "all") == 0;
}

/* Parse -o into an int, an operation or TWILL_BENCH_ALL. Returns false if it is neither. */
static bool read_op(void *member, const char *text)
{
    int *found = member;
    *found = TWILL_BENCH_ALL;
    for (int op = 0; op < TWILL_BENCH_OPS; op++)
        if (strcmp(text, twill_op_name((twill_op)op)) == 0)
            *found = op;
    return *found != TWILL_BENCH_ALL || strcmp(text, "all") == 0;
}

/* Parse -r into an int, a rank or TWILL_BENCH_ALL. Returns false if it is neither. */
static bool read_root(void *member, const char *text)
{
    size_t root = 0;
    bool all = strcmp(text, "all") == 0;
    bool good = all || twill_bench_parse_number(text, 0, 1 << 30, &root);
    *(int *)member = all ? TWILL_BENCH_ALL : (int)root;
    return good;
}

/* Parse --memory into a struct twill_bench_calls. Returns false if there is no such memory. */
static bool read_memory(void *member, const char *text)
{
    struct twill_bench_calls *calls = member;
    calls->memory = text;
    calls->placed = strcmp(text, "twill") == 0;
    return calls->placed || strcmp(text, "malloc") == 0 || strcmp(text, "promoted") == 0;
}

/* Parse --align into a size_t. Returns false if it is no power of two from 8 to 1G. */
static bool read_align(void *member, const char *text)
{
    size_t *align = member;
    return twill_bench_parse_size(text, align) && *align >= 8 && *align <= (1 << 30) &&
           (*align & (*align - 1)) == 0;
}

/* Parse --form into an enum twill_bench_form. Returns false if there is no such form. */
static bool read_form(void *member, const char *text)
{
    /* each with its name before 0.1.0 */
    static const char *const names[][2] = {
        {"blocking", "blocking"}, {"nonblocking", "begun"}, {"persistent", "prepared"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(text, names[i][0]) == 0 || strcmp(text, names[i][1]) == 0) {
            *(enum twill_bench_form *)member = (enum twill_bench_form)i;
            return true;
        }
    return false;
}

/* Parse --narrow into an int, a type. Returns false if it is no narrow float. */
static bool read_narrow(void *member, const char *text)
{
    int *narrow = member;
    *narrow = twill_bench_type_parse(text);
    return *narrow >= 0 && twill_type_is_narrow((twill_type)*narrow);
}

/* Parse --overlap into the measures. It turns the measurement of overlap on. With "test", computing
 * is interrupted by calls of twill_test(), and with "none" it is not. Returns false for another
 * word. */
static bool read_overlap(void *member, const char *text)
{
    struct twill_bench_measures *measures = member;
    measures->overlap = true;
    measures->tests = strcmp(text, "test") == 0;
    return measures->tests || strcmp(text, "none") == 0;
}

/* Parse the sizes of --bucket into the options of a step. Returns false if one is wrong. */
static bool read_buckets(void *member, const char *text)
{
    struct twill_bench_step_options *played = member;
    char *copy = strdup(text), *rest = copy;
    bool good = copy != NULL;
    played->n_buckets = 0;
    for (const char *word; good && (word = strsep(&rest, ",")) != NULL;)
        good = played->n_buckets < TWILL_BENCH_BUCKETS_MOST &&
               twill_bench_parse_size(word, &played->buckets[played->n_buckets++]);
    free(copy);
    return good;
}

/* Keep the text of --split. Returns false if it is neither a number nor a level. */
static bool read_split(void *member, const char *text)
{
    size_t groups;
    *(const char **)member = text;
    return twill_bench_parse_number(text, 1, 65535, &groups) || twill_bench_level(text) >= 0;
}

/* Parse -a, 0 to 3, into an enum twill_bench_average. Returns false if it is anything else. */
static bool read_average(void *member, const char *text)
{
    size_t average = 0;
    bool good = twill_bench_parse_number(text, 0, 3, &average);
    *(enum twill_bench_average *)member = (enum twill_bench_average)average;
    return good;
}

#define BENCH_AT(member) offsetof(struct twill_bench_options, member)
#define SIZES            "a size such as 8, 64K, 1.5M or 2G"
#define BENCH_MANY       100000000

/* clang-format off */
static const struct twill_option table[] = {
    {'b', "minbytes", OPTION_SIZE, BENCH_AT(sizes.min_bytes), 0, 0, SIZES, NULL, BENCH_AT(sizes.ranged)},
    {'e', "maxbytes", OPTION_SIZE, BENCH_AT(sizes.max_bytes), 0, 0, SIZES, NULL, BENCH_AT(sizes.ranged)},
    {'i', "stepbytes", OPTION_SIZE, BENCH_AT(sizes.step_bytes), 1, 0, SIZES ", above zero", NULL, BENCH_AT(sizes.ranged)},
    {'f', "stepfactor", OPTION_COUNT, BENCH_AT(sizes.step_factor), 1, 1 << 20, "a factor (1: off)", NULL, BENCH_AT(sizes.ranged)},
    {'n', "iters", OPTION_COUNT, BENCH_AT(repeats.iterations), 1, BENCH_MANY, "a number from 1 to 100000000", NULL, 0},
    {'w', "warmup_iters", OPTION_COUNT, BENCH_AT(repeats.warmups), 0, BENCH_MANY, "a number from 0 to 100000000", NULL, 0},
    {'m', "agg_iters", OPTION_COUNT, BENCH_AT(repeats.aggregate), 1, 1000000, "a number from 1 to 1000000", NULL, 0},
    {'N', "run_cycles", OPTION_COUNT, BENCH_AT(repeats.cycles), 0, 0, "a number", NULL, 0},
    {'a', "average", OPTION_OWN, BENCH_AT(report.average), 0, 0, "0 (rank 0), 1 (average), 2 (minimum) or 3 (maximum)", read_average, 0},
    {'c', "check", OPTION_COUNT, BENCH_AT(repeats.checks), 0, 1000000, "a number from 0 to 1000000", NULL, 0},
    {'o', "op", OPTION_OWN, BENCH_AT(op), 0, 0, "all or one of" TWILL_BENCH_NAMES_OF_OPS, read_op, 0},
    {'d', "datatype", OPTION_OWN, BENCH_AT(type), 0, 0, "a type such as float, f64, int8, bfloat16, f8e4m3, or all", read_type, 0},
    {'r', "root", OPTION_OWN, BENCH_AT(root), 0, 0, "a rank or all", read_root, 0},
    {'z', "blocking", OPTION_TRUTH, BENCH_AT(calls.blocking), 0, 0, NULL, NULL, 0},
    {'T', "timeout", OPTION_COUNT, BENCH_AT(settings.timeout), 1, 10000000, "a number of seconds from 1", NULL, 0},
    {'J', "output_file", OPTION_TEXT, BENCH_AT(report.output), 0, 0, NULL, NULL, 0},
    {'u', "unalign", OPTION_COUNT, BENCH_AT(calls.unalign), 0, 1 << 20, "a number from 0 to 1048576", NULL, 0},
    {'I', "per_iter_timing", OPTION_TRUTH, BENCH_AT(report.each), 0, 0, NULL, NULL, 0},
    {'K', "per_iter_skip", OPTION_COUNT, BENCH_AT(report.each_skip), 0, BENCH_MANY, "a number from 0 to 100000000", NULL, 0},
    {0, "list", OPTION_TEXT, BENCH_AT(list), 0, 0, NULL, NULL, 0},
    {0, "memory", OPTION_OWN, BENCH_AT(calls), 0, 0, "malloc, twill or promoted", read_memory, 0},
    {0, "align", OPTION_OWN, BENCH_AT(calls.align), 0, 0, "a power of two from 8 to 1G", read_align, 0},
    {0, "form", OPTION_OWN, BENCH_AT(calls.form), 0, 0, "blocking, nonblocking or persistent", read_form, 0},
    {0, "verify", OPTION_SWITCH, BENCH_AT(measures.verify), 0, 0, NULL, NULL, 0},
    {0, "overlap", OPTION_OWN, BENCH_AT(measures), 0, 0, "test or none", read_overlap, 0},
    {0, "times", OPTION_SWITCH, BENCH_AT(measures.times), 0, 0, NULL, NULL, 0},
    {0, "reproducible", OPTION_SWITCH, BENCH_AT(measures.reproducible), 0, 0, NULL, NULL, 0},
    {0, "team", OPTION_COUNT, BENCH_AT(measures.team), 1, 4096, "a number of threads from 1 to 4096", NULL, 0},
    {0, "narrow", OPTION_OWN, BENCH_AT(measures.narrow), 0, 0, "a float of 8 or 16 bits, such as f16", read_narrow, 0},
    {0, "reduce-delay", OPTION_COUNT, BENCH_AT(measures.delay), 1, 1000000000, "a number of nanoseconds a KiB from 1", NULL, 0},
    {0, "energy", OPTION_SWITCH, BENCH_AT(measures.energy), 0, 0, NULL, NULL, 0},
    {0, "sysfs", OPTION_TEXT, BENCH_AT(measures.sysfs), 0, 0, NULL, NULL, 0},
    {0, "algorithm", OPTION_TEXT, BENCH_AT(settings.algorithm), 0, 0, NULL, NULL, 0},
    {0, "gradients", OPTION_TEXT, BENCH_AT(settings.gradients), 0, 0, NULL, NULL, 0},
    {0, "split", OPTION_OWN, BENCH_AT(split), 0, 0, "a number of groups, or one of" TWILL_BENCH_NAMES_OF_LEVELS, read_split, 0},
    {0, "calibrate", OPTION_TEXT, BENCH_AT(calibration), 1, 0, "a file to write", NULL, 0},
    {0, "csv", OPTION_SWITCH, BENCH_AT(report.csv), 0, 0, NULL, NULL, 0},
    {0, "batch", OPTION_COUNT, BENCH_AT(played.batch), 1, 1000000, "a number of samples from 1 to 1000000", NULL, BENCH_AT(played.given)},
    {0, "device-gflops", OPTION_COUNT, BENCH_AT(played.gflops), 1, 1000000000, "a speed in Gflop/s from 1", NULL, BENCH_AT(played.given)},
    {0, "device", OPTION_SWITCH, BENCH_AT(played.device), 0, 0, NULL, NULL, BENCH_AT(played.given)},
    {0, "bucket", OPTION_OWN, BENCH_AT(played), 0, 0, "a list of sizes such as 0,1M,8M", read_buckets, BENCH_AT(played.given)},
    {0, "priority", OPTION_SWITCH, BENCH_AT(played.priority), 0, 0, NULL, NULL, BENCH_AT(played.given)},
};
/* clang-format on */

/* Set options->kernels to the word after "kernels" on the command line, or to "". Returns false if
 * there is another word after it, which is printed if `speak`. */
static bool set_kernels(struct twill_bench_options *options, int argc, char **argv, bool speak)
{
    options->kernels = optind + 1 < argc ? argv[optind + 1] : "";
    if (speak && optind + 2 < argc)
        fprintf(stderr, "twill-bench: one name too many: '%s'\n", argv[optind + 2]);
    return optind + 2 >= argc;
}

/* Set what to measure by the words after options. Returns false, and why if `speak`, if wrong. */
static bool set_collective(struct twill_bench_options *options, int argc, char **argv, bool speak)
{
    if (options->calibration != NULL && optind == argc)
        return true; /* all of them */
    if (options->calibration != NULL && speak)
        fprintf(stderr, "twill-bench: --calibrate takes no collective, it measures all: '%s'\n",
                argv[optind]);
    if (options->calibration != NULL)
        return false;
    if (optind < argc && strcmp(argv[optind], "kernels") == 0)
        return set_kernels(options, argc, argv, speak);
    if (optind + 1 != argc) {
        if (speak && optind < argc)
            fprintf(stderr, "twill-bench: one collective too many: '%s'\n", argv[optind + 1]);
        else if (speak)
            fprintf(stderr, "twill-bench: name a collective: allreduce, broadcast, ...\n");
        return false;
    }
    int found = twill_bench_find_collective(argv[optind]);
    options->collective = (enum twill_bench_collective)found;
    if (found < 0 && speak)
        fprintf(stderr, "twill-bench: '%s' is not a collective: see --help\n", argv[optind]);
    return found >= 0;
}

/* Return whether the requested operations and types have a valid pair. */
static bool combines(const struct twill_bench_options *options)
{
    return !twill_bench_facts(options->collective)->reduces || options->op == TWILL_BENCH_ALL ||
           options->type == TWILL_BENCH_ALL ||
           twill_bench_op_takes((twill_op)options->op, (twill_type)options->type);
}

/* Return whether there is a team call of the collective. */
static bool has_team(enum twill_bench_collective collective)
{
    return collective == TWILL_BENCH_ALLREDUCE || collective == TWILL_BENCH_BROADCAST ||
           collective == TWILL_BENCH_ALLGATHER || collective == TWILL_BENCH_REDUCE_SCATTER ||
           collective == TWILL_BENCH_BARRIER;
}

/* Return whether the options fit together. If not, print why if `speak` is set. */
static bool check_together(const struct twill_bench_options *options, bool speak)
{
    const char *mistake = NULL;
    if (options->list != NULL && options->sizes.ranged)
        mistake = "--list sets the sizes: -b, -e, -i and -f cannot be combined with it";
    else if (options->list != NULL && options->collective != TWILL_BENCH_ALLREDUCE &&
             options->collective != TWILL_BENCH_BROADCAST)
        mistake = "--list is for allreduce and broadcast";
    else if (options->list != NULL && options->report.csv)
        mistake = "--csv cannot be combined with --list: use -J";
    else if (options->list != NULL && options->calls.form != TWILL_BENCH_BLOCKING)
        mistake = "--list cannot be combined with --form";
    else if ((mistake = twill_bench_played_mistake(options)) != NULL)
        ;
    else if (options->measures.reproducible && (options->split != NULL || options->list != NULL ||
                                                !twill_bench_facts(options->collective)->reduces))
        mistake = "--reproducible needs a reduction, without --split and --list";
    else if (options->measures.team > 0 &&
             (options->list != NULL || options->calls.form != TWILL_BENCH_BLOCKING ||
              !has_team(options->collective)))
        mistake =
            "--team needs allreduce, broadcast, allgather, reduce_scatter or barrier, without "
            "--list and --form";
    else if (options->measures.narrow >= 0 &&
             (options->list != NULL || options->op != TWILL_SUM || options->type != TWILL_F32 ||
              !twill_bench_facts(options->collective)->reduces))
        mistake = "--narrow needs a reduction, a sum of f32, without --list";
    else if (options->measures.delay > 0 &&
             (options->list != NULL || options->measures.reproducible || options->op != TWILL_SUM ||
              options->type != TWILL_F32 || !twill_bench_facts(options->collective)->reduces))
        mistake =
            "--reduce-delay needs a reduction, a sum of f32, without --list and --reproducible";
    else if (options->measures.sysfs != NULL && !options->measures.energy)
        mistake = "--sysfs needs --energy";
    else if (!combines(options))
        mistake = "-o/--op and -d/--datatype: the type does not have this operation";
    else if (options->sizes.min_bytes > options->sizes.max_bytes)
        mistake = "-b/--minbytes is above -e/--maxbytes";
    else if (options->report.each_skip >= options->repeats.iterations)
        mistake = "-K/--per_iter_skip must be less than -n/--iters";
    if (mistake != NULL && speak)
        fprintf(stderr, "twill-bench: %s\n", mistake);
    return mistake == NULL;
}

enum twill_parsed twill_bench_parse(struct twill_bench_options *options, int argc, char **argv,
                                    bool speak)
{
    *options = (struct twill_bench_options){
        .op = TWILL_SUM,
        .type = TWILL_F32,
        .sizes = {.min_bytes = 32 << 20, .max_bytes = 32 << 20, .step_bytes = 1 << 20},
        .repeats = {.iterations = 20, .warmups = 1, .aggregate = 1, .cycles = 1, .checks = 1},
        .calls = {.memory = "twill", .placed = true, .align = 64},
        .measures = {.narrow = -1},
        .report = {.average = TWILL_BENCH_AVERAGE},
        .played = {.batch = 32, .gflops = 10000, .buckets = {SIZE_MAX}, .n_buckets = 1},
    };
    const struct twill_command command = {"twill-bench", usage, table,
                                          sizeof(table) / sizeof(table[0])};
    enum twill_parsed parsed = twill_options_parse(&command, options, argc, argv, speak);
    if (parsed != TWILL_PARSED_RUN)
        return parsed;
    return set_collective(options, argc, argv, speak) &&
                   (options->calibration != NULL || check_together(options, speak))
               ? TWILL_PARSED_RUN
               : TWILL_PARSED_USAGE;
}
