/* SPDX-License-Identifier: Apache-2.0 */
/* Bootstrap: find the other ranks of the job and provide the out-of-band (OOB) all-gather on which
 * set-up is built. */
#ifndef TWILL_BOOTSTRAP_H
#define TWILL_BOOTSTRAP_H

#include "fabric/auth/job_key.h"
#include "fabric/host/local_address.h"

#define TWILL_NONCE_BYTES 16

struct twill_oob;
struct twill_bootstrap_params;

/* Why a connection or a frame was rejected. */
enum twill_fault {
    TWILL_FAULT_NONE,
    TWILL_FAULT_MALFORMED, /* not twill's protocol */
    TWILL_FAULT_VERSION,   /* another version of twill */
    TWILL_FAULT_KEY,       /* the peer does not know the key */
    TWILL_FAULT_REPLAYED,  /* a recorded handshake or frame, or a frame out of order */
    TWILL_FAULT_OVERSIZED, /* longer than allowed */
    TWILL_FAULT_SLOW,      /* not authenticated in time */
    TWILL_FAULT_CLOSED,    /* closed before it was authenticated */
    TWILL_FAULT_REFUSED,   /* authenticated, but its rank is not expected or already connected */
    TWILL_FAULTS
};

/* Rejected connections and frames, counted by reason. */
struct twill_rejected {
    unsigned count[TWILL_FAULTS];
};
unsigned twill_rejected_total(const struct twill_rejected *rejected);
/* Write a summary such as "3 connections rejected (1 malformed, 2 without the key)". */
void twill_rejected_text(const struct twill_rejected *rejected, char *text, size_t bytes);

/* A bootstrap method. To add one, write its file and add it to the registry in bootstrap.c. */
struct twill_bootstrap_ops {
    size_t size_of;   /* bytes of its struct, which begins with struct twill_oob */
    const char *name; /* value of TWILL_LAUNCHER that selects it */
    /* Gather `bytes` of every rank into all, in rank order. Returns by the deadline. */
    twill_status (*allgather)(struct twill_oob *oob, const void *mine, void *all, size_t bytes,
                              struct twill_error *error);
    void (*close)(struct twill_oob *oob);
    /* Optional. Called every TWILL_ATTEND_NS while this rank waits for another one otherwise than
     * in an all-gather, for the ranks that wait for this one. late: it has waited for timeout_ns
     * and gives up. Returns false if one has failed: the next all-gather then says why. */
    bool (*attend)(struct twill_oob *oob, uint32_t awaited, bool late);
    /* Report whether the environment belongs to this method. The registry is asked in order. */
    bool (*applies)(const struct twill_bootstrap_params *params);
    twill_status (*open)(struct twill_oob **oob, const struct twill_bootstrap_params *params,
                         struct twill_error *error);
};

/* The out-of-band exchange of one set of ranks. Created by twill_bootstrap_open() or
 * twill_oob_lend(), freed by twill_oob_close(). Used by one thread at a time. */
struct twill_oob {
    const struct twill_bootstrap_ops *ops;
    int rank;
    int size;
    const uint32_t *job; /* [size] rank in the job of each rank; NULL: identical numbering */
    uint64_t timeout_ns;
    /* Waited in vain for other ranks since the last all-gather: the next one waits less. */
    uint64_t waited_ns;
    unsigned rounds;                   /* all-gathers so far */
    struct twill_secret secret;        /* of this run of the job, identical on all ranks */
    uint8_t nonce[TWILL_NONCE_BYTES];  /* public identifier of the run, identical on all ranks */
    uint32_t epoch;                    /* how often the job has grown */
    uint8_t origin[TWILL_NONCE_BYTES]; /* nonce of the run that the job began with */
    char address[TWILL_ADDRESS_TEXT];  /* at which other ranks connect to this host; loopback when
                                          the job is on one host */
    char interface[32];                /* interface of that address */
    char address_why[128];             /* why it was chosen, for messages */
    char how[320];                     /* "twillrun: RANK=0 of 4 at 127.0.0.1:4242", for messages */
    struct twill_rejected rejected;    /* rank 0: connections that did not belong to this job */
    const struct twill_log *log;       /* for what a long wait waits for; NULL: none */
};

