/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/tools/simulate/simulation.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t random_word(struct random_source *source)
{
    uint64_t word = source->state += UINT64_C(0x9E3779B97F4A7C15);
    word = (word ^ (word >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    word = (word ^ (word >> 27)) * UINT64_C(0x94D049BB133111EB);
    return word ^ (word >> 31);
}

/* Return a number above 0 and at most 1. */
static double random_unit(struct random_source *source)
{
    return (double)((random_word(source) >> 11) + 1) * 0x1p-53;
}

double random_normal(struct random_source *source)
{
    double radius = sqrt(-2 * log(random_unit(source))); /* Box and Muller 1958 */
    return radius * cos(2 * M_PI * random_unit(source));
}

/* Read the numbers of a file into the law. Returns false and the fault in *wrong on failure. */
static bool read_samples(struct law *law, const char *path, const char **wrong)
{
    FILE *file = fopen(path, "r");
    double sample;
    size_t capacity = 0;
    *wrong = "cannot open the list";
    if (file == NULL)
        return false;
    *wrong = "a list has at least one number, and none below 0";
    while (fscanf(file, "%lf", &sample) == 1 && sample >= 0 && isfinite(sample)) {
        if (law->count == capacity) {
            capacity = capacity == 0 ? 256 : 2 * capacity;
            double *more = realloc(law->samples, capacity * sizeof(*more));
            if (more == NULL)
                break;
            law->samples = more;
        }
        law->samples[law->count++] = sample;
    }
    bool whole = feof(file) && law->count > 0;
    fclose(file);
    return whole;
}

/* Parse exactly `count` numbers, none negative, separated by commas, into law->a and law->b.
 * Returns false if it is anything else. */
static bool parse_numbers(struct law *law, const char *text, int count)
{
    double *numbers[] = {&law->a, &law->b};
    for (int i = 0; i < count; i++) {
        char *end;
        *numbers[i] = strtod(text, &end);
        if (end == text || !isfinite(*numbers[i]) || *numbers[i] < 0 ||
            *end != (i + 1 < count ? ',' : '\0'))
            return false;
        text = end + 1;
    }
    return true;
}

bool law_parse(struct law *law, const char *text, const char **wrong)
{
#define X(NOUN, name, numbers, meaning) {name, numbers},
    static const struct {
        const char *name;
        int numbers;
    } kinds[] = {LAW_KINDS(X)};
#undef X
    *law = (struct law){0};
    *wrong = "laws are const:TIME, exp:MEAN, shifted:SHIFT,MEAN, uniform:MIN,MAX, pareto:MIN,SHAPE "
             "and list:FILE";
    size_t length = strcspn(text, ":");
    for (int kind = 0; kind < LAW_KIND_COUNT && text[length] == ':'; kind++) {
        if (strlen(kinds[kind].name) != length || strncmp(kinds[kind].name, text, length) != 0)
            continue;
        law->kind = (enum law_kind)kind;
        text += length + 1;
        if (kind == LAW_MEASURED)
            return read_samples(law, text, wrong);
        return parse_numbers(law, text, kinds[kind].numbers) &&
               (kind != LAW_UNIFORM || law->b >= law->a) && (kind != LAW_PARETO || law->b > 0);
    }
    return false;
}

void law_free(struct law *law)
{
    free(law->samples);
    law->samples = NULL;
}

bool law_is_zero(const struct law *law)
{
    return law->kind == LAW_CONSTANT && law->a == 0;
}

double law_draw(const struct law *law, struct random_source *source)
{
    switch (law->kind) {
    case LAW_EXPONENTIAL:
        return -law->a * log(random_unit(source));
    case LAW_SHIFTED:
        return law->a - law->b * log(random_unit(source));
    case LAW_UNIFORM:
        return law->a + (law->b - law->a) * random_unit(source);
    case LAW_PARETO:
        return law->a * pow(random_unit(source), -1 / law->b);
    case LAW_MEASURED:
        return law->samples[random_word(source) % law->count];
    default:
        return law->a;
    }
}

double law_mean(const struct law *law)
{
    double sum = 0;
    switch (law->kind) {
    case LAW_SHIFTED:
        return law->a + law->b;
    case LAW_UNIFORM:
        return (law->a + law->b) / 2;
    case LAW_PARETO:
        return law->b > 1 ? law->a * law->b / (law->b - 1) : INFINITY;
    case LAW_MEASURED:
        for (size_t i = 0; i < law->count; i++)
            sum += law->samples[i];
        return sum / (double)law->count;
    default:
        return law->a;
    }
}

double harmonic_difference(uint32_t k, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = n - k + 1; i <= n; i++)
        sum += 1.0 / i;
    return sum;
}

double law_order_statistic(const struct law *law, uint32_t k, uint32_t n)
{
    switch (law->kind) {
    case LAW_CONSTANT:
        return law->a;
    case LAW_EXPONENTIAL:
        return law->a * harmonic_difference(k, n);
    case LAW_SHIFTED:
        return law->a + law->b * harmonic_difference(k, n);
    case LAW_UNIFORM:
        return law->a + (law->b - law->a) * k / (n + 1.0);
    case LAW_PARETO: /* of U^(-1/b), where the (n-k+1)-th smallest U has a beta law */
        if (n - k + 1.0 <= 1 / law->b)
            return NAN;
        return law->a * exp(lgamma(n + 1.0) + lgamma(n - k + 1.0 - 1 / law->b) -
                            lgamma(n - k + 1.0) - lgamma(n + 1.0 - 1 / law->b));
    default:
        return NAN;
    }
}
