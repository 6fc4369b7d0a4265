/* SPDX-License-Identifier: Apache-2.0 */
/* Compares over the ranks what they register, and their parameters, by hashes of tensors. */
#include "lib/base/plural.h"
#include "lib/train/gradients.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DESCRIBED_BYTES TWILL_ENTRY_BYTES /* bytes of a tensor or an option in a message */
#define VALUES_MOST     4u                /* most different values that a message lists */

/* Return the communicator over which the ranks compare, the caller's until the set has its own. */
static twill_comm *comm_to_compare(const struct twill_gradients *set)
{
    return set->comm != NULL ? set->comm : set->parent;
}

/* Return `status` of a collective. An error is recorded, and breaks a set with its own comm. */
static twill_status check_call(struct twill_gradients *set, twill_status status)
{
    if (status == TWILL_OK)
        return TWILL_OK;
    if (set->comm != NULL)
        return twill_reducers_check(set, twill_set_fail(set, set->comm, status));
    return TWILL_FAIL(&set->error, status, "%s", twill_comm_message(set->parent));
}

/* Break the set with this message. All ranks do so. Returns TWILL_ERR_MISMATCH. */
static twill_status fail_alike(struct twill_gradients *set, const char *text)
{
    (void)TWILL_FAIL(&set->error, TWILL_ERR_MISMATCH, "%s", text);
    set->broken = true;
    return TWILL_ERR_MISMATCH;
}

/* Return `hash`, the hash of earlier values, continued by these bytes. */
static uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *from = data;
    uint64_t word;
    for (; bytes >= sizeof(word); bytes -= sizeof(word), from += sizeof(word)) {
        memcpy(&word, from, sizeof(word));
        hash = twill_hash_mix(hash, word);
    }
    word = bytes;
    memcpy(&word, from, bytes);
    return twill_hash_mix(hash, word ^ (uint64_t)bytes << 56);
}

/* Set *found to the index of the first of n hashes that differs between ranks, or n. Collective.
 * Returns TWILL_OK or the error, recorded by check_call(). */
static twill_status find_difference(struct twill_gradients *set, const uint64_t *hash, size_t n,
                                    size_t *found)
{
    uint64_t *words = malloc((2 * n + 1) * sizeof(*words));
    if (words == NULL)
        return check_call(set, TWILL_FAIL(&set->error, TWILL_ERR_MEMORY,
                                          "out of memory to compare %zu tensors", n));
    memcpy(words, hash, n * sizeof(*hash));
    twill_status status = twill_find_difference(comm_to_compare(set), words, n, found);
    free(words);
    return check_call(set, status);
}

static void append(char *text, size_t bytes, const char *format, ...) TWILL_PRINTF(3, 4);
static void append(char *text, size_t bytes, const char *format, ...)
{
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    twill_print_list(text + used, bytes - used, format, arguments);
    va_end(arguments);
}

/* Append to the text in text[bytes] which ranks have which value, as "WHAT on ranks 0, 2; OTHER on
 * rank 1". It has at most VALUES_MOST values. Rank r's value is the text at described + r *
 * DESCRIBED_BYTES. */
static void group_ranks(char *text, size_t bytes, const char *described, int size)
{
    unsigned values = 0;
    for (int r = 0; r < size; r++) {
        const char *mine = described + (size_t)r * DESCRIBED_BYTES;
        int first = 0, ranks = 0;
        while (strcmp(described + (size_t)first * DESCRIBED_BYTES, mine) != 0)
            first++;
        if (first != r)
            continue;
        if (values++ == VALUES_MOST) {
            append(text, bytes, "; and others");
            return;
        }
        for (int p = r; p < size; p++)
            ranks += strcmp(described + (size_t)p * DESCRIBED_BYTES, mine) == 0;
        append(text, bytes, "%s%s on rank%s", values > 1 ? "; " : "", mine, ranks > 1 ? "s" : "");
        for (int p = r; p < size; p++)
            if (strcmp(described + (size_t)p * DESCRIBED_BYTES, mine) == 0)
                append(text, bytes, "%s%d", p > r ? ", " : " ", p);
    }
}

/* Gather one text from each rank, and break the set on all ranks with a message that lists them as
 * values of `what`. Returns TWILL_ERR_MISMATCH, or the error of the collective. */
static twill_status explain_difference(struct twill_gradients *set, const char *what,
                                       const char *mine)
{
    int size = twill_comm_size(comm_to_compare(set));
    char *all = calloc((size_t)size, DESCRIBED_BYTES), sent[DESCRIBED_BYTES] = "";
    char text[sizeof(set->error.message)] = "";
    snprintf(sent, sizeof(sent), "%s", mine);
    if (all == NULL)
        return check_call(set, TWILL_ERR_MEMORY);
    twill_status status =
        twill_allgather(comm_to_compare(set), sent, all, DESCRIBED_BYTES, TWILL_U8);
    if (status == TWILL_OK) {
        append(text, sizeof(text), "the ranks differ in %s: ", what);
        group_ranks(text, sizeof(text), all, size);
        status = fail_alike(set, text);
    } else {
        status = check_call(set, status);
    }
    free(all);
    return status;
}

