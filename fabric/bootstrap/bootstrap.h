/* SPDX-License-Identifier: Apache-2.0 */
/* Bootstrap: how ranks find each other, and the all-gather that set-up is made of. */
#ifndef TWILL_BOOTSTRAP_H
#define TWILL_BOOTSTRAP_H

#include "fabric/auth/job_key.h"

#define TWILL_ADDRESS_TEXT 64 /* numeric IPv4 or IPv6 address as text */
#define TWILL_NONCE_BYTES  16

struct twill_oob;
struct twill_bootstrap_params;

/* Why a connection or a frame was dropped. */
enum twill_fault {
    TWILL_FAULT_NONE,
    TWILL_FAULT_MALFORMED, /* nothing of ours */
    TWILL_FAULT_VERSION,   /* another version of twill */
    TWILL_FAULT_KEY,       /* does not know the key */
    TWILL_FAULT_REPLAYED,  /* was right once: a recorded greeting or frame, or one out of order */
    TWILL_FAULT_OVERSIZED, /* longer than what may come */
    TWILL_FAULT_SLOW,      /* did not say who it is in time */
    TWILL_FAULT_CLOSED,    /* ended before it said who it is */
    TWILL_FAULT_REFUSED,   /* knows the key, but is not one of these ranks, or is taken */
    TWILL_FAULTS
};

/* Connections that were dropped, by reason. */
struct twill_rejected {
    unsigned count[TWILL_FAULTS];
};
unsigned twill_rejected_total(const struct twill_rejected *rejected);
/* "3 stray connections turned away (1 malformed, 2 without the key)". */
void twill_rejected_text(const struct twill_rejected *rejected, char *text, size_t bytes);

/* One way to find the other ranks. A new one is its file and a line in the registry of bootstrap.c.
 */
struct twill_bootstrap_ops {
    size_t size_of;
    const char *name; /* as TWILL_LAUNCHER says it */
    /* Gather `bytes` of every rank, in rank order, into all. Ends by the deadline. */
    twill_status (*allgather)(struct twill_oob *oob, const void *mine, void *all, size_t bytes,
                              struct twill_error *error);
    void (*close)(struct twill_oob *oob);
    /* Does what was given point to this one? The registry is asked in order. */
    bool (*applies)(const struct twill_bootstrap_params *params);
    twill_status (*open)(struct twill_oob **oob, const struct twill_bootstrap_params *params,
                         struct twill_error *error);
};

struct twill_oob {
    const struct twill_bootstrap_ops *ops;
    int rank;
    int size;
    const uint32_t *job; /* [size] rank of the job of each rank; NULL: the same number */
    uint64_t timeout_ns;
    struct twill_secret secret;       /* of this run of the job, the same on all ranks */
    uint8_t nonce[TWILL_NONCE_BYTES]; /* its public name, the same on all ranks */
    char address[TWILL_ADDRESS_TEXT]; /* where other ranks reach this host; loopback when the job is
                                         on one host */
    char interface[32];               /* that address is of, and why it is that one, for people */
    char address_why[128];
    char how[320];                  /* "twillrun: RANK=0 of 4 at 127.0.0.1:4242", for people */
    struct twill_rejected rejected; /* rank 0: connections that were not of this job */
};

/* What bootstraps are made from. Strings may be NULL or empty: not given. */
struct twill_bootstrap_params {
    const twill_bootstrap *caller;                             /* wins over everything */
    const char *rank, *world_size, *master_addr, *master_port; /* RANK, ... as text */
    const char *job;                /* TWILL_JOB: key of the job in hex, given by twillrun */
    const char *key_file;           /* TWILL_KEY_FILE */
    const struct twill_secret *key; /* of the job, by the launcher's own means; or NULL */
    const char *listen_fd; /* TWILL_LISTEN_FD, internal: twillrun hands rank 0 the listening socket
                              of MASTER_PORT, so that nobody can take the port in between */
    const char *launcher_fd; /* TWILL_LAUNCHER_FD, internal: see fabric/bootstrap/exit_notice.h */
    const char *interface;   /* TWILL_INTERFACE: name or address, or NULL */
    const char *launcher;    /* TWILL_LAUNCHER: the only one to look for, or auto, or NULL */
    const char *const *environment; /* NAME=VALUE, NULL at the end: what launchers leave there */
    uint64_t timeout_ns;
};

/* Detection, in the order of the table in bootstrap.c: the first that applies is opened, and if
 * that fails, no other is tried. A launcher that says that there are several ranks, but that
 * nothing here understands, is an error: never silently one rank. */
const struct twill_bootstrap_ops *
twill_bootstrap_detect(const struct twill_bootstrap_params *params);
twill_status twill_bootstrap_open(struct twill_oob **oob,
                                  const struct twill_bootstrap_params *params,
                                  struct twill_error *error);
