/* SPDX-License-Identifier: Apache-2.0 */
/* The turns: for each collective and size, every contender once in each round. All are measured
 * within a second or two, so that slow changes of the machine affect them equally. */
#include "bench/common/report.h"
#include "bench/tools/compare/remote_hosts.h"
#include "lib/base/plural.h"

#include <stdlib.h>
#include <string.h>

/* Return the bytes of a contender's buffers in a row. */
static size_t row_bytes(const struct twill_compare_run *run, const struct twill_compare_row *row)
{
    size_t ranks = (size_t)run->options.ranks;
    return row->bytes * ranks *
           (twill_compare_shards(row->collective, ranks, 0) +
            twill_compare_shards(row->collective, ranks, 1));
}

static size_t available(void)
{
    char line[256];
    size_t kib = 0;
    FILE *file = fopen("/proc/meminfo", "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "MemAvailable: %zu kB", &kib) == 1)
            break;
    if (file != NULL)
        fclose(file);
    return kib << 10;
}

static bool take_samples(const struct twill_compare_board *board, struct twill_compare_cell *cell)
{
    size_t n = (size_t)board->batches;
    if (n == 0)
        return true; /* it does not support the collective */
    double *samples = realloc(cell->samples, (cell->n_samples + n) * sizeof(double));
    if (samples == NULL)
        return false;
    cell->samples = samples;
    samples += cell->n_samples;
    for (size_t batch = 0; batch < n; batch++) {
        samples[batch] = 0;
        for (int rank = 0; rank < board->ranks; rank++)
            if (board->seconds[rank][batch] > samples[batch])
                samples[batch] = board->seconds[rank][batch];
    }
    cell->n_samples += n;
    cell->calls += n * (size_t)board->calls;
    cell->rounds[cell->n_rounds++] = twill_bench_statistics(samples, n).median;
    return true;
}

static void check_results(struct twill_compare_run *run, const struct twill_compare_row *row,
                          int index, struct twill_compare_cell *cell)
{
    const struct twill_compare_contender *contender = &run->contenders[index];
    uint64_t wrong = 0;
    for (int rank = 0; rank < contender->board->ranks; rank++)
        wrong += contender->board->wrong[rank];
    if (wrong == 0)
        return;
    cell->wrong = true;
    run->failures += contender->kind != TWILL_COMPARE_PEER;
    twill_bench_progress_clear(&run->progress);
    fprintf(stderr, "twill-compare: %s: %llu wrong value%s in %s of %zu bytes\n", contender->name,
            (unsigned long long)wrong, TWILL_PLURAL(wrong), twill_compare_name(row->collective),
            row->bytes);
}

/* Return whether a peer is slow and far behind others of its kind; it then has two turns only. */
static bool is_far_behind(const struct twill_compare_run *run, const struct twill_compare_row *row,
                          int index)
{
    const struct twill_compare_contender *contender = &run->contenders[index];
    double mine = row->cells[index].rounds[0], best = mine;
    for (int i = 0; i < run->n_contenders; i++)
        if (run->contenders[i].kind == TWILL_COMPARE_PEER &&
            run->contenders[i].tuned == contender->tuned && row->cells[i].n_rounds > 0 &&
            row->cells[i].rounds[0] < best)
            best = row->cells[i].rounds[0];
    return contender->kind == TWILL_COMPARE_PEER && !run->options.mpi && mine > 2.5 * best &&
           mine > run->options.turn_seconds / 4;
}

/* Run a turn of fi_pingpong, which reports one mean. */
static bool run_pingpong(struct twill_compare_run *run, struct twill_compare_row *row, int index)
{
    struct twill_compare_cell *cell = &row->cells[index];
    double seconds =
        row->bytes > 0 ? twill_compare_pingpong(run, &run->contenders[index], row->bytes) : 0;
    double *samples = realloc(cell->samples, (cell->n_samples + 1) * sizeof(double));
    if (samples == NULL)
        return false;
    cell->samples = samples;
    if (seconds > 0) {
        cell->samples[cell->n_samples++] = seconds;
        cell->calls++;
        cell->rounds[cell->n_rounds++] = seconds;
    }
    return true;
}

static bool take_turn(struct twill_compare_run *run, struct twill_compare_row *row, int index,
                      int round)
{
    const struct twill_compare_options *options = &run->options;
    struct twill_compare_contender *contender = &run->contenders[index];
    struct twill_compare_cell *cell = &row->cells[index];
    struct twill_compare_order order = {
        .collective = (uint32_t)row->collective,
        .bytes = row->bytes,
        .check = round == 0,
        .keep = run->keep,
        .least = 2,
        .line = options->n_hosts == 0 && options->ranks <= run->cores && run->bind,
        .batch_seconds = options->turn_seconds / 15,
        .turn_seconds = options->turn_seconds,
    };
    if (contender->absent[0] != '\0' ||
        (contender->self_only && !twill_compare_is_self(row->collective)) ||
        (round > 1 && is_far_behind(run, row, index)))
        return true;
    if (contender->kind == TWILL_COMPARE_TRIP && row->collective != run->rows[0].collective)
        return true;
    if (contender->pingpong != NULL)
        return run_pingpong(run, row, index);
    if (!twill_compare_turn(run, contender, &order))
        return true; /* it is excluded, the others go on */
    check_results(run, row, index, cell);
    if (contender->board->line_seconds > 0) /* the last contender of the round counts */
        row->lines[round] = contender->board->line_seconds;
    row->n_lines = round + 1;
    return take_samples(contender->board, cell);
}

static void conclude_row(const struct twill_compare_run *run, struct twill_compare_row *row)
{
    double lines[TWILL_COMPARE_ROUNDS];
    for (int i = 0; i < run->n_contenders; i++) {
        struct twill_compare_cell *cell = &row->cells[i];
        if (cell->n_samples == 0)
            continue;
        struct twill_bench_statistics all = twill_bench_statistics(cell->samples, cell->n_samples);
        cell->median = all.median;
        cell->min = all.min;
        cell->p99 = all.p99;
    }
    memcpy(lines, row->lines, sizeof(lines));
    if (row->n_lines > 0)
        row->line = twill_bench_statistics(lines, (size_t)row->n_lines).median;
    int trip = twill_compare_best(run, row, TWILL_COMPARE_TRIP, 0);
    if (run->options.n_hosts > 0)
        row->line = trip < 0 ? 0 : row->cells[trip].median;
}

void twill_compare_progress(struct twill_compare_run *run, const char *what)
{
    twill_bench_progress_show(&run->progress, run->turns_done, run->turns, what);
    run->turns_done++;
}

static bool measure_row(struct twill_compare_run *run, struct twill_compare_row *row)
{
    size_t free_bytes = available(), need = row_bytes(run, row);
    double from = twill_compare_now();
    bool good = true;
    char what[128];
    int there = 0;
    for (int i = 0; i < run->n_contenders; i++)
        there += run->contenders[i].absent[0] == '\0';
    /* keep buffers if those of all contenders fit; peers' scratch memory may be twice as large and
     * stay, too */
    run->keep = need * (size_t)there < free_bytes / 2;
    if (need * 3 > free_bytes) {
        twill_bench_progress_clear(&run->progress);
        run->turns_done += (size_t)run->options.rounds * (size_t)run->n_contenders;
        fprintf(stderr, "twill-compare: %s of %zu bytes is left out: %zu MiB of memory are free\n",
                twill_compare_name(row->collective), row->bytes, free_bytes >> 20);
        return true;
    }
    for (int round = 0; round < run->options.rounds; round++)
        for (int i = 0; i < run->n_contenders && good; i++) {
            /* another contender starts each round */
            int index = (i + round) % run->n_contenders;
            snprintf(what, sizeof(what), "%s %zu, %s", twill_compare_name(row->collective),
                     row->bytes, run->contenders[index].name);
            twill_compare_progress(run, what);
            good = !twill_compare_interrupted(run) && take_turn(run, row, index, round);
        }
    conclude_row(run, row);
    row->seconds = twill_compare_now() - from;
    return good;
}

bool twill_compare_measure(struct twill_compare_run *run)
{
    const struct twill_compare_options *options = &run->options;
    size_t most = TWILL_COMPARE_COLLECTIVES * (size_t)options->n_sizes, rows = 0;
    bool good = true;
    run->rows = calloc(most, sizeof(*run->rows));
    if (run->rows == NULL)
        return false;
    for (int i = 0; i < TWILL_COMPARE_COLLECTIVES; i++) {
        bool sized = twill_compare_shards((enum twill_compare_collective)i, 2, 0) > 0;
        rows += options->selected[i] ? (sized ? (size_t)options->n_sizes : 1) : 0;
    }
    run->turns = rows * (size_t)options->rounds * (size_t)run->n_contenders;
    twill_bench_progress_begin(&run->progress, true);
    for (int collective = 0; collective < TWILL_COMPARE_COLLECTIVES; collective++)
        for (int size = 0; options->selected[collective] && size < options->n_sizes && good;
             size++) {
            struct twill_compare_row *row = &run->rows[run->n_rows];
            row->collective = (enum twill_compare_collective)collective;
            bool sized = twill_compare_shards(row->collective, 2, 0) > 0;
            row->bytes = sized ? options->sizes[size] : 0;
            if (!sized && size > 0)
                break;
            good = measure_row(run, row);
            run->n_rows++;
        }
    twill_bench_progress_clear(&run->progress);
    twill_compare_mark_off_wire(run);
    return good;
}
