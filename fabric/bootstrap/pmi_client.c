/* SPDX-License-Identifier: Apache-2.0 */
/* PMI-1 client. */
#include "fabric/bootstrap/pmi_client.h"

#include "fabric/bootstrap/frames.h"
#include "lib/base/times.h"

#include <errno.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static twill_status fail_pmi(struct twill_pmi *pmi, struct twill_error *error, twill_status status,
                             const char *format, ...) TWILL_PRINTF(4, 5);
/* Mark the connection as broken, set `error` to the rank and this message, and return `status`. */
static twill_status fail_pmi(struct twill_pmi *pmi, struct twill_error *error, twill_status status,
                             const char *format, ...)
{
    char text[512];
    va_list list;
    va_start(list, format);
    twill_print_list(text, sizeof(text), format, list);
    va_end(list);
    pmi->broken = true;
    twill_text_plain(text, strlen(text)); /* it may contain received text */
    return TWILL_FAIL(error, status, "rank %s: PMI: %s", pmi->rank[0] ? pmi->rank : "unknown",
                      text);
}

/* Copy the value of `name` in the last answer, such as rc in "cmd=x rc=0". Returns false, without a
 * copy, if there is none or it does not fit. */
static bool get_value(const struct twill_pmi *pmi, const char *name, char *value, size_t bytes)
{
    size_t length = strlen(name);
    for (const char *at = pmi->line; *at;) {
        size_t word = strcspn(at, " ");
        if (word > length && strncmp(at, name, length) == 0 && at[length] == '=') {
            size_t rest = word - length - 1;
            if (rest >= bytes)
                return false;
            memcpy(value, at + length + 1, rest);
            value[rest] = '\0';
            return true;
        }
        at += word + strspn(at + word, " ");
    }
    return false;
}

/* Return TWILL_ERR_BOOTSTRAP, with a message that the launcher closed the connection before it
 * answered the request `asked`. `why` is the errno, or 0 if the connection ended without one. Sets
 * pmi->broken. */
static twill_status closed(struct twill_pmi *pmi, struct twill_error *error, const char *asked,
                           int why)
{
    return fail_pmi(
        pmi, error, TWILL_ERR_BOOTSTRAP,
        "the launcher closed the connection before it answered \"%.*s\"%s%s. It serves one "
        "set-up of a process: for set-up after another one by twill or MPI_Init, give twill a "
        "callback (twill_bootstrap)",
        (int)strcspn(asked, "\n "), asked, why ? ": " : "", why ? strerror(why) : "");
}

/* Wait for the next line and put it into pmi->line. What follows it stays in pmi->next. `asked` is
 * the request, for messages. Returns TWILL_ERR_TIMEOUT if none comes until pmi->deadline, or
 * TWILL_ERR_BOOTSTRAP if the connection ends or the line is too long. Both set pmi->broken. */
