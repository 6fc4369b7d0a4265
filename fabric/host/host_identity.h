/* SPDX-License-Identifier: Apache-2.0 */
/* The identity of the host, container and process that a rank runs in. */
#ifndef TWILL_HOST_IDENTITY_H
#define TWILL_HOST_IDENTITY_H

#include "lib/base/base.h"

/* The identity of a host and a process on it, also in containers and network namespaces. A value,
 * which ranks exchange. Ranks may be on one node if boot id and network namespace agree.
 * fabric/shm/shared_region.h then verifies that they can share memory. */
struct twill_host {
    char boot_id[40];       /* /proc/sys/kernel/random/boot_id, or the host name */
    uint64_t net_namespace; /* inode number, 0 if not known */
    uint64_t pid_namespace; /* inode number or, if not known, a random one; 0 if neither */
    uint64_t pid;
    char name[64]; /* host name, for messages */
};
/* Fill in the identity of this process. Cannot fail, as it replaces what is not known. */
void twill_host_describe(struct twill_host *host);
/* Return whether boot id and network namespace agree, so that two ranks may share memory. */
bool twill_host_same_node(const struct twill_host *a, const struct twill_host *b);
/* Return whether two ranks are threads of one process, so that pointers are valid in both. */
bool twill_host_same_process(const struct twill_host *a, const struct twill_host *b);
/* Return a hash of host->boot_id, host->pid and `time`, never 0. `time`, such as the start of the
 * process, tells apart processes that had the same number. */
uint64_t twill_host_hash(const struct twill_host *host, uint64_t time);
/* Return a hash of the group of threads that share turns on a core: this process's control groups
 * and, where Linux has autogroups, its session. A yield passes the core only to the same group. */
uint64_t twill_host_turns(const struct twill_host *host);
/* Return when this kernel was booted, as the difference of its two clocks in ns. Containers of one
 * kernel get almost the same value, even if each has its own boot id. */
uint64_t twill_host_booted(void);
/* Return whether two values of twill_host_booted() are of one kernel. Other kernels have such
 * values only if they were booted within TWILL_BOOTED_NS. */
bool twill_host_booted_together(uint64_t a, uint64_t b);

#endif
