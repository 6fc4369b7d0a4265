/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of this host, as /proc shows them. */
#ifndef TWILL_PROCESSES_H
#define TWILL_PROCESSES_H

#include "lib/base/base.h"

/* A process of this host. */
struct twill_host_process {
    int pid, parent;
    uint32_t user; /* owner of /proc/PID */
    char state;    /* as in proc(5): R, S, D, T (stopped), t (traced), Z ... */
    char name[16]; /* name of the program, cut */
};

/* Read about a process. Returns false, with errno set, if there is no such process. */
bool twill_process_read(int pid, struct twill_host_process *process);
/* List all processes into *list, which the caller frees. Returns their number, or 0 on failure. */
size_t twill_process_list(struct twill_host_process **list);
/* Return a state in words, such as "running" or "stopped". */
const char *twill_process_state_text(char state);

#endif
