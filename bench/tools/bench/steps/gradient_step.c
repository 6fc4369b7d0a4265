/* SPDX-License-Identifier: Apache-2.0 */
/* The reductions of back-propagation (--list), of all tensors in place, last layer first. */
#include "bench/tools/bench/bench_run.h"

#include <stdlib.h>
#include <string.h>

/* Broadcast the number of tensors *keys and the tensors in run->list from rank 0. Allocates them on
 * the other ranks, and run->step on all. *keys is 0 if rank 0 could not read the list, and then
 * that is all. */
static twill_status share_keys(struct twill_bench_run *run, uint64_t *keys)
{
    TWILL_BENCH_TRY(twill_broadcast(run->world, keys, keys, 1, TWILL_I64, 0));
    if (*keys == 0)
        return TWILL_OK;
    struct twill_bench_list *list = &run->list;
    list->keys = (size_t)*keys;
    run->step = calloc(list->keys + 1, sizeof(*run->step));
    run->step_seconds = calloc(list->keys + 1, sizeof(*run->step_seconds));
    if (run->step == NULL || run->step_seconds == NULL ||
        !twill_bench_list_reserve(list, list->keys))
        return TWILL_ERR_MEMORY;
    TWILL_BENCH_TRY(twill_broadcast(run->world, list->work, list->work, list->keys, TWILL_I64, 0));
    return twill_broadcast(run->world, list->elements, list->elements, list->keys, TWILL_I64, 0);
}

twill_status twill_bench_share_list(struct twill_bench_run *run, int32_t *outcome)
{
    char message[512];
    struct twill_bench_options *options = &run->options;
    uint64_t keys = 0;
    if (run->world_rank == 0) {
        bool good = twill_bench_list_read(&run->list, options->list, message, sizeof(message));
        if (good && options->measures.overlap && run->list.all_work == 0) {
            snprintf(message, sizeof(message),
                     "%s: no layer has multiply-adds, which --overlap needs", options->list);
            good = false;
        }
        if (good)
            keys = run->list.keys;
        else
            fprintf(stderr, "twill-bench: --list: %s\n", message);
    }
    TWILL_BENCH_TRY(share_keys(run, &keys));
    twill_bench_list_lay_out(&run->list); /* rank 0 has checked that it fits */
    size_t widest = options->type == TWILL_BENCH_ALL ? sizeof(double)
                                                     : twill_type_size((twill_type)options->type);
    options->sizes.min_bytes = options->sizes.max_bytes = (size_t)run->list.extent * widest;
    if (options->measures.overlap && options->calls.placed) /* the gradient set has the memory */
        options->sizes.min_bytes = options->sizes.max_bytes = 0;
    if (keys == 0)
        *outcome = 2;
    return TWILL_OK;
}

/* Return the call that reduces a key in place, otherwise as `like`. */
static struct twill_bench_subject key_of(const struct twill_bench_run *run,
                                         const struct twill_bench_subject *like, size_t key)
{
    struct twill_bench_subject subject =
        twill_bench_subject(run, like->type, like->op, like->root, (size_t)run->list.elements[key]);
    subject.in_place = true;
    subject.offset = (size_t)run->list.offsets[key] * twill_type_size(like->type);
    return subject;
}

/* Measure `iterations` times `aggregate` steps. run->step_seconds then has the mean time of each
 * key, and last that of a step. `samples` gets the time of a step in each iteration, or is NULL. */
static twill_status time_steps(struct twill_bench_run *run, const struct twill_bench_subject *like,
                               size_t iterations, size_t aggregate, double *samples)
{
    size_t keys = run->list.keys;
    double *seconds = run->step_seconds;
    double steps = (double)iterations * (double)aggregate;
    memset(seconds, 0, (keys + 1) * sizeof(*seconds));
    TWILL_BENCH_TRY(twill_barrier(run->comm));
    for (size_t i = 0; i < iterations; i++) {
        double start = twill_bench_now(), last = start;
        for (size_t j = 0; j < aggregate * keys; j++) {
            size_t key = keys - 1 - j % keys;
            struct twill_bench_subject subject = key_of(run, like, key);
            TWILL_BENCH_TRY(twill_bench_call(run, &subject, 0));
            double now = twill_bench_now();
            seconds[key] += now - last;
            last = now;
        }
        seconds[keys] += last - start;
        if (samples != NULL)
            samples[i] = (last - start) / (double)aggregate;
        twill_bench_show_progress(run, "steps", 1);
    }
    for (size_t i = 0; i <= keys; i++)
        seconds[i] /= steps;
    return twill_bench_combine(run, seconds, keys + 1);
}

/* Time steps in which all tensors of --list are reduced. Stores the time of each tensor and that of
 * a step in run->step. `like` has the type, operation and root of the calls. Collective. */
