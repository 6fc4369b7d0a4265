/* SPDX-License-Identifier: Apache-2.0 */
/* The measurements of twill-bench latency and its kin, as OSU's, by ping-pongs and windows. */
#include "bench/common/report.h"
#include "bench/tools/bench/fabric/fabric.h"
#include "bench/tools/compare/peers/played_compute.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LARGE_MESSAGE ((size_t)8192) /* above it there are fewer iterations, as with OSU */

static const struct fabric_column columns[FABRIC_MEASUREMENT_COUNT][FABRIC_COLUMNS] = {
    [FABRIC_LATENCY] = {{"Latency (us)", "latency_us", 2},
                        {"Min (us)", "min_us", 2},
                        {"P50 (us)", "p50_us", 2},
                        {"P99 (us)", "p99_us", 2}},
    [FABRIC_BANDWIDTH] = {{"Bandwidth (MB/s)", "mb_per_second", 2}},
    [FABRIC_BIBW] = {{"Bandwidth (MB/s)", "mb_per_second", 2}},
    [FABRIC_RATE] = {{"MB/s", "mb_per_second", 2},
                     {"Messages/s", "messages_per_second", 2},
                     {"ns/message", "ns_per_message", 1}},
    [FABRIC_MULTI_PAIR] = {{"MB/s", "mb_per_second", 2}, {"Messages/s", "messages_per_second", 2}},
    [FABRIC_INCAST] = {{"MB/s", "mb_per_second", 2},
                       {"Messages/s", "messages_per_second", 2},
                       {"Fastest (us)", "fastest_sender_us", 2},
                       {"Slowest (us)", "slowest_sender_us", 2}},
    [FABRIC_OVERLAP] = {{"Overall (us)", "overall_us", 2},
                        {"Compute (us)", "compute_us", 2},
                        {"Pure Comm. (us)", "pure_us", 2},
                        {"Overlap (%)", "overlap_percent", 2}},
    [FABRIC_REGISTRATION] = {{"First (us)", "first_us", 2},
                             {"Next (us)", "next_us", 2},
                             {"Cost (us)", "cost_us", 2},
                             {"Registered", "registrations", 0},
                             {"Hits", "registration_hits", 0}},
};

const struct fabric_column *fabric_columns(enum fabric_measurement measurement)
{
    return columns[measurement];
}

/* Return the iterations at a size, which are fewer above 8 KiB unless -n was given. */
static size_t iterations_of(const struct fabric_options *options, size_t bytes)
{
    if (options->iterations > 0)
        return options->iterations;
    size_t few = bytes > LARGE_MESSAGE ? 100 : 1000;
    return options->measurement == FABRIC_LATENCY ? few : few / 10;
}

struct fabric_flow fabric_flow(const struct fabric_run *run)
{
    struct fabric_flow flow = {.to = -1};
    bool both = run->options.measurement == FABRIC_BIBW;
    if (run->options.measurement == FABRIC_INCAST) {
        flow.to = run->rank > 0 ? 0 : -1;
        flow.first = 1;
        flow.count = run->rank > 0 ? 0 : run->size - 1;
    } else if (run->peer >= 0) {
        flow.to = run->first || both ? run->peer : -1;
        flow.first = run->peer;
        flow.count = !run->first || both ? 1 : 0;
    }
    return flow;
}

size_t fabric_slots(const struct fabric_options *options, int size)
{
    size_t peers = options->measurement == FABRIC_INCAST ? (size_t)size - 1 : 1;
    return (peers + 1) * (options->window + 1);
}

/* Return the buffer of a slot, of those from `base` on, which slots share if there are too few. */
static unsigned char *buffer_of(unsigned char *base, const struct fabric_run *run, size_t slot)
{
    return base + slot % run->buffers * run->stride;
}

/* Send `window` messages of `bytes` bytes to rank flow.to, if any, and receive as many from each
 * rank from flow.first on. Then each receiver answers each of its senders with a byte. Returns when
 * all of this is complete. */