static twill_status read_pmi(struct twill_pmi *pmi, const char *asked, struct twill_error *error)
{
    for (;;) {
        char *end = memchr(pmi->next, '\n', pmi->used);
        if (end) {
            size_t length = (size_t)(end - pmi->next);
            memcpy(pmi->line, pmi->next, length);
            pmi->line[length] = '\0';
            pmi->used -= length + 1;
            memmove(pmi->next, end + 1, pmi->used);
            return TWILL_OK;
        }
        if (pmi->used == sizeof(pmi->next))
            return fail_pmi(pmi, error, TWILL_ERR_BOOTSTRAP,
                            "the launcher answers \"%s\" with a line that does not end", asked);
        struct pollfd one = {.fd = pmi->fd, .events = POLLIN};
        if (twill_wire_poll(&one, 1, pmi->deadline) <= 0)
            return fail_pmi(pmi, error, TWILL_ERR_TIMEOUT,
                            "the launcher did not answer \"%s\" in time%s", asked,
                            strncmp(asked, "cmd=barrier_in", 14) == 0
                                ? ": some rank has not called twill_init"
                                : "");
        ssize_t n =
            recv(pmi->fd, pmi->next + pmi->used, sizeof(pmi->next) - pmi->used, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (n <= 0)
            return closed(pmi, error, asked, n == 0 ? 0 : errno);
        pmi->used += (size_t)n;
    }
}

/* Send a line, waiting for space. Returns TWILL_ERR_TIMEOUT at pmi->deadline, or
 * TWILL_ERR_BOOTSTRAP if the connection has ended. Both set pmi->broken. */
static twill_status write_pmi(struct twill_pmi *pmi, const char *line, struct twill_error *error)
{
    size_t done = 0, bytes = strlen(line);
    while (done < bytes) {
        ssize_t n = send(pmi->fd, line + done, bytes - done, MSG_DONTWAIT | MSG_NOSIGNAL);
        struct pollfd one = {.fd = pmi->fd, .events = POLLOUT};
        if (n > 0)
            done += (size_t)n;
        else if (errno != EAGAIN && errno != EINTR)
            return closed(pmi, error, line, errno);
        else if (twill_wire_poll(&one, 1, pmi->deadline) <= 0)
            return fail_pmi(pmi, error, TWILL_ERR_TIMEOUT, "the launcher did not read in time");
    }
    return TWILL_OK;
}

static twill_status ask_pmi(struct twill_pmi *pmi, const char *answer, struct twill_error *error,
                            const char *format, ...) TWILL_PRINTF(4, 5);
/* Send a request, to which this adds the line end, and read the answer into pmi->line. Fails unless
 * the answer's cmd is `answer`. A request that is too long is not sent and leaves the connection
 * usable. */
static twill_status ask_pmi(struct twill_pmi *pmi, const char *answer, struct twill_error *error,
                            const char *format, ...)
{
    char line[TWILL_PMI_LINE + 2], asked[48], command[48];
    va_list list;
    va_start(list, format);
    int length = twill_print_list(line, sizeof(line), format, list);
    va_end(list);
    if (length >= (int)sizeof(line) - 1) /* nothing was sent, so the connection stays usable */
        return TWILL_FAIL(error, TWILL_ERR_INTERNAL, "PMI: a line of %d bytes is too long", length);
    snprintf(asked, sizeof(asked), "%.47s", line);
    asked[strcspn(asked, "\n")] = '\0';
    line[length] = '\n';
    line[length + 1] = '\0';
    twill_status status = write_pmi(pmi, line, error);
    twill_secret_wipe(line, sizeof(line)); /* it may contain the key */
    TWILL_TRY(error, status);
    TWILL_TRY(error, read_pmi(pmi, asked, error));
    if (!get_value(pmi, "cmd", command, sizeof(command)) || strcmp(command, answer) != 0)
        return fail_pmi(pmi, error, TWILL_ERR_BOOTSTRAP,
                        "the launcher answers \"%s\" with \"%.100s\"", asked, pmi->line);
    return TWILL_OK;
}

/* Return whether the last answer has rc=0, which means success, or no rc. */
static bool is_fine(const struct twill_pmi *pmi)
{
    char code[16];
    return !get_value(pmi, "rc", code, sizeof(code)) || strcmp(code, "0") == 0;
}

/* Send a request and read the answer. Fails unless its cmd is `answer` and its rc 0 or absent. */
static twill_status ask_fine(struct twill_pmi *pmi, const char *answer, const char *line,
                             struct twill_error *error)
{
    TWILL_TRY(error, ask_pmi(pmi, answer, error, "%s", line));
    if (!is_fine(pmi))
        return fail_pmi(pmi, error, TWILL_ERR_BOOTSTRAP,
                        "the launcher answers \"%.40s\" with \"%.100s\"", line, pmi->line);
    return TWILL_OK;
}

/* Connect to `where` (host:port), announce PMI_ID `id`, and set fd, own, rank and size of `pmi`, or
 * fail. Tries all addresses of the host. */
static twill_status dial_pmi(struct twill_pmi *pmi, const char *where, const char *id,
                             struct twill_error *error)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *found;
    char host[256];
    const char *colon = strrchr(where, ':');
    if (!colon || colon == where || (size_t)(colon - where) >= sizeof(host))
        return fail_pmi(pmi, error, TWILL_ERR_CONFIG, "PMI_PORT=%.64s is not host:port", where);
    memcpy(host, where, (size_t)(colon - where));
    host[colon - where] = '\0';
    int code = getaddrinfo(host, colon + 1, &hints, &found), why = 0;
    if (code != 0)
        return fail_pmi(pmi, error, TWILL_ERR_CONFIG, "PMI_PORT=%.64s: %s", where,
                        gai_strerror(code));
    for (const struct addrinfo *a = found; a && pmi->fd < 0; a = a->ai_next) {
        struct pollfd one = {.fd = twill_socket_new(a->ai_family), .events = POLLOUT};
        why = one.fd < 0 || twill_socket_connect(one.fd, a->ai_addr, a->ai_addrlen) < 0 ? errno : 0;
        if (why == 0)
            why = twill_wire_poll(&one, 1, pmi->deadline) > 0 ? twill_socket_connected(one.fd)
                                                              : ETIMEDOUT;
        if (why == 0)
            pmi->fd = one.fd;
        else if (one.fd >= 0)
            close(one.fd);
    }
    freeaddrinfo(found);
    if (pmi->fd < 0)
        return fail_pmi(pmi, error, TWILL_ERR_BOOTSTRAP, "PMI_PORT=%.64s: connect: %s", where,
                        strerror(why));
    pmi->own = true;
    /* The answer has four lines, first initack, then cmd=set with size, rank and debug. */
    TWILL_TRY(error, ask_pmi(pmi, "initack", error, "cmd=initack pmiid=%.32s", id));
    for (int i = 0; i < 3; i++) {
        TWILL_TRY(error, read_pmi(pmi, "cmd=initack", error));
        (void)get_value(pmi, "size", pmi->size, sizeof(pmi->size));
        (void)get_value(pmi, "rank", pmi->rank, sizeof(pmi->rank));
    }
    return TWILL_OK;
}

