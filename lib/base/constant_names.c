/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/base.h"
#include "lib/base/lists.h"

const char *twill_strerror(twill_status status)
{
    static const char *const messages[] = {
        "success",
        "invalid argument",
        "invalid configuration",
        "out of memory",
        "system error",
        "bootstrap failed",
        "network error",
        "timed out",
        "a peer died",
        "ranks disagree",
        "communicator broken by an earlier failure",
        "used after fork",
        "not supported",
        "internal error",
        "communicator revoked",
        "excluded by the other ranks",
    };
    _Static_assert(TWILL_ARRAY_LENGTH(messages) == 1 - TWILL_STATUS_LOWEST, "a message for each");
    size_t index = (size_t)-status;
    return status <= 0 && index < TWILL_ARRAY_LENGTH(messages) ? messages[index] : "unknown status";
}

const char *twill_version(void)
{
    return TWILL_TEXT_OF(TWILL_VERSION_MAJOR) "." TWILL_TEXT_OF(
        TWILL_VERSION_MINOR) "." TWILL_TEXT_OF(TWILL_VERSION_PATCH);
}

const char *twill_op_name(twill_op op)
{
#define OP_NAME(NOUN, name, with) [TWILL_##NOUN] = #name,
    static const char *const names[] = {TWILL_OPS(OP_NAME, )};
    if ((unsigned)op >= TWILL_OP_CREATED && (unsigned)op <= UINT16_MAX)
        return "created";
    return (unsigned)op < TWILL_OP_COUNT ? names[op] : NULL;
}
