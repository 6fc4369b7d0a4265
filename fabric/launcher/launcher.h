/* SPDX-License-Identifier: Apache-2.0 */
/* twillrun: starts the ranks of a job, supervises them, and exits with the code of the first that
 * failed. On one host it does so itself (struct twill_launch). With several hosts it starts a
 * host agent, its own program, on each (front.c), which does the same there (host_agent.c) and
 * reports through frames (pipe.h). One thread. */
#ifndef TWILL_LAUNCHER_H
#define TWILL_LAUNCHER_H

#include "fabric/bootstrap/twillrun.h"
#include "fabric/launcher/pipe.h"

#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#define TWILL_EXIT_USAGE 2
#define TWILL_MAX_RANKS  65535
#define TWILL_COMPLAINT  "twillrun: " /* prefix of twillrun's messages */

#define TWILL_HOW_TEXT 320 /* how a rank ended, in words */

#define TWILL_QUOTED(x) #x
#define TWILL_QUOTE(x)  TWILL_QUOTED(x)
#define TWILL_VERSION_TEXT                                                                         \
    TWILL_QUOTE(TWILL_VERSION_MAJOR)                                                               \
    "." TWILL_QUOTE(TWILL_VERSION_MINOR) "." TWILL_QUOTE(TWILL_VERSION_PATCH)

/* What each rank is bound to. AUTO: cores, if there are enough. */
enum twill_bind {
    TWILL_BIND_AUTO,
    TWILL_BIND_NONE,
    TWILL_BIND_CORE,
    TWILL_BIND_L3,
    TWILL_BIND_NUMA,
    TWILL_BIND_PACKAGE,
    TWILL_BIND_COUNT
};
/* Which ranks go where: fill a host before the next one, or one rank a host in turn. */
enum twill_map { TWILL_MAP_CORE, TWILL_MAP_NODE };

/* A host that the user named. */
struct twill_site {
    char *name;
    int slots;
    int most;  /* limit of ranks with --oversubscribe; 0: none */
    int ranks; /* placed there */
    bool local;
    bool merged; /* it is another name of a site before it, which has its places */
};

/* One of the programs of a job. */
struct twill_program {
    int ranks;
    char **words; /* with its arguments, NULL-terminated; part of the options' command */
};

/* The parsed command line, or what a host agent was sent. */
struct twill_options {
    int ranks;
    int least, most; /* --elastic: ranks to go on with, ranks to keep; most 0: off */
    bool label, serve;
    bool check, json;      /* check the hosts instead of running a program; as JSON */
    const char *json_file; /* with json: where it goes besides the page, or NULL */
    bool report;           /* print which cores each rank is bound to */
    bool oversubscribe;    /* more ranks than slots or cores are intended */
    enum twill_bind bind;
    enum twill_map map;
    uint64_t grace_ns;   /* after a failure: time for the other ranks to detect and report it */
    uint64_t timeout_ns; /* for hosts to answer: to start their ranks, and once one has ended */
    struct twill_site *site;
    int sites;          /* 0: this host only */
    int *place;         /* [twill_options_places()] index in site of each; with sites only */
    const char *agent;  /* program that runs another on a host, with its first arguments */
    const char *remote; /* path of twillrun on other hosts, or NULL: that of this one */
    char **assignments; /* of -x: NAME=VALUE, NULL-terminated */
    int assigned;
    char **command; /* first program and arguments, NULL-terminated; may be empty with check */
    struct twill_program *program; /* [programs] in the order of ranks */
    int programs;
    struct rlimit files; /* original RLIMIT_NOFILE, which ranks and agents get */
};

/* Signals that asked twillrun to end. */
struct twill_stop_request {
    int times;         /* SIGINT and SIGTERM received */
    uint64_t until_ns; /* how long to wait for a reader of the output; 0: no limit */
};

/* A pipe of output and its incomplete last line. */
struct twill_stream {
    int from;                /* -1: at its end, or on another host */
    int to;                  /* STDOUT_FILENO or STDERR_FILENO */
    int rank;                /* that writes it */
    struct twill_pipe *link; /* forward it as frames there; or NULL */
    const char *label;       /* before each line; may be empty */
    bool relayed;            /* messages of another host: as plain text, without TWILL_COMPLAINT */
    bool lost;               /* it cannot be written any more */
    char *line;
    size_t used, capacity;
};

