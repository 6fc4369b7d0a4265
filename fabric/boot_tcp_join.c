/* SPDX-License-Identifier: Apache-2.0 */
/* The other ranks' side of the rendezvous: find rank 0, greet it, wait to be welcomed. Rank 0 may
 * start later, and something else may answer at its port meanwhile: try again until the deadline.
 */
#include "fabric/boot_tcp.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ATTEMPT_NS UINT64_C(3000000000) /* for one address to answer */
#define PAUSE_MS   50                   /* between attempts */

struct search {
    struct twill_boot_tcp *tcp;
    uint64_t deadline;
    char last[96]; /* what stopped the last attempt */
};

/* One address: a connected socket, or -1 and s->last. */
static int try_address(struct search *s, const struct addrinfo *a)
{
    struct pollfd one = {.fd = twill_socket_new(a->ai_family), .events = POLLOUT};
    int why = 0;
    if (one.fd < 0) {
        snprintf(s->last, sizeof(s->last), "socket: %s", strerror(errno));
        return -1;
    }
    int outcome = twill_socket_connect(one.fd, a->ai_addr, a->ai_addrlen);
    if (outcome < 0) {
        why = errno;
    } else if (outcome > 0) {
        uint64_t until = twill_min(s->deadline, twill_wire_deadline(ATTEMPT_NS));
        why = twill_wire_poll(&one, 1, until) > 0 ? twill_socket_connected(one.fd) : ETIMEDOUT;
    }
    if (why == 0)
        return one.fd;
    snprintf(s->last, sizeof(s->last), "connect: %s", strerror(why));
    close(one.fd);
    return -1;
}

twill_status twill_tcp_told(struct twill_boot_tcp *tcp, const struct twill_wire_header *header,
                            struct twill_error *error)
{
    char text[TWILL_WIRE_TEXT + 1] = "";
    size_t bytes = twill_min(header->length, TWILL_WIRE_TEXT);
    /* Less than all of it is as well. */
    (void)twill_wire_read_by(tcp->root, text, bytes, twill_wire_deadline(TWILL_BOOT_SLACK_NS));
    for (char *c = text; *c; c++) /* it came over a network: nothing but plain text */
        if ((unsigned char)*c < ' ' || *c == 127)
            *c = '?';
    twill_status status = header->argument < 0 && header->argument >= TWILL_ERR_INTERNAL
                              ? (twill_status)header->argument
                              : TWILL_ERR_BOOTSTRAP;
    return TWILL_FAIL(error, status, "rank %d: rank 0 %s: %s", tcp->boot.rank,
                      header->kind == TWILL_WIRE_REFUSE ? "refused" : "says",
                      *text ? text : "(no reason)");
}

/* Is that what rank 0 would say here? A refusal carries no nonce. */
static bool plausible(const struct twill_boot_tcp *tcp, const struct twill_wire_header *header)
{
    if (!twill_wire_known(header) || header->rank != 0)
        return false;
    if (header->kind == TWILL_WIRE_REFUSE)
        return true;
    if (header->size != (uint32_t)tcp->boot.size ||
        (tcp->named && memcmp(header->nonce, tcp->boot.nonce, TWILL_NONCE_BYTES) != 0))
        return false;
    return header->kind == TWILL_WIRE_FAIL ||
           (header->kind == TWILL_WIRE_WELCOME && header->length == TWILL_ADDRESS_TEXT);
}

/* After a welcome: the nonce, and the address of this host. A rank that reached rank 0 by loopback
 * is on its host. */
static enum twill_wire_moved settle(struct search *s, const struct twill_wire_header *header)
{
    struct twill_boot *boot = &s->tcp->boot;
    struct twill_endpoint here;
    char root[TWILL_ADDRESS_TEXT];
    enum twill_wire_moved outcome = twill_wire_read_by(
        s->tcp->root, root, sizeof(root), twill_wire_later(s->deadline, TWILL_BOOT_SLACK_NS));
    if (outcome != TWILL_WIRE_DONE)
        return outcome;
    root[sizeof(root) - 1] = '\0';
    if (!twill_socket_name(s->tcp->root, false, &here))
        return TWILL_WIRE_GONE;
    memcpy(boot->nonce, header->nonce, sizeof(boot->nonce));
    memcpy(boot->address, here.loopback ? root : here.address, sizeof(boot->address));
    return TWILL_WIRE_DONE;
}

/* Greet, and wait for the answer. *final: the answer is rank 0's; else look on. */
static twill_status greet(struct search *s, bool *final, struct twill_error *error)
{
    struct twill_boot_tcp *tcp = s->tcp;
    struct twill_wire_header header;
    uint64_t now = twill_now(), left = s->deadline > now ? s->deadline - now : 0;
    *final = false;
    twill_wire_fill(&header, TWILL_WIRE_HELLO, &tcp->boot, (int64_t)(left / 1000000), 0);
    enum twill_wire_moved outcome = twill_wire_write_by(tcp->root, &header, NULL, 0, s->deadline);
    if (outcome == TWILL_WIRE_DONE)
        outcome = twill_wire_read_by(tcp->root, &header, sizeof(header),
                                     twill_wire_later(s->deadline, TWILL_BOOT_SLACK_NS));
    if (outcome == TWILL_WIRE_DONE && plausible(tcp, &header)) {
        *final = true;
        if (header.kind != TWILL_WIRE_WELCOME)
            return twill_tcp_told(tcp, &header, error);
        outcome = settle(s, &header);
        *final = outcome == TWILL_WIRE_DONE;
    } else if (outcome == TWILL_WIRE_DONE) {
        snprintf(s->last, sizeof(s->last), "what answers there is not rank 0 of this job");
        return TWILL_OK;
    }
    if (outcome == TWILL_WIRE_LATER)
        snprintf(s->last, sizeof(s->last), "connected, but rank 0 has not said that all are there");
    if (outcome == TWILL_WIRE_GONE)
        snprintf(s->last, sizeof(s->last), "the connection was closed before all were there");
    return TWILL_OK;
}

/* One round over the addresses of MASTER_ADDR. */
static twill_status attempt(struct search *s, const struct addrinfo *found, bool *final,
                            struct twill_error *error)
{
    struct twill_boot_tcp *tcp = s->tcp;
    *final = false;
    for (const struct addrinfo *a = found; a && !*final; a = a->ai_next) {
        tcp->root = try_address(s, a);
        if (tcp->root < 0)
            continue;
        twill_status status = greet(s, final, error);
        if (*final)
            return status;
        close(tcp->root);
        tcp->root = -1;
    }
    return TWILL_OK;
}

twill_status twill_tcp_join(struct twill_boot_tcp *tcp, struct twill_error *error)
{
    struct search s = {.tcp = tcp, .deadline = twill_wire_deadline(tcp->boot.timeout_ns)};
    struct addrinfo *found;
    bool final = false;
    TWILL_TRY(error, twill_tcp_resolve(tcp, &found, error));
    twill_status status = attempt(&s, found, &final, error);
    while (!final && twill_now() < s.deadline) {
        poll(NULL, 0, PAUSE_MS);
        status = attempt(&s, found, &final, error);
    }
    freeaddrinfo(found);
    if (!final)
        return TWILL_FAIL(error, TWILL_ERR_TIMEOUT,
                          "rank %d: rank 0 was not found at MASTER_ADDR=%.100s MASTER_PORT=%u in "
                          "time: %s",
                          tcp->boot.rank, tcp->host, tcp->port, s.last);
    return status;
}