static twill_status time_list(struct twill_bench_run *run, const struct twill_bench_subject *like)
{
    const struct twill_bench_options *options = &run->options;
    struct twill_bench_row *rows = run->step;
    double *samples = options->report.each ? run->memory.samples : NULL;
    TWILL_BENCH_TRY(time_steps(run, like, 1, 1, NULL));
    for (size_t i = 0; i <= run->list.keys; i++)
        rows[i].in_place.first = run->step_seconds[i];
    twill_counters before;
    struct twill_energy_reading reading;
    TWILL_BENCH_TRY(twill_comm_counters(run->comm, &before));
    twill_bench_energy_begin(run, &reading);
    TWILL_BENCH_TRY(
        time_steps(run, like, options->repeats.iterations, options->repeats.aggregate, samples));
    TWILL_BENCH_TRY(twill_bench_energy_end(run, &reading, &rows[run->list.keys].in_place.energy));
    for (size_t i = 0; i <= run->list.keys; i++) {
        rows[i].in_place.seconds = run->step_seconds[i];
        twill_bench_rate(run, rows[i].bytes, &rows[i].in_place);
    }
    if (options->measures.times)
        TWILL_BENCH_TRY(twill_bench_split_time(run, &before, &rows[run->list.keys].in_place));
    if (samples != NULL) {
        TWILL_BENCH_TRY(twill_bench_combine(run, samples, options->repeats.iterations));
        rows[run->list.keys].in_place.each =
            twill_bench_statistics(samples + options->report.each_skip,
                                   options->repeats.iterations - options->report.each_skip);
    }
    return TWILL_OK;
}

/* Reduce all tensors of --list once, as calls like `like`, and add the wrong elements of each to
 * run->step. All are filled before the first is reduced, so that a tensor that overwrites another
 * is detected. Collective. */
static twill_status check_once(struct twill_bench_run *run, const struct twill_bench_subject *like)
{
    size_t keys = run->list.keys;
    unsigned round = run->round + 1; /* that of key 0 */
    run->round += (unsigned)keys;
    for (size_t key = 0; key < keys; key++) {
        struct twill_bench_subject subject = key_of(run, like, key);
        twill_bench_prepare(run, &subject, round + (unsigned)key);
    }
    for (size_t key = keys; key-- > 0;) {
        struct twill_bench_subject subject = key_of(run, like, key);
        TWILL_BENCH_TRY(twill_bench_call(run, &subject, 0));
    }
    for (size_t key = 0; key < keys; key++) {
        struct twill_bench_subject subject = key_of(run, like, key);
        TWILL_BENCH_TRY(
            twill_bench_count(run, &subject, round + (unsigned)key, &run->step[key].in_place));
    }
    return TWILL_OK;
}

/* Check steps as often as -c says, until one has wrong elements. Counts those of each tensor in
 * run->step[], with the sum after the last, and adds the number of wrong tensors to
 * run->results.failures. Returns TWILL_OK, also if elements are wrong, or the error of a call.
 * Zeroes the buffers, but not after an error. Collective. */
static twill_status check_list(struct twill_bench_run *run, const struct twill_bench_subject *like)
{
    size_t keys = run->list.keys;
    int64_t *all = &run->step[keys].in_place.wrong;
    for (size_t key = 0; key <= keys; key++)
        run->step[key].in_place.wrong = 0;
    for (size_t i = 0; i < run->options.repeats.checks && *all == 0; i++) {
        TWILL_BENCH_TRY(check_once(run, like));
        for (size_t key = 0; key < keys; key++)
            *all += run->step[key].in_place.wrong;
    }
    for (size_t key = 0; key < keys; key++) {
        struct twill_bench_subject subject = key_of(run, like, key);
        twill_bench_clear(run, &subject);
        run->results.failures += run->step[key].in_place.wrong > 0;
    }
    return TWILL_OK;
}

twill_status twill_bench_measure_step(struct twill_bench_run *run, twill_type type, twill_op op,
                                      int root)
{
    size_t keys = run->list.keys;
    struct twill_bench_subject like =
        twill_bench_subject(run, type, op, root, (size_t)run->list.total);
    for (size_t key = 0; key < keys; key++) {
        struct twill_bench_subject subject = key_of(run, &like, key);
        run->step[key] = twill_bench_row(&subject);
        run->step[key].in_place.wrong = -1;
    }
    run->step[keys] = twill_bench_row(&like);
    run->step[keys].in_place.wrong = -1;
    TWILL_BENCH_TRY(time_list(run, &like));
    if (run->options.repeats.checks > 0)
        TWILL_BENCH_TRY(check_list(run, &like));
    twill_bench_show_progress(run, "checked", 1);
    run->results.bandwidth += run->step[keys].in_place.bus_bandwidth;
    run->results.measured++;
    return TWILL_OK;
}
