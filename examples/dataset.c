/* SPDX-License-Identifier: Apache-2.0 */
/* CSV is read fast, as NT3 has 60,483 numbers per line. The file is mapped, memchr() finds its
 * lines, and a rank parses only its own samples. */
#include "dataset.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CLASSES_MOST = 256 }; /* labels are bytes */

uint64_t example_random(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9E3779B97F4A7C15); /* splitmix64 */
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

double example_uniform(uint64_t *state)
{
    return (double)(example_random(state) >> 11) * 0x1p-53;
}

/* Parse a number that the fast path cannot parse. The mapping does not end with a 0, so copy it. */
static const char *parse_slowly(const char *at, const char *end, double *value)
{
    char copy[64], *stop;
    size_t length = 0;
    while (at + length < end && length < sizeof(copy) - 1 && at[length] != ',')
        length++;
    memcpy(copy, at, length);
    copy[length] = '\0';
    *value = strtod(copy, &stop);
    return stop == copy ? NULL : at + (stop - copy);
}

/* Parse a number from [at, end). Returns where it ends, or NULL if there is none. One
 * multiplication or division gives the exact result for up to 15 digits and small exponents
 * (Clinger 1990). strtod() parses everything else. */
static const char *parse_number(const char *at, const char *end, double *value)
{
    static const double powers[] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    const char *from = at;
    int negative = at < end && *at == '-';
    uint64_t digits = 0;
    int seen = 0, decimals = 0, point = 0;
    for (at += negative; at < end; at++) {
        if (*at >= '0' && *at <= '9') {
            digits = digits * 10 + (uint64_t)(*at - '0');
            decimals += point;
            if (++seen > 15)
                return parse_slowly(from, end, value);
        } else if (*at == '.' && !point) {
            point = 1;
        } else {
            break;
        }
    }
    if (seen == 0 || (at < end && *at != ',' && *at != '\r'))
        return parse_slowly(from, end, value);
    *value = (double)digits / powers[decimals];
    if (negative)
        *value = -*value;
    return at;
}

/* Return the end of the line without its line break. */
static const char *line_end(const struct example_file *file, const char *at)
{
    const char *newline = memchr(at, '\n', (size_t)(file->text + file->bytes - at));
    const char *end = newline != NULL ? newline : file->text + file->bytes;
    while (end > at && (end[-1] == '\r' || end[-1] == '\n'))
        end--;
    return end;
}

static size_t count_fields(const char *at, const char *end)
{
    size_t fields = 1;
    while ((at = memchr(at, ',', (size_t)(end - at))) != NULL) {
        fields++;
        at++;
    }
    return fields;
}

