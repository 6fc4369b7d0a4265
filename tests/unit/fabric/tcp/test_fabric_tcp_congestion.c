/* SPDX-License-Identifier: Apache-2.0 */
/* Where reno replaces a congestion control that paces: which hosts, which settings, and that
 * connections then have it at both ends. */
#include "tests/support/tcp_ends.h"
#include "tests/support/transport_settings.h"
#include "tests/support/unit.h"

#include <netinet/tcp.h>

enum {
    NO = TWILL_TCP_UNPACED,
    SYSTEM = TWILL_TCP_PACED_BY_SYSTEM,
    GOOD = TWILL_TCP_PACED_FOR_GOOD
};

TWILL_TEST(test_needs)
{
    static const struct {
        const char *controls; /* of each rank: unpaced, by the system, for good */
        uint64_t networks[3];
        bool near, paced;
    } rows[] = {
        {"sss", {7, 7, 7}, true, false},  {"sss", {7, 7, 8}, false, true},
        {"sss", {7, 0, 7}, false, true},  {"sss", {0, 0, 0}, false, true},
        {"usu", {7, 7, 7}, true, false},  {"usu", {7, 8, 7}, false, true},
        {"uuu", {7, 8, 7}, false, false}, {"uug", {7, 7, 7}, true, true},
        {"gsu", {1, 2, 3}, false, true},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(rows); i++) {
        enum twill_tcp_control controls[3];
        for (unsigned r = 0; r < 3; r++)
            controls[r] = rows[i].controls[r] == 'u'   ? TWILL_TCP_UNPACED
                          : rows[i].controls[r] == 's' ? TWILL_TCP_PACED_BY_SYSTEM
                                                       : TWILL_TCP_PACED_FOR_GOOD;
        bool paced = !rows[i].paced;
        bool near = twill_tcp_needs_no_pace(controls, rows[i].networks, 3, &paced);
        if (near != rows[i].near || paced != rows[i].paced)
            fail_msg("row %zu: %d %d", i, near, paced);
    }
}

static const char *name_of(int fd, char name[32])
{
    socklen_t length = 31;
    memset(name, 0, 32);
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length) != 0)
        return "?";
    return name;
}

/* What a socket of this machine has, and what it paces by. */
TWILL_TEST(test_control)
{
    const struct twill_transport_params unset = {0};
    const struct test_setting own[] = {{"TWILL_TUNE=congestion", "bbr"}, {NULL, NULL}};
    const struct twill_transport_params set = {.setting = test_setting, .settings = own};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    char name[32];
    assert_true(fd >= 0);
    assert_true(twill_tcp_use_reno(fd));
    assert_string_equal(name_of(fd, name), "reno");
    assert_int_equal(twill_tcp_control_of(&unset, fd), TWILL_TCP_UNPACED);
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "bbr", 3) == 0) {
        assert_int_equal(twill_tcp_control_of(&unset, fd), TWILL_TCP_PACED_BY_SYSTEM);
        assert_int_equal(twill_tcp_control_of(&set, fd), TWILL_TCP_PACED_FOR_GOOD);
    }
    close(fd);
    assert_false(twill_tcp_use_reno(-1));
}

/* Both ends of a connection over lo, which is one network. */
TWILL_TEST_OF_RANKS(test_connected, 2)
{
    struct tcp_end end;
    size_t bytes = 100000;
    char name[32];
    if (end_open(&end, bootstrap, user) && twill_test_sweep(&end.end, &bytes, 1)) {
        struct twill_tcp *t = (struct twill_tcp *)end.end.transport;
        int fd = t->peers[1 - rank]->lanes[0].fd;
        bool paces = strncmp(name_of(t->common->listener, name), "bbr", 3) == 0;
        TWILL_NOTE(!paces && !t->common->paced && t->once == TWILL_TCP_ONCE, "listener: %s", name);
        /* Also if rank 0 connects before rank 1 has set its listener to reno. */
        TWILL_NOTE(!t->common->unpaced || strcmp(name_of(fd, name), "reno") == 0, "connection: %s",
                   name);
        rank_barrier(&end);
    }
    end_close(&end);
}
