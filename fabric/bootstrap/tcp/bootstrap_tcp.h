/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of the TCP bootstrap, whose connections form a star around rank 0. */
#ifndef TWILL_BOOTSTRAP_TCP_H
#define TWILL_BOOTSTRAP_TCP_H

#include "fabric/auth/handshake.h"
#include "fabric/bootstrap/launch_info.h"
#include "fabric/bootstrap/twillrun.h"

#define TWILL_BOOTSTRAP_PENDING 256 /* most unauthenticated connections at a time */
/* Rank 0's connection to another rank, part of rank 0's struct twill_bootstrap_tcp. */
struct twill_bootstrap_peer {
    int fd;                          /* -1: not connected */
    uint64_t back_by;                /* deadline (twill_now()) to return after it left; 0: none */
    bool overdue;                    /* `back_by` is final: it was extended once, or is not to be */
    bool silent;                     /* its host stopped answering */
    size_t done;                     /* bytes of the current frame moved so far; SIZE_MAX: all */
    struct twill_wire_header header; /* of the current frame */
    struct twill_session session;
};

/* The body of the frame that rank 0 sends to every rank when all have joined. */
struct twill_bootstrap_welcome {
    char address[TWILL_ADDRESS_TEXT]; /* of rank 0's host */
    uint8_t nonce[TWILL_NONCE_BYTES]; /* of this run */
    uint32_t rank;                    /* of the receiver */
};

/* The TCP bootstrap of one rank, from twill_bootstrap_tcp_open() to twill_bootstrap_tcp_close(). */
struct twill_bootstrap_tcp {
    struct twill_oob oob;
    int64_t sequence; /* number of the last all-gather */
    bool broken;      /* an all-gather has failed */

    /* During twill_bootstrap_tcp_open(). */
    struct twill_secret key;     /* of the job */
    char key_how[80];            /* source of the key, for messages */
    const struct twill_job *job; /* borrowed */
    int launcher;                /* TWILL_LAUNCHER_FD; -1: none */

    /* On rank 0. */
    int listener;                      /* during opening; -1: none */
    struct twill_bootstrap_peer *peer; /* [size] */
    struct pollfd *polls;              /* [size + 1 + TWILL_BOOTSTRAP_PENDING] */
    size_t places;                     /* most pending connections that descriptors allow */
    bool raises;                       /* all connections need more descriptors than the limit */
    struct twill_fd_limit files;       /* the limit, before and after it is raised */
    const char *wide;                  /* why it listens at all addresses, or NULL */

    /* On other ranks, the connection to rank 0; root -1: none. */
    int root;
    struct twill_session session;
};

/* The operations that all bootstrap methods over TCP share. */
#define TWILL_BOOTSTRAP_BY_TCP                                                                     \
    .size_of = sizeof(struct twill_bootstrap_tcp), .allgather = twill_bootstrap_tcp_allgather,     \
    .close = twill_bootstrap_tcp_close

/* Wait until all ranks have joined at rank 0, and set *oob, or NULL on failure. twill_oob_close()
 * frees it. Takes over or closes job->listener in any case. */
twill_status twill_bootstrap_tcp_open(struct twill_oob **oob, const struct twill_bootstrap_ops *ops,
                                      const struct twill_job *job,
                                      const struct twill_bootstrap_params *params,
                                      struct twill_error *error);
void twill_bootstrap_tcp_close(struct twill_oob *oob); /* close, wipe keys and free it */

/* On rank 0, raise the limit of descriptors to the hard limit if tcp->raises is set, else do
 * nothing. */
void twill_bootstrap_tcp_raise(struct twill_bootstrap_tcp *tcp);
/* If tcp->raises is set, set the limit of descriptors back to its value before
 * twill_bootstrap_tcp_raise(). */
void twill_bootstrap_tcp_restore(struct twill_bootstrap_tcp *tcp);

/* Set the nonce of this run, and derive the secret of the run from it and the key. */
void twill_bootstrap_tcp_name_run(struct twill_bootstrap_tcp *tcp,
                                  const uint8_t nonce[TWILL_NONCE_BYTES]);
/* On rank 0, set tcp->listener to a socket that listens at the job's address and port, if it has
 * none yet. `listen_fd` is the descriptor number of twillrun's socket as text, or NULL. It is used
 * if it has that port. While the port is in use, retries for some seconds, but not after
 * `deadline`. Fails if rank 0 cannot listen, or is not at the address where other ranks look for
 * it. */
twill_status twill_bootstrap_tcp_open_port(struct twill_bootstrap_tcp *tcp, const char *listen_fd,
                                           uint64_t deadline, struct twill_error *error);
