/* SPDX-License-Identifier: Apache-2.0 */
/* twill-place: compare the kinds of memory. STREAM's triad, a copy and an allreduce on arrays in
 * DDR and in MCDRAM, side by side. */
#include "bench/common/report.h"
#include "bench/common/try.h"
#include "lib/twill.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "Usage: twill-place [-b SIZE] [-n REPEATS] [-t THREADS]\n"
    "Compare the kinds of memory of this machine: STREAM's triad, a copy, and, on two or more\n"
    "ranks, an allreduce.\n"
    "\n"
    "  -b, --bytes SIZE   size of each of a rank's three arrays (64M); K, M, G are binary\n"
    "  -n, --repeats N    repetitions, whose median is reported (7)\n"
    "  -t, --threads N    OpenMP threads of each rank (1)\n"
    "  -h, --help  -V, --version\n"
    "\n"
    "Exit status: 0 success, also without MCDRAM; 1 a failure; 2 a wrong command "
    "line.\n";

enum { TRIAD, COPY, ALLREDUCE, WORKS };
enum { RESULT, PLACE_LEFT, PLACE_RIGHT, ARRAYS };

struct place_options {
    size_t bytes, repeats, threads;
};

/* One kind of memory with its results, rates in GB/s. */
struct memory_kind {
    const char *name, *memory; /* "ddr", the setting TWILL_MEMORY=... */
    twill_context *context;
    twill_comm *comm;
    void *array[ARRAYS];
    double rates[WORKS];
    int64_t fallbacks; /* allocations of all ranks that were placed elsewhere */
};

struct place_run {
    struct place_options options;
    twill_comm *comm; /* of the first kind: carries the ranks' own messages */
    int rank, size;
    double *samples;
    int64_t wrong; /* elements over all ranks */
};

static twill_status triad(const struct place_run *run, const struct memory_kind *kind)
{
    double *restrict a = kind->array[RESULT];
    const double *restrict b = kind->array[PLACE_LEFT], *restrict c = kind->array[PLACE_RIGHT];
    size_t n = run->options.bytes / sizeof(*a);
#if defined(_OPENMP)
#pragma omp parallel for num_threads((int)run->options.threads) if (run->options.threads > 1)
#endif
    for (size_t i = 0; i < n; i++)
        a[i] = b[i] + 3 * c[i];
    return TWILL_OK;
}

static twill_status copy(const struct place_run *run, const struct memory_kind *kind)
{
    char *to = kind->array[RESULT];
    const char *from = kind->array[PLACE_LEFT];
    size_t threads = run->options.threads, each = run->options.bytes / threads;
#if defined(_OPENMP)
#pragma omp parallel for num_threads((int)threads) if (threads > 1)
#endif
    for (size_t i = 0; i < threads; i++)
        memcpy(to + i * each, from + i * each,
               i + 1 < threads ? each : run->options.bytes - i * each);
    return TWILL_OK;
}

static twill_status reduce(const struct place_run *run, const struct memory_kind *kind)
{
    return twill_allreduce(kind->comm, kind->array[PLACE_LEFT], kind->array[RESULT],
                           run->options.bytes / sizeof(float), TWILL_F32, TWILL_SUM);
}

static const struct place_work {
    twill_status (*run)(const struct place_run *run, const struct memory_kind *kind);
    double traffic; /* bytes moved per byte of an array, as STREAM counts them */
} works[WORKS] = {{triad, 3}, {copy, 2}, {reduce, 1}};

/* Return a small integer, exact in float and different from its neighbours. */
static double input_value(size_t i, int factor)
{
    return (double)(1 + i % 7) * factor;
}

