/* SPDX-License-Identifier: Apache-2.0 */
/* Calibration measures candidates where the price model gives them a chance, one of each collective
 * at a time, in contexts that are set up over the communicator of the environment. */
#include "bench/tools/bench/calibrate/calibrate.h"
#include "bench/common/progress_line.h"
#include "bench/common/report.h"
#include "bench/common/tool_calls.h"
#include "bench/tools/bench/bench_collective.h"
#include "lib/base/plural.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The state of a calibration on one rank, a variable of twill_bench_calibrate(). */
struct twill_bench_calibration {
    twill_context *context; /* of the environment, answers queries and carries the exchange */
    twill_comm *comm;
    int rank, size;
    size_t max_bytes;
    FILE *file; /* on rank 0, the text of the file */
    char *text; /* what was written to `file`, `bytes` long, once that is flushed or closed */
    size_t bytes;
    double *samples; /* [TWILL_BENCH_SAMPLES] */
    struct twill_bench_progress progress;
    size_t done, total; /* measurements, each of an algorithm of a collective at a size */
};
#define TWILL_BENCH_SAMPLES 2000

enum { NAMES = 48, NAME_BYTES = 96, CHANCE = 6 };

static const size_t sizes[] = {8,     64,     256,     1024,    4096,     16384,
                               65536, 262144, 1048576, 4194304, 16777216, 67108864};
enum { CALIBRATE_SIZES = sizeof(sizes) / sizeof(sizes[0]) };

/* Return the bytes of the largest message that is measured, which the buffers must hold. */
static size_t largest(const struct twill_bench_calibration *c)
{
    size_t i = CALIBRATE_SIZES - 1;
    while (i > 0 && sizes[i] > c->max_bytes)
        i--;
    return sizes[i];
}

/* Return whether a collective is calibrated, as all are but sendrecv and those of uneven shards. */
static bool is_calibrated(size_t collective)
{
    return collective != TWILL_BENCH_SENDRECV &&
           !twill_bench_facts((enum twill_bench_collective)collective)->vector;
}

/* Return the name of a collective. */
static const char *name_of(size_t collective)
{
    return twill_bench_facts((enum twill_bench_collective)collective)->name;
}

/* The candidates of a collective, and the sizes at which each has a chance. measure_tables() has an
 * array of them, indexed by enum twill_bench_collective. */
struct plan {
    size_t count;
    char name[NAMES][NAME_BYTES];
    bool selected[NAMES][CALIBRATE_SIZES];
};

/* Return the index of a name, which is added if it is new, or `count` if it does not fit. */
static size_t find_name(struct plan *plan, const char *name, size_t length)
{
    size_t i = 0;
    while (i < plan->count &&
           (strlen(plan->name[i]) != length || memcmp(plan->name[i], name, length) != 0))
        i++;
    if (i == plan->count && i < NAMES && length < NAME_BYTES) {
        snprintf(plan->name[i], NAME_BYTES, "%.*s", (int)length, name);
        plan->count++;
    }
    return i;
}

/* Ask the context what algorithms cost in a collective at sizes[size]. Mark those in *plan whose
 * price is at most about CHANCE times the lowest. `memory` is added to the question as the kind of
 * buffers, as " mapped". */
static void query_plan(struct twill_bench_calibration *c, const char *collective, size_t size,
                       const char *memory, struct plan *plan)
{
    char question[96];
    const char *line;
    unsigned long long least = 0;
    snprintf(question, sizeof(question), "%s %zu f32%s", collective, sizes[size], memory);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; (line = twill_context_why(c->context, question, i)) != NULL; i++) {
            if (strncmp(line, "candidate\t", 10) != 0)
                continue;
            const char *name = line + 10, *price = strchr(name, '\t');
            unsigned long long ps = price != NULL ? strtoull(price + 1, NULL, 10) : 0;
            if (pass == 0 && (least == 0 || ps < least))
                least = ps;
            if (pass == 0 || price == NULL || ps / CHANCE > least)
                continue;
            size_t found = find_name(plan, name, (size_t)(price - name));
            if (found < plan->count)
                plan->selected[found][size] = true;
        }
    }
}

