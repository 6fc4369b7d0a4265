/* SPDX-License-Identifier: Apache-2.0 */
/* The bootstrap finds the other ranks of a job and provides the out-of-band (OOB) all-gather. Under
 * every launcher, rank 0 serves a rendezvous over TCP, and the launcher provides its address
 * (launch_info.h). twillrun picks a free port and sets RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE
 * MASTER_ADDR MASTER_PORT TWILL_JOB and, for rank 0, TWILL_LISTEN_FD. Rank 0 detects failures and
 * notifies the others, which wait twill_oob_slack() longer. */
#ifndef TWILL_BOOTSTRAP_H
#define TWILL_BOOTSTRAP_H

#include "fabric/auth/job_key.h"
#include "fabric/host/local_address.h"

#define TWILL_NONCE_BYTES 16

struct twill_oob;
struct twill_bootstrap_params;
/* The reason why a connection or a frame was rejected. */
enum twill_fault {
    TWILL_FAULT_NONE,
    TWILL_FAULT_MALFORMED, /* not twill's protocol */
    TWILL_FAULT_VERSION,   /* another version of twill */
    TWILL_FAULT_KEY,       /* the peer does not know the key */
    TWILL_FAULT_REPLAYED,  /* a recorded handshake or frame, or a frame out of order */
    TWILL_FAULT_OVERSIZED, /* longer than allowed */
    TWILL_FAULT_SLOW,      /* not authenticated in time */
    TWILL_FAULT_CLOSED,    /* closed before it was authenticated */
    TWILL_FAULT_REFUSED,   /* authenticated, but its rank is not expected or is taken */
    TWILL_FAULTS
};

/* How many connections and frames were rejected, by reason. Part of an OOB or a detector. */
struct twill_rejected {
    unsigned count[TWILL_FAULTS]; /* by enum twill_fault */
};
/* Return the number of rejections for all reasons. */
unsigned twill_rejected_total(const struct twill_rejected *rejected);
/* Write text such as "3 connections rejected (1 malformed, 2 without the key)", cut to `bytes`. */
void twill_rejected_text(const struct twill_rejected *rejected, char *text, size_t bytes);

/* A bootstrap method, by which ranks find each other. Constant. bootstrap.c has the list of all. */
struct twill_bootstrap_ops {
    size_t size_of;   /* bytes of its object, which begins with struct twill_oob */
    const char *name; /* value of TWILL_LAUNCHER that selects it */
    /* Gather `bytes` of every rank into `all`, in rank order. Returns by the deadline. */
    twill_status (*allgather)(struct twill_oob *oob, const void *mine, void *all, size_t bytes,
                              struct twill_error *error);
    void (*close)(struct twill_oob *oob); /* and free it */
    /* Optional. Look whether ranks have failed, and answer those that ask whom it waits for. Called
     * every TWILL_ATTEND_NS while this rank waits for rank `awaited` outside of an all-gather.
     * `late` says that it has waited for timeout_ns and gives up. Returns false if a rank has
     * failed, and the next all-gather then fails with the reason. */
    bool (*attend)(struct twill_oob *oob, uint32_t awaited, bool late);
    /* Return whether the environment belongs to this method. The registry is asked in its order. */
    bool (*applies)(const struct twill_bootstrap_params *params);
    /* Join the job and set *oob, or fail. Blocks until all ranks have joined, or to the timeout. */
    twill_status (*open)(struct twill_oob **oob, const struct twill_bootstrap_params *params,
                         struct twill_error *error);
};

/* The out-of-band exchange of one set of ranks. twill_bootstrap_open() or twill_oob_lend() creates
 * it, and twill_oob_close() frees it. Used by one thread at a time. */
struct twill_oob {
    const struct twill_bootstrap_ops *ops;
    int rank;
    int size;
    const uint32_t *job;              /* [size] rank in the job of each rank; NULL: the same rank */
    uint64_t timeout_ns;              /* for all waits (TWILL_TIMEOUT) */
    uint64_t waited_ns;               /* in vain for ranks; the next all-gather waits less by it */
    unsigned rounds;                  /* all-gathers so far */
    struct twill_secret secret;       /* of this run of the job, equal on all ranks */
    uint8_t nonce[TWILL_NONCE_BYTES]; /* public name of this run, equal on all ranks */
    uint32_t epoch;                   /* number of times that the job has grown */
    uint8_t origin[TWILL_NONCE_BYTES]; /* nonce of the first run of the job, before it grew */
    char address[TWILL_ADDRESS_TEXT];  /* where other ranks connect to this host, or loopback */
    char interface[32];                /* interface of that address */
    char address_why[128];             /* why it was chosen, for messages */
    char how[320];                     /* "twillrun: RANK=0 of 4 at 127.0.0.1:4242", for messages */
    struct twill_rejected rejected;    /* rank 0: connections that were not of this job */
    const struct twill_log *log;       /* for reports of long waits; NULL: none */
};

