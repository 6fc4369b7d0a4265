/* SPDX-License-Identifier: Apache-2.0 */
/* A parameter server in memory, for harnesses of what it reads from its peers and from files: rank
 * 0 of four, with the other server's rank 1 and the workers' ranks 2 and 3 played by the input.
 * Messages, memory and kernels are those of fuzz_server.c; the rest is the library's code. */
#ifndef TWILL_FUZZ_SERVER_H
#define TWILL_FUZZ_SERVER_H

#include "lib/server/shard/link.h"
#include "lib/server/state/state.h"
#include "tests/fuzz/fuzz_input.h"

#include <sanitizer/asan_interface.h>

#define FUZZ_SERVER_RANKS 4u

/* What differs between inputs. */
struct fuzz_server_kind {
    bool worker; /* rank 2 is played by the library, the others by the input */
    twill_server_mode mode;
    twill_server_rate rate;
    twill_compression compression;
    bool replicas, uncut;
    bool small;    /* a file of its state has less than 4096 bytes */
    unsigned slow; /* tests of a send that find it under way */
};

/* Report whether all of it may be read and written. */
static inline bool fuzz_is_memory(const void *bytes, size_t count)
{
    return __asan_region_is_poisoned((void *)(uintptr_t)bytes, count) == NULL;
}

/* Make a server with two tensors. uncut: without chunks and shards. */
struct twill_server *fuzz_server_open(struct fuzz_server_kind kind);
/* Make its links and replicas. */
void fuzz_server_connect(struct twill_server *server);
void fuzz_server_close(struct twill_server *server);
/* Have receives complete with what the input says. Returns whether all of it has been read. */
void fuzz_server_feed(const uint8_t *data, size_t size);
bool fuzz_server_fed(void);
/* Return the next byte of the input, 0 at its end. */
uint8_t fuzz_server_byte(void);

#endif
