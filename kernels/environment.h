/* SPDX-License-Identifier: Apache-2.0 */
/* The floating-point environment of kernels. */
#ifndef TWILL_ENVIRONMENT_H
#define TWILL_ENVIRONMENT_H

#include "lib/base/base.h"

/* Set and restore the floating-point environment. A caller built with -ffast-math flushes
 * denormals, another may round upwards, and ranks and threads may differ, but results must be the
 * same bits. So reductions of floats round to nearest and keep denormals (MXCSR; 5 ns). Except on
 * x86-64 the caller's environment is used. */
#if defined(__x86_64__)
static inline unsigned twill_environment_enter(bool floats)
{
    const unsigned modes = 0xe040; /* flush to zero, rounding, denormals are zero */
    unsigned found = floats ? __builtin_ia32_stmxcsr() : 0;
    if (TWILL_UNLIKELY(found & modes))
        __builtin_ia32_ldmxcsr(found & ~modes);
    return found & modes;
}

static inline void twill_environment_leave(unsigned modes)
{
    if (TWILL_UNLIKELY(modes))
        __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | modes);
}
#else
static inline unsigned twill_environment_enter(bool floats)
{
    (void)floats;
    return 0;
}

static inline void twill_environment_leave(unsigned modes)
{
    (void)modes;
}
#endif

#endif
