/* SPDX-License-Identifier: Apache-2.0 */
/* Code that gradient sets and parameter servers share. */
#ifndef TWILL_TRAIN_SHARED_H
#define TWILL_TRAIN_SHARED_H

#include "kernels/training/quantize.h"
#include "lib/base/base.h"
#include "lib/twill_train.h"

/* Allocate `count` zeroed elements of `width` bytes with calloc() and store the address in *(void
 * **)pointer. `what` names the elements in the error. Returns TWILL_OK or the error. */
twill_status twill_new(struct twill_error *error, void *pointer, size_t count, size_t width,
                       const char *what);
#define TWILL_NEW(error, pointer, count, what)                                                     \
    TWILL_TRY(NULL, twill_new((error), &(pointer), (count), sizeof(*(pointer)), (what)))

/* Return `status`. If it is an error, first record it in *error with this message. */
static inline twill_status twill_explain(struct twill_error *error, twill_status status,
                                         const char *message)
{
    return status == TWILL_OK ? TWILL_OK : TWILL_FAIL(error, status, "%s", message);
}

/* --- comparison over the ranks ---------------------------------------------------------------- */
/* Return a hash with the bytes of a text added. */
static inline uint64_t twill_hash_text(uint64_t hash, const char *text)
{
    for (; *text != '\0'; text++)
        hash = twill_hash_mix(hash, (unsigned char)*text);
    return hash;
}
/* Find the first of word[0 .. n-1] that is not the same on all ranks. Sets *found to its index, or
 * to n if there is none. word[] has 2 n elements. Afterwards word[i] is the minimum over the ranks,
 * and ~word[n + i] the maximum. Collective. Returns TWILL_OK or the error. */
twill_status twill_find_difference(twill_comm *comm, uint64_t *word, size_t n, size_t *found);

/* --- options ---------------------------------------------------------------------------------- */
/* Return TWILL_OK if `bytes` is as expected, as `defaults`() sets it, else TWILL_ERR_ARGUMENT. */
twill_status twill_options_check_bytes(size_t bytes, size_t expected, const char *defaults,
                                       struct twill_error *error);
/* Return TWILL_OK if all three are valid (threshold may be 0), else TWILL_ERR_ARGUMENT. */
twill_status twill_compression_check(twill_compression compression, double ratio, double threshold,
                                     struct twill_error *error);

/* --- codes ------------------------------------------------------------------------------------ */

#define TWILL_LIST_ENTRY (sizeof(uint32_t) + sizeof(float)) /* bytes of an index and a value */
enum twill_coding { TWILL_CODING_NARROW, TWILL_CODING_BLOCKS, TWILL_CODING_SPARSE };

/* How gradients of TWILL_F32 are encoded. Made by twill_coder_of(). A part of a set or server,
 * constant after its commit. */
struct twill_coder {
    const struct twill_kernels *kernels;
    enum twill_coding kind;
    struct twill_block_format format; /* of blocks, or with only its type for narrow codes */
    bool top_k;      /* lists take the largest elements, not those from `threshold` */
    bool feedback;   /* keep what a code lacks in the residual */
    double ratio;    /* fraction of the elements that a list has at most */
    float scale;     /* factor for gradients before they are encoded */
    float threshold; /* least magnitude in lists without top_k, after scaling */
    struct twill_thread_pool *pool; /* threads that share the work, or NULL */
};

/* Return a coder for a twill_compression other than none, with scale 1 and no pool. */
struct twill_coder twill_coder_of(const struct twill_kernels *kernels,
                                  twill_compression compression, double ratio, double threshold,
                                  bool feedback);
/* Return the number of units of the code of `count` elements. A unit is an element, a block or an
 * entry of a list. A list has at most this many entries, which is coder->ratio of the elements,
 * rounded up. */
size_t twill_coder_units(const struct twill_coder *coder, size_t count);
/* Return the bytes of a unit, which is an element, a block or a list entry of codes. */
size_t twill_coder_unit_bytes(const struct twill_coder *coder);
/* Return whether encoding needs residual[], memory for what codes lack. Sparse lists need it even
 * without error feedback, to add up gradients in it. */
static inline bool twill_coder_keeps(const struct twill_coder *coder)
{
    return coder->feedback || coder->kind == TWILL_CODING_SPARSE;
}
/* Encode `count` gradients, times coder->scale, to `codes` as narrow values or blocks, not lists.
 * With feedback, first adds residual[] to them, and then sets that to what the codes lack. Without,
 * `residual` is not used. */
void twill_encode(const struct twill_coder *coder, void *codes, const float *gradient,
                  float *residual, size_t count);
/* Add the scaled gradients to residual[], which is first set to 0 here unless the coder has
 * feedback. Then move up to `most` of its elements to the list `chosen`, and return their number.
 * They are the largest ones. Without coder->top_k, only those from coder->threshold on are moved.
 * Infinities and NaN come first. If any is moved, the infinities and NaN that remain in residual[]
 * become 0. */
size_t twill_encode_list(const struct twill_coder *coder, struct twill_sparse chosen, size_t most,
                         const float *gradient, float *residual, size_t count);
/* Add `scale` times the n entries of a list to to[count], of f32. The list has room for `entries`
 * indices of 32 bits and then as many values of f32. Add nothing if n > entries or an index is not
 * below `count`. */
void twill_add_list(void *to, size_t count, const unsigned char *list, size_t entries, size_t n,
                    float scale);

/* --- a search over the first steps ------------------------------------------------------------ */
/* Each candidate is used for a few steps, of which the shortest counts. All ranks change at the
 * same step. At the end they agree how long each candidate takes on the slowest rank. */
#define TWILL_SEARCH_STEPS 5u /* steps of a candidate, of which the first does not count */
/* A search for the fastest of some candidates, a member or variable of its owner. It begins with
 * twill_search_begin() and is freed by twill_search_free(). All zero if there is none. */
struct twill_step_search {
    unsigned candidates, at; /* number of candidates, and the present one, or that number if over */
    unsigned steps;          /* number of steps with the present candidate */
    uint64_t step_began;     /* twill_now(), or 0 before the first step */
    double *seconds;         /* [candidates] shortest step, at the end that of the slowest rank */
};
/* Allocate and begin a search over `candidates` candidates. Returns TWILL_OK or the error. */
twill_status twill_search_begin(struct twill_step_search *search, unsigned candidates,
                                struct twill_error *error);
/* Free a search's memory and set it to zero. */
void twill_search_free(struct twill_step_search *search);
/* Return whether there is no candidate left, or no search. */
static inline bool twill_search_is_over(const struct twill_step_search *search)
{
    return search->at == search->candidates;
}
/* Record the time of a step with candidate search->at. Return true, and increment search->at, if
 * the candidate has had all its steps and may_change. The caller must then change to the new
 * candidate or, if twill_search_is_over(), end the search, and call twill_search_restart().
 * Otherwise call twill_search_restart() here and return false. */
bool twill_search_end_step(struct twill_step_search *search, bool may_change);
/* Note that the next step begins. */
void twill_search_restart(struct twill_step_search *search);
/* Replace each candidate's seconds by those of the slowest rank. All ranks call it, once, when the
 * search is over. Returns the status. */
twill_status twill_search_agree(struct twill_step_search *search, twill_comm *comm);
/* Return the fastest of the first `count` candidates, or the first of equally fast ones. */
unsigned twill_search_fastest(const struct twill_step_search *search, unsigned count);

#endif