/* Return whether ranks of this job can read the memory of each other by CMA. */
static bool reads_peers(struct twill_bench_calibration *c)
{
    const char *line;
    for (size_t i = 0; (line = twill_context_describe(c->context, i)) != NULL; i++)
        if (strncmp(line, "memory of other ranks:", 22) == 0)
            return strstr(line, "cma: yes") != NULL;
    return false;
}

/* A context with a choice of algorithms (TWILL_ALGORITHM), its communicator and its buffers from
 * twill_alloc(). A variable of measure_together(), set by begin_session(). end_session() frees what
 * it has. */
struct calibration_session {
    twill_context *context;
    twill_comm *comm;
    void *src, *dst;
};

/* Free the buffers and destroy the communicator and context of a session, as far as they exist. */
static void end_session(struct calibration_session *s)
{
    if (s->src != NULL)
        twill_free(s->context, s->src);
    if (s->dst != NULL)
        twill_free(s->context, s->dst);
    twill_comm_destroy(s->comm);
    twill_context_destroy(s->context);
}

/* Make a context of all ranks with TWILL_ALGORITHM=override, a communicator and zeroed buffers. The
 * caller calls end_session(), also after a failure, which is printed. */
static twill_status begin_session(struct twill_bench_calibration *c, const char *override,
                                  struct calibration_session *s)
{
    char setting[TWILL_BENCH_COLLECTIVE_COUNT * (NAME_BYTES + 24)];
    const char *settings[] = {setting, "TWILL_TUNING=", "TWILL_LOG=none", NULL};
    twill_bootstrap bootstrap = twill_bench_bootstrap(c->comm);
    *s = (struct calibration_session){.context = NULL};
    snprintf(setting, sizeof(setting), "TWILL_ALGORITHM=%s", override);
    twill_status status = twill_context_create(&s->context, &bootstrap, settings);
    if (status == TWILL_OK)
        status = twill_comm_create(&s->comm, s->context);
    if (status == TWILL_OK)
        status = twill_alloc(s->context, &s->src, largest(c));
    if (status == TWILL_OK)
        status = twill_alloc(s->context, &s->dst, largest(c));
    if (status != TWILL_OK)
        fprintf(stderr, "twill-bench: --calibrate: %s: %s\n", override,
                twill_bench_why(NULL, s->context, status));
    if (status == TWILL_OK) {
        memset(s->src, 0, largest(c));
        memset(s->dst, 0, largest(c));
    }
    return status;
}

/* Set *seconds to the median of a call on the slowest rank. Rooted ones each follow a barrier. */
static twill_status time_calls(struct twill_bench_calibration *c, twill_comm *comm,
                               const struct twill_bench_subject *subject,
                               struct twill_bench_pointers at, double *seconds)
{
    const double patience = 0.01; /* seconds */
    double first = 0;
    size_t samples = 0, needed = TWILL_BENCH_SAMPLES;
    bool joins = !twill_bench_facts(subject->collective)->rooted; /* no rank can run ahead */
    twill_status status = TWILL_OK;
    /* Two calls warm up. The second determines the number of samples, equal on all ranks. */
    for (int i = 0; i < 2 && status == TWILL_OK; i++) {
        first = twill_bench_now();
        status = twill_bench_begin(subject, comm, at, NULL, TWILL_BENCH_BLOCKING, NULL);
        first = twill_bench_now() - first;
    }
    if (status == TWILL_OK)
        status = twill_allreduce(c->comm, &first, &first, 1, TWILL_F64, TWILL_MAX);
    if (first * TWILL_BENCH_SAMPLES > patience && patience / first + 5 < TWILL_BENCH_SAMPLES)
        needed = (size_t)(patience / first) + 5;
    while (status == TWILL_OK && samples < needed) {
        if (!joins)
            status = twill_barrier(comm);
        double begin = twill_bench_now();
        if (status == TWILL_OK)
            status = twill_bench_begin(subject, comm, at, NULL, TWILL_BENCH_BLOCKING, NULL);
        c->samples[samples++] = twill_bench_now() - begin;
    }
    *seconds = samples > 0 ? twill_bench_statistics(c->samples, samples).median : 0;
    if (status == TWILL_OK)
        status = twill_allreduce(c->comm, seconds, seconds, 1, TWILL_F64, TWILL_MAX);
    return status;
}