/* Store the hash of each option and hyperparameter in hash[], and return a hash of these. */
static uint64_t hash_entries(const struct twill_gradients *set, uint64_t *hash)
{
    char text[TWILL_ENTRY_BYTES];
    for (unsigned i = 0; i < TWILL_SET_ENTRIES; i++) {
        twill_set_entry_print(set, i, text);
        hash[i] = hash_bytes(1, text, strlen(text));
    }
    return hash_bytes(1, hash, TWILL_SET_ENTRIES * sizeof(*hash));
}

/* Break the set on all ranks with the name of the first option or hyperparameter that differs
 * between them. hash[TWILL_SET_ENTRIES] has the hashes of this rank's, as by hash_entries().
 * Returns TWILL_ERR_MISMATCH or the error of a call. */
static twill_status explain_entries(struct twill_gradients *set, const uint64_t *hash)
{
    char text[TWILL_ENTRY_BYTES];
    size_t found = 0;
    TWILL_TRY(&set->error, find_difference(set, hash, TWILL_SET_ENTRIES, &found));
    twill_set_entry_print(set, (unsigned)found, text);
    return explain_difference(set, "their options", text);
}

/* Return the hash of all that ranks must register alike of a tensor. */
static uint64_t hash_of_tensor(const struct twill_train_tensor *tensor)
{
    const uint64_t values[] = {tensor->count, (uint64_t)tensor->type, (uint64_t)tensor->priority,
                               tensor->own == NULL, tensor->raw};
    uint64_t hash = hash_bytes(2, values, sizeof(values));
    if (tensor->dense != NULL) {
        const uint64_t shape[] = {tensor->dense->rows, tensor->dense->columns,
                                  tensor->dense->samples};
        hash = hash_bytes(hash, shape, sizeof(shape));
    }
    return hash_bytes(hash, tensor->name, strlen(tensor->name));
}

/* Write in words a tensor's name, count, type and priority, who provides its memory, and whether it
 * may be compressed. Ranks must register all of these alike. */
static void describe_tensor(const struct twill_train_tensor *tensor, char text[DESCRIBED_BYTES])
{
    snprintf(text, DESCRIBED_BYTES, "'%.60s' (%zu %s, priority %d%s%s)", tensor->name,
             tensor->count, twill_type_name(tensor->type), tensor->priority,
             tensor->own == NULL ? ", memory of the set" : "", tensor->raw ? "" : ", compressed");
}

/* Compare the first `least` tensors one by one over the ranks, and then the number of tensors, of
 * which `least` is the lowest. Returns TWILL_OK, TWILL_ERR_MISMATCH on all ranks, or another
 * error. */
static twill_status compare_each(struct twill_gradients *set, uint64_t least)
{
    char text[DESCRIBED_BYTES] = "", what[48];
    size_t n = (size_t)least, found = 0;
    uint64_t *hash = malloc((n + 1) * sizeof(*hash));
    if (hash == NULL)
        return TWILL_FAIL(&set->error, TWILL_ERR_MEMORY, "out of memory for %zu tensors", n);
    for (size_t t = 0; t < n; t++)
        hash[t] = hash_of_tensor(&set->tensor[t]);
    hash[n] = set->tensors;
    twill_status status = find_difference(set, hash, n + 1, &found);
    free(hash);
    if (status != TWILL_OK || found > n)
        return status;
    if (found == n) {
        snprintf(text, sizeof(text), "%u tensor%s", set->tensors, TWILL_PLURAL(set->tensors));
        return explain_difference(set, "the number of tensors", text);
    }
    describe_tensor(&set->tensor[found], text);
    snprintf(what, sizeof(what), "tensor %zu", found);
    return explain_difference(set, what, text);
}

twill_status twill_gradients_compare_tensors(struct twill_gradients *set)
{
    uint64_t entry[TWILL_SET_ENTRIES], options = hash_entries(set, entry);
    uint64_t mine[3] = {options, ~options, set->tensors}, least[3];
    TWILL_TRY(&set->error, check_call(set, twill_allreduce(comm_to_compare(set), mine, least, 3,
                                                           TWILL_U64, TWILL_MIN)));
    if (least[0] != ~least[1])
        return explain_entries(set, entry);
    return compare_each(set, least[2]);
}

twill_status twill_gradients_compare_parameters(struct twill_gradients *set)
{
    char text[DESCRIBED_BYTES], what[DESCRIBED_BYTES];
    size_t n = set->tensors, found = 0;
    uint64_t *hash = malloc(n * sizeof(*hash));
    if (hash == NULL)
        return check_call(set, TWILL_FAIL(&set->error, TWILL_ERR_MEMORY,
                                          "out of memory to compare %zu tensors", n));
    for (size_t t = 0; t < n; t++) {
        const struct twill_train_tensor *tensor = &set->tensor[t];
        const void *data = tensor->parameters;
        if (data == NULL && set->update != NULL)
            data = twill_update_parameters(set, (uint32_t)t);
        else if (data == NULL)
            data = twill_gradients_result(set, (int)t);
        hash[t] = hash_bytes(3, data, tensor->bytes);
    }
    twill_status status = find_difference(set, hash, n, &found);
    if (status == TWILL_OK && found < n) {
        snprintf(text, sizeof(text), "hash %016llx", (unsigned long long)hash[found]);
        snprintf(what, sizeof(what), "the %s of tensor '%.80s' after step %llu",
                 set->tensor[found].parameters != NULL || set->update != NULL ? "parameters"
                                                                              : "gradient",
                 set->tensor[found].name, (unsigned long long)set->usage.steps);
        status = explain_difference(set, what, text);
    }
    free(hash);
    return status;
}
