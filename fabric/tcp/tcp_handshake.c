/* SPDX-License-Identifier: Apache-2.0 */
/* Contents of a connection's handshake, and congestion control. */
#include "fabric/tcp/tcp.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>

bool twill_tcp_hello_call(const struct twill_tcp *t, const struct twill_tcp_lane *lane,
                          struct twill_hello *hello)
{
    const struct twill_hello_identity identity = {.role = TWILL_HELLO_DATA,
                                                  .rank = twill_tcp_rank_in_job(t, t->rank),
                                                  .to = twill_tcp_rank_in_job(t, lane->peer->rank),
                                                  .size = t->common->size,
                                                  .argument =
                                                      (uint64_t)t->params.comm << 8 | lane->number};
    return twill_hello_call(hello, &t->common->secret, &identity);
}

bool twill_tcp_hello_expect(const struct twill_tcp_common *common, struct twill_hello *hello)
{
    return twill_hello_expect(hello, &common->secret, TWILL_HELLO_DATA, common->rank, common->size);
}

uint32_t twill_tcp_hello_comm(const struct twill_hello *hello)
{
    return (uint32_t)(hello->said.call.argument >> 8);
}

bool twill_tcp_hello_fits(const struct twill_tcp *t, const struct twill_hello *hello,
                          uint32_t *rank, unsigned *lane)
{
    *lane = hello->said.call.argument & 0xff;
    for (*rank = 0; *rank < t->rank; ++*rank)
        if (twill_tcp_rank_in_job(t, *rank) == hello->said.call.rank)
            return *lane < TWILL_LANES;
    return false;
}

twill_status twill_tcp_congestion(const struct twill_transport_params *params, int fd,
                                  struct twill_error *error)
{
    const char *name = twill_transport_setting(params, "TWILL_TUNE=congestion");
    if (name == NULL || name[0] == '\0')
        return TWILL_OK;
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) == 0)
        return TWILL_OK;
    return TWILL_FAIL(error, TWILL_ERR_CONFIG,
                      "TWILL_TUNE=congestion=%s: %s (available: "
                      "/proc/sys/net/ipv4/tcp_allowed_congestion_control)",
                      name, strerror(errno));
}

/* bbr estimates the network's rate from what it is given: a sender that hands over everything at
 * once and then serves the other direction gets a third of the rate of many small steps, in which
 * bbr knows that the application is the limit. 1 MiB both ways between two hosts, in us: bbr at
 * once 760, in steps of 128 KiB 260; cubic 230 and 260. */
bool twill_tcp_congestion_text(int fd, char *text, size_t bytes)
{
    char name[32] = "";
    socklen_t length = sizeof(name) - 1;
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length) != 0)
        snprintf(name, sizeof(name), "unknown");
    bool paces = strncmp(name, "bbr", 3) == 0;
    snprintf(text, bytes, "congestion control %s%s", name,
             paces ? ", which paces: where hosts are near, TWILL_TUNE=congestion=cubic is quicker"
                   : "");
    return paces;
}