/* Return a call of a collective for a message of `bytes` bytes. `collective` is an enum
 * twill_bench_collective. A reduction is a sum, and the root, if the collective has one, is rank
 * 0. */
static struct twill_bench_subject call_of(const struct twill_bench_calibration *c,
                                          size_t collective, twill_type type, size_t bytes)
{
    const struct twill_bench_facts *facts =
        twill_bench_facts((enum twill_bench_collective)collective);
    size_t shards = facts->sharded ? (size_t)c->size : 1;
    return (struct twill_bench_subject){.collective = (enum twill_bench_collective)collective,
                                        .type = type,
                                        .op = TWILL_SUM,
                                        .called = TWILL_SUM,
                                        .rank = c->rank,
                                        .ranks = c->size,
                                        .root = facts->rooted ? 0 : -1,
                                        .count = bytes / twill_type_size(type) / shards,
                                        .bytes = bytes};
}

enum { CALIBRATE_LARGE = 1 << 20, BURST = 64, CALIBRATE_TURNS = 200 };

/* Write a time of a link to the file, as a line of the model in picoseconds, on rank 0. */
static void print_field(const struct twill_bench_calibration *c, const char *link,
                        const char *field, double seconds)
{
    if (c->rank == 0)
        fprintf(c->file, "model link.%s.%s %.0f\n", link, field,
                seconds > 0 ? seconds * 1e12 : 0.0);
}

/* On rank 0 and rank `other`, set *seconds to half a round trip of `bytes` bytes between them, the
 * median of many. Other ranks get a number without meaning. Collective. */
static twill_status ping_pong(struct twill_bench_calibration *c, int other, void *buffer,
                              size_t bytes, double *seconds)
{
    size_t turns = bytes > 4096 ? 20 : CALIBRATE_TURNS;
    twill_status status = twill_barrier(c->comm);
    *seconds = 0;
    for (size_t i = 0; i < turns && status == TWILL_OK; i++) {
        double begin = twill_bench_now();
        if (c->rank == 0) {
            status = twill_send(c->comm, buffer, bytes, TWILL_U8, other);
            if (status == TWILL_OK)
                status = twill_recv(c->comm, buffer, bytes, TWILL_U8, other);
        } else if (c->rank == other) {
            status = twill_recv(c->comm, buffer, bytes, TWILL_U8, 0);
            if (status == TWILL_OK)
                status = twill_send(c->comm, buffer, bytes, TWILL_U8, 0);
        }
        c->samples[i] = (twill_bench_now() - begin) / 2;
    }
    *seconds = twill_bench_statistics(c->samples, turns).median;
    return status;
}

/* On rank 0, set *seconds to the time per message in which it sends BURST messages of 8 bytes to
 * rank `other`. Other ranks get a number without meaning. Collective. */
static twill_status burst(struct twill_bench_calibration *c, int other, char *buffer,
                          double *seconds)
{
    twill_request *requests[BURST] = {NULL};
    twill_status status = twill_barrier(c->comm);
    double begin = twill_bench_now();
    for (int i = 0; i < BURST && status == TWILL_OK; i++) {
        if (c->rank == 0)
            status = twill_send_start(c->comm, buffer, 8, TWILL_U8, other, &requests[i]);
        else if (c->rank == other)
            status = twill_recv_start(c->comm, buffer + 8 * i, 8, TWILL_U8, 0, &requests[i]);
    }
    if (status == TWILL_OK)
        status = twill_wait_all(BURST, requests);
    *seconds = (twill_bench_now() - begin) / BURST;
    return status;
}