/* How a process takes part in the growth of a job: with the text of its handle, as
 * a rank of the larger job, or as a new process, which is given a rank. */
struct twill_join {
    const char *handle;
    int rank;      /* TWILL_JOIN_ANY: a new process */
    int *listener; /* rank 0: a socket that listens at the handle's port; set to -1 when it is taken
                    * over, and then closed in any case. Else NULL. */
    const char *nodes;   /* rank 0: TWILL_LAYOUT=nodes of the larger job; NULL: its own */
    uint64_t timeout_ns; /* in place of TWILL_TIMEOUT; 0: none */
    bool (*has_ended)(void *user, uint32_t rank); /* see struct twill_job */
    void *user;
};
#define TWILL_JOIN_ANY (-1)

/* Input of all bootstrap methods. Strings may be NULL or empty when not set. */
struct twill_bootstrap_params {
    const struct twill_join *join;                             /* takes precedence over all else */
    const twill_bootstrap *caller;                             /* then this does */
    const char *rank, *world_size, *master_addr, *master_port; /* RANK, ... as text */
    const char *job;                /* TWILL_JOB: key of the job in hex, set by twillrun */
    const char *key_file;           /* TWILL_KEY_FILE */
    const struct twill_secret *key; /* of the job, provided by the launcher; or NULL */
    const char *listen_fd; /* TWILL_LISTEN_FD, internal: the listening socket of MASTER_PORT, which
                              twillrun passes to rank 0 so that no process can take the port */
    const char *launcher_fd; /* TWILL_LAUNCHER_FD, internal: see fabric/bootstrap/twillrun.h */
    const char *interface;   /* TWILL_INTERFACE: name or address, or NULL */
    const char *launcher;    /* TWILL_LAUNCHER: the only method to use, or auto, or NULL */
    const char *const *environment; /* NAME=VALUE strings, NULL-terminated */
    uint64_t timeout_ns;
    const struct twill_log *log; /* outlives the OOB; or NULL */
};

/* Select the first method of the table in bootstrap.c that applies. NULL if TWILL_LAUNCHER names
 * an unknown one. If opening it fails, no other is tried. Variables of a launcher of several ranks
 * that no method can use are an error, never a silent job of one rank. */
const struct twill_bootstrap_ops *
twill_bootstrap_detect(const struct twill_bootstrap_params *params);
/* Open the method that twill_bootstrap_detect() selects. On failure *oob is NULL. */
twill_status twill_bootstrap_open(struct twill_oob **oob,
                                  const struct twill_bootstrap_params *params,
                                  struct twill_error *error);
void twill_oob_close(struct twill_oob *oob); /* NULL is allowed */
/* Report whether this is rank 0, as far as the launchers' variables show before opening. */
bool twill_bootstrap_is_first(const struct twill_bootstrap_params *params);

static inline twill_status twill_oob_allgather(struct twill_oob *oob, const void *mine, void *all,
                                               size_t bytes, struct twill_error *error)
{
    oob->rounds++;
    twill_status status = oob->ops->allgather(oob, mine, all, bytes, error);
    oob->waited_ns = 0;
    return status;
}

/* Return how long an all-gather waits for other ranks, and how much longer the others than rank 0,
 * which sends them its reason, with a timeout. */
uint64_t twill_oob_patience(const struct twill_oob *oob);
uint64_t twill_oob_slack(uint64_t timeout_ns);

static inline bool twill_oob_attend(struct twill_oob *oob, uint32_t awaited, bool late)
{
    if (late)
        oob->waited_ns = oob->timeout_ns;
    return oob->ops == NULL || oob->ops->attend == NULL || oob->ops->attend(oob, awaited, late);
}

