/* SPDX-License-Identifier: Apache-2.0 */
/* The registry of bootstrap methods and their common functions. */
#include "fabric/bootstrap/launch_info.h"
#include "lib/base/times.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The methods in the order of detection. First come methods whose variables are set for this very
 * process, and last those whose variables may be inherited from a batch job or its shell. "none"
 * always applies. The names of the methods are the values of TWILL_LAUNCHER. */
static const struct twill_bootstrap_ops *const candidates[] = {
    &twill_bootstrap_handle,   /* the job grows */
    &twill_bootstrap_caller,   /* the program's own exchange */
    &twill_bootstrap_twillrun, /* TWILL_JOB and RANK, whatever launcher started twillrun */
    &twill_bootstrap_torchrun, /* RANK WORLD_SIZE MASTER_ADDR MASTER_PORT */
    &twill_bootstrap_pmi,      /* PMI_FD is an open socket, or PMI_PORT: Hydra, srun --mpi=pmi2 */
    &twill_bootstrap_pmix,     /* PMIX_NAMESPACE: Open MPI's mpirun, prterun, srun --mpi=pmix */
    &twill_bootstrap_pals,     /* PALS_RANKID; PALS' aprun also sets ALPS_APP_PE */
    &twill_bootstrap_alps,     /* ALPS_APP_PE */
    &twill_bootstrap_slurm,    /* a step of several tasks without any of the above */
    &twill_bootstrap_single,
};

/* Variables with this process's rank, of launchers that do not set RANK. */
static const char *const rank_names[] = {"PMI_RANK",    "PMIX_RANK",   "OMPI_COMM_WORLD_RANK",
                                         "PALS_RANKID", "ALPS_APP_PE", "SLURM_PROCID"};

const struct twill_bootstrap_ops *
twill_bootstrap_detect(const struct twill_bootstrap_params *params)
{
    const char *only = params->launcher;
    bool any = !twill_is_set(only) || strcmp(only, "auto") == 0 || params->caller || params->join;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(candidates); i++)
        if (any ? candidates[i]->applies(params) : strcmp(only, candidates[i]->name) == 0)
            return candidates[i];
    return NULL;
}

/* Return the digits of this process's rank in its launcher's variables. Returns NULL if none is set
 * or the first that is set is no number. */
static const char *rank_variable(const struct twill_bootstrap_params *params)
{
    const char *rank = twill_is_set(params->rank) ? params->rank : NULL;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(rank_names) && !rank; i++)
        rank = twill_launch_variable(params, rank_names[i]);
    return rank && strspn(rank, "0123456789") == strlen(rank) ? rank : NULL;
}

/* Put "rank N: " before the message, as the ranks' output is mixed. Do nothing if N is not known or
 * the message begins with "rank ". */
static void prefix_rank(const struct twill_bootstrap_params *params, struct twill_error *error)
{
    const char *rank = rank_variable(params);
    if (error && rank && strncmp(error->message, "rank ", 5) != 0)
        twill_error_prefix(error, "rank %.16s: ", rank);
}

/* Return an address without the brackets of IPv6 addresses in URLs. `host` is space for a copy. */
static const char *without_brackets(const char *address, char *host, size_t bytes)
{
    size_t length = address ? strlen(address) : 0;
    if (length < 2 || address[0] != '[' || address[length - 1] != ']')
        return address;
    snprintf(host, bytes, "%.*s", (int)length - 2, address + 1);
    return host;
}

twill_status twill_bootstrap_open(struct twill_oob **oob,
                                  const struct twill_bootstrap_params *params,
                                  struct twill_error *error)
{
    const struct twill_bootstrap_ops *ops = twill_bootstrap_detect(params);
    struct twill_bootstrap_params plain = *params;
    char host[TWILL_JOB_HOSTS];
    *oob = NULL;
    plain.master_addr = without_brackets(params->master_addr, host, sizeof(host));
    params = &plain;
    if (!ops)
        return TWILL_FAIL(error, TWILL_ERR_CONFIG, "TWILL_LAUNCHER=%.64s: unknown launcher",
                          params->launcher);
    twill_status status = ops->open(oob, params, error);
    if (status != TWILL_OK && !params->caller && !params->join)
        prefix_rank(params, error);
    TWILL_TRY(error, status);
    if ((*oob)->interface[0] == '\0')
        twill_interface_of((*oob)->interface, (*oob)->address);
    if (!params->join)
        memcpy((*oob)->origin, (*oob)->nonce, sizeof((*oob)->origin));
    return TWILL_OK;
}

bool twill_bootstrap_is_first(const struct twill_bootstrap_params *params)
{
    if (params->caller)
        return params->caller->rank == 0;
    if (twill_is_set(params->rank))
        return strcmp(params->rank, "0") == 0;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(rank_names); i++) {
        const char *rank = twill_launch_variable(params, rank_names[i]);
        if (rank && strcmp(rank, "0") != 0)
            return false;
    }
    return true;
}

const char *twill_rank_text(const uint32_t *job, uint32_t rank, char text[TWILL_RANK_TEXT])
{
    if (job == NULL)
        snprintf(text, TWILL_RANK_TEXT, "rank %u", rank);
    else
        snprintf(text, TWILL_RANK_TEXT, "rank %u of the job (%u here)", job[rank], rank);
    return text;
}

void twill_oob_close(struct twill_oob *oob)
{
    if (oob)
        oob->ops->close(oob);
}

uint64_t twill_oob_patience(const struct twill_oob *oob)
{
    uint64_t left = oob->timeout_ns - twill_min(oob->waited_ns, oob->timeout_ns);
    return twill_max(left, twill_min(oob->timeout_ns, TWILL_LEAVE_NS));
}

uint64_t twill_oob_slack(uint64_t timeout_ns)
{
    return twill_min(timeout_ns / 2, TWILL_BOOTSTRAP_SLACK_NS);
}

twill_status twill_oob_alone(struct twill_oob *oob, const void *mine, void *all, size_t bytes,
                             struct twill_error *error)
{
    (void)oob;
    (void)error;
    if (bytes > 0)
        memmove(all, mine, bytes);
    return TWILL_OK;
}

void twill_oob_free(struct twill_oob *oob)
{
    twill_secret_wipe(&oob->secret, sizeof(oob->secret));
    free(oob);
}

twill_status twill_oob_new(struct twill_oob **oob, const struct twill_bootstrap_ops *ops,
                           const struct twill_bootstrap_params *params, struct twill_error *error)
{
    *oob = calloc(1, ops->size_of);
    if (!*oob)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "bootstrap %s: no memory for %zu bytes",
                          ops->name, ops->size_of);
    (*oob)->ops = ops;
    (*oob)->size = 1;
    (*oob)->timeout_ns = params->timeout_ns;
    (*oob)->log = params->log;
    return TWILL_OK;
}

void twill_oob_name_run(struct twill_oob *oob)
{
    struct twill_secret name;
    twill_secret_derive(&oob->secret, "nonce", NULL, 0, &name);
    memcpy(oob->nonce, name.key, sizeof(oob->nonce));
}

twill_status twill_bootstrap_random(uint8_t nonce[TWILL_NONCE_BYTES], struct twill_error *error)
{
    if (!twill_random(nonce, TWILL_NONCE_BYTES))
        return TWILL_FAIL(error, TWILL_ERR_SYSTEM, "getrandom for the nonce of the job: %s",
                          strerror(errno));
    return TWILL_OK;
}
