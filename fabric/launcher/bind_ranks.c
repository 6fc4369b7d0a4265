/* SPDX-License-Identifier: Apache-2.0 */
/* Binds the ranks of this host to cores, within the CPUs that this process may use. */
#include "fabric/launcher/launcher.h"
#include "lib/base/plural.h"
#include "numa/topology.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void leave_unbound(struct twill_launch *launch, const char *format, ...) TWILL_PRINTF(2, 3);

/* Bind no rank, and write the reason to launch->unbound, which is printed once for each job. */
static void leave_unbound(struct twill_launch *launch, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    twill_print_list(launch->unbound, sizeof(launch->unbound), format, list);
    va_end(list);
    free(launch->cpus);
    launch->cpus = NULL;
}

void twill_launch_unbind(struct twill_launch *launch, int rank, int cause)
{
    if (rank == launch->child[0].rank)
        leave_unbound(launch, "ranks are not bound: sched_setaffinity: %s", strerror(cause));
    else
        leave_unbound(launch, "rank %d and those after it are not bound: sched_setaffinity: %s",
                      rank, strerror(cause));
}

/* Append ", NAME UNIT" at text[used] unless UNIT is negative (several). Returns the text's length,
 * which may exceed `bytes`. */
static size_t add_unit(char *text, size_t bytes, size_t used, const char *name, int unit)
{
    if (unit < 0 || used >= bytes)
        return used;
    return used + (size_t)snprintf(text + used, bytes - used, ", %s %d", name, unit);
}

/* Print to standard error the CPUs of each rank of this host, how many cores these are, and which
 * package, NUMA node and L3 cache they are in. An unbound rank has all CPUs that twillrun may use.
 */
static void report_binding(const struct twill_launch *launch, const struct twill_topology *topology)
{
    char host[256] = "", list[512], where[128];
    (void)gethostname(host, sizeof(host) - 1);
    for (int i = 0; i < launch->first; i++) {
        struct twill_cpus here;
        struct twill_units units;
        twill_topology_cpus(topology, &here);
        const struct twill_cpus *cpus = launch->cpus ? &launch->cpus[i] : &here;
        twill_topology_units(topology, cpus, &units);
        unsigned cores = twill_topology_threads(topology, cpus, 0, NULL);
        size_t used =
            (size_t)snprintf(where, sizeof(where), ", %u core%s", cores, TWILL_PLURAL(cores));
        used = add_unit(where, sizeof(where), used, "package", units.package);
        used = add_unit(where, sizeof(where), used, "NUMA", units.numa);
        used = add_unit(where, sizeof(where), used, "L3", units.l3);
        where[used < sizeof(where) ? used : 0] = '\0';
        (void)twill_cpus_list(cpus, list, sizeof(list));
        twill_complain("rank %d on %s: %s CPUs %s%s", launch->child[i].rank, host,
                       launch->cpus ? "bound to" : "not bound,", list, where);
    }
}

/* Choose the CPUs of each rank, or leave all ranks unbound and record the reason. No reason is
 * recorded if --oversubscribe allows more ranks than cores. */
static void choose_binding(struct twill_launch *launch, const struct twill_topology *topology)
{
    static const enum twill_bound_to to[] = {
        [TWILL_BIND_L3] = TWILL_BOUND_TO_L3,
        [TWILL_BIND_NUMA] = TWILL_BOUND_TO_NUMA,
        [TWILL_BIND_PACKAGE] = TWILL_BOUND_TO_PACKAGE,
    };
    struct twill_error error = {0};
    enum twill_bind bind = launch->options->bind.to;
    unsigned ranks = (unsigned)launch->first, cores = twill_topology_cores(topology);
    if (!twill_topology_machine(topology)->is_this_machine) {
        leave_unbound(launch, "ranks are not bound: HWLOC_* variables describe another machine");
        return;
    }
    if (bind == TWILL_BIND_AUTO && ranks > cores && launch->options->oversubscribe)
        return; /* as requested */
    if (bind == TWILL_BIND_AUTO && ranks > cores) {
        leave_unbound(launch,
                      "ranks are not bound: %u are more than the %u core%s here (--bind none if "
                      "that is intended)",
                      ranks, cores, TWILL_PLURAL(cores));
        return;
    }
    launch->cpus = calloc(ranks, sizeof(*launch->cpus));
    if (!launch->cpus)
        leave_unbound(launch, "ranks are not bound: out of memory");
    else if (twill_topology_bind(topology, ranks,
                                 bind == TWILL_BIND_AUTO ? to[TWILL_BIND_CORE] : to[bind],
                                 launch->cpus, &error) != TWILL_OK)
        leave_unbound(launch, "ranks are not bound: %s", error.message);
}

