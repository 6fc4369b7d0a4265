/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of this host, as /proc shows them. */
#ifndef TWILL_PROCESSES_H
#define TWILL_PROCESSES_H

#include "lib/base/base.h"

/* What /proc shows of a process of this host. A value. */
struct twill_host_process {
    int pid, parent;
    uint32_t user; /* owner of /proc/PID */
    char state;    /* as in proc(5): R, S, D, T (stopped), t (traced), Z ... */
    char name[16]; /* name of the program, cut */
};

/* Set *process to what /proc shows. Returns false, with errno set, if there is no such process or
 * its files cannot be read. */
bool twill_process_read(int pid, struct twill_host_process *process);
/* Set *list to all processes, which the caller frees. Returns their number, 0 if /proc cannot be
 * read. If memory is short, the list ends early. */
size_t twill_process_list(struct twill_host_process **list);
/* Return a state of struct twill_host_process in words, such as "stopped", or "unknown". */
const char *twill_process_state_text(char state);

#endif
