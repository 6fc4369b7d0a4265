/* SPDX-License-Identifier: Apache-2.0 */
/* Parts that the files of a gradient set's calls (lib/twill_train.h) share. See README.md. */
#ifndef TWILL_TRAIN_GRADIENTS_H
#define TWILL_TRAIN_GRADIENTS_H

#include "lib/train/compression/compression.h"
#include "lib/train/optimizer/update.h"
#include "lib/train/reducers/reducers.h"
#include "lib/train/set/set.h"
#include "lib/train/shared/shared.h"

/* --- lib/train/gradients.c --- */
/* Divide the tensors into buckets by the present options and prepare their reductions, at first or
 * anew between steps. Anew, a late result is carried (twill_gradients_carry()), and the optimizer's
 * state is kept. Collective. Returns the status. */
twill_status twill_gradients_prepare(struct twill_gradients *set);

/* --- lib/train/step.c --- */
/* Wait until no reduction is under way on any reducer, so that all ranks have started the same
 * ones. Delivers nothing. Between steps. Returns TWILL_OK or the error. */
twill_status twill_gradients_finish_late(struct twill_gradients *set);
/* Complete the result that is outstanding after a late step, so that buckets may be divided anew.
 * It stays in the memory of its tensors, and the next step delivers it. Collective, and allowed
 * only if twill_set_may_divide(). Returns TWILL_OK, also if none is outstanding, or the error. */
twill_status twill_gradients_carry(struct twill_gradients *set);
/* Wait until no thread is in twill_gradients_ready(). */
void twill_gradients_await_markers(struct twill_gradients *set);

/* --- lib/train/options.c --- */

#define TWILL_COMPRESSIONS (TWILL_COMPRESS_THRESHOLD + 1)
/* Return the name that TWILL_GRADIENTS has for a twill_compression, or "?". */
const char *twill_compression_name(twill_compression compression);
#define TWILL_SET_ENTRIES 30u  /* options, and hyperparameters of the optimizer */
#define TWILL_ENTRY_BYTES 192u /* bytes of "name=value" */
/* Write number `index` (below TWILL_SET_ENTRIES) of the options and then the hyperparameters as
 * "name=value". Write "no optimizer" for a hyperparameter if the set has no optimizer. */
void twill_set_entry_print(const struct twill_gradients *set, unsigned index,
                           char text[TWILL_ENTRY_BYTES]);
/* Print options to text[bytes] as TWILL_GRADIENTS accepts them. These are sizes, order and threads,
 * and those of the rest that differ from their defaults, but never op, scale and autotune. Returns
 * the length. `bytes` must suffice. */
size_t twill_set_entries_describe(const struct twill_gradients *set, char *text, size_t bytes);
/* Apply the value of TWILL_GRADIENTS or, if it is @FILE, the first line of that file, to the
 * options. Returns TWILL_OK, or TWILL_ERR_CONFIG and a message in *error if an entry or the file is
 * bad. */
twill_status twill_entries_apply(twill_gradients_options *options, const char *value,
                                 struct twill_error *error);
/* Copy `options`, or the defaults if NULL, to the set, apply TWILL_GRADIENTS, and check them.
 * Returns TWILL_ERR_ARGUMENT or TWILL_ERR_CONFIG, with a message in *error, if one is bad. */
twill_status twill_gradients_set_options(struct twill_gradients *set,
                                         const twill_gradients_options *options,
                                         struct twill_error *error);

/* --- lib/train/set_report.c --- */
/* Log where the time went, one line for each reducer, on rank 0. It does so at the end of every
 * N-th step (options.report_every) or, if `all`, for the whole life of the set. If
 * options.report_every is 0, it never does. */
void twill_gradients_report(struct twill_gradients *set, bool all);

/* --- lib/train/comparison.c --- */
/* Compare the registered tensors and options over the ranks. Collective. Breaks the set and returns
 * TWILL_ERR_MISMATCH on all ranks if they differ. */
twill_status twill_gradients_compare_tensors(struct twill_gradients *set);
/* Compare the parameters over the ranks, or the gradients of tensors without. Collective. Breaks
 * the set and returns TWILL_ERR_MISMATCH on all ranks if they differ. */
twill_status twill_gradients_compare_parameters(struct twill_gradients *set);

/* --- lib/train/searches.c --- */
/* The searches of a set for its fastest sizes and compression, which run one after the other. Made
 * by twill_searches_begin(), freed by twill_searches_free(). Between steps, only the thread that
 * ends the step uses it. */
struct twill_searches {
    struct twill_step_search sizes; /* options.autotune: over `candidates` */
    /* A candidate. Bytes of a bucket, of the first bucket and of a segment. */
    struct twill_bucket_sizes {
        size_t bucket, first, segment;
    } * candidates;
    struct twill_step_search codes; /* options.compression_automatic: over enum twill_wire_choice */
};
/* Make set->searches. Begin the search for sizes of buckets if options.autotune, and the search for
 * the buckets to compress if options.compression_automatic. Returns TWILL_OK or the error. */
twill_status twill_searches_begin(struct twill_gradients *set);
/* Add the time of the step that ends to the search that is under way. Sizes are searched before
 * codes. When the candidate has had its steps, change to the next candidate. After the last one,
 * agree with all ranks on the fastest and change to it. Returns TWILL_OK, also if no search is
 * under way, or the error. */
twill_status twill_searches_end_step(struct twill_gradients *set);
/* Free set->searches, which may be NULL. */
void twill_searches_free(struct twill_gradients *set);

#endif
