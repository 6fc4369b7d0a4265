/* SPDX-License-Identifier: Apache-2.0 */
/* twill-place: compare the kinds of memory: DDR, MCDRAM or HBM, and CXL, side by side. */
#include "bench/tools/place/place.h"
#include "bench/common/option_table.h"
#include "kernels/kernels.h"
#include "lib/base/plural.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

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

static void close_kind(struct memory_kind *kind)
{
    for (int i = 0; kind->context != NULL && i < PLACE_ARRAYS; i++)
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

/* Return whether all ranks have this kind. A context of one rank each finds out, so that no rank
 * waits for another that lacks it. */
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
        printf("  %9s %6s", place_work_names[work], "ratio");
    printf("\n# %-8s", "");
    for (int work = 0; work < PLACE_WORKS; work++)
        printf("  %9s %6s", "(GB/s)", "to ddr");
    printf("\n");
}

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

static int kind_fail(const struct memory_kind *kind, twill_status status)
{
    fprintf(stderr, "twill-place: %s: %s\n", kind->name,
            twill_bench_why(kind->comm, kind->context, status));
    return 1;
}

/* Measure the kinds that all ranks have, the first, DDR, being open. Sets how many there are, moved
 * to the front. */
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
