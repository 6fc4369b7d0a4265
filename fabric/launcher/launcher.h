/* SPDX-License-Identifier: Apache-2.0 */
/* twillrun: starts the ranks of a job, watches over them, and ends with their code. On one host it
 * does so itself (struct twill_launch). With several, it starts a server of its own kind on each
 * (front.c), which does the same there (server.c) and tells it through frames (pipe.h). */
#ifndef TWILL_LAUNCHER_H
#define TWILL_LAUNCHER_H

#include "fabric/launcher/pipe.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#define TWILL_EXIT_USAGE 2
#define TWILL_MAX_RANKS  65535
#define TWILL_TERM_NS    UINT64_C(2000000000) /* between SIGTERM and SIGKILL */
#define TWILL_COMPLAINT  "twillrun: "         /* before what twillrun says */

#define TWILL_QUOTED(x) #x
#define TWILL_QUOTE(x)  TWILL_QUOTED(x)
#define TWILL_VERSION_TEXT                                                                         \
    TWILL_QUOTE(TWILL_VERSION_MAJOR)                                                               \
    "." TWILL_QUOTE(TWILL_VERSION_MINOR) "." TWILL_QUOTE(TWILL_VERSION_PATCH)

/* AUTO: to cores, where there are enough. */
enum twill_bind {
    TWILL_BIND_AUTO,
    TWILL_BIND_NONE,
    TWILL_BIND_CORE,
    TWILL_BIND_L3,
    TWILL_BIND_NUMA,
    TWILL_BIND_PACKAGE,
    TWILL_BIND_COUNT
};
enum twill_map { TWILL_MAP_CORE, TWILL_MAP_NODE }; /* fill a host first, or go round the hosts */

/* A host that was named. */
struct twill_site {
    char *name;
    int slots;
    int most;  /* ranks that may be there, all the same; 0: as many as there are places */
    int ranks; /* placed there */
    bool local;
};

struct twill_options {
    int ranks;
    bool label, serve;
    bool report;        /* which cores each rank is bound to */
    bool oversubscribe; /* more ranks than places, or cores, are meant */
    enum twill_bind bind;
    enum twill_map map;
    uint64_t grace_ns;   /* for the others to notice a failure and say so */
    uint64_t timeout_ns; /* for hosts to answer */
    struct twill_site *site;
    int sites;          /* 0: this host */
    int *place;         /* [ranks] site of each, with sites */
    const char *agent;  /* program that runs something on another host, and its first arguments */
    const char *remote; /* path of twillrun there */
    char **assignments; /* of -x: NAME=VALUE, NULL at the end */
    int assigned;
    char **command;      /* program and arguments */
    struct rlimit files; /* of descriptors, as it was: what ranks and agents begin with */
};

/* What twillrun has been asked to end by. */
struct twill_stop_request {
    int times;         /* SIGINT and SIGTERM seen */
    uint64_t until_ns; /* who reads output has time until then; 0: as long as it takes */
};

/* One pipe of output and the line that is not complete yet. */
struct twill_stream {
    int from;                                      /* -1: at its end, or not ours */
    int to;                                        /* standard output or error */
    int rank;                                      /* whose it is */
    struct twill_pipe *link;                       /* it is passed on there; or NULL */
    const char *label;                             /* before each line; may be empty */
    const struct twill_stop_request *stop_request; /* or NULL */
    bool relayed; /* of another twillrun: not to say its name twice */
    bool stuck;   /* the last of it was dropped, since nobody read */
    int lost;     /* errno: it cannot be written any more */
    char *line;
    size_t used, capacity;
};

struct twill_child {
    pid_t pid; /* leads a process group of its own; 0: not started, or gone */
    int rank;
    bool seen;    /* to have ended */
    bool entered; /* it has called twill_init */
    char label[12];
    struct twill_stream out[2];
};

#define TWILL_JOB_TEXT 65 /* the key of a job in hex */

struct twill_cpus;

struct twill_launch {
    const struct twill_options *options;
    struct twill_child *child; /* [here], in the order of ranks */
    int here;                  /* ranks on this host */
    struct twill_cpus *cpus;   /* [here] that they are bound to, or NULL */
    char unbound[256];         /* why they are not, where that was not asked for; or empty */
    int listener;              /* given to rank 0, or -1 */
    char address[64], port[8]; /* where it listens, wherever that is */
    char job[TWILL_JOB_TEXT];
    int stdin_from; /* terminal that is relayed to rank 0, or -1 */
    int stdin_to;
    sigset_t mask; /* of the launcher's caller: what ranks begin with */
    int signals;   /* signalfd */
    int alive;     /* ranks */
    int failed;    /* first rank that failed, or -1 */
    int code;      /* its exit code */
    struct twill_stop_request stop_request;
    int phase;               /* of ending: 0 none, 1 grace, 2 SIGTERM sent, 3 SIGKILL sent */
    uint64_t next_ns;        /* when the next stage begins */
    int rank_socket[2];      /* see fabric/bootstrap/exit_notice.h: ours, and the ranks' */
    bool notified;           /* the word has been said */
    struct twill_pipe *link; /* of a server, to the twillrun that started it; or NULL */
    char *input;             /* of a server: what is on its way to rank 0 */
    size_t input_used;
    bool input_ended;
};

