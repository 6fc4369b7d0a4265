/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between nodes that the ranks of a node share. Internal to algorithms/. */
#ifndef TWILL_NODE_MESSAGES_H
#define TWILL_NODE_MESSAGES_H

#include "algorithms/schedule/emit.h"

/* Return whether twill_emit_node_messages() can be used with this number of messages between two
 * nodes, 0 for the default, in a world of several nodes. SHARED must have room for them. */
bool twill_node_messages_fit(const struct twill_world *world, uint32_t parts);
/* Emit an alltoall of shards of one size in which each node sends `parts` messages to every other,
 * or if it is 0, the least number with which every rank has one. All shards of a message are packed
 * together. Sets blocks, shards and scratch of the emitter. */
void twill_emit_node_messages(struct twill_emitter *e, uint32_t parts);
/* Emit a scatter, or a gather, of shards of one size in a world of several nodes. The node of the
 * root exchanges one message with each other node, and its ranks share these. Sets blocks, shards
 * and scratch of the emitter, and makes the schedule eager. */
void twill_emit_node_relays(struct twill_emitter *e, uint32_t root, bool gathers);

#endif
