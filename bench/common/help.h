/* SPDX-License-Identifier: Apache-2.0 */
/* What the tools print for --help and --version. */
#ifndef TWILL_HELP_H
#define TWILL_HELP_H

#include "lib/twill.h"

#include <stdbool.h>
#include <stdio.h>

/* Return whether the option is -h or -V, and print the usage or the program's version if so;
 * nothing is printed unless `speak`. */
static inline bool twill_bench_help(int letter, const char *program, const char *usage, bool speak)
{
    if (speak && letter == 'h')
        fputs(usage, stdout);
    if (speak && letter == 'V')
        printf("%s %s\n", program, twill_version());
    return letter == 'h' || letter == 'V';
}

#endif
