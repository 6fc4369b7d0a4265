/* SPDX-License-Identifier: Apache-2.0 */
/* twillrun starts the ranks of a job, supervises them, and exits with the code of the first that
 * failed. On one host it does so itself (struct twill_launch). With several hosts it starts a host
 * agent on each, which is the same program (front.c). The host agent does the same there
 * (host_agent.c) and reports in frames (pipe.h). There is only one thread. */
#ifndef TWILL_LAUNCHER_H
#define TWILL_LAUNCHER_H

#include "fabric/bootstrap/twillrun.h"
#include "fabric/launcher/pipe.h"
#include "lib/base/thread_rates.h"

#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#define TWILL_EXIT_USAGE 2
#define TWILL_MAX_RANKS  65535
#define TWILL_MAX_CORES  ((int)TWILL_THREADS_MOST) /* most of a rank by --threads-per-rank */
#define TWILL_CORES_AUTO (-1)         /* --threads-per-rank auto: an equal share of the cores */
#define TWILL_COMPLAINT  "twillrun: " /* prefix of twillrun's messages */

#define TWILL_HOW_TEXT 320 /* bytes for how a rank ended, in words */

#define TWILL_QUOTED(x) #x
#define TWILL_QUOTE(x)  TWILL_QUOTED(x)
#define TWILL_VERSION_TEXT                                                                         \
    TWILL_QUOTE(TWILL_VERSION_MAJOR)                                                               \
    "." TWILL_QUOTE(TWILL_VERSION_MINOR) "." TWILL_QUOTE(TWILL_VERSION_PATCH)

/* The unit that each rank is bound to. AUTO means cores, if there are enough. */
enum twill_bind {
    TWILL_BIND_AUTO,
    TWILL_BIND_NONE,
    TWILL_BIND_CORE,
    TWILL_BIND_L3,
    TWILL_BIND_NUMA,
    TWILL_BIND_PACKAGE,
    TWILL_BIND_COUNT
};
/* Placement of ranks, which fills a host before the next one, or goes round with one rank each. */
enum twill_map { TWILL_MAP_CORE, TWILL_MAP_NODE };
/* A host that the user named. An element of options->site[]. */
struct twill_site {
    char *name;
    int slots;    /* ranks it has places for */
    bool counted; /* slots were given with its name, instead of the default of one */
    int most;     /* most ranks with --oversubscribe; 0: no limit */
    int ranks;    /* placed there */
    bool local;
    bool merged; /* another name of an earlier site, which has its places */
};

/* One of the programs of a job, which consecutive ranks run. Part of struct twill_options. */
struct twill_program {
    int ranks;
    char **words; /* with its arguments, NULL-terminated, in options' command */
};

/* The parsed command line, or the part of it that a host agent got. A variable of main(), or part
 * of struct twill_host_job. Afterwards only `files` is set, and --elastic changes place[]. */
struct twill_options {
    int ranks;
    int least, most;    /* --elastic: ranks that suffice, ranks to keep; most 0: off */
    bool label, serve;  /* "[RANK] " before each line of output; be a host agent */
    bool check;         /* check the hosts instead of running a program */
    const char *json;   /* with check: file for JSON; "": print it; or NULL */
    const char *page;   /* [ADDRESS:]PORT[,open] of --page, may be empty; NULL: none */
    bool report;        /* print the cores that each rank is bound to */
    bool oversubscribe; /* more ranks than slots or cores are intended */
    struct {
        enum twill_bind to;
        int cores; /* of each rank by --threads-per-rank, or TWILL_CORES_AUTO; 0: not given */
    } bind;
    struct {
        enum twill_map how;
        int ppn; /* ranks of each host by --ppn; 0: not given */
    } map;
    uint64_t grace_ns;   /* time for other ranks to detect and report a failure */
    uint64_t timeout_ns; /* for hosts to answer, at the start and after a rank ended */
    struct twill_site *site;
    int sites;          /* 0: this host only */
    int *place;         /* [twill_options_places()] index in `site`; only with sites */
    const char *agent;  /* program that runs another on a host, with its first arguments */
    const char *remote; /* path of twillrun on other hosts, or NULL: as on this one */
    char **assignments; /* of -x: NAME=VALUE, NULL-terminated */
    int assigned;
    char **command; /* first program and arguments, NULL-terminated; may be empty with check */
    struct twill_program *program; /* [programs] in the order of ranks */
    int programs;
    struct rlimit files; /* original RLIMIT_NOFILE, for ranks and agents */
};