/* Measure messages of ranks 0 and `other`. Rank 0 writes overhead, latency and time per KiB to the
 * file as those of `link`, "node" or "network". Collective. */
static twill_status measure_link(struct twill_bench_calibration *c, const char *link, int other)
{
    double small = 0, large = 0, overhead = 0;
    char *buffer = calloc(1, CALIBRATE_LARGE);
    twill_status status = buffer != NULL ? TWILL_OK : TWILL_ERR_MEMORY;
    if (status == TWILL_OK)
        status = ping_pong(c, other, buffer, 8, &small);
    for (int i = 0; i < 5 && status == TWILL_OK; i++) {
        double once;
        status = burst(c, other, buffer, &once);
        overhead = i == 0 || once < overhead ? once : overhead;
    }
    if (status == TWILL_OK)
        status = ping_pong(c, other, buffer, CALIBRATE_LARGE, &large);
    overhead = overhead < small / 2 ? overhead : small / 2;
    print_field(c, link, "overhead", overhead);
    print_field(c, link, "latency", small - 2 * overhead);
    /* On a busy machine the small message may have taken longer. */
    print_field(c, link, "gap", (large > small ? large - small : large) / (CALIBRATE_LARGE / 1024));
    free(buffer);
    return status;
}

/* Write the cost of reducing each type on rank 0, by how much longer an allreduce takes than with
 * f32. Writes nothing if there is one rank. Collective. */
static twill_status measure_types(struct twill_bench_calibration *c)
{
    const double plain = 1024 / 100e9; /* f32 at 100 GB/s, as in the model of machine "auto" */
    void *src = calloc(1, CALIBRATE_LARGE), *dst = calloc(1, CALIBRATE_LARGE);
    double seconds, base = 0;
    twill_status status = src != NULL && dst != NULL ? TWILL_OK : TWILL_ERR_MEMORY;
    for (int type = 0; type < TWILL_TYPE_COUNT && status == TWILL_OK && c->size > 1; type++) {
        struct twill_bench_subject subject =
            call_of(c, TWILL_BENCH_ALLREDUCE, (twill_type)type, CALIBRATE_LARGE);
        status =
            time_calls(c, c->comm, &subject, (struct twill_bench_pointers){src, dst}, &seconds);
        if (type == TWILL_F32)
            base = seconds;
        double reduced = (double)(CALIBRATE_LARGE / 1024) * (c->size - 1) / c->size;
        double more = (seconds - base) / reduced;
        if (status == TWILL_OK && c->rank == 0)
            fprintf(c->file, "model reduce.%s %.0f\n", twill_type_name((twill_type)type),
                    (plain + (more > 0 ? more : 0)) * 1e12);
    }
    free(src);
    free(dst);
    return status;
}

/* Measure messages within a node and between nodes, as far as the job has such ranks, and the
 * reduction of each data type. With one node, also measure its signals. Writes the costs to c->file
 * on rank 0. Prints a failure. Collective. */
