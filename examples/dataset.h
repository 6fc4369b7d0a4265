/* SPDX-License-Identifier: Apache-2.0 */
/* Labelled samples of a CSV file, split into training and held-out samples and among the ranks. */
#ifndef TWILL_DATASET_H
#define TWILL_DATASET_H

#include <stddef.h>
#include <stdint.h>

enum example_format {
    EXAMPLE_AUTO, /* WDBC if the first line is a header, otherwise NT3 */
    EXAMPLE_WDBC, /* a header "samples,features,name0,...", then lines of features and a label */
    EXAMPLE_NT3   /* no header, and lines of a label and features */
};

/* A mapped file with an index of its lines. Opening is cheap, as it parses only the labels. */
struct example_file {
    const char *path;
    const char *text;
    size_t bytes;
    enum example_format format;
    size_t samples, features;
    size_t classes;    /* how many the header names, otherwise 2 */
    size_t first_line; /* number of the first sample's line in the file, for messages */
    size_t *starts;    /* [samples] offset of each sample's line in the text */
    uint8_t *labels;   /* [samples], each below `classes` */
};

/* Parsed samples of this rank, in the order of the mini-batches. */
struct example_set {
    size_t count, features;
    float *values; /* [count][features] */
    uint8_t *labels;
};

/* Map the file and index it. Returns 0, or -1 with a sentence in the message that names file and
 * line. Close the file also after a failure. */
int example_file_open(struct example_file *file, const char *path, enum example_format format,
                      char *message, size_t bytes);
/* Free the index and unmap the file. */
void example_file_close(struct example_file *file);

/* Shuffle the samples and hold out every fifth of each class. Returns an array of the numbers of
 * all samples, which the caller frees, or NULL if there is no memory. The first *train of them are
 * for training, the rest is held out. Equal seeds give equal orders. */
size_t *example_split(const struct example_file *file, uint64_t seed, size_t *train);

/* Parse the samples with these numbers, in this order. Returns 0, or -1 with a message. */
int example_load(const struct example_file *file, const size_t *samples, size_t count,
                 struct example_set *set, char *message, size_t bytes);
/* Free the samples. */
void example_set_free(struct example_set *set);
/* Subtract `mean` from a feature of all samples, then multiply it by `scale`. */
void example_standardise(struct example_set *set, size_t feature, double mean, double scale);

/* Return the next pseudo-random number of 64 bits. It is the same on all machines. */
uint64_t example_random(uint64_t *state);
/* Return the next pseudo-random number in [0, 1). It is the same on all machines. */
double example_uniform(uint64_t *state);

#endif
