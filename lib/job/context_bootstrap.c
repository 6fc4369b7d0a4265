/* SPDX-License-Identifier: Apache-2.0 */
/* How a context finds the other ranks, by the launcher, the caller or, if a job grows, a handle. */
#include "fabric/bootstrap/bootstrap.h"
#include "lib/job/config.h"
#include "lib/job/job_internal.h"
#include "lib/job/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LAYOUT_BYTES 256

/* Return the parameters of the bootstrap, whose texts belong to the context and `source`. */
static struct twill_bootstrap_params params_from(const struct twill_context *context,
                                                 const struct twill_context_source *source)
{
    const struct twill_config *config = context->config;
    bool starts = source->join == NULL; /* twillrun's sockets are for the start of a job */
    return (struct twill_bootstrap_params){
        .join = source->join,
        .caller = source->bootstrap,
        .rank = twill_config_text(config, TWILL_VARIABLE_RANK),
        .world_size = twill_config_text(config, TWILL_VARIABLE_WORLD_SIZE),
        .master_addr = twill_config_text(config, TWILL_VARIABLE_MASTER_ADDR),
        .master_port = twill_config_text(config, TWILL_VARIABLE_MASTER_PORT),
        .job = twill_config_text(config, TWILL_VARIABLE_JOB),
        .key_file = twill_config_text(config, TWILL_VARIABLE_KEY_FILE),
        .listen_fd = twill_config_text(config, TWILL_VARIABLE_LISTEN_FD),
        .launcher_fd = starts ? twill_config_text(config, TWILL_VARIABLE_LAUNCHER_FD) : NULL,
        .interface = twill_config_text(config, TWILL_VARIABLE_INTERFACE),
        .launcher = twill_config_text(config, TWILL_VARIABLE_LAUNCHER),
        .environment = (const char *const *)environ,
        .timeout_ns = (uint64_t)config->number[TWILL_VARIABLE_TIMEOUT],
        .log = &context->log,
    };
}

/* Two facts that each rank of a job that grows sends to all others as soon as they are connected. A
 * value, sent as it is in memory. */
struct meeting_info {
    uint8_t origin[TWILL_NONCE_BYTES]; /* the job's identity, which its handles contain */
    char nodes[LAYOUT_BYTES];          /* TWILL_LAYOUT=nodes, of which rank 0's counts */
};

/* Set TWILL_LAYOUT=nodes in this rank's configuration to rank 0's, from all[size]. Fails if ranks
 * were given handles of different jobs, with TWILL_ERR_MISMATCH, or if out of memory. */
static twill_status use_meeting(struct twill_context *context, const struct meeting_info *all)
{
    for (int r = 1; r < context->job.oob->size; r++)
        if (memcmp(all[r].origin, all[0].origin, sizeof(all[0].origin)) != 0)
            return TWILL_FAIL(&context->error, TWILL_ERR_MISMATCH,
                              "rank %d was given other handles than rank 0", r);
    char *text = strndup(all[0].nodes, sizeof(all[0].nodes) - 1);
    if (text == NULL)
        return TWILL_FAIL(&context->error, TWILL_ERR_MEMORY, "out of memory");
    free(context->config->text[TWILL_VARIABLE_NODES]);
    context->config->text[TWILL_VARIABLE_NODES] = text;
    return TWILL_OK;
}

/* Exchange the ranks' struct meeting_info in a job that grows. Use rank 0's TWILL_LAYOUT=nodes, or
 * fail if handles are of different jobs. Collective. Returns TWILL_OK or the error. */
static twill_status compare_meeting(struct twill_context *context, const struct twill_join *join)
{
    struct twill_oob *oob = context->job.oob;
    struct meeting_info mine = {.nodes = ""};
    struct meeting_info *all = calloc((size_t)oob->size, sizeof(*all));
    const char *nodes = join->nodes != NULL
                            ? join->nodes
                            : twill_config_text(context->config, TWILL_VARIABLE_NODES);
    memcpy(mine.origin, oob->origin, sizeof(mine.origin));
    snprintf(mine.nodes, sizeof(mine.nodes), "%s", nodes != NULL ? nodes : "");
    twill_status status = all == NULL
                              ? TWILL_FAIL(&context->error, TWILL_ERR_MEMORY, "out of memory")
                              : twill_oob_allgather(oob, &mine, all, sizeof(mine), &context->error);
    if (status == TWILL_OK)
        status = use_meeting(context, all);
    free(all);
    return status;
}

twill_status twill_context_open_bootstrap(struct twill_context *context,
                                          const struct twill_context_source *source)
{
    struct twill_bootstrap_params params = params_from(context, source);
    if (source->join != NULL && source->join->timeout_ns > 0)
        params.timeout_ns = source->join->timeout_ns;
    if (source->join == NULL && twill_bootstrap_is_first(&params)) /* even if the rest fails */
        twill_config_warn_environment(&context->log);
    TWILL_TRY(&context->error, twill_bootstrap_open(&context->job.oob, &params, &context->error));
    if (context->job.oob->size > TWILL_WORLD_MAX_RANKS)
        return TWILL_FAIL(&context->error, TWILL_ERR_ARGUMENT,
                          "%d ranks are more than the maximum, %d", context->job.oob->size,
                          TWILL_WORLD_MAX_RANKS);
    context->log.rank = context->job.oob->rank;
    context->log.size = context->job.oob->size;
    TWILL_TRY(&context->error, twill_log_open(context));
    return source->join != NULL ? compare_meeting(context, source->join) : TWILL_OK;
}
