/* SPDX-License-Identifier: Apache-2.0 */
/* Every time constant of the library and of twillrun, from the bottom layer up, each with its
 * reason. tests/lint/structure.py finds those that are elsewhere. Times that users set are settings
 * (lib/job/config.h); TWILL_TIMEOUT bounds every wait for a rank, so what is here bounds the rest.
 * Names end in the unit: _NS (64 bits), _MS and _S (int), _SECONDS (double). */
#ifndef TWILL_TIMES_H
#define TWILL_TIMES_H

#include <stdint.h>

#define TWILL_US(n)      (UINT64_C(1000) * (n))
#define TWILL_MS(n)      (UINT64_C(1000000) * (n))
#define TWILL_SECONDS_NS UINT64_C(1000000000)
#define TWILL_S(n)       (TWILL_SECONDS_NS * (n))

/* --- fabric/bootstrap: processes find each other --- */

/* Rank 0 finds failures and notifies the others. They wait this much longer than it does, to get
 * its reason (and at most half of the timeout longer). */
#define TWILL_BOOTSTRAP_SLACK_NS TWILL_S(2)
/* Between looks whether an awaited rank lives: one system call each. */
#define TWILL_ATTEND_NS TWILL_MS(20)
/* Between looks whether the launcher's job has ended: as TWILL_ATTEND_NS. */
#define TWILL_JOB_ENDED_NS TWILL_MS(20)
/* A process manager answers "finalize" at once, if it lives. */
#define TWILL_PMI_GOODBYE_NS TWILL_S(2)
/* A name server that says EAI_AGAIN may be late at the start of a job, but not for longer. */
#define TWILL_RESOLVE_NS       TWILL_S(5)
#define TWILL_RESOLVE_PAUSE_MS 100 /* between questions: it must not be flooded by all ranks */
/* A socket's host is silent: about idle + interval * probes of keep-alive. */
#define TWILL_KEEPALIVE_SILENT_MS 15000
#define TWILL_KEEPALIVE_IDLE_S    5 /* of silence before the first probe */
#define TWILL_KEEPALIVE_AGAIN_S   2 /* between probes */
/* A caller must authenticate: longer than its host's keys and a lost packet (3 s) take. */
#define TWILL_PENDING_HELLO_NS TWILL_S(5)
/* After that, if no other has come: this host may have been suspended. */
#define TWILL_PENDING_LAST_NS TWILL_S(2)
/* A rank that has joined and left is back: its first answer was lost, and it retries after
 * TWILL_JOIN_ANSWER_NS. */
#define TWILL_COMEBACK_NS TWILL_S(5)
/* The same for a process that was given its rank: another process may wait for that place. */
#define TWILL_GUEST_BACK_NS TWILL_S(1)
/* Between accepts while the host lacks descriptors or memory. */
#define TWILL_ACCEPT_PAUSE_NS TWILL_MS(50)
/* Rank 0 has waited: it says for whom. */
#define TWILL_ABSENT_SAY_NS TWILL_S(10)
/* One address of rank 0's host accepts: a lost SYN is sent again after 1 s. */
#define TWILL_JOIN_ATTEMPT_NS TWILL_S(3)
/* One of several addresses authenticates: another host may have that address, too. */
#define TWILL_JOIN_ANSWER_NS TWILL_S(5)
/* Between attempts: rank 0 may not listen yet. */
#define TWILL_JOIN_PAUSE_MS 50
/* An earlier job may still hold the port: as long as TWILL_PORT_IN_USE_NS. */
#define TWILL_JOIN_DOUBT_NS TWILL_S(5)
/* This process connects to itself: the kernel alone is concerned. */
#define TWILL_LOOPBACK_NS TWILL_S(1)
/* A rank has searched for rank 0 in vain: it says so. */
#define TWILL_SEARCH_SAY_NS TWILL_S(5)
/* This host gets a route to rank 0: as long as TWILL_TCP_AWAY_NS. */
#define TWILL_JOIN_ROUTE_NS TWILL_S(16)
/* twillrun drains a full socket. */
#define TWILL_PORT_LEAVE_NS TWILL_S(1)
/* The port of rank 0 is in use: a job that ends closes it within seconds. */
#define TWILL_PORT_IN_USE_NS       TWILL_S(5)
#define TWILL_PORT_IN_USE_PAUSE_MS 50 /* between attempts */

/* --- fabric/detector: which ranks are dead --- */

/* A second attempt to connect to a peer whose first connection has closed: a lost SYN is sent again
 * after 1 s. */
