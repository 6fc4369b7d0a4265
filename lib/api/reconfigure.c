/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a communicator of processes that have each made a handle, whether they have been in one
 * before or not (twill_recover.h). The process of the first handle serves the rendezvous. The
 * others find it by the list of handles, which all have. Everything else is as at the start of a
 * job, see fabric/bootstrap/bootstrap_handle.c. */
#include "fabric/bootstrap/bootstrap.h"
#include "lib/api/api_internal.h"
#include "lib/comm/recovery.h"
#include "lib/job/config.h"
#include "lib/job/context.h"
#include "lib/twill_recover.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HANDLE_BACKLOG 256u /* processes that may connect before this one accepts */

/* A process's handle. twill_handle_create() makes it, and twill_handle_destroy() frees it. */
struct twill_handle {
    int listener; /* -1 after it was used */
    char text[TWILL_JOIN_HANDLE_TEXT];
};

/* The handles of a reconfiguration, in the order of ranks. On the stack of meet_others(). */
struct handle_list {
    size_t count;
    const char **text; /* [count] */
    int self;          /* index of this process's handle */
};

/* Store the address at which other processes reach this one. The settings are those of the context
 * of `comm` or, if that is NULL, `settings`. Returns TWILL_OK or the error. */
static twill_status choose_address(const struct twill_comm *comm, const char *const *settings,
                                   char address[TWILL_ADDRESS_TEXT], struct twill_error *error)
{
    char interface[32], why[128];
    struct twill_config config = {.text = {NULL}};
    twill_status status = comm != NULL ? twill_config_copy(&config, comm->context->config, error)
                                       : twill_config_load(&config, settings, error);
    if (status == TWILL_OK)
        status = twill_interface_choose(address, interface,
                                        twill_config_text(&config, TWILL_VARIABLE_INTERFACE), NULL,
                                        why, sizeof(why), error);
    twill_config_destroy(&config);
    return status;
}

/* Listen on a free port, and write the handle to own->text. Returns TWILL_OK or the error. */
static twill_status open_handle(struct twill_handle *own, const struct twill_comm *comm,
                                const char *const *settings, struct twill_error *error)
{
    struct twill_join_handle handle = {.epoch = comm != NULL ? comm->context->job.oob->epoch : 0};
    TWILL_TRY(error, choose_address(comm, settings, handle.address, error));
    TWILL_TRY(error, twill_bootstrap_random(handle.origin, error)); /* tells handles apart */
    TWILL_TRY(error, twill_recovery_listen(handle.address, HANDLE_BACKLOG, &own->listener,
                                           &handle.port, error));
    twill_join_handle_write(&handle, own->text);
    return TWILL_OK;
}

twill_status twill_handle_create(twill_handle **own, const twill_comm *comm,
                                 const char *const *settings, char *text)
{
    struct twill_error error = {0};
    if (own == NULL || text == NULL || (comm != NULL && !twill_comm_is_live(comm)))
        return TWILL_ERR_ARGUMENT;
    *own = calloc(1, sizeof(**own));
    if (*own == NULL)
        return TWILL_ERR_MEMORY;
    (*own)->listener = -1;
    twill_status status = open_handle(*own, comm, settings, &error);
    if (status == TWILL_OK) {
        memcpy(text, (*own)->text, sizeof((*own)->text));
        return status;
    }
    const struct twill_log log = {.level = TWILL_LOG_WARN, .rank = -1};
    twill_say(comm != NULL ? comm->log : &log, TWILL_LOG_WARN, "twill_handle_create: %s",
              error.message);
    twill_handle_destroy(*own);
    *own = NULL;
    return status;
}

void twill_handle_destroy(twill_handle *own)
{
    if (own != NULL && own->listener >= 0)
        close(own->listener);
    free(own);
}

/* Compare two texts, given by their addresses, for qsort(). */
static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Write the handles of `how` to *list, in the order of ranks. Describe in *meeting how they
 * connect, with the first one's address, an epoch above all of theirs and a digest of the list.
 * Returns TWILL_OK, or TWILL_ERR_ARGUMENT if one is invalid or `own`, this process's, is not in it
 * once. */
static twill_status read_list(const twill_reconfiguration *how, const struct twill_handle *own,
                              struct handle_list *list, struct twill_join_handle *meeting,
                              struct twill_error *error)
{
    uint32_t epoch = 0;
    uint8_t digest[TWILL_DIGEST_BYTES] = {0};
    memcpy(list->text, how->handles, list->count * sizeof(*list->text));
    if (!how->ordered)
        qsort(list->text, list->count, sizeof(*list->text), compare_texts);
    list->self = -1;
    for (size_t i = list->count; i-- > 0;) { /* the first one is read last */
        uint8_t both[2 * TWILL_DIGEST_BYTES];
        TWILL_TRY(error, twill_join_handle_read(meeting, list->text[i], error));
        if (meeting->size != 0)
            return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                              "handles[] has one of twill_comm_handle(), which is for growing");
        epoch = twill_max(epoch, meeting->epoch + 1);
        memcpy(both, digest, TWILL_DIGEST_BYTES);
        twill_secret_digest(list->text[i], strlen(list->text[i]), both + TWILL_DIGEST_BYTES);
        twill_secret_digest(both, sizeof(both), digest);
        if (strcmp(list->text[i], own->text) != 0)
            continue;
        if (list->self >= 0)
            return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "handles[] has a handle twice");
        list->self = (int)i;
    }
    if (list->self < 0)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "handles[] lacks the handle of this process");
    meeting->epoch = epoch;
    meeting->size = (uint32_t)list->count;
    memcpy(meeting->origin, digest, sizeof(meeting->origin));
    return TWILL_OK;
}

