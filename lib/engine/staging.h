/* SPDX-License-Identifier: Apache-2.0 */
/* How data are copied into SHARED: into the caches, or past them. Stores into the caches are
 * quicker where writer and readers share one; where they do not, each line must be taken back from
 * the reader before it is written again. Nothing that the system says distinguishes the two on a
 * virtual machine, whose cores may even move between caches, so it is measured.
 *
 * A communicator tries both from time to time: its segments are counted, and those of a trial are
 * copied in groups of TWILL_STAGING_GROUP, in turns cached and streamed. Each rank sums the ticks
 * that it spends copying (not waiting) in the last segments of a group, when all copies of SHARED
 * have been used in this way, and publishes the least sum of each way in
 * node memory. Until the next trial it then stores in the way whose slowest rank was quicker. All
 * ranks count the same segments, so that they try the same way at the same time; how a rank stores
 * changes no result, so that they need not decide alike.
 *
 * The context keeps the costs for later communicators of the same ranks of the node. If all of
 * these ranks have some when a communicator is made, it begins with them in place of its first
 * trial.
 *
 * Broadcasts and their kin, where one rank writes and others read, are tried apart from exchanges.
 * Segments of reductions are always cached: results are written where the operands were read. */
#ifndef TWILL_STAGING_H
#define TWILL_STAGING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct twill_comm;
struct twill_instance;
struct twill_run;
struct twill_step;

#define TWILL_STAGING_GROUP    16u   /* segments */
#define TWILL_STAGING_MEASURED 4u    /* of them, the last */
#define TWILL_STAGING_GROUPS   6u    /* of a trial */
#define TWILL_STAGING_PERIOD   8192u /* segments from one trial to the next: 1 GiB of two ranks */

enum twill_staging_kind { TWILL_STAGING_ONE_WAY, TWILL_STAGING_EXCHANGE, TWILL_STAGING_KINDS };

/* What a communicator knows of one kind. cost[0] is of cached stores, cost[1] of streamed ones:
 * ticks per 64 KiB of a segment, at least 1; 0: not known. */
struct twill_staging {
    uint32_t begun; /* segments */
    uint32_t cost[2];
    uint64_t ticks, bytes; /* of the group that is being measured */
    uint32_t ended;        /* measured segments of it */
    bool streams;          /* outside trials */
};

/* Publish what the context knows of the ranks of this communicator, before any of them uses it. */
void twill_staging_recall(struct twill_comm *comm);
/* Return whether segments of `elements` in each shard are copied through SHARED, count, and are as
 * long on all ranks. */
bool twill_staging_applies(const struct twill_run *run, size_t elements);
/* Set instance->staging and instance->streams, for a segment that begins. */
void twill_staging_begin(struct twill_run *run, struct twill_instance *instance);
/* Account `ticks` of copying for this segment. */
void twill_staging_add(struct twill_run *run, const struct twill_instance *instance,
                       uint64_t ticks);
/* The segment, of which twill_staging_begin() has said that it is measured, has ended. */
void twill_staging_end(struct twill_run *run, const struct twill_instance *instance);
/* Return whether streamed stores pay, by the costs that the ranks of the node have published. */
bool twill_staging_decide(const struct twill_comm *comm, enum twill_staging_kind kind);

#endif