#define TWILL_DETECTOR_CONFIRM_NS TWILL_S(3)
/* From when on a new connection may be closed again, as others need its descriptor. */
#define TWILL_DETECTOR_MISSED_NS TWILL_MS(100)
/* A connection that lasted this long did reach the peer. */
#define TWILL_DETECTOR_STEADY_NS TWILL_S(2)
/* Between attempts that prove nothing about the peer. */
#define TWILL_DETECTOR_RETRY_NS TWILL_S(1)
/* Between attempts that are refused, perhaps by a firewall: cheap, and the peer may listen soon. */
#define TWILL_DETECTOR_REFUSED_NS TWILL_MS(100)
/* A caller authenticates, when there are no free places. */
#define TWILL_DETECTOR_HANDSHAKE_NS TWILL_MS(500)
/* Between looks for peers that cannot be notified yet. */
#define TWILL_DETECTOR_NOTIFY_TURN_NS TWILL_MS(50)
/* Connections between hosts: silence before the first keep-alive probe; between probes; a host
 * counts as silent: the probe that is due at 9 s finds that. */
#define TWILL_HOST_IDLE_S    3
#define TWILL_HOST_AGAIN_S   2
#define TWILL_HOST_SILENT_MS 8500
/* The most time until a silent host is found: the three above, and a machine under load. */
#define TWILL_HOST_FOUND_NS TWILL_S(16)
/* The most time for set-up of these connections (and at most a quarter of TWILL_TIMEOUT): a lost
 * SYN is sent again after 1, 3 and 7 s. */
#define TWILL_HOST_SET_UP_NS TWILL_S(10)
/* Between looks at the connections during set-up. */
#define TWILL_HOST_TURN_NS TWILL_MS(20)
/* Other hosts are notified of a suspect, from within a look: it must not hold the wait up. */
#define TWILL_HOST_NOTIFY_NS TWILL_MS(100)

/* --- fabric: transports --- */

/* Between attempts to send descriptors to a rank of the node whose socket is full. */
#define TWILL_FD_RETRY_MS 1
/* Before peers that have not connected are probed; and the most between probes, as each takes a
 * place in a backlog. */
#define TWILL_FD_PROBE_NS      TWILL_MS(100)
#define TWILL_FD_PROBE_MOST_NS TWILL_MS(1600)
/* Between polls of what leaves by itself, when a transport is closed: no call waits for it. */
#define TWILL_FLUSH_NAP_NS TWILL_US(100)
/* The kernel sends what is in its buffers, when a transport is closed. */
#define TWILL_TCP_FLUSH_NS TWILL_S(1)
/* A network without a route to the peer may come back: as long as the detector waits for a host
 * (TWILL_HOST_FOUND_NS). */
#define TWILL_TCP_AWAY_NS       TWILL_S(16)
#define TWILL_TCP_AWAY_RETRY_NS TWILL_MS(50) /* between attempts */
/* A live host's kernel answers a SYN in a round trip, or to one of those after 1 s: after this the
 * sentence says so. */
#define TWILL_TCP_UNANSWERED_NS TWILL_S(3)
/* Between checks whether peers' hosts are alive: a system call for each connection. */
#define TWILL_TCP_HOSTS_CHECKED_NS TWILL_S(1)
/* The handshake, when places are short: a caller may be a rank that has little of a core. */
#define TWILL_TCP_HELLO_NS TWILL_S(10)
/* Sends leave the process, when a transport is closed. */
#define TWILL_OFI_FLUSH_NS TWILL_S(1)
/* Chunks posted on both sides match: a SEND can seldom be cancelled, and one whose RECV was
 * cancelled never completes. */
#define TWILL_OFI_GRACE_NS TWILL_MS(250)
/* The provider returns cancelled operations. */
#define TWILL_OFI_CANCEL_NS TWILL_S(1)
/* The provider returns operations in memory that is bound to its endpoint. */
#define TWILL_OFI_DRAIN_NS TWILL_S(1)

/* --- fabric/launcher: twillrun --- */

/* A host reports, beyond what ranks may take: ssh and the start of a process. */
#define TWILL_REPORT_NS TWILL_S(5)
/* Between SIGTERM and SIGKILL: a program writes its last lines. */
#define TWILL_TERM_NS TWILL_S(2)
/* An agent program or host agent ends: above TWILL_TERM_NS. */
#define TWILL_AGENT_END_NS TWILL_S(5)
/* An agent that has closed its output, or was killed, is reaped. */
#define TWILL_AGENT_REAP_NS       TWILL_S(1)
#define TWILL_AGENT_REAP_PAUSE_MS 10 /* between looks */
/* A process that has a handle is in the job. */
#define TWILL_JOINING_NS TWILL_S(5)
/* TWILL_RESTARTS within this time are too many: what kills new processes kills the next, too. */
#define TWILL_RESTARTS_NS TWILL_S(10)
/* Signals, too, are looked for while the last output is written. */
#define TWILL_OUTPUT_LOOK_MS 50
/* Sayings of ranks are put together until none has come for this time, and until the most after the
 * first. */
