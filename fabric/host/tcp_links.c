/* SPDX-License-Identifier: Apache-2.0 */
#include "fabric/host/tcp_links.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define STATE_ESTABLISHED 1
#define ANSWER_BYTES      ((size_t)32 << 10)

/* Offsets in the kernel's struct tcp_info of 64-bit counters that the headers of old systems do not
 * have: bytes acknowledged, microseconds of sending, and those of them limited by the peer. */
enum { ACKED_AT = 120, BUSY_AT = 168, LIMITED_AT = 176 };

/* The list being made. */
struct links {
    struct twill_tcp_link *link;
    size_t count, room;
};

/* Return the counter at `offset` of a struct tcp_info of `bytes` bytes, or 0 if it has none. */
static uint64_t counter_at(const unsigned char *info, size_t bytes, size_t offset)
{
    uint64_t value = 0;
    if (offset + sizeof(value) <= bytes)
        memcpy(&value, info + offset, sizeof(value));
    return value;
}

/* Write an address with its port. An IPv4 address in IPv6 is written as the former. */
static void write_address(char text[TWILL_ADDRESS_PORT_TEXT], int family, const uint32_t address[4],
                          uint16_t port)
{
    char numeric[TWILL_ADDRESS_TEXT] = "";
    const bool mapped =
        family == AF_INET6 && address[0] == 0 && address[1] == 0 && address[2] == htonl(0xffff);
    inet_ntop(mapped ? AF_INET : family, mapped ? &address[3] : address, numeric, sizeof(numeric));
    (void)twill_address_with_port(text, numeric, ntohs(port));
}

/* Append what one message of the kernel, of `bytes` bytes, says about a connection. */
static void add_link(struct links *links, const struct inet_diag_msg *about, size_t bytes)
{
    const unsigned char *info = NULL;
    size_t info_bytes = 0, left = bytes - sizeof(*about);
    for (const struct rtattr *part = (const void *)(about + 1); RTA_OK(part, left);
         part = RTA_NEXT(part, left))
        if (part->rta_type == INET_DIAG_INFO) {
            info = RTA_DATA(part);
            info_bytes = RTA_PAYLOAD(part);
        }
    if (info == NULL)
        return;
    if (links->count == links->room) {
        size_t room = links->room * 2 + 64;
        struct twill_tcp_link *more = realloc(links->link, room * sizeof(*more));
        if (more == NULL)
            return;
        links->link = more;
        links->room = room;
    }
    uint64_t busy = counter_at(info, info_bytes, BUSY_AT),
             limited = counter_at(info, info_bytes, LIMITED_AT);
    struct twill_tcp_link *link = &links->link[links->count++];
    *link = (struct twill_tcp_link){.inode = about->idiag_inode,
                                    .bytes = counter_at(info, info_bytes, ACKED_AT),
                                    .busy = (double)(busy - twill_min(limited, busy)) * 1e-6};
    write_address(link->local, about->idiag_family, about->id.idiag_src, about->id.idiag_sport);
    write_address(link->remote, about->idiag_family, about->id.idiag_dst, about->id.idiag_dport);
}

/* Append the connections of an answer of `bytes` bytes. Returns whether more answers follow. */
static bool add_answer(struct links *links, const void *answer, size_t bytes)
{
    for (const struct nlmsghdr *head = answer; NLMSG_OK(head, bytes);
         head = NLMSG_NEXT(head, bytes)) {
        if (head->nlmsg_type == NLMSG_DONE || head->nlmsg_type == NLMSG_ERROR)
            return false;
        if (head->nlmsg_len >= NLMSG_LENGTH(sizeof(struct inet_diag_msg)))
            add_link(links, NLMSG_DATA(head), head->nlmsg_len - NLMSG_HDRLEN);
    }
    return true;
}

/* Append the connections of an address family. The kernel answers a request before the call that
 * reads the answer returns, so that nothing is waited for. */
static void add_family(struct links *links, int socket, int family, void *answer)
{
    struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 ask;
    } request = {.head = {.nlmsg_len = sizeof(request),
                          .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                          .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
                 .ask = {.sdiag_family = (uint8_t)family,
                         .sdiag_protocol = IPPROTO_TCP,
                         .idiag_ext = 1 << (INET_DIAG_INFO - 1),
                         .idiag_states = 1 << STATE_ESTABLISHED}};
    ssize_t got = send(socket, &request, sizeof(request), 0);
    do
        got = got > 0 ? recv(socket, answer, ANSWER_BYTES, MSG_DONTWAIT) : 0;
    while (got > 0 && add_answer(links, answer, (size_t)got));
}

size_t twill_tcp_links_list(struct twill_tcp_link **list)
{
    struct links links = {NULL, 0, 0};
    int kernel = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    void *answer = malloc(ANSWER_BYTES);
    if (kernel >= 0 && answer != NULL) {
        add_family(&links, kernel, AF_INET, answer);
        add_family(&links, kernel, AF_INET6, answer);
    }
    if (kernel >= 0)
        close(kernel);
    free(answer);
    *list = links.link;
    return links.count;
}
