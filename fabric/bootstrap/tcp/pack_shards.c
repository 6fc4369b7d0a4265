/* SPDX-License-Identifier: Apache-2.0 */
/* A packed result is a list of runs. Each has two lengths of two bytes, least significant first,
 * and as many bytes as the second says. The first is the number of bytes that repeat those one
 * shard before, or 0 in the first shard. */
#include "fabric/bootstrap/tcp/pack_shards.h"

#include <string.h>

#define PACKED_HEAD 4u     /* bytes of the two lengths */
#define PACKED_MOST 65535u /* the largest length */

/* Return the byte one shard before `at`, or 0. */
static uint8_t before(const uint8_t *all, size_t bytes, size_t at)
{
    return at < bytes ? 0 : all[at - bytes];
}

/* Return the end of the bytes from `at` on that do, or do not, repeat the shard before. Up to
 * PACKED_HEAD repeated bytes are part of a run that does not, as a new run costs as much. */
static size_t run_end(const uint8_t *all, size_t bytes, size_t whole, size_t at, bool repeats)
{
    size_t end = at, same = 0;
    while (end < whole && end - at < PACKED_MOST) {
        bool equal = all[end] == before(all, bytes, end);
        if (repeats && !equal)
            return end;
        same = equal ? same + 1 : 0;
        end++;
        if (!repeats && same > PACKED_HEAD)
            return end - same;
    }
    return end;
}

size_t twill_shards_pack(uint8_t *packed, size_t room, const void *all, size_t bytes, size_t whole)
{
    const uint8_t *from = all;
    size_t used = 0;
    for (size_t at = 0; at < whole;) {
        size_t literal = run_end(from, bytes, whole, at, true);
        size_t end = run_end(from, bytes, whole, literal, false);
        size_t same = literal - at, count = end - literal;
        if (room - used < PACKED_HEAD + count)
            return 0;
        packed[used++] = (uint8_t)same;
        packed[used++] = (uint8_t)(same >> 8);
        packed[used++] = (uint8_t)count;
        packed[used++] = (uint8_t)(count >> 8);
        memcpy(packed + used, from + literal, count);
        used += count;
        at = end;
    }
    return used;
}

bool twill_shards_unpack(void *all, size_t bytes, size_t whole, const uint8_t *packed,
                         size_t length)
{
    uint8_t *to = all;
    size_t at = 0, used = 0;
    while (length - used >= PACKED_HEAD) {
        size_t same = packed[used] | (size_t)packed[used + 1] << 8;
        size_t count = packed[used + 2] | (size_t)packed[used + 3] << 8;
        used += PACKED_HEAD;
        if (same > whole - at || count > whole - at - same || count > length - used)
            return false;
        for (size_t end = at + same; at < end; at++)
            to[at] = before(to, bytes, at);
        memcpy(to + at, packed + used, count);
        at += count;
        used += count;
    }
    return at == whole && used == length;
}
