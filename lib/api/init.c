/* SPDX-License-Identifier: Apache-2.0 */
/* Public functions that create and destroy contexts and communicators of all ranks. */
#include "fabric/bootstrap/bootstrap.h"
#include "lib/api/api_internal.h"
#include "lib/api/stop.h"
#include "lib/comm/recovery.h"
#include "lib/job/config.h"
#include "lib/job/context.h"
#include "lib/report/recording.h"
#include "lib/twill_recover.h"

#include <signal.h>
#include <stdio.h>

/* The opened() of twill_api_observer. Opens the communicator's timeline, if there is to be one. */
static void observe_opened(struct twill_comm *comm)
{
    twill_timeline_attach(comm, twill_allgather);
}

/* The closed() of twill_api_observer. Writes metrics, and frees the team, timeline and group. */
static void observe_closed(struct twill_comm *comm)
{
    twill_team_close(comm);
    twill_metrics_write(comm->context);
    twill_timeline_detach(comm);
    twill_group_close(comm);
}

const struct twill_comm_observer twill_api_observer = {.opening = twill_metrics_open,
                                                       .opened = observe_opened,
                                                       .broken = twill_team_break,
                                                       .closed = observe_closed};

/* Install the handler for the signal of TWILL_STOP_SIGNAL, if any. */
static void note_stop_signal(const twill_context *context)
{
    static const int signals[] = {0, SIGINT, SIGTERM, SIGUSR1, SIGUSR2}; /* as in config.h */
    int number = signals[context->config->number[TWILL_VARIABLE_STOP_SIGNAL]];
    if (number != 0)
        twill_stop_on_signal(number);
}

twill_status twill_context_create(twill_context **context, const twill_bootstrap *bootstrap,
                                  const char *const *settings)
{
    const struct twill_context_source source = {
        .bootstrap = bootstrap, .settings = settings, .observer = &twill_api_observer};
    if (context == NULL)
        return TWILL_ERR_ARGUMENT;
    *context = NULL;
    TWILL_TRY(NULL, twill_context_create_by(context, &source));
    note_stop_signal(*context);
    return TWILL_OK;
}

twill_status twill_comm_create(twill_comm **comm, twill_context *context)
{
    if (comm != NULL)
        *comm = NULL;
    if (comm == NULL || !twill_context_is_live(context) || !context->ready)
        return TWILL_ERR_ARGUMENT;
    struct twill_error error = {0};
    twill_status status;
    if (twill_context_is_forked(context))
        status = TWILL_FAIL(&error, TWILL_ERR_FORKED,
                            "this process was forked after the context was created");
    else
        status = twill_comm_open(comm, context, NULL, context->job.oob, NULL, NULL, 0, &error);
    return twill_context_outcome(context, status, &error);
}

/* Wait until all ranks destroy the communicator, as peers may still read its memory or send, and
 * close it. Returns false if it has to be kept, and true otherwise. */
static bool destroy(struct twill_comm *comm, const char *call)
{
    twill_timeline_align_again(comm, twill_allgather);
    return twill_comm_leave_by(comm, call, twill_call_last);
}

void twill_comm_leave(twill_comm *comm)
{
    if (comm != NULL)
        (void)twill_comm_leave_by(comm, "twill_comm_leave", NULL);
}

void twill_comm_destroy(twill_comm *comm)
{
    if (comm != NULL)
        (void)destroy(comm, "twill_comm_destroy");
}

twill_status twill_init_finish(twill_comm **comm, twill_context *context, twill_status status,
                               const struct twill_error *error, char *message, size_t bytes)
{
    const struct twill_log none = {.level = TWILL_LOG_WARN, .rank = -1};
    if (message != NULL && bytes > 0)
        *message = '\0';
    if (status == TWILL_OK) {
        (*comm)->owns_context = true;
        return TWILL_OK;
    }
    if (message != NULL)
        snprintf(message, bytes, "%s: %s", twill_strerror(status), error->message);
    else
        twill_say(context != NULL ? &context->log : &none, TWILL_LOG_WARN, "%s: %s",
                  twill_strerror(status), error->message);
    twill_context_destroy(context);
    return status;
}

