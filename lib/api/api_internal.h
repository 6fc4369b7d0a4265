/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that the files of the public calls share. */
#ifndef TWILL_API_INTERNAL_H
#define TWILL_API_INTERNAL_H

#include "lib/comm/comm.h"

/* --- lib/api/collective.c --- */
/* Make a collective call for `name` and wait, or record it in an open group. Returns its status. */
twill_status twill_call_run(struct twill_comm *comm, const struct twill_call *call,
                            const char *name);
/* Run a blocking collective on a held communicator. Returns TWILL_OK, TWILL_ERR_BROKEN if it is
 * broken already, or the error, which breaks it unless all ranks refuse the call alike. */
twill_status twill_call_held(struct twill_comm *comm, const struct twill_call *call);
/* Start a collective call for the public function `name`, and store the handle of its request in
 * *request. Returns TWILL_OK, or why it has not started. The wait returns any later failure. */
twill_status twill_call_start(struct twill_comm *comm, const struct twill_call *call,
                              struct twill_request **request, const char *name);
/* Prepare a persistent request for the public function `name`, without starting it, and store its
 * handle in *request. All ranks call it. Returns TWILL_OK or the error. */
twill_status twill_call_init(struct twill_comm *comm, const struct twill_call *call,
                             struct twill_request **request, const char *name);
/* Run the last call on a communicator, a barrier that waits until all ranks destroy it. Does
 * nothing if the communicator is broken. A failure breaks it. */
void twill_call_last(struct twill_comm *comm);
/* lib/api/check_call.c. Check all arguments of request->call, copy its counts and describe its
 * buffers. Sets request->refused_alike if the arguments are such that all ranks refuse the call.
 * Returns TWILL_OK, or an error whose message is in the communicator's error. */
twill_status twill_call_check(struct twill_request *request);
/* Check type, operation, root and count, which all ranks pass alike. Returns TWILL_OK, or
 * TWILL_ERR_ARGUMENT with comm->error set. */
twill_status twill_call_check_alike(struct twill_comm *comm, const struct twill_call *call);
/* Return the bytes of an element of a call, or 0 if its type or operation is not valid. */
size_t twill_call_element(const struct twill_comm *comm, const struct twill_call *call);
/* Check only the run's buffers for NULL and overlaps. Returns TWILL_OK or the error. */
twill_status twill_call_check_buffers(const struct twill_request *run);
/* Set *request to NULL. Returns TWILL_OK if a nonblocking or persistent call may be made now, or
 * the error if the communicator is broken, `request` is NULL, or a group is open. */
twill_status twill_request_admit(struct twill_comm *comm, struct twill_request **request);
/* Count a queued request as pending, so that other threads that wait in the context, and the
 * progress thread, advance it as well. Then advance its communicator once, without waiting. Returns
 * TWILL_OK, also if the request is not complete, or the error with which the communicator has
 * broken. */
twill_status twill_request_launch(struct twill_request *request);
/* Copy the call into the request, check and hash it. Returns TWILL_OK or the error. */
twill_status twill_request_prepare(struct twill_request *request, const struct twill_call *call);
/* Number and publish a call that was refused with request->refused_alike set. Ranks that have made
 * another call find that in this rank's call records, or later by the signatures. */
void twill_request_number_refused(struct twill_request *request, const struct twill_call *call);
/* Compute run->call_hash from run->summary, and run->bytes, the size of the larger buffer. */
void twill_run_hash_call(struct twill_request *run);

/* --- lib/api/point_to_point.c --- */
/* Check and copy a message's arguments, and connect to its peers. Returns TWILL_OK or the error. */
twill_status twill_point_prepare(struct twill_request *request, const struct twill_point *point);
/* Post the messages of a prepared point-to-point request. Returns TWILL_OK or the error. */
twill_status twill_point_begin(struct twill_request *request);
/* Check `sends` sends and `receives` receives of this rank to itself, which are about to be posted
 * and waited for. Returns TWILL_OK if each has a counterpart among these or in progress. Else
 * returns TWILL_ERR_ARGUMENT. */
twill_status twill_point_check_itself(struct twill_comm *comm, int sends, int receives);
/* Return whether this is an active message of this rank to itself without a counterpart. A wait
 * would not end, as such messages complete as soon as both sides are posted. */
bool twill_point_is_lonely(const struct twill_request *request);
/* Post the messages of a prepared point-to-point request, which other threads may then advance.
 * Returns TWILL_OK, or the failure that has broken the communicator. */
twill_status twill_point_launch(struct twill_request *request);
/* Send, receive or both for `name` and wait, or record it in an open group. Returns its status. */
twill_status twill_point_run(struct twill_comm *comm, const struct twill_point *point,
                             const char *name);
