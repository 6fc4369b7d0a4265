/* SPDX-License-Identifier: Apache-2.0 */
/* Labelled samples from a CSV file, split into training and held-out samples and then over ranks.
 */
#ifndef TWILL_DATASET_H
#define TWILL_DATASET_H

#include <stddef.h>
#include <stdint.h>

enum example_format {
    EXAMPLE_AUTO, /* WDBC if the first line is a header, else NT3 */
    EXAMPLE_WDBC, /* header "samples,features,name0,name1"; features, then the label */
    EXAMPLE_NT3   /* no header; the label, then features */
};

/* The file as mapped: where its lines are and what their labels say. Cheap, since only labels are
 * parsed. */
struct example_file {
    const char *path;
    const char *text;
    size_t bytes;
    enum example_format format;
    size_t samples, features;
    size_t first_line; /* number of the first sample's line, for messages */
    size_t *starts;    /* where each sample's line begins; one more for the end */
    uint8_t *labels;   /* 0 or 1 */
};

/* Samples held by this rank; rows in batch order. */
struct example_set {
    size_t count, features;
    float *values; /* [count][features] */
    uint8_t *labels;
};

/* All return 0, or -1 after writing a sentence that names file and line into message. */
int example_file_open(struct example_file *file, const char *path, enum example_format format,
                      char *message, size_t bytes);
void example_file_close(struct example_file *file);

/* Shuffle the samples and cut off every fifth of each class: order[0 .. *train) trains, the rest is
 * held out. The same on every rank. NULL: no memory. */
size_t *example_split(const struct example_file *file, uint64_t seed, size_t *train);

/* Parse the samples with these numbers. */
int example_load(const struct example_file *file, const size_t *samples, size_t count,
                 struct example_set *set, char *message, size_t bytes);
void example_set_free(struct example_set *set);

/* A stream of random numbers that is the same everywhere: 64 bits; and in [0, 1). */
uint64_t example_random(uint64_t *state);
double example_uniform(uint64_t *state);

#endif