#define TWILL_SAYING_QUIET_NS TWILL_MS(200)
#define TWILL_SAYING_MOST_NS  TWILL_S(2)
/* Frames that the other side sends when it is ready: after ten minutes it has hung. */
#define TWILL_FRAME_WAIT_NS TWILL_S(600)
/* The last frames after the input has ended. */
#define TWILL_FRAME_LAST_NS TWILL_S(5)
/* --grace and --timeout, unless set; and the most that they may be. */
#define TWILL_LAUNCH_GRACE_NS   TWILL_S(3)
#define TWILL_LAUNCH_TIMEOUT_NS TWILL_S(30)
#define TWILL_LAUNCH_MOST_S     86400

/* --- lib/job --- */

/* twillrun takes a warning, while many ranks send one. */
#define TWILL_LOG_LAUNCHER_MS 200

/* --- lib/engine --- */

/* The most for a price from the rank of the node that computes it (and at most an eighth of the
 * timeout): it takes milliseconds, but that rank may have been stopped, or have little of a core.
 */
#define TWILL_PRICE_PATIENCE_NS TWILL_MS(250)
#define TWILL_PRICE_LOOK_NS     TWILL_MS(20) /* between looks whether it lives */
/* Between looks at where ranks run, in small calls: one takes 1 us, and the kernel balances every 4
 * ms or later. */
#define TWILL_SPREAD_LEAST_NS TWILL_MS(10)
#define TWILL_SPREAD_MOST_NS  TWILL_S(10)

/* --- lib/wait: how a wait rests --- */

/* A yield that took longer: another thread has run. */
#define TWILL_YIELD_ALONE_NS UINT64_C(700)
/* A yield that took longer: that thread did not wait, as a rank would. */
#define TWILL_YIELD_LOST_NS TWILL_US(200)
/* Ticks are counted for this long before the clock's rate counts as known, to 0.1 %. */
#define TWILL_TICKS_COUNTED_NS TWILL_MS(1)
/* Sleeps of a wait: the first, doubled up to the most. A ring that is lost costs no more than a
 * sleep. */
#define TWILL_SLEEP_LEAST_NS TWILL_US(50)
#define TWILL_SLEEP_MOST_NS  TWILL_MS(2)
/* The same when a network must be polled, which rings no doorbell. */
#define TWILL_SLEEP_POLLED_NS TWILL_US(100)
/* A wait has made no progress: the caller's idle function is called. */
#define TWILL_IDLE_AFTER_NS TWILL_US(20)
/* Naps of the thread of TWILL_PROGRESS=thread while requests are pending without progress: the
 * first, doubled up to the most. */
#define TWILL_PROGRESS_NAP_LEAST_NS TWILL_US(20)
#define TWILL_PROGRESS_NAP_MOST_NS  TWILL_US(200)
/* TWILL_PROGRESS=late: it takes 1 % of a core, at 10 us a look. */
#define TWILL_PROGRESS_LATE_NS TWILL_MS(1)
/* A wait for another thread of this process, after some yields. */
#define TWILL_THREAD_NAP_NS TWILL_US(20)

/* --- lib/comm: what a wait checks, and how it fails --- */

/* From the last progress to the first look for failures and mismatches, and between looks: a few
 * microseconds each. */
#define TWILL_CHECK_FIRST_NS TWILL_MS(2)
#define TWILL_CHECK_EVERY_NS TWILL_MS(20)
/* A rank that was found dead may have sent its data just before: it is taken for dead when it is
 * found so in the next look, too. */
#define TWILL_DEATH_SURE_NS (TWILL_CHECK_EVERY_NS / 2)
/* Between looks whether awaited ranks of other nodes live: the first needs a connection. */
#define TWILL_LIVENESS_EVERY_NS TWILL_MS(200)
/* Between reports to awaited ranks of other nodes, and the publication of where this one waits. */
#define TWILL_WAIT_REPORT_NS TWILL_S(1)
/* What was published counts for three of these. */
#define TWILL_ELSEWHERE_SECONDS 3.0
/* The deadline after a wait has timed out: of communicators that are destroyed, as a row of them
 * must not wait for TWILL_TIMEOUT each, and of an all-gather, as a wait for the same rank. */
