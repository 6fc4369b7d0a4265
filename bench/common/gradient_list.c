/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/common/gradient_list.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 32 }; /* elements, which are 64 bytes of a type of 2 bytes */

bool twill_bench_list_reserve(struct twill_bench_list *list, size_t keys)
{
    uint64_t *elements = reallocarray(list->elements, keys, sizeof(*elements));
    if (elements != NULL)
        list->elements = elements;
    uint64_t *offsets = reallocarray(list->offsets, keys, sizeof(*offsets));
    if (offsets != NULL)
        list->offsets = offsets;
    uint64_t *work = reallocarray(list->work, keys, sizeof(*work));
    if (work != NULL)
        list->work = work;
    return elements != NULL && offsets != NULL && work != NULL;
}

bool twill_bench_list_lay_out(struct twill_bench_list *list)
{
    const uint64_t most = UINT64_C(1) << 48;
    list->total = list->extent = list->all_work = 0;
    for (size_t key = 0; key < list->keys; key++) {
        uint64_t elements = list->elements[key];
        if (elements > most || list->extent > most || list->work[key] > most ||
            list->all_work > most)
            return false;
        list->offsets[key] = list->extent;
        list->total += elements;
        list->all_work += list->work[key];
        list->extent += (elements + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return true;
}

/* Parse "ELEMENTS" or "ELEMENTS MULTIPLY-ADDS". *work is 0 without the second. Returns false if a
 * line is neither or has 0 elements. */
static bool parse_tensor(const char *line, uint64_t *elements, uint64_t *work)
{
    uint64_t *const numbers[] = {elements, work};
    *elements = *work = 0;
    errno = 0;
    for (size_t i = 0; i < 2; i++) {
        char *end;
        line += strspn(line, " \t\r");
        if (*line == '\0' && i > 0)
            break;
        if (!isdigit((unsigned char)*line))
            return false;
        *numbers[i] = strtoull(line, &end, 10);
        if (errno != 0 || (*end != '\0' && !isspace((unsigned char)*end)))
            return false;
        line = end;
    }
    return line[strspn(line, " \t\r")] == '\0' && *elements > 0;
}

/* Append a tensor of `elements` elements, whose layer takes `work` multiply-adds for a sample.
 * Returns false if out of memory. */
static bool append_tensor(struct twill_bench_list *list, uint64_t elements, uint64_t work)
{
    bool full = (list->keys & (list->keys - 1)) == 0; /* capacity doubles at powers of two */
    if (full && !twill_bench_list_reserve(list, list->keys == 0 ? 1 : 2 * list->keys))
        return false;
    list->work[list->keys] = work;
    list->elements[list->keys++] = elements;
    return true;
}

/* Append the tensors of an open file. Returns false with a message that names the path and, if a
 * line is wrong, its number. */
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
        uint64_t elements, work;
        bool parsed = parse_tensor(line, &elements, &work);
        good = parsed && append_tensor(list, elements, work);
        if (!parsed)
            snprintf(message, bytes,
                     "%s:%zu: '%.40s' is not a number of elements from 1, or one and a number of "
                     "multiply-adds",
                     path, number, line);
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

double twill_bench_list_seconds(const struct twill_bench_list *list, size_t key, size_t batch,
                                double gflops)
{
    return 2 * (double)list->work[key] * (double)batch / (gflops * 1e9);
}

void twill_bench_list_free(struct twill_bench_list *list)
{
    free(list->elements);
    free(list->offsets);
    free(list->work);
    *list = (struct twill_bench_list){0};
}
