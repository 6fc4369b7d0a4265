/* SPDX-License-Identifier: Apache-2.0 */
/* The values of the verifier, expressions over inputs that are numbered so that equal expressions
 * have equal numbers. A reduction of many operands is a chain of reductions of two from the left,
 * as REDUCE defines it. Equal bits thus have equal numbers, whatever the division into steps. */
#include "algorithms/verify/verify.h"

#include <stdlib.h>
#include <string.h>

bool twill_values_open(struct twill_values *v, uint32_t ranks, enum twill_order order,
                       bool fingerprint)
{
    memset(v, 0, sizeof(*v));
    v->ranks = ranks;
    v->order = order;
    v->words = fingerprint ? 0 : (ranks + 63) / 64;
    v->buckets = 1024;
    v->bucket = calloc(v->buckets, sizeof(*v->bucket));
    v->count = 1; /* number 0 is none */
    return v->bucket != NULL;
}

void twill_values_close(struct twill_values *v)
{
    free(v->value);
    free(v->set);
    free(v->bucket);
}

/* Append a value, for which the set of ranks whose inputs it contains is empty. Returns its number,
 * which is 1 or more, or 0 if out of memory. */
static uint32_t add_value(struct twill_values *v, struct twill_value value)
{
    if (v->count >= v->capacity) {
        uint32_t capacity = 2 * v->count + 64;
        struct twill_value *grown = realloc(v->value, capacity * sizeof(*grown));
        if (grown == NULL)
            return 0;
        v->value = grown;
        uint64_t *set = realloc(v->set, ((size_t)capacity * v->words + 1) * sizeof(*set));
        if (set == NULL)
            return 0;
        v->set = set;
        v->capacity = capacity;
    }
    v->value[v->count] = value;
    memset(v->set + (size_t)v->count * v->words, 0, v->words * sizeof(*v->set));
    return v->count++;
}

/* Return a pseudo-random number that identifies an input of a rank. */
static uint64_t number_of(uint32_t rank, uint32_t block)
{
    uint64_t h = ((uint64_t)rank << 32 | block) + 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
    h = (h ^ h >> 27) * 0x94d049bb133111ebu;
    return h ^ h >> 31;
}

/* Return whether the input of each rank is in the value exactly once. */
static bool is_whole(const struct twill_values *v, const struct twill_value *value)
{
    uint64_t sum = 0;
    for (uint32_t r = 0; r < v->ranks && v->words == 0; r++)
        sum += number_of(r, value->block);
    return value->members == v->ranks && (v->words > 0 || sum == value->sum);
}

uint32_t twill_values_input(struct twill_values *v, uint32_t run, uint32_t rank, uint32_t block)
{
    uint32_t id = add_value(v, (struct twill_value){.run = run,
                                                    .block = block,
                                                    .members = 1,
                                                    .expression = v->count,
                                                    .sum = number_of(rank, block),
                                                    .first = rank,
                                                    .last = rank,
                                                    .ordered = true,
                                                    .from_left = rank == 0});
    if (id != 0 && v->words > 0)
        v->set[(size_t)id * v->words + rank / 64] = (uint64_t)1 << rank % 64;
    return id;
}

/* Return a hash of the numbers of two values and a state, for the table of values. */
static uint32_t hash_value(uint32_t left, uint32_t right, unsigned state)
{
    uint64_t h = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u + state;
    h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9u;
    return (uint32_t)(h >> 32);
}

/* Grow the hash table if there are more values than buckets. Returns false if out of memory. */
static bool rehash_values(struct twill_values *v)
{
    if (v->count <= v->buckets)
        return true;
    uint32_t buckets = v->buckets * 4;
    uint32_t *bucket = calloc(buckets, sizeof(*bucket));
    if (bucket == NULL)
        return false;
    for (uint32_t id = 1; id < v->count; id++) {
        struct twill_value *value = &v->value[id];
        if (value->left == 0)
            continue;
        uint32_t *head =
            &bucket[hash_value(value->left, value->right, value->state) & (buckets - 1)];
        value->chain = *head;
        *head = id;
    }
    free(v->bucket);
    v->bucket = bucket;
    v->buckets = buckets;
    return true;
}

/* Find or create the value `left op right`, or `left` in another state if `right` is 0. Returns its
 * number, or 0 if out of memory. */
static uint32_t make_value(struct twill_values *v, uint32_t left, uint32_t right,
                           enum twill_value_state state)
{
    if (!rehash_values(v))
        return 0;
    uint32_t slot = hash_value(left, right, state) & (v->buckets - 1);
    for (uint32_t id = v->bucket[slot]; id != 0; id = v->value[id].chain)
        if (v->value[id].left == left && v->value[id].right == right && v->value[id].state == state)
            return id;
    uint32_t id = add_value(v, v->value[left]);
    if (id == 0)
        return 0;
    struct twill_value *value = &v->value[id];
    const struct twill_value *l = &v->value[left], *r = &v->value[right];
    uint64_t *set = v->set + (size_t)id * v->words;
    value->left = left;
    value->right = right;
    value->state = state;
    value->chain = v->bucket[slot];
    v->bucket[slot] = id;
    memcpy(set, v->set + (size_t)left * v->words, v->words * sizeof(*set));
    if (right == 0)
        return id;
    value->expression = id;
    value->members += r->members;
    value->sum += r->sum;
    value->last = r->last;
    value->ordered = l->ordered && r->ordered && l->last + 1 == r->first;
    value->from_left = value->ordered && l->from_left && r->members == 1;
    for (uint32_t w = 0; w < v->words; w++)
        set[w] |= v->set[(size_t)right * v->words + w];
    return id;
}

/* Return a constant text that says why the values with the numbers `left` and `right` must not be
 * reduced, or NULL if they may. They must be of the same run and block, and must not both contain
 * the input of a rank. With `fingerprint` the latter is not checked here. */
static const char *operands_conflict(const struct twill_values *v, uint32_t left, uint32_t right)
{
    const struct twill_value *l = &v->value[left], *r = &v->value[right];
    if (l->run != r->run || l->block != r->block)
        return "reduces blocks from different positions";
    for (uint32_t w = 0; w < v->words; w++)
        if ((v->set[(size_t)left * v->words + w] & v->set[(size_t)right * v->words + w]) != 0)
            return "reduces a rank's contribution twice";
    return NULL;
}

const char *twill_values_reduce(struct twill_values *v, const uint32_t *operand, uint32_t length,
                                bool final, uint32_t *result)
{
    uint32_t all = v->value[operand[0]].expression;
    for (uint32_t i = 0; i < length; i++) {
        uint32_t one = v->value[operand[i]].expression;
        if (v->value[operand[i]].state == TWILL_STATE_FINAL)
            return "reduces a value that is complete already";
        if (i == 0)
            continue;
        const char *why = operands_conflict(v, all, one);
        if (why != NULL)
            return why;
        if ((all = make_value(v, all, one, TWILL_STATE_PARTIAL)) == 0)
            return "no memory to verify";
        const struct twill_value *value = &v->value[all];
        if (v->order == TWILL_ORDER_RANKS ? !value->ordered
                                          : v->order == TWILL_ORDER_LEFT && !value->from_left)
            return "reduces operands out of order";
    }
    if (final && !is_whole(v, &v->value[all]))
        return "applies FINAL to an incomplete value";
    if (final || v->value[all].state == TWILL_STATE_RAW)
        all = make_value(v, all, 0, final ? TWILL_STATE_FINAL : TWILL_STATE_PARTIAL);
    *result = all;
    return all != 0 ? NULL : "no memory to verify";
}
