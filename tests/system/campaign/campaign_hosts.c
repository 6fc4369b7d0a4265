/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts of a campaign: the namespaces of processes that tests/support/hosts.sh has started. */
#include "tests/system/campaign/campaign.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <net/if.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static long hosts[CAMPAIGN_RANKS]; /* processes */

int campaign_hosts_set(const char *list)
{
    int count = 0;
    for (char *end; count < CAMPAIGN_RANKS; list = end + 1) {
        hosts[count] = strtol(list, &end, 10);
        if (end == list || hosts[count] <= 0)
            return -1;
        count++;
        if (*end == '\0')
            return count;
    }
    return -1;
}

static bool enter(int host, const char *space)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%ld/ns/%s", hosts[host], space);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool fine = fd >= 0 && setns(fd, 0) == 0;
    if (!fine)
        perror(path);
    if (fd >= 0)
        close(fd);
    return fine;
}

bool campaign_host_enter(int host)
{
    return enter(host, "net") && enter(host, "uts") && enter(host, "ipc") && enter(host, "mnt");
}

static bool set_link(const char *name, bool up)
{
    struct ifreq request;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    memset(&request, 0, sizeof(request));
    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
    bool fine = fd >= 0 && ioctl(fd, SIOCGIFFLAGS, &request) == 0;
    request.ifr_flags = (short)(up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP);
    fine = fine && ioctl(fd, SIOCSIFFLAGS, &request) == 0;
    if (fd >= 0)
        close(fd);
    return fine;
}

void campaign_part_network(void)
{
    if (unshare(CLONE_NEWNET) == 0 && !set_link("lo", true)) {
        perror("campaign: lo");
        _exit(1); /* its trials count as failed */
    }
}

/* Set the packets that are lost: a filter that drops at random, as netem may not be in the kernel.
 * In BPF: A = random number; more than the limit: as without it, else drop. */
static bool set_loss(unsigned percent)
{
    char filter[512], limit[160] = "";
    if (percent > 0)
        snprintf(limit, sizeof(limit),
                 "bpf direct-action bytecode '4,32 0 0 %u,37 0 1 %u,6 0 0 %u,6 0 0 2'",
                 (unsigned)(SKF_AD_OFF + SKF_AD_RANDOM), UINT32_MAX / 100 * percent, UINT32_MAX);
    snprintf(filter, sizeof(filter),
             percent > 0 ? "tc qdisc add dev eth0 clsact && tc filter add dev eth0 egress %s && "
                           "tc filter add dev eth0 ingress %s"
                         : "tc qdisc del dev eth0 clsact",
             limit, limit);
    return system(filter) == 0;
}

bool campaign_lose(int host, unsigned percent)
{
    int status = 1;
    pid_t pid = fork();
    if (pid == 0)
        _exit(enter(host, "net") && set_loss(percent) ? 0 : 1);
    if (pid > 0 && waitpid(pid, &status, 0) == pid && status == 0)
        return true;
    fprintf(stderr, "campaign: the loss of packets of host %d cannot be changed\n", host);
    return false;
}

bool campaign_link(int host, bool up)
{
    int status = 1;
    pid_t pid = fork();
    if (pid == 0)
        _exit(enter(host, "net") && set_link("eth0", up) ? 0 : 1);
    if (pid > 0 && waitpid(pid, &status, 0) == pid && status == 0)
        return true;
    fprintf(stderr, "campaign: the link of host %d cannot be changed\n", host);
    return false;
}
