/* SPDX-License-Identifier: Apache-2.0 */
/* Counts of pushes in a file that all ranks of a campaign map, so that they outlive a rank that is
 * killed. They prove that no push which was answered is lost and none counts twice: between two
 * moments at which no push is under way, each chunk has taken all pushes that have ended and none
 * that has not started. */
#ifndef TWILL_TEST_CAMPAIGN_COUNTS_H
#define TWILL_TEST_CAMPAIGN_COUNTS_H

#include <stdbool.h>
#include <stdint.h>

enum { CAMPAIGN_KEYS = 2, CAMPAIGN_CHUNKS = 8, CAMPAIGN_CHUNK = 1024 }; /* elements */

struct campaign_counts;

/* Map the file; it is made if it is not there. NULL: that fails. */
struct campaign_counts *counts_open(const char *path);
/* A rank pushes a key; its push is complete. */
void counts_started(struct campaign_counts *counts, int rank, int key);
void counts_ended(struct campaign_counts *counts, int rank, int key);
/* Return whether a chunk may have taken `taken` gradients or, if an update takes several, up to
 * `update` - 1 more which wait for theirs. If not, print what it may have taken. */
bool counts_agree(struct campaign_counts *counts, int key, int chunk, uint64_t taken,
                  uint64_t update);
/* All chunks of a key have been compared: later pushes are counted from here. */
void counts_settle(struct campaign_counts *counts, int key);

#endif
