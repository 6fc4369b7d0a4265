/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/fuzz_exchange.h"

#include "fabric/host/host_identity.h"

#define END_OF_EXCHANGE 255 /* as the first byte of a change */

/* Make each host in a record of rank r that of another process. A record that names this process
 * would be believed: its pointers are this process's own. */
static void leave_process(unsigned char *record, size_t bytes, int own, int r)
{
    static struct twill_host here;
    if (here.pid == 0)
        twill_host_describe(&here);
    size_t pid = offsetof(struct twill_host, pid);
    for (size_t at = 0; at + sizeof(here) <= bytes; at += 4) {
        struct twill_host host;
        memcpy(&host, record + at, sizeof(host));
        if (!twill_host_same_process(&host, &here))
            continue;
        host.pid += (uint64_t)(FUZZ_RANKS + r - own);
        memcpy(record + at + pid, &host.pid, sizeof(host.pid));
    }
}

static void take(struct fuzz_exchange *exchange, size_t bytes)
{
    exchange->data += bytes;
    exchange->size -= bytes;
}

/* Apply five bytes to a record: where, and a byte, a word of 4 or 8 bytes, or the length of a text
 * that follows in the input. */
static void change_record(struct fuzz_exchange *exchange, const uint8_t *change,
                          unsigned char *record, size_t bytes)
{
    size_t at = (size_t)(change[1] | change[2] << 8) % bytes, length = 4;
    uint64_t value = change[3] | (uint64_t)change[4] << 8;
    switch (change[0] / 8 % 4) {
    case 0:
        record[at] = change[3];
        return;
    case 1:
        break;
    case 2:
        length = 8;
        value = value << change[0] / 32 * 8 | (change[4] > 250 ? UINT64_MAX << 16 : 0);
        break;
    default:
        length = twill_min(twill_min(change[3] % 64, exchange->size), bytes - at);
        memcpy(record + at, exchange->data, length);
        take(exchange, length);
        return;
    }
    at = at / length * length;
    memcpy(record + at, &value, twill_min(length, bytes - at));
}

static twill_status exchange_records(struct twill_oob *oob, const void *mine, void *all,
                                     size_t bytes, struct twill_error *error)
{
    struct fuzz_exchange *exchange = (struct fuzz_exchange *)oob;
    unsigned char *record = all;
    if (bytes == 0)
        return TWILL_OK;
    for (size_t r = 0; r < FUZZ_RANKS; r++)
        memcpy(record + r * bytes, mine, bytes);
    while (exchange->size >= 5 && exchange->data[0] != END_OF_EXCHANGE) {
        const uint8_t *change = exchange->data;
        size_t r = ((size_t)oob->rank + 1 + change[0] % (FUZZ_RANKS - 1)) % FUZZ_RANKS;
        take(exchange, 5);
        change_record(exchange, change, record + r * bytes, bytes);
    }
    if (exchange->size > 0 && exchange->data[0] == END_OF_EXCHANGE)
        take(exchange, 1);
    for (int r = 0; r < FUZZ_RANKS; r++)
        if (r != oob->rank)
            leave_process(record + (size_t)r * bytes, bytes, oob->rank, r);
    return TWILL_OK;
}

void fuzz_exchange_begin(struct fuzz_exchange *exchange, int rank, const uint8_t *data, size_t size)
{
    static const struct twill_bootstrap_ops ops = {.name = "input", .allgather = exchange_records};
    *exchange = (struct fuzz_exchange){.base = {.ops = &ops,
                                                .rank = rank,
                                                .size = FUZZ_RANKS,
                                                .timeout_ns = 2000000000,
                                                .secret = {{1, 2, 3}},
                                                .nonce = {4, 5, 6},
                                                .address = "127.0.0.1",
                                                .interface = "lo"},
                                       .data = data,
                                       .size = size};
}
