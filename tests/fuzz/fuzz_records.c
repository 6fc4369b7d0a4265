/* SPDX-License-Identifier: Apache-2.0 */
/* Records of the tcp transport. A sender's valid records are changed on the way as the input says,
 * or replaced by it. Encrypted ones never give other bytes than were sent. The checksum is a plain
 * sum here, which an input can get right. */
#include "fabric/tcp/tcp_records.h"
#include "tests/fuzz/fuzz_socket.h"

#include <errno.h>

#define RECORDS_BYTES (TWILL_TCP_RECORD + 300) /* of payload: one full record and short ones */
#define RECORDS_MOST  (2u * TWILL_TCP_RECORD)

#ifdef __clang__
__attribute__((no_sanitize("address", "undefined", "coverage")))
#endif
static uint32_t
weak_sum(uint32_t sum, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++)
        sum += at[i];
    return sum & 0xff;
}

/* What a sender has sent. */
struct sent_records {
    size_t bytes; /* of `wire` */
    unsigned char payload[RECORDS_BYTES], wire[RECORDS_MOST];
};

/* Write valid records to `wire`. Returns their bytes. */
static size_t send_records(const struct twill_tcp_protection *how, const unsigned char *payload,
                           unsigned char *wire)
{
    static const size_t sizes[] = {100, TWILL_TCP_RECORD, 1, 199};
    const struct twill_session session = {.key = {{1, 2, 3}}, .caller = true};
    struct twill_transport_counters counters = {0};
    struct twill_tcp_records *records = twill_tcp_records_new(how, &counters, 1, "rank 1");
    size_t done = 0, sent = 0;
    int fd[2];
    fuzz_must(records != NULL);
    fuzz_pair(fd);
    twill_tcp_records_begin(records, fd[0], &session);
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(sizes); done += sizes[i++]) {
        struct iovec iov = {(void *)(uintptr_t)(payload + done), sizes[i]};
        fuzz_must(twill_tcp_records_write(records, &iov, 1, sizes[i]) == sizes[i]);
        fuzz_must(twill_tcp_records_push(records) > 0);
    }
    fuzz_must(done == RECORDS_BYTES);
    sent = (size_t)recv(fd[1], wire, RECORDS_MOST, 0);
    fuzz_must(sent > RECORDS_BYTES && sent < RECORDS_MOST);
    twill_tcp_records_free(records);
    return sent;
}

/* Change bytes, three of the input for each change. */
static void change_records(unsigned char *wire, size_t bytes, const uint8_t *data, size_t size)
{
    for (; size >= 3; data += 3, size -= 3)
        wire[(data[0] << 8 | data[1]) % bytes] ^= data[2];
}

/* Make the receiver's records once, as they have much memory, and begin anew with each input. */
static struct twill_tcp_records *receiver(const struct twill_tcp_protection *how, int fd)
{
    static struct twill_transport_counters counters;
    static struct twill_tcp_records *records;
    const struct twill_session session = {.key = {{1, 2, 3}}, .caller = false};
    if (records == NULL)
        records = twill_tcp_records_new(how, &counters, 0, "rank 0");
    fuzz_must(records != NULL);
    *records = (struct twill_tcp_records){.how = how,
                                          .counters = &counters,
                                          .peer = records->peer,
                                          .out.slots = records->out.slots,
                                          .in.bytes = records->in.bytes};
    twill_tcp_records_begin(records, fd, &session);
    return records;
}

/* Make the payload, and what is sent of it with each protection, once. */
static const struct sent_records *sent_of(bool encrypts)
{
    static struct sent_records sent[2];
    if (sent[0].bytes == 0)
        for (int i = 0; i < 2; i++) {
            const struct twill_tcp_protection how = {
                .encrypts = i != 0, .crc32c = i != 0 ? NULL : weak_sum, .interface = "lo"};
            for (size_t n = 0; n < RECORDS_BYTES; n++)
                sent[i].payload[n] = (unsigned char)(n * 7 + n / 256);
            sent[i].bytes = send_records(&how, sent[i].payload, sent[i].wire);
        }
    return &sent[encrypts];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned char wire[RECORDS_MOST], got[RECORDS_MOST];
    static struct twill_tcp_protection how = {.interface = "lo"};
    struct twill_error error = {0};
    int fd[2];
    if (size < 2)
        return 0;
    how.encrypts = data[0] % 2 != 0;
    how.crc32c = how.encrypts ? NULL : weak_sum;
    const struct sent_records *sent = sent_of(how.encrypts);
    struct iovec iov = {(void *)(uintptr_t)sent->payload, 1000};
    fuzz_pair(fd);
    struct twill_tcp_records *records = receiver(&how, fd[0]);
    fuzz_must(twill_tcp_records_write(records, &iov, 1, 1000) == 1000);
    (void)twill_tcp_records_push(records); /* so that it may be asked for */
    size_t bytes = data[0] / 2 % 2 != 0 ? 0 : sent->bytes;
    if (bytes > 0) {
        memcpy(wire, sent->wire, bytes);
        change_records(wire, bytes, data + 2, size - 2);
        (void)!send(fd[1], wire, bytes, MSG_NOSIGNAL);
    }
    fuzz_feed(fd[1], data + 2, bytes > 0 ? 0 : size - 2);
    fuzz_sockets_read_most(data[1] / 2 == 0 ? SIZE_MAX : (size_t)data[1] / 2 * 150);
    if (data[1] % 2 != 0)
        (void)twill_tcp_records_look(records, &error);
    size_t all = 0;
    for (ssize_t n = 1; n > 0 && all<sizeof(got); all += n> 0 ? (size_t)n : 0)
        n = twill_tcp_records_read(records, got + all, sizeof(got) - all, &error);
    fuzz_must(!how.encrypts || (all <= RECORDS_BYTES && memcmp(got, sent->payload, all) == 0));
    fuzz_sockets_reset();
    return 0;
}
