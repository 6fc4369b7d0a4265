/* SPDX-License-Identifier: Apache-2.0 */
/* The records of a lane by themselves, two ends on a pair of sockets. */
#include "fabric/tcp/tcp_records.h"
#include "kernels/kernels.h"
#include "tests/support/unit.h"

#include <sys/socket.h>

#define ENOUGH 8u /* records that are acknowledged without being asked for */

struct records_pair {
    struct twill_tcp_protection how;
    struct twill_transport_counters counters[2];
    struct twill_tcp_records *end[2];
    int fd[2];
};

static void pair_open(struct records_pair *pair)
{
    const struct twill_kernels *kernels;
    const struct twill_session session = {.caller = true};
    assert_int_equal(twill_kernels_select(&kernels, NULL, NULL), TWILL_OK);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair->fd), 0);
    pair->how = (struct twill_tcp_protection){.crc32c = kernels->crc32c, .interface = "lo"};
    for (uint32_t i = 0; i < 2; i++) {
        pair->end[i] = twill_tcp_records_new(&pair->how, &pair->counters[i], 1 - i, "the other");
        assert_non_null(pair->end[i]);
        twill_tcp_records_begin(pair->end[i], pair->fd[i], &session);
    }
}

static void pair_close(struct records_pair *pair)
{
    for (int i = 0; i < 2; i++) {
        twill_tcp_records_free(pair->end[i]);
        (void)close(pair->fd[i]);
    }
}

/* Send these bytes in a record of their own. */
static void send_record(struct twill_tcp_records *from, size_t bytes)
{
    unsigned char data[100] = {0};
    const struct iovec iov = {data, bytes};
    assert_int_equal(twill_tcp_records_write(from, &iov, 1, bytes), bytes);
    assert_true(twill_tcp_records_push(from) > 0);
}

static void read_bytes(struct twill_tcp_records *at, size_t bytes)
{
    unsigned char data[100];
    struct twill_error error = {.status = TWILL_OK};
    assert_int_equal(twill_tcp_records_read(at, data, bytes, &error), bytes);
}

/* An acknowledgement arrives with the data before it, and is not read with them. Nothing else
 * arrives: a sender whose window is full waits for this one. */
TWILL_TEST(test_acknowledged_behind_data)
{
    struct records_pair pair = {.fd = {-1, -1}};
    struct twill_error error = {.status = TWILL_OK};
    pair_open(&pair);
    for (unsigned i = 0; i < ENOUGH; i++)
        send_record(pair.end[0], 1);
    send_record(pair.end[1], 100);
    read_bytes(pair.end[1], ENOUGH);
    read_bytes(pair.end[0], 100);
    assert_true(twill_tcp_records_kept(pair.end[0]));
    assert_int_equal(twill_tcp_records_look(pair.end[0], &error), 1);
    assert_false(twill_tcp_records_kept(pair.end[0]));
    assert_int_equal(twill_tcp_records_look(pair.end[0], &error), 0);
    assert_int_equal(error.status, TWILL_OK);
    pair_close(&pair);
}
