/* SPDX-License-Identifier: Apache-2.0 */
/* twill-place compares the kinds of memory, which are DDR, MCDRAM or HBM, and CXL. */
#include "bench/common/option_table.h"
#include "bench/common/report.h"
#include "bench/common/tool_calls.h"
#include "kernels/kernels.h"
#include "lib/base/plural.h"
#include "lib/twill.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

enum {
    PLACE_TRIAD,
    PLACE_COPY,
    PLACE_REDUCE,
    PLACE_ALLREDUCE,
    PLACE_SEND,
    PLACE_RECEIVE,
    PLACE_SCRATCH,
    PLACE_WORKS
};
enum { PLACE_RESULT, PLACE_LEFT, PLACE_RIGHT, PLACE_ARRAYS };
enum { PLACE_KINDS = 3 };

/* The command line, part of struct place_run. Bytes are those of each array of a rank, threads are
 * those of a rank. */
struct place_options {
    size_t bytes, repeats, threads;
    const char *plot; /* file, or NULL */
};

/* A kind of memory, a variable of main() or find_kind(). open_kind() and measure_kind() make what
 * it has, and close_kind() frees that. Rates are in GB/s, 0 if not measured. */
struct memory_kind {
    const char *name, *title, *memory; /* "ddr", "DDR", and the setting TWILL_MEMORY=... */
    twill_context *context;
    twill_comm *comm;          /* NULL if not open */
    void *array[PLACE_ARRAYS]; /* from twill_alloc() */
    double rates[PLACE_WORKS];
    int64_t fallbacks; /* allocations of all ranks that were placed elsewhere */
};

/* The state of a run on one rank. There is one, in main(), which frees what it has. */
struct place_run {
    struct place_options options;
    const struct twill_kernels *kernels;
    twill_comm *comm; /* of the first kind, for messages of the ranks themselves */
    int rank, size;
    void *plain[2];  /* from malloc, sent and received in the columns that place only one thing */
    double *samples; /* seconds of each repetition */
    int64_t wrong;   /* wrong elements so far, of all ranks */
};

/* Set kind->array[PLACE_RESULT] to kind->array[PLACE_LEFT] plus three times
 * kind->array[PLACE_RIGHT], as doubles, as STREAM's triad does. A run() of struct place_work, which
 * ignores `work` and always returns TWILL_OK. */
static twill_status triad(const struct place_run *run, const struct memory_kind *kind, int work)
{
    (void)work;
    double *restrict a = kind->array[PLACE_RESULT];
    const double *restrict b = kind->array[PLACE_LEFT], *restrict c = kind->array[PLACE_RIGHT];
    size_t n = run->options.bytes / sizeof(*a);
#if defined(_OPENMP)
#pragma omp parallel for num_threads((int)run->options.threads) if (run->options.threads > 1)
#endif
    for (size_t i = 0; i < n; i++)
        a[i] = b[i] + 3 * c[i];
    return TWILL_OK;
}

/* Copy kind->array[PLACE_LEFT] to kind->array[PLACE_RESULT] with memcpy(). A run() of struct
 * place_work, which ignores `work` and always returns TWILL_OK. */
