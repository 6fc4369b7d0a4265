/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that were right and are changed, or do not come, for tests of what comes over a network. */
#ifndef TWILL_NOISE_H
#define TWILL_NOISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes to be changed. */
struct twill_noise {
    unsigned char bytes[1024];
    size_t count;
};

void twill_noise_add(struct twill_noise *noise, const void *what, size_t bytes);
/* Change what is there into something else: always another sequence of bytes. */
void twill_noise_change(struct twill_noise *noise, uint64_t *seed);
/* From now on nothing arrives at this socket of TCP, nor is anything acknowledged or said there, as
 * if the host had vanished. false: it is no socket. */
bool twill_test_deafen(int fd);
/* Open descriptors of this process. */
int twill_test_open_files(void);

#endif
