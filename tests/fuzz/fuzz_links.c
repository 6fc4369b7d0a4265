/* SPDX-License-Identifier: Apache-2.0 */
/* Heads that workers, servers and replicas of a parameter server send each other, and what follows
 * them. The first two bytes select the end that reads them, its mode and how gradients travel; each
 * receive then takes a byte (0xfe: nothing has come, 0xff: the peer has died) and its message. */
#include "tests/fuzz/fuzz_server.h"

#define TURNS  400
#define QUEUED 1000 /* chunks or batches, more than may be */

/* A worker orders what it may: a push or a pull of a key that has none under way. */
static void order_something(struct twill_server *server)
{
    static uint64_t number;
    uint8_t what = fuzz_server_byte();
    struct twill_server_link *link = &server->link[what % server->links];
    uint32_t k = what / 8 % server->keys;
    unsigned kind = 1 + what / 32 % 3;
    const struct twill_answer *answer = &link->port->answer[k];
    bool pushes = answer->unused != answer->pushed; /* `unused` has the last number */
    if (link->lost || link->left || link->key[k].missing > 0 || pushes)
        return;
    number++;
    if ((kind & TWILL_ORDER_PUSH) != 0)
        link->port->answer[k].unused = number;
    twill_link_order(
        link, (struct twill_server_order){.kind = kind, .key = k, .push = number, .pull = number});
}

/* No end may count below nothing, or queue more than its peer may have ordered. */
static void check_links(const struct twill_server *server)
{
    uint32_t most = server->cut.places;
    for (uint32_t i = 0; i < server->links; i++) {
        const struct twill_server_link *link = &server->link[i];
        for (uint32_t k = 0; k < server->keys && !link->lost; k++) {
            fuzz_must(link->key[k].missing <= (link->shard == NULL ? most : QUEUED));
            fuzz_must(link->shard == NULL ||
                      link->shard->worker[link->worker].key[k].push_left <= most);
        }
        fuzz_must(link->lost || link->out.batches - link->out.current <= QUEUED);
        fuzz_must(link->out.sent_end - link->out.sent_first <= TWILL_LINK_POSTED);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const twill_compression compressions[] = {TWILL_COMPRESS_NONE, TWILL_COMPRESS_F16,
                                                     TWILL_COMPRESS_INT8, TWILL_COMPRESS_TOP_K};
    if (size < 2)
        return 0;
    struct fuzz_server_kind kind = {.mode = (twill_server_mode)(data[0] % 8),
                                    .worker = data[0] / 8 % 4 == 3,
                                    .replicas = data[0] / 32 % 2,
                                    .compression = compressions[data[1] % 4],
                                    .slow = data[1] / 4 % 4};
    if (kind.mode == TWILL_SERVER_ASYNC || kind.mode == TWILL_SERVER_BOUNDED)
        kind.rate = (twill_server_rate)(data[1] / 16 % 3);
    struct twill_server *server = fuzz_server_open(kind);
    fuzz_server_feed(data + 2, size - 2);
    fuzz_server_connect(server);
    for (int turn = 0, idle = 0; turn < TURNS && idle < 8; turn++) {
        if (kind.worker)
            order_something(server);
        unsigned moved = 0;
        for (uint32_t i = 0; kind.worker && i < server->links; i++)
            moved += twill_link_poll(&server->link[i]);
        if (!kind.worker)
            moved += twill_shard_poll(server->shard);
        check_links(server);
        idle = moved == 0 && fuzz_server_fed() ? idle + 1 : 0;
    }
    fuzz_server_close(server);
    return 0;
}
