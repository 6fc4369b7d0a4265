/* SPDX-License-Identifier: Apache-2.0 */
#include "fabric/host/host_identity.h"
#include "fabric/auth/job_key.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

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

void twill_host_describe(struct twill_host *host)
{
    memset(host, 0, sizeof(*host));
    if (gethostname(host->name, sizeof(host->name) - 1) != 0)
        snprintf(host->name, sizeof(host->name), "unknown");
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t got = read(fd, host->boot_id, sizeof(host->boot_id) - 1);
        close(fd);
        host->boot_id[got > 0 ? got : 0] = '\0';
        host->boot_id[strcspn(host->boot_id, "\n")] = '\0';
    }
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