/* The signals that asked twillrun to end. Part of struct twill_launch or twill_front. */
struct twill_stop_request {
    int times;         /* SIGINT and SIGTERM received */
    uint64_t until_ns; /* when output that is still not written is dropped; 0: not known yet */
};

/* Standard output or error of a rank, or standard error of an agent, from a pipe, with its
 * incomplete last line. Part of struct twill_child or twill_front_host. */
struct twill_stream {
    int from;                /* -1: at its end, or there is no pipe here */
    int to;                  /* STDOUT_FILENO or STDERR_FILENO */
    int rank;                /* rank that writes it */
    struct twill_pipe *link; /* pipe to forward it to as frames, or NULL */
    const char *label;       /* text before each line, may be empty */
    bool relayed;            /* of an agent: written as plain text, without TWILL_COMPLAINT */
    bool lost;               /* it can no longer be written */
    char *line;
    size_t used, capacity;
};

/* A rank on this host, in launch->child[]. Also a rank of any host, in front->child[], where only
 * `rank`, `label`, `out` and `undecided` are used. */
struct twill_child {
    pid_t pid; /* leads a process group; 0: not started, or ended */
    int rank;
    unsigned cores; /* of --threads-per-rank, that it is bound to; else 0 */
    bool seen;      /* reap_children() has seen its end */
    bool entered;   /* it has called twill_init() */
    bool joins;     /* --elastic: it joins the running job */
    bool dismissed; /* it was killed while it waited to join */
    bool undecided; /* it failed, and is replaced if a rank of the job is left */
    char label[12];
    struct twill_stream out[2];
};

#define TWILL_JOB_TEXT 65 /* the key of a job in hex, with its end */
#define TWILL_RESTARTS 10 /* most restarts of --elastic in a short time */
/* The restarts of a job with --elastic. Each starts processes in place of one failed rank or of
 * several. Part of struct twill_launch or twill_front. */
struct twill_restarts {
    unsigned count;
    uint64_t at_ns[TWILL_RESTARTS]; /* times of the last ones */
};

/* Whether a rank of the job is left that could take in new processes. */
enum twill_ranks_left { TWILL_LEFT_NONE, TWILL_LEFT_UNKNOWN, TWILL_LEFT_SOME };
/* With --elastic, the question whether a rank of the job is left. It is asked when none seems left,
 * as one may just have been taken in. The answer takes until all hosts have reported and all
 * processes that may join (they have a handle) are in the job. Part of struct twill_front or
 * twill_launch. */
struct twill_left_question {
    uint32_t number;   /* number of the last question */
    uint64_t asked_ns; /* when it was asked; 0: no answer is awaited */
};

#define TWILL_SAID_TEXT sizeof(((struct twill_log_line *)0)->text)
#define TWILL_SAYINGS   8
/* A line that the library has sent in a rank, until it is printed for all ranks that sent it. */
struct twill_saying {
    int count;                                          /* number of ranks; 0: free */
    bool differs;                                       /* the lines differ in the rank's name */
    char text[TWILL_SAID_TEXT], alike[TWILL_SAID_TEXT]; /* the first line; without its rank */
    bool *said;                                         /* [ranks] ranks that sent it, if known */
    uint64_t first_ns, last_ns;
};
/* The lines of a job that wait to be printed. Part of struct twill_launch or twill_front. */
struct twill_sayings {
    int ranks; /* of the job */
    struct twill_saying saying[TWILL_SAYINGS];
};

