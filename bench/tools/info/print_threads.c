/* SPDX-License-Identifier: Apache-2.0 */
/* twill-info --threads draws which thread of which rank works on which core. The functions that
 * bind ranks and place threads decide, so it also shows described machines.
 *
 * twill-info --gradient-threads makes a gradient set, whose description says where its threads run.
 */
#include "bench/tools/info/info.h"

#include "lib/base/plural.h"
#include "lib/twill_train.h"
#include "numa/topology.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CELL_BYTES = 48, ROW_CELLS = 8, EXAMPLE_MIB = 64 };

/* One rank of the drawing, which ranks of a job send to rank 0. */
struct drawn_rank {
    struct twill_cpus cpus;
    unsigned threads, cores;
    char host[64], memory[192], about[192]; /* nearest memory, and its own line about threads */
};

/* A core of the drawing, by one of its PUs, and what works there. */
struct drawn_core {
    struct twill_place place;
    unsigned number; /* Linux's number of its first PU */
    char cell[CELL_BYTES];
};

/* Append the NUMA nodes of a kind that are nearest to the CPUs that the topology locates, as "0 and
 * 1 (DDR, 96.0 GiB)". */
static void add_memory(const struct twill_machine *machine, enum twill_memory_kind kind,
                       const char *name, char *text, size_t bytes)
{
    uint64_t capacity = 0;
    size_t used = strlen(text);
    const char *link = used > 0 ? ", " : "";
    bool any = false;
    for (unsigned i = 0; i < machine->numa_nodes && used < bytes; i++) {
        if (!machine->numa[i].local || machine->numa[i].kind != kind)
            continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s%u", any ? " and " : link,
                                 machine->numa[i].os_index);
        capacity += machine->numa[i].bytes;
        any = true;
    }
    if (any && used < bytes)
        used += (size_t)snprintf(text + used, bytes - used, " (%s", name);
    if (any && used < bytes && capacity > 0)
        used +=
            (size_t)snprintf(text + used, bytes - used, ", %.1f GiB", (double)capacity / (1 << 30));
    if (any && used < bytes)
        snprintf(text + used, bytes - used, ")");
}

/* Fill in rank->memory for the CPUs that the topology locates, and the number of the rank's cores,
 * and of its threads unless they are given. */
static void complete_rank(const struct twill_topology *topology, struct drawn_rank *rank)
{
    const struct twill_machine *machine = twill_topology_machine(topology);
    rank->cores = twill_topology_threads(topology, &rank->cpus, 0, NULL);
    if (rank->threads == 0)
        rank->threads = rank->cores;
    rank->memory[0] = '\0';
    add_memory(machine, TWILL_KIND_MCDRAM, "MCDRAM", rank->memory, sizeof(rank->memory));
    add_memory(machine, TWILL_KIND_DDR, "DDR", rank->memory, sizeof(rank->memory));
    add_memory(machine, TWILL_KIND_CXL, "CXL", rank->memory, sizeof(rank->memory));
}

/* Append to the cells of the cores which threads of a rank work there. */
static void place_threads(const struct twill_topology *topology, struct drawn_core *core,
                          unsigned cores, const struct drawn_rank *rank, int number)
{
    int *pu = calloc(rank->threads + 1, sizeof(*pu));
    if (pu == NULL || twill_topology_threads(topology, &rank->cpus, rank->threads, pu) == 0) {
        free(pu);
        return;
    }
    for (unsigned t = 0; t < rank->threads; t++) {
        struct twill_place place;
        twill_topology_place_pu(topology, (unsigned)pu[t], &place);
        for (unsigned c = 0; c < cores; c++) {
            char *cell = core[c].cell;
            size_t used = strlen(cell);
            if (core[c].place.core != place.core)
                continue;
            if (t > 0 && used > 0 && strchr(cell, ':') != NULL)
                snprintf(cell + used, CELL_BYTES - used, ",%u", t);
            else
                snprintf(cell + used, CELL_BYTES - used, "%d:%u", number, t);
        }
    }
    free(pu);
}

/* Print a line for a level that changes, "  NUMA node 0", at its depth. */
static void print_level(const char *name, int unit, int before, int depth)
{
    if (unit >= 0 && unit != before)
        printf("%*s%s %d\n", 2 * depth, "", name, unit);
}

