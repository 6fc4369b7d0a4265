/* SPDX-License-Identifier: Apache-2.0 */
/* Values of the verifier: expressions over inputs, numbered so that equal ones are the same. */
#include "algorithms/verify.h"

#include <stdlib.h>
#include <string.h>

bool twill_values_open(struct twill_values *v, uint32_t ranks)
{
    memset(v, 0, sizeof(*v));
    v->ranks = ranks;
    v->words = (ranks + 63) / 64;
    v->buckets = 1024;
    v->bucket = calloc(v->buckets, sizeof(*v->bucket));
    v->count = 1; /* number 0 is none */
    return v->bucket != NULL;
}

void twill_values_close(struct twill_values *v)
{
    free(v->value);
    free(v->set);
    free(v->operand);
    free(v->bucket);
}

static bool grow(void **array, uint32_t *capacity, uint32_t needed, size_t size)
{
    if (needed <= *capacity)
        return true;
    uint32_t more = 2 * needed + 64;
    void *grown = realloc(*array, more * size);
    if (grown == NULL)
        return false;
    *array = grown;
    *capacity = more;
    return true;
}

/* A new value with an empty set, or 0. */
static uint32_t add(struct twill_values *v)
{
    uint32_t capacity = v->capacity;
    if (!grow((void **)&v->value, &capacity, v->count + 1, sizeof(*v->value)))
        return 0;
    if (capacity != v->capacity) {
        uint64_t *set = realloc(v->set, (size_t)capacity * v->words * sizeof(*set));
        if (set == NULL)
            return 0;
        v->set = set;
        v->capacity = capacity;
    }
    memset(&v->value[v->count], 0, sizeof(*v->value));
    memset(v->set + (size_t)v->count * v->words, 0, v->words * sizeof(*v->set));
    return v->count++;
}

uint32_t twill_values_input(struct twill_values *v, uint32_t run, uint32_t rank, uint32_t block)
{
    uint32_t id = add(v);
    if (id == 0)
        return 0;
    v->value[id].run = run;
    v->value[id].block = block;
    v->value[id].members = 1;
    v->set[(size_t)id * v->words + rank / 64] = (uint64_t)1 << rank % 64;
    return id;
}

static uint32_t hash(const uint32_t *operand, uint32_t length, bool divide)
{
    uint64_t h = divide ? 0x9e3779b97f4a7c15u : 1;
    for (uint32_t i = 0; i < length; i++)
        h = (h ^ operand[i]) * 0x100000001b3u ^ h >> 29;
    return (uint32_t)(h ^ h >> 32);
}

static void rehash(struct twill_values *v, uint32_t *bucket, uint32_t buckets)
{
    for (uint32_t id = 1; id < v->count; id++) {
        struct twill_value *value = &v->value[id];
        if (value->length == 0)
            continue;
        uint32_t *head =
            &bucket[hash(v->operand + value->first, value->length, value->divided) & (buckets - 1)];
        value->chain = *head;
        *head = id;
    }
    free(v->bucket);
    v->bucket = bucket;
    v->buckets = buckets;
}

/* Why these must not be folded, or NULL. */
static const char *refuse(const struct twill_values *v, const uint32_t *operand, uint32_t length,
                          bool divide)
{
    uint64_t members = 0;
    for (uint32_t i = 0; i < length; i++) {
        const struct twill_value *value = &v->value[operand[i]];
        if (value->run != v->value[operand[0]].run || value->block != v->value[operand[0]].block)
            return "folds parts of different places";
        if (value->divided)
            return "folds what is complete already";
        members += value->members;
    }
    for (uint32_t w = 0; w < v->words; w++) {
        uint64_t seen = 0;
        for (uint32_t i = 0; i < length; i++) {
            uint64_t set = v->set[(size_t)operand[i] * v->words + w];
            if ((seen & set) != 0)
                return "folds a rank's contribution twice";
            seen |= set;
        }
    }
    return divide && members != v->ranks ? "divides what is not complete (FINAL)" : NULL;
}

static uint32_t find(const struct twill_values *v, uint32_t head, const uint32_t *operand,
                     uint32_t length, bool divide)
{
    for (uint32_t id = head; id != 0; id = v->value[id].chain)
        if (v->value[id].length == length && v->value[id].divided == divide &&
            memcmp(v->operand + v->value[id].first, operand, length * sizeof(*operand)) == 0)
            return id;
    return 0;
}

const char *twill_values_fold(struct twill_values *v, const uint32_t *operand, uint32_t length,
                              bool divide, uint32_t *result)
{
    const char *why = refuse(v, operand, length, divide);
    if (why != NULL)
        return why;
    if (v->count > v->buckets) {
        uint32_t *bucket = calloc((size_t)v->buckets * 4, sizeof(*bucket));
        if (bucket == NULL)
            return "no memory to verify";
        rehash(v, bucket, v->buckets * 4);
    }
    uint32_t slot = hash(operand, length, divide) & (v->buckets - 1);
    *result = find(v, v->bucket[slot], operand, length, divide);
    if (*result != 0)
        return NULL;
    uint32_t id = add(v);
    if (id == 0 || !grow((void **)&v->operand, &v->operand_capacity, v->operands + length,
                         sizeof(*v->operand)))
        return "no memory to verify";
    struct twill_value *value = &v->value[id];
    *value = (struct twill_value){.run = v->value[operand[0]].run,
                                  .block = v->value[operand[0]].block,
                                  .first = v->operands,
                                  .length = length,
                                  .chain = v->bucket[slot],
                                  .divided = divide};
    memcpy(v->operand + v->operands, operand, length * sizeof(*operand));
    v->operands += length;
    v->bucket[slot] = id;
    for (uint32_t i = 0; i < length; i++) {
        value->members += v->value[operand[i]].members;
        for (uint32_t w = 0; w < v->words; w++)
            v->set[(size_t)id * v->words + w] |= v->set[(size_t)operand[i] * v->words + w];
    }
    *result = id;
    return NULL;
}
