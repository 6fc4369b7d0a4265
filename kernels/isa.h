/* SPDX-License-Identifier: Apache-2.0 */
/* Internal to kernels/: the tables of the instruction sets, the types of elements, how work is
 * split over threads, and the floating-point environment. */
#ifndef TWILL_ISA_H
#define TWILL_ISA_H

#include "kernels/kernels.h"
#include "lib/base/lists.h"

#include <string.h>

extern const struct twill_kernels twill_kernels_scalar;
#if defined(__x86_64__)
extern const struct twill_kernels twill_kernels_avx2;
extern const struct twill_kernels twill_kernels_avx512f;
#endif

/* Return whether this machine can run the kernels that are compiled for a set of instructions. The
 * baseline is plain C, so twill_cpu_runs_baseline() always returns true. */
bool twill_cpu_runs_baseline(void);
bool twill_cpu_runs_avx2(void);
bool twill_cpu_runs_avx512f(void);

/* Return the CRC32C of the data whose CRC32C is `crc`, followed by these bytes. Uses a table of
 * bytes or, on aarch64, CRC instructions if the CPU has them. */
uint32_t twill_crc32c_plain(uint32_t crc, const void *data, size_t bytes);
/* Return the CRC32C of the data whose CRC32C is `crc`, followed by these bytes. Uses SSE4.2 and
 * PCLMULQDQ, which the CPU must have. */
uint32_t twill_crc32c_sse42(uint32_t crc, const void *data, size_t bytes);

/* Elements in memory: element_f32 and so on. Integers are unsigned, so that they wrap. As callers'
 * buffers may have any address, the compiler must not assume an alignment. */
#define TWILL_ANYWHERE                                     __attribute__((aligned(1), may_alias))
#define TWILL_ELEMENT_FLOAT(type, bits)                    typedef TWILL_FLOAT_##bits element_##type TWILL_ANYWHERE;
#define TWILL_ELEMENT_NARROW(type, bits)                   typedef uint##bits##_t element_##type TWILL_ANYWHERE;
#define TWILL_ELEMENT_SIGNED(type, bits)                   typedef uint##bits##_t element_##type TWILL_ANYWHERE;
#define TWILL_ELEMENT_UNSIGNED(type, bits)                 typedef uint##bits##_t element_##type TWILL_ANYWHERE;
#define TWILL_FLOAT_32                                     float
#define TWILL_FLOAT_64                                     double
#define TWILL_ELEMENT(NOUN, type, bits, kind, pairs, with) TWILL_ELEMENT_##kind(type, bits)
TWILL_TYPES(TWILL_ELEMENT, )

/* Kernels for pairs, which every table uses: twill_minloc_f32 and so on. */
#define TWILL_PAIRS_DECLARE(NOUN, type, bits, kind, pairs, with) TWILL_DECLARE_##pairs(type)
#define TWILL_DECLARE_ALONE(type)
#define TWILL_DECLARE_PAIRED(type) TWILL_OPS_LOCATING(TWILL_DECLARE_LOCATING, type)
#define TWILL_DECLARE_LOCATING(NOUN, stem, type)                                                   \
    void twill_##stem##_##type(void *dst, const void *const *src, unsigned nsrc, size_t count,     \
                               uint32_t divisor, unsigned flags);
TWILL_TYPES(TWILL_PAIRS_DECLARE, )

#define TWILL_INLINE static inline __attribute__((always_inline))
/* Unroll a short loop of constant length, even at -O2, so that its array is kept in registers. */
#if defined(__clang__)
#define TWILL_UNROLL _Pragma("clang loop unroll(full)")
#else
#define TWILL_UNROLL _Pragma("GCC unroll 8")
#endif

/* How many bytes ahead a kernel asks for a line of a source in the caches of another core, into L2.
 * Fetching such a line takes so long that the processor's own look-ahead, which ends with each
 * page, does not have enough of them under way. On a Granite Rapids a copy of 256 KiB took 11.9 us
 * instead of 14.5 by memcpy(), and an allreduce of 2 MiB in mapped buffers 63 us instead of 78. */
#define TWILL_SOURCE_AHEAD ((size_t)4096)
/* The same for a line of a destination, to write it. A reduce of 96 KiB into the mapped buffer of a
 * root that had read its last result took 7.5 us instead of 15. */
#define TWILL_DESTINATION_AHEAD ((size_t)1024)

#define TWILL_PASTE_(a, b) a##_##b
#define TWILL_PASTE(a, b)  TWILL_PASTE_(a, b)

/* --- threads, and the floating-point environment ---------------------------------------------- */
/* Process elements [first, first + count) of a job. */
typedef void (*twill_range_fn)(const void *job, size_t first, size_t count);

/* Call `apply` for elements 0 to count-1, in one range or, if that pays, in one for each of several
 * threads of the pool, which may be NULL. `element` is the bytes of a destination's element, a
 * power of two up to 64, and `read` the bytes that are read for it. */
void twill_split(twill_range_fn apply, const void *job, size_t count, size_t element, size_t read,
                 struct twill_thread_pool *pool);

/* Call `apply` for ranges that together are the blocks 0 to `blocks` - 1, each range in its own
 * thread. For each block it writes and reads as many bytes as given. */
void twill_split_blocks(twill_range_fn apply, const void *job, size_t blocks, size_t written,
                        size_t read, struct twill_thread_pool *pool);

#if defined(__x86_64__)
/* Before a reduction of floats, make this thread round to nearest and keep denormals, because
 * results must not differ. A caller built with -ffast-math flushes denormals, and others may round
 * upwards. If `floats` is false, change nothing. Returns the bits of MXCSR that were cleared, or 0
 * if none, for twill_environment_leave(). */
static inline unsigned twill_environment_enter(bool floats)
{
    const unsigned modes = 0xe040; /* flush to zero, rounding, denormals are zero */
    unsigned found = floats ? __builtin_ia32_stmxcsr() : 0;
    if (TWILL_UNLIKELY(found & modes))
        __builtin_ia32_ldmxcsr(found & ~modes);
    return found & modes;
}

/* Restore the floating-point environment that twill_environment_enter() has changed. */
static inline void twill_environment_leave(unsigned modes)
{
    if (TWILL_UNLIKELY(modes))
        __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | modes);
}
#else
/* Do nothing, as this machine is not x86-64, and return 0 for twill_environment_leave(). Here
 * reductions use the caller's floating-point environment, and `floats` is not used. */
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
