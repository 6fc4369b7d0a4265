/* SPDX-License-Identifier: Apache-2.0 */
/* Where each rank runs, exchanged by the library under test, and the energy of the machines.
 * With --energy, the first rank of each machine reads its counters before and after the timed
 * calls. Virtual nodes, and hosts that are namespaces, share the counters of their machine. */
#include "bench/tools/bench/bench_run.h"
#include "lib/base/plural.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Return a hash (FNV-1a) of the kernel's boot id. Containers of a host share it and the clock. */
static uint64_t hash_boot_id(void)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    int c;
    while (file != NULL && (c = fgetc(file)) != EOF)
        hash = (hash ^ (uint64_t)c) * UINT64_C(0x100000001b3);
    if (file != NULL)
        fclose(file);
    return hash;
}

twill_status twill_bench_locate(struct twill_bench_run *run)
{
    run->places = calloc((size_t)run->world_size, sizeof(*run->places));
    if (run->places == NULL)
        return TWILL_ERR_MEMORY;
    struct twill_bench_place *mine = &run->places[run->world_rank];
    mine->rank = run->world_rank;
    mine->node = twill_comm_node(run->world);
    mine->local_rank = twill_comm_local_rank(run->world);
    mine->pid = getpid();
    mine->boot_id = hash_boot_id();
    gethostname(mine->host, sizeof(mine->host) - 1);
    /* All other entries are zero on this rank, so a sum gathers them. */
    size_t words = (size_t)run->world_size * sizeof(*run->places) / sizeof(int32_t);
    twill_status status =
        twill_allreduce(run->world, run->places, run->places, words, TWILL_I32, TWILL_SUM);
    run->one_clock = status == TWILL_OK;
    for (int rank = 0; rank < run->world_size; rank++)
        run->one_clock &= run->places[rank].boot_id == mine->boot_id;
    return status;
}

void twill_bench_print_places(FILE *out, const struct twill_bench_run *run)
{
    enum { PLACES_SHOWN = 64 };
    fprintf(out, "# Ranks %d on %d node%s\n", run->world_size, twill_comm_nodes(run->world),
            TWILL_PLURAL(twill_comm_nodes(run->world)));
    for (int rank = 0; rank < run->world_size && rank < PLACES_SHOWN; rank++) {
        const struct twill_bench_place *place = &run->places[rank];
        fprintf(out, "#  Rank %2d Pid %6d on %10s node %2d local rank %2d\n", place->rank,
                place->pid, place->host, place->node, place->local_rank);
    }
    if (run->world_size > PLACES_SHOWN)
        fprintf(out, "#  ... and %d more\n", run->world_size - PLACES_SHOWN);
}

/* Return whether no lower rank runs on the machine of this rank. */
static bool first_of_machine(const struct twill_bench_run *run, int rank)
{
    for (int other = 0; other < rank; other++)
        if (run->places[other].boot_id == run->places[rank].boot_id)
            return false;
    return true;
}

/* Find the energy counters of this machine and allocate run->meters.own for them. If there are
 * none, own is NULL and meters.says has the reason, which is no failure. Returns TWILL_OK or
 * TWILL_ERR_MEMORY. */
static twill_status open_meter(struct twill_bench_run *run)
{
    const char *sysfs = run->options.measures.sysfs != NULL ? run->options.measures.sysfs : "/sys";
    run->meters.own = calloc(1, sizeof(*run->meters.own));
    if (run->meters.own == NULL)
        return TWILL_ERR_MEMORY;
    if (twill_energy_open(run->meters.own, sysfs)) {
        twill_energy_describe(run->meters.own, run->meters.says, sizeof(run->meters.says));
        return TWILL_OK;
    }
    snprintf(run->meters.says, sizeof(run->meters.says), "%s", run->meters.own->message);
    free(run->meters.own);
    run->meters.own = NULL;
    return TWILL_OK;
}