static twill_status copy(const struct place_run *run, const struct memory_kind *kind, int work)
{
    (void)work;
    char *to = kind->array[PLACE_RESULT];
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

/* Set kind->array[PLACE_RESULT] to the sum of kind->array[PLACE_LEFT] and kind->array[PLACE_RIGHT],
 * as floats, with the kernel of twill that collectives use. A run() of struct place_work, which
 * ignores `work` and always returns TWILL_OK. */
static twill_status reduce(const struct place_run *run, const struct memory_kind *kind, int work)
{
    (void)work;
    float *result = kind->array[PLACE_RESULT];
    const float *left = kind->array[PLACE_LEFT], *right = kind->array[PLACE_RIGHT];
    size_t threads = run->options.threads, count = run->options.bytes / sizeof(float);
#if defined(_OPENMP)
#pragma omp parallel for num_threads((int)threads) if (threads > 1)
#endif
    for (size_t i = 0; i < threads; i++) {
        size_t first = i * (count / threads);
        const void *sources[] = {left + first, right + first};
        twill_kernels_reduce_raw(run->kernels, TWILL_F32, TWILL_SUM, result + first, sources, 2,
                                 i + 1 < threads ? count / threads : count - first, 1, 0, NULL);
    }
    return TWILL_OK;
}

/* Return the buffer that the allreduce of column `work` sends. For PLACE_RECEIVE and PLACE_SCRATCH
 * it is from malloc(), otherwise it is memory of the kind. */
static void *sent_of(const struct place_run *run, const struct memory_kind *kind, int work)
{
    return work == PLACE_RECEIVE || work == PLACE_SCRATCH ? run->plain[0] : kind->array[PLACE_LEFT];
}

/* Return the buffer that the allreduce of column `work` fills. For PLACE_SEND and PLACE_SCRATCH it
 * is from malloc(), otherwise it is memory of the kind. */
static void *result_of(const struct place_run *run, const struct memory_kind *kind, int work)
{
    return work == PLACE_SEND || work == PLACE_SCRATCH ? run->plain[1] : kind->array[PLACE_RESULT];
}

/* Sum floats over all ranks for column `work`. Returns the status. Memory of the kind are both
 * buffers and the library's scratch for PLACE_ALLREDUCE, the sent buffer for PLACE_SEND, the filled
 * one for PLACE_RECEIVE, and the scratch for PLACE_SCRATCH. All else is from malloc() or DDR. */
static twill_status sum_up(const struct place_run *run, const struct memory_kind *kind, int work)
{
    return twill_allreduce(work == PLACE_SEND || work == PLACE_RECEIVE ? run->comm : kind->comm,
                           sent_of(run, kind, work), result_of(run, kind, work),
                           run->options.bytes / sizeof(float), TWILL_F32, TWILL_SUM);
}

static const char *const work_names[PLACE_WORKS] = {"triad", "copy",    "reduce", "allreduce",
                                                    "send",  "receive", "scratch"};

/* How a column of the table is measured, in a constant table. */
static const struct place_work {
    twill_status (*run)(const struct place_run *run, const struct memory_kind *kind, int work);
    double traffic; /* bytes moved per byte of an array, as STREAM counts them */
} works[PLACE_WORKS] = {{triad, 3},  {copy, 2},   {reduce, 3}, {sum_up, 1},
                        {sum_up, 1}, {sum_up, 1}, {sum_up, 1}};

/* Return element i of an input, a small integer times `factor`, which is exact in float. */
static double input_value(size_t i, int factor)
{
    return (double)(1 + i % 7) * factor;
}

/* Fill the left and right arrays of a kind, and what column `work` sends, with known values, and
 * the array or buffer for its result with -1. Each thread first touches what it will use. */
static void fill_inputs(const struct place_run *run, const struct memory_kind *kind, int work)
{
    double *a = kind->array[PLACE_RESULT], *b = kind->array[PLACE_LEFT],
           *c = kind->array[PLACE_RIGHT];
    float *left = work < PLACE_ALLREDUCE ? kind->array[PLACE_LEFT] : sent_of(run, kind, work);
    float *right = kind->array[PLACE_RIGHT];
    double *result = work < PLACE_ALLREDUCE ? a : result_of(run, kind, work);
    size_t n = run->options.bytes / sizeof(*a);
#if defined(_OPENMP)
#pragma omp parallel for num_threads((int)run->options.threads) if (run->options.threads > 1)
#endif
    for (size_t i = 0; i < n; i++) {
        result[i] = -1;
        b[i] = input_value(i, 1);
        c[i] = input_value(i, 2);
    }
    for (size_t i = 0; work >= PLACE_REDUCE && i < run->options.bytes / sizeof(*left); i++) {
        left[i] = (float)input_value(i, work == PLACE_REDUCE ? 1 : run->rank + 1);
        if (work == PLACE_REDUCE)
            right[i] = (float)input_value(i, 2);
    }
}

/* Check the array or buffer that column `work` has filled, and add the wrong elements of all ranks
 * to run->wrong. Collective. Returns TWILL_OK, or the error of the exchange. */
static twill_status check_work(struct place_run *run, const struct memory_kind *kind, int work)
{
    int64_t wrong = 0;
    int sum = work == PLACE_REDUCE ? 3 : run->size * (run->size + 1) / 2;
    size_t n = run->options.bytes / (work >= PLACE_REDUCE ? sizeof(float) : sizeof(double));
    const void *result =
        work < PLACE_ALLREDUCE ? kind->array[PLACE_RESULT] : result_of(run, kind, work);
    for (size_t i = 0; i < n; i++)
        if (work >= PLACE_REDUCE)
            wrong += ((const float *)result)[i] != (float)input_value(i, sum);
        else
            wrong += ((const double *)result)[i] != input_value(i, work == PLACE_TRIAD ? 7 : 1);
    TWILL_BENCH_TRY(twill_allreduce(run->comm, &wrong, &wrong, 1, TWILL_I64, TWILL_SUM));
    run->wrong += wrong;
    return TWILL_OK;
}

/* Measure column `work`, and store its rate in kind->rates[work], in GB/s. Each repetition counts
 * with the time of the slowest rank, and the rate is by the median of these. Wrong elements of the
 * last result are added to run->wrong, and are no error. Collective. */
static twill_status measure_work(struct place_run *run, struct memory_kind *kind, int work)
{
    size_t repeats = run->options.repeats;
    fill_inputs(run, kind, work);
    for (size_t i = 0; i <= repeats; i++) {
        TWILL_BENCH_TRY(twill_barrier(run->comm));
        double start = twill_bench_now();
        TWILL_BENCH_TRY(works[work].run(run, kind, work));
        double seconds = twill_bench_now() - start;
        TWILL_BENCH_TRY(twill_allreduce(run->comm, &seconds, &seconds, 1, TWILL_F64, TWILL_MAX));
        if (i > 0)
            run->samples[i - 1] = seconds;
    }
    double median = twill_bench_statistics(run->samples, repeats).median;
    double ranks = work >= PLACE_ALLREDUCE ? 1 : run->size;
    kind->rates[work] =
        twill_bench_bandwidth(run->options.bytes, median) * works[work].traffic * ranks;
    return check_work(run, kind, work);
}

/* Allocate the arrays of a kind of memory, which close_kind() frees, and measure all columns, or
 * only the first three if there is one rank. Sets kind->fallbacks to how many allocations of all
 * ranks got other memory. Collective. */
static twill_status measure_kind(struct place_run *run, struct memory_kind *kind)
{
    twill_counters counters;
    for (int i = 0; i < PLACE_ARRAYS; i++)
        TWILL_BENCH_TRY(twill_alloc(kind->context, &kind->array[i], run->options.bytes));
    for (int work = 0; work < (run->size > 1 ? PLACE_WORKS : PLACE_ALLREDUCE); work++)
        TWILL_BENCH_TRY(measure_work(run, kind, work));
    TWILL_BENCH_TRY(twill_comm_counters(kind->comm, &counters));
    kind->fallbacks = (int64_t)counters.memory_fallbacks;
    return twill_allreduce(run->comm, &kind->fallbacks, &kind->fallbacks, 1, TWILL_I64, TWILL_SUM);
}

#define PLOT_LEFT   60.0
#define PLOT_WIDTH  760.0
#define PLOT_TOP    40.0
#define PLOT_HEIGHT 240.0

/* Return the GB/s of kinds[kind] in column `work` over those of DDR, kinds[0], or 0 if DDR was not
 * measured in it. */
static double ratio_of(const struct memory_kind *kinds, size_t kind, int work)
{
    double base = kinds[0].rates[work];
    return base > 0 ? kinds[kind].rates[work] / base : 0;
}

/* Write the bars of the plot as SVG, one for each kind in each column, and their labels. A bar is
 * as high as the ratio to DDR, and a ratio of `most` fills the height. */
static void draw_bars(FILE *out, const struct memory_kind *kinds, size_t count, double most)
{
    static const char *const colours[PLACE_KINDS] = {"#8c8c8c", "#d6604d", "#2166ac"};
    double group = PLOT_WIDTH / PLACE_WORKS, bar = group * 0.8 / (double)count;
    for (int work = 0; work < PLACE_WORKS; work++) {
        double x = PLOT_LEFT + group * (work + 0.1);
        for (size_t k = 0; k < count; k++) {
            double ratio = ratio_of(kinds, k, work), height = PLOT_HEIGHT * ratio / most;
            fprintf(out,
                    "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\">"
                    "<title>%s %s: %.2f GB/s</title></rect>\n",
                    x + bar * (double)k, PLOT_TOP + PLOT_HEIGHT - height, bar, height, colours[k],
                    kinds[k].name, work_names[work], kinds[k].rates[work]);
        }
        fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
                x + group * 0.4, PLOT_TOP + PLOT_HEIGHT + 18, work_names[work]);
    }
    for (size_t k = 0; k < count; k++)
        fprintf(out, "<text x=\"%.1f\" y=\"22\" fill=\"%s\">%s</text>\n",
                PLOT_LEFT + 90 * (double)k, colours[k], kinds[k].name);
}

