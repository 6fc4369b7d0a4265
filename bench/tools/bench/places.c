/* SPDX-License-Identifier: Apache-2.0 */
/* Where each rank runs: the lines of the header, exchanged by the library under test. */
#include "bench/tools/bench/bench_run.h"
#include "lib/base/plural.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* FNV-1a of the kernel's boot id; containers of one host share it, and the clock. */
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
