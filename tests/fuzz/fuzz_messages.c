/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of the tcp transport, as the rank at the other end of an open channel may send them: an
 * input is a row of commands, which post requests and feed headers, near to valid ones or not, and
 * payload. Nothing may be written beyond a request's buffer, nor a request be touched again that
 * has ended. */
#include "fabric/tcp/tcp.h"
#include "tests/fuzz/fuzz_socket.h"

#define REQUESTS  12
#define SIGNATURE 77u

static const size_t request_bytes[] = {0, 1, 64, 100, 500, 8192, 9000, 20000};
static unsigned char pattern[20000];

/* An input's channel, and the requests posted on it. */
struct channel_input {
    struct twill_tcp *transport;
    struct twill_tcp_channel *channel;
    int other; /* end of the connection */
    size_t requests;
    struct twill_transfer request[REQUESTS];
};

static void check_reduce(struct twill_transfer *request, size_t offset, const void *data,
                         size_t bytes)
{
    fuzz_must(request->status == TWILL_PENDING && offset == request->moved &&
              bytes <= request->bytes - offset);
    fuzz_must(offset % 8 == 0 && (bytes % 8 == 0 || offset + bytes == request->bytes));
    if (bytes > 0) /* reads all of the data, and writes within the buffer */
        memcpy((unsigned char *)request->buffer + offset, data, bytes);
}

/* Make the transport and its only peer, once. */
static struct twill_tcp *open_transport(void)
{
    static struct twill_tcp_common common = {.size = 2};
    static struct twill_tcp_peer *peers[2];
    static struct twill_tcp transport = {
        .common = &common, .size = 2, .peers = peers, .epoll = -1, .once = TWILL_TCP_ONCE};
    struct twill_error error = {0};
    if (transport.scratch == NULL) {
        transport.scratch = malloc(transport.scratch_bytes = TWILL_TCP_SCRATCH);
        fuzz_must(transport.scratch != NULL);
        fuzz_must(twill_tcp_peer(&transport, 1, &peers[1], &error) == TWILL_OK);
        transport.start = twill_clock_read();
        for (size_t i = 0; i < sizeof(pattern); i++)
            pattern[i] = (unsigned char)i;
    }
    return &transport;
}

static void begin_input(struct channel_input *input)
{
    int fd[2];
    fuzz_pair(fd);
    input->transport = open_transport();
    struct twill_tcp_peer *peer = input->transport->peers[1];
    struct twill_tcp_channel *channel = &peer->channels[0];
    *channel = (struct twill_tcp_channel){.peer = peer,
                                          .fd = fd[0],
                                          .state = TWILL_TCP_OPEN,
                                          .in.bytes = channel->in.bytes,
                                          .readable = true};
    peer->clock = (struct twill_clock_filter){.at = 0};
    input->channel = channel;
    input->other = fd[1];
}

static void post_request(struct channel_input *input, unsigned kind, uint8_t argument)
{
    struct twill_tcp_channel *channel = input->channel;
    if (input->requests == REQUESTS)
        return;
    struct twill_transfer *request = &input->request[input->requests++];
    size_t bytes = request_bytes[argument % TWILL_ARRAY_LENGTH(request_bytes)];
    *request =
        (struct twill_transfer){.kind = kind == 2 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV,
                                .peer = 1,
                                .signature = SIGNATURE,
                                .buffer = malloc(bytes),
                                .bytes = bytes,
                                .reduce = kind == 1 ? check_reduce : NULL};
    if (request->kind == TWILL_TRANSFER_SEND)
        memset(request->buffer, 0, bytes);
    twill_transfer_push(kind == 2 ? &channel->out.queue : &channel->in.queue, request);
}

/* Feed a header, and payload of as many bytes as it says, up to 256 times `most`. */
static void feed_message(struct channel_input *input, uint8_t changes, uint8_t most)
{
    const struct twill_tcp_channel *channel = input->channel;
    const struct twill_transfer *next = channel->in.queue.head;
    struct twill_tcp_header header = {
        .signature = SIGNATURE + (changes % 8 == 1),
        .sequence = channel->in.received + (changes % 8 == 2),
        .bytes = (next != NULL && !channel->in.taking ? next->bytes : 100) + (changes % 8 == 3),
        .kind = changes % 8 == 4 ? 3 : TWILL_TCP_MESSAGE,
        .entry = {.sent = twill_now(), .age = changes, .rank = changes / 8}};
    if (changes % 8 >= 6) {
        header.kind = TWILL_TCP_REFUSED;
        header.sequence = channel->out.sent + (changes % 8 == 7);
    }
    size_t bytes = header.kind == TWILL_TCP_REFUSED ? 0 : header.bytes;
    (void)!send(input->other, &header, sizeof(header), MSG_NOSIGNAL);
    bytes = twill_min(bytes, (size_t)most * 256);
    (void)!send(input->other, pattern, twill_min(bytes, sizeof(pattern)), MSG_NOSIGNAL);
}

/* As twill_tcp_progress() does for a channel. Returns false if the channel fails. */
static bool progress(struct channel_input *input)
{
    struct twill_error error = {0};
    struct twill_tcp_channel *channel = input->channel;
    channel->readable = channel->writable = true;
    if (twill_tcp_sends(channel) && twill_tcp_send(input->transport, channel, &error) < 0)
        return false;
    if (twill_tcp_receives(channel))
        return twill_tcp_recv(input->transport, channel, &error) >= 0;
    return channel->out.queue.head == NULL ||
           twill_tcp_recv_refusal(input->transport, channel, &error) >= 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct channel_input input;
    bool works = true;
    if (size == 0)
        return 0;
    input.requests = 0;
    begin_input(&input);
    fuzz_sockets_read_most(data[0] == 0 ? SIZE_MAX : (size_t)data[0] * 40);
    for (data++, size--; size >= 3 && works; works = progress(&input)) {
        unsigned command = data[0] % 6;
        uint8_t first = data[1], second = data[2];
        data += 3;
        size -= 3;
        if (command < 3)
            post_request(&input, command, first);
        else if (command == 3 || command == 4)
            feed_message(&input, command == 3 ? 0 : first, second);
        else {
            size_t bytes = size < first ? size : first;
            (void)!send(input.other, data, bytes, MSG_NOSIGNAL);
            data += bytes;
            size -= bytes;
        }
    }
    shutdown(input.other, SHUT_WR);
    for (int turn = 0; turn < 20 && works; turn++)
        works = progress(&input);
    for (size_t i = 0; i < input.requests; i++) {
        const struct twill_transfer *request = &input.request[i];
        fuzz_must(request->moved <= request->bytes);
        fuzz_must(request->status != TWILL_OK || request->kind == TWILL_TRANSFER_SEND ||
                  request->moved == request->bytes);
        free(request->buffer);
    }
    fuzz_sockets_reset();
    return 0;
}