static twill_status exchange_window(struct fabric_run *run, struct fabric_flow flow, size_t bytes,
                                    size_t window)
{
    struct fabric_channel *channel = run->channel;
    unsigned char answer[2] = {0, 0};
    size_t slot = 0;
    for (size_t w = 0; w < window; w++)
        for (int i = 0; i < flow.count; i++, slot++)
            TWILL_BENCH_TRY(channel->ops->recv(channel, slot, buffer_of(run->in, run, slot), bytes,
                                               flow.first + i));
    for (size_t w = 0; w < window && flow.to >= 0; w++, slot++)
        TWILL_BENCH_TRY(
            channel->ops->send(channel, slot, buffer_of(run->out, run, w), bytes, flow.to));
    TWILL_BENCH_TRY(channel->ops->wait(channel, 0, slot));
    slot = 0;
    if (flow.to >= 0)
        TWILL_BENCH_TRY(channel->ops->recv(channel, slot++, &answer[0], 1, flow.to));
    for (int i = 0; i < flow.count; i++)
        TWILL_BENCH_TRY(channel->ops->send(channel, slot++, &answer[1], 1, flow.first + i));
    return channel->ops->wait(channel, 0, slot);
}

/* Compute the mean, the least (range[0]) and the largest (range[1]) of `mine`, the seconds of a
 * rank, over the ranks that send. Ranks that send nothing pass a negative number. Collective, and
 * all ranks get the results. */
static twill_status senders_seconds(struct fabric_run *run, double mine, double *mean,
                                    double *range)
{
    double sums[2] = {mine < 0 ? 0 : mine, mine < 0 ? 0 : 1};
    double ends[2] = {mine < 0 ? -1e30 : -mine, mine < 0 ? -1e30 : mine};
    TWILL_BENCH_TRY(twill_allreduce(run->world, sums, sums, 2, TWILL_F64, TWILL_SUM));
    TWILL_BENCH_TRY(twill_allreduce(run->world, ends, ends, 2, TWILL_F64, TWILL_MAX));
    *mean = sums[0] / sums[1];
    range[0] = -ends[0];
    range[1] = ends[1];
    return TWILL_OK;
}

/* Time windows of messages, and set row->value[] on every rank. It has MB/s, messages a second,
 * nanoseconds a message, or for incast the microseconds of the fastest sender, and those of the
 * slowest sender. Collective. */
static twill_status measure_windows(struct fabric_run *run, size_t bytes, struct fabric_row *row)
{
    const struct fabric_options *options = &run->options;
    struct fabric_flow flow = fabric_flow(run);
    double start = 0, mean, range[2];
    TWILL_BENCH_TRY(twill_barrier(run->world));
    for (size_t i = 0; i < options->warmups + row->iterations; i++) {
        if (i == options->warmups)
            start = twill_bench_now();
        TWILL_BENCH_TRY(exchange_window(run, flow, bytes, options->window));
    }
    double mine = (twill_bench_now() - start) / (double)row->iterations;
    TWILL_BENCH_TRY(senders_seconds(run, flow.to >= 0 ? mine : -1, &mean, range));
    int pairs = options->measurement == FABRIC_INCAST       ? run->size - 1
                : options->measurement == FABRIC_MULTI_PAIR ? run->size / 2
                : options->measurement == FABRIC_BIBW       ? 2
                                                            : 1;
    double messages = (double)options->window * pairs;
    /* Many senders share one receiver, so the time of the slowest one counts. */
    double seconds = options->measurement == FABRIC_INCAST ? range[1] : mean;
    double *value = row->value;
    value[0] = messages * (double)bytes / 1e6 / seconds;
    value[1] = messages / seconds;
    value[2] = options->measurement == FABRIC_INCAST ? range[0] * 1e6 : seconds * 1e9 / messages;
    value[3] = range[1] * 1e6;
    return TWILL_OK;
}

/* Send a message to the peer and receive one, or the reverse on the second rank of the pair. */
static twill_status pingpong(struct fabric_run *run, size_t bytes)
{
    struct fabric_channel *channel = run->channel;
    if (run->first)
        TWILL_BENCH_TRY(channel->ops->send_now(channel, run->out, bytes, run->peer));
    TWILL_BENCH_TRY(channel->ops->recv_now(channel, run->in, bytes, run->peer));
    return run->first ? TWILL_OK : channel->ops->send_now(channel, run->out, bytes, run->peer);
}

/* Time ping-pongs, and set row->value[] on every rank to the mean, least, median and 99th
 * percentile of half their times, in microseconds. Collective. */
