/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of this host, as /proc shows them. */
#ifndef TWILL_PROCESSES_H
#define TWILL_PROCESSES_H

#include "lib/base/base.h"

struct twill_host_process {
    int pid, parent;
    uint32_t user; /* that /proc/PID belongs to */
    char state;    /* as in proc(5): R, S, D, T (stopped), t (traced), Z ... */
    char name[16]; /* of the program, cut */
};

/* Read about a process. Returns false with errno if there is none. */
bool twill_process_read(int pid, struct twill_host_process *process);
/* List all processes into *list, which the caller frees. Returns how many; 0 on failure. */
size_t twill_process_list(struct twill_host_process **list);
/* Return the state in words: "running", "stopped" ... */
const char *twill_process_state_text(char state);

#endif
