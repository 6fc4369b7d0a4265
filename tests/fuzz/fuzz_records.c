/* SPDX-License-Identifier: Apache-2.0 */
/* Records of the tcp transport. A sender's valid records are changed on the way as the input says,
 * or replaced by it. Encrypted ones never give other bytes than were sent. The checksum is a plain
 * sum here, which an input can get right. */
#include "fabric/tcp/tcp_records.h"
#include "tests/fuzz/fuzz_input.h"

#include <errno.h>

#define RECORDS_BYTES 40000 /* of payload: three records */
#define RECORDS_MOST  65536

static uint32_t weak_sum(uint32_t sum, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++)
        sum += at[i];
    return sum & 0xff;
}

/* Write valid records to `wire`. Returns their bytes. */
static size_t send_records(const struct twill_tcp_protection *how, const unsigned char *payload,
                           unsigned char *wire)
{
    const struct twill_session session = {.key = {{1, 2, 3}}, .caller = true};
    struct twill_transport_counters counters = {0};
    struct twill_tcp_records *records = twill_tcp_records_new(how, &counters, "rank 1");
    struct iovec iov = {(void *)(uintptr_t)payload, RECORDS_BYTES};
    int fd[2];
    fuzz_must(records != NULL && socketpair(AF_UNIX, SOCK_STREAM, 0, fd) == 0);
    twill_tcp_records_begin(records, fd[0], &session);
    fuzz_must(twill_tcp_records_write(records, &iov, 1, RECORDS_BYTES) == RECORDS_BYTES);
    ssize_t sent = twill_tcp_records_push(records);
    fuzz_must(sent > RECORDS_BYTES && recv(fd[1], wire, RECORDS_MOST, 0) == sent);
    twill_tcp_records_free(records);
    close(fd[0]);
    close(fd[1]);
    return (size_t)sent;
}

/* Change bytes, three of the input for each change. */
static void change_records(unsigned char *wire, size_t bytes, const uint8_t *data, size_t size)
{
    for (; size >= 3; data += 3, size -= 3)
        wire[(data[0] << 8 | data[1]) % bytes] ^= data[2];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned char payload[RECORDS_BYTES], wire[RECORDS_MOST], got[RECORDS_MOST];
    const struct twill_session session = {.key = {{1, 2, 3}}, .caller = false};
    struct twill_tcp_protection how = {.interface = "lo"};
    struct twill_transport_counters counters = {0};
    struct twill_error error = {0};
    int fd[2];
    if (size < 2)
        return 0;
    how.encrypts = data[0] % 2 != 0;
    how.crc32c = how.encrypts ? NULL : weak_sum;
    for (size_t i = 0; i < RECORDS_BYTES; i++)
        payload[i] = (unsigned char)(i * 7 + i / 256);
    struct twill_tcp_records *records = twill_tcp_records_new(&how, &counters, "rank 0");
    struct iovec iov = {payload, 1000};
    fuzz_must(records != NULL && socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd) == 0);
    twill_tcp_records_begin(records, fd[0], &session);
    fuzz_must(twill_tcp_records_write(records, &iov, 1, 1000) == 1000);
    (void)twill_tcp_records_push(records); /* so that it may be asked for */
    size_t bytes = data[0] / 2 % 2 != 0 ? 0 : send_records(&how, payload, wire);
    if (bytes > 0)
        change_records(wire, bytes, data + 2, size - 2);
    (void)!send(fd[1], wire, bytes, MSG_NOSIGNAL);
    fuzz_feed(fd[1], data + 2, bytes > 0 ? 0 : size - 2);
    if (data[1] % 2 != 0)
        (void)twill_tcp_records_look(records, &error);
    size_t all = 0;
    for (ssize_t n = 1; n > 0 && all<sizeof(got); all += n> 0 ? (size_t)n : 0)
        n = twill_tcp_records_read(records, got + all, sizeof(got) - all, &error);
    fuzz_must(!how.encrypts || (all <= RECORDS_BYTES && memcmp(got, payload, all) == 0));
    twill_tcp_records_free(records);
    close(fd[0]);
    close(fd[1]);
    return 0;
}