static twill_status measure_latency(struct fabric_run *run, size_t bytes, struct fabric_row *row)
{
    size_t warmups = run->options.warmups;
    TWILL_BENCH_TRY(twill_barrier(run->world));
    for (size_t i = 0; run->peer >= 0 && i < warmups + row->iterations; i++) {
        double start = twill_bench_now();
        TWILL_BENCH_TRY(pingpong(run, bytes));
        if (i >= warmups)
            run->samples[i - warmups] = (twill_bench_now() - start) / 2;
    }
    if (run->first) {
        struct twill_bench_statistics all = twill_bench_statistics(run->samples, row->iterations);
        double values[] = {all.mean, all.min, all.median, all.p99};
        for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++)
            row->value[i] = values[i] * 1e6;
    }
    return twill_broadcast(run->world, row->value, row->value, FABRIC_COLUMNS, TWILL_F64, 0);
}

/* Return byte `at` of the message that rank `from` sends from a slot in a check. */
static unsigned char pattern(int from, size_t slot, size_t at)
{
    return (unsigned char)(at * 31 + at / 251 + slot * 7 + (size_t)from * 101 + 1);
}

/* Send known bytes in a window, which is shorter if buffers are few. Sets *wrong on all ranks to
 * the number of bytes that arrived wrong on all ranks together. Returns TWILL_OK, also if bytes are
 * wrong, or the error of a call. Collective. */
static twill_status check_bytes(struct fabric_run *run, size_t bytes, long long *wrong)
{
    struct fabric_flow flow = fabric_flow(run);
    size_t receivers = (size_t)(flow.count > 0 ? flow.count : 1);
    /* number of messages that have separate buffers on every rank */
    int64_t window = (int64_t)(run->buffers / receivers), bad = 0;
    if (window > (int64_t)run->options.window)
        window = (int64_t)run->options.window;
    TWILL_BENCH_TRY(twill_allreduce(run->world, &window, &window, 1, TWILL_I64, TWILL_MIN));
    memset(run->in, 0, run->buffers * run->stride);
    for (size_t slot = 0; slot < (size_t)window; slot++)
        for (size_t i = 0; i < bytes; i++)
            buffer_of(run->out, run, slot)[i] = pattern(run->rank, slot, i);
    TWILL_BENCH_TRY(exchange_window(run, flow, bytes, (size_t)window));
    for (size_t slot = 0; slot < (size_t)window * (size_t)flow.count; slot++) {
        int from = flow.first + (int)(slot % (size_t)flow.count);
        const unsigned char *in = buffer_of(run->in, run, slot);
        for (size_t i = 0; i < bytes; i++)
            bad += in[i] != pattern(from, slot / (size_t)flow.count, i);
    }
    TWILL_BENCH_TRY(twill_allreduce(run->world, &bad, &bad, 1, TWILL_I64, TWILL_SUM));
    *wrong = bad;
    return TWILL_OK;
}

/* Start to receive and to send a message of `bytes` bytes, from and to the peer. Compute for
 * `turns` rounds of played_turns(), making progress in between, and wait for both messages. */
static twill_status exchange_once(struct fabric_run *run, size_t bytes, size_t turns)
{
    struct fabric_channel *channel = run->channel;
    TWILL_BENCH_TRY(channel->ops->recv(channel, 0, run->in, bytes, run->peer));
    TWILL_BENCH_TRY(channel->ops->send(channel, 1, run->out, bytes, run->peer));
    for (size_t test = 0; test < PLAYED_TESTS && turns > 0; test++) {
        played_turns(turns / PLAYED_TESTS);
        TWILL_BENCH_TRY(channel->ops->test(channel, test % 2));
    }
    return channel->ops->wait(channel, 0, 2);
}

/* Set *seconds on all ranks to the time of an exchange_once() with `turns` rounds of computing, the
 * mean over both ranks and the `iterations` exchanges after the warmups. Ranks without a peer only
 * wait for those two. Collective. */
static twill_status time_exchanges(struct fabric_run *run, size_t bytes, size_t turns,
                                   size_t iterations, double *seconds)
{
    double start = 0;
    TWILL_BENCH_TRY(twill_barrier(run->world));
    for (size_t i = 0; run->peer >= 0 && i < run->options.warmups + iterations; i++) {
        if (i == run->options.warmups)
            start = twill_bench_now();
        TWILL_BENCH_TRY(exchange_once(run, bytes, turns));
    }
    *seconds =
        run->peer >= 0 ? (twill_bench_now() - start) / (double)iterations / 2 : 0; /* two ranks */
    return twill_allreduce(run->world, seconds, seconds, 1, TWILL_F64, TWILL_SUM);
}

