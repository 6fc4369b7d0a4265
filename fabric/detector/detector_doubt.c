/* SPDX-License-Identifier: Apache-2.0 */
/* Failure detector: what connections that failed in set-up, when all ranks lived, tell. */
#include "fabric/detector/detector_state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

size_t twill_detector_describe(const struct twill_detector *detector, char *text, size_t bytes)
{
    const struct twill_hosts *hosts = &detector->hosts;
    uint32_t to = 0, own = twill_hosts_own(detector), failed = UINT32_MAX;
    for (uint32_t h = 0; h < hosts->count; h++) {
        to += twill_hosts_connected(hosts, own, h);
        if (hosts->why[h] != 0 && (failed == UINT32_MAX || (twill_hosts_call(hosts, own, h) &&
                                                            !twill_hosts_call(hosts, own, failed))))
            failed = h;
    }
    int used = snprintf(
        text, bytes, "rank %u connects this host to %u of %u other%s; %u of them failed",
        hosts->lowest[own], to, hosts->count - 1, hosts->count == 2 ? "" : "s", hosts->missing);
    if (failed == UINT32_MAX || used < 0 || (size_t)used >= bytes)
        return hosts->missing;
    const struct twill_listen_address *place = &detector->place[hosts->lowest[failed]];
    bool called = twill_hosts_call(hosts, own, failed);
    snprintf(text + used, bytes - (size_t)used, ": %s %s%s %s (firewall? twillrun --check)",
             called ? "to" : "from",
             called ? TWILL_ADDRESS_AND_PORT(place->address, place->port) : place->address,
             called ? ":" : "",
             !called                           ? "comes no connection"
             : hosts->why[failed] == ETIMEDOUT ? "no answer"
                                               : strerror(hosts->why[failed]));
    return hosts->missing;
}

bool twill_hosts_may_live(const struct twill_detector *detector, uint32_t peer)
{
    const struct twill_hosts *hosts = &detector->hosts;
    if (hosts->count == 0)
        return false;
    uint32_t host = hosts->of[peer], own = twill_hosts_own(detector);
    unsigned ranks = 0;
    for (uint32_t r = 0; r < (uint32_t)detector->size; r++)
        ranks += hosts->of[r] == host;
    /* Its ranks lived in set-up. */
    bool barred = hosts->why[host] != 0 && twill_hosts_call(hosts, own, host);
    /* The connection between the hosts ends with its only rank. */
    bool linked = twill_hosts_connected(hosts, own, host) && hosts->state[host] == HOST_MONITORED &&
                  hosts->why[host] == 0;
    return barred || (linked && ranks == 1);
}
