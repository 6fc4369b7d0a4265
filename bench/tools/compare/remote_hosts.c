/* SPDX-License-Identifier: Apache-2.0 */
/* What twill-compare does on other hosts by the agent, besides starting contenders. */
#include "bench/tools/compare/remote_hosts.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Write a script that takes HOST COMMAND, whatever words the agent has: launchers need a single
 * program. */
bool twill_compare_make_agent(struct twill_compare_run *run)
{
    twill_compare_write(run->remote.agent, sizeof(run->remote.agent), "%.*s/agent",
                        TWILL_COMPARE_PATH - 40, run->folders.work);
    FILE *file = fopen(run->remote.agent, "w");
    if (file == NULL || fprintf(file, "#!/bin/sh\nexec %s \"$@\"\n", run->options.agent) < 0 ||
        fclose(file) != 0 || chmod(run->remote.agent, 0700) != 0) {
        fprintf(stderr, "twill-compare: --agent: %s cannot be written\n", run->remote.agent);
        return false;
    }
    return true;
}

/* Run a command on a host. `said` gets the first line of its output. */
static bool host_run(struct twill_compare_run *run, const char *host, const char *text, char *said,
                     size_t bytes)
{
    char log[TWILL_COMPARE_PATH + 32], name[TWILL_COMPARE_PATH], line[TWILL_COMPARE_PATH];
    char *command[] = {run->remote.agent, name, line, NULL};
    twill_compare_write(log, sizeof(log), "%s/agent.log", run->folders.work);
    twill_compare_write(name, sizeof(name), "%s", host);
    twill_compare_write(line, sizeof(line), "%s", text);
    int status = twill_compare_command(run, command, log);
    twill_compare_first_line(log, NULL, said, bytes);
    return status == 0;
}

#define CONGESTION "/proc/sys/net/ipv4/tcp_congestion_control"

bool twill_compare_congestion(struct twill_compare_run *run)
{
    char text[256], said[TWILL_COMPARE_TEXT];
    for (int i = 0; run->options.congestion != NULL && i < run->options.n_hosts; i++) {
        struct twill_compare_host *host = &run->options.hosts[i];
        twill_compare_write(text, sizeof(text), "cat " CONGESTION " && echo %s > " CONGESTION,
                            run->options.congestion);
        bool good = host_run(run, host->name, text, said, sizeof(said));
        if (!good) {
            fprintf(stderr, "twill-compare: --congestion %s: %s: %s\n", run->options.congestion,
                    host->name, said);
            return false;
        }
        twill_compare_write(host->congestion, sizeof(host->congestion), "%.15s", said);
    }
    return true;
}

void twill_compare_congestion_back(struct twill_compare_run *run)
{
    char text[256], said[TWILL_COMPARE_TEXT];
    run->tidying = true; /* must complete even after an interrupt */
    for (int i = 0; i < run->options.n_hosts; i++) {
        struct twill_compare_host *host = &run->options.hosts[i];
        twill_compare_write(text, sizeof(text), "echo %s > " CONGESTION, host->congestion);
        if (host->congestion[0] != '\0' && !host_run(run, host->name, text, said, sizeof(said)))
            fprintf(stderr, "twill-compare: %s keeps %s as its congestion control: %s\n",
                    host->name, run->options.congestion, said);
        host->congestion[0] = '\0';
    }
    run->tidying = false;
}

/* Return the last time in fi_pingpong's table: bytes, sent, acknowledged, total, time, MB/s, us. */
static double read_pingpong(const char *log)
{
    char line[512];
    double us = 0, value;
    FILE *file = fopen(log, "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "%*s %*s %*s %*s %*s %*s %lf", &value) == 1)
            us = value;
    if (file != NULL)
        fclose(file);
    return us;
}

double twill_compare_pingpong(struct twill_compare_run *run,
                              struct twill_compare_contender *contender, size_t bytes)
{
    const struct twill_compare_host *hosts = run->options.hosts;
    char script[4 * TWILL_COMPARE_PATH], bind[2][32] = {"", ""};
    char *command[] = {(char[]){"sh"}, (char[]){"-c"}, script, NULL};
    const int port = 20000 + (int)(run->remote.port * 7 + run->pingpongs++) % 20000;
    double budget = run->options.turn_seconds * 4 * 5e9; /* bytes both ways at 5 GB/s */
    int times = budget / 2 / (double)bytes > 2000 ? 2000 : (int)(budget / 2 / (double)bytes) + 4;
    if (run->bind) {
        twill_compare_write(bind[0], sizeof(bind[0]), "taskset -c %u ", run->core[0]);
        twill_compare_write(bind[1], sizeof(bind[1]), "taskset -c %u ", run->core[hosts[0].ranks]);
    }
    twill_compare_write(script, sizeof(script),
                        "%s %s \"%s%s -B %d -I %d -S %zu\" >/dev/null & sleep 0.2; "
                        "%s %s \"%s%s -P %d -I %d -S %zu %s\"; status=$?; wait; exit $status",
                        run->remote.agent, hosts[0].name, bind[0], contender->pingpong, port, times,
                        bytes, run->remote.agent, hosts[1].name, bind[1], contender->pingpong, port,
                        times, bytes, hosts[0].name);
    if (twill_compare_command(run, command, contender->log) == 0)
        return read_pingpong(contender->log) * 1e-6;
    return 0;
}