/* Set the values of the row on every rank. They are the microseconds of an exchange of two ranks
 * with computing, of computing alone and of the exchange alone. The fourth is how much of the
 * exchange computing hides, in percent. Collective. */
static twill_status measure_overlap(struct fabric_run *run, size_t bytes, struct fabric_row *row)
{
    double pure, overall, compute;
    TWILL_BENCH_TRY(time_exchanges(run, bytes, 0, row->iterations, &pure));
    size_t turns = (size_t)(pure * played_speed()) + 1;
    double start = twill_bench_now();
    for (size_t i = 0; run->peer >= 0 && i < row->iterations; i++)
        for (size_t test = 0; test < PLAYED_TESTS; test++)
            played_turns(turns / PLAYED_TESTS);
    compute = run->peer >= 0 ? (twill_bench_now() - start) / (double)row->iterations / 2 : 0;
    TWILL_BENCH_TRY(twill_allreduce(run->world, &compute, &compute, 1, TWILL_F64, TWILL_SUM));
    TWILL_BENCH_TRY(time_exchanges(run, bytes, turns, row->iterations, &overall));
    double values[] = {overall * 1e6, compute * 1e6, pure * 1e6,
                       twill_bench_overlap(overall, compute, pure)};
    memcpy(row->value, values, sizeof(values));
    return TWILL_OK;
}

/* Send `bytes` bytes from the first rank of the pair to the second, and one byte back. On both set
 * *seconds to the time of both messages together. */
static twill_status send_there(struct fabric_run *run, void *memory, size_t bytes, double *seconds)
{
    struct fabric_channel *channel = run->channel;
    unsigned char answer = 0;
    double start = twill_bench_now();
    if (run->first) {
        TWILL_BENCH_TRY(channel->ops->send_now(channel, memory, bytes, run->peer));
        TWILL_BENCH_TRY(channel->ops->recv_now(channel, &answer, 1, run->peer));
    } else {
        TWILL_BENCH_TRY(channel->ops->recv_now(channel, run->in, bytes, run->peer));
        TWILL_BENCH_TRY(channel->ops->send_now(channel, &answer, 1, run->peer));
    }
    *seconds = twill_bench_now() - start;
    return TWILL_OK;
}

/* Allocate memory on both ranks of the pair, and send two messages from that of the first. Set
 * *first and *next to the seconds of each message and its answer. If the channel uses calls of the
 * library, the first rank registers its memory before. Frees the memory. */
static twill_status send_new_memory(struct fabric_run *run, size_t bytes, double *first,
                                    double *next)
{
    bool declared = run->channel->context != NULL && run->first;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
    void *memory = aligned_alloc(page, whole);
    if (memory == NULL)
        return TWILL_ERR_MEMORY;
    memset(memory, 1, whole); /* page faults are not part of it */
    twill_status status =
        declared ? twill_register(run->channel->context, memory, whole) : TWILL_OK;
    if (status == TWILL_OK)
        status = send_there(run, memory, bytes, first);
    if (status == TWILL_OK)
        status = send_there(run, memory, bytes, next);
    if (declared)
        (void)twill_deregister(run->channel->context, memory);
    free(memory);
    return status;
}

/* Set the values of the row on every rank. They are the median microseconds of the first message
 * from new memory, and of the next one, and the difference. Then follow the registrations of memory
 * and the uses of registered memory. Collective. */
static twill_status measure_registration(struct fabric_run *run, size_t bytes,
                                         struct fabric_row *row)
{
    size_t times = row->iterations;
    unsigned long long before[2] = {0, 0}, after[2] = {0, 0};
    TWILL_BENCH_TRY(twill_barrier(run->world));
    double *first = run->samples, *next = run->samples + times;
    for (size_t i = 0; run->peer >= 0 && i < run->options.warmups + times; i++) {
        size_t at = i < run->options.warmups ? 0 : i - run->options.warmups;
        if (i == run->options.warmups)
            run->channel->ops->count(run->channel, &before[0], &before[1]);
        TWILL_BENCH_TRY(send_new_memory(run, bytes, &first[at], &next[at]));
    }
    run->channel->ops->count(run->channel, &after[0], &after[1]);
    if (run->first) {
        double medians[] = {twill_bench_statistics(first, times).median * 1e6,
                            twill_bench_statistics(next, times).median * 1e6};
        double values[] = {medians[0], medians[1], medians[0] - medians[1],
                           (double)(after[0] - before[0]), (double)(after[1] - before[1])};
        memcpy(row->value, values, sizeof(values));
    }
    return twill_broadcast(run->world, row->value, row->value, FABRIC_COLUMNS, TWILL_F64, 0);
}