/* Fill the inputs; each thread first touches what it will use. */
static void fill_inputs(const struct place_run *run, const struct memory_kind *kind, int work)
{
    double *a = kind->array[RESULT], *b = kind->array[PLACE_LEFT], *c = kind->array[PLACE_RIGHT];
    float *floats = kind->array[PLACE_LEFT];
    size_t n = run->options.bytes / sizeof(*a);
#if defined(_OPENMP)
#pragma omp parallel for num_threads((int)run->options.threads) if (run->options.threads > 1)
#endif
    for (size_t i = 0; i < n; i++) {
        a[i] = -1;
        b[i] = input_value(i, 1);
        c[i] = input_value(i, 2);
    }
    for (size_t i = 0; work == ALLREDUCE && i < run->options.bytes / sizeof(*floats); i++)
        floats[i] = (float)input_value(i, run->rank + 1);
}

static twill_status check_work(struct place_run *run, const struct memory_kind *kind, int work)
{
    int64_t wrong = 0;
    int sum = run->size * (run->size + 1) / 2;
    size_t n = run->options.bytes / (work == ALLREDUCE ? sizeof(float) : sizeof(double));
    for (size_t i = 0; i < n; i++)
        if (work == ALLREDUCE)
            wrong += ((const float *)kind->array[RESULT])[i] != (float)input_value(i, sum);
        else
            wrong +=
                ((const double *)kind->array[RESULT])[i] != input_value(i, work == TRIAD ? 7 : 1);
    TWILL_BENCH_TRY(twill_allreduce(run->comm, &wrong, &wrong, 1, TWILL_I64, TWILL_SUM));
    run->wrong += wrong;
    return TWILL_OK;
}

/* Run once untimed, then take the median of the slowest rank's times. */
static twill_status measure_work(struct place_run *run, struct memory_kind *kind, int work)
{
    size_t repeats = run->options.repeats;
    fill_inputs(run, kind, work);
    for (size_t i = 0; i <= repeats; i++) {
        TWILL_BENCH_TRY(twill_barrier(run->comm));
        double start = twill_bench_now();
        TWILL_BENCH_TRY(works[work].run(run, kind));
        double seconds = twill_bench_now() - start;
        TWILL_BENCH_TRY(twill_allreduce(run->comm, &seconds, &seconds, 1, TWILL_F64, TWILL_MAX));
        if (i > 0)
            run->samples[i - 1] = seconds;
    }
    double median = twill_bench_statistics(run->samples, repeats).median;
    double ranks = work == ALLREDUCE ? 1 : run->size;
    kind->rates[work] =
        twill_bench_bandwidth(run->options.bytes, median) * works[work].traffic * ranks;
    return check_work(run, kind, work);
}

static twill_status measure_kind(struct place_run *run, struct memory_kind *kind)
{
    twill_counters counters;
    for (int i = 0; i < ARRAYS; i++)
        TWILL_BENCH_TRY(twill_alloc(kind->context, &kind->array[i], run->options.bytes));
    for (int work = 0; work < (run->size > 1 ? WORKS : ALLREDUCE); work++)
        TWILL_BENCH_TRY(measure_work(run, kind, work));
    TWILL_BENCH_TRY(twill_comm_counters(kind->comm, &counters));
    kind->fallbacks = (int64_t)counters.memory_fallbacks;
    return twill_allreduce(run->comm, &kind->fallbacks, &kind->fallbacks, 1, TWILL_I64, TWILL_SUM);
}

static void close_kind(struct memory_kind *kind)
{
    for (int i = 0; kind->context != NULL && i < ARRAYS; i++)
        twill_free(kind->context, kind->array[i]);
    twill_comm_destroy(kind->comm);
    twill_context_destroy(kind->context);
    kind->comm = NULL;
    kind->context = NULL;
}

static twill_status open_kind(struct memory_kind *kind, const struct place_run *run,
                              const twill_bootstrap *bootstrap)
{
    char threads[48];
    /* a job of one rank has no virtual nodes */
    bool alone = bootstrap != NULL && bootstrap->size == 1;
    const char *settings[] = {kind->memory, threads, alone ? "TWILL_LAYOUT=nodes=" : NULL, NULL};
    snprintf(threads, sizeof(threads), "TWILL_THREADS=%zu", run->options.threads);
    TWILL_BENCH_TRY(twill_context_create(&kind->context, bootstrap, settings));
    return twill_comm_create(&kind->comm, kind->context);
}

