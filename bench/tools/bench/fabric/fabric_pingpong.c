/* SPDX-License-Identifier: Apache-2.0 */
/* libfabric's fi_pingpong between the ranks of the first pair, for --pingpong. */
#include "bench/tools/bench/fabric/fabric.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#define HOST_BYTES 256

/* Return the provider that fi_pingpong is to use: what twill's tcp is closest to, or the one of the
 * channel; NULL where it has none. */
static const char *provider_of(const struct fabric_run *run)
{
    const char *name = run->channel->transport;
    if (strcmp(name, "shm") == 0)
        return NULL;
    if (strncmp(name, "ofi:", 4) == 0)
        name += 4;
    if (strchr(name, '\'') != NULL) /* the shell would take it as the end of the name */
        return NULL;
    return strcmp(name, "tcp") == 0 || strcmp(name, "default") == 0 ? "tcp;ofi_rxm" : name;
}

/* Read its table: bytes, sent, acknowledged, total, time, MB/s, us; of the last row one of these,
 * or 0 if it has failed. */
static double read_table(FILE *file, bool latency)
{
    char line[512];
    double value = 0, rate, us;
    while (fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "%*s %*s %*s %*s %*s %lf %lf", &rate, &us) == 2)
            value = latency ? us : rate;
    return pclose(file) == 0 ? value : 0;
}

/* Run the side that connects, again while the other one does not listen yet. */
static void run_client(const char *command, const char *port, const char *host)
{
    char script[1024];
    snprintf(script, sizeof(script),
             "command -v fi_pingpong timeout >/dev/null || exit; for attempt in $(seq 25); do "
             "timeout -s KILL 30 %s -P %s %s; status=$?; [ $status -ne 0 ] && [ $status -lt 124 ] "
             "|| exit; sleep 0.1; done",
             command, port, host);
    FILE *file = popen(script, "re");
    if (file != NULL)
        (void)read_table(file, false);
}

twill_status fabric_pingpong(struct fabric_run *run, size_t bytes, double *value)
{
    const char *provider = provider_of(run);
    char host[HOST_BYTES] = "127.0.0.1", port[16], command[256], server[320];
    uint32_t number = (uint32_t)getpid() % 20000 + 20000 + (uint32_t)(bytes % 997);
    *value = 0;
    if (provider == NULL || bytes == 0)
        return TWILL_OK;
    if (run->rank == 0 && twill_comm_nodes(run->world) > 1)
        (void)gethostname(host, sizeof(host) - 1);
    TWILL_BENCH_TRY(twill_broadcast(run->world, host, host, sizeof(host), TWILL_U8, 0));
    TWILL_BENCH_TRY(twill_broadcast(run->world, &number, &number, 1, TWILL_U32, 0));
    snprintf(port, sizeof(port), "%u", number);
    snprintf(command, sizeof(command), "fi_pingpong 2>/dev/null -e rdm -p '%s' -S %zu -I %zu",
             provider, bytes, fabric_iterations(&run->options, bytes));
    snprintf(server, sizeof(server), "timeout -s KILL 60 %s -B %s", command, port);
    FILE *file = run->rank == 0 ? popen(server, "re") : NULL;
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL); /* until it listens, as a rule */
    if (run->rank == run->size / 2)
        run_client(command, port, host);
    if (file != NULL)
        *value = read_table(file, run->options.measurement == FABRIC_LATENCY);
    return twill_broadcast(run->world, value, value, 1, TWILL_F64, 0);
}