static const struct twill_error no_context = {.message = "no memory for a context"};

/* Return the context's error, or one that says out of memory if `context` is NULL. */
static const struct twill_error *error_of(const twill_context *context)
{
    return context != NULL ? &context->error : &no_context;
}

/* In a new process, make the communicator that the handle is for, and its context. Returns
 * TWILL_OK, or the error, whose message is in the context unless *context is NULL. */
static twill_status grow_into(struct twill_comm **made, struct twill_context **context,
                              const char *handle, const char *const *settings)
{
    const struct twill_join join = {
        .handle = handle, .rank = TWILL_JOIN_ANY, .has_ended = twill_elastic_is_over};
    const struct twill_context_source source = {
        .join = &join, .settings = settings, .observer = &twill_api_observer};
    TWILL_TRY(NULL, twill_context_create_by(context, &source));
    note_stop_signal(*context);
    return twill_grow_conclude(made, *context);
}

/* Join the job that twillrun --elastic has started this process for, as *comm. Tries again until
 * TWILL_TIMEOUT if another process has died meanwhile. Returns as twill_init_with() does. */
static twill_status join_elastic(twill_comm **comm, const char *const *settings, char *message,
                                 size_t bytes)
{
    uint64_t deadline = 0;
    for (;;) {
        struct twill_error error = {0};
        twill_context *context = NULL;
        char handle[TWILL_HANDLE_BYTES];
        twill_status status = twill_elastic_await(settings, &deadline, handle, &error);
        if (status != TWILL_OK)
            return twill_init_finish(comm, NULL, status, &error, message, bytes);
        status = grow_into(comm, &context, handle, settings);
        if (status == TWILL_OK)
            twill_elastic_joined();
        bool again = status == TWILL_ERR_PEER || status == TWILL_ERR_TIMEOUT ||
                     status == TWILL_ERR_BOOTSTRAP || status == TWILL_ERR_SYSTEM;
        if (!again || twill_now() >= deadline)
            return twill_init_finish(comm, context, status, error_of(context), message, bytes);
        twill_context_destroy(context);
    }
}

twill_status twill_init_with(twill_comm **comm, const twill_bootstrap *bootstrap,
                             const char *const *settings, char *message, size_t bytes)
{
    twill_context *context = NULL;
    if (comm == NULL)
        return TWILL_ERR_ARGUMENT;
    *comm = NULL;
    if (bootstrap == NULL && twill_elastic_joins())
        return join_elastic(comm, settings, message, bytes);
    twill_status status = twill_context_create(&context, bootstrap, settings);
    if (status == TWILL_OK)
        status = twill_comm_create(comm, context);
    if (status == TWILL_OK && bootstrap == NULL)
        twill_elastic_started(*comm);
    return twill_init_finish(comm, context, status, error_of(context), message, bytes);
}

twill_status twill_comm_join(twill_comm **comm, const char *handle, const char *const *settings,
                             char *message, size_t bytes)
{
    twill_context *context = NULL;
    if (comm == NULL)
        return TWILL_ERR_ARGUMENT;
    *comm = NULL;
    twill_status status = grow_into(comm, &context, handle, settings);
    return twill_init_finish(comm, context, status, error_of(context), message, bytes);
}

twill_status twill_init(twill_comm **comm)
{
    return twill_init_with(comm, NULL, NULL, NULL, 0);
}

void twill_finalize(twill_comm *comm)
{
    if (comm == NULL)
        return;
    twill_context *context = twill_comm_is_live(comm) && comm->owns_context ? comm->context : NULL;
    if (destroy(comm, "twill_finalize"))
        twill_context_destroy(context);
}
