/* SPDX-License-Identifier: Apache-2.0 */
/* Every time constant of the library and of twillrun, from the bottom layer up, each with its
 * reason. tests/lint/structure.py finds those that are elsewhere. Times that users set are settings
 * (lib/job/config.h). TWILL_TIMEOUT bounds every wait for a rank, and these constants bound the
 * rest. Names end in the unit, which is _NS (64 bits), _MS and _S (int) or _SECONDS (double). */
#ifndef TWILL_TIMES_H
#define TWILL_TIMES_H

#include <stdint.h>

#define TWILL_US(n)      (UINT64_C(1000) * (n))
#define TWILL_MS(n)      (UINT64_C(1000000) * (n))
#define TWILL_SECONDS_NS UINT64_C(1000000000)
#define TWILL_S(n)       (TWILL_SECONDS_NS * (n))

/* --- kernels: how fast threads are --- */

/* Then a measurement that other programs disturb repeats nothing more, as a job waits for it. */
#define TWILL_MEASURE_THREADS_NS TWILL_MS(20)

/* --- fabric/bootstrap: processes find each other --- */

/* Rank 0 finds failures and notifies the others. They wait this much longer than it does, to get
 * its reason, but at most half of the timeout longer. */
#define TWILL_BOOTSTRAP_SLACK_NS TWILL_S(2)
#define TWILL_ATTEND_NS          TWILL_MS(20) /* between looks whether an awaited rank lives */
#define TWILL_JOB_ENDED_NS       TWILL_MS(20) /* between looks whether the launcher's job ended */
#define TWILL_PMI_GOODBYE_NS     TWILL_S(2)   /* for the answer to "finalize" */
#define TWILL_RESOLVE_SAY_NS     TWILL_S(2)   /* then a rank says that it waits for a name */
#define TWILL_RESOLVE_PAUSE_MS   250 /* between questions, so that ranks do not flood the server */
/* Keep-alive finds a silent host after about idle + interval * probes. */
#define TWILL_KEEPALIVE_SILENT_MS 15000
#define TWILL_KEEPALIVE_IDLE_S    5 /* of silence before the first probe */
#define TWILL_KEEPALIVE_AGAIN_S   2 /* between probes */
/* For a caller to authenticate, longer than its host's keys and a lost packet (3 s) take. */
#define TWILL_PENDING_HELLO_NS TWILL_S(5)
/* More than that if no other caller has come, as this host may have been suspended. */
#define TWILL_PENDING_LAST_NS TWILL_S(2)
/* For a rank that has joined and left to return, as after a lost answer (TWILL_JOIN_ANSWER_NS). */
#define TWILL_COMEBACK_NS TWILL_S(5)
/* The same for a process that was given its rank, as another process may wait for that place. */
#define TWILL_GUEST_BACK_NS   TWILL_S(1)
#define TWILL_ACCEPT_PAUSE_NS TWILL_MS(50) /* between accepts, without descriptors */
#define TWILL_ABSENT_SAY_NS   TWILL_S(10)  /* then rank 0 says which ranks are missing */
/* For one address of rank 0's host to accept, as a lost SYN is sent again after 1 s. */
#define TWILL_JOIN_ATTEMPT_NS TWILL_S(3)
/* For one of several addresses to authenticate, as another host may also have that address. */
#define TWILL_JOIN_ANSWER_NS TWILL_S(5)
#define TWILL_JOIN_PAUSE_MS  50         /* between attempts, as rank 0 may not listen yet */
#define TWILL_JOIN_DOUBT_NS  TWILL_S(5) /* for an earlier job to free the port */
/* For this process to connect to itself, which concerns only the kernel. */
#define TWILL_LOOPBACK_NS   TWILL_S(1)
#define TWILL_SEARCH_SAY_NS TWILL_S(5) /* after this search in vain for rank 0 a rank says so */
/* For this host to get a route to rank 0, as long as TWILL_TCP_AWAY_NS. */
#define TWILL_JOIN_ROUTE_NS TWILL_S(16)
#define TWILL_PORT_LEAVE_NS TWILL_S(1) /* for twillrun to drain a full socket */
/* For the port of rank 0 to become free, as a job that ends closes it within seconds. */
#define TWILL_PORT_IN_USE_NS       TWILL_S(5)
#define TWILL_PORT_IN_USE_PAUSE_MS 50 /* between attempts */

/* --- fabric/host --- */

/* Between two readings of when one kernel was booted. The clocks are read within 0.1 us, and even
 * hosts that are switched on together differ by milliseconds. */
