/* SPDX-License-Identifier: Apache-2.0 */
/* TWILL_MPI_REPORT: which calls were taken, which were passed on and why, summed over the ranks and
 * written at the end. Each line is "twill-mpi:" and columns, for people and for awk. */
#include "lib/base/plural.h"
#include "lib/mpi/mpi_call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define KIND_COUNT TWILL_MPI_KIND_COUNT
#define FORM_COUNT TWILL_MPI_FORM_COUNT
#define WHY_COUNT  TWILL_MPI_WHY_COUNT

/* Sums for one collective in one form, which is blocking, nonblocking or persistent. Part of struct
 * sums. All members are uint64_t, so that one reduction adds them up. */
struct form_row {
    uint64_t calls[WHY_COUNT]; /* run by twill, or passed on to the MPI for each reason */
    uint64_t ns[2];            /* of calls run by twill, of calls passed on */
    uint64_t bytes;            /* that ranks contributed */
};
/* The counts of one rank, or the sums of all ranks. Part of struct mpi_report. The last three
 * members are of MPI_Alloc_mem(). */
struct sums {
    struct form_row row[KIND_COUNT][FORM_COUNT];
    uint64_t fates[TWILL_MPI_FATE_COUNT];
    uint64_t allocations, bytes, refused;
};
_Static_assert(sizeof(struct sums) % sizeof(uint64_t) == 0, "an array of numbers");

/* The numbers of the report, on the heap until it is written. `all`, `slowest` and `slowest_of_all`
 * are set on rank 0 only. `own_of_all` is this rank's time in all collectives of all forms in ns,
 * and `slowest_of_all` is the largest of these times of all ranks. */
struct mpi_report {
    struct sums mine, all;
    uint64_t slowest[KIND_COUNT][FORM_COUNT],
        own[KIND_COUNT][FORM_COUNT]; /* ns of the slowest rank, and of this rank */
    uint64_t slowest_of_all, own_of_all;
};

const char *const twill_mpi_kind_names[] = {
#define NAME(name, lower) #name,
    TWILL_MPI_KINDS(NAME)
#undef NAME
};
static const char *const why_names[] = {
#define NAME(name, text) text,
    TWILL_MPI_REASONS(NAME)
#undef NAME
};
static const char *const fate_names[] = {
#define NAME(name, text) text,
    TWILL_MPI_FATES(NAME)
#undef NAME
};

/* Return the sum of `size` counts, which are MPI_Count if `large`, else int. NULL has the sum 0. */
static uint64_t sum_of(const void *counts, bool large, int size)
{
    uint64_t sum = 0;
    for (int r = 0; counts != NULL && r < size; r++)
        sum += (uint64_t)twill_mpi_number(counts, large, r);
    return sum;
}

/* Return the size of a type in bytes, or 0 if it is invalid. */
static uint64_t type_bytes(MPI_Datatype type)
{
    struct twill_mpi_type storage;
    const struct twill_mpi_type *found = twill_mpi_type_find(type, &storage);
    return found != NULL ? (uint64_t)found->size : 0;
}

/* Return the bytes that this rank contributes, summed over its parts if each rank gets one. Returns
 * 0 for a barrier, and on a rank that only receives. */
static uint64_t bytes_given(const struct twill_mpi_call *call, int rank, int size)
{
    const bool by_root = call->kind == TWILL_MPI_Bcast || call->kind == TWILL_MPI_Scatter ||
                         call->kind == TWILL_MPI_Scatterv;
    if (call->kind == TWILL_MPI_Barrier || (by_root && rank != call->root))
        return 0; /* the send arguments are not set, or not significant */
    const struct twill_mpi_end *end = call->send.buffer == MPI_IN_PLACE ? &call->recv : &call->send;
    const uint64_t one = type_bytes(end->type), shard = (uint64_t)end->count * one;
    switch (call->kind) {
    case TWILL_MPI_Reduce_scatter_block:
    case TWILL_MPI_Scatter:
    case TWILL_MPI_Alltoall:
        return shard * (uint64_t)size;
    case TWILL_MPI_Reduce_scatter:
        return sum_of(call->recv.counts, call->large, size) * one;
    case TWILL_MPI_Scatterv:
    case TWILL_MPI_Alltoallv:
        return sum_of(end->counts, call->large, size) * one;
    case TWILL_MPI_Allgatherv:
    case TWILL_MPI_Gatherv:
        if (end == &call->send)
            return shard;
        return end->counts == NULL || rank >= size
                   ? 0
                   : (uint64_t)twill_mpi_number(end->counts, call->large, rank) * one;
    default:
        return shard;
    }
}

