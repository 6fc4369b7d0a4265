/* SPDX-License-Identifier: Apache-2.0 */
/* Products of sufficient factors. Tiles stay in registers while the samples are added. */
#include "kernels/training/factors.h"

#define FACTOR_ROWS  4u
#define FACTOR_LANES 8u  /* floats of a vector */
#define FACTOR_TILE  16u /* columns of a tile */

typedef float factor_vector __attribute__((vector_size(4 * FACTOR_LANES), aligned(1), may_alias));

/* Set a tile of the gradient to the sum over all samples of error times activation, times f->scale.
 * The tile has `rows` rows (1 to FACTOR_ROWS, a constant) from `row` on, and FACTOR_TILE columns
 * from `column` on. */
TWILL_INLINE void multiply_tile(const struct twill_factors *f, element_f32 *gradient, size_t row,
                                size_t column, unsigned rows)
{
    factor_vector sum[FACTOR_ROWS][2] = {{{0}}};
    for (size_t p = 0; p < f->parts; p++) {
        const element_f32 *error = (const element_f32 *)f->errors + p * f->stride + row,
                          *activation =
                              (const element_f32 *)f->activations + p * f->stride + column;
        for (size_t s = 0; s < f->samples; s++, error += f->rows, activation += f->columns) {
            factor_vector left = *(const factor_vector *)activation,
                          right = *(const factor_vector *)(activation + FACTOR_LANES);
            TWILL_UNROLL
            for (unsigned r = 0; r < rows; r++) {
                sum[r][0] += error[r] * left;
                sum[r][1] += error[r] * right;
            }
        }
    }
    TWILL_UNROLL
    for (unsigned r = 0; r < rows; r++) {
        element_f32 *to = gradient + (row + r) * f->columns + column;
        *(factor_vector *)to = sum[r][0] * f->scale;
        *(factor_vector *)(to + FACTOR_LANES) = sum[r][1] * f->scale;
    }
}

/* Return one element of the scaled product. */
static float multiply_one(const struct twill_factors *f, size_t row, size_t column)
{
    const element_f32 *errors = f->errors, *activations = f->activations;
    float sum = 0;
    for (size_t p = 0; p < f->parts; p++)
        for (size_t s = 0; s < f->samples; s++)
            sum += errors[p * f->stride + s * f->rows + row] *
                   activations[p * f->stride + s * f->columns + column];
    return sum * f->scale;
}

/* Compute rows `first` to `first` + `count` - 1 of the product that begins at `to`. */
static void multiply_factors(const struct twill_factors *f, void *to, size_t first, size_t count)
{
    element_f32 *gradient = to;
    size_t whole = f->columns / FACTOR_TILE * FACTOR_TILE, end = first + count;
    for (size_t column = 0; column < whole; column += FACTOR_TILE) {
        size_t row = first;
        for (; row + FACTOR_ROWS <= end; row += FACTOR_ROWS)
            multiply_tile(f, gradient, row, column, FACTOR_ROWS);
        for (; row < end; row++)
            multiply_tile(f, gradient, row, column, 1);
    }
    for (size_t row = first; row < end; row++)
        for (size_t column = whole; column < f->columns; column++)
            gradient[row * f->columns + column] = multiply_one(f, row, column);
}
