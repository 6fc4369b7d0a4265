/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration: one table describes every environment variable. It feeds the parser, twill-info
 * --env and the man page (tests/lint/check_docs.sh compares). */
#ifndef TWILL_CONFIG_H
#define TWILL_CONFIG_H

#include "lib/base.h"

enum twill_variable_kind {
    TWILL_TEXT,    /* anything; its user checks it */
    TWILL_CHOICE,  /* one of `choices`, separated by | */
    TWILL_NUMBER,  /* integer in [least, most] */
    TWILL_BYTES,   /* integer with K, M, G, T (binary) */
    TWILL_SECONDS, /* decimal */
};

/* X(id, name, kind, default, least, most, choices, agree, help): agree says that ranks must have
 * the same value, which is checked at creation. */
#define TWILL_VARIABLES(X)                                                                         \
    X(TIMEOUT, "TWILL_TIMEOUT", TWILL_SECONDS, "600", 1, 1000000, NULL, 0,                         \
      "Seconds until a wait for another rank ends in an error")                                    \
    X(LOG, "TWILL_LOG", TWILL_CHOICE, "warn", 0, 0, "none|warn|info|debug", 0,                     \
      "What twill says on standard error")                                                         \
    X(LOG_FILE, "TWILL_LOG_FILE", TWILL_TEXT, "", 0, 0, NULL, 0,                                   \
      "File that it is appended to instead; %h is the host, %p the process, %r the rank, %% is %") \
    X(ALGORITHM, "TWILL_ALGORITHM", TWILL_TEXT, "", 0, 0, NULL, 1,                                 \
      "Algorithm: NAME, or COLLECTIVE[FROM-TO]:NAME;..., NAME optionally with =NUMBERS @FLAVOUR")  \
    X(MACHINE, "TWILL_MACHINE", TWILL_TEXT, "auto", 0, 0, NULL, 1,                                 \
      "Model that algorithms are chosen by: auto, theta")                                          \
    X(TUNING, "TWILL_TUNING", TWILL_TEXT, "", 0, 0, NULL, 0,                                       \
      "File that twill-bench --calibrate wrote: model and measured times to choose by")            \
    X(NODES, "TWILL_NODES", TWILL_TEXT, "", 0, 0, NULL, 1,                                         \
      "Virtual nodes: 2x2 (nodes x ranks) or 4+2+1; they talk as hosts do, see TWILL_PROVIDER")    \
    X(GROUPS, "TWILL_GROUPS", TWILL_TEXT, "", 0, 0, NULL, 1,                                       \
      "Groups of nodes in the fabric: 2x3 (groups x nodes) or 4+2; empty: one")                    \
    X(UNITS, "TWILL_UNITS", TWILL_TEXT, "", 0, 0, NULL, 1,                                         \
      "Declared parts of nodes, in ranks, such as l3=2,numa=4,package=8; empty: where they run")   \
    X(REPRODUCIBLE, "TWILL_REPRODUCIBLE", TWILL_NUMBER, "0", 0, 1, NULL, 1,                        \
      "1: sums do not depend on algorithm, node layout or segment size")                           \
    X(PROGRESS, "TWILL_PROGRESS", TWILL_TEXT, "none", 0, 0, NULL, 0,                               \
      "What is under way goes on inside calls only (none), in a thread too (thread, "              \
      "thread:CORE), "                                                                             \
      "or in one that looks after it every millisecond (late)")                                    \
    X(TOPOLOGY, "TWILL_TOPOLOGY", TWILL_TEXT, "", 0, 0, NULL, 0,                                   \
      "hwloc XML file or synthetic description that replaces the machine")                         \
    X(MEMORY, "TWILL_MEMORY", TWILL_TEXT, "auto", 0, 0, NULL, 0,                                   \
      "Placement of twill_alloc() memory, and after a comma of the library's own: "                \
      "auto, ddr, mcdram, mcdram:bind, mcdram:preferred, mcdram:interleave; hbm is mcdram")        \
    X(MEMORY_BUDGET, "TWILL_MEMORY_BUDGET", TWILL_BYTES, "0", 0, 0, NULL, 0,                       \
      "Most bytes of MCDRAM a rank takes; 0: its part of what is free")                            \
    X(HEAP_LIMIT, "TWILL_HEAP_LIMIT", TWILL_BYTES, "0", 0, 0, NULL, 0,                             \
      "Most bytes of twill_alloc() memory of a rank; 0: no limit, and three quarters of the "      \
      "node's "                                                                                    \
      "memory are shared by its ranks, in equal parts")                                            \
    X(HEAP, "TWILL_HEAP", TWILL_TEXT, "off", 0, 0, NULL, 0,                                        \
      "Where libtwill-heap.so is preloaded: shared, or shared:BYTES, serves malloc from shared "   \
      "memory, from so many bytes up (64K)")                                                       \
    X(REACH, "TWILL_REACH", TWILL_CHOICE, "auto", 0, 0, "auto|none|cma|xpmem", 1,                  \
      "How ranks of a node may reach memory that is not of twill_alloc(): auto (what works), "     \
      "none, cma (process_vm_readv), xpmem")                                                       \
    X(SEGMENT, "TWILL_SEGMENT", TWILL_BYTES, "256K", 4096, 1u << 30, NULL, 1,                      \
      "Most bytes of a segment when data is staged through shared memory")                         \
    X(SEGMENT_NET, "TWILL_SEGMENT_NET", TWILL_BYTES, "4M", 4096, 1u << 30, NULL, 1,                \
      "Bytes of a segment when data only crosses the network")                                     \
    X(ISA, "TWILL_ISA", TWILL_TEXT, "auto", 0, 0, NULL, 0, "Kernels: auto, scalar, avx2, avx512f") \
    X(THREADS, "TWILL_THREADS", TWILL_NUMBER, "1", 1, 1024, NULL, 0,                               \
      "OpenMP threads a rank may use for large reductions")                                        \
    X(STREAM, "TWILL_STREAM", TWILL_BYTES, "0", 0, 0, NULL, 0,                                     \
      "Messages from this size up are stored past the caches; 0: by the size of the caches")       \
    X(SPIN, "TWILL_SPIN", TWILL_NUMBER, "-1", -1, 1000000000, NULL, 0,                             \
      "Polls before a wait yields the core; -1: learnt from what yielding costs")                  \
    X(PROVIDER, "TWILL_PROVIDER", TWILL_TEXT, "", 0, 0, NULL, 1,                                   \
      "Between nodes: tcp is twill's own, ofi:NAME or NAME libfabric's; empty: the best there is") \
    X(INTERFACE, "TWILL_INTERFACE", TWILL_TEXT, "", 0, 0, NULL, 0,                                 \
      "Network interface or address, or a list for rails; empty: by the route to rank 0")          \
    X(RAILS, "TWILL_RAILS", TWILL_TEXT, "auto", 0, 0, NULL, 0,                                     \
      "Interfaces used at a time: auto (all that are as good as the first), a number, or a list "  \
      "of interfaces or domains, as many on all ranks")                                            \
    X(CONGESTION, "TWILL_CONGESTION", TWILL_TEXT, "", 0, 0, NULL, 0,                               \
      "Congestion control of twill's tcp, such as cubic; empty: the system's")                     \
    X(DOMAIN, "TWILL_DOMAIN", TWILL_TEXT, "", 0, 0, NULL, 0, "libfabric domain; empty: any")       \
    X(LIBFABRIC, "TWILL_LIBFABRIC", TWILL_TEXT, "", 0, 0, NULL, 0,                                 \
      "libfabric's library, opened when a fabric is needed; empty: libfabric.so.1")                \
    X(REGISTRATION, "TWILL_REGISTRATION", TWILL_CHOICE, "auto", 0, 0, "off|auto", 0,               \
      "Memory that a network must know stays known between calls (auto) or is shown in each "      \
      "(off)")                                                                                     \
    X(CUDA_LIBRARY, "TWILL_CUDA_LIBRARY", TWILL_TEXT, "", 0, 0, NULL, 0,                           \
      "CUDA driver library, in builds with TWILL_WITH_CUDA; empty: libcuda.so.1")                  \
    X(MOCK, "TWILL_MOCK", TWILL_TEXT, "", 0, 0, NULL, 1,                                           \
      "Testing: script of the mock transport between ranks of one process")                        \
    X(MPI, "TWILL_MPI", TWILL_CHOICE, "1", 0, 0, "0|1|all", 0,                                     \
      "In MPI programs under libtwill-mpi: 0 leaves all calls to the MPI; all: none by choice")    \
    X(MPI_REPORT, "TWILL_MPI_REPORT", TWILL_TEXT, "0", 0, 0, NULL, 0,                              \
      "There, at the end: 1 reports on standard error what was taken, a name in that file")        \
    X(LAUNCHER, "TWILL_LAUNCHER", TWILL_CHOICE, "auto", 0, 0,                                      \
      "auto|none|twillrun|torchrun|pmi|pmix|pals|alps|slurm", 0,                                   \
      "Whose variables tell rank and size: auto (detected), none (one rank), or that one")         \
    X(JOB, "TWILL_JOB", TWILL_TEXT, "", 0, 0, NULL, 0, "Key of the job in hex, set by twillrun")   \
    X(KEY_FILE, "TWILL_KEY_FILE", TWILL_TEXT, "", 0, 0, NULL, 0,                                   \
      "File (mode 600) with a key in hex for jobs without TWILL_JOB; empty: ~/.twill/key")         \
    X(LISTEN_FD, "TWILL_LISTEN_FD", TWILL_TEXT, "", 0, 0, NULL, 0,                                 \
      "Rank 0's listening socket, set by twillrun")                                                \
    X(LAUNCHER_FD, "TWILL_LAUNCHER_FD", TWILL_TEXT, "", 0, 0, NULL, 0,                             \
      "Where twillrun says which rank ended before all were there, set by twillrun")               \
    X(RANK, "RANK", TWILL_TEXT, "", 0, 0, NULL, 0, "This rank, set by the launcher")               \
    X(WORLD_SIZE, "WORLD_SIZE", TWILL_TEXT, "", 0, 0, NULL, 0,                                     \
      "Number of ranks, set by the launcher")                                                      \
    X(MASTER_ADDR, "MASTER_ADDR", TWILL_TEXT, "", 0, 0, NULL, 0,                                   \
      "Address of rank 0, set by the launcher")                                                    \
    X(MASTER_PORT, "MASTER_PORT", TWILL_TEXT, "", 0, 0, NULL, 0,                                   \
      "TCP port of rank 0, set by the launcher")