/* Replace the file `path` by an SVG of the GB/s of all kinds over those of DDR. Returns false after
 * a message on failure. */
static bool plot_kinds(const char *path, const struct memory_kind *kinds, size_t count)
{
    double most = 1;
    for (size_t k = 0; k < count; k++)
        for (int work = 0; work < PLACE_WORKS; work++)
            most = ratio_of(kinds, k, work) > most ? ratio_of(kinds, k, work) : most;
    FILE *out = fopen(path, "w");
    if (out == NULL) {
        fprintf(stderr, "twill-place: -p: %s: %s\n", path, strerror(errno));
        return false;
    }
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
            "font-family=\"sans-serif\" font-size=\"13\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            PLOT_LEFT + PLOT_WIDTH + 20, PLOT_TOP + PLOT_HEIGHT + 40);
    for (int tick = 0; tick <= (int)most; tick++)
        fprintf(out,
                "<line x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#cccccc\"/>"
                "<text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%d</text>\n",
                PLOT_LEFT, PLOT_LEFT + PLOT_WIDTH, PLOT_TOP + PLOT_HEIGHT * (1 - tick / most),
                PLOT_TOP + PLOT_HEIGHT * (1 - tick / most), PLOT_LEFT - 8,
                PLOT_TOP + PLOT_HEIGHT * (1 - tick / most) + 4, tick);
    draw_bars(out, kinds, count, most);
    fprintf(out,
            "<text x=\"%.0f\" y=\"22\" text-anchor=\"end\">rate over that of ddr</text>\n</svg>\n",
            PLOT_LEFT + PLOT_WIDTH);
    bool good = fclose(out) == 0;
    if (!good)
        fprintf(stderr, "twill-place: -p: %s: could not be written\n", path);
    return good;
}