/* How this process joins a job that grows, owned by the caller of twill_bootstrap_open(). It is a
 * rank of the larger job, or a new process that is given a rank. */
struct twill_join {
    const char *handle; /* text of struct twill_join_handle */
    int rank; /* rank in the larger job, or TWILL_JOIN_ANY in a new process, which gets one */
    /* Rank 0: socket that listens at the handle's port, set to -1 when taken over. Others: NULL. */
    int *listener;
    const char *nodes;   /* rank 0: TWILL_LAYOUT=nodes of the larger job; NULL: its own */
    uint64_t timeout_ns; /* replaces TWILL_TIMEOUT; 0: TWILL_TIMEOUT holds */
    bool (*has_ended)(void *user, uint32_t rank); /* see struct twill_job */
    void *user;
};
#define TWILL_JOIN_ANY (-1)
/* The input of bootstrap methods, owned by their caller. Strings may be NULL or "" if not set. */
struct twill_bootstrap_params {
    const struct twill_join *join;                             /* overrides everything else */
    const twill_bootstrap *caller;                             /* overrides variables */
    const char *rank, *world_size, *master_addr, *master_port; /* RANK ... as text */
    const char *job;                /* TWILL_JOB: key of the job in hex digits, set by twillrun */
    const char *key_file;           /* TWILL_KEY_FILE */
    const struct twill_secret *key; /* of the job, from the launcher; or NULL */
    const char *listen_fd;   /* TWILL_LISTEN_FD, internal: twillrun's socket at MASTER_PORT */
    const char *launcher_fd; /* TWILL_LAUNCHER_FD, internal: see fabric/bootstrap/twillrun.h */
    const char *interface;   /* TWILL_INTERFACE: name or address, or NULL */
    const char *launcher;    /* TWILL_LAUNCHER: the only method to use; auto, or NULL: any */
    const char *const *environment; /* NAME=VALUE strings, NULL-terminated */
    uint64_t timeout_ns;
    const struct twill_log *log; /* outlives the OOB; or NULL */
};

/* Return the first method of the registry that applies, or the method that TWILL_LAUNCHER names
 * unless params->join or params->caller is set. Returns NULL if no method has that name. Variables
 * of a launcher of several ranks that no method can use are an error when the job is opened, never
 * a silent job of one rank. */
const struct twill_bootstrap_ops *
twill_bootstrap_detect(const struct twill_bootstrap_params *params);
/* Join the job by the method that twill_bootstrap_detect() returns. Sets *oob, which
 * twill_oob_close() frees, or NULL on failure. Returns TWILL_ERR_CONFIG if there is no method. */
twill_status twill_bootstrap_open(struct twill_oob **oob,
                                  const struct twill_bootstrap_params *params,
                                  struct twill_error *error);
void twill_oob_close(struct twill_oob *oob); /* close and free it; NULL: do nothing */
/* Return whether this process is rank 0, or no variable of the launcher shows its rank. */
bool twill_bootstrap_is_first(const struct twill_bootstrap_params *params);
/* Gather `bytes` at `mine` of every rank into `all`, in rank order. Collective. Fails if a rank has
 * failed or twill_oob_patience() is over. Sets oob->waited_ns to 0. */
static inline twill_status twill_oob_allgather(struct twill_oob *oob, const void *mine, void *all,
                                               size_t bytes, struct twill_error *error)
{
    oob->rounds++;
    twill_status status = oob->ops->allgather(oob, mine, all, bytes, error);
    oob->waited_ns = 0;
    return status;
}

