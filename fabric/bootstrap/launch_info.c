/* SPDX-License-Identifier: Apache-2.0 */
/* Common functions of the bootstrap methods of launchers. */
#include "fabric/bootstrap/launch_info.h"

#include "algorithms/world/world.h"
#include "fabric/bootstrap/frames.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ports for jobs without MASTER_PORT, below 32768, where Linux' ephemeral ports begin. */
enum { PORT_FIRST = 10240, PORT_COUNT = 20000 };

#define CONTACT_VERSION "twill1"

const char *twill_launch_variable(const struct twill_bootstrap_params *params, const char *name)
{
    size_t length = strlen(name);
    for (const char *const *at = params->environment; at && *at; at++)
        if (strncmp(*at, name, length) == 0 && (*at)[length] == '=')
            return (*at)[length + 1] ? *at + length + 1 : NULL;
    return NULL;
}

/* Set *out to a decimal number in low .. high, or return TWILL_ERR_CONFIG, naming the variable. */
static twill_status read_number(const char *name, const char *text, long low, long high, long *out,
                                struct twill_error *error)
{
    char *end;
    errno = 0;
    *out = strtol(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end != '\0')
        return TWILL_FAIL(error, TWILL_ERR_CONFIG, "%s=%.64s is not a number", name, text);
    if (errno != 0 || *out < low || *out > high)
        return TWILL_FAIL(error, TWILL_ERR_CONFIG, "%s=%.64s is outside %ld .. %ld", name, text,
                          low, high);
    return TWILL_OK;
}

twill_status twill_launch_ranks(struct twill_job *job, const char *rank_name, const char *rank,
                                const char *size_name, const char *size, struct twill_error *error)
{
    long number, count;
    if (!rank || !size)
        return TWILL_FAIL(error, TWILL_ERR_CONFIG, "%s is not set", rank ? size_name : rank_name);
    TWILL_TRY(error, read_number(size_name, size, 1, TWILL_WORLD_MAX_RANKS, &count, error));
    TWILL_TRY(error, read_number(rank_name, rank, 0, LONG_MAX, &number, error));
    if (number >= count)
        return TWILL_FAIL(error, TWILL_ERR_CONFIG, "%s=%ld must be below %s=%ld", rank_name, number,
                          size_name, count);
    job->rank = (int)number;
    job->size = (int)count;
    return TWILL_OK;
}

bool twill_launch_master(struct twill_job *job, const struct twill_bootstrap_params *params)
{
    if (!twill_is_set(params->master_addr))
        return false;
    job->source = "MASTER_ADDR";
    snprintf(job->hosts, sizeof(job->hosts), "%s", params->master_addr);
    return true;
}

twill_status twill_launch_port(struct twill_job *job, const struct twill_bootstrap_params *params,
                               struct twill_error *error)
{
    uint32_t hash = UINT32_C(2166136261); /* FNV-1a */
    long port;
    if (twill_is_set(params->master_port)) {
        TWILL_TRY(error, read_number("MASTER_PORT", params->master_port, 1, 65535, &port, error));
        job->port = (uint16_t)port;
        return TWILL_OK;
    }
    for (const char *c = job->identity; *c; c++)
        hash = (hash ^ (unsigned char)*c) * UINT32_C(16777619);
    job->port = (uint16_t)(PORT_FIRST + hash % PORT_COUNT);
    return TWILL_OK;
}

/* Return whether TWILL_JOB or TWILL_KEY_FILE is set. The contact then contains no key. */
static bool is_given(const struct twill_bootstrap_params *params)
{
    return twill_is_set(params->job) || twill_is_set(params->key_file);
}

twill_status twill_launch_listen(struct twill_job *job, const struct twill_bootstrap_params *params,
                                 bool alone, struct twill_error *error)
{
    char interface[32], why[128];
    struct twill_endpoint here;
    bool requested = twill_is_set(params->interface);
    if (requested)
        TWILL_TRY(error, twill_interface_choose(job->hosts, interface, params->interface, NULL, why,
                                                sizeof(why), error));
    else if (alone)
        snprintf(job->hosts, sizeof(job->hosts), "127.0.0.1");
    else
        twill_interface_addresses(job->hosts, sizeof(job->hosts));
    if (!job->hosts[0])
        return TWILL_FAIL(error, TWILL_ERR_BOOTSTRAP,
                          "rank 0: the job has several hosts, but this one has no address that "
                          "others could reach: TWILL_INTERFACE chooses one");
    job->has_key = !is_given(params);
    if (job->has_key)
        TWILL_TRY(error, twill_secret_random(&job->key, error));
    job->listener =
        twill_socket_listen_at(alone || requested ? job->hosts : NULL, 0, job->size + 64);
    if (job->listener < 0 || !twill_socket_name(job->listener, false, &here))
        return TWILL_FAIL(error, TWILL_ERR_SYSTEM, "rank 0 cannot listen: %s", strerror(errno));
    job->port = here.port;
    return TWILL_OK;
}