/* Start a point-to-point call for the public function `name`, and store the handle in *request.
 * Returns TWILL_OK, or why it has not started. The wait returns any later failure. */
twill_status twill_point_start(struct twill_comm *comm, const struct twill_point *point,
                               struct twill_request **request, const char *name);
/* Prepare a persistent point-to-point request for the public function `name`, without starting it,
 * and store its handle in *request. Returns TWILL_OK or the error. */
twill_status twill_point_init(struct twill_comm *comm, const struct twill_point *point,
                              struct twill_request **request, const char *name);

/* --- lib/api/group.c --- */
/* The calls between twill_group_start() and twill_group_end(). Made by a communicator's first
 * twill_group_start(), freed by twill_group_close(), and used by the thread that holds it. */
struct twill_call_group {
    bool open;
    struct twill_request *first, *last; /* recorded calls, linked by `recorded` */
    unsigned char *packed;              /* buffer of fused allreduces */
    size_t packed_bytes;
};

static inline bool twill_group_is_open(const struct twill_call_group *group)
{
    return group != NULL && group->open;
}
/* Check a collective or a message (the other one is NULL), and append it to the open group. Returns
 * TWILL_OK, or the error, which breaks the communicator unless all ranks refuse the call alike. */
twill_status twill_group_record(struct twill_comm *comm, const struct twill_call *call,
                                const struct twill_point *point);
/* Free comm->group and its buffer. The engine frees the requests of the communicator. */
void twill_group_close(struct twill_comm *comm);

/* --- lib/api/calls.c --- */
/* Return the dst of a broadcast or, on a root that passes none, its src, which is only read. */
static inline void *twill_broadcast_dst(const struct twill_comm *comm, const void *src, void *dst,
                                        int root)
{
    bool is_root = comm != NULL && root >= 0 && (uint32_t)root == comm->rank;
    return is_root && dst == NULL ? (void *)(uintptr_t)src : dst;
}

/* --- lib/api/team.c --- */
/* Break the stripes of a broken communicator, so that threads in a team call on it return. */
void twill_team_break(struct twill_comm *comm);
/* Destroy the stripes of a communicator that is closed, and free comm->team. All its ranks do so,
 * or it is broken. */
void twill_team_close(struct twill_comm *comm);

/* --- lib/api/recover.c --- */
/* Return TWILL_OK if a call may set this timeout, else TWILL_ERR_ARGUMENT, with comm->error set. */
twill_status twill_comm_check_timeout(struct twill_comm *comm, double seconds);

/* --- lib/api/init.c --- */
/* Opens and closes timelines, metrics and groups of each communicator. */
extern const struct twill_comm_observer twill_api_observer;
/* End a call that makes a context and communicator, and return `status`. On success *comm owns the
 * context. On failure that is freed, and the reason goes to message[bytes] or, if NULL, a log. */
twill_status twill_init_finish(struct twill_comm **comm, struct twill_context *context,
                               twill_status status, const struct twill_error *error, char *message,
                               size_t bytes);

/* --- lib/api/elastic.c: jobs of twillrun --elastic --- */
/* Return whether twillrun --elastic has started this process to join a running job. */
bool twill_elastic_joins(void);
/* Return whether this process belongs to a job of twillrun --elastic whose ranks have all failed.
 * It is has_ended() of struct twill_join in a new process, and reads neither argument. */
bool twill_elastic_is_over(void *user, uint32_t rank);
/* Mark the new process as a rank of the job for twillrun, by removing its file "joining". */
void twill_elastic_joined(void);
/* In a new process of twillrun --elastic, wait for the handle by which it joins, and write it to
 * handle[TWILL_HANDLE_BYTES]. `settings` are "NAME=value" strings, NULL-terminated, or NULL. They
 * may set TWILL_TIMEOUT. *deadline is a twill_now(). If it is 0, it is first set to TWILL_TIMEOUT
 * from now. Returns TWILL_OK, TWILL_ERR_PEER if all ranks have failed, TWILL_ERR_TIMEOUT at the
 * deadline, or another error. */
twill_status twill_elastic_await(const char *const *settings, uint64_t *deadline, char *handle,
                                 struct twill_error *error);
/* In a job of twillrun --elastic, write the file by which twillrun knows that the job has started.
 * It replaces ranks that die from then on. A failure is logged. */
void twill_elastic_started(const struct twill_comm *comm);
/* Make *larger, a communicator of the ranks of `comm` and the new processes that wait to join. All
 * ranks call it. If none waits, returns TWILL_OK and leaves *larger unchanged. Otherwise returns
 * the status of the growth. Releases `comm`, which the caller holds. */
twill_status twill_elastic_admit(struct twill_comm **larger, struct twill_comm *comm);

#endif