/* A rank on this host. */
struct twill_child {
    pid_t pid; /* leads a process group; 0: not started, or ended */
    int rank;
    bool seen;      /* reap_children(): has ended */
    bool entered;   /* it has called twill_init */
    bool joins;     /* --elastic: it joins the job that runs */
    bool dismissed; /* it was killed while it waited for that */
    bool undecided; /* it has failed, and is replaced if a rank of the job is left */
    char label[12];
    struct twill_stream out[2];
};

#define TWILL_JOB_TEXT 65 /* the key of a job in hex */
#define TWILL_RESTARTS 10 /* of --elastic, in a short time */

/* New processes that --elastic has started in the place of failed ranks. */
struct twill_restarts {
    unsigned count;
    uint64_t at_ns[TWILL_RESTARTS]; /* when the last ones were */
};

/* Whether a rank of the job is left, which could take new processes in. */
enum twill_ranks_left { TWILL_LEFT_NONE, TWILL_LEFT_UNKNOWN, TWILL_LEFT_SOME };

/* --elastic: the question whether a rank of the job is left, asked when none seems to be: one may
 * just have been taken in. Its answer takes until all hosts have reported, and until processes that
 * have a handle are in the job. Part of the job where that is decided: struct twill_front, or on
 * one host struct twill_launch. */
struct twill_left_question {
    uint32_t number;   /* of the last question */
    uint64_t asked_ns; /* when it was asked; 0: no answer is awaited */
};

#define TWILL_SAID_TEXT sizeof(((struct twill_log_line *)0)->text)
#define TWILL_SAYINGS   8

/* A line of the library in a rank, until it is printed for all that say it. */
struct twill_saying {
    int count;                                          /* of ranks; 0: free */
    bool differs;                                       /* the lines do, by who says it */
    char text[TWILL_SAID_TEXT], alike[TWILL_SAID_TEXT]; /* of the first; without its rank */
    bool *said;                                         /* [ranks] which they are, if known */
    uint64_t first_ns, last_ns;
};
struct twill_sayings {
    int ranks; /* of the job */
    struct twill_saying saying[TWILL_SAYINGS];
};

struct twill_cpus;

/* The ranks of a job on this host. A local variable of run_local() or twill_host_agent_run(). */
struct twill_launch {
    const struct twill_options *options;
    struct twill_child *child; /* [here], at first in the order of ranks */
    int here;                  /* ranks that there may be on this host */
    int first;                 /* those that are started at first, child[0] and on: LOCAL_RANK */
    struct twill_cpus *cpus;   /* [first] that they are bound to, or NULL */
    char unbound[256];         /* why ranks are not bound although they should be; or empty */
    int listener;              /* inherited by rank 0, or -1 */
    char address[64], port[8]; /* where rank 0 listens, on any host */
    char job[TWILL_JOB_TEXT];
    sigset_t mask; /* original signal mask, which ranks get */
    int signals;   /* signalfd */
    int alive;     /* ranks that have not ended */
    int failed;    /* first rank that failed, or -1 */
    int code;      /* its exit code */
    struct twill_stop_request stop_request;
    int phase;        /* of ending: 0 none, 1 grace, 2 SIGTERM sent, 3 SIGKILL sent */
    uint64_t next_ns; /* when the next phase begins */
    struct twill_sayings sayings;
    int rank_socket[2];      /* see fabric/bootstrap/twillrun.h: ours, and the ranks' */
    bool notified;           /* the exit notice was sent */
    uint64_t oom_kills;      /* that the kernel has counted and that were said */
    struct twill_pipe *link; /* host agent: to the twillrun that started it; or NULL */
    struct {
        int from, to; /* terminal that is forwarded to rank 0, or -1; and the pipe to that */
        char *held;   /* host agent: [TWILL_INPUT_WINDOW] input on its way to rank 0 */
        size_t used;
        bool ended;
    } input;
    struct {                   /* --elastic */
        char folder[PATH_MAX]; /* for files of new processes and the job; or empty */
        int host;              /* number of this host in the names of the files */
        char reached[64];      /* address at which other hosts reach this one; or empty */
        int watch;             /* inotify of the folder, or -1 */
        int waiting;           /* children that are not in the job yet */
        int joining;           /* those of them that have a handle */
        bool finishing;        /* a rank has ended with status 0: no new process is started */
        struct twill_restarts restarts;
        struct twill_left_question question; /* on one host */
        int last_failed, last_code;          /* rank that failed last, or -1, and its exit code */
    } elastic;
};