twill_status twill_bench_energy_open(struct twill_bench_run *run)
{
    bool first = first_of_machine(run, run->world_rank);
    twill_status status = first ? open_meter(run) : TWILL_OK;
    int64_t counts[3] = {first, run->meters.own != NULL, status != TWILL_OK};
    TWILL_BENCH_TRY(twill_allreduce(run->world, counts, counts, 3, TWILL_I64, TWILL_SUM));
    run->meters.machines = (size_t)counts[0];
    run->meters.count = (size_t)counts[1];
    if (run->world_rank == 0 && run->meters.own == NULL && run->options.report.csv)
        fprintf(stderr, "twill-bench: --energy: %s\n", run->meters.says);
    return counts[2] > 0 ? TWILL_ERR_MEMORY : TWILL_OK;
}

/* Read the meter, or set known to false without one. The first failure of a run is printed. */
static void read_meter(struct twill_bench_run *run, struct twill_energy_reading *reading)
{
    *reading = (struct twill_energy_reading){.known = false};
    if (!run->options.measures.energy || run->meters.own == NULL)
        return;
    bool good = twill_energy_read(run->meters.own, twill_bench_now(), reading);
    if (good || run->meters.own->gaps > 1)
        return;
    twill_bench_progress_clear(&run->work.progress);
    fprintf(stderr, "twill-bench: --energy: %s\n", run->meters.own->message);
}

void twill_bench_energy_begin(struct twill_bench_run *run, struct twill_energy_reading *from)
{
    read_meter(run, from);
}

twill_status twill_bench_energy_end(struct twill_bench_run *run,
                                    const struct twill_energy_reading *from,
                                    struct twill_bench_energy *energy)
{
    enum { SECONDS, WATTS, KNOWN, CPU_KNOWN, MEMORY_KNOWN, JOULES };
    double sums[JOULES + TWILL_ENERGY_PARTS] = {0};
    struct twill_energy_reading to;
    *energy = (struct twill_bench_energy){.machines = 0};
    if (!run->options.measures.energy)
        return TWILL_OK;
    read_meter(run, &to);
    if (run->meters.own != NULL && twill_energy_between(from, &to, &sums[JOULES], &sums[SECONDS])) {
        sums[WATTS] = sums[JOULES + TWILL_ENERGY_ALL] / sums[SECONDS];
        sums[KNOWN] = 1;
        sums[CPU_KNOWN] = run->meters.own->parts >> TWILL_ENERGY_CPU & 1;
        sums[MEMORY_KNOWN] = run->meters.own->parts >> TWILL_ENERGY_MEMORY & 1;
    }
    TWILL_BENCH_TRY(twill_allreduce(run->world, sums, sums, sizeof(sums) / sizeof(sums[0]),
                                    TWILL_F64, TWILL_SUM));
    double machines = (double)run->meters.machines;
    *energy = (struct twill_bench_energy){
        .machines = run->meters.machines,
        .ranks = (size_t)run->world_size,
        .known = sums[KNOWN] >= machines,
        .seconds = sums[SECONDS] / machines,
        .joules = sums[JOULES + TWILL_ENERGY_ALL],
        .watts = sums[WATTS],
        .cpu = sums[CPU_KNOWN] >= machines ? sums[JOULES + TWILL_ENERGY_CPU] : -1,
        .memory = sums[MEMORY_KNOWN] >= machines ? sums[JOULES + TWILL_ENERGY_MEMORY] : -1};
    return TWILL_OK;
}

void twill_bench_print_energy_source(FILE *out, const struct twill_bench_run *run)
{
    fprintf(out, "# energy: %s%s", run->meters.own == NULL ? "n/a: " : "", run->meters.says);
    if (run->meters.own != NULL && run->meters.count < run->meters.machines)
        fprintf(out, "; n/a, as %zu of %zu machines have no counters",
                run->meters.machines - run->meters.count, run->meters.machines);
    fprintf(out, "\n");
}

void twill_bench_print_energy(FILE *out, const struct twill_bench_energy *energy)
{
    struct twill_bench_shares shares = twill_bench_shares(energy);
    if (energy->known)
        fprintf(out, "# of the steps: %.6g J and %.6g W a node, %.6g J and %.6g W a rank\n",
                shares.machine_joules, shares.machine_watts, shares.rank_joules, shares.rank_watts);
    else
        fprintf(out, "# of the steps: energy n/a\n");
}