twill_status twill_launch_write_contact(const struct twill_job *job, char *contact, size_t bytes,
                                        struct twill_error *error)
{
    char key[TWILL_SECRET_TEXT] = "-";
    const char *host = job->hosts;
    unsigned hosts = 0;
    if (job->has_key)
        twill_secret_text(&job->key, key);
    size_t used = (size_t)snprintf(contact, bytes, CONTACT_VERSION ",%u,%s", job->port, key);
    twill_secret_wipe(key, sizeof(key));
    while (*host && used < bytes) {
        size_t length = strcspn(host, " ");
        if (used + length + 2 > bytes) /* the most likely addresses come first */
            break;
        contact[used++] = ',';
        memcpy(contact + used, host, length);
        used += length;
        contact[used] = '\0';
        hosts++;
        host += length + strspn(host + length, " ");
    }
    if (hosts == 0)
        return TWILL_FAIL(error, TWILL_ERR_BOOTSTRAP,
                          "rank 0: the launcher passes on only %zu bytes, too few for an address",
                          bytes);
    return TWILL_OK;
}

/* Return whether the text is a comma-separated list of numeric addresses, with optional zones. */
static bool are_addresses(const char *text)
{
    static const char scope[] =
        "%0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ._-";
    while (*text) {
        size_t bytes = strspn(text, "0123456789abcdefABCDEF.:");
        if (bytes > 0 && text[bytes] == '%')
            bytes += strspn(text + bytes, scope);
        if (bytes == 0 || (text[bytes] && text[bytes] != ','))
            return false;
        text += bytes + (text[bytes] == ',');
    }
    return true;
}

/* Set port, hosts and key of `job` from rank 0's contact. Returns TWILL_ERR_BOOTSTRAP if the text
 * is not of this version. `key` is space for the text of the key, which the caller wipes. */
static twill_status parse_contact(struct twill_job *job, const char *contact,
                                  char key[TWILL_SECRET_TEXT], struct twill_error *error)
{
    unsigned port = 0;
    int at = 0;
    _Static_assert(TWILL_SECRET_TEXT == 65, "matches the width in the format below");
    if (sscanf(contact, CONTACT_VERSION ",%5u,%64[0-9a-f-],%n", &port, key, &at) != 2 || at == 0 ||
        port == 0 || port > 65535 || !contact[at] || strlen(contact + at) >= sizeof(job->hosts) ||
        !are_addresses(contact + at))
        return TWILL_FAIL(error, TWILL_ERR_BOOTSTRAP,
                          "rank %d: the address that the launcher passed on is not from rank 0 of "
                          "this version of twill: install one version on all hosts",
                          job->rank);
    job->port = (uint16_t)port;
    snprintf(job->hosts, sizeof(job->hosts), "%s", contact + at);
    for (char *c = job->hosts; *c; c++)
        if (*c == ',')
            *c = ' ';
    job->has_key = strcmp(key, "-") != 0;
    if (job->has_key)
        TWILL_TRY(error, twill_secret_parse(&job->key, "the key of rank 0", key, error));
    return TWILL_OK;
}

twill_status twill_launch_read_contact(struct twill_job *job,
                                       const struct twill_bootstrap_params *params,
                                       const char *contact, struct twill_error *error)
{
    char key[TWILL_SECRET_TEXT] = "";
    twill_status status = parse_contact(job, contact, key, error);
    twill_secret_wipe(key, sizeof(key));
    TWILL_TRY(error, status);
    if (job->has_key == is_given(params))
        return TWILL_FAIL(
            error, TWILL_ERR_CONFIG, "rank %d: TWILL_JOB or TWILL_KEY_FILE is set %s, but not %s",
            job->rank, job->has_key ? "here" : "for rank 0", job->has_key ? "for rank 0" : "here");
    return TWILL_OK;
}

bool twill_launch_first_host(const char *list, char *host, size_t bytes)
{
    size_t used = 0;
    const char *c = list;
    /* Copy up to the first comma outside of brackets, and of a bracket only its first number. */
    while (*c && *c != ',') {
        if (*c == '[') {
            size_t digits = strspn(++c, "0123456789"), rest = strcspn(c, "]");
            if (digits == 0 || c[rest] != ']' || strspn(c, "0123456789,-") < rest ||
                used + digits >= bytes)
                return false;
            memcpy(host + used, c, digits);
            used += digits;
            c += rest + 1;
        } else if ((isalnum((unsigned char)*c) || strchr("-._", *c)) && used + 1 < bytes) {
            host[used++] = *c++;
        } else {
            return false;
        }
    }
    host[used] = '\0';
    return used > 0;
}