#define TWILL_BOOTED_NS TWILL_US(2)

/* --- fabric/detector: which ranks are dead --- */

/* For a second attempt to connect to a peer, as a lost SYN is sent again after 1 s. */
#define TWILL_DETECTOR_CONFIRM_NS TWILL_S(3)
/* Age from which a new connection may be closed again, as others need its descriptor. */
#define TWILL_DETECTOR_MISSED_NS      TWILL_MS(100)
#define TWILL_DETECTOR_STEADY_NS      TWILL_S(2)    /* a connection this old has reached the peer */
#define TWILL_DETECTOR_RETRY_NS       TWILL_S(1)    /* between attempts that prove nothing */
#define TWILL_DETECTOR_REFUSED_NS     TWILL_MS(100) /* between refused attempts, which are cheap */
#define TWILL_DETECTOR_HANDSHAKE_NS   TWILL_MS(500) /* for a caller, if no place is free */
#define TWILL_DETECTOR_NOTIFY_TURN_NS TWILL_MS(50)  /* between looks for peers to notify */
/* Connections between hosts. The probe that is due at 9 s finds a host silent. */
#define TWILL_HOST_IDLE_S    3    /* of silence before the first keep-alive probe */
#define TWILL_HOST_AGAIN_S   2    /* between probes */
#define TWILL_HOST_SILENT_MS 8500 /* of silence from which a host counts as silent */
/* Most time until a silent host is found, by these three and with a machine under load. */
#define TWILL_HOST_FOUND_NS TWILL_S(16)
/* Most time for their set-up (or a quarter of TWILL_TIMEOUT). SYNs are sent again in 1, 3, 7 s. */
#define TWILL_HOST_SET_UP_NS TWILL_S(10)
#define TWILL_HOST_TURN_NS   TWILL_MS(20) /* between looks at the connections during set-up */
/* For other hosts to be notified of a suspect. That is done in a look, and must not delay it. */
#define TWILL_HOST_NOTIFY_NS TWILL_MS(100)

/* --- fabric: transports --- */

#define TWILL_FD_RETRY_MS 1 /* between sends of descriptors to a full socket */
/* Before the first probe of peers that have not connected, and most between probes. */
#define TWILL_FD_PROBE_NS      TWILL_MS(100)
#define TWILL_FD_PROBE_MOST_NS TWILL_MS(1600)
#define TWILL_FLUSH_NAP_NS     TWILL_US(100) /* between polls when a transport is closed */
#define TWILL_TCP_FLUSH_NS     TWILL_S(1)    /* for the kernel to send its buffers then */
/* For a network without a route to the peer to come back, as TWILL_HOST_FOUND_NS. */
#define TWILL_TCP_AWAY_NS       TWILL_S(16)
#define TWILL_TCP_AWAY_RETRY_NS TWILL_MS(50) /* between attempts */
/* After this without an answer to a SYN the message says so. A live host answers the next one. */
#define TWILL_TCP_UNANSWERED_NS    TWILL_S(3)
#define TWILL_TCP_HOSTS_CHECKED_NS TWILL_S(1) /* between checks, a system call each */
/* For the handshake when places are short, as a caller may be a rank that has little of a core. */
#define TWILL_TCP_HELLO_NS TWILL_S(10)
#define TWILL_OFI_FLUSH_NS TWILL_S(1) /* for sends to leave the process */
/* For posted chunks to match, as a SEND never completes if its RECV was cancelled. */
#define TWILL_OFI_GRACE_NS TWILL_MS(250)
/* For the provider to return cancelled operations, and those in memory of its endpoint. */
#define TWILL_OFI_CANCEL_NS TWILL_S(1)
#define TWILL_OFI_DRAIN_NS  TWILL_S(1)

/* --- fabric/launcher: twillrun --- */

