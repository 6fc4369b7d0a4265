/* SPDX-License-Identifier: Apache-2.0 */
/* Fault campaign: many short jobs, each with a fault at a random point, and what is demanded of the
 * ranks that survive it. A trial is made from (seed, number) alone, so that it can be repeated. */
#ifndef CAMPAIGN_H
#define CAMPAIGN_H

#include <twill_recover.h>
#include <twill_train.h>

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define CAMPAIGN_RANKS 6
#define CAMPAIGN_TEXT  400

/* The work of the ranks while the fault strikes. */
#define CAMPAIGN_WORK(X)                                                                           \
    X(BLOCKING, "blocking")                                                                        \
    X(STARTED, "nonblocking")                                                                      \
    X(PERSISTENT, "persistent")                                                                    \
    X(GROUPED, "groups")                                                                           \
    X(SPLIT, "split")                                                                              \
    X(GRADIENTS, "gradient set")  /* also with communication threads, or an optimizer */           \
    X(RECONFIGURE, "reconfigure") /* survivors exchange handles instead of shrinking */            \
    X(AGREE, "agree")                                                                              \
    X(GROW, "grow") /* a new process joins */                                                      \
    X(START, "start")                                                                              \
    X(SHRINK, "shrink") /* a second rank dies while the others shrink */                           \
    X(FINALIZE, "finalize")
enum campaign_work {
#define X(name, text) WORK_##name,
    CAMPAIGN_WORK(X)
#undef X
        WORK_COUNT
};

/* What the ranks' variables ask for. */
enum campaign_protection {
    PROTECTION_NONE,
    PROTECTION_SUMS,     /* of messages between nodes */
    PROTECTION_SUMS_ALL, /* and within a node */
    PROTECTION_ENCRYPTED
};

/* The fault of a rank. */
#define CAMPAIGN_FAULTS(X)                                                                         \
    X(KILL, "SIGKILL")                                                                             \
    X(EXIT, "exit")                                                                                \
    X(ABORT, "abort")                                                                              \
    X(STOP_EVER, "stopped")                                                                        \
    X(STOP_SHORT, "stopped briefly")                                                               \
    X(RESET, "connections reset")                                                                  \
    X(NO_DESCRIPTORS, "no descriptors")                                                            \
    X(NO_MEMORY, "no memory")                                                                      \
    X(LINK_DOWN, "link down")   /* of its host; from here on: between hosts only */                \
    X(HOST_LOST, "host lost")   /* the link goes down and the rank dies */                         \
    X(HALF_OPEN, "half-open")   /* the same; then the link comes up, and connections are left */   \
    X(LINK_FLAPS, "link flaps") /* packets are lost, a few milliseconds each time */               \
    X(LOSS, "packets lost")     /* at random, to and from its host, from then on */
enum campaign_fault {
#define X(name, text) FAULT_##name,
    CAMPAIGN_FAULTS(X)
#undef X
        FAULT_COUNT
};

struct campaign_trial {
    uint64_t seed; /* of the trial */
    int number;
    int ranks;
    int hosts;       /* network namespaces; 0: layout */
    char layout[32]; /* TWILL_LAYOUT's nodes */
    enum campaign_work work;
    enum campaign_fault fault;
    int victim, second; /* second: -1, or a rank that dies later */
    unsigned delay_us;  /* from the beginning of the work (start: of the job) to the fault */
    unsigned second_delay_us;
    unsigned pause_us; /* STOP_SHORT */
    unsigned loss;     /* LOSS: percent */
    int timeout;       /* TWILL_TIMEOUT, seconds */
    enum campaign_protection protection;
    int threads;    /* GRADIENTS: of the set */
    bool optimizer; /* GRADIENTS */
};

/* Where a rank is. */
enum campaign_state { STATE_STARTED, STATE_RUNNING, STATE_SHRINKING, STATE_RECOVERED, STATE_ENDED };