void twill_mpi_measure(const struct twill_mpi_call *call, enum twill_mpi_why why, uint64_t ticks)
{
    struct twill_mpi_tally *tally = &twill_mpi.tally[call->kind][call->form];
    struct twill_mpi_comm *comm = twill_mpi_comm_find(call->comm);
    twill_mpi_add(&tally->ticks[why != TWILL_MPI_WHY_TAKEN], ticks);
    /* The size of unknown communicators and refused arguments must not be asked for. */
    if (comm != NULL && why != TWILL_MPI_WHY_ERRONEOUS && why != TWILL_MPI_WHY_INTER)
        twill_mpi_add(&tally->bytes, bytes_given(call, comm->rank, comm->size));
}

/* Set this rank's part of *report from the counters of the process. */
static void collect_report(struct mpi_report *report)
{
    uint64_t ticks = twill_ticks() - twill_mpi.start.ticks;
    double ns = ticks > 0 ? (double)(twill_now() - twill_mpi.start.ns) / (double)ticks : 0;
    for (int k = 0; k < KIND_COUNT; k++)
        for (int f = 0; f < FORM_COUNT; f++) {
            struct twill_mpi_tally *tally = &twill_mpi.tally[k][f];
            struct form_row *row = &report->mine.row[k][f];
            for (int w = 0; w < WHY_COUNT; w++)
                row->calls[w] = atomic_load(&tally->calls[w]);
            for (int i = 0; i < 2; i++) {
                row->ns[i] = (uint64_t)((double)atomic_load(&tally->ticks[i]) * ns);
                report->own[k][f] += row->ns[i];
            }
            row->bytes = atomic_load(&tally->bytes);
            report->own_of_all += report->own[k][f];
        }
    memcpy(report->mine.fates, twill_mpi.comms.fates, sizeof(report->mine.fates));
    report->mine.allocations = atomic_load(&twill_mpi.memory.allocations);
    report->mine.bytes = atomic_load(&twill_mpi.memory.bytes);
    report->mine.refused = atomic_load(&twill_mpi.memory.refused);
}

/* On rank 0, set report->all to the sums of the numbers of all ranks. Set `slowest` and
 * `slowest_of_all` to the longest time that any rank spent. Also give all ranks the failure message
 * of the lowest rank that has one. Collective. */
static void sum_up(struct mpi_report *report)
{
    MPI_Comm comm = twill_mpi.shadow;
    PMPI_Reduce(&report->mine, &report->all, sizeof(report->all) / sizeof(uint64_t), MPI_UINT64_T,
                MPI_SUM, 0, comm);
    PMPI_Reduce(report->own, report->slowest, KIND_COUNT * FORM_COUNT, MPI_UINT64_T, MPI_MAX, 0,
                comm);
    PMPI_Reduce(&report->own_of_all, &report->slowest_of_all, 1, MPI_UINT64_T, MPI_MAX, 0, comm);
    twill_mpi_share_text(twill_mpi.comms.failure, sizeof(twill_mpi.comms.failure));
}

void twill_mpi_form_name(enum twill_mpi_kind kind, enum twill_mpi_form form, char *name,
                         size_t bytes)
{
    const char *text = twill_mpi_kind_names[kind];
    if (form == TWILL_MPI_NONBLOCKING)
        snprintf(name, bytes, "I%c%s", text[0] | 0x20, text + 1);
    else
        snprintf(name, bytes, "%s%s", text, form == TWILL_MPI_PERSISTENT ? "_init" : "");
}

/* Return the number of calls that were left to the MPI, for any reason. */
static uint64_t passed_on(const struct form_row *row)
{
    uint64_t sum = 0;
    for (int w = 0; w < WHY_COUNT; w++)
        sum += w != TWILL_MPI_WHY_TAKEN ? row->calls[w] : 0;
    return sum;
}

/* Write the sums of one call as a line. `slowest` is the time of the slowest rank in ns. */
static void write_row(FILE *file, const char *name, const struct form_row *row, uint64_t slowest)
{
    char line[192];
    twill_print(line, sizeof(line), "twill-mpi: %-25s %10llu %10llu %14llu %9.3f %9.3f %9.3f\n",
                name, (unsigned long long)row->calls[TWILL_MPI_WHY_TAKEN],
                (unsigned long long)passed_on(row), (unsigned long long)row->bytes,
                (double)row->ns[0] * 1e-9, (double)row->ns[1] * 1e-9, (double)slowest * 1e-9);
    fputs(line, file);
}

/* Write the table of calls. It has one line for each form of a collective that any rank has called,
 * such as Iallreduce, and a line "all" with their sums. */
static void write_calls(FILE *file, const struct mpi_report *report)
{
    struct form_row total = {{0}, {0}, 0};
    char name[40];
    fprintf(file, "twill-mpi: %-25s %10s %10s %14s %9s %9s %9s\n", "call", "taken", "passed_on",
            "bytes", "s_taken", "s_passed", "s_slowest");
    for (int k = 0; k < KIND_COUNT; k++)
        for (int f = 0; f < FORM_COUNT; f++) {
            const struct form_row *row = &report->all.row[k][f];
            for (int w = 0; w < WHY_COUNT; w++)
                total.calls[w] += row->calls[w];
            for (int i = 0; i < 2; i++)
                total.ns[i] += row->ns[i];
            total.bytes += row->bytes;
            twill_mpi_form_name(k, f, name, sizeof(name));
            if (row->calls[TWILL_MPI_WHY_TAKEN] + passed_on(row) > 0)
                write_row(file, name, row, report->slowest[k][f]);
        }
    write_row(file, "all", &total, report->slowest_of_all);
}

