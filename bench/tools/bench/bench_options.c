/* SPDX-License-Identifier: Apache-2.0 */
/* Parse twill-bench's command line. Whatever is not understood is an error that names the
 * argument. */
#include "bench/tools/bench/bench_options.h"
#include "bench/common/help.h"
#include "bench/common/measured_collectives.h"
#include "bench/common/option_names.h"
#include "bench/tools/bench/bench_payload.h"
#include "bench/tools/bench/steps/played_step.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

enum {
    OPTION_MEMORY = 256,
    OPTION_ALIGN,
    OPTION_LIST,
    OPTION_FORM,
    OPTION_VERIFY,
    OPTION_OVERLAP,
    OPTION_TIMES,
    OPTION_REPRODUCIBLE,
    OPTION_NARROW,
    OPTION_DELAY,
    OPTION_ENERGY,
    OPTION_SYSFS,
    OPTION_ALGORITHM,
    OPTION_GRADIENTS,
    OPTION_SPLIT,
    OPTION_CALIBRATE,
    OPTION_CSV,
    OPTION_BATCH,
    OPTION_GFLOPS,
    OPTION_DEVICE,
    OPTION_BUCKET,
    OPTION_PRIORITY
};

static const struct option long_options[] = {
    {"minbytes", required_argument, NULL, 'b'},
    {"maxbytes", required_argument, NULL, 'e'},
    {"stepbytes", required_argument, NULL, 'i'},
    {"stepfactor", required_argument, NULL, 'f'},
    {"iters", required_argument, NULL, 'n'},
    {"warmup_iters", required_argument, NULL, 'w'},
    {"agg_iters", required_argument, NULL, 'm'},
    {"run_cycles", required_argument, NULL, 'N'},
    {"average", required_argument, NULL, 'a'},
    {"check", required_argument, NULL, 'c'},
    {"op", required_argument, NULL, 'o'},
    {"datatype", required_argument, NULL, 'd'},
    {"root", required_argument, NULL, 'r'},
    {"blocking", required_argument, NULL, 'z'},
    {"timeout", required_argument, NULL, 'T'},
    {"output_file", required_argument, NULL, 'J'},
    {"unalign", required_argument, NULL, 'u'},
    {"per_iter_timing", required_argument, NULL, 'I'},
    {"per_iter_skip", required_argument, NULL, 'K'},
    {"list", required_argument, NULL, OPTION_LIST},
    {"memory", required_argument, NULL, OPTION_MEMORY},
    {"align", required_argument, NULL, OPTION_ALIGN},
    {"form", required_argument, NULL, OPTION_FORM},
    {"verify", no_argument, NULL, OPTION_VERIFY},
    {"overlap", required_argument, NULL, OPTION_OVERLAP},
    {"times", no_argument, NULL, OPTION_TIMES},
    {"reproducible", no_argument, NULL, OPTION_REPRODUCIBLE},
    {"narrow", required_argument, NULL, OPTION_NARROW},
    {"reduce-delay", required_argument, NULL, OPTION_DELAY},
    {"energy", no_argument, NULL, OPTION_ENERGY},
    {"sysfs", required_argument, NULL, OPTION_SYSFS},
    {"algorithm", required_argument, NULL, OPTION_ALGORITHM},
    {"gradients", required_argument, NULL, OPTION_GRADIENTS},
    {"split", required_argument, NULL, OPTION_SPLIT},
    {"calibrate", required_argument, NULL, OPTION_CALIBRATE},
    {"csv", no_argument, NULL, OPTION_CSV},
    {"batch", required_argument, NULL, OPTION_BATCH},
    {"device-gflops", required_argument, NULL, OPTION_GFLOPS},
    {"device", no_argument, NULL, OPTION_DEVICE},
    {"bucket", required_argument, NULL, OPTION_BUCKET},
    {"priority", no_argument, NULL, OPTION_PRIORITY},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},
    {NULL, 0, NULL, 0},
};

