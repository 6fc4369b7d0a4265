/* SPDX-License-Identifier: Apache-2.0 */
/* The result of an all-gather with less bytes. Rank 0 sends it to every rank, so what it sends
 * grows with the square of their number. The shards of two ranks that follow each other differ in
 * few bytes. */
#ifndef TWILL_PACK_SHARDS_H
#define TWILL_PACK_SHARDS_H

#include "lib/base/base.h"

/* Pack the `whole` bytes of `all`, shards of `bytes` bytes each, into the `room` bytes at `packed`.
 * Returns the number of bytes used, or 0 if they do not suffice. */
size_t twill_shards_pack(uint8_t *packed, size_t room, const void *all, size_t bytes, size_t whole);
/* Undo twill_shards_pack(). Returns false if `packed`, of `length` bytes, is not the result of
 * packing shards of these sizes. Then `all` is undefined. */
bool twill_shards_unpack(void *all, size_t bytes, size_t whole, const uint8_t *packed,
                         size_t length);

#endif