/* Return how many ranks are placed at the start: with --elastic, as many as are to be kept. */
static inline int twill_options_places(const struct twill_options *options)
{
    return options->most > 0 ? options->most : options->ranks;
}

/* Parse a decimal number. False if it is malformed or outside low .. high. */
bool twill_read_number(const char *text, long low, long high, int *value);

/* --- output.c: standard output and error, which never block --- */
#define TWILL_OUTPUTS 2
/* Open them again without blocking, where that is possible. */
void twill_output_open(void);
/* Print "twillrun: ..." to standard error, control characters as '?'. */
void twill_complain(const char *format, ...) TWILL_PRINTF(1, 2);
/* Write to STDOUT_FILENO or STDERR_FILENO, or queue what does not fit. False: output is lost, and a
 * message was printed. */
bool twill_output_put(int to, const char *data, size_t bytes);
/* Report whether so much is queued that no more is to be read for it. */
bool twill_output_full(int to);
/* Fill the entries to poll for space in them. */
void twill_output_polls(struct pollfd polls[TWILL_OUTPUTS]);
/* Write what there is space for; drop the rest if the user does not wait for a reader any more. */
void twill_output_flush(const struct twill_stop_request *stop_request);
/* Wait until all is written, or dropped. False: output is lost. */
bool twill_output_drain(const struct twill_stop_request *stop_request);

/* Parse the command line. Returns 0 to go on; else the program is to exit with *code. */
int twill_options_read(struct twill_options *options, int argc, char **argv, int *code);
void twill_options_free(struct twill_options *options);

/* --- host_files.c --- */
/* Open /dev/null to read, or where there is none a pipe at its end. Returns -1 with errno. */
int twill_null_open(void);
/* Find the path of this program. False with errno. */
bool twill_self_find(char path[PATH_MAX]);
/* Keep hwloc from printing a line in each process where there is no /sys. */
void twill_hwloc_quieten(void);
/* Add libtwill-heap.so to LD_PRELOAD if TWILL_HEAP=shared. False: no memory. */
bool twill_preload_set(void);

/* Return the program of a rank with its arguments, NULL-terminated. */
char **twill_program_of(const struct twill_options *options, int rank);

/* Names of what ranks are bound to, as --bind has them; NULL for TWILL_BIND_AUTO. */
extern const char *const twill_bind_names[TWILL_BIND_COUNT];

/* --- launcher_check.c --- */
/* Become twill-check, which checks the hosts of the options. Returns the exit code if it cannot be
 * started, after a message. */
int twill_check_run(const struct twill_options *options);

/* --- launcher_hosts.c: placement of ranks. False: a message was printed. --- */
/* Parse a list of hosts, "a:2,b:2", or a file with a host per line. */
bool twill_sites_add(struct twill_options *options, const char *list);
bool twill_sites_read(struct twill_options *options, const char *path);
/* Set the number of ranks unless it was given, and place them. A host with two names that resolve
 * to this one counts once. */
bool twill_sites_place(struct twill_options *options);
/* Report whether a host has ranks, or with --elastic may get some. */
bool twill_site_is_used(const struct twill_options *options, int site);
/* Return the index of the only host that is used; -1: there are several. */
int twill_sites_only(const struct twill_options *options);

/* --- twillrun.c: setting up a job on this host. False: a message was printed. --- */
/* Initialise a launch of `here` ranks, or with --elastic of up to all of the job. Close it also
 * after a failure of a later step. */
