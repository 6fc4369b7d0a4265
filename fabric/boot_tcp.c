/* SPDX-License-Identifier: Apache-2.0 */
/* Bootstrap over TCP from RANK WORLD_SIZE MASTER_ADDR MASTER_PORT: reading them, and the frame
 * around rendezvous (boot_tcp_meet.c, boot_tcp_join.c) and all-gather (boot_tcp_gather.c). */
#include "fabric/boot_tcp.h"

#include "algorithms/world.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RESOLVE_NS UINT64_C(5000000000) /* for a name server that says "later" */

static bool given(const char *text)
{
    return text && *text;
}

static bool tcp_applies(const struct twill_boot_params *params)
{
    if (given(params->rank) && given(params->world_size) && !given(params->master_addr) &&
        strcmp(params->rank, "0") == 0 && strcmp(params->world_size, "1") == 0)
        return false; /* nobody is to be met */
    return given(params->rank) || given(params->world_size) || given(params->master_addr) ||
           given(params->master_port);
}

/* All four, or an error that names those that are missing. */
static twill_status check_given(const struct twill_boot_params *params, struct twill_error *error)
{
    const struct {
        const char *name, *text;
    } needed[] = {
        {"RANK", params->rank},
        {"WORLD_SIZE", params->world_size},
        {"MASTER_ADDR", params->master_addr},
        {"MASTER_PORT", params->master_port},
    };
    char missing[64] = "", present[64] = "";
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(needed); i++) {
        char *list = given(needed[i].text) ? present : missing;
        size_t used = strlen(list);
        snprintf(list + used, sizeof(missing) - used, "%s%s", used ? " " : "", needed[i].name);
    }
    if (missing[0])
        return TWILL_FAIL(error, TWILL_ERR_CONFIG, "rank %s: %s set, but not %s",
                          given(params->rank) ? params->rank : "unknown", present, missing);
    return TWILL_OK;
}

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

/* Hex digits, right-aligned. */
static twill_status read_job(const char *text, uint8_t nonce[TWILL_NONCE_BYTES],
                             struct twill_error *error)
{
    size_t digits = strlen(text);
    bool zero = true;
    if (digits > 2 * TWILL_NONCE_BYTES || strspn(text, "0123456789abcdefABCDEF") != digits)
        return TWILL_FAIL(error, TWILL_ERR_CONFIG, "TWILL_JOB=%.64s is not 1 to %d hex digits",
                          text, 2 * TWILL_NONCE_BYTES);
    memset(nonce, 0, TWILL_NONCE_BYTES);
    for (size_t i = 0; i < digits; i++) {
        char digit[2] = {text[digits - 1 - i], '\0'};
        unsigned value = (unsigned)strtoul(digit, NULL, 16);
        nonce[TWILL_NONCE_BYTES - 1 - i / 2] |= (uint8_t)(value << (i % 2 ? 4 : 0));
        zero = zero && value == 0;
    }
    if (zero)
        return TWILL_FAIL(error, TWILL_ERR_CONFIG, "TWILL_JOB=%s must not be zero", text);
    return TWILL_OK;
}

static twill_status read_params(struct twill_boot_tcp *tcp, const struct twill_boot_params *params,
                                struct twill_error *error)
{
    struct twill_boot *boot = &tcp->boot;
    long rank, size, port;
    TWILL_TRY(error, check_given(params, error));
    TWILL_TRY(error, read_number("WORLD_SIZE", params->world_size, 1, TWILL_WORLD_MAX_RANKS, &size,
                                 error));
    TWILL_TRY(error, read_number("RANK", params->rank, 0, LONG_MAX, &rank, error));
    if (rank >= size)
        return TWILL_FAIL(error, TWILL_ERR_CONFIG, "RANK=%ld must be below WORLD_SIZE=%ld", rank,
                          size);
    TWILL_TRY(error, read_number("MASTER_PORT", params->master_port, 1, 65535, &port, error));
    boot->rank = (int)rank;
    boot->size = (int)size;
    tcp->host = params->master_addr;
    tcp->port = (uint16_t)port;
    tcp->named = given(params->job);
    if (tcp->named)
        TWILL_TRY(error, read_job(params->job, boot->nonce, error));
    snprintf(boot->how, sizeof(boot->how), "%s: RANK=%ld of %ld at %.80s:%ld",
             tcp->named ? "twillrun" : "environment", rank, size, params->master_addr, port);
    return TWILL_OK;
}

