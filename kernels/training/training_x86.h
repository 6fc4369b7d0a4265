/* SPDX-License-Identifier: Apache-2.0 */
/* The primitives of training_template.h that differ between AVX2 and AVX-512F only in their prefix.
 * The including file defines MM(name), lower_f32, upper_f32, lanes_in and TWILL_STEP_REGISTERS. */
#define EACH_REGISTER         TWILL_UNROLL
#define splat_f32(x)          MM(set1_ps)(x)
#define splat_i32(x)          MM(set1_epi32)((int)(x))
#define sqrt_f32              MM(sqrt_ps)
#define bits_of_f32(v)        ((vector_i32)(v))
#define f32_of_bits(v)        ((vector_f32)(v))
#define widen_bytes(p)        MM(cvtepi32_ps)(MM(cvtepi8_epi32)(load_quarter(p)))
#define store_low_bytes(p, v) store_quarter(p, bytes_of(BITS (and)(v, splat_i32(0xff))))
#define lanes_count(hits)     ((size_t)__builtin_popcount(hits))

/* Add the squares of v's elements to as many f64 at `sums`, in their order. */
TWILL_INLINE void add_square(vector_f64 *sums, vector_f32 v)
{
    vector_f64 low = MM(cvtps_pd)(lower_f32(v)), high = MM(cvtps_pd)(upper_f32(v));
    sums[0] = sums[0] + low * low;
    sums[1] = sums[1] + high * high;
}
