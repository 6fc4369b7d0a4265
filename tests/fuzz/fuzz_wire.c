/* SPDX-License-Identifier: Apache-2.0 */
/* Input from the network during set-up. The first byte selects the receiver: an end
 * of a handshake, a failure detector from the first byte on, one after a valid handshake, or one
 * that gets a frame whose contents are fuzzed. No input without the key may be authenticated. The
 * detector is made once. */
#include "fabric/bootstrap/oob_batch.h"
#include "fabric/detector/detector_state.h"
#include "tests/fuzz/fuzz_socket.h"

static const struct twill_secret secret = {{1, 2, 3}};

static void fuzz_hello(bool caller, const uint8_t *data, size_t size)
{
    enum twill_hello_role role = size > 0 && data[0] % 2 != 0 ? TWILL_HELLO_DATA : TWILL_HELLO_JOIN;
    const struct twill_hello_identity identity = {
        .role = role, .rank = 1, .to = 0, .size = 4, .argument = 7};
    struct twill_hello hello;
    struct twill_session session;
    int fd[2];
    fuzz_pair(fd);
    fuzz_must(caller ? twill_hello_call(&hello, &secret, &identity)
                     : twill_hello_expect(&hello, &secret, role, 0, 4));
    fuzz_feed(fd[1], data, size);
    fuzz_must(twill_hello_move(&hello, fd[0], &session) != TWILL_WIRE_DONE);
}

static twill_status copy(struct twill_oob *oob, const void *mine, void *all, size_t bytes,
                         struct twill_error *error)
{
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

static struct twill_detector *make_detector(void)
{
    static const struct twill_bootstrap_ops ops = {.allgather = copy};
    static struct twill_oob oob = {
        .ops = &ops, .rank = 0, .size = 2, .address = "127.0.0.1", .secret = {{1, 2, 3}}};
    struct twill_oob_batch batch = {.oob = &oob};
    struct twill_detector *detector;
    fuzz_must(twill_detector_offer(&detector, &oob, 0, &batch, NULL) == TWILL_OK);
    fuzz_must(twill_oob_batch_exchange(&batch, TWILL_OK, NULL) == TWILL_OK);
    return detector;
}

/* Forget the connections of an input. */
static void reset_detector(struct twill_detector *detector)
{
    detector->callers = detector->handshakes = 0;
    for (size_t i = 0; i < TWILL_DETECTOR_HANDSHAKES; i++)
        detector->handshake[i].fd = -1;
    memset(detector->taken, 0, (size_t)detector->size * sizeof(*detector->taken));
}

static void fuzz_detector(int mode, const uint8_t *data, size_t size)
{
    static struct twill_detector *detector;
    const struct twill_hello_identity identity = {
        .role = TWILL_HELLO_DETECTOR, .rank = 1, .to = 0, .size = 2, .argument = 1};
    struct twill_notice notice;
    struct twill_hello hello;
    struct twill_session session;
    if (detector == NULL)
        detector = make_detector();
    int fd = fuzz_connect(detector->listener);
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
    reset_detector(detector);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    int receiver = data[0] % 5;
    fuzz_sockets_read_most(data[0] / 5 == 0 ? SIZE_MAX : (size_t)data[0] / 5 * 8);
    if (receiver < 2)
        fuzz_hello(receiver == 1, data + 1, size - 1);
    else
        fuzz_detector(receiver - 2, data + 1, size - 1);
    fuzz_sockets_reset();
    return 0;
}
