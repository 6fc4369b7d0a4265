/* SPDX-License-Identifier: Apache-2.0 */
/* twill-bench latency, bandwidth, ... run all sizes with one transport after the other. */
#include "bench/tools/bench/fabric/fabric.h"
#include "bench/common/json_file.h"
#include "bench/common/report.h"
#include "bench/common/tool_calls.h"
#include "lib/base/plural.h"

#include <stdlib.h>
#include <string.h>

/* bytes of the buffers of a rank in each direction, at least one message */
#define BUFFERED ((size_t)64 << 20)

/* Print why a call of the channel or the job has failed. Returns STATUS_FAILED. */
static int fail_fabric(struct fabric_run *run, twill_status status)
{
    const struct fabric_channel *channel = run->channel;
    twill_bench_progress_clear(&run->progress);
    const char *message = channel != NULL ? channel->what : "";
    if (message[0] == '\0')
        message = twill_bench_why(channel == NULL ? run->world : NULL, run->context, status);
    fprintf(stderr, "twill-bench: %s%s%s\n", channel != NULL ? channel->transport : "",
            channel != NULL ? ": " : "", message);
    return STATUS_FAILED;
}

/* Allocate run->out and run->in, zeroed. Each has buffers for a window of the largest messages, but
 * of BUFFERED bytes at most. If that is not enough, messages share buffers, but run->in has at
 * least one for each sender. */
static twill_status buffers_open(struct fabric_run *run)
{
    const struct fabric_options *options = &run->options;
    struct fabric_flow flow = fabric_flow(run);
    size_t receivers = flow.count > 0 ? (size_t)flow.count : 1;
    size_t window = options->measurement == FABRIC_LATENCY ? 1 : options->window;
    run->stride = (options->max_bytes + 4095) / 4096 * 4096;
    run->buffers = BUFFERED / run->stride;
    if (run->buffers > receivers * window)
        run->buffers = receivers * window;
    if (run->buffers < receivers)
        run->buffers = receivers;
    size_t bytes = run->buffers * run->stride;
    unsigned char **at[] = {&run->out, &run->in};
    for (size_t i = 0; i < 2; i++) {
        if (options->placed)
            TWILL_BENCH_TRY(twill_alloc(run->channel->context, (void **)at[i], bytes));
        else
            *at[i] = aligned_alloc(4096, bytes);
        if (*at[i] == NULL)
            return TWILL_ERR_MEMORY;
        memset(*at[i], 0, bytes);
    }
    return TWILL_OK;
}

/* Free run->out and run->in, if there are any. The channel must still be open. */
static void buffers_close(struct fabric_run *run)
{
    unsigned char **at[] = {&run->out, &run->in};
    for (size_t i = 0; i < 2; i++) {
        if (!run->options.placed)
            free(*at[i]);
        else if (*at[i] != NULL)
            (void)twill_free(run->channel->context, *at[i]);
        *at[i] = NULL;
    }
}

/* Return whether the measurement of the run is FABRIC_LATENCY. */
static bool has_latency(const struct fabric_run *run)
{
    return run->options.measurement == FABRIC_LATENCY;
}

/* Print on rank 0 the titles of the CSV, or what is measured by which channel and the titles of the
 * table. */
static void print_header(const struct fabric_run *run)
{
    const struct fabric_options *options = &run->options;
    const struct fabric_channel *channel = run->channel;
    const struct fabric_column *columns = fabric_columns(options->measurement);
    if (run->rank != 0)
        return;
    if (options->csv) {
        printf("transport,interface,bytes");
        for (size_t i = 0; i < FABRIC_COLUMNS && columns[i].title != NULL; i++)
            printf(",%s", columns[i].key);
        printf(",wrong,fi_pingpong\n");
        return;
    }
    printf("# twill-bench version %s: %s, ranks %d on %d node%s\n", twill_version(),
           fabric_name(options->measurement), run->size, twill_comm_nodes(run->world),
           TWILL_PLURAL(twill_comm_nodes(run->world)));
    printf("# %s by %s: %s\n", channel->transport,
           channel->ops->count == NULL                ? "puts into windows"
           : strcmp(channel->interface, "calls") == 0 ? "twill's calls"
                                                      : "the transport alone",
           channel->what);
    if (options->measurement == FABRIC_MULTI_PAIR)
        printf("# [ pairs: %d ] [ window size: %zu ]\n", run->size / 2, options->window);
    printf("# %-10s", "Size");
    for (size_t i = 0; i < FABRIC_COLUMNS && columns[i].title != NULL; i++)
        printf("%18s", columns[i].title);
    printf("%8s", "#wrong");
    if (options->pingpong)
        printf("%20s", has_latency(run) ? "fi_pingpong (us)" : "fi_pingpong (MB/s)");
    printf("\n");
}