struct twill_cpus;
/* The ranks of a job on this host. A local variable of run_local() or twill_host_agent_run(). */
struct twill_launch {
    const struct twill_options *options;
    struct twill_child *child; /* [here], at first in the order of ranks */
    int here;                  /* most ranks on this host */
    int first;                 /* ranks started at first, child[0] and on: LOCAL_RANK */
    struct twill_cpus *cpus;   /* [first] CPUs that they are bound to, or NULL */
    char unbound[256];         /* why ranks are not bound although they should be, or empty */
    int listener;              /* inherited by rank 0, or -1 */
    char address[64], port[8]; /* where rank 0 listens, on any host */
    char job[TWILL_JOB_TEXT];
    sigset_t mask; /* original signal mask, for ranks */
    int signals;   /* signalfd */
    int alive;     /* ranks that have not ended */
    int failed;    /* first rank that failed, or -1 */
    int code;      /* its exit code */
    struct twill_stop_request stop_request;
    int phase;        /* enum phase: none, grace, SIGTERM sent, SIGKILL sent */
    uint64_t next_ns; /* when the next phase begins */
    struct twill_sayings sayings;
    int rank_socket[2];      /* fabric/bootstrap/twillrun.h: ours, and the ranks' */
    bool notified;           /* the exit notice was sent */
    uint64_t oom_kills;      /* kills for lack of memory, counted or reported */
    struct twill_pipe *link; /* host agent: to the twillrun that started it; or NULL */
    struct {
        int from, to; /* terminal forwarded to rank 0, and the pipe to it; or -1 */
        char *held;   /* host agent: [TWILL_INPUT_WINDOW] input for rank 0 */
        size_t used;
        bool ended;
    } input;
    struct {                   /* --elastic */
        char folder[PATH_MAX]; /* for files of new processes and the job; or empty */
        int host;              /* number of this host in the names of files */
        char reached[64];      /* address at which other hosts reach this one, or empty */
        int watch;             /* inotify of the folder, or -1 */
        int waiting;           /* children that are not in the job yet */
        int joining;           /* children of these that have a handle */
        bool finishing;        /* a rank ended with status 0, so no process is started */
        struct twill_restarts restarts;
        struct twill_left_question question; /* on one host */
        int last_failed, last_code;          /* rank that failed last, or -1, and its exit code */
    } elastic;
};

/* Return how many ranks are placed at the start. With --elastic this is the number to be kept. */
static inline int twill_options_places(const struct twill_options *options)
{
    return options->most > 0 ? options->most : options->ranks;
}

/* Parse `text` as a decimal number into *value. Returns true, or false if it is malformed or not in
 * low .. high. *value has changed then, but is of no use. */
bool twill_read_number(const char *text, long low, long high, int *value);

/* --- output.c: standard output and error, which never block --- */
#define TWILL_OUTPUTS 2
/* Reopen standard output and error as non-blocking, where that is possible. */
void twill_output_open(void);
/* Print "twillrun: ..." and a line end to standard error, with '?' for control characters. */
void twill_complain(const char *format, ...) TWILL_PRINTF(1, 2);
/* From now on also send messages of twill_complain() to a pipe, as lines "say TEXT", or if it is
 * NULL, to none. */
void twill_output_copy(struct twill_pipe *pipe);
/* Write to `to`, STDOUT_FILENO or STDERR_FILENO, and queue the rest. Returns true, or false if the
 * output is lost, with a message the first time. */
bool twill_output_put(int to, const char *data, size_t bytes);
/* Return whether over TWILL_LINK_FULL bytes are queued, so that no more should be read for `to`. */
bool twill_output_full(int to);
/* Fill the entries that poll for space in the two outputs, with -1 if nothing is queued. */
void twill_output_polls(struct pollfd polls[TWILL_OUTPUTS]);
/* Write queued output as far as standard output and error take it without blocking. Drop the rest
 * if the user has asked twice to stop, or once and stop_request->until_ns has passed. */
void twill_output_flush(const struct twill_stop_request *stop_request);
/* Wait until all is written or dropped, which also happens at a pending SIGINT or SIGTERM. Returns
 * false if writing has failed, else true, also if output was dropped. */
