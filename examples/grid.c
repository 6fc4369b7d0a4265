/* SPDX-License-Identifier: Apache-2.0 */
/* Show model and data parallelism together. The ranks form a grid, and each row and each column is
 * a communicator. A row has one copy of the model, a weight matrix that is divided by columns. The
 * samples are divided among the rows.
 *
 *       0 1    a row sums its partial activations (model parallelism)
 *       2 3    a column sums its gradients (data parallelism)
 *
 * Run it by twillrun -n 4 grid. It trains a linear model and checks that it equals bit for bit the
 * model that one rank trains on all samples. Small integers add up exactly. */
#include <stdio.h>
#include <string.h>
#include <twill.h>

enum { INPUTS = 64, SAMPLES = 32, GRID_STEPS = 4 };

/* The communicators of this rank, and the size of the grid. */
struct grid {
    twill_comm *row, *column;
    int rows, columns;
};

static double sample(int s, int i)
{
    return (s * 5 + i * 3) % 7 - 3;
}

static double target(int s)
{
    return s % 5 - 2;
}

/* Make a step on the samples of this row with the weights of this column. The result is exact, as
 * the rate is a power of two and all inputs are small integers. */
static twill_status step_grid(const struct grid *grid, double *weights)
{
    int wide = INPUTS / grid->columns, shard = SAMPLES / grid->rows;
    int first = twill_comm_rank(grid->row) * wide, from = twill_comm_rank(grid->column) * shard;
    double output[SAMPLES], gradient[INPUTS] = {0};
    for (int s = 0; s < shard; s++) {
        output[s] = 0;
        for (int i = 0; i < wide; i++)
            output[s] += weights[i] * sample(from + s, first + i);
    }
    twill_status status =
        twill_allreduce(grid->row, output, output, (size_t)shard, TWILL_F64, TWILL_SUM);
    if (status != TWILL_OK)
        return status;
    for (int s = 0; s < shard; s++)
        for (int i = 0; i < wide; i++)
            gradient[i] += (output[s] - target(from + s)) * sample(from + s, first + i);
    status = twill_allreduce(grid->column, gradient, gradient, (size_t)wide, TWILL_F64, TWILL_SUM);
    for (int i = 0; i < wide; i++)
        weights[i] -= gradient[i] / 4096;
    return status;
}

static twill_status train_grid(const struct grid *grid, double *weights)
{
    twill_status status = TWILL_OK;
    for (int i = 0; i < GRID_STEPS && status == TWILL_OK; i++)
        status = step_grid(grid, weights);
    return status;
}

/* Train all weights on all samples, as a grid of one rank. */
static twill_status train_alone(twill_comm *self, double *weights)
{
    struct grid grid = {.row = self, .column = self, .rows = 1, .columns = 1};
    return train_grid(&grid, weights);
}

/* Train on the grid and alone, and set *wrong to whether the models differ. */
static twill_status compare_grid(twill_comm *comm, const struct grid *grid, int *wrong)
{
    double mine[INPUTS] = {0}, all[INPUTS] = {0}, alone[INPUTS] = {0};
    int rank = twill_comm_rank(comm);
    twill_comm *self = NULL;
    size_t wide = (size_t)(INPUTS / grid->columns);
    twill_status status = twill_comm_split(&self, comm, rank, 0);
    if (status == TWILL_OK)
        status = train_alone(self, alone);
    if (status == TWILL_OK)
        status = train_grid(grid, mine);
    if (status == TWILL_OK)
        status = twill_allgather(grid->row, mine, all, wide, TWILL_F64);
    *wrong = memcmp(all, alone, sizeof(all)) != 0;
    if (status == TWILL_OK)
        printf("rank %d: row %d of %d, column %d of %d, model %s\n", rank,
               twill_comm_rank(grid->column), grid->rows, twill_comm_rank(grid->row), grid->columns,
               *wrong ? "DIFFERS" : "equal to that of one rank");
    twill_comm_destroy(self);
    return status;
}

int main(void)
{
    twill_comm *comm;
    struct grid grid = {.columns = 2};
    int wrong = 0;
    if (twill_init(&comm) != TWILL_OK)
        return 1;
    int rank = twill_comm_rank(comm), size = twill_comm_size(comm);
    grid.columns = size % 2 == 0 ? 2 : 1;
    grid.rows = size / grid.columns;
    twill_status status = SAMPLES % grid.rows != 0 ? TWILL_ERR_UNSUPPORTED : TWILL_OK;
    if (status == TWILL_OK)
        status = twill_comm_split(&grid.row, comm, rank / grid.columns, rank);
    if (status == TWILL_OK)
        status = twill_comm_split(&grid.column, comm, rank % grid.columns, rank);
    if (status == TWILL_OK)
        status = compare_grid(comm, &grid, &wrong);
    if (status != TWILL_OK)
        fprintf(stderr, "grid: %s: %s\n", twill_strerror(status), twill_comm_message(comm));
    twill_comm_destroy(grid.row);
    twill_comm_destroy(grid.column);
    twill_finalize(comm);
    return status == TWILL_OK && wrong == 0 ? 0 : 1;
}
