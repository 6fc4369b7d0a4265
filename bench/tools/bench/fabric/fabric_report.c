/* SPDX-License-Identifier: Apache-2.0 */
/* The output of twill-bench latency and its kin: OSU's table, CSV and JSON. */
#include "bench/common/json_file.h"
#include "bench/tools/bench/fabric/fabric.h"
#include "lib/base/plural.h"

#include <stdlib.h>
#include <string.h>

static bool has_latency(const struct fabric_run *run)
{
    return run->options.measurement == FABRIC_LATENCY;
}

void fabric_print_header(const struct fabric_run *run)
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
           strcmp(channel->interface, "calls") == 0 ? "twill's calls" : "the transport alone",
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

void fabric_print_row(const struct fabric_run *run, const struct fabric_row *row)
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

void fabric_print_absent(const struct fabric_run *run, const struct fabric_channel *channel)
{
    if (run->rank == 0)
        fprintf(run->options.csv ? stderr : stdout, "# %s by %s is not here: %s\n",
                channel->transport, channel->interface, channel->what);
}

struct fabric_json {
    struct twill_json_file file;
    struct json_object *rows, *absent;
};

struct fabric_json *fabric_json_open(const struct fabric_run *run)
{
    const struct fabric_options *options = &run->options;
    struct fabric_json *json = calloc(1, sizeof(*json));
    if (json == NULL || !twill_json_file_create(&json->file, options->output)) {
        free(json);
        return NULL;
    }
    struct json_object *root = json->file.root;
    json->rows = json_object_new_array();
    json->absent = json_object_new_array();
    twill_json_text(root, "measurement", fabric_name(options->measurement));
    json_object_object_add(root, "ranks", json_object_new_int(run->size));
    json_object_object_add(root, "nodes", json_object_new_int(twill_comm_nodes(run->world)));
    twill_json_count(root, "window", options->window);
    twill_json_text(root, "memory", options->placed ? "twill" : "malloc");
    json_object_object_add(root, "rows", json->rows);
    json_object_object_add(root, "absent", json->absent);
    return json;
}

static struct json_object *channel_json(const struct fabric_channel *channel)
{
    struct json_object *one = json_object_new_object();
    twill_json_text(one, "transport", channel->transport);
    twill_json_text(one, "interface", channel->interface);
    twill_json_text(one, "description", channel->what);
    return one;
}

void fabric_json_row(struct fabric_json *json, const struct fabric_run *run,
                     const struct fabric_row *row)
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
    json_object_array_add(json->rows, one);
}

void fabric_json_absent(struct fabric_json *json, const struct fabric_channel *channel)
{
    json_object_array_add(json->absent, channel_json(channel));
}

bool fabric_json_close(struct fabric_json *json)
{
    bool good = twill_json_file_close(&json->file);
    free(json);
    return good;
}
