/* SPDX-License-Identifier: Apache-2.0 */
/* Bootstrap by PMI-1. Rank 0 puts its address and key into PMI's store, and the others get them. */
#include "fabric/bootstrap/pmi_client.h"
#include "fabric/bootstrap/tcp/bootstrap_tcp.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PMI_CONTACT_KEY "twill-card"

/* Return the descriptor in PMI_FD if it is an open socket (it may not be inherited), else -1. */
static int descriptor(const struct twill_bootstrap_params *params)
{
    struct stat about;
    const char *text = twill_launch_variable(params, "PMI_FD");
    char *end;
    long fd = text ? strtol(text, &end, 10) : -1;
    if (fd < 0 || fd > 1 << 20 || *end || fstat((int)fd, &about) != 0 || !S_ISSOCK(about.st_mode))
        return -1;
    return (int)fd;
}

/* Return whether PMI_FD is an open socket, or PMI_PORT and PMI_ID are set. */
static bool pmi_applies(const struct twill_bootstrap_params *params)
{
    return descriptor(params) >= 0 ||
           (twill_launch_variable(params, "PMI_PORT") && twill_launch_variable(params, "PMI_ID"));
}

/* Return whether PMI_process_mapping says that all ranks are on one host. For example,
 * "(vector,(0,1,4))" puts 4 ranks on each of 1 node, from node 0 on. */
static bool is_one_host(const char *mapping)
{
    unsigned node, nodes, ranks;
    int length;
    bool one = false;
    if (strncmp(mapping, "(vector", 7) != 0)
        return false;
    for (const char *at = mapping + 7;
         sscanf(at, ",(%u,%u,%u)%n", &node, &nodes, &ranks, &length) == 3; at += length) {
        if (node + nodes != 1)
            return false;
        one = true;
    }
    return one;
}

/* Return the name of the launcher, for messages, by the variables that it sets. */
static const char *pmi_job_name(const struct twill_bootstrap_params *params)
{
    if (twill_launch_variable(params, "HYDI_CONTROL_FD") ||
        twill_launch_variable(params, "MPI_LOCALNRANKS"))
        return "Hydra";
    return twill_launch_variable(params, "SLURM_STEP_ID") ? "Slurm" : "PMI";
}

/* Set rank and size of `job`. On rank 0, listen and publish where, with the key, through PMI. On
 * others, read that. `contact` is space for its text, which the caller wipes. Collective. */
static twill_status exchange_contact(struct twill_pmi *pmi, struct twill_job *job,
                                     const struct twill_bootstrap_params *params,
                                     char contact[TWILL_JOB_CONTACT], struct twill_error *error)
{
    char mapping[TWILL_PMI_LINE];
    TWILL_TRY(error, twill_launch_ranks(job, "PMI_RANK", pmi->rank, "PMI_SIZE", pmi->size, error));
    if (job->rank == 0) {
        TWILL_TRY(error,
                  twill_pmi_get(pmi, "PMI_process_mapping", mapping, sizeof(mapping), error));
        TWILL_TRY(error, twill_launch_listen(job, params, is_one_host(mapping), error));
        TWILL_TRY(error, twill_launch_write_contact(
                             job, contact, twill_min(TWILL_JOB_CONTACT, pmi->most_value), error));
        TWILL_TRY(error, twill_pmi_put(pmi, PMI_CONTACT_KEY, contact, error));
    }
    TWILL_TRY(error, twill_pmi_barrier(pmi, error));
    if (job->rank == 0)
        return TWILL_OK;
    TWILL_TRY(error, twill_pmi_get(pmi, PMI_CONTACT_KEY, contact, TWILL_JOB_CONTACT, error));
    return twill_launch_read_contact(job, params, contact, error);
}

/* Set rank, size and rank 0's contact in `job`. Finalize PMI, and wipe the key's copies, always. */
static twill_status exchange_pmi(struct twill_pmi *pmi, struct twill_job *job,
                                 const struct twill_bootstrap_params *params,
                                 struct twill_error *error)
{
    char contact[TWILL_JOB_CONTACT];
    twill_status status = exchange_contact(pmi, job, params, contact, error);
    twill_pmi_close(pmi);
    twill_secret_wipe(contact, sizeof(contact));
    return status;
}

/* Return whether the program has an MPI library that is initialised. This matters as the launcher
 * serves only one client of PMI in a process. */
static bool is_in_use(void)
{
    int (*initialized)(int *) = (int (*)(int *))dlsym(RTLD_DEFAULT, "MPI_Initialized");
    int yes = 0;
    return initialized && initialized(&yes) == 0 && yes;
}

/* Set *oob to the job that the launcher describes by PMI, once all ranks have joined, or fail.
 * Returns TWILL_ERR_BOOTSTRAP if the program's MPI is initialised. */
static twill_status pmi_open(struct twill_oob **oob, const struct twill_bootstrap_params *params,
                             struct twill_error *error)
{
    struct twill_job job = {.listener = -1, .source = "PMI"};
    struct twill_pmi pmi = {.fd = -1, .deadline = twill_wire_deadline(params->timeout_ns)};
    const char *port = twill_launch_variable(params, "PMI_PORT");
    const char *id = twill_launch_variable(params, "PMI_ID");
    const char *rank = twill_launch_variable(params, "PMI_RANK");
    const char *size = twill_launch_variable(params, "PMI_SIZE");
    int fd = descriptor(params);
    if (fd < 0 && !(port && id))
        return TWILL_FAIL(error, TWILL_ERR_CONFIG,
                          "TWILL_LAUNCHER=pmi, but neither is PMI_FD an open socket nor are "
                          "PMI_PORT and PMI_ID set");
    if (is_in_use())
        return TWILL_FAIL(error, TWILL_ERR_BOOTSTRAP,
                          "rank %.16s: PMI: MPI_Init ran before and holds the launcher's "
                          "only connection: give twill MPI's allgather (twill_bootstrap, "
                          "examples/callback.c)",
                          rank ? rank : "unknown");
    snprintf(pmi.rank, sizeof(pmi.rank), "%s", rank ? rank : "");
    snprintf(pmi.size, sizeof(pmi.size), "%s", size ? size : "");
    twill_status status = twill_pmi_open(&pmi, fd, port, id, error);
    if (status == TWILL_OK)
        status = exchange_pmi(&pmi, &job, params, error);
    else
        twill_pmi_close(&pmi);
    twill_secret_wipe(&pmi, sizeof(pmi));
    if (status != TWILL_OK && job.listener >= 0)
        close(job.listener);
    snprintf(job.how, sizeof(job.how), "%s: %s, rank %d of %d", pmi_job_name(params),
             fd >= 0 ? "PMI_FD" : "PMI_PORT", job.rank, job.size);
    if (status == TWILL_OK)
        status = twill_bootstrap_tcp_open(oob, &twill_bootstrap_pmi, &job, params, error);
    twill_secret_wipe(&job.key, sizeof(job.key));
    return status;
}

const struct twill_bootstrap_ops twill_bootstrap_pmi = {TWILL_BOOTSTRAP_BY_TCP, .name = "pmi",
                                                        .applies = pmi_applies, .open = pmi_open};
