/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that the files of the public calls share. */
#ifndef TWILL_API_INTERNAL_H
#define TWILL_API_INTERNAL_H

#include "lib/comm/comm.h"

/* --- lib/api/collective.c --- */

/* Run a blocking call, start a nonblocking one, and prepare a persistent one. `name` is that of the
 * public function, whose result each of them returns. */
twill_status twill_call_run(struct twill_comm *comm, const struct twill_call *call,
                            const char *name);
twill_status twill_call_start(struct twill_comm *comm, const struct twill_call *call,
                              struct twill_request **request, const char *name);
twill_status twill_call_init(struct twill_comm *comm, const struct twill_call *call,
                             struct twill_request **request, const char *name);
/* Wait, as the last call on a communicator, until all ranks destroy it. A failure breaks it. */
void twill_call_last(struct twill_comm *comm);
/* lib/api/check_call.c. Check the arguments of request->call, describe the call and copy its
 * counts. The second one checks only the buffers' addresses and overlap. Both return TWILL_OK or a
 * status whose message is in the communicator's error. */
twill_status twill_call_check(struct twill_request *request);
twill_status twill_call_check_buffers(const struct twill_request *run);
/* Set *request to NULL, and check that a nonblocking or persistent call may be made now. */
twill_status twill_request_admit(struct twill_comm *comm, struct twill_request **request);
/* Advance a queued request, and let other threads do so. A failure breaks the communicator. */
twill_status twill_request_launch(struct twill_request *request);
/* Copy the call into the request and check its arguments. */
twill_status twill_request_prepare(struct twill_request *request, const struct twill_call *call);
/* Give a call that was refused_alike the number in comm->issue.started, and publish it. If all
 * ranks have refused it, they continue. If not, the others find in this rank's call records, or
 * later by the signatures, that it has made another call. */
void twill_request_number_refused(struct twill_request *request, const struct twill_call *call);
/* Compute run->call_hash from run->summary. */
void twill_run_hash_call(struct twill_request *run);

/* --- lib/api/point_to_point.c --- */

/* Check the arguments of a message, copy them into the request, and connect to the peer. */
twill_status twill_point_prepare(struct twill_request *request, const struct twill_point *point);
/* Post a prepared message. */
twill_status twill_point_begin(struct twill_request *request);
/* Return TWILL_OK if `sends` and `receives` of this rank to itself, which are about to be posted
 * and waited for, have counterparts. Else return TWILL_ERR_ARGUMENT. */
twill_status twill_point_check_itself(struct twill_comm *comm, int sends, int receives);
/* Return whether this is an active message of this rank to itself without a counterpart. A wait
 * would not end, as such messages complete as soon as both sides are posted. */
bool twill_point_is_lonely(const struct twill_request *request);
/* Do what twill_request_launch() does, for a message. */
twill_status twill_point_launch(struct twill_request *request);
/* Run a blocking message, start a nonblocking one, and prepare a persistent one, for the public
 * function `name`, whose result each of them returns. */
twill_status twill_point_run(struct twill_comm *comm, const struct twill_point *point,
                             const char *name);
twill_status twill_point_start(struct twill_comm *comm, const struct twill_point *point,
                               struct twill_request **request, const char *name);
twill_status twill_point_init(struct twill_comm *comm, const struct twill_point *point,
                              struct twill_request **request, const char *name);

/* --- lib/api/group.c --- */

/* The calls between twill_group_start() and twill_group_end(). Allocated at a communicator's first
 * twill_group_start(), and freed with the communicator. */
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

/* Check the arguments of a collective or of a message (the other one is NULL), and append it to the
 * open group. A failure breaks the communicator, unless all ranks refuse the call alike. */
twill_status twill_group_record(struct twill_comm *comm, const struct twill_call *call,
                                const struct twill_point *point);
/* Free the group of a communicator that closes, which also frees its requests. */
void twill_group_close(struct twill_comm *comm);

/* --- lib/api/deadlines.c --- */

/* Refuse a timeout outside its range with TWILL_ERR_ARGUMENT. The communicator is held. */
twill_status twill_comm_check_timeout(struct twill_comm *comm, double seconds);

/* --- lib/api/init.c --- */

/* Opens and closes timelines, metrics and groups of each communicator. */
extern const struct twill_comm_observer twill_api_observer;
/* End a call that makes a context and its communicator. On success the communicator owns the
 * context. On failure the context is destroyed, and `message` gets the reason, or it is printed. */
twill_status twill_init_finish(struct twill_comm **comm, struct twill_context *context,
                               twill_status status, const struct twill_error *error, char *message,
                               size_t bytes);

/* --- lib/api/elastic.c: jobs of twillrun --elastic --- */

/* Return whether this process was started to join a running job. */
bool twill_elastic_joins(void);
/* Return whether this is such a job and all its ranks have failed. It is has_ended() of struct
 * twill_join in a new process, and reads neither argument. */
bool twill_elastic_is_over(void *user, uint32_t rank);
/* Tell twillrun that the new process is a rank of the job now. */
void twill_elastic_joined(void);
/* Wait for the handle of that job until *deadline, which becomes TWILL_TIMEOUT from now if 0. */
twill_status twill_elastic_await(const char *const *settings, uint64_t *deadline, char *handle,
                                 struct twill_error *error);
/* Tell twillrun that the job has started, so that it replaces ranks that die from now on. */
void twill_elastic_started(const struct twill_comm *comm);
/* Make *larger of `comm` and the processes that wait. If none waits, *larger is not changed and
 * TWILL_OK is returned. Releases `comm`, which the caller holds. */
twill_status twill_elastic_admit(struct twill_comm **larger, struct twill_comm *comm);

#endif
