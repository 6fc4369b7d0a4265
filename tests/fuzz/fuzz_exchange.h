/* SPDX-License-Identifier: Apache-2.0 */
/* An out-of-band exchange for harnesses of what ranks say in all-gathers: the others say what this
 * rank does, as other processes of its host, but for what the input changes. */
#ifndef TWILL_FUZZ_EXCHANGE_H
#define TWILL_FUZZ_EXCHANGE_H

#include "fabric/bootstrap/bootstrap.h"
#include "tests/fuzz/fuzz_input.h"

#define FUZZ_RANKS 3

/* The exchange of rank `base.rank`; `data` is what is left of the input. */
struct fuzz_exchange {
    struct twill_oob base;
    const uint8_t *data;
    size_t size;
};

/* Start with the rank and the input. */
void fuzz_exchange_begin(struct fuzz_exchange *exchange, int rank, const uint8_t *data,
                         size_t size);

#endif