bool twill_output_drain(const struct twill_stop_request *stop_request);
/* Parse the command line. Returns 0 to continue, else -1, and the program must exit with *code. */
int twill_options_read(struct twill_options *options, int argc, char **argv, int *code);
/* Free what twill_options_read() has allocated. */
void twill_options_free(struct twill_options *options);
/* Return /dev/null opened to read, a pipe at its end if there is none, or -1 with errno set. */
int twill_null_open(void);
/* Write the path of this program to path[]. Returns true, or false with errno set. */
bool twill_self_find(char path[PATH_MAX]);
/* Keep hwloc from printing a line in each process where there is no /sys. */
void twill_hwloc_quieten(void);
/* Add libtwill-heap.so to LD_PRELOAD if TWILL_HEAP is shared or promote, unless it is there or
 * cannot be found. Returns true, or false if there is no memory. */
bool twill_preload_set(void);
/* Return the program of a rank with its arguments, NULL-terminated, which stay the options'. */
char **twill_program_of(const struct twill_options *options, int rank);
/* The values of --bind. The name of TWILL_BIND_AUTO is NULL. */
extern const char *const twill_bind_names[TWILL_BIND_COUNT];

/* Exec twill-check, which checks the hosts in `options`, in place of this process. Returns only if
 * that fails, with the exit code for twillrun. Prints a message, unless the path of twill-check on
 * other hosts is too long. */
int twill_check_run(const struct twill_options *options);

/* Write the path of a program of libexec to path[]. `launcher` is the path of twillrun, beside
 * which it is built or installed. Returns its folder relative to that of twillrun, which is
 * constant, or NULL with errno set. */
const char *twill_helper_find(char path[PATH_MAX], const char *launcher, const char *name);

/* --- page_link.c: --page --- */
/* Start twill-page, if --page is given, with this signal mask. It serves a page of the job whose
 * ranks are `here`, or asks for what they do. Returns false after a message. */
bool twill_page_serve(const struct twill_options *options, const sigset_t *mask, bool here);
/* Return the entry to poll for lines of twill-page and space for lines to it. fd -1: none. */
struct pollfd twill_page_poll(void);
/* Exchange with twill-page what there is, without blocking. At its end there is nothing to poll. */
void twill_page_receive(void);
/* Return the next line that twill-page has sent, of *bytes without its end, or NULL. It is valid
 * until the next twill_page_receive(). */
const char *twill_page_next(size_t *bytes);
/* Send twill-page the JSON that a host has answered. `host` counts the hosts that are used. */
void twill_page_answer(int host, const char *data, size_t bytes);
/* In a host agent, make twill-page read what the ranks here do, with events of rank `rank` - 1
 * unless `rank` is 0. Start it before if needed. Its answer is a line. Returns false if it cannot
 * be asked. */
bool twill_page_read(const sigset_t *mask, uint32_t rank);
/* End twill-page, if it was started. */
void twill_page_end(void);

/* Add the hosts of a list such as "a:2,b:2". Returns true, or false after a message. */
bool twill_sites_add(struct twill_options *options, const char *list);
/* Add the hosts that a file names, one in each line. A line is "name", "name:RANKS" or "name
 * slots=RANKS max_slots=RANKS", up to a #. Returns true. Returns false after a message if a line is
 * wrong, the file cannot be read, or it names no host. */
bool twill_sites_read(struct twill_options *options, const char *path);
/* Set the number of ranks, unless it was given, to the sum of the slots of the hosts. Place the
 * ranks on the hosts, in options->place. Find out which sites are this host. If several sites are
 * names of this host, give all their ranks and slots to the first of them. Returns true, or false
 * after a message if the hosts have too few places or there is no memory. */
bool twill_sites_place(struct twill_options *options);
/* Return whether a host has ranks, or may get some with --elastic. */
bool twill_site_is_used(const struct twill_options *options, int site);
/* Return the index of the only host that is used, or -1 if there are several. */
int twill_sites_only(const struct twill_options *options);

