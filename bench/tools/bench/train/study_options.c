/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/common/option_table.h"
#include "bench/tools/bench/train/study.h"

#include <getopt.h>
#include <string.h>

static const char usage[] =
    "Usage: twill-bench train --list FILE [options]\n"
    "Scaling of a training step: computing is played for the time that it would take,\n"
    "and a gradient set reduces gradients during the backward pass. Started\n"
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
    "  -J, --output_file FILE  also write JSON; never overwrites\n"
    "      --plot FILE         draw FILE, an SVG, by gnuplot; replaces it\n"
    "  -h, --help  -V, --version\n";

/* Parse a list such as "1,2,4". Returns false unless all, 32 at most, are from 1 to `most`. */
static bool read_values(struct twill_study_values *values, const char *text, size_t most)
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
    return false;
}

/* Parse --ranks into its values. Returns false unless they are numbers from 1. */
static bool read_ranks(void *member, const char *text)
{
    return read_values(member, text, 1000000);
}

/* Parse a list of numbers from 1 into its values. Returns false if it is none. */
static bool read_numbers(void *member, const char *text)
{
    return read_values(member, text, 1u << 30);
}

/* Set chosen[] by one of two words, or "both". Returns false if it is none of them. */
static bool read_choice(bool *chosen, const char *text, const char *one, const char *other)
{
    bool both = strcmp(text, "both") == 0;
    chosen[0] = both || strcmp(text, one) == 0;
    chosen[1] = both || strcmp(text, other) == 0;
    return chosen[0] || chosen[1];
}

/* Set the flags weak and strong by --scaling. Returns false if it is neither nor "both". */
static bool read_scaling(void *member, const char *text)
{
    return read_choice(member, text, "weak", "strong");
}

/* Set the flags of patterns by --pattern. Returns false if it is none of them nor "both". */
static bool read_pattern(void *member, const char *text)
{
    return read_choice(member, text, "allreduce", "bcast+reduce");
}

#define STUDY_AT(member) offsetof(struct twill_study_options, member)
#define VALUES           "a list of up to 32 numbers above 0"
#define STUDY_MANY       (1u << 30)

/* clang-format off */
static const struct twill_option table[] = {
    {0, "list", OPTION_TEXT, STUDY_AT(list), 0, 0, NULL, NULL, 0},
    {0, "ranks", OPTION_OWN, STUDY_AT(ranks), 0, 0, VALUES, read_ranks, 0},
    {0, "scaling", OPTION_OWN, STUDY_AT(scaling), 0, 0, "weak, strong or both", read_scaling, 0},
    {0, "batch", OPTION_OWN, STUDY_AT(batches), 0, 0, VALUES, read_numbers, 0},
    {0, "device-gflops", OPTION_COUNT, STUDY_AT(gflops), 1, STUDY_MANY, "a number above 0", NULL, 0},
    {0, "compute-us", OPTION_OWN, STUDY_AT(compute_us), 0, 0, VALUES, read_numbers, 0},
    {0, "core", OPTION_SWITCH, STUDY_AT(core), 0, 0, NULL, NULL, 0},
    {0, "pattern", OPTION_OWN, STUDY_AT(pattern), 0, 0, "allreduce, bcast+reduce or both", read_pattern, 0},
    {0, "samples", OPTION_COUNT, STUDY_AT(samples), 1, STUDY_MANY, "a number above 0", NULL, 0},
    {0, "per-node", OPTION_COUNT, STUDY_AT(per_node), 1, STUDY_MANY, "a number above 0", NULL, 0},
    {0, "machine", OPTION_TEXT, STUDY_AT(machine), 0, 0, NULL, NULL, 0},
    {0, "algorithm", OPTION_TEXT, STUDY_AT(algorithm), 0, 0, NULL, NULL, 0},
    {'n', "iters", OPTION_COUNT, STUDY_AT(iterations), 1, STUDY_MANY, "a number above 0", NULL, 0},
    {'w', "warmup_iters", OPTION_COUNT, STUDY_AT(warmups), 0, STUDY_MANY, "a number", NULL, 0},
    {0, "energy", OPTION_SWITCH, STUDY_AT(energy), 0, 0, NULL, NULL, 0},
    {0, "sysfs", OPTION_TEXT, STUDY_AT(sysfs), 0, 0, NULL, NULL, 0},
    {0, "csv", OPTION_SWITCH, STUDY_AT(csv), 0, 0, NULL, NULL, 0},
    {'J', "output_file", OPTION_TEXT, STUDY_AT(output), 0, 0, NULL, NULL, 0},
    {0, "plot", OPTION_TEXT, STUDY_AT(plot), 0, 0, NULL, NULL, 0},
};
/* clang-format on */

/* Check the options together. Returns TWILL_PARSED_USAGE without --list, for --sysfs without
 * --energy and for a word that is left over, after a message if `speak`. Otherwise returns
 * TWILL_PARSED_RUN. */
static enum twill_parsed check_options(const struct twill_study_options *options, int argc,
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
    return mistake != NULL || optind < argc ? TWILL_PARSED_USAGE : TWILL_PARSED_RUN;
}

enum twill_parsed twill_study_parse(struct twill_study_options *options, int argc, char **argv,
                                    bool speak)
{
    *options = (struct twill_study_options){.batches = {.value = {32}, .n = 1},
                                            .gflops = 10000,
                                            .iterations = 10,
                                            .warmups = 2,
                                            .scaling = {true, false},
                                            .pattern = {true, false}};
    const struct twill_command command = {"twill-bench: train", usage, table,
                                          sizeof(table) / sizeof(table[0])};
    enum twill_parsed parsed = twill_options_parse(&command, options, argc, argv, speak);
    return parsed == TWILL_PARSED_RUN ? check_options(options, argc, argv, speak) : parsed;
}