/* Of all threads of a process, as the kernel counts it: 0 if it does not. */
struct campaign_usage {
    uint64_t ran_ns;
    uint64_t waited_ns; /* for a core */
};

/* The state that a rank shows to the driver, in shared memory. */
struct campaign_rank {
    _Atomic enum campaign_state state;
    atomic_ulong steps;            /* whose results were right */
    atomic_ulong wrong;            /* results that were wrong */
    _Atomic uint64_t verdict_ns;   /* when the first call failed, 0: none has */
    struct campaign_usage usage;   /* until then, or until it has died */
    uint64_t begun_ns;             /* when that call began */
    uint64_t stolen_ns;            /* campaign_stolen_ns() until then */
    _Atomic uint64_t shrunk_ns;    /* when it had the survivors' communicator first */
    _Atomic uint64_t first_sum_ns; /* when their first call was complete */
    _Atomic uint64_t step_ns;      /* and their first whole step */
    struct campaign_usage whole;   /* until its end */
    _Atomic uint64_t left_ns;      /* when it could not go on, or had ended its work */
    atomic_int final_size;         /* of the communicator at the end; 0: it has none */
    atomic_int descriptors;        /* open at the end, less those at the start */
    atomic_bool found_victim;      /* the first agreement's failed ranks have the victim */
    twill_bounds bounds;           /* of its communicator at the start */
    twill_status end;              /* of the call that ended the rank; TWILL_OK: regular */
    char first[CAMPAIGN_TEXT];     /* sentence of the first failure */
    char last[CAMPAIGN_TEXT];      /* and of the call that ended it */
};

struct campaign_job {
    struct campaign_trial trial;
    atomic_bool stop; /* ranks end regularly */
    atomic_bool has_handle;
    char handle[TWILL_HANDLE_BYTES]; /* by which a new process joins, the one after the ranks */
    atomic_bool has_own[CAMPAIGN_RANKS];
    char own[CAMPAIGN_RANKS][TWILL_HANDLE_BYTES]; /* RECONFIGURE: the ranks' handles */
    _Atomic uint64_t fault_ns;
    /* Until the fault: each rank. Of the driver: while it made the fault. */
    struct campaign_usage usage[CAMPAIGN_RANKS], driver;
    uint64_t stolen_ns;
    struct campaign_rank rank[CAMPAIGN_RANKS];
};

static inline uint64_t campaign_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15)); /* SplitMix64 */
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

uint64_t campaign_now(void); /* nanoseconds, monotonic */

/* campaign_plan.c */
extern const char *const campaign_work_names[WORK_COUNT];
extern const char *const campaign_fault_names[FAULT_COUNT];
/* The common settings of the trials of a campaign. */
struct campaign_settings {
    uint64_t seed;
    int hosts;       /* that there are; 0: this one only */
    int work, fault; /* -1: any */
};
void campaign_plan(struct campaign_trial *trial, const struct campaign_settings *settings,
                   int number);
bool campaign_is_death(enum campaign_fault fault);
bool campaign_is_cut(enum campaign_fault fault);
/* Return the number of processes: the ranks, and one that is to join. */
int campaign_processes(const struct campaign_trial *trial);
int campaign_host_of(const struct campaign_trial *trial, int rank);
/* Return whether a rank must go on after the fault. After a cut that is the larger part of the
 * ranks, or the half with rank 0. */
bool campaign_goes_on(const struct campaign_trial *trial, int rank);
/* The same for a job that may have grown by then: another part may be the larger one. */
bool campaign_goes_on_in(const struct campaign_trial *trial, int rank, bool larger);

/* campaign_hosts.c: hosts are network namespaces, each with a process that holds it. */
/* Set the hosts from a list "PID,PID,...". Returns their number, -1: not a list. */
int campaign_hosts_set(const char *list);
/* Move this process, which has one thread, into a host. */
bool campaign_host_enter(int host);
/* Give this process a network of its own, with the loopback interface, if it may: else jobs beside
 * it may get the port of a rank that has died, and answer in its place. */