#define TWILL_LEAVE_NS TWILL_MS(100)
/* The least rest of a deadline that is carried over to another wait. */
#define TWILL_GRACE_NS TWILL_MS(10)
/* All ranks are notified of a failure. */
#define TWILL_FAILURE_NOTIFY_NS TWILL_MS(500)
/* A failure waits for the notice of its root cause: as long as notifying takes. */
#define TWILL_EXPLAIN_NS TWILL_MS(500)
/* The same for a death, which closes connections after a notice. */
#define TWILL_EXPLAIN_DEATH_NS TWILL_MS(200)
#define TWILL_EXPLAIN_TURN_NS  TWILL_MS(2) /* between looks */
/* A search for the root cause of a timeout, spreading included. */
#define TWILL_SEARCH_NS TWILL_MS(1200)
/* One rank's answer in it: several times the time between its looks (TWILL_CHECK_EVERY_NS). */
#define TWILL_SEARCH_REPLY_NS TWILL_MS(500)
#define TWILL_SEARCH_TURN_NS  TWILL_MS(2) /* between looks */
/* Ranks whose searches end together fail one after the other, so that only the first notifies all:
 * between two ranks, and between the first and the last. */
#define TWILL_SEARCH_SPREAD_NS      TWILL_US(100)
#define TWILL_SEARCH_SPREAD_MOST_NS TWILL_MS(200)
/* A revocation waits for a call that computes no longer. */
#define TWILL_BREAK_NS TWILL_MS(100)
/* Ticks of an agreement, the first, doubled up to the most; the sleep between polls; the last
 * message to a rank. */
#define TWILL_AGREE_TICK_FIRST_NS TWILL_MS(2)
#define TWILL_AGREE_TICK_MOST_NS  TWILL_MS(50)
#define TWILL_AGREE_POLL_NS       TWILL_US(200)
#define TWILL_AGREE_LAST_NS       TWILL_MS(100)
/* Survivors connect: a lost SYN is sent again after 1, 3 and 7 s. */
#define TWILL_RENDEZVOUS_NS TWILL_S(10)
/* An attempt of theirs that took this long and failed is worth a warning. */
#define TWILL_SLOW_ATTEMPT_NS TWILL_S(2)
/* New processes of an elastic job connect: as survivors. */
#define TWILL_ADMIT_NS        TWILL_S(10)
#define TWILL_ELASTIC_LOOK_MS 5 /* between looks for the handle */

/* --- lib/report --- */

/* Between writes of a timeline's events, of which the ring holds the last. */
#define TWILL_TIMELINE_EVERY_NS TWILL_MS(500)

/* --- lib/api --- */

/* Timeouts that a program may set: the kernel's own delays are below the least; a year is above the
 * most. */
#define TWILL_TIMEOUT_LEAST_SECONDS 0.001
#define TWILL_TIMEOUT_MOST_SECONDS  1e6

/* --- lib/extend.h --- */

/* The longest sleep between two looks at the node's memory, which a rank's ring ends. */
#define TWILL_EXTEND_SLEEP_NS TWILL_US(200)

/* --- lib/train --- */

/* The longest sleep of a reducer's thread: a lost wake costs no more. */
#define TWILL_REDUCER_SLEEP_NS TWILL_MS(5)
/* After an exchange that agreed on nothing. */
#define TWILL_REDUCER_AGAIN_NS TWILL_US(50)

/* --- lib/server --- */

/* Between looks whether servers and workers live. */
#define TWILL_SERVER_CHECK_NS TWILL_MS(20)
/* Endpoints of links have no deadline of their own: a worker may compute, and a core be idle, for
 * long. Waits have one. */
#define TWILL_SERVER_LINK_SECONDS 1e6
/* The most for an exchange of the sample by which the size of chunks is chosen. */
#define TWILL_CHUNK_TRIAL_SECONDS 0.025

/* --- lib/mpi --- */

/* As TWILL_YIELD_ALONE_NS and TWILL_YIELD_LOST_NS, read by twill_now(). */
#define TWILL_MPI_ALONE_NS UINT64_C(1500)
#define TWILL_MPI_LOST_NS  TWILL_US(200)
/* A wait naps after this, and each time for: the MPI's own messages progress by polls only. */
#define TWILL_MPI_NAP_AFTER_NS TWILL_MS(2)
#define TWILL_MPI_NAP_NS       TWILL_US(50)
/* A wait on several communicators does not sleep for this long: data may be moving. */
#define TWILL_MPI_BUSY_NS TWILL_MS(100)
/* The closing barriers, when all ranks have called MPI_Finalize. */
#define TWILL_MPI_END_NS TWILL_S(5)
/* A rank that waits for a call that another has refused: the two may yet meet in the next one. */
#define TWILL_MPI_REFUSED_NS TWILL_S(5)

#endif
