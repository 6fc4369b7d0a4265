/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of twill-bench train. */
#include "bench/common/help.h"
#include "bench/tools/bench/train/study.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "Usage: twill-bench train --list FILE [options]\n"
    "Scaling of a training step: computing is played for the time that it would take,\n"
    "gradients are reduced by a gradient set while the backward pass goes on. Started\n"
    "by twillrun on as many ranks as are to be measured; larger numbers are predicted\n"
    "by the price model.\n"
    "      --list FILE         the model: a gradient list (bench/gradients)\n"
    "      --ranks N,N,...     numbers of ranks (1, 2, 4, ... and all); without 1\n"
    "                          there is no speed-up, efficiency and overhead\n"
    "      --scaling HOW       weak, strong or both (weak)\n"
    "      --batch N,N,...     samples of a step: weak: of each rank, strong: of all\n"
    "                          ranks (32)\n"
    "      --device-gflops N   speed of the device that computes (10000)\n"
    "      --compute-us N,N,.. microseconds that one rank computes for a batch,\n"
    "                          instead\n"
    "      --core              the rank's core computes, not a device beside it\n"
    "      --pattern HOW       allreduce, bcast+reduce (a root has the parameters and\n"
    "                          gets the gradients) or both (allreduce)\n"
    "      --samples N         of an epoch: columns epoch_s and syncs\n"
    "      --per-node N        ranks of a node in predictions (as in the job)\n"
    "      --machine NAME      machine of predictions, such as theta (this one)\n"
    "      --algorithm TEXT    TWILL_ALGORITHM; bcast+reduce: each rank by itself\n"
    "                          (linear)\n"
    "  -n, --iters N           timed steps of each row (10)\n"
    "  -w, --warmup_iters N    steps before those (2)\n"
    "      --energy            columns J and W of a node and a rank, by phase\n"
    "      --sysfs DIR         where its counters are (/sys)\n"
    "      --csv               print comma-separated values\n"
    "  -J, --output_file FILE  write JSON, too; never overwrites\n"
    "      --plot FILE         draw FILE, an SVG, by gnuplot; replaces it\n"
    "  -h, --help  -V, --version\n";

enum {
    STUDY_RANKS = 256,
    STUDY_SCALING,
    STUDY_BATCH,
    STUDY_GFLOPS,
    STUDY_COMPUTE,
    STUDY_PATTERN,
    STUDY_SAMPLES,
    STUDY_PER_NODE,
    STUDY_LIST,
    STUDY_MACHINE,
    STUDY_ALGORITHM,
    STUDY_SYSFS,
    STUDY_PLOT,
    STUDY_CORE,
    STUDY_ENERGY,
    STUDY_CSV
};

static const struct option names[] = {
    {"list", required_argument, NULL, STUDY_LIST},
    {"ranks", required_argument, NULL, STUDY_RANKS},
    {"scaling", required_argument, NULL, STUDY_SCALING},
    {"batch", required_argument, NULL, STUDY_BATCH},
    {"device-gflops", required_argument, NULL, STUDY_GFLOPS},
    {"compute-us", required_argument, NULL, STUDY_COMPUTE},
    {"core", no_argument, NULL, STUDY_CORE},
    {"pattern", required_argument, NULL, STUDY_PATTERN},
    {"samples", required_argument, NULL, STUDY_SAMPLES},
    {"per-node", required_argument, NULL, STUDY_PER_NODE},
    {"machine", required_argument, NULL, STUDY_MACHINE},
    {"algorithm", required_argument, NULL, STUDY_ALGORITHM},
    {"iters", required_argument, NULL, 'n'},
    {"warmup_iters", required_argument, NULL, 'w'},
    {"energy", no_argument, NULL, STUDY_ENERGY},
    {"sysfs", required_argument, NULL, STUDY_SYSFS},
    {"csv", no_argument, NULL, STUDY_CSV},
    {"output_file", required_argument, NULL, 'J'},
    {"plot", required_argument, NULL, STUDY_PLOT},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},
    {NULL, 0, NULL, 0},
};

static const char *name_of(int letter)
{
    const struct option *option = names;
    while (option->name != NULL && option->val != letter)
        option++;
    return option->name;
}

static bool refuse(int letter, const char *text, const char *expected, bool speak)
{
    if (speak)
        fprintf(stderr, "twill-bench: train: --%s: '%s' is not %s\n", name_of(letter), text,
                expected);
    return false;
}

/* Parse "1,2,4". */
static bool parse_values(struct twill_study_values *values, int letter, const char *text,
                         size_t most, bool speak)
{
    char one[24];
    const char *at = text;
    for (values->n = 0; values->n < TWILL_STUDY_MOST; at++) {
        size_t length = strcspn(at, ",");
        if (length >= sizeof(one))
            break;
        memcpy(one, at, length);
        one[length] = '\0';
        if (!twill_bench_parse_number(one, 1, most, &values->value[values->n]))
            break;
        values->n++;
        at += length;
        if (*at == '\0')
            return true;
    }
    return refuse(letter, text, "a list of up to 32 numbers above 0", speak);
}

