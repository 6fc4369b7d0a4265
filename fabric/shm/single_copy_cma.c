/* SPDX-License-Identifier: Apache-2.0 */
/* Single-copy access by cross memory attach: process_vm_readv (Linux 3.2). The kernel checks access
 * as for ptrace. It is denied to another user, in a container without the capability, or if Yama's
 * ptrace_scope is 1 or more. (A program may allow it by prctl(PR_SET_PTRACER), which a library must
 * not do.) Device memory and XPMEM attachments cannot be read.
 *
 * A process is named by its pid. In another pid namespace that may be another process, which the
 * token detects. Only the failure detector notices that a process died and its pid is reused. */
#include "fabric/shm/single_copy.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

/* State of cross memory attach in one struct twill_single_copy, until cma_close(). */
struct cma {
    pid_t *pid; /* [peers] */
};

/* Free the state, which may be NULL. */
static void cma_close(void *state)
{
    struct cma *cma = state;
    if (cma != NULL)
        free(cma->pid);
    free(cma);
}

/* Create *state for `peers` peers, and set mine->pid. Returns 0 or ENOMEM. */
static int cma_open(void **state, uint32_t peers, struct twill_single_copy_info *mine)
{
    struct cma *cma = calloc(1, sizeof(*cma));
    *state = cma;
    if (cma != NULL)
        cma->pid = calloc(peers, sizeof(*cma->pid));
    if (cma == NULL || cma->pid == NULL)
        return ENOMEM;
    mine->pid = (uint64_t)getpid();
    return 0;
}

/* Note the pid of a peer. Returns 0, or ENOENT if it has none. */
static int cma_connect_peer(void *state, uint32_t peer, const struct twill_single_copy_info *theirs)
{
    struct cma *cma = state;
    cma->pid[peer] = (pid_t)theirs->pid;
    return theirs->pid != 0 ? 0 : ENOENT;
}

/* Copy bytes from address `from` of a peer to `to`. Returns 0 or an errno. */
static int cma_fetch(void *state, uint32_t peer, void *to, uint64_t from, size_t bytes)
{
    const struct cma *cma = state;
    size_t done = 0;
    while (done < bytes) { /* short reads happen at 2 GiB and before an unmapped page */
        struct iovec here = {(unsigned char *)to + done, bytes - done};
        struct iovec there = {(void *)(uintptr_t)(from + done), bytes - done};
        ssize_t n = process_vm_readv(cma->pid[peer], &here, 1, &there, 1, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : EFAULT;
        done += (size_t)n;
    }
    return 0;
}

const struct twill_single_copy_method twill_single_copy_cma = {.name = "cma",
                                                               .setting = TWILL_SINGLE_COPY_CMA,
                                                               .open = cma_open,
                                                               .connect_peer = cma_connect_peer,
                                                               .fetch = cma_fetch,
                                                               .close = cma_close};