static int map_file(struct example_file *file, char *message, size_t bytes)
{
    struct stat about;
    int fd = open(file->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &about) != 0) {
        snprintf(message, bytes, "%s: %s", file->path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    file->bytes = (size_t)about.st_size;
    if (file->bytes > 0)
        file->text = mmap(NULL, file->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (file->bytes == 0 || file->text == MAP_FAILED) {
        snprintf(message, bytes, "%s: %s", file->path,
                 file->bytes == 0 ? "the file is empty" : strerror(errno));
        file->text = NULL;
        close(fd);
        return -1;
    }
    close(fd);
    return 0;
}

/* Return whether the line has anything that is not a number. */
static int is_header(const char *at, const char *end)
{
    double value;
    while (at != NULL && at < end) {
        const char *next = parse_number(at, end, &value);
        if (next == NULL || (next < end && *next != ','))
            return 1;
        at = next < end ? next + 1 : end;
    }
    return 0;
}

/* Store the label of the line [at, end). Returns 0, or -1 with a message. */
static int read_label(struct example_file *file, size_t sample, const char *at, const char *end,
                      char *message, size_t bytes)
{
    double value;
    if (file->format == EXAMPLE_WDBC) {
        const char *comma = memrchr(at, ',', (size_t)(end - at));
        at = comma != NULL ? comma + 1 : at;
    }
    const char *next = parse_number(at, end, &value);
    if (next == NULL || (next < end && *next != ',') || value < 0 ||
        value >= (double)file->classes || value != (double)(uint8_t)value) {
        int shown = 0;
        while (shown < 32 && at + shown < end && at[shown] != ',')
            shown++;
        if (file->classes == 2)
            snprintf(message, bytes, "%s: line %zu: the label '%.*s' is neither 0 nor 1",
                     file->path, file->first_line + sample, shown, at);
        else
            snprintf(message, bytes, "%s: line %zu: the label '%.*s' is not one of 0 .. %zu",
                     file->path, file->first_line + sample, shown, at, file->classes - 1);
        return -1;
    }
    file->labels[sample] = (uint8_t)value;
    return 0;
}

/* Index the start and the label of at most `lines` lines. Returns 0, or -1 with a message. */
static int index_lines(struct example_file *file, const char *at, size_t lines, char *message,
                       size_t bytes)
{
    const char *end = file->text + file->bytes;
    file->starts = malloc((lines + 1) * sizeof(*file->starts));
    file->labels = malloc(lines + 1);
    if (file->starts == NULL || file->labels == NULL) {
        snprintf(message, bytes, "%s: no memory for an index of %zu lines", file->path, lines);
        return -1;
    }
    while (at < end) {
        const char *stop = line_end(file, at);
        if (stop > at) {
            file->starts[file->samples] = (size_t)(at - file->text);
            if (read_label(file, file->samples, at, stop, message, bytes) != 0)
                return -1;
            file->samples++;
        } else if (memchr(at, ',', (size_t)(end - at)) != NULL) {
            snprintf(message, bytes, "%s: line %zu: empty", file->path,
                     file->first_line + file->samples);
            return -1;
        }
        const char *newline = memchr(stop, '\n', (size_t)(end - stop));
        at = newline != NULL ? newline + 1 : end;
    }
    return 0;
}

static size_t count_newlines(const char *at, const char *end)
{
    size_t lines = 1; /* the last line may have no newline */
    while ((at = memchr(at, '\n', (size_t)(end - at))) != NULL) {
        lines++;
        at++;
    }
    return lines;
}

int example_file_open(struct example_file *file, const char *path, enum example_format format,
                      char *message, size_t bytes)
{
    *file = (struct example_file){.path = path, .format = format, .classes = 2, .first_line = 1};
    if (map_file(file, message, bytes) != 0)
        return -1;
    const char *at = file->text, *end = file->text + file->bytes, *stop = line_end(file, at);
    int header = is_header(at, stop);
    if (format == EXAMPLE_AUTO)
        file->format = header ? EXAMPLE_WDBC : EXAMPLE_NT3;
    if (file->format == EXAMPLE_WDBC && header) {
        const char *newline = memchr(at, '\n', file->bytes);
        size_t fields = count_fields(at, stop);
        if (fields > 4)
            file->classes = fields - 2 < CLASSES_MOST ? fields - 2 : CLASSES_MOST;
        at = newline != NULL ? newline + 1 : end;
        file->first_line = 2;
    }
    if (at < end)
        file->features = count_fields(at, line_end(file, at)) - 1;
    int failed = index_lines(file, at, count_newlines(at, end), message, bytes);
    if (failed == 0 && (file->samples < 10 || file->features == 0)) {
        snprintf(message, bytes, "%s: too few to train on: samples %zu, features %zu", path,
                 file->samples, file->features);
        failed = -1;
    }
    return failed;
}

void example_file_close(struct example_file *file)
{
    if (file->text != NULL)
        munmap((void *)file->text, file->bytes);
    free(file->starts);
    free(file->labels);
    *file = (struct example_file){0};
}

size_t *example_split(const struct example_file *file, uint64_t seed, size_t *train)
{
    size_t *shuffled = malloc(file->samples * sizeof(*shuffled));
    size_t *order = malloc(file->samples * sizeof(*order));
    size_t held_out = 0, of_class[CLASSES_MOST] = {0};
    *train = 0;
    if (shuffled == NULL || order == NULL) {
        free(shuffled);
        free(order);
        return NULL;
    }
    for (size_t i = 0; i < file->samples; i++) {
        size_t j = example_random(&seed) % (i + 1); /* the inside-out shuffle of Fisher and Yates */
        if (i != j)
            shuffled[i] = shuffled[j];
        shuffled[j] = i;
    }
    for (size_t i = 0; i < file->samples; i++) {
        size_t sample = shuffled[i];
        if (of_class[file->labels[sample]]++ % 5 == 4)
            order[file->samples - ++held_out] = sample;
        else
            order[(*train)++] = sample;
    }
    free(shuffled);
    return order;
}

/* Parse the features of a sample. Returns 0, or -1 with the number of the wrong field in *bad. */
static int parse_sample(const struct example_file *file, size_t sample, float *values, size_t *bad)
{
    const char *at = file->text + file->starts[sample], *end = line_end(file, at);
    size_t skip = file->format == EXAMPLE_NT3, fields = file->features + 1;
    for (size_t field = 0; field < fields; field++) {
        double value;
        const char *next = at <= end ? parse_number(at, end, &value) : NULL;
        *bad = field + 1;
        if (next == NULL || (next < end ? *next != ',' : field + 1 < fields))
            return -1;
        if (next < end && field + 1 == fields)
            return -1;
        if (field >= skip && field - skip < file->features)
            values[field - skip] = (float)value;
        at = next + 1;
    }
    return 0;
}

int example_load(const struct example_file *file, const size_t *samples, size_t count,
                 struct example_set *set, char *message, size_t bytes)
{
    *set = (struct example_set){.count = count, .features = file->features};
    set->values = malloc((count * file->features + 1) * sizeof(*set->values));
    set->labels = malloc(count + 1);
    if (set->values == NULL || set->labels == NULL) {
        snprintf(message, bytes, "%s: no memory for %zu samples of %zu features", file->path, count,
                 file->features);
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        size_t bad;
        set->labels[i] = file->labels[samples[i]];
        if (parse_sample(file, samples[i], set->values + i * file->features, &bad) != 0) {
            snprintf(message, bytes,
                     "%s: line %zu: field %zu is not a number, or there are not %zu fields",
                     file->path, file->first_line + samples[i], bad, file->features + 1);
            return -1;
        }
    }
    return 0;
}

void example_set_free(struct example_set *set)
{
    free(set->values);
    free(set->labels);
    *set = (struct example_set){0};
}

void example_standardise(struct example_set *set, size_t feature, double mean, double scale)
{
    for (size_t i = 0; i < set->count; i++) {
        float *x = &set->values[i * set->features + feature];
        *x = (float)(((double)*x - mean) * scale);
    }
}