/* Return whether the first core of another package, NUMA node or L3 cache follows. */
static bool begins_unit(const struct drawn_core *core, const struct drawn_core *before)
{
    return core->place.package != before->place.package || core->place.numa != before->place.numa ||
           core->place.l3 != before->place.l3;
}

/* Draw all cores, in rows under their package, NUMA node and L3 cache. A bar ends a tile. */
static void draw_cores(const struct twill_machine *machine, const struct drawn_core *core,
                       unsigned cores)
{
    int width = 1;
    const struct drawn_core none = {.place = {-1, -1, -1, -1, -1, -1, 0, 0}};
    for (unsigned c = 0; c < cores; c++)
        width = (int)strlen(core[c].cell) > width ? (int)strlen(core[c].cell) : width;
    for (unsigned c = 0, column = 0; c < cores; c++, column++) {
        const struct drawn_core *before = c > 0 ? &core[c - 1] : &none;
        if (c == 0 || begins_unit(&core[c], before)) {
            printf("%s", c > 0 ? "\n" : "");
            print_level("package", core[c].place.package, before->place.package, 1);
            if (core[c].place.package != before->place.package)
                before = &none;
            int node = core[c].place.numa; /* by Linux's number, as below */
            if (node >= 0 && node != before->place.numa)
                print_level("NUMA node", (int)machine->numa[node].os_index, -1, 2);
            print_level("L3 cache", core[c].place.l3, before->place.l3, 3);
            column = 0;
        } else if (column == ROW_CELLS) {
            printf("\n");
            column = 0;
        }
        if (column == 0)
            printf("        PU %-4u", core[c].number);
        bool tile =
            c + 1 < cores && core[c].place.l2 >= 0 && core[c].place.l2 == core[c + 1].place.l2;
        printf(" %-*s%s", width, core[c].cell[0] != '\0' ? core[c].cell : ".", tile ? "" : " |");
    }
    printf("\n");
}

/* Print for each rank its threads, their shares and its memory. */
static void print_ranks(const struct drawn_rank *rank, int ranks)
{
    char list[256];
    for (int r = 0; r < ranks; r++) {
        (void)twill_cpus_list(&rank[r].cpus, list, sizeof(list));
        printf("rank %d: %u thread%s on %u core%s, CPUs %s", r, rank[r].threads,
               TWILL_PLURAL(rank[r].threads), rank[r].cores, TWILL_PLURAL(rank[r].cores), list);
        printf(rank[r].memory[0] != '\0' ? "; nearest NUMA nodes: %s\n" : "\n", rank[r].memory);
        if (rank[r].about[0] != '\0')
            printf("  %s\n", rank[r].about);
    }
}

/* Draw the machine and its ranks. Returns 0, or 1 after a message. */
static int draw(const struct twill_topology *topology, const struct drawn_rank *rank, int ranks)
{
    const struct twill_machine *machine = twill_topology_machine(topology);
    struct twill_cpus cpus;
    twill_topology_cpus(topology, &cpus);
    for (int r = 0; r < ranks; r++)
        for (size_t w = 0; w < sizeof(cpus.word) / sizeof(cpus.word[0]); w++)
            cpus.word[w] |= rank[r].cpus.word[w];
    unsigned cores = twill_topology_threads(topology, &cpus, 0, NULL);
    struct drawn_core *core = calloc((size_t)cores + 1, sizeof(*core));
    int *pu = calloc((size_t)cores + 1, sizeof(*pu));
    if (core == NULL || pu == NULL || cores == 0) {
        fprintf(stderr, "twill-info: --threads: no memory, or no cores\n");
        free(core);
        free(pu);
        return 1;
    }
    twill_topology_threads(topology, &cpus, cores, pu);
    for (unsigned c = 0; c < cores; c++) {
        core[c].number = (unsigned)pu[c];
        twill_topology_place_pu(topology, core[c].number, &core[c].place);
    }
    for (int r = 0; r < ranks; r++)
        place_threads(topology, core, cores, &rank[r], r);
    printf("%s%s%s: %u core%s", machine->source, machine->model[0] != '\0' ? ", " : "",
           machine->model, cores, TWILL_PLURAL(cores));
    printf(machine->memory_mode[0] != '\0' ? ", mode %s %s\n" : "\n", machine->memory_mode,
           machine->cluster_mode);
    printf("each cell is a core, RANK:THREADS or . if no thread works there; | ends a tile (L2)\n");
    draw_cores(machine, core, cores);
    print_ranks(rank, ranks);
    unsigned threads = rank[0].threads;
    printf("thread t of %u has part t of each large message, in the order of the data: of %d MiB "
           "%.4g MiB\n",
           threads, EXAMPLE_MIB, (double)EXAMPLE_MIB / threads);
    if (!machine->is_this_machine)
        printf("from which size several threads pay is measured on the machine itself\n");
    free(core);
    free(pu);
    return 0;
}

