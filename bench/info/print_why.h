/* SPDX-License-Identifier: Apache-2.0 */
/* Why an algorithm is chosen, in words: twill-info --why. */
#ifndef TWILL_PRINT_WHY_H
#define TWILL_PRINT_WHY_H

#include "lib/twill.h"

/* Ask and print. An exit status: a question that cannot be understood is 2. */
int twill_bench_print_why(twill_context *context, const char *question);

#endif