enum twill_variable_id {
#define X(id, ...) TWILL_VARIABLE_##id,
    TWILL_VARIABLES(X)
#undef X
        TWILL_VARIABLE_COUNT
};

struct twill_variable {
    const char *name;
    enum twill_variable_kind kind;
    const char *fallback;
    int64_t least, most; /* most 0: no limit */
    const char *choices;
    bool agree;
    const char *help;
};
extern const struct twill_variable twill_variables[TWILL_VARIABLE_COUNT];

struct twill_config {
    char *text[TWILL_VARIABLE_COUNT];         /* never NULL once loaded */
    const char *source[TWILL_VARIABLE_COUNT]; /* "default", "environment", "caller" */
    int64_t number[TWILL_VARIABLE_COUNT];     /* WORD: index; NUMBER, BYTES; SECONDS: nanoseconds */
};

/* Read every variable: the caller's settings, else the environment, else the default. A bad value
 * is TWILL_ERR_CONFIG naming variable, value and what is allowed; so is an unknown name in
 * settings. */
twill_status twill_config_load(struct twill_config *config, const char *const *settings,
                               struct twill_error *error);
void twill_config_destroy(struct twill_config *config);
/* Warn about variables of the environment that begin with TWILL_ and are none of ours. */
void twill_config_warn_unknown(const struct twill_log *log);
/* Bytes as in the table: an integer with K, M, G or T. false: it is none. */
bool twill_config_bytes(const char *text, int64_t *bytes);
/* The text, or NULL when empty. */
const char *twill_config_text(const struct twill_config *config, enum twill_variable_id id);
/* The text as it may be printed: without secrets. */
const char *twill_config_shown(const struct twill_config *config, enum twill_variable_id id);
/* Hash of a value, for agreement among ranks. */
uint32_t twill_config_hash(const struct twill_config *config, enum twill_variable_id id);

#endif