/* Initialise a launch of `here` ranks, or with --elastic of up to all ranks of the job. Returns
 * false after a message. The caller closes it, also after a failure of a later step. */
bool twill_launch_open(struct twill_launch *launch, const struct twill_options *options, int here);
/* Free the memory of a launch and close its rank socket. */
void twill_launch_close(struct twill_launch *launch);
/* Listen on a free port of `address`. Rank 0 inherits the socket, launch->listener. Sets
 * launch->address and launch->port to where it is. Returns true, or false after a message. */
bool twill_launch_offer(struct twill_launch *launch, const char *address);
/* Raise the limit of descriptors of twillrun itself, and keep the former one in options->files. */
void twill_files_allow(struct twill_options *options);
/* Write a random TWILL_JOB, the key of a job, to job[]. Returns true, or false after a message. */
bool twill_job_make(char job[TWILL_JOB_TEXT]);
/* Block the signals that twillrun handles, set *mask to the mask before and return a signalfd for
 * them, or -1 after a message. SIGPIPE is blocked as well. */
int twill_signals_take(sigset_t *mask);
/* Start the ranks of this host. Returns 0. If one cannot be started, prints a message, begins to
 * end those that were, and returns the exit code. In both cases the caller then waits for the ranks
 * by twill_launch_supervise(). */
int twill_launch_start(struct twill_launch *launch);
/* Give a child that is to be started its rank and its two output streams, which are still closed.
 * With the option -l, lines of its output are printed with "[RANK] " in child->label before
 * them. */
void twill_child_name(const struct twill_options *options, struct twill_child *child, int rank);
/* Start the process of child[index]. Returns 0. On failure prints a message and returns the exit
 * code for the job, which the caller ends. It is 127 if the program was not found, 126 if the
 * process could not run it, and else 1. */
int twill_child_start(struct twill_launch *launch, int index);
/* Wait until all ranks have ended, and serve output, signals and frames. Returns the exit code. */
int twill_launch_supervise(struct twill_launch *launch);
/* Send a signal to all ranks and their children. SIGTERM or a second SIGINT ends the job. */
void twill_launch_signal(struct twill_launch *launch, int number);
/* Begin to end the job, with SIGTERM after after_ns and SIGKILL later. Never delays an end. */
void twill_launch_end(struct twill_launch *launch, uint64_t after_ns);
/* Set launch->oom_kills to how many processes of this cgroup the kernel has killed for lack of
 * memory, or to UINT64_MAX if that is not known. */
void twill_oom_open(struct twill_launch *launch);

/* --- elastic_folder.c: --elastic, files --- */
/* Make the folder if the job is elastic. `host` is the number of this host. Returns false, after a
 * message, if it is needed and cannot be made. */
bool twill_elastic_open(struct twill_launch *launch, int host);
/* Remove the folder that an elastic job has on this host, with its files, and close the inotify
 * descriptor that watches it. Does nothing if there are none. */
void twill_elastic_close(struct twill_launch *launch);
/* Return whether an elastic job has started, which is when all its ranks have met in twill_init().
 * After that, failed ranks are replaced. False for other jobs. */
bool twill_elastic_has_started(const struct twill_launch *launch);
/* Make new processes give up by a file in the folder, because no rank is left. */
void twill_elastic_put_over(const struct twill_launch *launch);
/* Return how many children are not in the job, because they or children of theirs wait for that.
 * *joining counts those with a handle, with which they may enter the job at any moment. */
int twill_elastic_waiting(const struct twill_launch *launch, int *joining);
/* Read the changes that inotify reports about the folder of --elastic. A host agent reports those
 * that matter on other hosts to the twillrun in front. Then call twill_elastic_check(). */
void twill_elastic_receive(struct twill_launch *launch);
/* Write or remove files in the folder by a change on another host, the data of a frame
 * TWILL_FRAME_FILE. Ignores one that does not concern this host. */