/* Set or clear SO_REUSEADDR. It is set on listeners while they listen, so that remains of earlier
 * connections do not block the port. It is cleared afterwards, so that no other program can bind
 * the port. It is set on connections, so that their remains do not block the port later. */
void twill_bootstrap_tcp_share_port(int fd, int shared);
/* On rank 0, close tcp->listener if open. Inherited copies keep the port, but do not accept. */
void twill_bootstrap_tcp_stop_listening(struct twill_bootstrap_tcp *tcp);
/* On rank 0, open the port, wait until all other ranks have joined, and send each rank the welcome.
 * `listen_fd` is the descriptor number, as text, of twillrun's socket at that port, or NULL or ""
 * if there is none. Fails with TWILL_ERR_PEER if a rank dies before all have joined, or with
 * TWILL_ERR_TIMEOUT. The ranks that are connected then get the reason. */
twill_status twill_bootstrap_tcp_serve(struct twill_bootstrap_tcp *tcp, const char *listen_fd,
                                       struct twill_error *error);
/* Peek for twillrun's notice that a rank of this job has ended, and set *exited to it. Returns
 * false if there is none about another rank. tcp->launcher can be polled for it, and becomes -1 if
 * none can come. */
bool twill_bootstrap_tcp_exited(struct twill_bootstrap_tcp *tcp,
                                struct twill_launcher_exited *exited);
/* On other ranks, connect to rank 0 and wait until all ranks have joined. Sets tcp->root, the
 * session, and the OOB's rank, nonce, secret and address. Returns TWILL_ERR_PEER if a rank has
 * ended, TWILL_ERR_TIMEOUT, TWILL_ERR_BOOTSTRAP if waiting cannot help, or rank 0's reason. */
twill_status twill_bootstrap_tcp_join(struct twill_bootstrap_tcp *tcp, struct twill_error *error);
/* Gather `bytes` of every rank into `all` through rank 0. After a failure, all later calls return
 * TWILL_ERR_BOOTSTRAP. */
twill_status twill_bootstrap_tcp_allgather(struct twill_oob *oob, const void *mine, void *all,
                                           size_t bytes, struct twill_error *error);
/* Write the name of this process, "rank 3" or, without a rank, "this process". Returns `text`. */
const char *twill_bootstrap_tcp_self(const struct twill_bootstrap_tcp *tcp,
                                     char text[TWILL_RANK_TEXT]);
#define TWILL_BOOTSTRAP_SELF(tcp) twill_bootstrap_tcp_self((tcp), (char[TWILL_RANK_TEXT]){0})
/* On rank 0, set `error` to this sentence, send it to every connected rank, and return `status`. A
 * rank that has got a part of an all-gather's result is left out. All later all-gathers fail. */
twill_status twill_bootstrap_tcp_fail(struct twill_bootstrap_tcp *tcp, struct twill_error *error,
                                      twill_status status, const char *format, ...)
    TWILL_PRINTF(4, 5);
/* On other ranks, read the sentence of rank 0's REFUSE or FAIL frame, whose header has been read.
 * Sets `error` to it, or to "(no reason)" if it cannot be read. Returns the status in the header,
 * or TWILL_ERR_BOOTSTRAP if that is none. */
twill_status twill_bootstrap_tcp_read_failure(struct twill_bootstrap_tcp *tcp,
                                              const struct twill_wire_header *header,
                                              struct twill_error *error);
/* Write the list of ranks other than 0 for which missing() returns true, such as "3, 5-7". A list
 * that does not fit ends with ", ...". */
void twill_bootstrap_tcp_list(const struct twill_bootstrap_tcp *tcp,
                              bool (*missing)(const struct twill_bootstrap_peer *), char *text,
                              size_t bytes);
#define TWILL_BOOTSTRAP_ADDRESSES 16
/* One address to which a name of rank 0's host resolves, in the list of all. */
struct twill_bootstrap_address {
    struct sockaddr_storage address;
    socklen_t length;
};
struct twill_bootstrap_addresses { /* of rank 0's host, in the order in which they are tried */
    size_t count;
    struct twill_bootstrap_address at[TWILL_BOOTSTRAP_ADDRESSES];
};
/* Set *found to the addresses of rank 0's host. Waits up to the timeout for a name that has none
 * yet, and then fails with TWILL_ERR_BOOTSTRAP. */
twill_status twill_bootstrap_resolve(const struct twill_bootstrap_tcp *tcp,
                                     struct twill_bootstrap_addresses *found,
                                     struct twill_error *error);

#endif
