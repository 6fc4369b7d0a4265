/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that were valid and are corrupted, or are lost, for tests of what is received over a
 * network. */
#ifndef TWILL_NOISE_H
#define TWILL_NOISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes to corrupt. */
struct twill_noise {
    unsigned char bytes[1024];
    size_t count;
};

void twill_noise_add(struct twill_noise *noise, const void *what, size_t bytes);
/* Change the bytes into a different sequence. */
void twill_noise_change(struct twill_noise *noise, uint64_t *seed);
/* Let nothing arrive at this TCP socket any more, nor be acknowledged, as if the host had vanished.
 * Returns false if it is not a socket. */
bool twill_test_deafen(int fd);
/* Return the number of open descriptors of this process. */
int twill_test_open_files(void);

#endif