/* Print why this host cannot give its ranks the cores of --threads-per-rank. Returns false. */
static bool refuse_cores(const struct twill_launch *launch, const char *why)
{
    char host[256] = "", asked[16] = "auto";
    (void)gethostname(host, sizeof(host) - 1);
    if (launch->options->bind.cores != TWILL_CORES_AUTO)
        snprintf(asked, sizeof(asked), "%d", launch->options->bind.cores);
    twill_complain("--threads-per-rank %s on %s: %s", asked, host, why);
    return false;
}

/* Choose the cores of each rank by --threads-per-rank. Returns false after a message if there are
 * too few for all, or with --oversubscribe for one. */
static bool choose_cores(struct twill_launch *launch, const struct twill_topology *topology)
{
    struct twill_error error = {0};
    const struct twill_options *options = launch->options;
    unsigned ranks = (unsigned)launch->first, cores = twill_topology_cores(topology);
    unsigned each = options->bind.cores != TWILL_CORES_AUTO ? (unsigned)options->bind.cores : 1;
    if (!twill_topology_machine(topology)->is_this_machine)
        return refuse_cores(launch, "HWLOC_* variables describe another machine");
    launch->cpus = calloc(ranks, sizeof(*launch->cpus));
    if (!launch->cpus)
        return refuse_cores(launch, "out of memory");
    bool equal = options->bind.cores == TWILL_CORES_AUTO && ranks <= cores;
    twill_status status =
        equal ? twill_topology_bind(topology, ranks, TWILL_BOUND_TO_CORES, launch->cpus, &error)
              : twill_topology_bind_each(topology, ranks, each, options->oversubscribe,
                                         launch->cpus, &error);
    for (unsigned r = 0; r < ranks && status == TWILL_OK; r++)
        launch->child[r].cores = twill_topology_threads(topology, &launch->cpus[r], 0, NULL);
    return status == TWILL_OK || refuse_cores(launch, error.message);
}

bool twill_launch_bind(struct twill_launch *launch)
{
    const struct twill_options *options = launch->options;
    struct twill_error error = {0};
    struct twill_topology *topology;
    bool cores = options->bind.cores != 0 && launch->first > 0, good = true;
    bool binds =
        options->bind.to != TWILL_BIND_NONE && launch->first > 1; /* one rank uses all CPUs */
    if (!binds && !options->report && !cores)
        return true;
    if (twill_topology_open(&topology, NULL, &error) != TWILL_OK) {
        if (cores)
            return refuse_cores(launch, error.message);
        leave_unbound(launch, "ranks are not bound: %s", error.message);
        return true;
    }
    if (cores)
        good = choose_cores(launch, topology);
    else if (binds)
        choose_binding(launch, topology);
    if (options->report && good)
        report_binding(launch, topology);
    twill_topology_close(topology);
    return good;
}

bool twill_child_bind(const struct twill_launch *launch, int index)
{
    cpu_set_t set;
    if (!launch->cpus || index >= launch->first)
        return true;
    CPU_ZERO(&set);
    for (unsigned cpu = 0; cpu < TWILL_CPUS_MOST && cpu < CPU_SETSIZE; cpu++)
        if (launch->cpus[index].word[cpu / 64] >> cpu % 64 & 1)
            CPU_SET(cpu, &set);
    return sched_setaffinity(0, sizeof(set), &set) == 0;
}