/* Rank 0 serves the TCP rendezvous under every launcher, which only provides its address
 * (launch_info.h). twillrun picks a free port and sets RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE
 * MASTER_ADDR MASTER_PORT TWILL_JOB and, for rank 0, TWILL_LISTEN_FD. Rank 0 detects failures and
 * notifies the other ranks, which wait twill_oob_slack() longer than it does. */

/* Write the name of a rank for messages: "rank 5" in the job's numbering; if `job` shows that the
 * communicator numbers its ranks differently, "rank 5 of the job (1 here)". Returns text. */
const char *twill_rank_text(const uint32_t *job, uint32_t rank, char text[TWILL_RANK_TEXT]);
/* twill_rank_text() into a temporary, for use in an argument list. */
#define TWILL_RANK_NAME(job, rank)                                                                 \
    twill_rank_text((job), (uint32_t)(rank), (char[TWILL_RANK_TEXT]){0})

/* allgather() and close() of a method without connections. */
twill_status twill_oob_alone(struct twill_oob *oob, const void *mine, void *all, size_t bytes,
                             struct twill_error *error);
void twill_oob_free(struct twill_oob *oob);

/* Derive the run's nonce from its secret. */
void twill_oob_name_run(struct twill_oob *oob);
/* Draw a random nonce. */
twill_status twill_bootstrap_random(uint8_t nonce[TWILL_NONCE_BYTES], struct twill_error *error);
/* Allocate a zeroed ops->size_of object of one rank, and set ops and timeout. */
twill_status twill_oob_new(struct twill_oob **oob, const struct twill_bootstrap_ops *ops,
                           const struct twill_bootstrap_params *params, struct twill_error *error);

/* Create an OOB that uses the all-gather of `lent`. Its ranks are a subset of those of `like`, from
 * which everything but rank, size and all-gather is copied. After twill_oob_lend_seal() the
 * all-gather is not called any more. */
twill_status twill_oob_lend(struct twill_oob **oob, const struct twill_oob *like,
                            const twill_bootstrap *lent, struct twill_error *error);
void twill_oob_lend_seal(struct twill_oob *oob);

/* --- bootstrap_handle.c ---------------------------------------------------------------------- */

/* The handle by which new processes find a job that grows, or processes each other for a
 * reconfiguration: a line of letters, digits and
 * , : . % _ - that travels through whatever store the caller has. Nothing in it is secret: who
 * joins must know the key of the job besides. */
#define TWILL_JOIN_HANDLE_TEXT 256 /* bytes that a handle's text needs at most */

struct twill_join_handle {
    uint32_t epoch;        /* that the job is about to have; size 0: that it has */
    uint32_t size, guests; /* ranks of the larger job; how many of them are new. 0, 0: of a single
                              process, for a reconfiguration */
    uint8_t origin[TWILL_NONCE_BYTES]; /* of the job: struct twill_oob; size 0: random */
    uint16_t port;                     /* at which rank 0, or the process, waits */
    char address[TWILL_ADDRESS_TEXT];
};

void twill_join_handle_write(const struct twill_join_handle *handle,
                             char text[TWILL_JOIN_HANDLE_TEXT]);
/* Returns TWILL_ERR_ARGUMENT unless twill_join_handle_write() has written the text. */
twill_status twill_join_handle_read(struct twill_join_handle *handle, const char *text,
                                    struct twill_error *error);

extern const struct twill_bootstrap_ops twill_bootstrap_handle, twill_bootstrap_caller,
    twill_bootstrap_twillrun, twill_bootstrap_torchrun, twill_bootstrap_pmi, twill_bootstrap_pmix,
    twill_bootstrap_pals, twill_bootstrap_alps, twill_bootstrap_slurm, twill_bootstrap_single;

#endif
