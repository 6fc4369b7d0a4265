/* SPDX-License-Identifier: Apache-2.0 */
/* The rendezvous and its all-gathers, with ends that know the key and send what the input says, and
 * connections that do not. The first byte selects rank 0 or another rank. */
#include "fabric/bootstrap/tcp/bootstrap_tcp.h"
#include "tests/fuzz/fuzz_socket.h"

#include <netinet/in.h>

#define RANKS   4
#define CALLERS 5
#define SHARD   24

static const struct twill_secret key = {{1, 2, 3}};
static const struct twill_job job = {.size = RANKS,
                                     .hosts = "127.0.0.1",
                                     .port = 2000,
                                     .source = "MASTER_ADDR",
                                     .epoch = 1,
                                     .guests = 1};

/* The other end of a connection, played by the input. */
struct fuzz_peer {
    int fd;
    bool greets, greeted; /* with the key */
    bool leaves;          /* once it has been greeted */
    struct twill_hello hello;
    struct twill_session session;
    const uint8_t *data; /* 8 bytes */
};

static struct fuzz_peer peers[CALLERS];
static size_t peer_count;
/* Frames that an end sends once it has been greeted. */
static const uint8_t *frames;
static size_t frames_size;

/* In the place of the library's: no name is looked up. */
FUZZ_REPLACED(twill_status, twill_bootstrap_resolve, const struct twill_bootstrap_tcp *tcp,
              struct twill_bootstrap_addresses *found, struct twill_error *error)
{
    found->count = 1;
    return twill_endpoint_address("127.0.0.1", 2000, &found->at[0].address, &found->at[0].length)
               ? TWILL_OK
               : TWILL_ERR_INTERNAL;
}

/* Send the next frame of the input: kind, argument, length and digest are valid unless its first
 * bytes change them. */
static void send_frame(struct fuzz_peer *peer)
{
    static const size_t sizes[] = {SHARD, RANKS * SHARD, sizeof(struct twill_bootstrap_welcome),
                                   20};
    struct twill_wire_header header;
    unsigned char body[TWILL_WIRE_TEXT + 8] = {0};
    if (frames_size < 4)
        return;
    size_t bytes = frames[1] % 8 < 4 ? sizes[frames[1] % 4] : (size_t)frames[1] * 2;
    size_t here = twill_min(twill_min(bytes, sizeof(body)), frames_size - 4);
    memcpy(body, frames + 4, here);
    bytes = twill_min(bytes, sizeof(body));
    twill_wire_seal(&peer->session, &header, (enum twill_wire_kind)(frames[0] % 8),
                    (int8_t)frames[2], body, bytes, NULL);
    if (frames[3] % 8 == 1)
        body[0] ^= 1;
    if (frames[3] % 8 == 2) /* an authentic header of another length */
        twill_wire_seal(&peer->session, &header, (enum twill_wire_kind)(frames[0] % 8),
                        (int8_t)frames[2], body, (size_t)1 << frames[3] / 8, header.digest);
    (void)!send(peer->fd, &header, frames[3] % 8 == 3 ? 50 : sizeof(header), MSG_NOSIGNAL);
    (void)!send(peer->fd, body, bytes, MSG_NOSIGNAL);
    frames += 4 + here;
    frames_size -= 4 + here;
}

/* The other ends' turn, when the rank under test waits. */
static void take_turn(void)
{
    for (size_t i = 0; i < peer_count; i++) {
        struct fuzz_peer *peer = &peers[i];
        if (!peer->greets || peer->greeted)
            continue;
        enum twill_wire_moved moved = twill_hello_move(&peer->hello, peer->fd, &peer->session);
        peer->greeted = moved == TWILL_WIRE_DONE;
        peer->greets = moved != TWILL_WIRE_GONE;
        if (!peer->greeted || !peer->leaves)
            continue;
        shutdown(peer->fd, SHUT_WR);
        peer->greets = peer->greeted = false;
    }
}

/* Connect a peer: with the key, as the rank and for the job that 8 bytes of the input say; or one
 * that sends these bytes. */
