/* SPDX-License-Identifier: Apache-2.0 */
/* Show an exchange of halos through a window. Each rank has some rows of a grid. In every step each
 * cell becomes the mean of its four neighbours. This needs a row of the rank above and one of the
 * rank below, which put them where the computation reads them.
 *
 * Run it by twillrun -n 4 halo. It checks that the grid equals bit for bit that of one rank. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <twill.h>
#include <twill_window.h>

enum { ROWS = 16, WIDTH = 256, STEPS = 100 };
enum { ABOVE, BELOW, SIGNALS }; /* the rank that a signal is from */
typedef double grid_row[WIDTH];

/* Compute rows 1 .. count of `new` by a step. Columns 0 and WIDTH - 1 are neighbours. */
static void smooth(const grid_row *old, grid_row *new, int count)
{
    for (int r = 1; r <= count; r++)
        for (int c = 0; c < WIDTH; c++)
            new[r][c] = (old[r - 1][c] + old[r + 1][c] + old[r][(c + WIDTH - 1) % WIDTH] +
                         old[r][(c + 1) % WIDTH]) /
                        4;
}

/* Set rows 1 .. count, of which the first is row `first` of the whole grid. */
static void fill(grid_row *rows, int count, int first)
{
    for (int r = 1; r <= count; r++)
        for (int c = 0; c < WIDTH; c++)
            rows[r][c] = ((first + r) * 7 + c * 3) % 11;
}

/* Make all steps, from one grid to the other in turns. Each has one more row above and below. When
 * the signals of step n are here, both neighbours have used what this rank put in step n - 2, and
 * its puts of step n - 1 have arrived. So two grids are enough, and no flush is needed. */
static twill_status exchange(twill_window *window, grid_row *const grid[2], int above, int below)
{
    twill_status status = TWILL_OK;
    for (int step = 1; step <= STEPS && status == TWILL_OK; step++) {
        grid_row *old = grid[step % 2], *new = grid[1 - step % 2];
        size_t top = (size_t)(old - grid[0]) * sizeof(grid_row),
               bottom = top + (ROWS + 1) * sizeof(grid_row);
        status = twill_put(window, old[1], sizeof(grid_row), above, bottom, BELOW);
        if (status == TWILL_OK)
            status = twill_put(window, old[ROWS], sizeof(grid_row), below, top, ABOVE);
        for (int signal = 0; signal < SIGNALS && status == TWILL_OK; signal++)
            status = twill_wait_signal(window, signal, (uint64_t)step, NULL);
        if (status == TWILL_OK)
            smooth(old, new, ROWS);
    }
    return status;
}

/* Make all steps on the whole grid, and return whether this rank's rows are as there. */
static int equals_one_rank(const grid_row *mine, int rank, int size)
{
    int all = size * ROWS;
    grid_row *whole = calloc(2 * ((size_t)all + 2), sizeof(grid_row));
    if (whole == NULL)
        return 0;
    grid_row *const grid[2] = {whole, whole + all + 2};
    fill(grid[1], all, 0);
    for (int step = 1; step <= STEPS; step++) {
        grid_row *old = grid[step % 2];
        memcpy(old[0], old[all], sizeof(grid_row));
        memcpy(old[all + 1], old[1], sizeof(grid_row));
        smooth(old, grid[1 - step % 2], all);
    }
    int equal =
        memcmp(mine[1], grid[(STEPS + 1) % 2][1 + rank * ROWS], ROWS * sizeof(grid_row)) == 0;
    free(whole);
    return equal;
}

int main(void)
{
    twill_comm *comm;
    twill_window *window = NULL;
    void *memory = NULL;
    size_t bytes = 2 * (ROWS + 2) * sizeof(grid_row);
    if (twill_init(&comm) != TWILL_OK)
        return 1;
    int rank = twill_comm_rank(comm), size = twill_comm_size(comm), equal = 0;
    twill_status status = twill_alloc(twill_comm_context(comm), &memory, bytes);
    if (status == TWILL_OK)
        status = twill_window_create(&window, comm, memory, bytes, SIGNALS);
    if (status != TWILL_OK) {
        fprintf(stderr, "halo: %s: %s\n", twill_strerror(status), twill_comm_message(comm));
        twill_finalize(comm);
        return 1;
    }
    grid_row *const grid[2] = {memory, (grid_row *)memory + ROWS + 2};
    fill(grid[1], ROWS, rank * ROWS);
    status = exchange(window, grid, (rank + size - 1) % size, (rank + 1) % size);
    if (status != TWILL_OK)
        fprintf(stderr, "halo: %s: %s\n", twill_strerror(status), twill_window_message(window));
    twill_window_destroy(window);
    if (status == TWILL_OK)
        equal = equals_one_rank(grid[(STEPS + 1) % 2], rank, size);
    if (status == TWILL_OK)
        printf("rank %d: rows %d to %d %s\n", rank, rank * ROWS, rank * ROWS + ROWS - 1,
               equal ? "equal those of one rank" : "DIFFER");
    twill_finalize(comm);
    return equal ? 0 : 1;
}