bool twill_launch_open(struct twill_launch *launch, const struct twill_options *options, int here);
void twill_launch_close(struct twill_launch *launch);
/* Bind and listen on a free port of the address, for rank 0. */
bool twill_launch_listen(struct twill_launch *launch, const char *address);
/* Raise the limit of descriptors: a rank whose output is labelled or forwarded needs two. */
void twill_files_allow(struct twill_options *options);
/* Draw TWILL_JOB. */
bool twill_job_make(char job[TWILL_JOB_TEXT]);
/* Block the signals that twillrun handles. Returns a signalfd, or -1. mask: the previous mask. */
int twill_signals_take(sigset_t *mask);
/* Start the ranks of this host. On failure, begin to end the job and return its exit code. */
int twill_launch_start(struct twill_launch *launch);

/* Make a child the given rank, with closed streams. */
void twill_child_name(const struct twill_options *options, struct twill_child *child, int rank);
/* Start child[index]. Returns 0, or the exit code for the job after a message. */
int twill_child_start(struct twill_launch *launch, int index);

/* --- supervise.c --- */
/* Wait until all ranks have ended. Returns the exit code. */
int twill_launch_supervise(struct twill_launch *launch);
/* Send a signal to all ranks and their children. SIGTERM or a second SIGINT ends the job. */
void twill_launch_signal(struct twill_launch *launch, int number);
/* Begin to end the job: SIGTERM after after_ns, then SIGKILL. */
void twill_launch_end(struct twill_launch *launch, uint64_t after_ns);

/* Note how many processes of this cgroup the kernel has killed for want of memory. */
void twill_oom_open(struct twill_launch *launch);

/* --- elastic_folder.c: --elastic, files --- */
/* Make the folder, unless the job is not elastic. host: number of this host. */
bool twill_elastic_open(struct twill_launch *launch, int host);
void twill_elastic_close(struct twill_launch *launch);
/* Report whether all ranks were in twill_init: from then on ranks are replaced. */
bool twill_elastic_has_started(const struct twill_launch *launch);
/* Have new processes give up: no rank is left. */
void twill_elastic_put_over(const struct twill_launch *launch);
/* Count the children that are not in the job: they, or children of theirs, wait for that. joining:
 * those of them that have a handle, and may be in the job at any moment. */
int twill_elastic_waiting(const struct twill_launch *launch, int *joining);
/* Handle changes in the folder. */
void twill_elastic_receive(struct twill_launch *launch);
/* Write a change on another host (TWILL_FRAME_FILE) into the folder. */
void twill_elastic_apply(const struct twill_launch *launch, const struct twill_frame *frame);
/* Remove the files of processes that have ended, and of all of a process group. */
void twill_elastic_forget(const struct twill_launch *launch, pid_t group);

/* --- elastic_hosts.c: --elastic, whether a rank is left --- */
/* Ask whether a rank of the job is left, of `alive` processes of which `waiting` are not in it.
 * Returns whether this is a new question, which the hosts are to be sent: not if a rank is left, or
 * if an older question is open. */
bool twill_question_ask(struct twill_left_question *question, int alive, int waiting);
/* Return the answer, after twill_question_ask(): not known before the time `until`. */
enum twill_ranks_left twill_question_answer(struct twill_left_question *question, uint64_t until);
/* Return the next of the children that is undecided, and is so no more; NULL: there is none. */
struct twill_child *twill_undecided_next(struct twill_child *child, int children);

/* --- elastic_ranks.c: --elastic, processes --- */
/* Count a restart. False, with a message: there were too many in a short time. */
bool twill_restarts_add(struct twill_restarts *restarts);
/* Report whether `alive` processes, `waiting` of them not in the job, can go on; else say why not.
 */
bool twill_elastic_suffices(const struct twill_options *options, int alive, int waiting);
/* A rank has failed. Report whether the others go on, and say so; else the job is to end. The child
 * is undecided if that is not known yet. */
bool twill_elastic_outlives(struct twill_launch *launch, struct twill_child *child,
                            const char *how);
