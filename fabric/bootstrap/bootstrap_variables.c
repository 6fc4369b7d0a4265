/* SPDX-License-Identifier: Apache-2.0 */
/* Bootstrap from RANK WORLD_SIZE MASTER_ADDR MASTER_PORT of twillrun, torchrun or a script. */
#include "fabric/bootstrap/tcp/bootstrap_tcp.h"

#include <stdio.h>
#include <string.h>

twill_status twill_launch_check_variables(const struct twill_bootstrap_params *params,
                                          struct twill_error *error)
{
    const struct {
        const char *name, *text;
    } needed[] = {
        {"RANK", params->rank},
        {"WORLD_SIZE", params->world_size},
        {"MASTER_ADDR", params->master_addr},
        {"MASTER_PORT", params->master_port},
    };
    char missing[64] = "", present[64] = "";
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(needed); i++) {
        char *list = twill_is_set(needed[i].text) ? present : missing;
        size_t used = strlen(list);
        snprintf(list + used, sizeof(missing) - used, "%s%s", used ? " " : "", needed[i].name);
    }
    if (missing[0])
        return TWILL_FAIL(error, TWILL_ERR_CONFIG, "rank %s: %s set, but not %s",
                          twill_is_set(params->rank) ? params->rank : "unknown",
                          present[0] ? present : "nothing", missing);
    return TWILL_OK;
}

/* Return whether RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set. */
static bool all_given(const struct twill_bootstrap_params *params)
{
    struct twill_error ignored = {0};
    return twill_launch_check_variables(params, &ignored) == TWILL_OK;
}

/* Return whether TWILL_JOB, RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set. */
static bool twillrun_applies(const struct twill_bootstrap_params *params)
{
    return twill_is_set(params->job) && all_given(params);
}

/* Return whether RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set. */
static bool torchrun_applies(const struct twill_bootstrap_params *params)
{
    return all_given(params);
}

/* Set job->port to another port if torchrun's agent serves PyTorch's store at MASTER_PORT. */
static twill_status avoid_agent(struct twill_job *job, const struct twill_bootstrap_params *params,
                                struct twill_error *error)
{
    struct twill_bootstrap_params portless = *params;
    const char *agent = twill_launch_variable(params, "TORCHELASTIC_USE_AGENT_STORE");
    if (agent == NULL || strcmp(agent, "True") != 0)
        return TWILL_OK;
    portless.master_port = NULL;
    return twill_launch_port(job, &portless, error);
}

/* Set *oob to the job that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT describe, once all ranks
 * have joined, or fail. Fails also if WORLD_SIZE is 1 although a launcher has started several
 * ranks. `who` is for messages. */
static twill_status variables_open(struct twill_oob **oob, const struct twill_bootstrap_ops *ops,
                                   const char *who, const struct twill_bootstrap_params *params,
                                   struct twill_error *error)
{
    struct twill_job job = {.listener = -1};
    const char *run = twill_launch_variable(params, "TORCHELASTIC_RUN_ID");
    TWILL_TRY(error, twill_launch_check_variables(params, error));
    TWILL_TRY(error, twill_launch_ranks(&job, "RANK", params->rank, "WORLD_SIZE",
                                        params->world_size, error));
    if (job.size == 1)
        TWILL_TRY(error, twill_launch_check_alone(params, "WORLD_SIZE=1 is set as well", error));
    TWILL_TRY(error, twill_launch_port(&job, params, error));
    (void)twill_launch_master(&job, params); /* it is set */
    if (run)                                 /* gives one user's concurrent jobs different keys */
        snprintf(job.identity, sizeof(job.identity), "torchrun %.64s %u", run, job.port);
    if (run && ops == &twill_bootstrap_torchrun) /* not twillrun that runs under torchrun */
        TWILL_TRY(error, avoid_agent(&job, params, error));
    snprintf(job.how, sizeof(job.how), "%s: RANK=%d of %d at %.88s", who, job.rank, job.size,
             TWILL_ADDRESS_AND_PORT(job.hosts, job.port));
    return twill_bootstrap_tcp_open(oob, ops, &job, params, error);
}

/* Set *oob to twillrun's job that RANK and the others describe, or fail. */
static twill_status twillrun_open(struct twill_oob **oob,
                                  const struct twill_bootstrap_params *params,
                                  struct twill_error *error)
{
    return variables_open(oob, &twill_bootstrap_twillrun, "twillrun", params, error);
}

/* Set *oob to the job that RANK and the others describe, or fail. */
static twill_status torchrun_open(struct twill_oob **oob,
                                  const struct twill_bootstrap_params *params,
                                  struct twill_error *error)
{
    return variables_open(oob, &twill_bootstrap_torchrun,
                          twill_launch_variable(params, "TORCHELASTIC_RUN_ID") ? "torchrun"
                                                                               : "environment",
                          params, error);
}

const struct twill_bootstrap_ops twill_bootstrap_twillrun = {
    TWILL_BOOTSTRAP_BY_TCP, .name = "twillrun", .applies = twillrun_applies, .open = twillrun_open};

const struct twill_bootstrap_ops twill_bootstrap_torchrun = {
    TWILL_BOOTSTRAP_BY_TCP, .name = "torchrun", .applies = torchrun_applies, .open = torchrun_open};
