/* SPDX-License-Identifier: Apache-2.0 */
/* Failures of a server, and refused arguments. Any thread may record them. */
#include "lib/server/layout/layout.h"

#include <stdio.h>
#include <string.h>

twill_status twill_server_fail(struct twill_server *server, twill_status status, const char *file,
                               int line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    pthread_mutex_lock(&server->failure.lock);
    if (!atomic_load(&server->failure.broken))
        (void)twill_error_set_list(&server->failure.error, status, TWILL_NO_RANK, file, line, "",
                                   format, arguments);
    atomic_store(&server->failure.broken, true);
    status = server->failure.error.status;
    pthread_mutex_unlock(&server->failure.lock);
    va_end(arguments);
    return status;
}

void twill_server_note_loss(struct twill_server *server, const twill_comm *comm)
{
    const struct twill_error *why = twill_extend_comm(comm).error;
    if (twill_server_is_loss(why->status))
        (void)TWILL_SERVER_FAIL(server, why->status, "%s", why->message);
}

bool twill_server_lacks(const struct twill_server *server)
{
    return server->committed && atomic_load(&server->failure.broken) &&
           twill_server_is_loss(server->failure.error.status);
}

void twill_server_tell_loss(struct twill_server *server)
{
    if (twill_server_lacks(server) && !atomic_exchange(&server->failure.told, true))
        (void)twill_extend_fail(server->comm, TWILL_EXTEND_ENDS, "twill_server_wait",
                                server->failure.error.status, "parameter server: %s",
                                server->failure.error.message);
}

twill_status twill_server_refuse(struct twill_server *server, const char *file, int line,
                                 const char *format, ...)
{
    char before[32];
    va_list arguments;
    snprintf(before, sizeof(before), "rank %u: ", server->rank);
    va_start(arguments, format);
    pthread_mutex_lock(&server->failure.lock);
    twill_error_clear(&server->failure.refused);
    (void)twill_error_set_list(&server->failure.refused, TWILL_ERR_ARGUMENT, TWILL_NO_RANK, file,
                               line, before, format, arguments);
    pthread_mutex_unlock(&server->failure.lock);
    va_end(arguments);
    return TWILL_ERR_ARGUMENT;
}

void twill_server_name_keys(const struct twill_server *server, uint32_t number, char *text,
                            size_t bytes)
{
    size_t used = 0, named = 0;
    text[0] = '\0';
    for (uint32_t k = 0; k < server->keys; k++) {
        const struct twill_server_key *key = &server->key[k];
        bool has = false;
        for (uint32_t c = 0; c < key->chunks; c++)
            has |= server->cut.place[key->first_chunk + c].shard / server->roles.threads == number;
        if (!has)
            continue;
        if (used + 64 > bytes) {
            snprintf(text + used, bytes - used, " ...");
            return;
        }
        used += (size_t)snprintf(text + used, bytes - used, "%s'%.40s'", named++ > 0 ? ", " : "",
                                 key->name);
    }
}

const char *twill_server_message(const twill_server *server)
{
    if (server == NULL)
        return "the server is NULL";
    return atomic_load(&server->failure.broken) ? server->failure.error.message
                                                : server->failure.refused.message;
}