/* For a host to report, beyond the time of its ranks, which ssh and the start of a process take. */
#define TWILL_REPORT_NS    TWILL_S(5)
#define TWILL_TERM_NS      TWILL_S(2) /* between SIGTERM and SIGKILL, for last lines */
#define TWILL_AGENT_END_NS TWILL_S(5) /* for an agent to end, above TWILL_TERM_NS */
/* For an agent that has closed its output, or was killed, to be reaped. */
#define TWILL_AGENT_REAP_NS       TWILL_S(1)
#define TWILL_AGENT_REAP_PAUSE_MS 10         /* between looks */
#define TWILL_JOINING_NS          TWILL_S(5) /* for a process that has a handle to be in the job */
/* TWILL_RESTARTS within this time are too many, as the cause would also kill the next process. */
#define TWILL_RESTARTS_NS    TWILL_S(10)
#define TWILL_OUTPUT_LOOK_MS 50 /* between looks for signals while the last output is written */
/* Messages of ranks are merged until none has come for this time, or the second time is over. */
#define TWILL_SAYING_QUIET_NS TWILL_MS(200)
#define TWILL_SAYING_MOST_NS  TWILL_S(2)
/* For frames that the other side sends when it is ready. After ten minutes it has hung. */
#define TWILL_FRAME_WAIT_NS TWILL_S(600)
#define TWILL_FRAME_LAST_NS TWILL_S(5) /* for the last frames after the input has ended */
/* Defaults of --grace and --timeout, and the most that they may be. */
#define TWILL_LAUNCH_GRACE_NS   TWILL_S(3)
#define TWILL_LAUNCH_TIMEOUT_NS TWILL_S(30)
#define TWILL_LAUNCH_MOST_S     86400

/* --- lib/job --- */

#define TWILL_LOG_LAUNCHER_MS 200 /* for twillrun to take a warning while many ranks send one */

/* --- lib/engine --- */

/* Most time for a price from the rank of the node that computes it, but at most an eighth of the
 * timeout. It takes milliseconds, unless that rank has been stopped or has little of a core. */
#define TWILL_PRICE_PATIENCE_NS TWILL_MS(250)
#define TWILL_PRICE_LOOK_NS     TWILL_MS(20) /* between looks whether that rank lives */
/* Between looks at where ranks run, in small calls. One takes 1 us, and kernels balance in 4 ms. */
#define TWILL_SPREAD_LEAST_NS TWILL_MS(10)
#define TWILL_SPREAD_MOST_NS  TWILL_S(10)

/* --- lib/wait: how a wait rests --- */

/* If a yield took longer than this, another thread may have run. */
#define TWILL_YIELD_ALONE_NS UINT64_C(700)
/* If it took longer than this, another thread has run. In between the kernel's count tells. In a
 * virtual machine a yield to nobody takes up to 1.2 us, and one to another rank at least 3. */
#define TWILL_YIELD_PASSED_NS TWILL_US(3)
/* If it took longer than this, that thread did not wait, as a rank would. */
#define TWILL_YIELD_LOST_NS TWILL_US(200)
/* For which ticks are counted before the clock's rate is taken as known, to 0.1 %. */
#define TWILL_TICKS_COUNTED_NS TWILL_MS(1)
/* First sleep of a wait, doubled up to the most. A lost ring costs no more than a sleep. */
#define TWILL_SLEEP_LEAST_NS  TWILL_US(50)
#define TWILL_SLEEP_MOST_NS   TWILL_MS(2)
#define TWILL_SLEEP_POLLED_NS TWILL_US(100) /* the same if a network must be polled */
#define TWILL_IDLE_AFTER_NS   TWILL_US(20)  /* without progress, until idle() is called */
/* First nap of a progress thread whose requests make no progress, doubled up to the most. */
#define TWILL_PROGRESS_NAP_LEAST_NS TWILL_US(20)
#define TWILL_PROGRESS_NAP_MOST_NS  TWILL_US(200)
#define TWILL_PROGRESS_LATE_NS      TWILL_MS(1)  /* between looks of TWILL_PROGRESS=late */
#define TWILL_THREAD_NAP_NS         TWILL_US(20) /* nap of a wait for another thread */
#define TWILL_UNUSED_NS             TWILL_MS(1)  /* wait to end a communicator without a barrier */

/* --- lib/comm: what a wait checks, and how it fails --- */

/* From the last progress to the first look for failures, and between looks, of some us each. */
#define TWILL_CHECK_FIRST_NS TWILL_MS(2)
#define TWILL_CHECK_EVERY_NS TWILL_MS(20)
/* A rank that is found dead may just have sent data, so a look after this time must confirm it. */
#define TWILL_DEATH_SURE_NS     (TWILL_CHECK_EVERY_NS / 2)
#define TWILL_LIVENESS_EVERY_NS TWILL_MS(200) /* between looks at ranks of other nodes */
/* Between reports to awaited ranks of other nodes, and updates of where this rank waits. */
#define TWILL_WAIT_REPORT_NS    TWILL_S(1)
#define TWILL_ELSEWHERE_SECONDS 3.0 /* such an update counts for three of these */
/* The deadline after a wait has timed out. It holds for an all-gather with the same rank, and for
 * communicators that are destroyed, so that these do not wait for TWILL_TIMEOUT each. */
