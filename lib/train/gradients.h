/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of a gradient set (lib/twill_train.h), and what they share: a set from its creation to
 * its end, its steps, its options, searches in its first steps. What they use is in the folders
 * below: README.md. */
#ifndef TWILL_TRAIN_GRADIENTS_H
#define TWILL_TRAIN_GRADIENTS_H

#include "lib/train/compression/compression.h"
#include "lib/train/optimizer/update.h"
#include "lib/train/reducers/reducers.h"
#include "lib/train/set/set.h"
#include "lib/train/shared/shared.h"

/* --- lib/train/gradients.c --- */

/* Divide the tensors into buckets and prepare their reductions. Collective, between steps. */
twill_status twill_gradients_prepare(struct twill_gradients *set);

/* --- lib/train/step.c --- */

/* Wait until no reduction is under way, on any reducer: all ranks have then started the same ones.
 * Nothing is delivered. Between steps. */
twill_status twill_gradients_finish_late(struct twill_gradients *set);
/* Complete the result that is outstanding, so that the buckets may be divided anew: it lies in the
 * memory of its tensors, and the next step delivers it. Collective, after a step
 * of the last generation. */
twill_status twill_gradients_carry(struct twill_gradients *set);
/* Wait until no thread is in twill_gradients_ready(). */
void twill_gradients_await_markers(struct twill_gradients *set);

/* --- lib/train/options.c --- */

#define TWILL_COMPRESSIONS (TWILL_COMPRESS_THRESHOLD + 1)
/* Return the name of a twill_compression as TWILL_GRADIENTS has it. */
const char *twill_compression_name(twill_compression compression);

#define TWILL_SET_ENTRIES 29u  /* options, and hyperparameters of the optimizer */
#define TWILL_ENTRY_BYTES 192u /* of "name=value" */
/* Print an entry, "no optimizer" for hyperparameters of a set without. Equal texts are equal
 * values. */
void twill_set_entry_print(const struct twill_gradients *set, unsigned index,
                           char text[TWILL_ENTRY_BYTES]);
/* Print options as TWILL_GRADIENTS accepts them: sizes, order and threads, and what is not the
 * default. Returns the length; `bytes` must suffice. */
size_t twill_set_entries_describe(const struct twill_gradients *set, char *text, size_t bytes);
/* Apply the value of TWILL_GRADIENTS, or of the file that it names. */
twill_status twill_entries_apply(twill_gradients_options *options, const char *value,
                                 struct twill_error *error);

/* Check the options and apply TWILL_GRADIENTS to them. */
twill_status twill_gradients_set_options(struct twill_gradients *set,
                                         const twill_gradients_options *options,
                                         struct twill_error *error);

/* --- lib/train/set_report.c --- */

/* Print where the time went, a line a reducer on rank 0, at the end of every N-th step as
 * options.report_every asks; or all at the end. */
void twill_gradients_report(struct twill_gradients *set, bool all);

/* --- lib/train/comparison.c --- */

/* Compare the registered tensors over the ranks. Collective. */
twill_status twill_gradients_compare_tensors(struct twill_gradients *set);
/* Compare the parameters over the ranks. Collective. */
twill_status twill_gradients_compare_parameters(struct twill_gradients *set);

/* --- lib/train/searches.c --- */

/* The searches of a set, one after the other. */
struct twill_searches {
    struct twill_step_search sizes; /* of options.autotune, over `candidates` */
    struct twill_bucket_sizes {
        size_t bucket, first, segment;
    } * candidates;
    struct twill_step_search codes; /* of options.compression_automatic, over the choices */
};

/* Begin the searches that the options ask for. */
twill_status twill_searches_begin(struct twill_gradients *set);
/* Note the time of the step that ends, and use another candidate from the next one on. */
twill_status twill_searches_end_step(struct twill_gradients *set);
void twill_searches_free(struct twill_gradients *set);

#endif