static twill_status calibrate_links(struct twill_bench_calibration *c)
{
    /* a rank on the node of rank 0, and the first rank on another node */
    int node = twill_comm_node(c->comm), near = 0, remote = 0;
    int64_t *nodes = calloc((size_t)c->size, sizeof(*nodes));
    twill_status status = nodes != NULL ? TWILL_OK : TWILL_ERR_MEMORY;
    if (status == TWILL_OK) {
        nodes[c->rank] = node;
        status = twill_allreduce(c->comm, nodes, nodes, (size_t)c->size, TWILL_I64, TWILL_SUM);
    }
    for (int r = c->size - 1; r > 0 && status == TWILL_OK; r--) {
        near = nodes[r] == nodes[0] ? r : near;
        remote = nodes[r] != nodes[0] ? r : remote;
    }
    free(nodes);
    if (status == TWILL_OK && near > 0)
        status = measure_link(c, "node", near);
    if (status == TWILL_OK && remote > 0)
        status = measure_link(c, "network", remote);
    double seconds;
    if (status == TWILL_OK && near > 0 && remote == 0) {
        struct twill_bench_subject subject = call_of(c, TWILL_BENCH_BARRIER, TWILL_F32, 0);
        status =
            time_calls(c, c->comm, &subject, (struct twill_bench_pointers){NULL, NULL}, &seconds);
        print_field(c, "node", "signal", seconds * 0.8); /* the rest is the call and the polling */
    }
    if (status == TWILL_OK)
        status = measure_types(c);
    if (status != TWILL_OK)
        fprintf(stderr, "twill-bench: --calibrate: %s\n", twill_comm_message(c->comm));
    return status;
}

/* Measure calls out of place and, where possible, in place, and set *seconds to the mean of both.
 * subject->in_place may be true afterwards. Collective. */
static twill_status time_both(struct twill_bench_calibration *c,
                              const struct calibration_session *s,
                              struct twill_bench_subject *subject, double *seconds)
{
    const struct twill_bench_facts *facts = twill_bench_facts(subject->collective);
    bool apart = facts->sharded && (facts->rooted || facts->src == facts->dst);
    double in_place = 0;
    TWILL_BENCH_TRY(
        time_calls(c, s->comm, subject, (struct twill_bench_pointers){s->src, s->dst}, seconds));
    if (apart || subject->collective == TWILL_BENCH_BARRIER)
        return TWILL_OK;
    subject->in_place = true;
    TWILL_BENCH_TRY(
        time_calls(c, s->comm, subject, twill_bench_pointers(subject, s->src, s->dst), &in_place));
    *seconds = (*seconds + in_place) / 2;
    return TWILL_OK;
}

/* Return whether algorithm number `index` of the plan of a collective is to be measured at
 * sizes[size]. It must be marked there, and the message must have elements. A barrier is only
 * measured at sizes[0]. */
static bool is_measured(const struct twill_bench_calibration *c, size_t collective,
                        const struct plan *plan, size_t index, size_t size)
{
    bool some = call_of(c, collective, TWILL_F32, sizes[size]).count > 0;
    return plan->selected[index][size] && some && (collective != TWILL_BENCH_BARRIER || size == 0);
}

/* Measure a candidate of a collective at its sizes. Rank 0 writes the times to c->file. Prints a
 * failure. Collective. */
static twill_status measure_candidate(struct twill_bench_calibration *c,
                                      struct calibration_session *s, size_t collective,
                                      const struct plan *plan, size_t index)
{
    int nodes = twill_comm_nodes(c->comm), widest = twill_comm_local_size(c->comm);
    char what[NAME_BYTES + 64];
    twill_status status = twill_allreduce(c->comm, &widest, &widest, 1, TWILL_I32, TWILL_MAX);
    for (size_t i = 0; i < CALIBRATE_SIZES && status == TWILL_OK; i++) {
        struct twill_bench_subject subject = call_of(c, collective, TWILL_F32, sizes[i]);
        bool nothing = collective == TWILL_BENCH_BARRIER;
        double seconds;
        if (!is_measured(c, collective, plan, index, i))
            continue;
        status = time_both(c, s, &subject, &seconds);
        if (status == TWILL_OK && c->rank == 0)
            fprintf(c->file, "measured %s %s %dx%d %zu %.0f\n", name_of(collective),
                    plan->name[index], nodes, widest, nothing ? (size_t)0 : sizes[i],
                    seconds > 0 ? seconds * 1e12 : 1);
        c->done++;
        snprintf(what, sizeof(what), "%s %s %zu", name_of(collective), plan->name[index], sizes[i]);
        twill_bench_progress_show(&c->progress, c->done, c->total, what);
    }
    if (status != TWILL_OK) {
        twill_bench_progress_clear(&c->progress);
        fprintf(stderr, "twill-bench: --calibrate: %s %s: %s\n", name_of(collective),
                plan->name[index], twill_comm_message(s->comm));
    }
    return status;
}

