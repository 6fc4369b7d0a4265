/* SPDX-License-Identifier: Apache-2.0 */
/* Labelled samples from a CSV file, split into training and held-out samples, then among ranks. */
#ifndef TWILL_DATASET_H
#define TWILL_DATASET_H

#include <stddef.h>
#include <stdint.h>

enum example_format {
    EXAMPLE_AUTO, /* WDBC if the first line is a header, else NT3 */
    EXAMPLE_WDBC, /* header "samples,features,name0,name1..."; features, then the label */
    EXAMPLE_NT3   /* no header; the label, then features */
};

/* A mapped file with an index of its lines. Cheap, as only labels are parsed. */
struct example_file {
    const char *path;
    const char *text;
    size_t bytes;
    enum example_format format;
    size_t samples, features;
    size_t classes;    /* as many as the header names, else 2 */
    size_t first_line; /* number of the first sample's line, for messages */
    size_t *starts;    /* [samples] offset of each sample's line in text */
    uint8_t *labels;   /* [samples] below `classes` */
};

/* Parsed samples of this rank, in the order of mini-batches. */
struct example_set {
    size_t count, features;
    float *values; /* [count][features] */
    uint8_t *labels;
};

/* Map and index a file. Returns 0, or -1 with a sentence in message that names file and line. */
int example_file_open(struct example_file *file, const char *path, enum example_format format,
                      char *message, size_t bytes);
void example_file_close(struct example_file *file);

/* Shuffle the samples and hold out every fifth of each class. Returns their numbers, which the
 * caller frees: the first *train are to train on, the rest is held out. Equal seeds give equal
 * orders. NULL: no memory. */
size_t *example_split(const struct example_file *file, uint64_t seed, size_t *train);

/* Parse the samples with these numbers. Returns like example_file_open(). */
int example_load(const struct example_file *file, const size_t *samples, size_t count,
                 struct example_set *set, char *message, size_t bytes);
void example_set_free(struct example_set *set);
/* Subtract a mean from a feature of all samples, and multiply it by a scale. */
void example_standardise(struct example_set *set, size_t feature, double mean, double scale);

/* Return the next pseudo-random number, equal on all machines: of 64 bits, or in [0, 1). */
uint64_t example_random(uint64_t *state);
double example_uniform(uint64_t *state);

#endif