/* Get what this rank sends to rank 0: where it may run, its nearest memory and its own description.
 * `threads` is 0 for as many as it has. */
static void describe_self(const struct twill_topology *topology, twill_context *context,
                          unsigned threads, struct drawn_rank *rank)
{
    const char *line;
    memset(rank, 0, sizeof(*rank));
    rank->threads = threads;
    (void)gethostname(rank->host, sizeof(rank->host) - 1);
    twill_topology_cpus(topology, &rank->cpus);
    for (size_t i = 0; (line = twill_context_describe(context, i)) != NULL; i++)
        if (strncmp(line, "threads: ", 9) == 0 && rank->about[0] == '\0')
            snprintf(rank->about, sizeof(rank->about), "%s", line);
    if (threads == 0 && rank->about[0] != '\0') /* "threads: one" or "threads: 4" */
        rank->threads = twill_max((unsigned)strtoul(rank->about + 9, NULL, 10), 1);
    complete_rank(topology, rank);
}

int twill_info_draw_job(twill_context *context, twill_comm *comm, unsigned threads)
{
    struct twill_topology *topology = NULL;
    struct twill_error error = {0};
    int size = twill_comm_size(comm), here = 0, result = 0;
    struct drawn_rank mine, *all = calloc((size_t)size, sizeof(*all));
    memset(&mine, 0, sizeof(mine));
    if (twill_topology_open(&topology, NULL, &error) == TWILL_OK)
        describe_self(topology, context, threads, &mine);
    if (all == NULL || twill_allgather(comm, &mine, all, sizeof(mine), TWILL_U8) != TWILL_OK) {
        fprintf(stderr, "twill-info: --threads: %s\n", twill_comm_message(comm));
        result = 1;
    } else if (topology == NULL) {
        fprintf(stderr, "twill-info: --threads: %s\n", error.message);
        result = 1;
    } else if (twill_comm_rank(comm) == 0) {
        for (int r = 0; r < size; r++) /* the ranks of this host, which are the first ones */
            if (r == here && strcmp(all[r].host, mine.host) == 0)
                here++;
        result = draw(topology, all, here);
    }
    twill_topology_close(topology);
    free(all);
    return result;
}

