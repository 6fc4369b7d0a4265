/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the TCP bootstrap: a star around rank 0. */
#ifndef TWILL_BOOTSTRAP_TCP_H
#define TWILL_BOOTSTRAP_TCP_H

#include "fabric/auth/handshake.h"
#include "fabric/bootstrap/exit_notice.h"
#include "fabric/bootstrap/launch_info.h"

#define TWILL_BOOTSTRAP_PENDING 256 /* connections that have not said who they are, at a time */

/* Rank 0's view of another rank. */
struct twill_bootstrap_peer {
    int fd;                          /* -1: not here */
    uint64_t back_by;                /* it came and went: until then it may come again */
    bool overdue;                    /* that has passed once */
    bool silent;                     /* its host did not answer any more */
    size_t done;                     /* bytes moved of the frame under way */
    struct twill_wire_header header; /* of the frame under way */
    struct twill_session session;
};

/* What all ranks learn when all are there. */
struct twill_bootstrap_welcome {
    char address[TWILL_ADDRESS_TEXT]; /* of rank 0's host */
    uint8_t nonce[TWILL_NONCE_BYTES];
};

struct twill_bootstrap_tcp {
    struct twill_oob oob;
    struct twill_secret key;           /* of the job */
    char key_how[80];                  /* where it is from, for people */
    const struct twill_job *job;       /* valid while opening */
    int listener;                      /* rank 0, while opening */
    int root;                          /* others: the connection to rank 0 */
    struct twill_session session;      /* of it */
    struct twill_bootstrap_peer *peer; /* rank 0: [size] */
    struct pollfd *polls;              /* rank 0: [size + 1 + TWILL_BOOTSTRAP_PENDING] */
    size_t places;    /* rank 0: TWILL_BOOTSTRAP_PENDING, or as many as descriptors allow */
    const char *wide; /* rank 0: why it listens on all addresses, or NULL */
    int64_t sequence; /* of the last all-gather */
    bool broken;      /* an all-gather failed */
    int launcher;     /* twillrun's descriptor while ranks meet; -1: none */
};

/* What a bootstrap that only tells where to meet has in its ops besides name, applies and open. */
#define TWILL_BOOTSTRAP_BY_TCP                                                                     \
    .size_of = sizeof(struct twill_bootstrap_tcp), .allgather = twill_bootstrap_tcp_allgather,     \
    .close = twill_bootstrap_tcp_close

/* Meet as the job says. job->listener is closed in any case. */
twill_status twill_bootstrap_tcp_open(struct twill_oob **oob, const struct twill_bootstrap_ops *ops,
                                      const struct twill_job *job,
                                      const struct twill_bootstrap_params *params,
                                      struct twill_error *error);
void twill_bootstrap_tcp_close(struct twill_oob *oob);

/* The run of this job: its public name, and the secret of all its ranks. */
void twill_bootstrap_tcp_name_run(struct twill_bootstrap_tcp *tcp,
                                  const uint8_t nonce[TWILL_NONCE_BYTES]);
/* Rank 0: listen where the job says, on the launcher's socket if it is that. */
twill_status twill_bootstrap_tcp_open_port(struct twill_bootstrap_tcp *tcp, const char *listen_fd,
                                           uint64_t deadline, struct twill_error *error);
/* Rank 0: stop accepting connections on the port. */
void twill_bootstrap_tcp_stop_listening(struct twill_bootstrap_tcp *tcp);
/* Rank 0: wait for all the others. */
twill_status twill_bootstrap_tcp_serve(struct twill_bootstrap_tcp *tcp, const char *listen_fd,
                                       struct twill_error *error);
/* TWILL_LAUNCHER_FD, if it is what it should be; twillrun learns that this rank is here. */
void twill_bootstrap_tcp_open_launcher(struct twill_bootstrap_tcp *tcp, const char *text);
/* Has twillrun seen a rank of this job end? While it has not, tcp->launcher can be waited for. */
bool twill_bootstrap_tcp_exited(struct twill_bootstrap_tcp *tcp,
                                struct twill_launcher_exited *exited);
/* Others: find rank 0 and wait until all are there. */
twill_status twill_bootstrap_tcp_join(struct twill_bootstrap_tcp *tcp, struct twill_error *error);
twill_status twill_bootstrap_tcp_allgather(struct twill_oob *oob, const void *mine, void *all,
                                           size_t bytes, struct twill_error *error);
/* Rank 0: fail with this sentence, and tell every rank that is connected. */
twill_status twill_bootstrap_tcp_fail(struct twill_bootstrap_tcp *tcp, struct twill_error *error,
                                      twill_status status, const char *format, ...)
    TWILL_PRINTF(4, 5);
/* Others: a REFUSE or FAIL frame came; read its sentence and fail with it. */
twill_status twill_bootstrap_tcp_read_failure(struct twill_bootstrap_tcp *tcp,
                                              const struct twill_wire_header *header,
                                              struct twill_error *error);
/* The ranks whose connection (or whose part of a gather) is missing: "3, 5-7". */
void twill_bootstrap_tcp_list(const struct twill_bootstrap_tcp *tcp,
                              bool (*missing)(const struct twill_bootstrap_peer *), char *text,
                              size_t bytes);
/* Hosts and port of the job as socket addresses: at least one. */
#define TWILL_BOOTSTRAP_ADDRESSES 16
struct twill_bootstrap_address {
    struct sockaddr_storage address;
    socklen_t length;
};
struct twill_bootstrap_addresses {
    size_t count;
    struct twill_bootstrap_address at[TWILL_BOOTSTRAP_ADDRESSES];
};
twill_status twill_bootstrap_resolve(const struct twill_bootstrap_tcp *tcp,
                                     struct twill_bootstrap_addresses *found,
                                     struct twill_error *error);

#endif
