/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between twillrun and the ranks on its host, over a pair of SOCK_SEQPACKET sockets. All
 * ranks share one end, TWILL_LAUNCHER_FD=FD,DEVICE,FILE, where the latter two are those of standard
 * error; they peek at the notice, so that each of them sees it. */
#ifndef TWILL_EXIT_NOTICE_H
#define TWILL_EXIT_NOTICE_H

#include <stdint.h>

/* From twillrun, once: the first rank that ended, on any host. */
struct twill_launcher_exited {
    uint32_t rank, size;
    char how[184]; /* "ended (exit code 0) before it called twill_init" */
};

/* From a rank: it has entered twill_init. */
struct twill_launcher_entered {
    uint32_t rank;
};

/* From a rank: a warning for twillrun to print. It is longer than the message above. */
struct twill_log_line {
    int32_t rank;    /* -1: not known */
    char text[1020]; /* without the log's prefix; not terminated */
};

#endif