/* The has_ended() of struct twill_join for a process that cannot know. Returns false. */
static bool never_known(void *user, uint32_t rank)
{
    (void)user;
    (void)rank;
    return false;
}

/* Make *made, a communicator of all processes with a handle, and *context. `comm` is the old one,
 * or NULL. Returns TWILL_OK or the error, with its message in *context or, without one, *error. */
static twill_status meet_others(twill_comm **made, struct twill_context **context, twill_comm *comm,
                                struct twill_handle *own, const twill_reconfiguration *how,
                                struct twill_error *error)
{
    struct handle_list list = {.count = (size_t)how->count};
    struct twill_join_handle meeting;
    char text[TWILL_JOIN_HANDLE_TEXT];
    list.text = calloc(list.count, sizeof(*list.text));
    twill_status status = list.text == NULL ? TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory")
                                            : read_list(how, own, &list, &meeting, error);
    free(list.text);
    TWILL_TRY(error, status);
    if (list.self == 0 && own->listener < 0)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "the handle of this process has been used before");
    twill_join_handle_write(&meeting, text);
    /* TWILL_LAYOUT=nodes describes the old job, so it does not hold for other ranks. */
    bool differs = comm != NULL && list.count != (size_t)comm->context->job.oob->size;
    const struct twill_join join = {.handle = text,
                                    .nodes = differs ? "" : NULL,
                                    .rank = list.self,
                                    .listener = list.self == 0 ? &own->listener : NULL,
                                    .timeout_ns = (uint64_t)(how->seconds * 1e9),
                                    .has_ended = list.self == 0 ? NULL : never_known};
    const struct twill_context_source source = {.join = &join,
                                                .settings = how->settings,
                                                .like = comm != NULL ? comm->context : NULL,
                                                .observer = &twill_api_observer};
    if (comm != NULL && comm->broken) /* a rank that is left behind may live */
        TWILL_TRY(error, twill_recovery_fence(comm, error));
    status = twill_context_create_by(context, &source);
    if (status == TWILL_OK && comm != NULL)
        status = twill_context_inherit(*context, comm->context, &(*context)->error);
    return status != TWILL_OK ? status : twill_grow_conclude(made, *context);
}

/* Check the arguments and hold `comm`, if any. Returns TWILL_OK, or the error without holding. */
static twill_status begin_reconfiguration(twill_comm *comm, const twill_handle *own,
                                          const twill_reconfiguration *how,
                                          struct twill_error *error)
{
    if (own == NULL || how == NULL || how->handles == NULL)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "own, how or its handles are NULL");
    if (how->count < 1 || how->count > (int)TWILL_WORLD_MAX_RANKS)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "count = %d is outside 1 .. %u", how->count,
                          TWILL_WORLD_MAX_RANKS);
    if (!(how->seconds >= 0 && how->seconds <= 1e6))
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "seconds = %g is outside 0 .. 1e6",
                          how->seconds);
    if (comm == NULL)
        return TWILL_OK;
    TWILL_TRY(error, twill_comm_acquire(comm, "twill_comm_reconfigure"));
    if (atomic_load_explicit(&comm->pending, memory_order_acquire) == 0)
        return TWILL_OK;
    twill_comm_release(comm);
    return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "a request on the old communicator is under way");
}

twill_status twill_comm_reconfigure(twill_comm **made, twill_comm *comm, twill_handle *own,
                                    const twill_reconfiguration *how, char *message, size_t bytes)
{
    struct twill_error error = {0};
    twill_context *context = NULL;
    if (made == NULL)
        return TWILL_ERR_ARGUMENT;
    *made = NULL;
    twill_status status = begin_reconfiguration(comm, own, how, &error);
    if (status != TWILL_OK)
        return twill_init_finish(made, NULL, status, &error, message, bytes);
    status = meet_others(made, &context, comm, own, how, &error);
    if (status == TWILL_OK && comm != NULL && comm->owns_context)
        twill_context_chain(context, comm->context);
    bool owns = comm == NULL || comm->owns_context;
    if (comm != NULL) {
        if (status == TWILL_OK)
            (*made)->tuning.timeout_ns = comm->tuning.timeout_ns;
        comm->owns_context = comm->owns_context && status != TWILL_OK;
        twill_comm_release(comm);
    }
    status = twill_init_finish(made, context, status, context != NULL ? &context->error : &error,
                               message, bytes);
    if (status == TWILL_OK)
        (*made)->owns_context = owns;
    return status;
}
