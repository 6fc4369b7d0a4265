/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration. One table of all environment variables, for the parser, twill-info --env and the
 * manual. In lib/man/twill.7 ".It @name@" is replaced by a row's name, default and help. */
#ifndef TWILL_CONFIG_H
#define TWILL_CONFIG_H

#include "lib/base/base.h"

enum twill_variable_kind {
    TWILL_TEXT,    /* any text, checked by the code that uses it */
    TWILL_CHOICE,  /* one of `choices`, which are separated by | */
    TWILL_NUMBER,  /* integer in [least, most] */
    TWILL_BYTES,   /* integer in [least, most], with an optional binary suffix K, M, G or T */
    TWILL_SECONDS, /* decimal number in [least, most] */
};

/* How a variable is set, and by whom. Names of before 1.0 (TWILL_ and the id) are still read. */
enum twill_variable_scope {
    TWILL_SCOPE_USER,   /* users, as an environment variable */
    TWILL_SCOPE_MPI,    /* users of libtwill-mpi, as an environment variable */
    TWILL_SCOPE_LAYOUT, /* a declared machine, as TWILL_LAYOUT=name=value;... */
    TWILL_SCOPE_EXPERT, /* experts and experiments, as TWILL_TUNE=name=value,... */
    TWILL_SCOPE_START,  /* launchers, or users without one, as an environment variable */
};

/* Whether the ranks of a job may have different values of a variable. */
enum twill_variable_agreement {
    TWILL_AGREE_ANY,
    TWILL_AGREE_SAME,
    TWILL_AGREE_SAME_OR_UNSET, /* and set on all or none, as a default adapts to the message */
};

/* The rows are X(id, scope, name, kind, default, least, most, choices, agree, help), in the order
 * in which twill-info prints them. agree is a TWILL_AGREE_ value, which context creation checks. */
