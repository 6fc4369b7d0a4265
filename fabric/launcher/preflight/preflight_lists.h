/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of checks and facts of the preflight, for words, JSON keys and the manual page. */
#ifndef TWILL_PREFLIGHT_LISTS_H
#define TWILL_PREFLIGHT_LISTS_H

/* Each X(NOUN, name, of, help) is a check, in the order of the page. `name` is its key in JSON, and
 * `of` is what look_at_<name>() in preflight_checks.c looks at. */
#define PREFLIGHT_CHECKS(X)                                                                        \
    X(ANSWER, answer, HOST,                                                                        \
      "Every host starts this check by the launcher's own way, and answers in "                    \
      "time")                                                                                      \
    X(CONNECT, connect, ANSWERED_HOST,                                                             \
      "Every host connects to every other one over TCP, in both directions, at "                   \
      "ports of the kind that a job uses; a deadline distinguishes packets "                       \
      "that are dropped from a refusal")                                                           \
    X(DATA, data, ANSWERED_HOST,                                                                   \
      "64 KiB arrive over each of these connections, so large packets pass as well")               \
    X(MTU, mtu, ANSWERED_HOST,                                                                     \
      "The interfaces of the job have one MTU, and no path has a smaller one")                     \
    X(NIC, nic, ANSWERED_HOST,                                                                     \
      "The interfaces of the job are up, with full duplex and one speed, and are the fastest")     \
    X(CLOCK, clock, ANSWERED_HOST, "The clocks of the hosts differ by less than 0.1 s")            \
    X(LIBRARY, library, ANSWERED_HOST, "All hosts load the same libtwill: version and contents")   \
    X(PROGRAM, program, ANSWERED_HOST,                                                             \
      "The program, if one is given, is there on each host, can be run, and is "                   \
      "the same")                                                                                  \
    X(KEY, key, ANSWERED_HOST,                                                                     \
      "There is a key of the job; a key file, if one is set, can be read, is safe from "           \
      "other users, and is the same on all hosts")                                                 \
    X(MEMLOCK, memlock, ANSWERED_HOST,                                                             \
      "The limit of locked memory (ulimit -l) is enough for the network "                          \
      "adapters that there are")                                                                   \
    X(NOFILE, nofile, ANSWERED_HOST,                                                               \
      "The limit of open files (ulimit -n) is enough for this number of ranks")                    \
    X(SHM, shm, ANSWERED_HOST,                                                                     \
      "/dev/shm is there and has space: twill does not use it, but MPI libraries, "                \
      "libfabric and data loaders do")                                                             \
    X(CMA, cma, ANSWERED_HOST, "Ranks of a host may read each other's memory (process_vm_readv)")  \
    X(THP, thp, ANSWERED_HOST,                                                                     \
      "Transparent huge pages are not off, and are set alike on all hosts")                        \
    X(MEMORY, memory, ANSWERED_HOST, "The memory limit of the cgroup leaves enough for each rank") \
    X(CPU, cpu, ANSWERED_HOST, "The CPU limit of the cgroup allows a core for each rank")          \
    X(BINDING, binding, HOST, "Every rank has a core, and no two ranks share one")                 \
    X(JOB, job, JOB, "A job of these ranks starts, and its allreduce has the right result")        \
    X(ROUND_TRIP, round_trip, JOB,                                                                 \
      "No pair of ranks has a round trip far above the median of its "                             \
      "kind: on a host, or between hosts")                                                         \
    X(BANDWIDTH, bandwidth, JOB,                                                                   \
      "No pair of ranks has a bandwidth far below the median of its kind")

enum preflight_check {
#define PREFLIGHT_VALUE(NOUN, name, of, help) PREFLIGHT_##NOUN,
    PREFLIGHT_CHECKS(PREFLIGHT_VALUE)
#undef PREFLIGHT_VALUE
        PREFLIGHT_CHECK_COUNT
};

/* Integers that a host reports about itself. -1 means none, unless noted here. */
#define PREFLIGHT_NUMBERS(X)                                                                       \
    X(cpus)               /* online */                                                             \
    X(memory_bytes)       /* of the host */                                                        \
    X(memory_limit_bytes) /* of the cgroup */                                                      \
    X(memory_used_bytes)  /* in the cgroup */                                                      \
    X(cpu_limit_milli)    /* of the cgroup, in thousandths of a CPU */                             \
    X(memlock_bytes)      /* -1: unlimited */                                                      \
    X(nofile)             /* -1: unlimited */                                                      \
    X(nofile_most)        /* the hard limit; -1: unlimited */                                      \
    X(shm_bytes)                                                                                   \
    X(shm_free_bytes)                                                                              \
    X(cma_error)    /* 0: it works, else errno */                                                  \
    X(ptrace_scope) /* of Yama */                                                                  \
    X(key_is_named) /* 1: by TWILL_KEY_FILE; 0: ~/.twill/key */                                    \
    X(rdma_devices)                                                                                \
    X(port) /* at which it listens */                                                              \
    X(interface_mtu)                                                                               \
    X(interface_mbits) /* speed */                                                                 \
    X(faster_mbits)    /* of faster_interface */                                                   \
    X(clock_ns)        /* ahead of the host of twillrun */                                         \
    X(clock_error_ns)  /* by which that may be wrong */

/* Texts that a host reports about itself, empty if there is none. */
#define PREFLIGHT_TEXTS(X)                                                                         \
    X(system) /* kernel and machine */                                                             \
    X(thp)                                                                                         \
    X(library_path)                                                                                \
    X(library_version)                                                                             \
    X(library_digest)                                                                              \
    X(program_path)                                                                                \
    X(program_digest)                                                                              \
    X(program_error)                                                                               \
    X(key) /* where it comes from */                                                               \
    X(key_error)                                                                                   \
    X(key_digest) /* of a key file; 32 bits, from which the key cannot be found */                 \
    X(address)                                                                                     \
    X(interface)                                                                                   \
    X(faster_interface) /* which is up, and not used */                                            \
    X(interface_state)                                                                             \
    X(interface_duplex)                                                                            \
    X(listen_error)

#endif
