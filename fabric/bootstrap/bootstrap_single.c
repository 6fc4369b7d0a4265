/* SPDX-License-Identifier: Apache-2.0 */
/* Bootstrap of a job of one rank. Fails if there are more ranks, rather than let each run a job. */
#include "fabric/bootstrap/launch_info.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Variables that prove that there are other ranks if their value is above `alone`, and why the
 * method for them did not apply. Slurm's SLURM_NTASKS is not one, as batch scripts also have it. */
static const char no_pmi[] = "neither is PMI_FD an open socket nor are PMI_PORT and PMI_ID set";
static const struct {
    const char *name;
    int alone;
    const char *launcher, *cause; /* cause NULL: twill_pmix_missing() */
} witnesses[] = {
    {"OMPI_COMM_WORLD_SIZE", 1, "Open MPI's mpirun", NULL},
    {"PMIX_RANK", 0, "a launcher that speaks PMIx", NULL},
    {"PMI_SIZE", 1, "a launcher that speaks PMI", no_pmi},
    {"MPI_LOCALNRANKS", 1, "Hydra", no_pmi},
    {"MV2_COMM_WORLD_SIZE", 1, "MVAPICH2's mpirun_rsh", no_pmi},
    {"PALS_LOCAL_SIZE", 1, "PALS", "PALS_RANKID is not set"},
};

/* Return true, as any process can be a job of one rank. */
static bool single_applies(const struct twill_bootstrap_params *params)
{
    (void)params;
    return true;
}

/* Return TWILL_ERR_CONFIG if only some of RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set.
 * Returns TWILL_OK if all or none are, or if RANK is 0 and WORLD_SIZE 1. */
static twill_status check_variables(const struct twill_bootstrap_params *params,
                                    struct twill_error *error)
{
    const char *const all[] = {params->rank, params->world_size, params->master_addr,
                               params->master_port};
    bool some = false;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(all); i++)
        some = some || (all[i] && *all[i]);
    if (params->rank && params->world_size && strcmp(params->rank, "0") == 0 &&
        strcmp(params->world_size, "1") == 0)
        some = false; /* one rank needs no rendezvous */
    return some ? twill_launch_check_variables(params, error) : TWILL_OK;
}

twill_status twill_launch_check_alone(const struct twill_bootstrap_params *params,
                                      const char *cause, struct twill_error *error)
{
    if (twill_is_set(params->launcher) && strcmp(params->launcher, "auto") != 0)
        return TWILL_OK; /* the user chose it */
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(witnesses); i++) {
        const char *text = twill_launch_variable(params, witnesses[i].name);
        if (!text || atoi(text) <= witnesses[i].alone)
            continue;
        if (!cause)
            cause = witnesses[i].cause ? witnesses[i].cause : twill_pmix_missing(params);
        return TWILL_FAIL(
            error, TWILL_ERR_BOOTSTRAP,
            "%s=%.16s: %s started several ranks, but they cannot find each other: "
            "%s. Start them as described in twill(7), Launchers; or set RANK, "
            "WORLD_SIZE, MASTER_ADDR and MASTER_PORT; or, if each is a job of its own, "
            "TWILL_LAUNCHER=none",
            witnesses[i].name, text, witnesses[i].launcher, cause);
    }
    return TWILL_OK;
}

/* Set *oob to a job of one rank. Fails if variables show a launcher of several ranks, or if only
 * some of RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set, unless TWILL_LAUNCHER=none. */
static twill_status single_open(struct twill_oob **oob, const struct twill_bootstrap_params *params,
                                struct twill_error *error)
{
    const char *slurm = twill_launch_variable(params, "SLURM_JOB_ID");
    bool asked = params->launcher && strcmp(params->launcher, twill_bootstrap_single.name) == 0;
    twill_status status;
    TWILL_TRY(error, twill_launch_check_alone(params, NULL, error));
    if (!asked)
        TWILL_TRY(error, check_variables(params, error));
    TWILL_TRY(error, twill_oob_new(oob, &twill_bootstrap_single, params, error));
    TWILL_TRY_OR_FAIL(error, twill_secret_random(&(*oob)->secret, error));
    twill_oob_name_run(*oob);
    snprintf((*oob)->address, sizeof((*oob)->address), "127.0.0.1");
    snprintf((*oob)->address_why, sizeof((*oob)->address_why), "there is no other rank");
    if (asked)
        snprintf((*oob)->how, sizeof((*oob)->how), "single: one rank, as TWILL_LAUNCHER=none");
    else if (slurm)
        snprintf((*oob)->how, sizeof((*oob)->how),
                 "single: one rank, in Slurm's job %.32s but not in a step of several tasks (srun)",
                 slurm);
    else
        snprintf((*oob)->how, sizeof((*oob)->how),
                 "single: one rank, as no launcher has set its variables");
    return TWILL_OK;
fail:
    twill_oob_free(*oob);
    *oob = NULL;
    return status;
}

const struct twill_bootstrap_ops twill_bootstrap_single = {
    .size_of = sizeof(struct twill_oob),
    .name = "none",
    .allgather = twill_oob_alone,
    .close = twill_oob_free,
    .applies = single_applies,
    .open = single_open,
};
