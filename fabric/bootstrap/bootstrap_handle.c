/* SPDX-License-Identifier: Apache-2.0 */
/* Bootstrap of a job that grows. Its ranks and the new processes connect to rank 0, at the address
 * in the handle. The key is TWILL_JOB, or comes from the key file and the job's origin. A process
 * of another epoch therefore passes the handshake and learns why it is refused. */
#include "algorithms/world/world.h"
#include "fabric/bootstrap/bootstrap.h"
#include "fabric/bootstrap/tcp/bootstrap_tcp.h"
#include "lib/base/plural.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define HANDLE_FORMAT "twill-join-1,"
#define CHECK_BYTES   4

/* Append a comma and a short hash of the text, which shows later whether it was cut or altered. */
static void append_check(char text[TWILL_JOIN_HANDLE_TEXT])
{
    uint8_t digest[TWILL_DIGEST_BYTES];
    char digits[2 * CHECK_BYTES + 1];
    size_t used = strlen(text);
    twill_secret_digest(text, used, digest);
    snprintf(text + used, TWILL_JOIN_HANDLE_TEXT - used, ",%s",
             twill_hex_text(digest, CHECK_BYTES, digits));
}

void twill_join_handle_write(const struct twill_join_handle *handle,
                             char text[TWILL_JOIN_HANDLE_TEXT])
{
    char origin[2 * TWILL_NONCE_BYTES + 1];
    snprintf(text, TWILL_JOIN_HANDLE_TEXT, HANDLE_FORMAT "%u,%u,%u,%s,%u,%s", handle->epoch,
             handle->size, handle->guests,
             twill_hex_text(handle->origin, TWILL_NONCE_BYTES, origin), handle->port,
             handle->address);
    append_check(text);
}

twill_status twill_join_handle_read(struct twill_join_handle *handle, const char *text,
                                    struct twill_error *error)
{
    char origin[2 * TWILL_NONCE_BYTES + 1] = "", again[TWILL_JOIN_HANDLE_TEXT];
    struct sockaddr_storage address;
    socklen_t length;
    *handle = (struct twill_join_handle){.epoch = 0};
    _Static_assert(TWILL_NONCE_BYTES == 16 && TWILL_ADDRESS_TEXT == 64, "widths below");
    bool good =
        text != NULL && strlen(text) < TWILL_JOIN_HANDLE_TEXT &&
        sscanf(text,
               HANDLE_FORMAT "%" SCNu32 ",%" SCNu32 ",%" SCNu32 ",%32[0-9a-f],%" SCNu16 ",%63[^,],",
               &handle->epoch, &handle->size, &handle->guests, origin, &handle->port,
               handle->address) == 6;
    for (size_t i = 0; good && i < TWILL_NONCE_BYTES; i++)
        good = sscanf(origin + 2 * i, "%2" SCNx8, &handle->origin[i]) == 1;
    if (good)
        twill_join_handle_write(handle, again);
    good = good && strcmp(text, again) == 0 && handle->guests <= handle->size &&
           handle->size <= TWILL_WORLD_MAX_RANKS &&
           twill_endpoint_address(handle->address, handle->port, &address, &length);
    if (!good)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "\"%.200s\" is not a complete handle of twill",
                          text != NULL ? text : "");
    return TWILL_OK;
}

/* Return whether the process joins a job that grows. */
static bool handle_applies(const struct twill_bootstrap_params *params)
{
    return params->join != NULL;
}

/* Join the larger job that the handle params->join->handle describes, and set *oob to the exchange
 * between its ranks. Waits until all of them have joined. Takes over *join->listener, if there is
 * one. Returns TWILL_ERR_ARGUMENT for a bad handle. */
static twill_status handle_open(struct twill_oob **oob, const struct twill_bootstrap_params *params,
                                struct twill_error *error)
{
    const struct twill_join *join = params->join;
    struct twill_join_handle handle;
    char origin[2 * TWILL_NONCE_BYTES + 1];
    TWILL_TRY(error, twill_join_handle_read(&handle, join->handle, error));
    if (join->rank == TWILL_JOIN_ANY && handle.guests == 0)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "this handle is for twill_comm_reconfigure(), not for joining a job");
    int listener = join->listener != NULL ? *join->listener : -1;
    if (join->listener != NULL)
        *join->listener = -1;
    struct twill_job job = {.rank = join->rank,
                            .size = (int)handle.size,
                            .port = handle.port,
                            .listener = listener,
                            .source = "handle",
                            .epoch = handle.epoch,
                            .guests = handle.guests,
                            .has_ended = join->has_ended,
                            .user = join->user};
    snprintf(job.hosts, sizeof(job.hosts), "%s", handle.address);
    snprintf(job.identity, sizeof(job.identity), "growing %s",
             twill_hex_text(handle.origin, TWILL_NONCE_BYTES, origin));
    snprintf(job.how, sizeof(job.how), "handle: epoch %u, %u rank%s, %u of them new, at %.88s",
             handle.epoch, handle.size, TWILL_PLURAL(handle.size), handle.guests,
             TWILL_ADDRESS_AND_PORT(handle.address, handle.port));
    TWILL_TRY(error, twill_bootstrap_tcp_open(oob, &twill_bootstrap_handle, &job, params, error));
    (*oob)->epoch = handle.epoch;
    memcpy((*oob)->origin, handle.origin, sizeof((*oob)->origin));
    return TWILL_OK;
}

const struct twill_bootstrap_ops twill_bootstrap_handle = {
    TWILL_BOOTSTRAP_BY_TCP, .name = "handle", .applies = handle_applies, .open = handle_open};