/* Write what the threads of a rank cost to the file, on rank 0, if ranks have several. They were
 * measured when the context was created. */
static void print_threads(const struct twill_bench_calibration *c)
{
    const char *line;
    for (size_t i = 0; (line = twill_context_why(c->context, "allreduce 8 f32", i)) != NULL; i++) {
        unsigned long long cost[3];
        unsigned threads;
        if (c->rank == 0 && sscanf(line, "curve\t%u\t%llu\t%llu\t%llu", &threads, &cost[0],
                                   &cost[1], &cost[2]) == 4)
            fprintf(c->file,
                    "model threads.%u.fork %llu\nmodel threads.%u.copy %llu\n"
                    "model threads.%u.reduce %llu\n",
                    threads, cost[0], threads, cost[1], threads, cost[2]);
    }
}

/* Measure candidate number `index` of each collective that has so many, in one context that chooses
 * these. Prints a failure. Collective. */
static twill_status measure_together(struct twill_bench_calibration *c, const struct plan *plans,
                                     size_t index)
{
    char override[TWILL_BENCH_COLLECTIVE_COUNT * (NAME_BYTES + 24)] = "";
    size_t used = 0;
    struct calibration_session session;
    for (size_t i = 0; i < TWILL_BENCH_COLLECTIVE_COUNT; i++)
        if (index < plans[i].count)
            used += (size_t)snprintf(override + used, sizeof(override) - used, "%s:%s;", name_of(i),
                                     plans[i].name[index]);
    twill_status status = begin_session(c, override, &session);
    for (size_t i = 0; i < TWILL_BENCH_COLLECTIVE_COUNT && status == TWILL_OK; i++)
        if (index < plans[i].count)
            status = measure_candidate(c, &session, i, &plans[i], index);
    end_session(&session);
    return status;
}

/* Find the candidate algorithms of all calibrated collectives, measure them and write their times
 * to c->file on rank 0. Collective. */
static twill_status measure_tables(struct twill_bench_calibration *c)
{
    struct plan *plans = calloc(TWILL_BENCH_COLLECTIVE_COUNT, sizeof(*plans));
    size_t most = 0;
    twill_status status = plans != NULL ? TWILL_OK : TWILL_ERR_MEMORY;
    for (size_t i = 0; i < TWILL_BENCH_COLLECTIVE_COUNT && status == TWILL_OK; i++) {
        if (!is_calibrated(i))
            continue;
        for (size_t s = 0; s < CALIBRATE_SIZES && sizes[s] <= c->max_bytes; s++)
            query_plan(c, name_of(i), s, c->size > 1 ? " mapped" : "", &plans[i]);
        /* Fetched protocols compete with staged ones here. */
        for (size_t s = 0; s < CALIBRATE_SIZES && sizes[s] <= c->max_bytes && reads_peers(c); s++)
            query_plan(c, name_of(i), s, " fetched", &plans[i]);
        most = plans[i].count > most ? plans[i].count : most;
        for (size_t k = 0; k < plans[i].count * CALIBRATE_SIZES; k++)
            c->total += is_measured(c, i, &plans[i], k / CALIBRATE_SIZES, k % CALIBRATE_SIZES);
    }
    twill_bench_progress_begin(&c->progress, c->rank == 0);
    for (size_t index = 0; index < most && status == TWILL_OK; index++) {
        status = measure_together(c, plans, index);
        twill_bench_progress_clear(&c->progress);
        if (c->rank == 0 && status == TWILL_OK)
            printf("# %zu of %zu\n", index + 1, most);
    }
    free(plans);
    return status;
}

