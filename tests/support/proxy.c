/* SPDX-License-Identifier: Apache-2.0 */
/* The proxy: a thread, a poll() over all connections, bytes passed on one by one. */
#include "tests/support/proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHUNK (64u << 10)

static struct sockaddr_in loopback(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static bool send_whole(int fd, const unsigned char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = send(fd, data, bytes, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        data += n;
        bytes -= (size_t)n;
    }
    return true;
}

static void end_way(struct twill_proxy *proxy, const struct twill_proxy_way *way)
{
    int from = way->from, to = way->to;
    for (size_t i = 0; i < proxy->used; i++)
        if (proxy->ways[i].from == from || proxy->ways[i].from == to)
            proxy->ways[i].from = -1;
    close(from);
    close(to);
}

/* Look for the marker, and flip a bit of its last byte. */
static void look_for_marker(struct twill_proxy *proxy, struct twill_proxy_way *way,
                            unsigned char *byte)
{
    static const char marker[] = TWILL_PROXY_MARKER;
    if (*byte == (unsigned char)marker[way->matched])
        way->matched++;
    else
        way->matched = *byte == (unsigned char)marker[0];
    if (way->matched < sizeof(marker) - 1)
        return;
    way->matched = 0;
    proxy->markers++;
    if (proxy->flips > 0) {
        proxy->flips--;
        *byte ^= 4;
    }
}

/* Forward a chunk, with the attack. Returns false if the connection ends. */
static bool forward(struct twill_proxy *proxy, struct twill_proxy_way *way)
{
    static unsigned char in[CHUNK], out[CHUNK + sizeof(way->last)];
    size_t n = 0;
    ssize_t got = recv(way->from, in, sizeof(in), 0);
    if (got <= 0)
        return false;
    for (size_t i = 0; i < (size_t)got; i++, way->at++) {
        bool hit = way->first && way->caller && proxy->attack != TWILL_PROXY_NOTHING;
        bool within = hit && way->at >= proxy->offset && way->at < proxy->offset + proxy->bytes;
        look_for_marker(proxy, way, &in[i]);
        if (within && proxy->attack == TWILL_PROXY_DROP)
            continue;
        if (within && proxy->attack == TWILL_PROXY_RECORD)
            proxy->recording[way->at - proxy->offset] = in[i];
        if (within && proxy->attack == TWILL_PROXY_PASTE)
            in[i] = proxy->recording[way->at - proxy->offset];
        hit = hit && way->at == proxy->offset;
        if (hit && proxy->attack == TWILL_PROXY_CUT)
            return send_whole(way->to, out, n) && false;
        if (hit && proxy->attack == TWILL_PROXY_FLIP)
            in[i] ^= 0x10;
        for (size_t b = 0; hit && proxy->attack == TWILL_PROXY_REPEAT && b < proxy->bytes; b++)
            out[n++] = way->last[(way->at - proxy->bytes + b) % sizeof(way->last)];
        way->last[way->at % sizeof(way->last)] = in[i];
        out[n++] = in[i];
        proxy->forwarded += way->caller;
    }
    return send_whole(way->to, out, n);
}

static void accept_pair(struct twill_proxy *proxy)
{
    struct sockaddr_in to = loopback(proxy->target);
    int caller = accept(proxy->listener, NULL, NULL);
    int called = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (proxy->used + 2 > 2 * TWILL_PROXY_PAIRS ||
        connect(called, (struct sockaddr *)&to, sizeof(to)) != 0) {
        close(caller);
        close(called);
        return;
    }
    bool first = proxy->used == 0;
    proxy->ways[proxy->used++] =
        (struct twill_proxy_way){.from = caller, .to = called, .caller = true, .first = first};
    proxy->ways[proxy->used++] =
        (struct twill_proxy_way){.from = called, .to = caller, .first = first};
}

static void *serve(void *user)
{
    struct twill_proxy *proxy = user;
    for (;;) {
        struct pollfd polls[2 + 2 * TWILL_PROXY_PAIRS] = {
            {.fd = proxy->stop[0], .events = POLLIN}, {.fd = proxy->listener, .events = POLLIN}};
        size_t used = proxy->used;
        for (size_t i = 0; i < used; i++)
            polls[2 + i] = (struct pollfd){.fd = proxy->ways[i].from, .events = POLLIN};
        (void)poll(polls, 2 + used, -1);
        if (polls[0].revents != 0)
            return NULL;
        if (polls[1].revents != 0)
            accept_pair(proxy);
        for (size_t i = 0; i < used; i++)
            if (polls[2 + i].revents != 0 && proxy->ways[i].from >= 0 &&
                !forward(proxy, &proxy->ways[i]))
                end_way(proxy, &proxy->ways[i]);
    }
}

bool twill_proxy_start(struct twill_proxy *proxy)
{
    struct sockaddr_in here = loopback(0);
    socklen_t length = sizeof(here);
    proxy->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(proxy->listener, (struct sockaddr *)&here, sizeof(here)) != 0 ||
        listen(proxy->listener, TWILL_PROXY_PAIRS) != 0 ||
        getsockname(proxy->listener, (struct sockaddr *)&here, &length) != 0 ||
        pipe(proxy->stop) != 0)
        return false;
    proxy->port = ntohs(here.sin_port);
    return pthread_create(&proxy->thread, NULL, serve, proxy) == 0;
}

void twill_proxy_stop(struct twill_proxy *proxy)
{
    (void)!write(proxy->stop[1], "", 1);
    pthread_join(proxy->thread, NULL);
    for (size_t i = 0; i < proxy->used; i++)
        if (proxy->ways[i].from >= 0)
            end_way(proxy, &proxy->ways[i]);
    close(proxy->listener);
    close(proxy->stop[0]);
    close(proxy->stop[1]);
}
