/* SPDX-License-Identifier: Apache-2.0 */
/* A file has a line that says for what its figures are, the team and the bytes that count as near,
 * and a line for each number of threads. It is written to a temporary file and then renamed, so
 * that readers see all of it. */
#include "lib/job/thread_cache.h"
#include "kernels/kernels.h"
#include "kernels/thread_pool.h"
#include "lib/job/rank_threads.h"
#include "numa/topology.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY_BYTES  512
#define HASH_START 0xcbf29ce484222325u

/* Continue a hash with the bytes of a text. */
static uint64_t add_hash(uint64_t hash, const char *text)
{
    for (const char *c = text; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
    return hash;
}

/* Return a hash of the variables by which threads of OpenMP spin and are placed, or 0 if it lends
 * no threads to this rank. */
static uint64_t hash_openmp(const struct twill_context *context)
{
    static const char *const names[] = {"OMP_WAIT_POLICY",  "KMP_BLOCKTIME", "GOMP_SPINCOUNT",
                                        "OMP_PROC_BIND",    "OMP_PLACES",    "KMP_AFFINITY",
                                        "GOMP_CPU_AFFINITY"};
    uint64_t hash = HASH_START;
    if (!twill_has_openmp(twill_thread_pool_size(context->machine.pool)))
        return 0;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(names); i++) {
        const char *value = getenv(names[i]);
        hash = add_hash(hash, value != NULL ? value : "");
        hash = add_hash(hash, value != NULL ? "=" : " ");
    }
    return hash;
}

/* Write for what this rank's figures are to key[KEY_BYTES]. Returns false if the machine is not
 * known well enough. */
static bool find_key(const struct twill_context *context, char *key)
{
    const struct twill_machine *machine = twill_topology_machine(context->machine.topology);
    const struct twill_context_threads *threads = context->machine.threads;
    char cpus[160] = "any";
    if (!machine->is_this_machine || machine->cpu[0] == '\0')
        return false;
    if (threads->cpus != NULL && twill_cpus_list(threads->cpus, cpus, sizeof(cpus)) < 0)
        return false;
    snprintf(key, KEY_BYTES,
             "threads 2 %s, %s, packages %u, NUMA nodes %u, cores %u, L2 %" PRIu64 ", L3 %" PRIu64
             ", %s%s, %s, threads %u on %s%s, OpenMP %016" PRIx64,
             twill_version(), machine->cpu, machine->packages, machine->numa_nodes, machine->cores,
             machine->l2_bytes, machine->l3_bytes, machine->memory_mode, machine->cluster_mode,
             context->machine.kernels->isa, twill_thread_pool_size(context->machine.pool), cpus,
             threads->shared ? " shared" : "", hash_openmp(context));
    return true;
}

/* Write the path of the file of a key. If `makes`, make its folders. Returns false if there is no
 * directory HOME or the path is too long. */
static bool find_path(char path[PATH_MAX], const char *key, bool makes)
{
    const char *home = getenv("HOME");
    uint64_t hash = add_hash(HASH_START, key);
    if (home == NULL || home[0] != '/' || strlen(home) > PATH_MAX - 64)
        return false;
    snprintf(path, PATH_MAX, "%s/.twill", home);
    if (makes)
        (void)mkdir(path, 0700);
    snprintf(path, PATH_MAX, "%s/.twill/threads", home);
    if (makes)
        (void)mkdir(path, 0700);
    snprintf(path, PATH_MAX, "%s/.twill/threads/%016" PRIx64, home, hash);
    return true;
}

/* Read the figures of a file whose first line is `key`. Returns false if it is another one. */
static bool read_rates(FILE *file, const char *key, struct twill_thread_rates *rates,
                       uint32_t *team)
{
    char line[KEY_BYTES + 2];
    if (fgets(line, sizeof(line), file) == NULL || strncmp(line, key, strlen(key)) != 0 ||
        line[strlen(key)] != '\n' ||
        fscanf(file, "%" SCNu32 " %" SCNu32 "\n", team, &rates->near_bytes) != 2)
        return false;
    for (rates->steps = 0; rates->steps < TWILL_THREAD_STEPS; rates->steps++) {
        struct twill_thread_rate *r = &rates->step[rates->steps];
        if (fscanf(file,
                   "%" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32
                   " %" SCNu32 "\n",
                   &r->threads, &r->fork_join_ns, &r->wake_ns, &r->copy_mbs[0], &r->copy_mbs[1],
                   &r->reduce_mbs[0], &r->reduce_mbs[1]) != 7)
            break;
    }
    return feof(file) != 0 && rates->steps > 0 && *team <= TWILL_TEAM_OPENMP;
}

bool twill_thread_cache_read(const struct twill_context *context, struct twill_thread_rates *rates,
                             uint32_t *team)
{
    char key[KEY_BYTES], path[PATH_MAX];
    FILE *file = find_key(context, key) && find_path(path, key, false) ? fopen(path, "re") : NULL;
    if (file == NULL)
        return false;
    memset(rates, 0, sizeof(*rates));
    bool good = read_rates(file, key, rates, team) && twill_thread_rates_valid(rates);
    fclose(file);
    if (!good)
        memset(rates, 0, sizeof(*rates));
    return good;
}

void twill_thread_cache_write(const struct twill_context *context,
                              const struct twill_thread_rates *rates, uint32_t team)
{
    char key[KEY_BYTES], path[PATH_MAX], temporary[PATH_MAX + 32];
    if (!find_key(context, key) || !find_path(path, key, true))
        return;
    snprintf(temporary, sizeof(temporary), "%s.%ld", path, (long)getpid());
    FILE *file = fopen(temporary, "wxe");
    if (file == NULL)
        return;
    char text[TWILL_THREAD_STEPS * 96] = "";
    size_t length = 0;
    for (uint32_t s = 0; s < rates->steps; s++) {
        const struct twill_thread_rate *r = &rates->step[s];
        length += (size_t)snprintf(text + length, sizeof(text) - length, "%u %u %u %u %u %u %u\n",
                                   r->threads, r->fork_join_ns, r->wake_ns, r->copy_mbs[0],
                                   r->copy_mbs[1], r->reduce_mbs[0], r->reduce_mbs[1]);
    }
    char head[64];
    snprintf(head, sizeof(head), "%u %u\n", team, rates->near_bytes);
    bool good = fputs(key, file) >= 0 && fputc('\n', file) != EOF && fputs(head, file) >= 0 &&
                fputs(text, file) >= 0;
    good = fclose(file) == 0 && good;
    if (!good || rename(temporary, path) != 0)
        (void)unlink(temporary);
}
