/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the public calls use of each other. */
#ifndef TWILL_API_INTERNAL_H
#define TWILL_API_INTERNAL_H

#include "lib/comm/comm.h"

/* --- lib/api/collective.c --- */

/* Run a call to its end; start a nonblocking one; initialise a persistent one. `name`: the public
 * function. */
twill_status twill_call_run(struct twill_comm *comm, const struct twill_call *call,
                            const char *name);
twill_status twill_call_start(struct twill_comm *comm, const struct twill_call *call,
                              struct twill_request **request, const char *name);
twill_status twill_call_init(struct twill_comm *comm, const struct twill_call *call,
                             struct twill_request **request, const char *name);
/* Wait until all ranks destroy the communicator; a failure breaks it. */
void twill_call_last(struct twill_comm *comm);
/* lib/api/check_call.c. Check the arguments of run.call, describe it and copy its counts; check the
 * buffers' addresses and overlap only. */
twill_status twill_call_check(struct twill_request *request);
twill_status twill_call_check_buffers(const struct twill_request *run);
/* Check that a nonblocking or persistent call may be made now, and set *request to NULL. */
twill_status twill_request_admit(struct twill_comm *comm, struct twill_request **request);
/* Let other threads advance a queued request, and advance it once. A failure breaks the
 * communicator. */
twill_status twill_request_launch(struct twill_request *request);
/* Copy the call into the request and check its arguments. */
twill_status twill_request_prepare(struct twill_request *request, const struct twill_call *call);
/* Number a call that is counted in comm->issue.started and refused_alike. If all ranks have refused
 * it, they go on. If not, the others find in this rank's call records that it has made another
 * call, or later by the signatures. */
void twill_request_number_refused(struct twill_request *request, const struct twill_call *call);
/* Compute run->call_hash of the summary. */
void twill_run_hash_call(struct twill_request *run);

/* --- lib/api/point_to_point.c --- */

twill_status twill_point_prepare(struct twill_request *request, const struct twill_point *point);
twill_status twill_point_begin(struct twill_request *request);
/* Check that messages of this rank to itself, which are about to be posted and waited for, have
 * counterparts. Else return the error. */
twill_status twill_point_check_itself(struct twill_comm *comm, int sends, int receives);
/* Is it an active message of this rank to itself without a counterpart? Waiting would not help:
 * such messages complete as soon as both sides are posted. */
bool twill_point_is_lonely(const struct twill_request *request);
/* Begin it; other threads may advance it from then on. */
twill_status twill_point_launch(struct twill_request *request);
twill_status twill_point_run(struct twill_comm *comm, const struct twill_point *point,
                             const char *name);
twill_status twill_point_start(struct twill_comm *comm, const struct twill_point *point,
                               struct twill_request **request, const char *name);
twill_status twill_point_init(struct twill_comm *comm, const struct twill_point *point,
                              struct twill_request **request, const char *name);

/* --- lib/api/group.c --- */

/* Calls between twill_group_start() and _end() allocated at its first
 * twill_group_start() and freed with it. */
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

/* Check the arguments of a collective, or of a point-to-point call, and append it to the open
 * group; the other one is NULL. A failure breaks the communicator. */
twill_status twill_group_record(struct twill_comm *comm, const struct twill_call *call,
                                const struct twill_point *point);
/* Free the group of a communicator that closes; its requests go with the others. */
void twill_group_close(struct twill_comm *comm);

/* --- lib/api/deadlines.c --- */

/* Refuse a timeout outside its range. The communicator is held. */
twill_status twill_comm_check_timeout(struct twill_comm *comm, double seconds);

/* --- lib/api/init.c --- */

/* What is done for each communicator: struct twill_context_source. */
extern const struct twill_comm_observer twill_api_observer;
/* End a call that makes a context and its communicator, which then owns it. Else
 * destroy it and say why, which is in `error`. */
twill_status twill_init_finish(struct twill_comm **comm, struct twill_context *context,
                               twill_status status, const struct twill_error *error, char *message,
                               size_t bytes);

/* --- lib/api/elastic.c: jobs of twillrun --elastic --- */

/* Report whether this process was started to join a job that runs. */
bool twill_elastic_joins(void);
/* Report whether this is such a job and all its ranks have failed; has_ended() of struct twill_join
 * in a new process. */
bool twill_elastic_is_over(void *user, uint32_t rank);
/* The new process is a rank of the job now. */
void twill_elastic_joined(void);
/* Wait for the handle of that job, until *deadline; 0: it is set, TWILL_TIMEOUT from now. */
twill_status twill_elastic_await(const char *const *settings, uint64_t *deadline, char *handle,
                                 struct twill_error *error);
/* The job has started: from now on twillrun replaces ranks that die. */
void twill_elastic_started(const struct twill_comm *comm);
/* Take in the processes that wait, if any: else *larger is not changed. The caller holds comm,
 * which is released. */
twill_status twill_elastic_admit(struct twill_comm **larger, struct twill_comm *comm);

#endif
