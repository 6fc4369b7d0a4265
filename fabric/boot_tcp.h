/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the TCP bootstrap: a star around rank 0. */
#ifndef TWILL_BOOT_TCP_H
#define TWILL_BOOT_TCP_H

#include "fabric/boot_wire.h"

#define TWILL_TCP_PENDING 64 /* connections that have not said who they are, at a time */

/* Rank 0's view of another rank. */
struct twill_tcp_peer {
    int fd;                          /* -1: not here */
    uint64_t back_by;                /* it came and went: until then it may come again */
    size_t done;                     /* bytes moved of the frame under way */
    struct twill_wire_header header; /* of the frame under way */
};

struct twill_boot_tcp {
    struct twill_boot boot;
    bool named;                  /* TWILL_JOB was given: who does not carry it is refused */
    const char *host;            /* MASTER_ADDR; valid while opening */
    uint16_t port;               /* MASTER_PORT */
    int listener;                /* rank 0, while opening */
    int root;                    /* others: the connection to rank 0 */
    struct twill_tcp_peer *peer; /* rank 0: [size] */
    struct pollfd *polls;        /* rank 0: [size + 1 + TWILL_TCP_PENDING] */
    int64_t sequence;            /* of the last all-gather */
    bool broken;                 /* an all-gather failed */
};

/* Rank 0: wait for all the others. */
twill_status twill_tcp_meet(struct twill_boot_tcp *tcp, const char *listen_fd,
                            struct twill_error *error);
/* Others: find rank 0 and wait until all are there. */
twill_status twill_tcp_join(struct twill_boot_tcp *tcp, struct twill_error *error);
twill_status twill_tcp_allgather(struct twill_boot *boot, const void *mine, void *all, size_t bytes,
                                 struct twill_error *error);
/* Rank 0: fail with this sentence, and tell every rank that is connected. */
twill_status twill_tcp_fail(struct twill_boot_tcp *tcp, struct twill_error *error,
                            twill_status status, const char *format, ...) TWILL_PRINTF(4, 5);
/* Others: a REFUSE or FAIL frame came; read its sentence and fail with it. */
twill_status twill_tcp_told(struct twill_boot_tcp *tcp, const struct twill_wire_header *header,
                            struct twill_error *error);
/* The ranks whose connection (or whose part of a gather) is missing: "3, 5-7". */
void twill_tcp_list(const struct twill_boot_tcp *tcp,
                    bool (*missing)(const struct twill_tcp_peer *), char *text, size_t bytes);
/* MASTER_ADDR and MASTER_PORT as socket addresses; to be freed with freeaddrinfo(). */
struct addrinfo;
twill_status twill_tcp_resolve(const struct twill_boot_tcp *tcp, struct addrinfo **found,
                               struct twill_error *error);

#endif
