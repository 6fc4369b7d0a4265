/* SPDX-License-Identifier: Apache-2.0 */
/* What can keep the ranks of a node from sharing memory, in words. */
#include "fabric/shm/fd_passing.h"

const char *twill_share_cause_text(int32_t cause)
{
    static const char *const texts[TWILL_SHARE_CAUSES] = {
        [TWILL_SHARE_FINE] = "memory is shared",
        [TWILL_SHARE_MEMFD] = "memfd_create() is refused or out of memory",
        [TWILL_SHARE_FILE_LIMIT] =
            "the file size limit (ulimit -f) is below the size of the memory",
        [TWILL_SHARE_SOCKET] = "abstract unix sockets are refused",
        [TWILL_SHARE_REFUSED] = "unix sockets do not connect the ranks (network namespaces differ)",
        [TWILL_SHARE_LOST] = "a rank gave up exchanging descriptors",
        [TWILL_SHARE_DESCRIPTORS] = "too many open descriptors (ulimit -n)",
        [TWILL_SHARE_OTHER_USER] = "ranks of one host run as different users",
        [TWILL_SHARE_MAP] =
            "another rank's memory could not be mapped (ulimit -v? TWILL_TUNE=heap_limit)",
        [TWILL_SHARE_TOKEN] = "what one rank wrote could not be read by another",
        [TWILL_SHARE_MEMORY] = "out of memory",
        [TWILL_SHARE_RANDOM] = "getrandom() is refused",
    };
    return cause > 0 && cause < TWILL_SHARE_CAUSES ? texts[cause] : "memory cannot be shared";
}

const char *twill_fd_passing_phase_text(int32_t phase)
{
    static const char *const texts[TWILL_FD_PASSING_PHASES] = {
        [TWILL_FD_PASSING_UNCONNECTED] = "the two never connected",
        [TWILL_FD_PASSING_CONNECTED] = "they connected, but nothing went either way",
        [TWILL_FD_PASSING_SENT] = "they connected, and only the waiting rank's own went out",
        [TWILL_FD_PASSING_RECEIVED] = "it came, but the waiting rank's own could not go out",
    };
    return phase >= 0 && phase < TWILL_FD_PASSING_PHASES ? texts[phase] : "in an unknown phase";
}

void twill_fd_passing_suspect(const struct twill_fd_passing *fd_passing,
                              struct twill_agreement *agreement)
{
    if (fd_passing->lost == UINT32_MAX)
        return;
    const uint32_t *job = fd_passing->oob->job;
    twill_agreement_suspect(
        agreement, fd_passing->late ? TWILL_ERR_TIMEOUT : TWILL_ERR_PEER,
        "%s lost %s while memory was being shared (%s)",
        TWILL_RANK_NAME(job, fd_passing->oob->rank), TWILL_RANK_NAME(job, fd_passing->lost),
        fd_passing->late ? twill_fd_passing_phase_text((int32_t)fd_passing->phase)
                         : "it died, lost a rank itself, or cannot be seen from here");
}
