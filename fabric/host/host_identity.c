/* SPDX-License-Identifier: Apache-2.0 */
#include "fabric/host/host_identity.h"
#include "fabric/auth/job_key.h"
#include "lib/base/times.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CLOCK_READS 16 /* to find one that nothing has interrupted */

/* Return the inode number of a namespace such as /proc/self/ns/net, or 0 if it is not known. */
static uint64_t namespace_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (uint64_t)st.st_ino : 0;
}

/* Return a hash of this program's AT_RANDOM, or 0 if there is none, to identify it where /proc
 * shows no namespaces. AT_RANDOM stays secret, because libc derives its stack guards from it. */
static uint64_t random_digest(void)
{
    const void *drawn = (const void *)getauxval(AT_RANDOM); /* 16 bytes */
    uint8_t digest[TWILL_DIGEST_BYTES];
    uint64_t number = 0;
    if (drawn == NULL)
        return 0;
    twill_secret_digest(drawn, 16, digest);
    memcpy(&number, digest, sizeof(number));
    return number;
}

/* Read the start of a file into text[bytes], which is empty if that fails. */
static void read_file(const char *path, char *text, size_t bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, bytes - 1) : 0;
    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = '\0';
}

void twill_host_describe(struct twill_host *host)
{
    memset(host, 0, sizeof(*host));
    if (gethostname(host->name, sizeof(host->name) - 1) != 0)
        snprintf(host->name, sizeof(host->name), "unknown");
    read_file("/proc/sys/kernel/random/boot_id", host->boot_id, sizeof(host->boot_id));
    host->boot_id[strcspn(host->boot_id, "\n")] = '\0';
    if (host->boot_id[0] == '\0')
        snprintf(host->boot_id, sizeof(host->boot_id), "%.39s", host->name);
    host->net_namespace = namespace_of("/proc/self/ns/net");
    host->pid_namespace = namespace_of("/proc/self/ns/pid");
    if (host->pid_namespace == 0)
        host->pid_namespace = random_digest();
    host->pid = (uint64_t)getpid();
}

bool twill_host_same_node(const struct twill_host *a, const struct twill_host *b)
{
    return strncmp(a->boot_id, b->boot_id, sizeof(a->boot_id)) == 0 &&
           a->net_namespace == b->net_namespace;
}

bool twill_host_same_process(const struct twill_host *a, const struct twill_host *b)
{
    return twill_host_same_node(a, b) && a->pid_namespace == b->pid_namespace && a->pid == b->pid;
}

uint64_t twill_host_hash(const struct twill_host *host, uint64_t time)
{
    uint64_t hash = twill_hash_mix(host->pid, time);
    for (size_t i = 0; i < sizeof(host->boot_id); i++)
        hash = twill_hash_mix(hash, (uint64_t)host->boot_id[i]);
    return hash | 1;
}

uint64_t twill_host_turns(const struct twill_host *host)
{
    char text[1024];
    read_file("/proc/sys/kernel/sched_autogroup_enabled", text, sizeof(text));
    uint64_t hash = twill_hash_mix(host->pid_namespace, text[0] == '1' ? (uint64_t)getsid(0) : 0);
    read_file("/proc/self/cgroup", text, sizeof(text));
    for (const char *at = text; *at != '\0'; at++)
        hash = twill_hash_mix(hash, (uint64_t)*at);
    return hash;
}

/* Return the present value of a clock in ns. */
static uint64_t read_clock(clockid_t clock)
{
    struct timespec now = {0};
    (void)clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * TWILL_SECONDS_NS + (uint64_t)now.tv_nsec;
}

uint64_t twill_host_booted(void)
{
    uint64_t booted = 0, least = UINT64_MAX;
    for (int i = 0; i < CLOCK_READS; i++) {
        uint64_t before = read_clock(CLOCK_MONOTONIC), real = read_clock(CLOCK_REALTIME);
        uint64_t took = read_clock(CLOCK_MONOTONIC) - before;
        if (took < least) {
            least = took;
            booted = real - before - took / 2;
        }
    }
    return booted;
}

bool twill_host_booted_together(uint64_t a, uint64_t b)
{
    return (a > b ? a - b : b - a) <= TWILL_BOOTED_NS;
}