twill_status twill_tcp_resolve(const struct twill_boot_tcp *tcp, struct addrinfo **found,
                               struct twill_error *error)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    char port[16];
    snprintf(port, sizeof(port), "%u", tcp->port);
    int code = getaddrinfo(tcp->host, port, &hints, found);
    /* A name server may be late at the start of a job, but not for long. */
    uint64_t give_up = twill_wire_deadline(twill_min(tcp->boot.timeout_ns, RESOLVE_NS));
    while (code == EAI_AGAIN && twill_now() < give_up) {
        poll(NULL, 0, 100);
        code = getaddrinfo(tcp->host, port, &hints, found);
    }
    if (code != 0)
        return TWILL_FAIL(error, TWILL_ERR_BOOTSTRAP, "rank %d: MASTER_ADDR=%.200s: %s",
                          tcp->boot.rank, tcp->host,
                          code == EAI_SYSTEM ? strerror(errno) : gai_strerror(code));
    return TWILL_OK;
}

static void tcp_close(struct twill_boot *boot)
{
    struct twill_boot_tcp *tcp = (struct twill_boot_tcp *)boot;
    for (int r = 0; tcp->peer && r < boot->size; r++)
        if (tcp->peer[r].fd >= 0)
            close(tcp->peer[r].fd);
    if (tcp->listener >= 0)
        close(tcp->listener);
    if (tcp->root >= 0)
        close(tcp->root);
    free(tcp->peer);
    free(tcp->polls);
    free(tcp);
}

/* Rank 0: a place for everybody, and a nonce if the launcher gave none. */
static twill_status prepare_root(struct twill_boot_tcp *tcp, struct twill_error *error)
{
    size_t size = (size_t)tcp->boot.size;
    tcp->peer = calloc(size, sizeof(*tcp->peer));
    tcp->polls = calloc(size + 1 + TWILL_TCP_PENDING, sizeof(*tcp->polls));
    if (!tcp->peer || !tcp->polls)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "rank 0: no memory for %zu ranks", size);
    for (size_t r = 0; r < size; r++)
        tcp->peer[r].fd = -1;
    if (!tcp->named)
        TWILL_TRY(error, twill_boot_random(tcp->boot.nonce, error));
    return TWILL_OK;
}

/* What was asked for; else what the connections came to, which is loopback when none came from
 * elsewhere. */
static void settle_address(struct twill_boot *boot, const char *wanted)
{
    const char *why = "where other ranks reach rank 0";
    if (given(wanted)) {
        snprintf(boot->address, sizeof(boot->address), "%s", wanted);
        return;
    }
    if (strncmp(boot->address, "127.", 4) == 0) /* such as a host name's 127.0.1.1: no interface
                                                 * has it, yet all of 127/8 is loopback */
        snprintf(boot->address, sizeof(boot->address), "127.0.0.1");
    if (boot->size == 1)
        why = "there is no other rank";
    else if (strncmp(boot->address, "127.", 4) == 0 || strcmp(boot->address, "::1") == 0)
        why = "all ranks are on this host";
    else if (boot->rank > 0)
        why = "the way to rank 0";
    snprintf(boot->address_why, sizeof(boot->address_why), "%s", why);
}

static twill_status tcp_open(struct twill_boot **boot, const struct twill_boot_params *params,
                             struct twill_error *error)
{
    char wanted[TWILL_ADDRESS_TEXT] = "";
    twill_status status;
    TWILL_TRY(error, twill_boot_new(boot, &twill_boot_tcp, params, error));
    struct twill_boot_tcp *tcp = (struct twill_boot_tcp *)*boot;
    tcp->listener = tcp->root = -1;
    snprintf((*boot)->address, sizeof((*boot)->address), "127.0.0.1");
    TWILL_TRY_OR_FAIL(error, read_params(tcp, params, error));
    /* A wrong TWILL_INTERFACE is the same on all ranks: say so before waiting for anybody. */
    if (given(params->interface))
        TWILL_TRY_OR_FAIL(error, twill_interface_choose(
                                     wanted, (*boot)->interface, params->interface, NULL,
                                     (*boot)->address_why, sizeof((*boot)->address_why), error));
    if ((*boot)->rank == 0)
        TWILL_TRY_OR_FAIL(error, prepare_root(tcp, error));
    if ((*boot)->size > 1 && (*boot)->rank == 0)
        TWILL_TRY_OR_FAIL(error, twill_tcp_meet(tcp, params->listen_fd, error));
    else if ((*boot)->size > 1)
        TWILL_TRY_OR_FAIL(error, twill_tcp_join(tcp, error));
    settle_address(*boot, wanted);
    tcp->host = NULL;
    return TWILL_OK;
fail:
    tcp_close(*boot);
    *boot = NULL;
    return status;
}

const struct twill_boot_ops twill_boot_tcp = {
    .size_of = sizeof(struct twill_boot_tcp),
    .name = "tcp",
    .allgather = twill_tcp_allgather,
    .close = tcp_close,
    .applies = tcp_applies,
    .open = tcp_open,
};