#define TWILL_VARIABLES(X)                                                                         \
    X(MEMORY, USER, "TWILL_MEMORY", TWILL_TEXT, "auto", 0, 0, NULL, ANY,                           \
      "Placement of twill_alloc() memory and, after a comma, of the library's: "                   \
      "auto, ddr, mcdram, mcdram:bind, mcdram:preferred, mcdram:interleave; hbm is mcdram; cxl "   \
      "as mcdram")                                                                                 \
    X(HEAP, USER, "TWILL_HEAP", TWILL_TEXT, "off", 0, 0, NULL, ANY,                                \
      "With libtwill-heap.so preloaded: shared or shared:BYTES serves malloc of at least "         \
      "BYTES (64K) from shared memory; promote or promote:BYTES shares buffers of at least "       \
      "BYTES (1M) that come back")                                                                 \
    X(PROVIDER, USER, "TWILL_PROVIDER", TWILL_TEXT, "", 0, 0, NULL, SAME,                          \
      "What carries messages between nodes: tcp (twill's own), ofi:NAME or NAME (libfabric's); "   \
      "empty: the best")                                                                           \
    X(INTERFACE, USER, "TWILL_INTERFACE", TWILL_TEXT, "", 0, 0, NULL, ANY,                         \
      "Network interface, by name or address, or a list for rails; empty: by the route to rank 0") \
    X(RAILS, USER, "TWILL_RAILS", TWILL_TEXT, "auto", 0, 0, NULL, ANY,                             \
      "Interfaces used at the same time: auto (all that are as good as the first), a number, or "  \
      "a list of interfaces or domains, of the same length on all ranks")                          \
    X(CHECKSUM, USER, "TWILL_CHECKSUM", TWILL_CHOICE, "none", 0, 0, "none|network|all", SAME,      \
      "network: messages between hosts carry a CRC32C, and a damaged block is sent again or ends " \
      "the job (twill's tcp only); all: also messages in shared memory")                           \
    X(ENCRYPT, USER, "TWILL_ENCRYPT", TWILL_NUMBER, "0", 0, 1, NULL, SAME,                         \
      "1: messages between hosts are encrypted and authenticated (twill's tcp only)")              \
    X(ALGORITHM, USER, "TWILL_ALGORITHM", TWILL_TEXT, "", 0, 0, NULL, SAME,                        \
      "Algorithm: NAME or COLLECTIVE[FROM-TO]:NAME;..., NAME may end in =NUMBERS and @PROTOCOL")   \
    X(TUNING, USER, "TWILL_TUNING", TWILL_TEXT, "", 0, 0, NULL, ANY,                               \
      "File of twill-bench --calibrate: the model and times by which algorithms are chosen")       \
    X(TIMEOUT, USER, "TWILL_TIMEOUT", TWILL_SECONDS, "600", 1, 1000000, NULL, ANY,                 \
      "Seconds without progress until a wait for another rank ends in an error")                   \
    X(REPRODUCIBLE, USER, "TWILL_REPRODUCIBLE", TWILL_NUMBER, "0", 0, 1, NULL, SAME,               \
      "1: sums do not depend on algorithm, node layout or segment size")                           \
    X(AGREE, USER, "TWILL_AGREE", TWILL_CHOICE, "off", 0, 0, "off|every", SAME,                    \
      "every: blocking reductions are complete on all ranks that survive, or on none, at the "     \
      "price of an agreement each")                                                                \
    X(FIRST_NAN, USER, "TWILL_FIRST_NAN", TWILL_CHOICE, "off", 0, 0, "off|report|fail", SAME,      \
      "Look for NaN and infinities in what ranks contribute to sums: report logs the first, with " \
      "its rank and call or tensor; fail also makes the call fail on all ranks")                   \
    X(STOP_SIGNAL, USER, "TWILL_STOP_SIGNAL", TWILL_CHOICE, "none", 0, 0,                          \
      "none|INT|TERM|USR1|USR2", ANY,                                                              \
      "Signal that asks all ranks to stop after the same call (twill_stop)")                       \
    X(THREADS, USER, "TWILL_THREADS", TWILL_TEXT, "", 0, 0, NULL, ANY,                             \
      "Threads of a rank that share large copies and reductions: a number, auto (one for each of " \
      "its cores), or empty (auto if a launcher binds the rank to several cores, else 1)")         \
    X(PROGRESS, USER, "TWILL_PROGRESS", TWILL_TEXT, "none", 0, 0, NULL, ANY,                       \
      "Where requests make progress: only inside calls (none), also in a thread (thread, "         \
      "thread:CORE), or in a thread once a millisecond (late)")                                    \
    X(GRADIENTS, USER, "TWILL_GRADIENTS", TWILL_TEXT, "", 0, 0, NULL, SAME,                        \
      "Options of gradient sets: bucket=8M, first=1M, segment=1M, order=backward or priority, "    \
      "autotune=1, check=STEPS, report=STEPS, threads=N, compress=NAME, automatic=1, feedback=0, " \
      "ratio=0.01, threshold=X, without blanks; or @FILE with them in its first line")             \
    X(LOG, USER, "TWILL_LOG", TWILL_CHOICE, "warn", 0, 0, "none|warn|info|debug", ANY,             \
      "Most verbose level that is logged to standard error")                                       \
    X(LOG_FILE, USER, "TWILL_LOG_FILE", TWILL_TEXT, "", 0, 0, NULL, ANY,                           \
      "File that the log is appended to instead; %h: host, %p: process, %r: rank, %%: %")          \
    X(TIMELINE, USER, "TWILL_TIMELINE", TWILL_TEXT, "", 0, 0, NULL, SAME,                          \
      "File for a timeline of what each rank does, as Chrome trace JSON: step.json is "            \
      "step.RANK.json")                                                                            \
    X(REPORT, USER, "TWILL_REPORT", TWILL_NUMBER, "0", 0, 0, NULL, ANY,                            \
      "Calls of a communicator after which its rank 0 prints where the time went, and at the "     \
      "end; 0: never")                                                                             \
    X(METRICS, USER, "TWILL_METRICS", TWILL_TEXT, "", 0, 0, NULL, ANY,                             \
      "File of counters for Prometheus; %h: host, %p: process, %r: rank, %%: %; without %r the "   \
      "rank is appended")                                                                          \
    X(LAYOUT, USER, "TWILL_LAYOUT", TWILL_TEXT, "", 0, 0, NULL, ANY,                               \
      "Declared layout: nodes=2x2;groups=2x1;units=l3=2;topology=FILE, or some of these; 2x2 "     \
      "means nodes=2x2")                                                                           \
    X(TUNE, USER, "TWILL_TUNE", TWILL_TEXT, "", 0, 0, NULL, ANY,                                   \
      "Expert values: NAME=VALUE,..., such as segment=64K,spin=0")                                 \
    X(MPI, MPI, "TWILL_MPI", TWILL_CHOICE, "1", 0, 0, "0|1", ANY,                                  \
      "Calls of an MPI program: 0 leaves all to the MPI, 1 takes those that twill has")            \
    X(MPI_REPORT, MPI, "TWILL_MPI_REPORT", TWILL_TEXT, "0", 0, 0, NULL, ANY,                       \
      "MPI programs: 1 reports at exit on standard error which calls ran on twill, a name in "     \
      "that file")                                                                                 \
    X(NODES, LAYOUT, "nodes", TWILL_TEXT, "", 0, 0, NULL, SAME,                                    \
      "Virtual nodes, between which ranks communicate as between hosts: 2x2 (nodes x ranks) or "   \
      "4+2+1 (ranks of each)")                                                                     \
    X(GROUPS, LAYOUT, "groups", TWILL_TEXT, "", 0, 0, NULL, SAME,                                  \
      "Groups of nodes in the fabric: 2x3 (groups x nodes) or 4+2 (nodes of each); empty: one "    \
      "group")                                                                                     \
    X(UNITS, LAYOUT, "units", TWILL_TEXT, "", 0, 0, NULL, SAME,                                    \
      "Units of a node, in ranks of each: tile=1,l3=2,numa=4,package=8; empty: where the ranks "   \
      "run")                                                                                       \
    X(TOPOLOGY, LAYOUT, "topology", TWILL_TEXT, "", 0, 0, NULL, ANY,                               \
      "hwloc XML file or synthetic description that replaces the machine")                         \
    X(SEGMENT, EXPERT, "segment", TWILL_BYTES, "256K", 4096, 1u << 30, NULL, SAME_OR_UNSET,        \
      "Most bytes of a segment on one node, where data is copied through shared memory")           \
    X(SEGMENT_NET, EXPERT, "segment_net", TWILL_BYTES, "4M", 4096, 1u << 30, NULL, SAME_OR_UNSET,  \
      "Most bytes of a segment with several nodes, and where data is only sent as messages")       \
    X(STRIPE, EXPERT, "stripe", TWILL_BYTES, "8K", 1024, 1u << 30, NULL, SAME,                     \
      "Least bytes that a thread moves in a team call, which uses fewer threads otherwise")        \
    X(SLOT, EXPERT, "slot", TWILL_NUMBER, "-1", -1, 65536, NULL, SAME,                             \
      "Bytes for a short shard and its count in gather, scatter and alltoall with counts; -1: "    \
      "by price; 0: none")                                                                         \
    X(SPIN, EXPERT, "spin", TWILL_NUMBER, "-1", -1, 1000000000, NULL, ANY,                         \
      "Polls before a wait yields the core; -1: adapts to the measured cost of yielding")          \
    X(METRICS_EVERY, EXPERT, "metrics_every", TWILL_SECONDS, "10", 1, 86400, NULL, ANY,            \
      "Seconds after which a call writes the file of TWILL_METRICS again")                         \
    X(STREAM, EXPERT, "stream", TWILL_BYTES, "0", 0, 0, NULL, ANY,                                 \
      "Least bytes of results that are stored past the caches; 0: by the size of the caches")      \
    X(STAGING, EXPERT, "staging", TWILL_CHOICE, "auto", 0, 0, "auto|cached|streamed", ANY,         \
      "How data are copied into memory that ranks of a node share: cached, streamed (past the "    \
      "caches), auto (the faster one by repeated measurements)")                                   \
    X(SPREAD, EXPERT, "spread", TWILL_CHOICE, "auto", 0, 0, "off|auto", ANY,                       \
      "At the start of a large call, spread ranks that share cores evenly over them (auto), or "   \
      "leave them to the kernel (off)")                                                            \
    X(THREAD_BYTES, EXPERT, "thread_bytes", TWILL_BYTES, "0", 0, 1u << 30, NULL, SAME,             \
      "Least bytes written by each of the threads that share work; 0: by measured figures")        \
    X(ISA, EXPERT, "isa", TWILL_TEXT, "auto", 0, 0, NULL, ANY,                                     \
      "Kernels: auto, scalar, avx2, avx512f")                                                      \
    X(REACH, EXPERT, "reach", TWILL_CHOICE, "auto", 0, 0, "auto|none|cma|xpmem", SAME,             \
      "How ranks of a node access peers' memory that is not of twill_alloc(): auto (what "         \
      "works), none, cma (process_vm_readv), xpmem")                                               \
    X(HEAP_LIMIT, EXPERT, "heap_limit", TWILL_BYTES, "0", 0, 0, NULL, ANY,                         \
      "Most bytes of twill_alloc() memory per rank; 0: no limit, and the node's ranks share up "   \
      "to three quarters of the host's memory, equally")                                           \
    X(MEMORY_BUDGET, EXPERT, "memory_budget", TWILL_BYTES, "0", 0, 0, NULL, ANY,                   \
      "Most bytes of MCDRAM per rank; 0: an equal share of what is free")                          \
    X(MACHINE, EXPERT, "machine", TWILL_TEXT, "auto", 0, 0, NULL, SAME,                            \
      "Machine model by which algorithms are chosen: auto, fattree, fattree2, fattree4, theta")    \
    X(REGISTRATION, EXPERT, "registration", TWILL_CHOICE, "auto", 0, 0, "off|auto", ANY,           \
      "Keep memory registered with the network between calls (auto), or register per call (off)")  \
    X(CONGESTION, EXPERT, "congestion", TWILL_TEXT, "", 0, 0, NULL, ANY,                           \
      "Congestion control of twill's tcp, such as cubic; empty: the system's, or reno where that " \
      "paces and all hosts are in one network")                                                    \
    X(DOMAIN, EXPERT, "domain", TWILL_TEXT, "", 0, 0, NULL, ANY, "libfabric domain; empty: any")   \
    X(LIBFABRIC, EXPERT, "libfabric", TWILL_TEXT, "", 0, 0, NULL, ANY,                             \
      "libfabric's library, opened when a fabric is needed; empty: libfabric.so.1")                \
    X(CUDA_LIBRARY, EXPERT, "cuda_library", TWILL_TEXT, "", 0, 0, NULL, ANY,                       \
      "CUDA driver library, in builds with TWILL_WITH_CUDA; empty: libcuda.so.1")                  \
    X(LAUNCHER, START, "TWILL_LAUNCHER", TWILL_CHOICE, "auto", 0, 0,                               \
      "auto|none|twillrun|torchrun|pmi|pmix|pals|alps|slurm", ANY,                                 \
      "Launcher whose variables give rank and size: auto (detected), none (one rank) or a name")   \
    X(KEY_FILE, START, "TWILL_KEY_FILE", TWILL_TEXT, "", 0, 0, NULL, ANY,                          \
      "File (mode 600) with a key in hex, for jobs without TWILL_JOB; empty: ~/.twill/key")        \
    X(JOB, START, "TWILL_JOB", TWILL_TEXT, "", 0, 0, NULL, ANY,                                    \
      "Key of the job in hex, set by twillrun")                                                    \
    X(LISTEN_FD, START, "TWILL_LISTEN_FD", TWILL_TEXT, "", 0, 0, NULL, ANY,                        \
      "Rank 0's listening socket, set by twillrun")                                                \
    X(LAUNCHER_FD, START, "TWILL_LAUNCHER_FD", TWILL_TEXT, "", 0, 0, NULL, ANY,                    \
      "Descriptor of twillrun's notices of ranks that exit during start-up, set by twillrun")      \
    X(ELASTIC, START, "TWILL_ELASTIC", TWILL_TEXT, "", 0, 0, NULL, ANY,                            \
      "Where new processes and the job find each other, set by twillrun --elastic")                \
    X(RANK, START, "RANK", TWILL_TEXT, "", 0, 0, NULL, ANY, "This rank, set by the launcher")      \
    X(WORLD_SIZE, START, "WORLD_SIZE", TWILL_TEXT, "", 0, 0, NULL, ANY,                            \
      "Number of ranks, set by the launcher")                                                      \
    X(MASTER_ADDR, START, "MASTER_ADDR", TWILL_TEXT, "", 0, 0, NULL, ANY,                          \
      "Address of rank 0, set by the launcher")                                                    \
    X(MASTER_PORT, START, "MASTER_PORT", TWILL_TEXT, "", 0, 0, NULL, ANY,                          \
      "TCP port of rank 0, set by the launcher")