/* Return the words after "for" in a tuning file of this machine, or "" if they are unknown. */
static const char *tuning_key(twill_context *context)
{
    static const char label[] = "tuning key: ";
    const char *line;
    for (size_t i = 0; (line = twill_context_describe(context, i)) != NULL; i++)
        if (strncmp(line, label, strlen(label)) == 0)
            return line + strlen(label);
    return "";
}

/* Write a text to a new file. Fails if the file exists, and leaves that as it is. On another
 * failure removes the new file. Prints why and returns false on failure. */
static bool create_file(const char *path, const char *text, size_t bytes)
{
    FILE *file = fopen(path, "wxe");
    bool good = file != NULL && fwrite(text, 1, bytes, file) == bytes;
    if (file != NULL && fclose(file) != 0)
        good = false;
    if (good)
        return true;
    fprintf(stderr, "twill-bench: --calibrate: %s: %s\n", path, strerror(errno));
    if (file != NULL)
        remove(path);
    return false;
}

/* On rank 0, test that the file `path` can be created, without leaving it, and begin its text in
 * c->file, in memory. Sets *good on all ranks to 1, or to 0 if that failed. Collective. */
static twill_status begin_text(struct twill_bench_calibration *c, const char *path, int32_t *good)
{
    *good = 1;
    if (c->rank == 0) {
        const char *key = tuning_key(c->context);
        *good = create_file(path, "", 0) && remove(path) == 0 &&
                (c->file = open_memstream(&c->text, &c->bytes)) != NULL;
        if (*good)
            fprintf(
                c->file,
                "twill-tuning 1\n# written by twill-bench --calibrate, twill %s, %d rank%s on %d "
                "node%s\n%s%s\nmachine auto\n",
                twill_version(), c->size, TWILL_PLURAL(c->size), twill_comm_nodes(c->comm),
                TWILL_PLURAL(twill_comm_nodes(c->comm)),
                key[0] != '\0' ? "for " : "# for no machine: its CPU is not known", key);
    }
    return twill_broadcast(c->comm, good, good, 1, TWILL_I32, 0);
}

/* On rank 0, write the text to the file `path` if all was `measured`, and free it. Returns false if
 * this rank has a text and it is not written. Other ranks always return true. */
static bool end_text(struct twill_bench_calibration *c, const char *path, bool measured)
{
    bool whole = c->file == NULL || (fclose(c->file) == 0 && measured);
    if (c->file != NULL && measured && !whole)
        fprintf(stderr, "twill-bench: --calibrate: %s: %s\n", path, strerror(ENOMEM));
    if (c->file != NULL && whole && (whole = create_file(path, c->text, c->bytes)))
        printf("# written: %s. Use it with TWILL_TUNING=%s\n", path, path);
    free(c->text);
    return whole;
}

int twill_bench_calibrate(const char *path, size_t max_bytes)
{
    struct twill_bench_calibration c = {.samples = calloc(TWILL_BENCH_SAMPLES, sizeof(double)),
                                        .max_bytes = max_bytes};
    int32_t good = 0;
    twill_status status =
        c.samples != NULL ? twill_context_create(&c.context, NULL, NULL) : TWILL_ERR_MEMORY;
    if (status == TWILL_OK)
        status = twill_comm_create(&c.comm, c.context);
    if (status != TWILL_OK)
        fprintf(stderr, "twill-bench: %s\n", twill_bench_why(NULL, c.context, status));
    c.rank = twill_comm_rank(c.comm);
    c.size = twill_comm_size(c.comm);
    if (status == TWILL_OK)
        status = begin_text(&c, path, &good);
    if (status == TWILL_OK && good)
        status = calibrate_links(&c);
    if (status == TWILL_OK && good)
        print_threads(&c);
    if (status == TWILL_OK && good)
        status = measure_tables(&c);
    if (!end_text(&c, path, status == TWILL_OK && good))
        good = 0;
    free(c.samples);
    twill_comm_destroy(c.comm);
    twill_context_destroy(c.context);
    return status == TWILL_OK && good ? STATUS_GOOD : STATUS_FAILED;
}