void twill_elastic_apply(const struct twill_launch *launch, const struct twill_frame *frame);
/* Remove the files of processes of this host that wait to join the job and have ended. Do the same
 * for processes that wait in process group `group`, even if they live. A host agent also reports
 * the end of each to the twillrun in front. */
void twill_elastic_forget(const struct twill_launch *launch, pid_t group);

/* --- elastic_hosts.c: --elastic, whether a rank is left --- */
/* Open the question whether a rank of the job is left, if none seems to be. `alive` processes live,
 * and `waiting` of them are not in the job. Returns true if the question was opened now, so that
 * the caller must ask the hosts. Returns false if it was open before. If waiting < alive, a rank is
 * left, so closes the question and returns false. Call twill_question_answer() then. */
bool twill_question_ask(struct twill_left_question *question, int alive, int waiting);
/* Return the answer after twill_question_ask(). It is TWILL_LEFT_SOME if that has left the question
 * closed, as a rank of the job is left. While the question is open, the answer is
 * TWILL_LEFT_UNKNOWN before time `until` of twill_now(). From then on it is TWILL_LEFT_NONE, and
 * this closes the question. */
enum twill_ranks_left twill_question_answer(struct twill_left_question *question, uint64_t until);
/* Return the first of the `children` elements of child[] whose member `undecided` is set, and clear
 * that member. Returns NULL if it is set in none. */
struct twill_child *twill_undecided_next(struct twill_child *child, int children);

/* --- elastic_ranks.c: --elastic, processes --- */
/* Count a restart that is made now. Returns true, or false after a message if more than
 * TWILL_RESTARTS were made within TWILL_RESTARTS_NS. */
bool twill_restarts_add(struct twill_restarts *restarts);
/* Return whether the job can continue with `alive` processes, `waiting` of which are not in it. It
 * needs at least options->least processes, and one of them in the job. If it cannot, print why. */
bool twill_elastic_suffices(const struct twill_options *options, int alive, int waiting);
/* Handle the failure of a rank on one host. `how` says how it ended, for messages. Returns true if
 * the others continue. The caller then starts a new process in its place, unless child->undecided
 * is set. That is set while processes are joining, as it is not known yet whether a rank of the job
 * is left. Returns false if the caller must end the job. */
bool twill_elastic_outlives(struct twill_launch *launch, struct twill_child *child,
                            const char *how);
/* Start a new process as a rank in place of a child that was reaped. On failure end the job. */
void twill_elastic_replace(struct twill_launch *launch, struct twill_child *child, int rank);
/* In a host agent, start a new process as rank `rank` in any free place of launch->child. */
void twill_elastic_start(struct twill_launch *launch, int rank);
/* Kill all processes here, which wait to join a job that has ended. */
void twill_elastic_dismiss(struct twill_launch *launch);
/* Call this when processes have ended, or have begun or stopped to wait to join the job. A host
 * agent only reports how many wait. On one host, if a rank of the job lives, replace the children
 * whose replacement was postponed. If all processes only wait to join, end the job. Then kill the
 * waiting ones if a rank has ended with status 0, else the job has failed. */
void twill_elastic_check(struct twill_launch *launch);
/* Return the twill_now() at which to call twill_elastic_check() although nothing has changed, 0 for
 * at once, or UINT64_MAX for never. */
uint64_t twill_elastic_deadline(const struct twill_launch *launch);

/* Open launch->rank_socket, for ranks in twill_init(). Returns false after a message, else true. */
bool twill_rank_socket_open(struct twill_launch *launch);
/* Close both ends of launch->rank_socket that are open. */
void twill_rank_socket_close(struct twill_launch *launch);
/* Notify the ranks that a rank of any host has ended, and how. Does nothing the second time. */
void twill_rank_socket_notify(struct twill_launch *launch, int rank, const char *how);

/* Record that a rank (-1: not known) has sent a line of the library, of `bytes` bytes. It is
 * printed once all ranks have sent it, one sends it again, its place is needed for another line, or
 * twill_sayings_print() finds it due. */