/* Write why calls were passed on, and how many. Writes nothing if none was. */
static void write_reasons(FILE *file, const struct mpi_report *report)
{
    char name[40];
    bool any = false;
    for (int k = 0; k < KIND_COUNT; k++)
        for (int f = 0; f < FORM_COUNT; f++)
            for (int w = 0; w < WHY_COUNT; w++) {
                uint64_t calls = report->all.row[k][f].calls[w];
                if (w == TWILL_MPI_WHY_TAKEN || calls == 0)
                    continue;
                if (!any)
                    fprintf(file, "twill-mpi:\ntwill-mpi: %-25s %10s  why\n", "passed on", "calls");
                any = true;
                twill_mpi_form_name(k, f, name, sizeof(name));
                fprintf(file, "twill-mpi: %-25s %10llu  %s\n", name, (unsigned long long)calls,
                        why_names[w]);
            }
}

/* Write the fates of communicators, and the memory of MPI_Alloc_mem(), if there were any. */
static void write_rest(FILE *file, const struct mpi_report *report)
{
    const struct sums *all = &report->all;
    bool any = all->allocations + all->refused > 0;
    for (int f = 0; f < TWILL_MPI_FATE_COUNT; f++)
        any = any || all->fates[f] > 0;
    if (any)
        fprintf(file, "twill-mpi:\n");
    for (int f = 0; f < TWILL_MPI_FATE_COUNT; f++)
        if (all->fates[f] > 0)
            fprintf(file, "twill-mpi: %-25s %10llu  %s%s%s\n", "communicators",
                    (unsigned long long)all->fates[f], fate_names[f],
                    f == TWILL_MPI_FATE_FAILED ? ": " : "",
                    f == TWILL_MPI_FATE_FAILED ? twill_mpi.comms.failure : "");
    if (all->allocations + all->refused > 0)
        fprintf(file, "twill-mpi: %-25s %10llu  allocations, %llu bytes in all, by MPI_Alloc_mem\n",
                "memory", (unsigned long long)all->allocations, (unsigned long long)all->bytes);
    if (all->refused > 0)
        fprintf(file, "twill-mpi: %-25s %10llu  left to the MPI\n", "memory",
                (unsigned long long)all->refused);
}

/* Shorten a text like "MPICH Version: 4.0.2, ..." to name and version. */
static void shorten_version(char *version)
{
    static const char noise[] = "Version:";
    version[strcspn(version, ",\n")] = '\0';
    char *from = strstr(version, noise);
    if (from == NULL)
        return;
    char *number = from + sizeof(noise) - 1;
    number += strspn(number, " \t");
    memmove(from, number, strlen(number) + 1);
}

/* Write the whole report to an open file. */
static void write_report(FILE *file, const struct mpi_report *report)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0, size = 0;
    PMPI_Get_library_version(version, &length);
    shorten_version(version);
    PMPI_Comm_size(twill_mpi.shadow, &size);
    fprintf(file, "twill-mpi: %d rank%s, twill %s over %s: %s%s\n", size, TWILL_PLURAL(size),
            twill_version(), version,
            twill_mpi.off[0] != '\0' ? "nothing is taken: " : "collectives are taken",
            twill_mpi.off);
    write_calls(file, report);
    write_reasons(file, report);
    write_rest(file, report);
}

/* Write the report to the file that TWILL_MPI_REPORT names. Writes to standard error if that names
 * none (unset, empty, 0 or 1) or the file cannot be opened. */
static void deliver_report(const struct mpi_report *report)
{
    const char *name = getenv("TWILL_MPI_REPORT");
    bool is_name =
        name != NULL && *name != '\0' && strcmp(name, "0") != 0 && strcmp(name, "1") != 0;
    FILE *file = is_name ? fopen(name, "w") : stderr;
    if (file == NULL) {
        twill_mpi_say("TWILL_MPI_REPORT=%s cannot be written: %m", name);
        file = stderr;
    }
    write_report(file, report);
    if (file != stderr && fclose(file) != 0)
        twill_mpi_say("TWILL_MPI_REPORT=%s cannot be written: %m", name);
}

void twill_mpi_report(void)
{
    int rank = 0;
    if (!twill_mpi.reports)
        return;
    struct mpi_report *report = calloc(1, sizeof(*report));
    int lacks = report == NULL;
    twill_mpi_most(twill_mpi.shadow, &lacks, 1);
    if (!lacks) {
        collect_report(report);
        sum_up(report);
        PMPI_Comm_rank(twill_mpi.shadow, &rank);
        if (rank == 0)
            deliver_report(report);
    }
    free(report);
}
