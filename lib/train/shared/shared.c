/* SPDX-License-Identifier: Apache-2.0 */
/* Code that gradient sets and parameter servers share. */
#include "lib/train/shared/shared.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define THRESHOLDS_BELOW 1e30

twill_status twill_new(struct twill_error *error, void *pointer, size_t count, size_t width,
                       const char *what)
{
    void *made = calloc(twill_max(count, 1), width);
    memcpy(pointer, &made, sizeof(made));
    return made != NULL
               ? TWILL_OK
               : TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory for %zu %s", count, what);
}

twill_status twill_find_difference(twill_comm *comm, uint64_t *word, size_t n, size_t *found)
{
    for (size_t i = 0; i < n; i++)
        word[n + i] = ~word[i];
    twill_status status = twill_allreduce(comm, word, word, 2 * n, TWILL_U64, TWILL_MIN);
    *found = 0;
    while (status == TWILL_OK && *found < n && word[*found] == ~word[n + *found])
        (*found)++;
    return status;
}

twill_status twill_options_check_bytes(size_t bytes, size_t expected, const char *defaults,
                                       struct twill_error *error)
{
    if (bytes == expected)
        return TWILL_OK;
    return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "options.bytes is %zu, not %zu: %s() sets it",
                      bytes, expected, defaults);
}

twill_status twill_compression_check(twill_compression compression, double ratio, double threshold,
                                     struct twill_error *error)
{
    if ((unsigned)compression > TWILL_COMPRESS_THRESHOLD)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "options.compression %d is not a twill_compression", (int)compression);
    if (!(ratio > 0 && ratio <= 1))
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "options.compression_ratio %g is not above 0 and at most 1", ratio);
    if (!(threshold >= 0 && threshold < THRESHOLDS_BELOW))
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "options.compression_threshold %g is not a magnitude", threshold);
    return TWILL_OK;
}

struct twill_coder twill_coder_of(const struct twill_kernels *kernels,
                                  twill_compression compression, double ratio, double threshold,
                                  bool feedback)
{
    static const struct {
        enum twill_coding kind;
        twill_type code;
    } codings[] = {
        [TWILL_COMPRESS_F16] = {TWILL_CODING_NARROW, TWILL_F16},
        [TWILL_COMPRESS_BF16] = {TWILL_CODING_NARROW, TWILL_BF16},
        [TWILL_COMPRESS_F8E4M3] = {TWILL_CODING_BLOCKS, TWILL_F8E4M3},
        [TWILL_COMPRESS_F8E5M2] = {TWILL_CODING_BLOCKS, TWILL_F8E5M2},
        [TWILL_COMPRESS_INT8] = {TWILL_CODING_BLOCKS, TWILL_I8},
        [TWILL_COMPRESS_TOP_K] = {TWILL_CODING_SPARSE, TWILL_F32},
        [TWILL_COMPRESS_THRESHOLD] = {TWILL_CODING_SPARSE, TWILL_F32},
    };
    return (struct twill_coder){.kernels = kernels,
                                .kind = codings[compression].kind,
                                .format = {codings[compression].code, TWILL_BLOCK_DEFAULT},
                                .top_k = compression == TWILL_COMPRESS_TOP_K,
                                .feedback = feedback,
                                .ratio = ratio,
                                .scale = 1,
                                .threshold = (float)threshold};
}

size_t twill_coder_units(const struct twill_coder *coder, size_t count)
{
    return coder->kind == TWILL_CODING_NARROW   ? count
           : coder->kind == TWILL_CODING_BLOCKS ? twill_block_count(coder->format, count)
                                                : (size_t)ceil(coder->ratio * (double)count);
}

size_t twill_coder_unit_bytes(const struct twill_coder *coder)
{
    return coder->kind == TWILL_CODING_NARROW   ? twill_type_size(coder->format.code)
           : coder->kind == TWILL_CODING_BLOCKS ? twill_block_bytes(coder->format)
                                                : TWILL_LIST_ENTRY;
}

void twill_encode(const struct twill_coder *coder, void *codes, const float *gradient,
                  float *residual, size_t count)
{
    if (!coder->feedback)
        residual = NULL;
    if (coder->kind == TWILL_CODING_NARROW)
        twill_narrow(coder->kernels, coder->format.code, codes, TWILL_F32, gradient, residual,
                     coder->scale, count, coder->pool);
    else
        twill_quantize(coder->kernels, coder->format, codes, TWILL_F32, gradient, residual,
                       coder->scale, count, coder->pool);
}

size_t twill_encode_list(const struct twill_coder *coder, struct twill_sparse chosen, size_t most,
                         const float *gradient, float *residual, size_t count)
{
    size_t n;
    bool finite = true;
    if (!coder->feedback)
        memset(residual, 0, count * sizeof(float));
    twill_accumulate(coder->kernels, residual, TWILL_F32, gradient, coder->scale, count,
                     coder->pool);
    if (coder->top_k)
        n = twill_select_largest(coder->kernels, residual, count, most, chosen, coder->pool);
    else
        n = twill_select_above(coder->kernels, residual, count, coder->threshold, most, chosen,
                               coder->pool);
    for (size_t i = 0; i < n; i++)
        finite &= isfinite(chosen.value[i]) != 0;
    for (size_t i = 0; !finite && i < count; i++)
        if (!isfinite(residual[i]))
            residual[i] = 0;
    return n;
}

void twill_add_list(void *to, size_t count, const unsigned char *list, size_t entries, size_t n,
                    float scale)
{
    const uint32_t *index = (const void *)list;
    const float *value = (const void *)(index + entries);
    if (n <= entries)
        (void)twill_scatter_add(to, count, index, value, n, scale);
}

twill_status twill_search_begin(struct twill_step_search *search, unsigned candidates,
                                struct twill_error *error)
{
    *search = (struct twill_step_search){.candidates = candidates};
    return twill_new(error, &search->seconds, candidates, sizeof(*search->seconds), "candidates");
}

void twill_search_free(struct twill_step_search *search)
{
    free(search->seconds);
    *search = (struct twill_step_search){0};
}

bool twill_search_end_step(struct twill_step_search *search, bool may_change)
{
    double seconds = (double)(twill_now() - search->step_began) * 1e-9,
           *least = &search->seconds[search->at];
    if (search->steps > 0 && (search->steps == 1 || seconds < *least))
        *least = seconds;
    if (++search->steps < TWILL_SEARCH_STEPS || !may_change) {
        twill_search_restart(search);
        return false;
    }
    search->steps = 0;
    search->at++;
    return true;
}

void twill_search_restart(struct twill_step_search *search)
{
    search->step_began = twill_now();
}

twill_status twill_search_agree(struct twill_step_search *search, twill_comm *comm)
{
    return twill_allreduce(comm, search->seconds, search->seconds, search->candidates, TWILL_F64,
                           TWILL_MAX);
}

unsigned twill_search_fastest(const struct twill_step_search *search, unsigned count)
{
    unsigned best = 0;
    for (unsigned i = 1; i < count; i++)
        if (search->seconds[i] < search->seconds[best])
            best = i;
    return best;
}
