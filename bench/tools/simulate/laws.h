/* SPDX-License-Identifier: Apache-2.0 */
/* Laws of probability that times are drawn from, and what is known of them exactly. */
#ifndef TWILL_LAWS_H
#define TWILL_LAWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A generator of random numbers (splitmix64): the state alone. */
struct random_source {
    uint64_t state;
};

uint64_t random_word(struct random_source *source);
/* Return a number above 0 and at most 1. */
double random_unit(struct random_source *source);
/* Return a number of the normal law of mean 0 and variance 1. */
double random_normal(struct random_source *source);

/* X(NOUN, name, how many numbers, which numbers) */
#define LAW_KINDS(X)                                                                               \
    X(CONSTANT, "const", 1, "TIME")                                                                \
    X(EXPONENTIAL, "exp", 1, "MEAN")                                                               \
    X(SHIFTED, "shifted", 2, "SHIFT,MEAN") /* SHIFT plus an exponential time of this MEAN */       \
    X(UNIFORM, "uniform", 2, "MIN,MAX")                                                            \
    X(PARETO, "pareto", 2, "MIN,SHAPE")                                                            \
    X(MEASURED, "list", 0, "FILE")

enum law_kind {
#define X(NOUN, name, numbers, meaning) LAW_##NOUN,
    LAW_KINDS(X)
#undef X
        LAW_KIND_COUNT
};

struct law {
    enum law_kind kind;
    double a, b;     /* the numbers of its text */
    double *samples; /* LAW_MEASURED: drawn from with replacement */
    size_t count;
};

/* Parse "exp:1", "uniform:0.5,1.5", "list:FILE" (numbers, blanks or lines between them). Returns
 * false, and what is wrong, if that is no law of times; free the law even then. */
bool law_parse(struct law *law, const char *text, const char **wrong);
void law_free(struct law *law);
/* Return whether every time of this law is 0. */
bool law_is_zero(const struct law *law);
double law_draw(const struct law *law, struct random_source *source);
/* Return the mean; INFINITY for a Pareto law of shape 1 or less. */
double law_mean(const struct law *law);
/* Return the expected k-th smallest of n independent times, 1 <= k <= n; NAN if there is no closed
 * form here (a measured list) or it is infinite. */
double law_order_statistic(const struct law *law, uint32_t k, uint32_t n);
/* Return H_n - H_(n-k) = 1/n + ... + 1/(n-k+1). */
double harmonic_difference(uint32_t k, uint32_t n);

#endif