/* Free the arrays and destroy the communicator and context of a kind, as far as they exist. The
 * struct itself is a variable of the caller. */
static void close_kind(struct memory_kind *kind)
{
    for (int i = 0; kind->context != NULL && i < PLACE_ARRAYS; i++)
        twill_free(kind->context, kind->array[i]);
    twill_comm_destroy(kind->comm);
    twill_context_destroy(kind->context);
    kind->comm = NULL;
    kind->context = NULL;
}

/* Create the context and communicator of a kind. If `bootstrap` is NULL, the job's is used.
 * Collective over its ranks. What was made before a failure stays in `kind` for close_kind(). */
static twill_status open_kind(struct memory_kind *kind, const struct place_run *run,
                              const twill_bootstrap *bootstrap)
{
    char threads[48];
    bool alone = bootstrap != NULL && bootstrap->size == 1; /* without virtual nodes */
    const char *settings[] = {kind->memory, threads, alone ? "TWILL_LAYOUT=nodes=" : NULL, NULL};
    snprintf(threads, sizeof(threads), "TWILL_THREADS=%zu", run->options.threads);
    TWILL_BENCH_TRY(twill_context_create(&kind->context, bootstrap, settings));
    return twill_comm_create(&kind->comm, kind->context);
}

/* Set *found to whether all ranks have this kind, with a message if not. Each rank tries it in a
 * context of one rank, so that no rank waits for another that lacks it. Collective. */