/* Return the ns that an all-gather waits for others, timeout_ns less waited_ns, with a minimum. */
uint64_t twill_oob_patience(const struct twill_oob *oob);
/* Return the ns that other ranks wait longer than rank 0 does, to get its reason for a failure. */
uint64_t twill_oob_slack(uint64_t timeout_ns);
/* Look whether ranks have failed, and answer ranks that ask whom this rank waits for. Called every
 * TWILL_ATTEND_NS while this rank waits for rank `awaited` outside of an all-gather. `late` says
 * that it has waited for oob->timeout_ns and gives up, so the next all-gather waits only briefly.
 * Returns false if a rank has failed, and true if not or if the method has no attend(). */
static inline bool twill_oob_attend(struct twill_oob *oob, uint32_t awaited, bool late)
{
    if (late)
        oob->waited_ns = oob->timeout_ns;
    return oob->ops == NULL || oob->ops->attend == NULL || oob->ops->attend(oob, awaited, late);
}

/* Write the name of a rank for messages, and return `text`. It is "rank 5" if `job` is NULL, else
 * "rank 5 of the job (1 here)", with the ranks of the job in `job`. */
const char *twill_rank_text(const uint32_t *job, uint32_t rank, char text[TWILL_RANK_TEXT]);
/* Evaluate to the name of a rank in a temporary, for use in an argument list. */
#define TWILL_RANK_NAME(job, rank)                                                                 \
    twill_rank_text((job), (uint32_t)(rank), (char[TWILL_RANK_TEXT]){0})

/* The allgather() of methods of one rank. It copies `mine` to `all` and returns TWILL_OK. */
twill_status twill_oob_alone(struct twill_oob *oob, const void *mine, void *all, size_t bytes,
                             struct twill_error *error);
void twill_oob_free(struct twill_oob *oob); /* close() without connections: wipe secret, free it */

/* Set oob->nonce, the public name of this run, to what is derived from oob->secret. */
void twill_oob_name_run(struct twill_oob *oob);
/* Draw a random nonce. Fails with TWILL_ERR_SYSTEM if the kernel gives no random numbers. */
twill_status twill_bootstrap_random(uint8_t nonce[TWILL_NONCE_BYTES], struct twill_error *error);
/* Allocate a method's object, zeroed, for a job of one rank, and set its operations, timeout and
 * log. Returns TWILL_ERR_MEMORY, with *oob NULL, if there is no memory. */
twill_status twill_oob_new(struct twill_oob **oob, const struct twill_bootstrap_ops *ops,
                           const struct twill_bootstrap_params *params, struct twill_error *error);
/* Create an OOB of some of the ranks of `like`. Its all-gather, rank and size are those of `lent`.
 * Its secret, address, timeout and other members are copied from `like`. twill_oob_close() frees
 * it. Returns TWILL_ERR_ARGUMENT if `lent` is invalid, or TWILL_ERR_MEMORY. */
twill_status twill_oob_lend(struct twill_oob **oob, const struct twill_oob *like,
                            const twill_bootstrap *lent, struct twill_error *error);
/* Stop calling the all-gather of a lent OOB. All-gathers of more than one rank fail from now on. */
void twill_oob_lend_seal(struct twill_oob *oob);
#define TWILL_JOIN_HANDLE_TEXT 256 /* most bytes of a handle's text, one line without secrets */
/* The handle by which new processes find a job that grows, parsed. In a reconfiguration, each
 * process has a handle, with 0 as size and guests, by which the others find it. A plain value. */
struct twill_join_handle {
    uint32_t epoch;        /* of the job after its growth; if size is 0, the present one */
    uint32_t size, guests; /* ranks of the larger job; those of them that are new */
    uint8_t origin[TWILL_NONCE_BYTES]; /* of the job, see struct twill_oob; size 0: random */
    uint16_t port;                     /* where rank 0, or the process, listens */
    char address[TWILL_ADDRESS_TEXT];
};

/* Write a handle as text, with check digits at its end. */
void twill_join_handle_write(const struct twill_join_handle *handle,
                             char text[TWILL_JOIN_HANDLE_TEXT]);
/* Parse a handle. Returns TWILL_ERR_ARGUMENT unless twill_join_handle_write() wrote the text. */
twill_status twill_join_handle_read(struct twill_join_handle *handle, const char *text,
                                    struct twill_error *error);

extern const struct twill_bootstrap_ops twill_bootstrap_handle, twill_bootstrap_caller,
    twill_bootstrap_twillrun, twill_bootstrap_torchrun, twill_bootstrap_pmi, twill_bootstrap_pmix,
    twill_bootstrap_pals, twill_bootstrap_alps, twill_bootstrap_slurm, twill_bootstrap_single;

#endif