/* Print "twillrun: ..." to standard error. */
void twill_complain(const char *format, ...) TWILL_PRINTF(1, 2);
/* A reader of a number in an argument: false if it is none, or outside low .. high. */
bool twill_read_number(const char *text, long low, long high, int *value);

/* 0: go on; else the program is to end with *code. */
int twill_options_read(struct twill_options *options, int argc, char **argv, int *code);
void twill_options_free(struct twill_options *options);

/* --- launcher_hosts.c: where ranks are to be --- */
/* "a:2,b:2", or a file with a host a line. They have complained when they return false. */
bool twill_sites_add(struct twill_options *options, const char *list);
bool twill_sites_read(struct twill_options *options, const char *path);
/* How many ranks (unless that was said), and which of them where. A host that has two names here
 * counts once. */
bool twill_sites_place(struct twill_options *options);
/* The only host that has ranks, or -1: there are several. */
int twill_sites_only(const struct twill_options *options);

/* --- twillrun.c: setting a job up on this host --- */
/* A place for the ranks of this host. */
bool twill_launch_open(struct twill_launch *launch, const struct twill_options *options, int here);
void twill_launch_close(struct twill_launch *launch);
bool twill_launch_listen(struct twill_launch *launch, const char *address);
/* As many descriptors as may be: a rank whose output is labelled or passed on needs two. */
void twill_files_allow(struct twill_options *options);
/* TWILL_JOB. */
bool twill_job_make(char job[TWILL_JOB_TEXT]);
/* Signals become readable instead of interrupting: a descriptor, or -1. */
int twill_signals_take(sigset_t *mask);
/* Start the ranks of this host. Exit code of what did not work, and it is ending then. */
int twill_launch_start(struct twill_launch *launch);

/* A child is to be this rank; nothing is open yet. asked: for its streams. */
void twill_child_name(const struct twill_options *options, struct twill_child *child, int rank,
                      const struct twill_stop_request *stop_request);
/* Start one (by its index). 0, or the exit code to end with; it has complained. */
int twill_child_start(struct twill_launch *launch, int index);

/* --- supervise.c --- */
/* Wait for all of them: the exit code. */
int twill_launch_supervise(struct twill_launch *launch);
/* To all ranks and their children. SIGTERM begins to end the job, and so does a second SIGINT. */
void twill_launch_signal(struct twill_launch *launch, int number);
/* Begin to end the job. */
void twill_launch_end(struct twill_launch *launch, uint64_t after_ns);

/* --- exit_notice.c: for ranks that wait for others in twill_init --- */
bool twill_rank_socket_open(struct twill_launch *launch);
void twill_rank_socket_close(struct twill_launch *launch);
/* Which ranks have called twill_init. */
void twill_rank_socket_receive(struct twill_launch *launch);
/* A rank, on any host, has ended; the first counts. */
void twill_rank_socket_notify(struct twill_launch *launch, int rank, const char *how);

/* --- server.c: for ranks of a job that another host's twillrun runs --- */
int twill_server_run(void);
/* What a server waits for besides its ranks, and what it does then. */
#define TWILL_SERVER_POLLS 3
void twill_server_polls(struct twill_launch *launch, struct pollfd polls[TWILL_SERVER_POLLS]);
void twill_server_turn(struct twill_launch *launch, const struct pollfd polls[TWILL_SERVER_POLLS]);
void twill_server_report(struct twill_launch *launch, int rank, int code, const char *how);

/* --- front.c: for a job on several hosts --- */
int twill_front_run(const struct twill_options *options);

/* LD_PRELOAD for ranks that are to have TWILL_HEAP=shared; what is there already stays. false: no
 * memory. */
bool twill_preload_set(void);

/* --- bind_ranks.c --- */
/* Choose what each rank of this host is bound to, and report it if that is asked for. */
void twill_launch_bind(struct twill_launch *launch);
/* Bind the calling process as it was chosen for a rank. false with errno. */
bool twill_child_bind(const struct twill_launch *launch, int index);

/* Take what has come: whole lines, labelled, or frames. false: at its end. */
bool twill_stream_move(struct twill_stream *stream);
/* The same with data that came elsewhere. false: it cannot be written, or there is no memory. */
bool twill_stream_add(struct twill_stream *stream, const char *data, size_t bytes);
/* Write what is left and close. */
void twill_stream_end(struct twill_stream *stream);

#endif
