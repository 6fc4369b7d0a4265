/* SPDX-License-Identifier: Apache-2.0 */
/* Counts of a campaign's pushes, in a file. */
#include "tests/system/server/campaign_counts.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CAMPAIGN_RANKS = 16 };

struct campaign_counts {
    _Atomic uint64_t started[CAMPAIGN_RANKS][CAMPAIGN_KEYS], ended[CAMPAIGN_RANKS][CAMPAIGN_KEYS];
    /* One rank reads and writes the rest: the sums when a key was compared last, and the least and
     * the most gradients that its chunks had taken then. */
    uint64_t started_before[CAMPAIGN_KEYS], ended_before[CAMPAIGN_KEYS];
    uint64_t least[CAMPAIGN_KEYS][CAMPAIGN_CHUNKS], most[CAMPAIGN_KEYS][CAMPAIGN_CHUNKS];
};

struct campaign_counts *counts_open(const char *path)
{
    struct campaign_counts *counts = MAP_FAILED;
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file >= 0 && ftruncate(file, sizeof(*counts)) == 0)
        counts = mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0)
        close(file);
    return counts == MAP_FAILED ? NULL : counts;
}

void counts_started(struct campaign_counts *counts, int rank, int key)
{
    atomic_fetch_add(&counts->started[rank][key], 1);
}

void counts_ended(struct campaign_counts *counts, int rank, int key)
{
    atomic_fetch_add(&counts->ended[rank][key], 1);
}

static uint64_t sum(_Atomic uint64_t count[CAMPAIGN_RANKS][CAMPAIGN_KEYS], int key)
{
    uint64_t all = 0;
    for (int r = 0; r < CAMPAIGN_RANKS; r++)
        all += atomic_load(&count[r][key]);
    return all;
}

bool counts_agree(struct campaign_counts *counts, int key, int chunk, uint64_t taken,
                  uint64_t update)
{
    uint64_t *least = &counts->least[key][chunk], *most = &counts->most[key][chunk];
    *least += sum(counts->ended, key) - counts->ended_before[key];
    *most += sum(counts->started, key) - counts->started_before[key];
    if (taken + update - 1 < *least || taken > *most) {
        fprintf(stderr, "chunk %d of key %d has taken %llu gradients, not %llu to %llu\n", chunk,
                key, (unsigned long long)taken, (unsigned long long)*least,
                (unsigned long long)*most);
        return false;
    }
    *least = taken > *least ? taken : *least;
    *most = taken + update - 1 < *most ? taken + update - 1 : *most;
    return true;
}

void counts_settle(struct campaign_counts *counts, int key)
{
    counts->started_before[key] = sum(counts->started, key);
    counts->ended_before[key] = sum(counts->ended, key);
}
