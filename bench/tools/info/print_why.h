/* SPDX-License-Identifier: Apache-2.0 */
/* twill-info --why: print why an algorithm is chosen. */
#ifndef TWILL_PRINT_WHY_H
#define TWILL_PRINT_WHY_H

#include "lib/twill.h"

/* Ask and print. Returns an exit status; 2: the question is invalid. */
int twill_bench_print_why(twill_context *context, const char *question);

#endif
