/* SPDX-License-Identifier: Apache-2.0 */
/* Read gradient lists. */
#include "bench/bench/gradient_list.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 32 }; /* elements: 64 bytes of the smallest type */

bool twill_bench_list_reserve(struct twill_bench_list *list, size_t keys)
{
    uint64_t *elements = reallocarray(list->elements, keys, sizeof(*elements));
    if (elements != NULL)
        list->elements = elements;
    uint64_t *offsets = reallocarray(list->offsets, keys, sizeof(*offsets));
    if (offsets != NULL)
        list->offsets = offsets;
    return elements != NULL && offsets != NULL;
}

bool twill_bench_list_lay_out(struct twill_bench_list *list)
{
    const uint64_t most = UINT64_C(1) << 48;
    list->total = list->extent = 0;
    for (size_t key = 0; key < list->keys; key++) {
        uint64_t elements = list->elements[key];
        if (elements > most || list->extent > most)
            return false;
        list->offsets[key] = list->extent;
        list->total += elements;
        list->extent += (elements + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return true;
}

/* Return the number in a line without its comment, or 0 if it is invalid or zero. */
static uint64_t parse_elements(const char *line)
{
    char *end;
    while (isspace((unsigned char)*line))
        line++;
    if (!isdigit((unsigned char)*line))
        return 0;
    errno = 0;
    unsigned long long elements = strtoull(line, &end, 10);
    end += strspn(end, " \t\r");
    return errno == 0 && *end == '\0' ? elements : 0;
}

/* Append a key. Returns false when out of memory. */
static bool append_size(struct twill_bench_list *list, uint64_t elements)
{
    bool full = (list->keys & (list->keys - 1)) == 0; /* capacity doubles at powers of two */
    if (full && !twill_bench_list_reserve(list, list->keys == 0 ? 1 : 2 * list->keys))
        return false;
    list->elements[list->keys++] = elements;
    return true;
}

static bool read_lines(struct twill_bench_list *list, FILE *file, const char *path, char *message,
                       size_t bytes)
{
    char *line = NULL;
    size_t capacity = 0, number = 0;
    bool good = true;
    while (good && getline(&line, &capacity, file) >= 0) {
        number++;
        line[strcspn(line, "#\n")] = '\0';
        if (line[strspn(line, " \t\r")] == '\0')
            continue;
        uint64_t elements = parse_elements(line);
        good = elements > 0 && append_size(list, elements);
        if (elements == 0)
            snprintf(message, bytes, "%s:%zu: '%.40s' is not a number of elements from 1", path,
                     number, line);
        else if (!good)
            snprintf(message, bytes, "%s: %s", path, strerror(ENOMEM));
    }
    if (good && ferror(file)) {
        snprintf(message, bytes, "%s: %s", path, strerror(errno));
        good = false;
    }
    free(line);
    return good;
}

bool twill_bench_list_read(struct twill_bench_list *list, const char *path, char *message,
                           size_t bytes)
{
    *list = (struct twill_bench_list){0};
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        snprintf(message, bytes, "%s: %s", path, strerror(errno));
        return false;
    }
    bool good = read_lines(list, file, path, message, bytes);
    fclose(file);
    if (good && list->keys == 0)
        snprintf(message, bytes, "%s: the list has no tensor", path);
    else if (good && !twill_bench_list_lay_out(list))
        snprintf(message, bytes, "%s: more elements than any memory holds", path);
    else
        return good;
    return false;
}

void twill_bench_list_free(struct twill_bench_list *list)
{
    free(list->elements);
    free(list->offsets);
    *list = (struct twill_bench_list){0};
}