/* Print the results of a size on rank 0, as a row of the table or as comma-separated values. */
static void print_row(const struct fabric_run *run, const struct fabric_row *row)
{
    const struct fabric_options *options = &run->options;
    const struct fabric_column *columns = fabric_columns(options->measurement);
    if (run->rank != 0)
        return;
    if (options->csv)
        printf("%s,%s,%zu", run->channel->transport, run->channel->interface, row->bytes);
    else
        printf("%-12zu", row->bytes);
    for (size_t i = 0; i < FABRIC_COLUMNS && columns[i].title != NULL; i++)
        printf(options->csv ? ",%.*f" : "%18.*f", columns[i].decimals + (options->csv ? 3 : 0),
               row->value[i]);
    if (row->wrong >= 0)
        printf(options->csv ? ",%lld" : "%8lld", row->wrong);
    else
        printf(options->csv ? "," : "%8s", "N/A");
    if (options->csv)
        printf(row->pingpong > 0 ? ",%.3f\n" : ",\n", row->pingpong);
    else if (!options->pingpong)
        printf("\n");
    else if (row->pingpong > 0)
        printf("%20.2f\n", row->pingpong);
    else
        printf("%20s\n", "N/A");
    fflush(stdout);
}

/* Create the file of --json and its lists. Returns false after a message on failure. */
static bool open_json(struct fabric_run *run)
{
    const struct fabric_options *options = &run->options;
    if (!twill_json_file_create(&run->json, options->output))
        return false;
    struct json_object *root = run->json.root;
    run->json_rows = json_object_new_array();
    run->json_absent = json_object_new_array();
    twill_json_text(root, "measurement", fabric_name(options->measurement));
    json_object_object_add(root, "ranks", json_object_new_int(run->size));
    json_object_object_add(root, "nodes", json_object_new_int(twill_comm_nodes(run->world)));
    twill_json_count(root, "window", options->window);
    twill_json_text(root, "memory", options->placed ? "twill" : "malloc");
    json_object_object_add(root, "rows", run->json_rows);
    json_object_object_add(root, "absent", run->json_absent);
    return true;
}

/* Return an object that describes a channel. */
static struct json_object *channel_json(const struct fabric_channel *channel)
{
    struct json_object *one = json_object_new_object();
    twill_json_text(one, "transport", channel->transport);
    twill_json_text(one, "interface", channel->interface);
    twill_json_text(one, "description", channel->what);
    return one;
}

/* Append the results of a size, with the channel, to the rows of the JSON. Only for rank 0 with
 * --json. */
static void add_json_row(const struct fabric_run *run, const struct fabric_row *row)
{
    const struct fabric_column *columns = fabric_columns(run->options.measurement);
    struct json_object *one = channel_json(run->channel);
    twill_json_count(one, "bytes", row->bytes);
    twill_json_count(one, "iterations", row->iterations);
    for (size_t i = 0; i < FABRIC_COLUMNS && columns[i].title != NULL; i++)
        twill_json_real(one, columns[i].key, row->value[i]);
    json_object_object_add(one, "wrong",
                           row->wrong >= 0 ? json_object_new_int64(row->wrong) : NULL);
    if (run->options.pingpong)
        json_object_object_add(one,
                               has_latency(run) ? "fi_pingpong_us" : "fi_pingpong_mb_per_second",
                               row->pingpong > 0 ? json_object_new_double(row->pingpong) : NULL);
    json_object_array_add(run->json_rows, one);
}

/* Print on rank 0 why a channel cannot be opened, and add it to the JSON, if there is one. */
static void print_absent(struct fabric_run *run, const struct fabric_channel *channel)
{
    twill_bench_progress_clear(&run->progress);
    if (run->json_absent != NULL)
        json_object_array_add(run->json_absent, channel_json(channel));
    if (run->rank == 0)
        fprintf(run->options.csv ? stderr : stdout, "# %s by %s is not here: %s\n",
                channel->transport, channel->interface, channel->what);
}

/* Show the size that is measured now, and how many of all sizes are done. */
static void show_progress(struct fabric_run *run, size_t bytes)
{
    const struct fabric_options *options = &run->options;
    size_t sizes = 0, uses = 0;
    char what[128];
    for (size_t i = options->min_bytes; i <= options->max_bytes;
         i = twill_bench_next_size(i, 0, options->factor))
        sizes++;
    for (int use = 0; use < FABRIC_INTERFACES; use++)
        uses += options->use[use];
    snprintf(what, sizeof(what), "%s by %s, %zu bytes", fabric_name(options->measurement),
             run->channel->transport, bytes);
    twill_bench_progress_show(&run->progress, run->done, sizes * uses * options->transports, what);
}

/* Measure and report all sizes with the channel of the run. Adds wrong bytes to *wrong. */
static twill_status measure_sizes(struct fabric_run *run, long long *wrong)
{
    const struct fabric_options *options = &run->options;
    struct fabric_row row;
    TWILL_BENCH_TRY(buffers_open(run));
    twill_bench_progress_clear(&run->progress);
    print_header(run);
    for (size_t bytes = options->min_bytes; bytes <= options->max_bytes;
         bytes = twill_bench_next_size(bytes, 0, options->factor)) {
        show_progress(run, bytes);
        TWILL_BENCH_TRY(fabric_measure(run, bytes, &row));
        twill_bench_progress_clear(&run->progress);
        run->done++;
        *wrong += row.wrong > 0 ? row.wrong : 0;
        print_row(run, &row);
        if (run->json_rows != NULL)
            add_json_row(run, &row);
    }
    return TWILL_OK;
}