static void call_root(int listener, const uint8_t *data)
{
    struct fuzz_peer *peer = &peers[peer_count++];
    const struct twill_hello_identity identity = {
        .role = TWILL_HELLO_JOIN,
        .rank = data[1] == 255 ? (uint32_t)TWILL_JOIN_ANY : data[1] % 8,
        .to = data[2] % 16 == 1,
        .size = RANKS + (data[2] / 16 == 1),
        .epoch = 1 + (data[3] % 16 == 1),
        .argument = data[3] / 16 == 0 ? 1000 : (uint64_t)data[4] << data[5] % 57};
    *peer = (struct fuzz_peer){.fd = fuzz_connect(listener),
                               .data = data,
                               .greets = data[0] % 4 != 0,
                               .leaves = data[0] % 16 == 5};
    if (peer->greets)
        fuzz_must(twill_hello_call(&peer->hello, &key, &identity));
    else
        (void)!send(peer->fd, data, 8, MSG_NOSIGNAL);
    if (data[0] % 8 == 4)
        shutdown(peer->fd, SHUT_WR);
}

static struct twill_bootstrap_tcp unconnected(void)
{
    return (struct twill_bootstrap_tcp){.oob = {.size = RANKS, .timeout_ns = 2000000000},
                                        .key = key,
                                        .job = &job,
                                        .launcher = -1,
                                        .listener = -1,
                                        .root = -1};
}

static void fuzz_root(const uint8_t *data, size_t size)
{
    static struct twill_bootstrap_peer ranks[RANKS];
    static struct pollfd polls[RANKS + 1 + TWILL_BOOTSTRAP_PENDING];
    struct twill_error error = {0};
    char mine[SHARD] = {0}, all[RANKS * SHARD];
    struct twill_bootstrap_tcp tcp = unconnected();
    tcp.peer = ranks;
    tcp.polls = polls;
    tcp.places = 4;
    for (int r = 0; r < RANKS; r++)
        ranks[r] = (struct twill_bootstrap_peer){.fd = -1};
    tcp.listener = socket(AF_INET, SOCK_STREAM, 0);
    fuzz_must(listen(tcp.listener, 1) == 0);
    for (; peer_count < CALLERS && size >= 8; data += 8, size -= 8)
        call_root(tcp.listener, data);
    if (twill_bootstrap_tcp_serve(&tcp, NULL, &error) != TWILL_OK)
        goto end;
    for (frames = data, frames_size = size; frames_size >= 4;) {
        for (size_t i = 0; i < peer_count; i++)
            if (peers[i].greeted)
                send_frame(&peers[i]);
        if (twill_bootstrap_tcp_allgather(&tcp.oob, mine, all, SHARD, &error) != TWILL_OK)
            break;
    }
end:
    if (tcp.listener >= 0)
        close(tcp.listener);
}

/* Rank 0's turn, which another rank has called. */
static void answer_call(void)
{
    struct fuzz_peer *peer = &peers[0];
    int fd = fuzz_called();
    if (fd >= 0) {
        *peer = (struct fuzz_peer){.fd = fd, .greets = frames_size >= 4};
        fuzz_must(twill_hello_expect(&peer->hello, &key, TWILL_HELLO_JOIN, 0, RANKS));
        peer_count = 1;
    }
    take_turn();
    if (frames_size < 4 && peer_count == 1)
        shutdown(peer->fd, SHUT_WR);
    else if (peer->greeted) /* the welcome, and what it sends instead; then a frame a turn */
        send_frame(peer);
}

static void fuzz_rank(const uint8_t *data, size_t size)
{
    struct twill_error error = {0};
    char mine[SHARD] = {0}, all[RANKS * SHARD];
    struct twill_bootstrap_tcp tcp = unconnected();
    tcp.oob.rank = size > 0 && data[0] % 2 != 0 ? TWILL_JOIN_ANY : 1;
    frames = data + (size > 0);
    frames_size = size - (size > 0);
    peers[0].fd = -1;
    fuzz_sockets_idle(answer_call);
    if (twill_bootstrap_tcp_join(&tcp, &error) == TWILL_OK) {
        fuzz_must(tcp.oob.rank > 0 && tcp.oob.rank < RANKS);
        fuzz_must(memchr(tcp.oob.address, '\0', sizeof(tcp.oob.address)) != NULL);
        while (twill_bootstrap_tcp_allgather(&tcp.oob, mine, all, SHARD, &error) == TWILL_OK)
            ;
    }
    fuzz_must(memchr(error.message, '\0', sizeof(error.message)) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    peer_count = frames_size = 0;
    fuzz_sockets_idle(take_turn);
    fuzz_sockets_read_most(data[0] / 2 == 0 ? SIZE_MAX : data[0] / 2);
    if (data[0] % 2 == 0)
        fuzz_root(data + 1, size - 1);
    else
        fuzz_rank(data + 1, size - 1);
    fuzz_sockets_reset();
    return 0;
}
