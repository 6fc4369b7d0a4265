/* SPDX-License-Identifier: Apache-2.0 */
/* Parse the command line of the training example. */
#include "train.h"

#include <float.h>
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
    "      --curve          print the held-out accuracy after each epoch, and the seconds\n"
    "                       of training until then\n"
    "      --pause MS       sleep after each mini-batch, as if it took longer\n"
    "  -h, --help\n";

/* Parse a whole number of at least `least`. Returns 0, or -1 after printing a message. */
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

/* Parse a number that is at least `least` and below `below`. `range` says this in words. Returns 0,
 * or -1 after printing a message. */
static int parse_real(const char *name, const char *text, double least, double below,
                      const char *range, double *value)
{
    char *end;
    *value = strtod(text, &end);
    if (end != text && *end == '\0' && *value >= least && *value < below)
        return 0;
    fprintf(stderr, "train: --%s: '%s' is not a number %s\n", name, text, range);
    return -1;
}

/* Find a text among names, of which NULL is the last, and set its index. `list` has the names in
 * words. Returns 0, or -1 after printing a message. */
static int parse_name(const char *name, const char *text, const char *const *names,
                      const char *list, unsigned *value)
{
    for (*value = 0; names[*value] != NULL; (*value)++)
        if (strcmp(text, names[*value]) == 0)
            return 0;
    fprintf(stderr, "train: --%s: '%s' is not %s\n", name, text, list);
    return -1;
}

/* Parse the epochs after which the rate is lowered. Returns 0, or -1 after printing a message. */
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

/* Parse the option of the learning rate with that letter. Returns 0, or -1 after a message. */
static int parse_schedule(int letter, const char *text, struct example_rate *rate)
{
    static const char *const scalings[] = {"linear", "sqrt", NULL};
    unsigned scaling;
    if (letter == 'r')
        return parse_real("rate", text, DBL_MIN, 1e6, "above 0", &rate->base);
    if (letter != 'S')
        return letter == 'w' ? parse_count("warm-up", text, 0, &rate->warm_up)
                             : parse_rate_steps(text, rate);
    int failed = parse_name("scale-rate", text, scalings, "linear or sqrt", &scaling);
    rate->scaling = scaling == 0 ? EXAMPLE_RATE_LINEAR : EXAMPLE_RATE_SQRT;
    return failed;
}

static int parse_format(const char *text, enum example_format *format)
{
    static const char *const names[] = {"auto", "wdbc", "nt3", NULL};
    unsigned found;
    int failed = parse_name("format", text, names, "auto, wdbc or nt3", &found);
    *format = (enum example_format)found;
    return failed;
}

static int parse_compression(const char *text, twill_compression *compression)
{
    static const char *const names[] = {"f16", "bf16", "f8e4m3", "f8e5m2", "int8", "top_k", NULL};
    unsigned found;
    int failed =
        parse_name("compress", text, names, "f16, bf16, f8e4m3, f8e5m2, int8 or top_k", &found);
    *compression = (twill_compression)(TWILL_COMPRESS_F16 + found);
    return failed;
}

/* Check that the options go together. Returns 0, or -1 after printing a message. */
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

/* Return the flag that an option without a value sets, or NULL if it is another option. */
static int *flag_of(struct train_options *options, int letter)
{
    return letter == 'E'   ? &options->elastic
           : letter == 'o' ? &options->overlap
           : letter == 'u' ? &options->fused
           : letter == 'l' ? &options->late
           : letter == 'x' ? &options->shares
           : letter == 'C' ? &options->curve
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
        {"curve", no_argument, NULL, 'C'},
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
            failed = parse_real("momentum", optarg, 0, 1, "from 0 and below 1", &options->momentum);
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