static bool parse_count(size_t *number, int letter, const char *text, size_t least, bool speak)
{
    return twill_bench_parse_number(text, least, 1u << 30, number) ||
           refuse(letter, text, least > 0 ? "a number above 0" : "a number", speak);
}

/* Parse one of two words, or "both". */
static bool parse_choice(bool chosen[2], int letter, const char *text, const char *const words[2],
                         bool speak)
{
    bool both = strcmp(text, "both") == 0;
    chosen[0] = both || strcmp(text, words[0]) == 0;
    chosen[1] = both || strcmp(text, words[1]) == 0;
    if (!chosen[0] && !chosen[1] && speak)
        fprintf(stderr, "twill-bench: train: --%s: '%s' is not %s, %s or both\n", name_of(letter),
                text, words[0], words[1]);
    return chosen[0] || chosen[1];
}

static bool set_text(struct twill_study_options *options, int letter, const char *text)
{
    const char **const texts[] = {&options->list,  &options->machine, &options->algorithm,
                                  &options->sysfs, &options->plot,    &options->output};
    const int letters[] = {STUDY_LIST,  STUDY_MACHINE, STUDY_ALGORITHM,
                           STUDY_SYSFS, STUDY_PLOT,    'J'};
    for (size_t i = 0; i < sizeof(letters) / sizeof(letters[0]); i++)
        if (letter == letters[i])
            *texts[i] = text;
    options->core |= letter == STUDY_CORE;
    options->energy |= letter == STUDY_ENERGY;
    options->csv |= letter == STUDY_CSV;
    return true;
}

static bool set_option(struct twill_study_options *options, int letter, const char *text,
                       bool speak)
{
    static const char *const scalings[] = {"weak", "strong"};
    static const char *const patterns[] = {"allreduce", "bcast+reduce"};
    switch (letter) {
    case STUDY_RANKS:
        return parse_values(&options->ranks, letter, text, 1000000, speak);
    case STUDY_BATCH:
        return parse_values(&options->batches, letter, text, 1u << 30, speak);
    case STUDY_COMPUTE:
        return parse_values(&options->compute_us, letter, text, 1u << 30, speak);
    case STUDY_SCALING:
        return parse_choice(options->scaling, letter, text, scalings, speak);
    case STUDY_PATTERN:
        return parse_choice(options->pattern, letter, text, patterns, speak);
    case STUDY_GFLOPS:
        return parse_count(&options->gflops, letter, text, 1, speak);
    case STUDY_SAMPLES:
        return parse_count(&options->samples, letter, text, 1, speak);
    case STUDY_PER_NODE:
        return parse_count(&options->per_node, letter, text, 1, speak);
    case 'n':
        return parse_count(&options->iterations, letter, text, 1, speak);
    case 'w':
        return parse_count(&options->warmups, letter, text, 0, speak);
    default:
        return set_text(options, letter, text);
    }
}

static enum twill_bench_parsed check_options(const struct twill_study_options *options, int argc,
                                             char **argv, bool speak)
{
    const char *mistake = NULL;
    if (options->list == NULL)
        mistake = "--list is missing: a file of tensors, such as bench/gradients/resnet50.txt";
    else if (options->sysfs != NULL && !options->energy)
        mistake = "--sysfs needs --energy";
    if (mistake != NULL && speak)
        fprintf(stderr, "twill-bench: train: %s\n", mistake);
    else if (optind < argc && speak)
        fprintf(stderr, "twill-bench: train: one argument too many: '%s'\n", argv[optind]);
    return mistake != NULL || optind < argc ? TWILL_BENCH_USAGE : TWILL_BENCH_RUN;
}

enum twill_bench_parsed twill_study_parse(struct twill_study_options *options, int argc,
                                          char **argv, bool speak)
{
    *options = (struct twill_study_options){.batches = {.value = {32}, .n = 1},
                                            .gflops = 10000,
                                            .iterations = 10,
                                            .warmups = 2,
                                            .scaling = {true, false},
                                            .pattern = {true, false}};
    opterr = speak;
    for (int letter; (letter = getopt_long(argc, argv, "n:w:J:hV", names, NULL)) != -1;) {
        if (twill_bench_help(letter, "twill-bench", usage, speak))
            return TWILL_BENCH_DONE;
        if (letter == '?' || !set_option(options, letter, optarg, speak))
            return TWILL_BENCH_USAGE;
    }
    return check_options(options, argc, argv, speak);
}