void campaign_part_network(void);
/* Set the interface of a host up or down. Returns false if that cannot be done, and prints it. */
bool campaign_link(int host, bool up);
/* Lose this percentage of the packets that a host sends, and of those that it receives. Returns
 * like campaign_link(). */
bool campaign_lose(int host, unsigned percent);

/* campaign_work.c: one step of a trial's work on a communicator. */
struct campaign_buffers;
struct campaign_buffers *campaign_buffers_open(twill_context *context);
/* The communicator has grown, into a new context. */
void campaign_buffers_move(struct campaign_buffers *buffers, twill_context *context);
/* Free what belongs to a communicator, which may be broken; the next step may use another one. */
void campaign_buffers_release(struct campaign_buffers *buffers);
void campaign_buffers_close(struct campaign_buffers *buffers);
/* Do the step'th step. *wrong grows by the results that are wrong. */
twill_status campaign_step(struct campaign_buffers *buffers, twill_comm *comm,
                           const struct campaign_trial *trial, uint64_t step, atomic_ulong *wrong);

/* A call begins; return when the last one did. */
void campaign_begin(struct campaign_buffers *buffers);
uint64_t campaign_begun(const struct campaign_buffers *buffers);

/* Return the sentence of the last failure. */
const char *campaign_message(const struct campaign_buffers *buffers, const twill_comm *comm);

/* campaign_train.c: one step of a gradient set, which is made when *set is NULL. */
twill_status campaign_train(twill_gradients **set, twill_comm *comm,
                            const struct campaign_trial *trial, uint64_t step, atomic_ulong *wrong);

/* campaign_rank.c */
/* Handle SIGUSR1, in this process and those that it forks. */
void campaign_expect_fault(enum campaign_fault fault);
/* Be a rank of the job. Does not return. */
_Noreturn void campaign_rank_main(struct campaign_job *job, int rank);
/* Have memory for the stack, here and in processes forked later: the kernel would not grow it
 * without memory (RLIMIT_AS), and end the process. */
__attribute__((noinline)) unsigned char campaign_reserve_stack(void);

/* campaign_check.c: check what the ranks of a job that has ended show. status: of wait(). Returns
 * whether all is well; else `text` has the reason. */
bool campaign_check(const struct campaign_job *job, const int *status, char *text, size_t bytes);
/* Seconds of a trial from the fault on. */
struct campaign_times {
    double verdict; /* until the last survivor's first call has failed */
    double shrunk;  /* until the last survivor had the survivors' communicator */
    double sum;     /* until the last survivor's first sum was right */
    double step;    /* until its first step of work was complete */
    /* Of the survivor that was latest: */
    int rank;
    double own;   /* from the fault, or the begin of the last survivor's call, to its error */
    double bound; /* that twill_comm_bounds() states for it, if the ranks get cores */
    double delay; /* in which ranks waited for one, or worked */
};
/* Returns false if there are none. */
bool campaign_time(const struct campaign_job *job, struct campaign_times *times);
/* Return by how many seconds the error of a survivor was late. <= 0: none was. */
double campaign_lateness(const struct campaign_times *times);

/* Return what a process has used so far, which may have ended but is not reaped. */
struct campaign_usage campaign_usage_of(pid_t pid);
/* Return how long this machine's cores were another one's. */
uint64_t campaign_stolen_ns(void);

/* campaign_report.c */
struct campaign_result {
    bool done, failed, has_times;
    struct campaign_times times;
    struct campaign_trial trial;
};
/* Print the verdict on a trial, in a line. */
void campaign_report_trial(const struct campaign_result *result);
/* Print percentiles and the number of failed trials. Returns the exit status. */
int campaign_report(const struct campaign_result *results, int count, double seconds);
/* Print when each rank of a failed trial came how far, and what it waited for a core. */
void campaign_report_ranks(const struct campaign_job *job);

#endif
