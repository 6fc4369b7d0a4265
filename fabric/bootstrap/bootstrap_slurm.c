/* SPDX-License-Identifier: Apache-2.0 */
/* Bootstrap in a Slurm step without PMI (srun --mpi=none). Its variables give rank, size and hosts.
 * The port is derived from the numbers of job and step, and the key from the user's key file. */
#include "fabric/bootstrap/tcp/bootstrap_tcp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The largest number of a step. Larger ones are reserved, as for batch scripts (slurm.h). */
#define LAST_STEP 0xfffffff0ul

/* Return whether this process is one of several tasks of a Slurm step, and no batch script. */
static bool slurm_applies(const struct twill_bootstrap_params *params)
{
    const char *step = twill_launch_variable(params, "SLURM_STEP_ID");
    const char *tasks = twill_launch_variable(params, "SLURM_STEP_NUM_TASKS");
    return step && tasks && twill_launch_variable(params, "SLURM_PROCID") &&
           strtoul(step, NULL, 10) <= LAST_STEP && strcmp(tasks, "1") != 0;
}

/* Set job->hosts to MASTER_ADDR if that is set, or to 127.0.0.1 in a step of one node. Else set it
 * to the first host of SLURM_STEP_NODELIST, with job->guessed, or return TWILL_ERR_CONFIG if that
 * is no list. */
static twill_status find_host(struct twill_job *job, const struct twill_bootstrap_params *params,
                              struct twill_error *error)
{
    const char *nodes = twill_launch_variable(params, "SLURM_STEP_NUM_NODES");
    const char *list = twill_launch_variable(params, "SLURM_STEP_NODELIST");
    job->source = "SLURM_STEP_NODELIST";
    if (twill_launch_master(job, params))
        return TWILL_OK;
    if (nodes && strcmp(nodes, "1") == 0) {
        snprintf(job->hosts, sizeof(job->hosts), "127.0.0.1");
    } else if (!list || !twill_launch_first_host(list, job->hosts, sizeof(job->hosts))) {
        return TWILL_FAIL(error, TWILL_ERR_CONFIG,
                          "rank %d: SLURM_STEP_NODELIST=%.64s is not a list of hosts: set "
                          "MASTER_ADDR to the host of rank 0",
                          job->rank, list ? list : "");
    } else {
        job->guessed = true; /* wrong with --distribution=arbitrary */
    }
    return TWILL_OK;
}

/* Set *oob to the job that is this Slurm step, once all ranks have joined, or fail. */
static twill_status slurm_open(struct twill_oob **oob, const struct twill_bootstrap_params *params,
                               struct twill_error *error)
{
    struct twill_job job = {.listener = -1};
    const char *number = twill_launch_variable(params, "SLURM_JOB_ID");
    const char *step = twill_launch_variable(params, "SLURM_STEP_ID");
    TWILL_TRY(error, twill_launch_ranks(
                         &job, "SLURM_PROCID", twill_launch_variable(params, "SLURM_PROCID"),
                         "SLURM_STEP_NUM_TASKS",
                         twill_launch_variable(params, "SLURM_STEP_NUM_TASKS"), error));
    if (!number || !step)
        return TWILL_FAIL(error, TWILL_ERR_CONFIG, "rank %d: %s is not set", job.rank,
                          number ? "SLURM_STEP_ID" : "SLURM_JOB_ID");
    snprintf(job.identity, sizeof(job.identity), "slurm %.32s.%.32s", number, step);
    TWILL_TRY(error, find_host(&job, params, error));
    TWILL_TRY(error, twill_launch_port(&job, params, error));
    snprintf(job.how, sizeof(job.how),
             "Slurm without PMI: SLURM_PROCID, rank %d of %d in step %.16s.%.16s at %.56s",
             job.rank, job.size, number, step, TWILL_ADDRESS_AND_PORT(job.hosts, job.port));
    return twill_bootstrap_tcp_open(oob, &twill_bootstrap_slurm, &job, params, error);
}

const struct twill_bootstrap_ops twill_bootstrap_slurm = {
    TWILL_BOOTSTRAP_BY_TCP, .name = "slurm", .applies = slurm_applies, .open = slurm_open};
