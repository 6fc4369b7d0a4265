/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of the training example. */
#include "train.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "Usage: train --data FILE [options]\n"
    "Train a tumour-or-normal classifier on all ranks of a job (see twillrun).\n"
    "      --data FILE      CSV: data/wdbc.csv, or NT3's (label, then features, no\n"
    "                       header)\n"
    "      --format NAME    auto, wdbc or nt3 (auto: wdbc if the first line is a\n"
    "                       header)\n"
    "      --epochs N       (100)\n"
    "      --batch N        mini-batch of all ranks together (64)\n"
    "      --rate X         learning rate (0.1)\n"
    "      --scale-rate HOW that rate is for 256 samples; for --batch samples scale\n"
    "                       it linear(ly) or by the sqrt, the square root\n"
    "      --warm-up N      epochs in which it grows from X to what it was scaled to\n"
    "                       (0)\n"
    "      --rate-steps N,N,...  after N epochs the rate is a tenth of what it was\n"
    "      --hidden N       hidden units (16)\n"
    "      --seed N         of the split, the order and the first parameters (1)\n"
    "      --overlap        reduce a layer's gradients while the next one's are\n"
    "                       computed\n"
    "      --compress NAME  what travels instead of weights' gradients: f16, bf16,\n"
    "                       f8e4m3, f8e5m2, int8 or top_k\n"
    "      --fused          the set updates the parameters, each rank its shard of\n"
    "                       them\n"
    "      --momentum X     of the optimizer, with --fused (0)\n"
    "      --late           update with the gradients of the mini-batch before; not\n"
    "                       so in the last tenth of the epochs\n"
    "      --elastic        go on when ranks die, and take in those that replace\n"
    "                       them: with twillrun --elastic\n"
    "      --shares         print what share of an epoch was spent on synchronising,\n"
    "                       and how many times as fast it would be without\n"
    "      --pause MS       sleep after each mini-batch, as if it took longer\n"
    "  -h, --help\n";

static int parse_count(const char *name, const char *text, size_t least, size_t *count)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    *count = (size_t)value;
    if (end != text && *end == '\0' && strchr(text, '-') == NULL && value >= least &&
        value < 1u << 30)
        return 0;
    fprintf(stderr, "train: --%s: '%s' is not a number from %zu\n", name, text, least);
    return -1;
}

static int parse_rate(const char *text, double *rate)
{
    char *end;
    *rate = strtod(text, &end);
    if (end != text && *end == '\0' && *rate > 0 && *rate < 1e6)
        return 0;
    fprintf(stderr, "train: --rate: '%s' is not a number above 0\n", text);
    return -1;
}

static int parse_scaling(const char *text, enum example_rate_scaling *scaling)
{
    *scaling = strcmp(text, "linear") == 0 ? EXAMPLE_RATE_LINEAR : EXAMPLE_RATE_SQRT;
    if (*scaling == EXAMPLE_RATE_LINEAR || strcmp(text, "sqrt") == 0)
        return 0;
    fprintf(stderr, "train: --scale-rate: '%s' is not linear or sqrt\n", text);
    return -1;
}

static int parse_rate_steps(const char *text, struct example_rate *rate)
{
    const char *at = text;
    for (rate->n_steps = 0; rate->n_steps < EXAMPLE_RATE_STEPS;) {
        char *end;
        if (*at < '0' || *at > '9')
            break;
        rate->steps[rate->n_steps++] = (size_t)strtoull(at, &end, 10);
        if (*end == '\0')
            return 0;
        if (*end != ',')
            break;
        at = end + 1;
    }
    fprintf(stderr, "train: --rate-steps: '%s' is not a list of up to %d epochs\n", text,
            EXAMPLE_RATE_STEPS);
    return -1;
}

/* The options of the learning rate, by letter. */
static int parse_schedule(int letter, const char *text, struct example_rate *rate)
{
    return letter == 'r'   ? parse_rate(text, &rate->base)
           : letter == 'S' ? parse_scaling(text, &rate->scaling)
           : letter == 'w' ? parse_count("warm-up", text, 0, &rate->warm_up)
                           : parse_rate_steps(text, rate);
}

static int parse_momentum(const char *text, double *momentum)
{
    char *end;
    *momentum = strtod(text, &end);
    if (end != text && *end == '\0' && *momentum >= 0 && *momentum < 1)
        return 0;
    fprintf(stderr, "train: --momentum: '%s' is not a number from 0 and below 1\n", text);
    return -1;
}