/* Open a channel with an interface. Measure and report all sizes and close it. Adds the bytes that
 * arrived wrong to *wrong. Returns STATUS_FAILED on failure. With --transport all it is no failure
 * if it cannot be opened. */
static int measure_channel(struct fabric_run *run, const char *transport,
                           enum fabric_interface interface, long long *wrong)
{
    struct fabric_channel channel = {.transport = transport,
                                     .slots = fabric_slots(&run->options, run->size)};
    int outcome = STATUS_GOOD;
    run->channel = &channel;
    twill_status status =
        interface == FABRIC_ALONE
            ? fabric_alone_open(&channel, run->world, &run->options)
            : fabric_calls_open(&channel, run->world, &run->options, interface == FABRIC_PUTS);
    int32_t bad = status != TWILL_OK, any = bad;
    if (twill_allreduce(run->world, &bad, &any, 1, TWILL_I32, TWILL_MAX) != TWILL_OK)
        any = 1;
    if (any && run->options.all) {
        if (!bad)
            snprintf(channel.what, sizeof(channel.what), "another rank could not open it");
        print_absent(run, &channel);
    } else {
        if (!any)
            status = measure_sizes(run, wrong);
        if (any || status != TWILL_OK)
            outcome = fail_fabric(run, status);
    }
    buffers_close(run);
    channel.ops->close(&channel);
    run->channel = NULL;
    return outcome;
}

/* Measure each transport by each interface, until one fails. Returns STATUS_FAILED if one has
 * failed or bytes arrived wrong, else STATUS_GOOD. */
static int measure_all(struct fabric_run *run)
{
    const struct fabric_options *options = &run->options;
    long long wrong = 0;
    twill_bench_progress_begin(&run->progress, run->rank == 0);
    int outcome = STATUS_GOOD;
    for (size_t i = 0; i < options->transports && outcome == STATUS_GOOD; i++)
        for (int use = 0; use < FABRIC_INTERFACES && outcome == STATUS_GOOD; use++)
            if (options->use[use])
                outcome =
                    measure_channel(run, options->transport[i], (enum fabric_interface)use, &wrong);
    if (wrong > 0 && run->rank == 0)
        fprintf(stderr, "twill-bench: %lld bytes are wrong\n", wrong);
    return wrong > 0 ? STATUS_FAILED : outcome;
}

/* Connect all ranks, pair rank 0 with rank P / 2, and allocate samples. For multi-pair, pair each
 * rank of the first half with one of the second. Other ranks have no peer. */
static twill_status join_pairs(struct fabric_run *run)
{
    TWILL_BENCH_TRY(twill_context_create(&run->context, NULL, NULL));
    TWILL_BENCH_TRY(twill_comm_create(&run->world, run->context));
    run->rank = twill_comm_rank(run->world);
    run->size = twill_comm_size(run->world);
    int half = run->size / 2;
    bool multiple = run->options.measurement == FABRIC_MULTI_PAIR;
    run->first = run->rank < (multiple ? half : 1);
    run->peer = run->first ? run->rank + half : run->rank - half;
    if (run->rank >= 2 * half || (!multiple && run->rank != 0 && run->rank != half))
        run->peer = -1;
    run->most_samples = 2 * (run->options.iterations > 0 ? run->options.iterations : 1000);
    run->samples = calloc(run->most_samples, sizeof(*run->samples));
    return run->samples == NULL ? TWILL_ERR_MEMORY : TWILL_OK;
}

int fabric_main(int argc, char **argv, bool speak)
{
    struct fabric_run run = {0};
    int outcome;
    if (!fabric_parse(&run.options, argc, argv, speak, &outcome))
        return outcome;
    setvbuf(stdout, NULL, _IOLBF, 0);
    twill_status status = join_pairs(&run);
    int32_t mistake = STATUS_GOOD;
    if (status == TWILL_OK && run.size < 2) {
        fprintf(stderr, "twill-bench %s: at least two ranks are needed\n", argv[1]);
        mistake = STATUS_USAGE;
    } else if (status == TWILL_OK && run.rank == 0 && run.options.output != NULL) {
        mistake = open_json(&run) ? STATUS_GOOD : STATUS_FAILED;
    }
    if (status == TWILL_OK)
        status = twill_allreduce(run.world, &mistake, &mistake, 1, TWILL_I32, TWILL_MAX);
    if (status != TWILL_OK)
        outcome = fail_fabric(&run, status);
    else
        outcome = mistake != STATUS_GOOD ? mistake : measure_all(&run);
    if (run.json_rows != NULL && !twill_json_file_close(&run.json))
        outcome = STATUS_FAILED;
    free(run.samples);
    twill_comm_destroy(run.world);
    twill_context_destroy(run.context);
    return outcome;
}
