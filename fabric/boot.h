/* SPDX-License-Identifier: Apache-2.0 */
/* Bootstrap: how ranks find each other, and the all-gather that set-up is made of. */
#ifndef TWILL_BOOT_H
#define TWILL_BOOT_H

#include "lib/base.h"

#define TWILL_ADDRESS_TEXT 64 /* numeric IPv4 or IPv6 address as text */
#define TWILL_NONCE_BYTES  16

struct twill_boot;
struct twill_boot_params;

/* One way to find the other ranks. A new one is its file and a line in the registry of boot.c. */
struct twill_boot_ops {
    size_t size_of;
    const char *name; /* "single", "caller", "tcp" */
    /* Gather `bytes` of every rank, in rank order, into all. Ends by the deadline. */
    twill_status (*allgather)(struct twill_boot *boot, const void *mine, void *all, size_t bytes,
                              struct twill_error *error);
    void (*close)(struct twill_boot *boot);
    /* Does what was given point to this one? The registry is asked in order. */
    bool (*applies)(const struct twill_boot_params *params);
    twill_status (*open)(struct twill_boot **boot, const struct twill_boot_params *params,
                         struct twill_error *error);
};

struct twill_boot {
    const struct twill_boot_ops *ops;
    int rank;
    int size;
    uint64_t timeout_ns;
    uint8_t nonce[TWILL_NONCE_BYTES]; /* of the job, the same on all ranks */
    char address[TWILL_ADDRESS_TEXT]; /* where other ranks reach this host; loopback when the job is
                                         on one host */
    char interface[32];               /* that address is of, and why it is that one, for people */
    char address_why[128];
    char how[160];   /* "twillrun: RANK=0 of 4 at 127.0.0.1:4242", for people */
    unsigned strays; /* rank 0: connections that were not of this job and were turned away */
};

/* What bootstraps are made from. Strings may be NULL or empty: not given. */
struct twill_boot_params {
    const twill_bootstrap *caller;                             /* wins over everything */
    const char *rank, *world_size, *master_addr, *master_port; /* RANK, ... as text */
    const char *job;       /* TWILL_JOB: nonce of the job in hex, given by twillrun */
    const char *listen_fd; /* TWILL_LISTEN_FD, internal: twillrun hands rank 0 the listening socket
                              of MASTER_PORT, so that nobody can take the port in between */
    const char *interface; /* TWILL_INTERFACE: name or address, or NULL */
    uint64_t timeout_ns;
};

/* Detection: the caller's callback; else RANK and its friends (a subset of them is an error that
 * names what is missing; garbage likewise); else one rank. */
twill_status twill_boot_open(struct twill_boot **boot, const struct twill_boot_params *params,
                             struct twill_error *error);
void twill_boot_close(struct twill_boot *boot); /* NULL is allowed */

static inline twill_status twill_boot_allgather(struct twill_boot *boot, const void *mine,
                                                void *all, size_t bytes, struct twill_error *error)
{
    return boot->ops->allgather(boot, mine, all, bytes, error);
}

/* The TCP rendezvous is served by rank 0. twillrun picks a free port and sets RANK WORLD_SIZE
 * LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT TWILL_JOB and, for rank 0, TWILL_LISTEN_FD;
 * the same works under other launchers that set the first ones, where there is no TWILL_JOB. Rank 0
 * decides about failures and tells the others, who therefore wait a little longer than it does
 * (TWILL_BOOT_SLACK_NS) to hear who is missing. */
#define TWILL_BOOT_SLACK_NS UINT64_C(2000000000)

/* Random bytes for a job's nonce. */
twill_status twill_boot_random(uint8_t nonce[TWILL_NONCE_BYTES], struct twill_error *error);
/* Take memory for a bootstrap, with ops and timeout filled in. */
twill_status twill_boot_new(struct twill_boot **boot, const struct twill_boot_ops *ops,
                            const struct twill_boot_params *params, struct twill_error *error);

extern const struct twill_boot_ops twill_boot_caller, twill_boot_tcp, twill_boot_single;

/* --- hosts --------------------------------------------------------------------------------- */

/* What tells one host from another, also in containers and network namespaces: ranks are candidates
 * for one node when boot id and network namespace agree (that is where an abstract unix socket
 * reaches); fabric/segment.h then proves it by really sharing memory. */
struct twill_host {
    char boot_id[40]; /* /proc/sys/kernel/random/boot_id, or the host name */
    uint64_t net_namespace;
    uint64_t pid_namespace;
    uint64_t pid;
    char name[64]; /* host name, for people */
};
void twill_host_describe(struct twill_host *host);
bool twill_host_same_node(const struct twill_host *a, const struct twill_host *b);
/* Ranks as threads of one process: pointers are valid as they are. */
bool twill_host_same_process(const struct twill_host *a, const struct twill_host *b);

/* --- interfaces ---------------------------------------------------------------------------- */

/* Choose the local address for talking to `peer` (numeric text, or NULL: nobody in particular).
 * wanted: an interface name or address, or NULL. Never docker*, veth*, virbr*, br-*, nor loopback
 * unless peer is loopback or nothing else is up. why: half a sentence for people. */
twill_status twill_interface_choose(char address[TWILL_ADDRESS_TEXT], char interface[32],
                                    const char *wanted, const char *peer, char *why,
                                    size_t why_bytes, struct twill_error *error);
/* The interface that has this address; empty if none has. */
void twill_interface_of(char interface[32], const char *address);

#endif
