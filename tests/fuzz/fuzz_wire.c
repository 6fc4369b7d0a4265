/* SPDX-License-Identifier: Apache-2.0 */
/* Input from the network during set-up. The first byte selects the receiver: an end
 * of a handshake, a failure detector from the first byte on, one after a valid handshake, or one
 * that gets a frame whose contents are fuzzed. No input without the key may be authenticated. */
#include "fabric/detector/detector_state.h"
#include "tests/fuzz/fuzz_input.h"

static const struct twill_secret secret = {{1, 2, 3}};

static void fuzz_hello(bool caller, const uint8_t *data, size_t size)
{
    const struct twill_hello_identity identity = {
        .role = TWILL_HELLO_JOIN, .rank = 1, .to = 0, .size = 4, .argument = 7};
    struct twill_hello hello;
    struct twill_session session;
    int fd[2];
    fuzz_must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fd) == 0);
    fuzz_must(caller ? twill_hello_call(&hello, &secret, &identity)
                     : twill_hello_expect(&hello, &secret, TWILL_HELLO_JOIN, 0, 4));
    fuzz_feed(fd[1], data, size);
    fuzz_must(twill_hello_move(&hello, fd[0], &session) != TWILL_WIRE_DONE);
    close(fd[0]);
    close(fd[1]);
}

static twill_status copy(struct twill_oob *oob, const void *mine, void *all, size_t bytes,
                         struct twill_error *error)
{
    (void)error;
    memset(all, 0, bytes * (size_t)oob->size);
    memcpy(all, mine, bytes);
    return TWILL_OK;
}

/* The body of a valid frame: kind, argument and length are fuzzed, too. */
static void send_frame(int fd, struct twill_session *session, const uint8_t *data, size_t size)
{
    struct twill_wire_header header;
    uint8_t digest[TWILL_DIGEST_BYTES];
    uint64_t length = size - 16;
    memcpy(&length, data + 8, data[1] % 2 ? 8 : 0);
    twill_secret_digest(data + 16, size - 16, digest);
    twill_wire_seal(session, &header, (enum twill_wire_kind)(data[0] % 8), data[2], data + 16,
                    length, digest);
    (void)!send(fd, &header, sizeof(header), MSG_NOSIGNAL | MSG_DONTWAIT);
    fuzz_feed(fd, data + 16, size - 16);
}

static void fuzz_detector(int mode, const uint8_t *data, size_t size)
{
    static const struct twill_bootstrap_ops ops = {.allgather = copy};
    const struct twill_hello_identity identity = {
        .role = TWILL_HELLO_DETECTOR, .rank = 1, .to = 0, .size = 2, .argument = 1};
    struct twill_oob oob = {
        .ops = &ops, .rank = 0, .size = 2, .address = "127.0.0.1", .secret = secret};
    struct twill_detector *detector;
    struct twill_notice notice;
    struct twill_hello hello;
    struct twill_session session;
    struct sockaddr_storage address;
    socklen_t length;
    struct twill_agreement agreement = {.oob = &oob};
    fuzz_must(twill_detector_offer(&detector, &oob, 0, &agreement, NULL) == TWILL_OK);
    fuzz_must(twill_agreement_exchange(&agreement, TWILL_OK, NULL) == TWILL_OK);
    fuzz_must(
        twill_endpoint_address("127.0.0.1", (uint16_t)detector->place[0].port, &address, &length));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fuzz_must(connect(fd, (struct sockaddr *)&address, length) == 0);
    if (mode > 0)
        fuzz_must(twill_hello_call(&hello, &secret, &identity) &&
                  twill_hello_move(&hello, fd, &session) == TWILL_WIRE_DONE);
    if (mode == 2 && size >= 16)
        send_frame(fd, &session, data, size);
    else
        fuzz_feed(fd, data, size);
    for (int i = 0; i < 3; i++)
        if (twill_detector_poll(detector, &notice))
            fuzz_must(mode == 2 && memchr(notice.message, '\0', sizeof(notice.message)) != NULL);
    struct linger now = {.l_onoff = 1}; /* reset: else the ports run out */
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close(fd);
    twill_detector_close(detector);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    int receiver = data[0] % 5;
    if (receiver < 2)
        fuzz_hello(receiver == 1, data + 1, size - 1);
    else
        fuzz_detector(receiver - 2, data + 1, size - 1);
    return 0;
}
