/* SPDX-License-Identifier: Apache-2.0 */
/* When compression pays: the time of a gradient set's step without computing, for one tensor of
 * f32, as it is and compressed, the codings in turns; then what options.compression_automatic
 * chooses. Run it by twillrun; see README.md. */
#include "lib/twill_train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TIMED_STEPS = 15, AUTOMATIC_STEPS = 20, CODINGS = 6 };

static const struct coding_row {
    const char *name;
    twill_compression compression;
} codings[CODINGS] = {
    {"f32", TWILL_COMPRESS_NONE},    {"f16", TWILL_COMPRESS_F16},
    {"int8", TWILL_COMPRESS_INT8},   {"f8e4m3", TWILL_COMPRESS_F8E4M3},
    {"top_k", TWILL_COMPRESS_TOP_K}, {"threshold", TWILL_COMPRESS_THRESHOLD},
};

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* End the program with the reason of a failure. */
static void check_status(twill_status status, const char *message)
{
    if (status == TWILL_OK)
        return;
    fprintf(stderr, "compression: %s\n", message);
    exit(1);
}

static twill_gradients *make_set(twill_comm *comm, const struct coding_row *coding, size_t count,
                                 int automatic)
{
    twill_gradients *set = NULL;
    twill_gradients_options options;
    twill_gradients_defaults(&options);
    options.compression = coding->compression;
    options.compression_automatic = automatic;
    options.compression_threshold = 0.99; /* one element of a hundred */
    const twill_tensor tensor = {.name = "tensor", .count = count};
    check_status(twill_gradients_create(&set, comm, &options), twill_comm_message(comm));
    check_status(twill_gradients_add(set, &tensor, NULL), twill_gradients_message(set));
    check_status(twill_gradients_commit(set), twill_gradients_message(set));
    return set;
}

/* Time a step, after gradients in -1 .. 1 have been written. */
static double time_step(twill_comm *comm, twill_gradients *set, size_t count, unsigned seed)
{
    float *gradient = twill_gradients_memory(set, 0);
    uint32_t state = seed * 2654435761u + (uint32_t)twill_comm_rank(comm);
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        gradient[i] = (float)(int32_t)state * 0x1p-31F;
    }
    check_status(twill_barrier(comm), twill_comm_message(comm));
    double start = seconds_now();
    check_status(twill_gradients_ready(set, 0), twill_gradients_message(set));
    check_status(twill_gradients_wait_all(set), twill_gradients_message(set));
    return seconds_now() - start;
}

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

/* Measure all codings of one size. */
static void measure_size(twill_comm *comm, size_t count)
{
    twill_gradients *set[CODINGS];
    double seconds[CODINGS][TIMED_STEPS];
    for (unsigned c = 0; c < CODINGS; c++)
        set[c] = make_set(comm, &codings[c], count, 0);
    for (unsigned round = 0; round <= TIMED_STEPS; round++) /* the first is not counted */
        for (unsigned c = 0; c < CODINGS; c++) {
            double took = time_step(comm, set[c], count, round);
            if (round > 0)
                seconds[c][round - 1] = took;
        }
    for (unsigned c = 0; c < CODINGS; c++) {
        twill_gradients_counters counters;
        check_status(twill_gradients_count(set[c], &counters), "no counters");
        qsort(seconds[c], TIMED_STEPS, sizeof(double), compare_doubles);
        twill_gradients_destroy(set[c]);
        if (twill_comm_rank(comm) == 0)
            printf("%10zu  %-9s  %9llu  %10.1f  %5.2f", count * sizeof(float), codings[c].name,
                   (unsigned long long)(counters.bytes_exchanged / counters.steps),
                   seconds[c][TIMED_STEPS / 2] * 1e6,
                   seconds[c][TIMED_STEPS / 2] / seconds[0][TIMED_STEPS / 2]);
        twill_gradients *automatic = make_set(comm, &codings[c], count, 1);
        for (unsigned step = 0; step < AUTOMATIC_STEPS; step++)
            (void)time_step(comm, automatic, count, step);
        const char *bucket = twill_gradients_describe(automatic, 1);
        if (twill_comm_rank(comm) == 0)
            printf("  %s\n", c == 0                                    ? ""
                             : strstr(bucket, "compressed to") != NULL ? "compresses"
                                                                       : "does not");
        twill_gradients_destroy(automatic);
    }
}

int main(int argc, char **argv)
{
    static char *const sizes[] = {NULL, "65536", "1048576", "16777216"};
    twill_comm *comm;
    if (argc < 2) {
        argv = (char **)sizes;
        argc = 4;
    }
    check_status(twill_init(&comm), "no start");
    if (twill_comm_rank(comm) == 0)
        printf("%10s  %-9s  %9s  %10s  %5s  %s\n", "bytes", "coding", "exchanged", "us a step",
               "ratio", "automatic");
    for (int i = 1; i < argc; i++) {
        size_t bytes = strtoull(argv[i], NULL, 10);
        measure_size(comm, bytes / sizeof(float) > 0 ? bytes / sizeof(float) : 1);
    }
    twill_finalize(comm);
    return 0;
}