static twill_status find_kind(const struct place_run *run, const struct memory_kind *kind,
                              bool *found)
{
    static const twill_bootstrap alone = {.rank = 0, .size = 1};
    struct memory_kind probe = {.memory = kind->memory};
    int32_t mine = open_kind(&probe, run, &alone) == TWILL_OK, all = mine;
    if (!mine && run->rank == 0)
        printf("# no %s on this machine%s (%s)\n", kind->title,
               strcmp(kind->name, "mcdram") == 0 ? ": MEMKIND_HBW_NODES=N pretends" : "",
               twill_context_message(probe.context));
    close_kind(&probe);
    TWILL_BENCH_TRY(twill_allreduce(run->comm, &all, &all, 1, TWILL_I32, TWILL_MIN));
    if (run->rank == 0 && mine && !all)
        printf("# no %s at some of the ranks\n", kind->title);
    *found = all;
    return TWILL_OK;
}

/* Print what is measured and the titles of the table, on rank 0. */
static void print_header(const struct place_run *run)
{
    const struct place_options *options = &run->options;
    int nodes = twill_comm_nodes(run->comm);
    if (run->rank != 0)
        return;
    printf("# twill-place version %s: %d rank%s on %d node%s, %zu thread%s each, 3 arrays of %zu "
           "bytes, median of %zu\n",
           twill_version(), run->size, TWILL_PLURAL(run->size), nodes, TWILL_PLURAL(nodes),
           options->threads, TWILL_PLURAL(options->threads), options->bytes, options->repeats);
    printf(
        "# triad: a = b + 3c in doubles, plain stores, 24 bytes an element; all ranks together\n"
        "# copy: memcpy, which may store past the caches, 16 bytes an element; all ranks together\n"
        "# reduce: twill's sum of two arrays of f32, 12 bytes an element; all ranks together\n"
        "# allreduce: f32 sum of one array, its bytes over the time; send, receive, scratch: only\n"
        "#   what is sent, what is received or the library's memory is of this kind, the rest DDR\n"
        "#\n# %-8s",
        "memory");
    for (int work = 0; work < PLACE_WORKS; work++)
        printf("  %9s %6s", work_names[work], "ratio");
    printf("\n# %-8s", "");
    for (int work = 0; work < PLACE_WORKS; work++)
        printf("  %9s %6s", "(GB/s)", "to ddr");
    printf("\n");
}

