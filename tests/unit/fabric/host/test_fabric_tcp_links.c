/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel counts for TCP connections, of one over loopback in IPv4 and IPv6. */
#include "fabric/host/tcp_links.h"
#include "tests/support/ranks.h"
#include "tests/support/unit.h"

#include <linux/tcp.h>
#include <math.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SENT = 8 << 20 };

/* Connect end[0] to end[1] over loopback. Returns false if the family is not there. */
static bool connect_ends(int family, int end[2])
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr *address = family == AF_INET ? (void *)&four : (void *)&six;
    socklen_t bytes = family == AF_INET ? sizeof(four) : sizeof(six);
    int listener = socket(family, SOCK_STREAM, 0);
    end[0] = socket(family, SOCK_STREAM, 0);
    bool fine = listener >= 0 && end[0] >= 0 && bind(listener, address, bytes) == 0 &&
                listen(listener, 1) == 0 && getsockname(listener, address, &bytes) == 0 &&
                connect(end[0], address, bytes) == 0;
    end[1] = fine ? accept(listener, NULL, NULL) : -1;
    close(listener);
    return fine;
}

/* Send SENT bytes from one end to the other. */
static void send_all(const int end[2])
{
    static char data[1 << 16];
    for (size_t sent = 0, received = 0; received < SENT;) {
        ssize_t out = sent < SENT ? send(end[0], data, sizeof(data), MSG_DONTWAIT) : 0;
        ssize_t in = recv(end[1], data, sizeof(data), MSG_DONTWAIT);
        sent += out > 0 ? (size_t)out : 0;
        received += in > 0 ? (size_t)in : 0;
        if (sent >= SENT && received >= sent)
            break;
    }
}

/* Set *link to the connection of a socket. Returns false if the kernel lists none. */
static bool find_link(int socket, struct twill_tcp_link *link)
{
    struct stat about;
    struct twill_tcp_link *list;
    size_t count = twill_tcp_links_list(&list);
    bool found = false;
    assert_int_equal(fstat(socket, &about), 0);
    for (size_t i = 0; i < count && !found; i++) {
        found = list[i].inode == about.st_ino;
        *link = list[i];
    }
    free(list);
    return found;
}

TWILL_TEST(counters_of_connections)
{
    static const struct {
        int family;
        const char *address;
    } cases[] = {{AF_INET, "127.0.0.1:"}, {AF_INET6, "[::1]:"}};
    for (size_t c = 0; c < TWILL_ARRAY_LENGTH(cases); c++) {
        struct twill_tcp_link here, there;
        int end[2];
        if (!connect_ends(cases[c].family, end))
            continue;
        if (!find_link(end[0], &here)) /* a kernel without sock_diag(7) */
            skip();
        assert_in_range(here.bytes, 0, 1);
        send_all(end);
        uint64_t deadline = twill_now() + TWILL_TEST_PATIENCE; /* the last acknowledgement */
        while (find_link(end[0], &here) && here.bytes < SENT)
            assert_true(twill_now() < deadline);
        assert_true(find_link(end[1], &there));
        assert_ptr_equal(strstr(here.local, cases[c].address), here.local);
        assert_string_equal(here.local, there.remote);
        assert_string_equal(here.remote, there.local);
        struct tcp_info info = {.tcpi_busy_time = 0};
        socklen_t bytes = sizeof(info);
        assert_int_equal(getsockopt(end[0], IPPROTO_TCP, TCP_INFO, &info, &bytes), 0);
        assert_int_equal(here.bytes, info.tcpi_bytes_acked);
        assert_int_equal(llround(here.busy * 1e6), info.tcpi_busy_time - info.tcpi_rwnd_limited);
        assert_in_range(there.bytes, 0, 1);
        close(end[0]);
        close(end[1]);
    }
}
