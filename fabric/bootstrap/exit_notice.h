/* SPDX-License-Identifier: Apache-2.0 */
/* What twillrun and the ranks on its host tell each other, over a pair of sockets (SOCK_SEQPACKET)
 * of which all ranks have the same end: TWILL_LAUNCHER_FD. Ranks look at the word without taking
 * it, so that it is there for all. */
#ifndef TWILL_EXIT_NOTICE_H
#define TWILL_EXIT_NOTICE_H

#include <stdint.h>

/* From twillrun, once: the first rank that has ended, on any host. */
struct twill_launcher_exited {
    uint32_t rank, size;
    char how[184]; /* "ended (exit code 0) before it called twill_init" */
};

/* From a rank: it is in twill_init. */
struct twill_launcher_entered {
    uint32_t rank;
};

#endif