/* Print the row of a kind, with its ratios to `base`, on rank 0. */
static void print_kind(const struct place_run *run, const struct memory_kind *kind,
                       const struct memory_kind *base)
{
    if (run->rank != 0)
        return;
    printf("%-10s", kind->name);
    for (int work = 0; work < PLACE_WORKS; work++)
        if (kind->rates[work] > 0 && base->rates[work] > 0)
            printf("  %9.2f %6.2f", kind->rates[work], kind->rates[work] / base->rates[work]);
        else
            printf("  %9s %6s", "N/A", "N/A");
    printf("\n");
    const char *line;
    for (size_t i = 0; (line = twill_context_describe(kind->context, i)) != NULL; i++)
        if (strncmp(line, "memory for twill_alloc", 22) == 0)
            printf("# %s\n", line);
    if (kind->fallbacks > 0)
        printf("# %s: %lld allocation%s placed elsewhere: too little memory of this kind\n",
               kind->name, (long long)kind->fallbacks, TWILL_PLURAL(kind->fallbacks));
    fflush(stdout);
}

/* Print why a call with this kind of memory failed. Returns 1, an exit status. */
static int kind_fail(const struct memory_kind *kind, twill_status status)
{
    fprintf(stderr, "twill-place: %s: %s\n", kind->name,
            twill_bench_why(kind->comm, kind->context, status));
    return 1;
}

/* Open the kinds of memory that all ranks have, measure them and print their rows. The first one,
 * DDR, is open already. Sets *count to their number, also after an error, and leaves them open in
 * the first *count entries, for the caller to close. Entries of other kinds may be overwritten. */
static twill_status compare_kinds(struct place_run *run, struct memory_kind *kinds, size_t *count)
{
    struct memory_kind *ddr = kinds;
    run->comm = ddr->comm;
    run->rank = twill_comm_rank(ddr->comm);
    run->size = twill_comm_size(ddr->comm);
    print_header(run);
    TWILL_BENCH_TRY(measure_kind(run, ddr));
    print_kind(run, ddr, ddr);
    *count = 1;
    for (size_t k = 1; k < PLACE_KINDS; k++) {
        bool found;
        TWILL_BENCH_TRY(find_kind(run, &kinds[k], &found));
        if (!found)
            continue;
        struct memory_kind *kind = &kinds[*count];
        *kind = (struct memory_kind){
            .name = kinds[k].name, .title = kinds[k].title, .memory = kinds[k].memory};
        twill_bootstrap bootstrap = twill_bench_bootstrap(run->comm);
        ++*count;
        TWILL_BENCH_TRY(open_kind(kind, run, &bootstrap));
        TWILL_BENCH_TRY(measure_kind(run, kind));
        print_kind(run, kind, ddr);
    }
    return TWILL_OK;
}

static const char usage[] =
    "Usage: twill-place [-b SIZE] [-n REPEATS] [-t THREADS] [-p FILE]\n"
    "Compare the kinds of memory of this machine: STREAM's triad, a copy, twill's sum\n"
    "of two arrays, and, on two or more ranks, allreduces: all in this kind, or only\n"
    "what is sent, what is received, or the library's scratch.\n"
    "\n"
    "  -b, --bytes SIZE   size of each of a rank's three arrays (64M); K, M, G are\n"
    "                     binary\n"
    "  -n, --repeats N    repetitions, whose median is reported (7)\n"
    "  -t, --threads N    OpenMP threads of each rank (1)\n"
    "  -p, --plot FILE    draw the ratios to DDR as SVG; replaces it\n"
    "  -h, --help  -V, --version\n"
    "\n"
    "Exit status: 0 success, also without MCDRAM; 1 a failure; 2 a wrong command\n"
    "line.\n";

/* Parse a size of at least 4 KiB into `member`, a size_t, rounded down to a multiple of 64. Returns
 * false if it is no such size. */
static bool read_bytes(void *member, const char *text)
{
    size_t *bytes = member;
    bool good = twill_bench_parse_size(text, bytes) && *bytes >= 4096;
    *bytes &= ~(size_t)63;
    return good;
}

#if defined(_OPENMP)
#define PLACE_THREADS 1024, "a number from 1 to 1024"
#else
#define PLACE_THREADS 1, "1, and this twill was built without OpenMP"
#endif