enum twill_variable_id {
#define X(id, ...) TWILL_VARIABLE_##id,
    TWILL_VARIABLES(X)
#undef X
        TWILL_VARIABLE_COUNT
};

/* A row of the constant table of variables, twill_variables[]. */
struct twill_variable {
    const char *name; /* as users write it, such as "TWILL_LOG" or "TWILL_TUNE=segment" */
    const char *old;  /* "TWILL_" and the id, by which entries were set before 1.0; else unused */
    enum twill_variable_scope scope;
    enum twill_variable_kind kind;
    const char *fallback; /* the default */
    int64_t least, most;  /* of a number; for NUMBER and BYTES, most 0 means no upper limit */
    const char *choices;  /* of TWILL_CHOICE, as "off|auto", else NULL */
    enum twill_variable_agreement agree;
    const char *help;
};
extern const struct twill_variable twill_variables[TWILL_VARIABLE_COUNT];

/* The values of all variables. Each context has one, which is constant once loaded. */
struct twill_config {
    char *text[TWILL_VARIABLE_COUNT];         /* never NULL once loaded */
    const char *source[TWILL_VARIABLE_COUNT]; /* "default", "environment", "caller" */
    int64_t number[TWILL_VARIABLE_COUNT];     /* CHOICE: index, SECONDS: in ns, TEXT: 0 */
};