/* Start a new process as this rank in the place of a child that was reaped. */
void twill_elastic_replace(struct twill_launch *launch, struct twill_child *child, int rank);
/* Host agent: start a new process as this rank in any free place. */
void twill_elastic_start(struct twill_launch *launch, int rank);
/* End all processes: they wait to join a job that has ended. */
void twill_elastic_dismiss(struct twill_launch *launch);
/* Processes have ended, or begun or ceased to wait: if only those that wait are left, end them,
 * else replace children that were undecided; a host agent reports how many wait. */
void twill_elastic_check(struct twill_launch *launch);
/* Return when to call twill_elastic_check() although nothing has changed; UINT64_MAX: never. */
uint64_t twill_elastic_deadline(const struct twill_launch *launch);

/* --- supervise.c: messages with ranks in twill_init --- */
bool twill_rank_socket_open(struct twill_launch *launch);
void twill_rank_socket_close(struct twill_launch *launch);
/* Notify the ranks that a rank has ended, on any host. Only the first call has an effect. */
void twill_rank_socket_notify(struct twill_launch *launch, int rank, const char *how);

/* --- sayings.c --- */
/* Note that a rank (-1: unknown) has said a line. */
void twill_sayings_add(struct twill_sayings *sayings, int rank, const char *data, size_t bytes);
/* Print what is due at this time; UINT64_MAX: everything. */
void twill_sayings_print(struct twill_sayings *sayings, uint64_t now);
/* Return when something is due; UINT64_MAX: nothing is there. */
uint64_t twill_sayings_deadline(const struct twill_sayings *sayings);

/* --- host_agent.c: ranks of a job that a twillrun on another host runs --- */
int twill_host_agent_run(void);
/* Fill the entries that a host agent polls besides its ranks, and handle their events. */
#define TWILL_HOST_AGENT_POLLS 3
void twill_host_agent_polls(struct twill_launch *launch,
                            struct pollfd polls[TWILL_HOST_AGENT_POLLS]);
void twill_host_agent_turn(struct twill_launch *launch,
                           const struct pollfd polls[TWILL_HOST_AGENT_POLLS]);
void twill_host_agent_report(struct twill_launch *launch, int rank, int code, const char *how);

/* --- front.c: a job on several hosts --- */
int twill_front_run(const struct twill_options *options);

/* --- bind_ranks.c --- */
/* Choose what each rank of this host is bound to, and print that if requested. */
void twill_launch_bind(struct twill_launch *launch);
/* Leave this rank and those that start after it unbound: binding was refused with this errno. */
void twill_launch_unbind(struct twill_launch *launch, int rank, int cause);
/* Bind the calling process as chosen for child[index]. False with errno. */
bool twill_child_bind(const struct twill_launch *launch, int index);

/* Read from the pipe and write whole, labelled lines, or forward frames. False: at its end. */
bool twill_stream_move(struct twill_stream *stream);
/* Write data as twill_stream_move() does. False: it cannot be written, or there is no memory. */
bool twill_stream_add(struct twill_stream *stream, const char *data, size_t bytes);
/* Write the incomplete line and close the stream. */
void twill_stream_end(struct twill_stream *stream);

/* What a host agent is sent: a job and the ranks of its host. It goes over the standard
 * input of an agent, as other users can read command lines. */

/* A job, as one host's agent parses it. Strings point into bytes. */
struct twill_host_job {
    struct twill_options options; /* ranks, elastic, bind, report, assignments, command */
    const char *key;              /* TWILL_JOB */
    const char *directory;        /* working directory of the ranks */
    bool alone;                   /* all ranks are on this host */
    int host;                     /* its number in an elastic job */
    int *rank;                    /* [here] */
    int here;
    const char **other; /* names of other hosts, to find the route to them; NULL-terminated */
    int others;
    int arguments;
    char *bytes; /* owned copy of the received bytes */
};

/* Write the job for one site. The caller frees the bytes. NULL: a message was printed. */
char *twill_job_write(const struct twill_options *options, int site, const char *key,
                      size_t *bytes);
/* Parse a job. False: malformed, or no memory. Free it in either case. */
bool twill_job_read(struct twill_host_job *job, const char *data, size_t bytes);
void twill_job_free(struct twill_host_job *job);

#endif