/* Read the command line. Returns 0, or 2 after a message. Exits with 0 after help or version. */
static int parse_place(struct place_options *options, int argc, char **argv)
{
#define PLACE_AT(member) offsetof(struct place_options, member)
    static const struct twill_option table[] = {
        {'b', "bytes", OPTION_OWN, PLACE_AT(bytes), 0, 0, "a size from 4K", read_bytes, 0},
        {'n', "repeats", OPTION_COUNT, PLACE_AT(repeats), 1, 100000, "a number from 1 to 100000",
         NULL, 0},
        {'t', "threads", OPTION_COUNT, PLACE_AT(threads), 1, PLACE_THREADS, NULL, 0},
        {'p', "plot", OPTION_TEXT, PLACE_AT(plot), 0, 0, NULL, NULL, 0},
    };
    const struct twill_command command = {"twill-place", usage, table,
                                          sizeof(table) / sizeof(table[0])};
    enum twill_parsed parsed = twill_options_parse(&command, options, argc, argv, true);
    if (parsed == TWILL_PARSED_DONE)
        exit(0);
    if (parsed == TWILL_PARSED_RUN && optind < argc)
        fprintf(stderr, "twill-place: unexpected argument: '%s'\n", argv[optind]);
    return parsed != TWILL_PARSED_RUN || optind < argc ? 2 : 0;
}

/* Allocate the samples and the buffers from malloc(), which main() frees. Returns false if out of
 * memory. */
static bool allocate_run(struct place_run *run)
{
    size_t bytes = run->options.bytes;
    run->samples = calloc(run->options.repeats, sizeof(*run->samples));
    bool good = run->samples != NULL;
    for (size_t i = 0; i < sizeof(run->plain) / sizeof(*run->plain) && good; i++) {
        run->plain[i] = bytes < (size_t)1 << 46 ? malloc(bytes) : NULL;
        good = run->plain[i] != NULL;
    }
    return good;
}

/* Compare the kinds of memory and print a table. Returns 0, 1 after a failure, or 2 if misused. */
int main(int argc, char **argv)
{
    struct place_run run = {.options = {.bytes = 64 << 20, .repeats = 7, .threads = 1}};
    struct memory_kind kinds[PLACE_KINDS] = {
        {.name = "ddr", .title = "DDR", .memory = "TWILL_MEMORY=ddr,ddr"},
        {.name = "mcdram", .title = "MCDRAM", .memory = "TWILL_MEMORY=mcdram:bind,mcdram:bind"},
        {.name = "cxl", .title = "CXL", .memory = "TWILL_MEMORY=cxl:bind,cxl:bind"}};
    size_t count = 1;
    int mistake = parse_place(&run.options, argc, argv);
    if (mistake != 0)
        return mistake;
    int result = 0;
    (void)twill_kernels_select(&run.kernels, NULL, NULL); /* some run everywhere */
    twill_status status = open_kind(&kinds[0], &run, NULL);
    if (status == TWILL_OK && !allocate_run(&run)) {
        fprintf(stderr, "twill-place: ddr: no memory for two times %zu bytes\n", run.options.bytes);
        result = 1;
    } else if (status == TWILL_OK) {
        status = compare_kinds(&run, kinds, &count);
    }
    if (status != TWILL_OK)
        result = kind_fail(&kinds[count - 1], status);
    if (run.wrong > 0) {
        fprintf(stderr, "twill-place: wrong values: %lld\n", (long long)run.wrong);
        result = 1;
    }
    if (result == 0 && run.rank == 0 && run.options.plot != NULL &&
        !plot_kinds(run.options.plot, kinds, count))
        result = 1;
    while (count-- > 0) /* the others were set up over the first */
        close_kind(&kinds[count]);
    free(run.samples);
    for (size_t i = 0; i < sizeof(run.plain) / sizeof(*run.plain); i++)
        free(run.plain[i]);
    return result;
}