#define TWILL_LEAVE_NS TWILL_MS(100)
/* Least rest of a deadline that is carried over to another wait. */
#define TWILL_GRACE_NS          TWILL_MS(10)
#define TWILL_FAILURE_NOTIFY_NS TWILL_MS(500) /* for all ranks to be notified of a failure */
/* For the notice of a failure's root cause to arrive, as long as notifying takes. */
#define TWILL_EXPLAIN_NS TWILL_MS(500)
/* The same for a death, which closes connections after a notice. */
#define TWILL_EXPLAIN_DEATH_NS TWILL_MS(200)
#define TWILL_EXPLAIN_TURN_NS  TWILL_MS(2)    /* between looks */
#define TWILL_SEARCH_NS        TWILL_MS(1200) /* for a search for a timeout's root cause */
/* For one rank's answer in it, several times the time between its looks (TWILL_CHECK_EVERY_NS). */
#define TWILL_SEARCH_REPLY_NS TWILL_MS(500)
#define TWILL_SEARCH_TURN_NS  TWILL_MS(2) /* between looks */
/* Between ranks, and from first to last, whose searches end together, so that only one notifies. */
#define TWILL_SEARCH_SPREAD_NS      TWILL_US(100)
#define TWILL_SEARCH_SPREAD_MOST_NS TWILL_MS(200)
#define TWILL_BREAK_NS              TWILL_MS(100) /* for a call that computes, in a revocation */
/* First tick of an agreement, doubled up to the most. */
#define TWILL_AGREE_TICK_FIRST_NS TWILL_MS(2)
#define TWILL_AGREE_TICK_MOST_NS  TWILL_MS(50)
#define TWILL_AGREE_POLL_NS       TWILL_US(200) /* sleep between polls */
#define TWILL_AGREE_LAST_NS       TWILL_MS(100) /* for the last message to a rank */
/* For survivors to connect. A lost SYN is sent again after 1, 3 and 7 s. */
#define TWILL_RENDEZVOUS_NS   TWILL_S(10)
#define TWILL_SLOW_ATTEMPT_NS TWILL_S(2) /* an attempt this slow is worth a warning */
/* For new processes of an elastic job to connect, as for survivors. */
#define TWILL_ADMIT_NS        TWILL_S(10)
#define TWILL_ELASTIC_LOOK_MS 5 /* between looks for the handle */

/* --- lib/report --- */

#define TWILL_TIMELINE_EVERY_NS TWILL_MS(500) /* between writes, as the ring is finite */

/* --- lib/api --- */

/* Timeouts that a program may set, from above the kernel's own delays to below a year. */
#define TWILL_TIMEOUT_LEAST_SECONDS 0.001
#define TWILL_TIMEOUT_MOST_SECONDS  1e6

/* --- lib/extend.h --- */

#define TWILL_EXTEND_SLEEP_NS TWILL_US(200) /* longest sleep, unless a rank rings */

/* --- lib/train --- */

/* Longest sleep of a reducer's thread, as a lost wake costs no more. */
#define TWILL_REDUCER_SLEEP_NS TWILL_MS(5)
#define TWILL_REDUCER_AGAIN_NS TWILL_US(50) /* pause after an exchange that agreed on nothing */

/* --- lib/server --- */

#define TWILL_SERVER_CHECK_NS TWILL_MS(20) /* between looks whether servers and workers live */
/* Timeout of the endpoints of links, i.e. none, as a worker may compute for long. */
#define TWILL_SERVER_LINK_SECONDS 1e6
#define TWILL_CHUNK_TRIAL_SECONDS 0.025 /* most time for an exchange of a sample */

/* --- lib/mpi --- */

/* As TWILL_YIELD_ALONE_NS and TWILL_YIELD_LOST_NS, read by twill_now(). */
#define TWILL_MPI_ALONE_NS UINT64_C(1500)
#define TWILL_MPI_LOST_NS  TWILL_US(200)
/* A wait naps after this, and each time for, as the MPI's messages progress only by polls. */
#define TWILL_MPI_NAP_AFTER_NS TWILL_MS(2)
#define TWILL_MPI_NAP_NS       TWILL_US(50)
/* A wait on several communicators does not sleep for this long, as data may be moving. */
#define TWILL_MPI_BUSY_NS TWILL_MS(100)
#define TWILL_MPI_END_NS  TWILL_S(5) /* for the closing barriers of MPI_Finalize */
/* For a rank whose call another has refused, as the two may yet meet in the next call. */
#define TWILL_MPI_REFUSED_NS TWILL_S(5)

#endif