/* twill_bootstrap's exchange for the second kind's context, over the first's communicator: a sum in
 * which all other ranks' entries are zero. */
static int exchange(void *user, const void *mine, void *all, size_t bytes)
{
    const struct place_run *run = user;
    size_t total = (size_t)run->size * bytes, words = total / sizeof(int32_t) + 1;
    int32_t *sum = calloc(words, sizeof(*sum));
    if (sum == NULL)
        return -1;
    memcpy((char *)sum + (size_t)run->rank * bytes, mine, bytes);
    twill_status status = twill_allreduce(run->comm, sum, sum, words, TWILL_I32, TWILL_SUM);
    memcpy(all, sum, total);
    free(sum);
    return status;
}

/* Return whether all ranks have this kind. A context of one rank each finds out, so that no rank
 * waits for another that lacks it. */
static twill_status find_kind(const struct place_run *run, const struct memory_kind *kind,
                              bool *found)
{
    static const twill_bootstrap alone = {.rank = 0, .size = 1};
    struct memory_kind probe = {.memory = kind->memory};
    int32_t mine = open_kind(&probe, run, &alone) == TWILL_OK, all = mine;
    if (!mine && run->rank == 0)
        printf("# no MCDRAM on this machine: MEMKIND_HBW_NODES=N pretends (%s)\n",
               twill_context_message(probe.context));
    close_kind(&probe);
    TWILL_BENCH_TRY(twill_allreduce(run->comm, &all, &all, 1, TWILL_I32, TWILL_MIN));
    if (run->rank == 0 && mine && !all)
        printf("# no MCDRAM at some of the ranks\n");
    *found = all;
    return TWILL_OK;
}

static void print_header(const struct place_run *run)
{
    const struct place_options *options = &run->options;
    int nodes = twill_comm_nodes(run->comm);
    if (run->rank != 0)
        return;
    printf("# twill-place version %s: %d rank%s on %d node%s, %zu thread%s each, 3 arrays of %zu "
           "bytes, median of %zu\n",
           twill_version(), run->size, run->size == 1 ? "" : "s", nodes, nodes == 1 ? "" : "s",
           options->threads, options->threads == 1 ? "" : "s", options->bytes, options->repeats);
    printf(
        "# triad: a = b + 3c in doubles, plain stores, 24 bytes an element; all ranks together\n"
        "# copy: memcpy, which may store past the caches, 16 bytes an element; all ranks together\n"
        "# allreduce: f32 sum of one array, its bytes over the time\n#\n");
    printf("# %-8s  %10s %8s  %10s %8s  %10s %8s\n", "memory", "triad", "ratio", "copy", "ratio",
           "allreduce", "ratio");
    printf("# %-8s  %10s %8s  %10s %8s  %10s %8s\n", "", "(GB/s)", "to ddr", "(GB/s)", "to ddr",
           "(GB/s)", "to ddr");
}

static void print_kind(const struct place_run *run, const struct memory_kind *kind,
                       const struct memory_kind *base)
{
    if (run->rank != 0)
        return;
    printf("%-10s", kind->name);
    for (int work = 0; work < WORKS; work++)
        if (kind->rates[work] > 0 && base->rates[work] > 0)
            printf("  %10.2f %8.2f", kind->rates[work], kind->rates[work] / base->rates[work]);
        else
            printf("  %10s %8s", "N/A", "N/A");
    printf("\n");
    const char *line;
    for (size_t i = 0; (line = twill_context_describe(kind->context, i)) != NULL; i++)
        if (strncmp(line, "memory for twill_alloc", 22) == 0)
            printf("# %s\n", line);
    if (kind->fallbacks > 0)
        printf("# %s: %lld allocations were placed elsewhere: too little memory of this kind\n",
               kind->name, (long long)kind->fallbacks);
    fflush(stdout);
}

static int kind_fail(const struct memory_kind *kind, twill_status status)
{
    const char *message = kind->comm != NULL ? twill_comm_message(kind->comm) : "";
    if (message[0] == '\0' && kind->context != NULL)
        message = twill_context_message(kind->context);
    fprintf(stderr, "twill-place: %s: %s\n", kind->name,
            message[0] != '\0' ? message : twill_strerror(status));
    return 1;
}

