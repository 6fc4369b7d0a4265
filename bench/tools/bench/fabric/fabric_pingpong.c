/* SPDX-License-Identifier: Apache-2.0 */
/* libfabric's fi_pingpong between the ranks of the first pair, for --pingpong. */
#include "bench/tools/bench/fabric/fabric.h"

#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

#define HOST_BYTES       256
#define CONNECT_ATTEMPTS 25u /* to connect, 100 ms apart */

/* Return the provider that fi_pingpong is to use: what twill's tcp is closest to, or the one of the
 * channel; NULL where it has none. */
static const char *provider_of(const struct fabric_run *run)
{
    const char *name = run->channel->transport;
    if (strcmp(name, "shm") == 0)
        return NULL;
    if (strncmp(name, "ofi:", 4) == 0)
        name += 4;
    return strcmp(name, "tcp") == 0 || strcmp(name, "default") == 0 ? "tcp;ofi_rxm" : name;
}

/* Start fi_pingpong, its output in a pipe. Returns the process, or a negative number. */
static pid_t start(const char *provider, const char *port, const char *to, size_t bytes,
                   size_t iterations, int *output)
{
    char size[24], times[24];
    int ends[2];
    pid_t process = -1;
    posix_spawn_file_actions_t actions;
    snprintf(size, sizeof(size), "%zu", bytes);
    snprintf(times, sizeof(times), "%zu", iterations);
    const char *command[] = {"fi_pingpong", "-e", "rdm", "-p", provider, to != NULL ? "-P" : "-B",
                             port,          "-S", size,  "-I", times,    to,
                             NULL};
    if (pipe(ends) != 0)
        return -1;
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    (void)posix_spawn_file_actions_addclose(&actions, ends[0]);
    (void)posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", 1, 0);
    if (posix_spawnp(&process, command[0], &actions, NULL, (char *const *)(uintptr_t)command,
                     environ) != 0)
        process = -1;
    (void)posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    *output = ends[0];
    if (process < 0)
        close(ends[0]);
    return process;
}

/* Read its table: bytes, sent, acknowledged, total, time, MB/s, us; of the last row one of these.
 */
static double read_row(int output, bool latency)
{
    char line[512];
    double value = 0, rate, us;
    FILE *file = fdopen(output, "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "%*s %*s %*s %*s %*s %lf %lf", &rate, &us) == 2)
            value = latency ? us : rate;
    if (file != NULL)
        fclose(file);
    return value;
}

static void nap(unsigned ms)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)ms * 1000000}, NULL);
}

/* Wait for a process for at most some seconds, then end it. Returns its exit status, or -1 if a
 * signal has ended it. */
static int end_process(pid_t process, int seconds)
{
    int status = 0;
    for (int i = 0; i < seconds * 50; i++) {
        if (waitpid(process, &status, WNOHANG) == process)
            return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        nap(20);
    }
    kill(process, SIGKILL);
    (void)waitpid(process, &status, 0);
    return -1;
}

/* Run the side that connects, again while the other one does not listen yet. */
static void run_client(const char *provider, const char *port, const char *to, size_t bytes,
                       size_t iterations)
{
    int status = 1;
    for (unsigned attempt = 0; status > 0 && attempt < CONNECT_ATTEMPTS; attempt++) {
        int output;
        pid_t process = start(provider, port, to, bytes, iterations, &output);
        if (process < 0)
            return;
        status = end_process(process, 30);
        close(output);
        if (status > 0)
            nap(100);
    }
}

twill_status fabric_pingpong(struct fabric_run *run, size_t bytes, double *value)
{
    const char *provider = provider_of(run);
    char host[HOST_BYTES] = "127.0.0.1", port[16];
    uint32_t number = (uint32_t)getpid() % 20000 + 20000 + (uint32_t)(bytes % 997);
    *value = 0;
    if (provider == NULL || bytes == 0)
        return TWILL_OK;
    if (run->rank == 0 && twill_comm_nodes(run->world) > 1)
        (void)gethostname(host, sizeof(host) - 1);
    TWILL_BENCH_TRY(twill_broadcast(run->world, host, host, sizeof(host), TWILL_U8, 0));
    TWILL_BENCH_TRY(twill_broadcast(run->world, &number, &number, 1, TWILL_U32, 0));
    snprintf(port, sizeof(port), "%u", number);
    bool server = run->rank == 0, client = run->rank == run->size / 2;
    size_t iterations = fabric_iterations(&run->options, bytes);
    bool latency = run->options.measurement == FABRIC_LATENCY;
    int output = -1;
    pid_t process = server ? start(provider, port, NULL, bytes, iterations, &output) : -1;
    nap(200); /* until it listens, as a rule */
    if (client)
        run_client(provider, port, host, bytes, iterations);
    if (process >= 0 && end_process(process, 30) == 0)
        *value = read_row(output, latency);
    else if (process >= 0)
        close(output);
    return twill_broadcast(run->world, value, value, 1, TWILL_F64, 0);
}