/* Read every value from `settings` ("NAME=value" strings, NULL-terminated, or NULL), else from the
 * environment, else take its default. Each entry of TWILL_LAYOUT and TWILL_TUNE is a separate
 * value, so settings may replace one and leave the others. Returns TWILL_ERR_CONFIG, naming the
 * variable, if a name is unknown, a value is bad, or an entry has another value by its old name. */
twill_status twill_config_load(struct twill_config *config, const char *const *settings,
                               struct twill_error *error);
/* Copy the values of `from`. Returns TWILL_OK or TWILL_ERR_MEMORY. Always destroy `config`. */
twill_status twill_config_copy(struct twill_config *config, const struct twill_config *from,
                               struct twill_error *error);
/* Free the values, also after twill_config_load() has failed. */
void twill_config_destroy(struct twill_config *config);
/* Warn of each environment variable TWILL_* that is unknown or is the old name of an entry. */
void twill_config_warn_environment(const struct twill_log *log);
/* Return the value of a variable as text, or NULL if it is empty. */
const char *twill_config_text(const struct twill_config *config, enum twill_variable_id id);
/* Return the value of variable `name`, such as "TWILL_TUNE=domain", or NULL if empty or unknown. */
const char *twill_config_find(const struct twill_config *config, const char *name);
/* Return the value of a variable in a form that may be printed, with secrets masked. */
const char *twill_config_shown(const struct twill_config *config, enum twill_variable_id id);
/* Return whether the caller or the environment has set a variable. */
bool twill_config_is_set(const struct twill_config *config, enum twill_variable_id id);
/* Return a hash of a variable's value and, if TWILL_AGREE_SAME_OR_UNSET, of whether it is set. */
uint32_t twill_config_hash(const struct twill_config *config, enum twill_variable_id id);

#endif