static int parse_format(const char *text, enum example_format *format)
{
    static const char *const names[] = {"auto", "wdbc", "nt3"};
    for (int i = 0; i < 3; i++)
        if (strcmp(text, names[i]) == 0) {
            *format = (enum example_format)i;
            return 0;
        }
    fprintf(stderr, "train: --format: '%s' is not auto, wdbc or nt3\n", text);
    return -1;
}

static int parse_compression(const char *text, twill_compression *compression)
{
    static const char *const names[] = {"f16", "bf16", "f8e4m3", "f8e5m2", "int8", "top_k"};
    for (int i = 0; i < 6; i++)
        if (strcmp(text, names[i]) == 0) {
            *compression = (twill_compression)(TWILL_COMPRESS_F16 + i);
            return 0;
        }
    fprintf(stderr, "train: --compress: '%s' is not f16, bf16, f8e4m3, f8e5m2, int8 or top_k\n",
            text);
    return -1;
}

/* Check that the options go together. */
static int check_options(const struct train_options *options, int other_arguments)
{
    const char *mistake = NULL;
    if (options->data == NULL || other_arguments)
        mistake = "expected --data FILE and no other arguments";
    else if (options->elastic && options->late)
        mistake = "--elastic with --late: a rank that dies takes a late result along";
    else if (options->momentum > 0 && !options->fused)
        mistake = "--momentum without --fused, which has the optimizer";
    else if (options->late && options->overlap)
        mistake = "--late with --overlap: a late exchange has all of the next step to hide behind";
    if (mistake != NULL)
        fprintf(stderr, "train: %s\n", mistake);
    return mistake != NULL;
}

/* Return what an option without a value sets; NULL: another one. */
static int *flag_of(struct train_options *options, int letter)
{
    return letter == 'E'   ? &options->elastic
           : letter == 'o' ? &options->overlap
           : letter == 'u' ? &options->fused
           : letter == 'l' ? &options->late
           : letter == 'x' ? &options->shares
                           : NULL;
}

int example_options(struct train_options *options, int argc, char **argv)
{
    static const struct option names[] = {
        {"data", required_argument, NULL, 'd'},
        {"format", required_argument, NULL, 'f'},
        {"epochs", required_argument, NULL, 'e'},
        {"batch", required_argument, NULL, 'b'},
        {"rate", required_argument, NULL, 'r'},
        {"momentum", required_argument, NULL, 'm'},
        {"scale-rate", required_argument, NULL, 'S'},
        {"warm-up", required_argument, NULL, 'w'},
        {"rate-steps", required_argument, NULL, 'R'},
        {"hidden", required_argument, NULL, 'n'},
        {"seed", required_argument, NULL, 's'},
        {"compress", required_argument, NULL, 'c'},
        {"overlap", no_argument, NULL, 'o'},
        {"fused", no_argument, NULL, 'u'},
        {"late", no_argument, NULL, 'l'},
        {"elastic", no_argument, NULL, 'E'},
        {"shares", no_argument, NULL, 'x'},
        {"pause", required_argument, NULL, 'p'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int letter, failed = 0;
    *options = (struct train_options){
        .epochs = 100, .batch = 64, .hidden = 16, .seed = 1, .rate = {.base = 0.1, .samples = 256}};
    while (!failed && (letter = getopt_long(argc, argv, "h", names, NULL)) != -1) {
        if (letter == 'd')
            options->data = optarg;
        else if (letter == 'f')
            failed = parse_format(optarg, &options->format);
        else if (letter == 'e')
            failed = parse_count("epochs", optarg, 1, &options->epochs);
        else if (letter == 'b')
            failed = parse_count("batch", optarg, 1, &options->batch);
        else if (strchr("rSwR", letter) != NULL)
            failed = parse_schedule(letter, optarg, &options->rate);
        else if (letter == 'm')
            failed = parse_momentum(optarg, &options->momentum);
        else if (letter == 'n')
            failed = parse_count("hidden", optarg, 1, &options->hidden);
        else if (letter == 's')
            failed = parse_count("seed", optarg, 0, &options->seed);
        else if (letter == 'c')
            failed = parse_compression(optarg, &options->compression);
        else if (letter == 'p')
            failed = parse_count("pause", optarg, 0, &options->pause_ms);
        else if (flag_of(options, letter) != NULL)
            *flag_of(options, letter) = 1;
        else
            return letter == 'h' ? (fputs(usage, stdout), 1) : 2;
    }
    failed = failed || check_options(options, optind < argc);
    return failed ? 2 : 0;
}