void twill_oob_close(struct twill_oob *oob); /* NULL is allowed */
/* Does what launchers have set make this the first rank, as far as that can be told before opening?
 */
bool twill_bootstrap_is_first(const struct twill_bootstrap_params *params);

static inline twill_status twill_oob_allgather(struct twill_oob *oob, const void *mine, void *all,
                                               size_t bytes, struct twill_error *error)
{
    return oob->ops->allgather(oob, mine, all, bytes, error);
}

/* The TCP rendezvous is served by rank 0, whatever the launcher: it only tells where
 * (launch_info.h). twillrun picks a free port and sets RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE
 * MASTER_ADDR MASTER_PORT TWILL_JOB and, for rank 0, TWILL_LISTEN_FD. Rank 0 decides about failures
 * and tells the others, who therefore wait a little longer than it does (TWILL_BOOTSTRAP_SLACK_NS)
 * to hear who is missing. */
#define TWILL_BOOTSTRAP_SLACK_NS UINT64_C(2000000000)

/* What people call a rank: "rank 5", by its number in the job; "rank 5 of the job (1 here)" where
 * job says that its communicator has other numbers. Returns text. */
#define TWILL_RANK_TEXT 48
const char *twill_rank_text(const uint32_t *job, uint32_t rank, char text[TWILL_RANK_TEXT]);
/* The same in an argument of a call. */
#define TWILL_RANK_NAME(job, rank)                                                                 \
    twill_rank_text((job), (uint32_t)(rank), (char[TWILL_RANK_TEXT]){0})

/* The public name of a run whose secret is known. */
void twill_oob_name_run(struct twill_oob *oob);
/* Random bytes for a job's nonce. */
twill_status twill_bootstrap_random(uint8_t nonce[TWILL_NONCE_BYTES], struct twill_error *error);
/* Take memory for a bootstrap, with ops and timeout filled in. */
twill_status twill_oob_new(struct twill_oob **oob, const struct twill_bootstrap_ops *ops,
                           const struct twill_bootstrap_params *params, struct twill_error *error);

/* A bootstrap by the all-gather that a caller lends, of ranks who are among those of `like`: all
 * but rank, size and all-gather is taken from there. Sealed, it is not called any more. */
twill_status twill_oob_lend(struct twill_oob **oob, const struct twill_oob *like,
                            const twill_bootstrap *lent, struct twill_error *error);
void twill_oob_lend_seal(struct twill_oob *oob);

extern const struct twill_bootstrap_ops twill_bootstrap_caller, twill_bootstrap_twillrun,
    twill_bootstrap_torchrun, twill_bootstrap_pmi, twill_bootstrap_pmix, twill_bootstrap_pals,
    twill_bootstrap_alps, twill_bootstrap_slurm, twill_bootstrap_single;

/* --- hosts --------------------------------------------------------------------------------- */

/* What tells one host from another, also in containers and network namespaces: ranks are candidates
 * for one node when boot id and network namespace agree (that is where an abstract unix socket
 * reaches); fabric/shm/shared_region.h then proves it by really sharing memory. */
struct twill_host {
    char boot_id[40]; /* /proc/sys/kernel/random/boot_id, or the host name */
    uint64_t net_namespace;
    uint64_t pid_namespace; /* or a number of this program; 0 where neither is known */
    uint64_t pid;
    char name[64]; /* host name, for people */
};
void twill_host_describe(struct twill_host *host);
bool twill_host_same_node(const struct twill_host *a, const struct twill_host *b);
/* Ranks as threads of one process: pointers are valid as they are. */
bool twill_host_same_process(const struct twill_host *a, const struct twill_host *b);

/* --- interfaces ---------------------------------------------------------------------------- */

/* Choose the local address for talking to `peer` (numeric text, or NULL: nobody in particular), by
 * the route. wanted: an interface's name or address, or a list of them of which the first counts,
 * or NULL. To nobody in particular never what is for containers or virtual machines, tunnels, nor
 * loopback or a bridge unless nothing else is up. why: half a sentence for people. */
twill_status twill_interface_choose(char address[TWILL_ADDRESS_TEXT], char interface[32],
                                    const char *requested, const char *peer, char *why,
                                    size_t why_bytes, struct twill_error *error);
/* The interface that has this address; empty if none has. */
void twill_interface_of(char interface[32], const char *address);
/* Another host's link-local address ("fe80::1%eth1") names its own interface: put ours there, as in
 * `own`. Others stay as they are. */
void twill_address_localise(char address[TWILL_ADDRESS_TEXT], const char *own);
/* The addresses that other hosts may reach this one by, the likeliest first, separated by blanks:
 * none of loopback, link-local or virtual interfaces. As many as there is room for; may be none. */
void twill_interface_addresses(char *text, size_t bytes);

#endif