static twill_status compare_kinds(struct place_run *run, struct memory_kind *ddr,
                                  struct memory_kind *mcdram)
{
    bool found;
    run->comm = ddr->comm;
    run->rank = twill_comm_rank(ddr->comm);
    run->size = twill_comm_size(ddr->comm);
    print_header(run);
    TWILL_BENCH_TRY(measure_kind(run, ddr));
    print_kind(run, ddr, ddr);
    TWILL_BENCH_TRY(find_kind(run, mcdram, &found));
    if (!found)
        return TWILL_OK;
    twill_bootstrap bootstrap = {run->rank, run->size, exchange, run};
    TWILL_BENCH_TRY(open_kind(mcdram, run, &bootstrap));
    TWILL_BENCH_TRY(measure_kind(run, mcdram));
    print_kind(run, mcdram, ddr);
    return TWILL_OK;
}

static bool set_place_option(struct place_options *options, int letter, const char *text)
{
    const char *expected = "a size from 4K";
    bool good = false;
    if (letter == 'b') {
        good = twill_bench_parse_size(text, &options->bytes) && options->bytes >= 4096;
        options->bytes &= ~(size_t)63;
    } else if (letter == 'n') {
        expected = "a number from 1 to 100000";
        good = twill_bench_parse_number(text, 1, 100000, &options->repeats);
    } else if (letter == 't') {
        expected = "a number from 1 to 1024";
        good = twill_bench_parse_number(text, 1, 1024, &options->threads);
#if !defined(_OPENMP)
        expected = "1, and this twill was built without OpenMP";
        good = good && options->threads == 1;
#endif
    }
    if (!good && letter != '?')
        fprintf(stderr, "twill-place: -%c: '%s' is not %s\n", letter, text, expected);
    return good;
}

static int parse_place(struct place_options *options, int argc, char **argv)
{
    static const struct option names[] = {
        {"bytes", required_argument, NULL, 'b'},   {"repeats", required_argument, NULL, 'n'},
        {"threads", required_argument, NULL, 't'}, {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},       {NULL, 0, NULL, 0},
    };
    int letter;
    while ((letter = getopt_long(argc, argv, "b:n:t:hV", names, NULL)) != -1) {
        if (letter == 'h')
            fputs(usage, stdout);
        if (letter == 'V')
            printf("twill-place %s\n", twill_version());
        if (letter == 'h' || letter == 'V')
            exit(0);
        if (!set_place_option(options, letter, optarg))
            return 2;
    }
    if (optind < argc)
        fprintf(stderr, "twill-place: unexpected argument: '%s'\n", argv[optind]);
    return optind < argc ? 2 : 0;
}

int main(int argc, char **argv)
{
    struct place_run run = {.options = {.bytes = 64 << 20, .repeats = 7, .threads = 1}};
    struct memory_kind ddr = {.name = "ddr", .memory = "TWILL_MEMORY=ddr,ddr"};
    struct memory_kind mcdram = {.name = "mcdram",
                                 .memory = "TWILL_MEMORY=mcdram:bind,mcdram:bind"};
    int mistake = parse_place(&run.options, argc, argv);
    if (mistake != 0)
        return mistake;
    int result = 0;
    run.samples = calloc(run.options.repeats, sizeof(*run.samples));
    twill_status status = run.samples == NULL ? TWILL_ERR_MEMORY : open_kind(&ddr, &run, NULL);
    if (status == TWILL_OK)
        status = compare_kinds(&run, &ddr, &mcdram);
    if (status != TWILL_OK)
        result = kind_fail(mcdram.context != NULL ? &mcdram : &ddr, status);
    if (run.wrong > 0) {
        fprintf(stderr, "twill-place: %lld values are wrong\n", (long long)run.wrong);
        result = 1;
    }
    close_kind(&mcdram); /* first: it was set up over the other */
    close_kind(&ddr);
    free(run.samples);
    return result;
}
