/* SPDX-License-Identifier: Apache-2.0 */
/* The congestion control of connections.
 *
 * bbr, version 1 of Linux, paces by an estimated bandwidth. Between hosts of one network that only
 * costs time, and much time where segments overtake each other, as when sender or receiver move
 * between cores while packets wait for both (virtual machines and containers of one host). The
 * sender then takes some segments for lost and sends them again. The receiver reports that this was
 * unnecessary (D-SACK), which lets reno and cubic undo their reduction, while bbr keeps a small
 * window for long. An alltoall of 16 MiB, 2x2 ranks in namespaces on two cores, takes 64 ms with
 * bbr and 9.6 with reno (medians).
 *
 * A connection that has begun with bbr stays paced whatever it is set to, so this is decided
 * before. Connections use reno, which every kernel has, if the system's control paces,
 * TWILL_TUNE=congestion is not set, and all addresses are in one network. A connection made before
 * its listener had reno gets it when accepted. The kernel still spaces its segments. */
#include "fabric/tcp/tcp.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Return whether TWILL_TUNE=congestion is set. */
static bool is_requested(const struct twill_transport_params *params)
{
    const char *name = twill_transport_setting(params, "TWILL_TUNE=congestion");
    return name != NULL && name[0] != '\0';
}

twill_status twill_tcp_congestion(const struct twill_transport_params *params, int fd,
                                  struct twill_error *error)
{
    const char *name = twill_transport_setting(params, "TWILL_TUNE=congestion");
    if (!is_requested(params))
        return TWILL_OK;
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) == 0)
        return TWILL_OK;
    return TWILL_FAIL(error, TWILL_ERR_CONFIG,
                      "TWILL_TUNE=congestion=%s: %s (available: "
                      "/proc/sys/net/ipv4/tcp_allowed_congestion_control)",
                      name, strerror(errno));
}

/* Why bbr is replaced by reno within a network: it estimates the rate from the data that it is
 * given. A sender that hands over everything at once and then serves the other direction gets a
 * third of the rate of many small steps, in which bbr knows that the application is the limit. For
 * 1 MiB both ways between two hosts bbr takes 760 us at once and 260 us in steps of 128 KiB. */
bool twill_tcp_congestion_text(int fd, char *text, size_t bytes)
{
    char name[32] = "";
    socklen_t length = sizeof(name) - 1;
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length) != 0)
        snprintf(name, sizeof(name), "unknown");
    bool paces = strncmp(name, "bbr", 3) == 0;
    snprintf(
        text, bytes, "congestion control %s%s", name,
        paces ? ", which paces: hosts of one network have reno unless TWILL_TUNE=congestion is set"
              : "");
    return paces;
}

bool twill_tcp_use_reno(int fd)
{
    return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", sizeof("reno") - 1) == 0;
}

enum twill_tcp_control twill_tcp_control_of(const struct twill_transport_params *params, int fd)
{
    if (!twill_tcp_congestion_text(fd, NULL, 0))
        return TWILL_TCP_UNPACED;
    int trial = is_requested(params) ? -1 : socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool can = trial >= 0 && twill_tcp_use_reno(trial);
    if (trial >= 0)
        close(trial);
    return can ? TWILL_TCP_PACED_BY_SYSTEM : TWILL_TCP_PACED_FOR_GOOD;
}

bool twill_tcp_needs_no_pace(const enum twill_tcp_control *controls, const uint64_t *networks,
                             uint32_t ranks, bool *paced)
{
    bool near = true, system = false, good = false;
    for (uint32_t r = 0; r < ranks; r++) {
        near &= networks[r] != 0 && networks[r] == networks[0];
        system |= controls[r] == TWILL_TCP_PACED_BY_SYSTEM;
        good |= controls[r] == TWILL_TCP_PACED_FOR_GOOD;
    }
    *paced = good || (system && !near);
    return near;
}