void twill_sayings_add(struct twill_sayings *sayings, int rank, const char *data, size_t bytes);
/* Print the lines that are due at twill_now() `now`, or all lines if it is UINT64_MAX. */
void twill_sayings_print(struct twill_sayings *sayings, uint64_t now);
/* Return the twill_now() at which the next line is due to be printed, or UINT64_MAX if there is no
 * line. */
uint64_t twill_sayings_deadline(const struct twill_sayings *sayings);

/* --- host_agent.c: ranks of a job that a twillrun on another host runs --- */
/* Run the ranks of a job that comes as frames on standard input, as the agent of this host. Returns
 * the exit code, 0 or 1, which is not that of a rank. */
int twill_host_agent_run(void);
#define TWILL_HOST_AGENT_POLLS 4
/* Fill the entries that a host agent polls in addition to its ranks. Elsewhere they are -1. */
void twill_host_agent_polls(struct twill_launch *launch,
                            struct pollfd polls[TWILL_HOST_AGENT_POLLS]);
/* Handle the events of twill_host_agent_polls(): frames, queued frames, and input of rank 0. */
void twill_host_agent_turn(struct twill_launch *launch,
                           const struct pollfd polls[TWILL_HOST_AGENT_POLLS]);
/* Report the end of a rank, its exit code and `how` it ended in words, to the twillrun in front. */
void twill_host_agent_report(struct twill_launch *launch, int rank, int code, const char *how);
/* Run a job on several hosts, through their agents. Returns the exit code of twillrun. */
int twill_front_run(const struct twill_options *options);

/* Choose the CPUs that each rank here is bound to, or note in launch->unbound why not. Print them
 * if requested. A single rank is only bound by --threads-per-rank, and --bind none binds none.
 * Returns true, or false after a message if the cores of --threads-per-rank are not there. */
bool twill_launch_bind(struct twill_launch *launch);

/* Leave this rank and later ones unbound, because binding was refused with this errno. */
void twill_launch_unbind(struct twill_launch *launch, int rank, int cause);
/* Bind the calling process to the CPUs that were chosen for child[index]. Does nothing if none
 * were. Returns true, or false with errno set if the kernel refuses it. */
bool twill_child_bind(const struct twill_launch *launch, int index);
/* Read from the pipe what there is, up to a limit, and write whole, labelled lines, or queue frames
 * for stream->link. Returns false at its end or if output is lost, else true. */
bool twill_stream_move(struct twill_stream *stream);
/* Write data in whole, labelled lines, and keep the rest. Returns false if output is lost, else
 * true. */
bool twill_stream_add(struct twill_stream *stream, const char *data, size_t bytes);
/* Write the incomplete line, close the pipe and free the line. May be called again. */
void twill_stream_end(struct twill_stream *stream);

/* A job, as the agent of one host parses it from its standard input. A variable of the agent, which
 * twill_job_read() sets. Strings point into `bytes`. twill_job_free() frees that and all arrays,
 * with those in `options`, but not the struct. */
struct twill_host_job {
    struct twill_options options; /* ranks, elastic, bind, report, assignments, command */
    const char *key;              /* TWILL_JOB */
    const char *directory;        /* working directory of the ranks */
    bool alone;                   /* all ranks are on this host */
    int host;                     /* number of this host in an elastic job */
    int *rank;                    /* [here] in ascending order */
    int here;
    const char **other; /* names of other hosts, to find the route to them */
    int others;
    int arguments; /* entries of options.command, with the NULLs between programs */
    char *bytes;   /* own copy of the received bytes */
};

/* Return the job for the host options->site[site], with `key` as the value of TWILL_JOB, as *bytes
 * bytes that twill_job_read() parses there. The caller frees them. Returns NULL after a message. */
char *twill_job_write(const struct twill_options *options, int site, const char *key,
                      size_t *bytes);
/* Parse a job, to be freed in any case. Returns false if it is malformed or there is no memory. */
bool twill_job_read(struct twill_host_job *job, const char *data, size_t bytes);
/* Free what twill_job_read() has allocated, and clear the job. */
void twill_job_free(struct twill_host_job *job);

#endif