/* Write an option's name for messages: "-b/--minbytes". */
static void name_option(int letter, char *text, size_t bytes)
{
    for (const struct option *option = long_options; option->name != NULL; option++)
        if (option->val == letter && letter < 256)
            snprintf(text, bytes, "-%c/--%s", letter, option->name);
        else if (option->val == letter)
            snprintf(text, bytes, "--%s", option->name);
}

static bool complain_bench(bool speak, int letter, const char *text, const char *expected)
{
    char name[64] = "?";
    name_option(letter, name, sizeof(name));
    if (speak)
        fprintf(stderr, "twill-bench: %s: '%s' is not %s\n", name, text, expected);
    return false;
}

/* Set an option that is a number. */
static bool set_bench_number(struct twill_bench_options *options, int letter, const char *text,
                             bool speak)
{
    const struct {
        int letter;
        size_t *field, min, max;
        const char *expected;
    } numbers[] = {
        {'f', &options->sizes.step_factor, 1, 1 << 20, "a factor (1: off)"},
        {'n', &options->repeats.iterations, 1, 100000000, "a number from 1 to 100000000"},
        {'w', &options->repeats.warmups, 0, 100000000, "a number from 0 to 100000000"},
        {'m', &options->repeats.aggregate, 1, 1000000, "a number from 1 to 1000000"},
        {'N', &options->repeats.cycles, 0, SIZE_MAX, "a number"},
        {'c', &options->repeats.checks, 0, 1000000, "a number from 0 to 1000000"},
        {'T', &options->settings.timeout, 1, 10000000, "a number of seconds from 1"},
        {'u', &options->calls.unalign, 0, 1 << 20, "a number from 0 to 1048576"},
        {'K', &options->report.each_skip, 0, 100000000, "a number from 0 to 100000000"},
        {OPTION_DELAY, &options->measures.delay, 1, 1000000000,
         "a number of nanoseconds a KiB from 1"},
        {OPTION_BATCH, &options->played.batch, 1, 1000000, "a number of samples from 1 to 1000000"},
        {OPTION_GFLOPS, &options->played.gflops, 1, 1000000000, "a speed in Gflop/s from 1"},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (numbers[i].letter == letter)
            return twill_bench_parse_number(text, numbers[i].min, numbers[i].max,
                                            numbers[i].field) ||
                   complain_bench(speak, letter, text, numbers[i].expected);
    return false;
}

static bool set_size(size_t *field, int letter, const char *text, bool speak)
{
    return twill_bench_parse_size(text, field) ||
           complain_bench(speak, letter, text, "a size such as 8, 64K, 1.5M or 2G");
}

static bool set_flag(bool *field, int letter, const char *text, bool speak)
{
    *field = strcmp(text, "1") == 0;
    return *field || strcmp(text, "0") == 0 || complain_bench(speak, letter, text, "0 or 1");
}

static bool set_type(struct twill_bench_options *options, const char *text, bool speak)
{
    int type = twill_bench_type_parse(text);
    options->type = type < 0 ? TWILL_BENCH_ALL : type;
    return options->type != TWILL_BENCH_ALL || strcmp(text, "all") == 0 ||
           complain_bench(speak, 'd', text,
                          "a type such as float, f64, int8, bfloat16, f8e4m3, or all");
}

static bool set_op(struct twill_bench_options *options, const char *text, bool speak)
{
    options->op = TWILL_BENCH_ALL;
    for (int op = 0; op < TWILL_BENCH_OPS; op++)
        if (strcmp(text, twill_op_name((twill_op)op)) == 0)
            options->op = op;
    return options->op != TWILL_BENCH_ALL || strcmp(text, "all") == 0 ||
           complain_bench(speak, 'o', text, "all or one of" TWILL_BENCH_NAMES_OF_OPS);
}

static bool set_root(struct twill_bench_options *options, const char *text, bool speak)
{
    size_t root;
    options->root = TWILL_BENCH_ALL;
    if (strcmp(text, "all") == 0)
        return true;
    if (!twill_bench_parse_number(text, 0, 1 << 30, &root))
        return complain_bench(speak, 'r', text, "a rank or all");
    options->root = (int)root;
    return true;
}

static bool set_memory(struct twill_bench_options *options, const char *text, bool speak)
{
    options->calls.placed = strcmp(text, "twill") == 0;
    return options->calls.placed || strcmp(text, "malloc") == 0 ||
           complain_bench(speak, OPTION_MEMORY, text, "malloc or twill");
}

static bool set_align(struct twill_bench_options *options, const char *text, bool speak)
{
    size_t *align = &options->calls.align;
    if (twill_bench_parse_size(text, align) && *align >= 8 && *align <= (1 << 30) &&
        (*align & (*align - 1)) == 0)
        return true;
    return complain_bench(speak, OPTION_ALIGN, text, "a power of two from 8 to 1G");
}

static bool set_form(struct twill_bench_options *options, const char *text, bool speak)
{
    /* Each with its name before 0.1.0. */
    static const char *const names[][2] = {
        {"blocking", "blocking"}, {"nonblocking", "begun"}, {"persistent", "prepared"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(text, names[i][0]) == 0 || strcmp(text, names[i][1]) == 0) {
            options->calls.form = (enum twill_bench_form)i;
            return true;
        }
    return complain_bench(speak, OPTION_FORM, text, "blocking, nonblocking or persistent");
}

static bool set_narrow(struct twill_bench_options *options, const char *text, bool speak)
{
    options->measures.narrow = twill_bench_type_parse(text);
    return (options->measures.narrow >= 0 &&
            twill_type_is_narrow((twill_type)options->measures.narrow)) ||
           complain_bench(speak, OPTION_NARROW, text, "a float of 8 or 16 bits, such as f16");
}

static bool set_overlap(struct twill_bench_options *options, const char *text, bool speak)
{
    options->measures.overlap = true;
    options->measures.tests = strcmp(text, "test") == 0;
    return options->measures.tests || strcmp(text, "none") == 0 ||
           complain_bench(speak, OPTION_OVERLAP, text, "test or none");
}

static bool set_buckets(struct twill_bench_options *options, const char *text, bool speak)
{
    char *copy = strdup(text), *rest = copy;
    bool good = copy != NULL;
    options->played.n_buckets = 0;
    for (const char *word; good && (word = strsep(&rest, ",")) != NULL;)
        good = options->played.n_buckets < TWILL_BENCH_BUCKETS_MOST &&
               twill_bench_parse_size(word, &options->played.buckets[options->played.n_buckets++]);
    free(copy);
    return good || complain_bench(speak, OPTION_BUCKET, text, "a list of sizes such as 0,1M,8M");
}

static bool set_split(struct twill_bench_options *options, const char *text, bool speak)
{
    size_t groups;
    options->split = text;
    return twill_bench_parse_number(text, 1, 65535, &groups) || twill_bench_level(text) >= 0 ||
           complain_bench(speak, OPTION_SPLIT, text,
                          "a number of groups, or one of" TWILL_BENCH_NAMES_OF_LEVELS);
}

static bool set_average(struct twill_bench_options *options, const char *text, bool speak)
{
    size_t average;
    if (!twill_bench_parse_number(text, 0, 3, &average))
        return complain_bench(speak, 'a', text,
                              "0 (rank 0), 1 (average), 2 (minimum) or 3 (maximum)");
    options->report.average = (enum twill_bench_average)average;
    return true;
}

/* Return the flag that an option without an argument sets, or NULL. */
static bool *switch_option(struct twill_bench_options *options, int letter)
{
    return letter == OPTION_CSV            ? &options->report.csv
           : letter == OPTION_VERIFY       ? &options->measures.verify
           : letter == OPTION_TIMES        ? &options->measures.times
           : letter == OPTION_REPRODUCIBLE ? &options->measures.reproducible
           : letter == OPTION_ENERGY       ? &options->measures.energy
           : letter == OPTION_DEVICE       ? &options->played.device
           : letter == OPTION_PRIORITY     ? &options->played.priority
                                           : NULL;
}

/* Return the text that an option's argument is kept in as it is, or NULL. */
static const char **text_option(struct twill_bench_options *options, int letter)
{
    return letter == 'J'                ? &options->report.output
           : letter == OPTION_LIST      ? &options->list
           : letter == OPTION_SYSFS     ? &options->measures.sysfs
           : letter == OPTION_GRADIENTS ? &options->settings.gradients
           : letter == OPTION_ALGORITHM ? &options->settings.algorithm
                                        : NULL;
}

static bool set_bench_option(struct twill_bench_options *options, int letter, const char *text,
                             bool speak)
{
    bool *flag = switch_option(options, letter);
    if (flag != NULL)
        return *flag = true;
    const char **kept = text_option(options, letter);
    if (kept != NULL) {
        *kept = text;
        return true;
    }
    switch (letter) {
    case 'b':
        return set_size(&options->sizes.min_bytes, letter, text, speak);
    case 'e':
        return set_size(&options->sizes.max_bytes, letter, text, speak);
    case 'i':
        return set_size(&options->sizes.step_bytes, letter, text, speak) &&
               (options->sizes.step_bytes > 0 || complain_bench(speak, letter, text, "above zero"));
    case 'a':
        return set_average(options, text, speak);
    case 'o':
        return set_op(options, text, speak);
    case 'd':
        return set_type(options, text, speak);
    case 'r':
        return set_root(options, text, speak);
    case 'z':
        return set_flag(&options->calls.blocking, letter, text, speak);
    case 'I':
        return set_flag(&options->report.each, letter, text, speak);
    case OPTION_FORM:
        return set_form(options, text, speak);
    case OPTION_NARROW:
        return set_narrow(options, text, speak);
    case OPTION_OVERLAP:
        return set_overlap(options, text, speak);
    case OPTION_SPLIT:
        return set_split(options, text, speak);
    case OPTION_CALIBRATE:
        options->calibration = text;
        return *text != '\0' || complain_bench(speak, letter, text, "a file to write");
    case OPTION_BUCKET:
        return set_buckets(options, text, speak);
    case OPTION_MEMORY:
        return set_memory(options, text, speak);
    case OPTION_ALIGN:
        return set_align(options, text, speak);
    default:
        return set_bench_number(options, letter, text, speak);
    }
}

/* "kernels" and what their names must contain. */
static bool set_kernels(struct twill_bench_options *options, int argc, char **argv, bool speak)
{
    options->kernels = optind + 1 < argc ? argv[optind + 1] : "";
    if (speak && optind + 2 < argc)
        fprintf(stderr, "twill-bench: one name too many: '%s'\n", argv[optind + 2]);
    return optind + 2 >= argc;
}

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

enum twill_bench_parsed twill_bench_parse(struct twill_bench_options *options, int argc,
                                          char **argv, bool speak)
{
    *options = (struct twill_bench_options){
        .op = TWILL_SUM,
        .type = TWILL_F32,
        .sizes = {.min_bytes = 32 << 20, .max_bytes = 32 << 20, .step_bytes = 1 << 20},
        .repeats = {.iterations = 20, .warmups = 1, .aggregate = 1, .cycles = 1, .checks = 1},
        .calls = {.placed = true, .align = 64},
        .measures = {.narrow = -1},
        .report = {.average = TWILL_BENCH_AVERAGE},
        .played = {.batch = 32, .gflops = 10000, .buckets = {SIZE_MAX}, .n_buckets = 1},
    };
    int letter;
    opterr = speak;
    while ((letter = getopt_long(argc, argv, "b:e:i:f:n:w:m:N:a:c:o:d:r:z:T:J:u:I:K:hV",
                                 long_options, NULL)) != -1) {
        if (twill_bench_help(letter, "twill-bench", twill_bench_usage, speak))
            return TWILL_BENCH_DONE;
        if (letter == '?' || !set_bench_option(options, letter, optarg, speak))
            return TWILL_BENCH_USAGE;
        options->played.given |= letter >= OPTION_BATCH && letter <= OPTION_PRIORITY;
        options->sizes.ranged |= letter < 256 && strchr("beif", letter) != NULL;
    }
    return set_collective(options, argc, argv, speak) &&
                   (options->calibration != NULL || check_together(options, speak))
               ? TWILL_BENCH_RUN
               : TWILL_BENCH_USAGE;
}