/* Bind the ranks of a described machine as twillrun does, into rank[ranks]. */
static twill_status bind_drawn(struct twill_topology *topology, struct drawn_rank *rank,
                               unsigned ranks, unsigned threads, struct twill_error *error)
{
    struct twill_cpus *cpus = calloc(ranks, sizeof(*cpus));
    if (cpus == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory for %u ranks", ranks);
    twill_status status =
        threads > 0 ? twill_topology_bind_each(topology, ranks, threads, false, cpus, error)
                    : twill_topology_bind(topology, ranks, TWILL_BOUND_TO_CORES, cpus, error);
    for (unsigned r = 0; r < ranks && status == TWILL_OK; r++) {
        char list[512];
        rank[r].cpus = cpus[r];
        rank[r].threads = threads;
        if (!twill_topology_machine(topology)->is_this_machine &&
            twill_cpus_list(&cpus[r], list, sizeof(list)) < (int)sizeof(list))
            status = twill_topology_locate(topology, list, error);
        complete_rank(topology, &rank[r]);
    }
    if (status == TWILL_OK && !twill_topology_machine(topology)->is_this_machine)
        status = twill_topology_locate(topology, NULL, error);
    free(cpus);
    return status;
}

int twill_info_draw_machine(const char *file, unsigned ranks, unsigned threads)
{
    struct twill_topology *topology = NULL;
    struct twill_error error = {0};
    struct drawn_rank *rank = calloc(ranks, sizeof(*rank));
    twill_status status =
        rank == NULL ? TWILL_ERR_MEMORY : twill_topology_open(&topology, file, &error);
    if (status == TWILL_OK)
        status = bind_drawn(topology, rank, ranks, threads, &error);
    int result = status == TWILL_OK ? draw(topology, rank, (int)ranks) : 1;
    if (status != TWILL_OK)
        fprintf(stderr, "twill-info: --threads: %s\n", error.message);
    twill_topology_close(topology);
    free(rank);
    return result;
}

#define THREAD_LINE_BYTES 512u

/* Make and commit a set with a tensor for each thread. The caller destroys *set in any case. */
static twill_status make_set(twill_gradients **set, twill_comm *comm, int threads)
{
    twill_gradients_options options;
    twill_gradients_defaults(&options);
    options.threads = threads;
    options.bucket_bytes = 0; /* a bucket for each */
    twill_status status = twill_gradients_create(set, comm, &options);
    for (int t = 0; status == TWILL_OK && t < threads; t++) {
        char name[24];
        snprintf(name, sizeof(name), "tensor %d", t);
        const twill_tensor tensor = {.name = name, .count = 1, .type = TWILL_F32};
        status = twill_gradients_add(*set, &tensor, NULL);
    }
    return status == TWILL_OK ? twill_gradients_commit(*set) : status;
}

/* Print `line`, "thread N: PLACE, PLACE; ENDPOINT", as a branch of a tree, with a line for each
 * place and one for the thread. Leaves out the first places if `before`, the line printed before it
 * or NULL, has the same. */
static void print_branch(const char *line, const char *before)
{
    int indent = 1;
    bool differs = false;
    const char *end = strstr(line, "; ");
    size_t length = end != NULL ? (size_t)(end - line) : strlen(line);
    for (const char *at = strchr(line, ':') + 2; at < line + length; indent++) {
        size_t level = strcspn(at, ",;");
        if ((size_t)(at - line) + level > length)
            level = length - (size_t)(at - line);
        differs |= before == NULL || strncmp(before + (at - line), at, level) != 0;
        if (differs)
            printf("%*s%.*s\n", 2 * indent, "", (int)level, at);
        at += level;
        at += strspn(at, ", ");
    }
    printf("%*s%.*s%s%s\n", 2 * indent, "", (int)strcspn(line, ":"), line,
           end != NULL ? " -> " : "", end != NULL ? end + 2 : "");
}

/* Print the tree of where a rank's threads run. `lines` has a text of THREAD_LINE_BYTES bytes for
 * each of `threads` threads. */
static void print_rank(int rank, const char *lines, int threads)
{
    const char *before = NULL;
    printf("rank %d: %d communication thread%s\n", rank, threads, TWILL_PLURAL(threads));
    for (int t = 0; t < threads; t++) {
        const char *line = lines + (size_t)t * THREAD_LINE_BYTES;
        print_branch(line, before);
        before = line;
    }
}

int twill_bench_print_threads(twill_comm *comm, int threads)
{
    twill_gradients *set = NULL;
    size_t bytes = (size_t)threads * THREAD_LINE_BYTES, found = 0;
    char *mine = calloc(1, bytes), *all = calloc((size_t)twill_comm_size(comm), bytes);
    twill_status status =
        mine != NULL && all != NULL ? make_set(&set, comm, threads) : TWILL_ERR_MEMORY;
    const char *line;
    for (size_t i = 0; status == TWILL_OK && (line = twill_gradients_describe(set, i)) != NULL; i++)
        if (strncmp(line, "thread ", 7) == 0 && found < (size_t)threads)
            snprintf(mine + THREAD_LINE_BYTES * found++, THREAD_LINE_BYTES, "%s", line);
    if (status == TWILL_OK)
        status = twill_allgather(comm, mine, all, bytes, TWILL_U8);
    for (int r = 0; status == TWILL_OK && twill_comm_rank(comm) == 0 && r < twill_comm_size(comm);
         r++)
        print_rank(r, all + (size_t)r * bytes, threads);
    if (status != TWILL_OK)
        fprintf(stderr, "twill-info: --gradient-threads: %s\n",
                set != NULL ? twill_gradients_message(set) : twill_comm_message(comm));
    twill_gradients_destroy(set);
    free(mine);
    free(all);
    return status == TWILL_OK ? 0 : 1;
}