twill_status twill_pmi_open(struct twill_pmi *pmi, int fd, const char *port, const char *id,
                            struct twill_error *error)
{
    char number[32] = "";
    pmi->fd = fd;
    if (fd < 0)
        TWILL_TRY(error, dial_pmi(pmi, port, id, error));
    TWILL_TRY(error,
              ask_fine(pmi, "response_to_init", "cmd=init pmi_version=1 pmi_subversion=1", error));
    TWILL_TRY(error, ask_fine(pmi, "maxes", "cmd=get_maxes", error));
    long most = get_value(pmi, "vallen_max", number, sizeof(number)) ? atol(number) : 0;
    if (most < 1)
        return fail_pmi(pmi, error, TWILL_ERR_BOOTSTRAP,
                        "the launcher answers \"cmd=get_maxes\" with \"%.100s\"", pmi->line);
    pmi->most_value = (size_t)twill_min(most, TWILL_PMI_LINE);
    TWILL_TRY(error, ask_fine(pmi, "my_kvsname", "cmd=get_my_kvsname", error));
    if (!get_value(pmi, "kvsname", pmi->kvs, sizeof(pmi->kvs)) || !pmi->kvs[0])
        return fail_pmi(pmi, error, TWILL_ERR_BOOTSTRAP,
                        "the launcher answers \"cmd=get_my_kvsname\" with \"%.100s\"", pmi->line);
    /* Leave room for the rest of a request, "cmd=put kvsname= key= value=" and twill's key. */
    size_t frame = strlen(pmi->kvs) + 64;
    pmi->most_value = twill_min(pmi->most_value, TWILL_PMI_LINE - frame);
    return TWILL_OK;
}

twill_status twill_pmi_put(struct twill_pmi *pmi, const char *key, const char *value,
                           struct twill_error *error)
{
    TWILL_TRY(error, ask_pmi(pmi, "put_result", error, "cmd=put kvsname=%s key=%s value=%s",
                             pmi->kvs, key, value));
    if (!is_fine(pmi)) /* without the value, which may contain a secret */
        return fail_pmi(pmi, error, TWILL_ERR_BOOTSTRAP,
                        "the launcher answers \"cmd=put\" with "
                        "\"%.100s\"",
                        pmi->line);
    return TWILL_OK;
}

twill_status twill_pmi_barrier(struct twill_pmi *pmi, struct twill_error *error)
{
    return ask_fine(pmi, "barrier_out", "cmd=barrier_in", error);
}

twill_status twill_pmi_get(struct twill_pmi *pmi, const char *key, char *value, size_t bytes,
                           struct twill_error *error)
{
    value[0] = '\0';
    TWILL_TRY(error, ask_pmi(pmi, "get_result", error, "cmd=get kvsname=%s key=%s", pmi->kvs, key));
    if (is_fine(pmi) && !get_value(pmi, "value", value, bytes))
        return fail_pmi(
            pmi, error, TWILL_ERR_BOOTSTRAP,
            "the launcher answers \"cmd=get\" of %s with no value, or one that is too long", key);
    return TWILL_OK;
}

void twill_pmi_close(struct twill_pmi *pmi)
{
    struct twill_error ignored = {0};
    if (pmi->fd < 0)
        return;
    pmi->deadline = twill_wire_deadline(TWILL_PMI_GOODBYE_NS);
    if (!pmi->broken)
        (void)ask_pmi(pmi, "finalize_ack", &ignored, "cmd=finalize");
    if (pmi->own)
        close(pmi->fd);
    pmi->fd = -1;
}