#define HOST_BYTES 256

/* Return the provider for fi_pingpong, for tcp the one that is most like it, or NULL if none is. */
static const char *provider_of(const struct fabric_run *run)
{
    const char *name = run->channel->transport;
    if (strcmp(name, "shm") == 0)
        return NULL;
    if (strncmp(name, "ofi:", 4) == 0)
        name += 4;
    if (strchr(name, '\'') != NULL) /* the shell would take it as the end of the name */
        return NULL;
    return strcmp(name, "tcp") == 0 || strcmp(name, "default") == 0 ? "tcp;ofi_rxm" : name;
}

/* Close a pipe and return the last us, or MB/s, of its table, or 0 if the program has failed. */
static double read_table(FILE *file, bool latency)
{
    char line[512];
    double value = 0, rate, us;
    while (fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "%*s %*s %*s %*s %*s %lf %lf", &rate, &us) == 2)
            value = latency ? us : rate;
    return pclose(file) == 0 ? value : 0;
}

/* Run fi_pingpong's side that connects, and wait for its end. If the other side does not listen
 * yet, try again, 25 times at most. Output and failures are ignored. */
static void run_client(const char *command, const char *port, const char *host)
{
    char script[1024];
    snprintf(script, sizeof(script),
             "command -v fi_pingpong timeout >/dev/null || exit; for attempt in $(seq 25); do "
             "timeout -s KILL 30 %s -P %s %s; status=$?; [ $status -ne 0 ] && [ $status -lt 124 ] "
             "|| exit; sleep 0.1; done",
             command, port, host);
    FILE *file = popen(script, "re");
    if (file != NULL)
        (void)read_table(file, false);
}

/* Run fi_pingpong between rank 0 and rank size / 2. Set *value on all ranks to its us in a latency
 * measurement, otherwise to its MB/s. It is 0 if the program or the provider is missing or fails.
 * Collective. */
static twill_status run_pingpong(struct fabric_run *run, size_t bytes, double *value)
{
    const char *provider = provider_of(run);
    char host[HOST_BYTES] = "127.0.0.1", port[16], command[256], server[320];
    uint32_t number = (uint32_t)getpid() % 20000 + 20000 + (uint32_t)(bytes % 997);
    *value = 0;
    if (provider == NULL || bytes == 0)
        return TWILL_OK;
    if (run->rank == 0 && twill_comm_nodes(run->world) > 1)
        (void)gethostname(host, sizeof(host) - 1);
    TWILL_BENCH_TRY(twill_broadcast(run->world, host, host, sizeof(host), TWILL_U8, 0));
    TWILL_BENCH_TRY(twill_broadcast(run->world, &number, &number, 1, TWILL_U32, 0));
    snprintf(port, sizeof(port), "%u", number);
    snprintf(command, sizeof(command), "fi_pingpong 2>/dev/null -e rdm -p '%s' -S %zu -I %zu",
             provider, bytes, iterations_of(&run->options, bytes));
    snprintf(server, sizeof(server), "timeout -s KILL 60 %s -B %s", command, port);
    FILE *file = run->rank == 0 ? popen(server, "re") : NULL;
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL); /* usually until it listens */
    if (run->rank == run->size / 2)
        run_client(command, port, host);
    if (file != NULL)
        *value = read_table(file, run->options.measurement == FABRIC_LATENCY);
    return twill_broadcast(run->world, value, value, 1, TWILL_F64, 0);
}

twill_status fabric_measure(struct fabric_run *run, size_t bytes, struct fabric_row *row)
{
    *row = (struct fabric_row){
        .bytes = bytes, .iterations = iterations_of(&run->options, bytes), .wrong = -1};
    twill_status status;
    switch (run->options.measurement) {
    case FABRIC_LATENCY:
        status = measure_latency(run, bytes, row);
        break;
    case FABRIC_OVERLAP:
        status = measure_overlap(run, bytes, row);
        break;
    case FABRIC_REGISTRATION:
        status = measure_registration(run, bytes, row);
        break;
    default:
        status = measure_windows(run, bytes, row);
    }
    if (status == TWILL_OK && run->options.check)
        status = check_bytes(run, bytes, &row->wrong);
    if (status == TWILL_OK && run->options.pingpong)
        status = run_pingpong(run, bytes, &row->pingpong);
    return status;
}
