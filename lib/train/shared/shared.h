/* SPDX-License-Identifier: Apache-2.0 */
/* What gradient sets and parameter servers share: allocation, hashes and their comparison over the
 * ranks, checks of options, codes of gradients, and a search over the first steps. */
#ifndef TWILL_TRAIN_SHARED_H
#define TWILL_TRAIN_SHARED_H

#include "kernels/training/quantize.h"
#include "lib/base/base.h"
#include "lib/twill_train.h"

/* Allocate `count` elements of `width` bytes, zeros, of calloc(): *(void **)pointer. `what` they
 * are, in the sentence. */
twill_status twill_new(struct twill_error *error, void *pointer, size_t count, size_t width,
                       const char *what);
#define TWILL_NEW(error, pointer, count, what)                                                     \
    TWILL_TRY(NULL, twill_new((error), &(pointer), (count), sizeof(*(pointer)), (what)))

/* Return TWILL_OK, or fail with the sentence that a communicator or a context has of a call. */
static inline twill_status twill_explain(struct twill_error *error, twill_status status,
                                         const char *message)
{
    return status == TWILL_OK ? TWILL_OK : TWILL_FAIL(error, status, "%s", message);
}

/* --- comparison over the ranks ---------------------------------------------------------------- */

/* Add a text to a hash. */
static inline uint64_t twill_hash_text(uint64_t hash, const char *text)
{
    for (; *text != '\0'; text++)
        hash = twill_hash_mix(hash, (unsigned char)*text);
    return hash;
}
/* Find the first of word[n] that is not the same on all ranks; n: none. Then word[i] is the least
 * of the ranks' words, and ~word[n + i] the greatest: word has 2 n elements. */
twill_status twill_find_difference(twill_comm *comm, uint64_t *word, size_t n, size_t *found);

/* --- options ---------------------------------------------------------------------------------- */

/* Check the size that the caller's options state, against that of this library's; `defaults` names
 * the function that sets it. */
twill_status twill_options_check_bytes(size_t bytes, size_t expected, const char *defaults,
                                       struct twill_error *error);
/* Check a code of compression, and its ratio and threshold. A threshold may be 0. */
twill_status twill_compression_check(twill_compression compression, double ratio, double threshold,
                                     struct twill_error *error);

/* --- codes ------------------------------------------------------------------------------------ */

#define TWILL_LIST_ENTRY (sizeof(uint32_t) + sizeof(float)) /* bytes: an index and a value */

enum twill_coding { TWILL_CODING_NARROW, TWILL_CODING_BLOCKS, TWILL_CODING_SPARSE };

/* How gradients of TWILL_F32 are encoded: by the options of a set or a server. */
struct twill_coder {
    const struct twill_kernels *kernels;
    enum twill_coding kind;
    struct twill_block_format format; /* of blocks; narrow: only its code */
    bool top_k;                       /* sparse: the largest elements, not those from `threshold` */
    bool feedback;                    /* what a code lacks stays in the residual */
    double ratio;                     /* sparse: most of the elements that are sent */
    float scale;                      /* of gradients before they are encoded: 1 */
    float threshold;                  /* of elements in the residual */
    int threads;                      /* most OpenMP threads */
};

/* Make a coder of a twill_compression other than none. */
struct twill_coder twill_coder_of(const struct twill_kernels *kernels,
                                  twill_compression compression, double ratio, double threshold,
                                  bool feedback);
/* Return the units that `count` elements take: elements, blocks, or entries of a list. */
size_t twill_coder_units(const struct twill_coder *coder, size_t count);
size_t twill_coder_unit_bytes(const struct twill_coder *coder);
/* Return whether codes need a residual: lists do also without error feedback. */
static inline bool twill_coder_keeps(const struct twill_coder *coder)
{
    return coder->feedback || coder->kind == TWILL_CODING_SPARSE;
}
/* Encode `count` gradients, not as a list. */
void twill_encode(const struct twill_coder *coder, void *codes, const float *gradient,
                  float *residual, size_t count);
/* Choose the elements of a list of up to `most` entries. Returns how many. An element that is not
 * finite is chosen before all others; what is left of such would spoil later steps, so it is
 * dropped. */
size_t twill_encode_list(const struct twill_coder *coder, struct twill_sparse chosen, size_t most,
                         const float *gradient, float *residual, size_t count);
/* Add a list with room for `entries`, of which it has n, times `scale` to an array. A list with an
 * index or a number that no rank sends adds nothing. */
void twill_add_list(void *to, size_t count, const unsigned char *list, size_t entries, size_t n,
                    float scale);

/* --- a search over the first steps ------------------------------------------------------------ */

/* Each of some candidates is used for a few steps, of which the shortest counts; all ranks change
 * at the same step. At the end they agree, by one reduction, on how long each takes the slowest
 * rank. Used for bucket sizes, compression, and chunk sizes. */
#define TWILL_SEARCH_STEPS                                                                         \
    5u /* of a candidate; the first has new reductions: it does not count                          \
        */

/* Zeros: there is no search. */
struct twill_step_search {
    unsigned candidates, at; /* at == candidates: over, or none */
    unsigned steps;          /* of the present candidate so far */
    uint64_t step_began;     /* twill_now(); 0: not yet */
    double *seconds;         /* [candidates] shortest step; at the end that of the slowest rank */
};

/* Begin a search; free it. */
twill_status twill_search_begin(struct twill_step_search *search, unsigned candidates,
                                struct twill_error *error);
void twill_search_free(struct twill_step_search *search);
static inline bool twill_search_is_over(const struct twill_step_search *search)
{
    return search->at == search->candidates;
}
/* Note the end of a step, after which the candidate may change or not. Returns whether the next
 * candidate is to be used from now on, or the search is over; call twill_search_restart() once that
 * is done. */
bool twill_search_end_step(struct twill_step_search *search, bool may_change);
/* The next step begins. */
void twill_search_restart(struct twill_step_search *search);
/* Agree on the seconds of all candidates. Collective, when the search is over. */
twill_status twill_search_agree(struct twill_step_search *search, twill_comm *comm);
/* Return the fastest of the first `count` candidates, of equal ones the first. */
unsigned twill_search_fastest(const struct twill_step_search *search, unsigned count);

#endif
