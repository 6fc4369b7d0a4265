/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of an agreement (lib/comm/consensus.h), to a rank in the middle of a few agreements:
 * an input is a row of commands and messages. Ranks of the job are trusted with the decision, but
 * not with this rank's memory. */
#include "lib/comm/consensus.h"
#include "tests/fuzz/fuzz_input.h"

#define CONSENSUS_RANKS 5

static void ignore_message(void *user, uint32_t to, const void *message, size_t bytes, bool last)
{
    fuzz_must(to < CONSENSUS_RANKS);
}

/* Handle the next message; its header is of numbers that are near to valid ones. Returns its bytes.
 */
static size_t receive_message(struct twill_consensus *consensus, const uint8_t *data, size_t size)
{
    unsigned char message[sizeof(struct twill_consensus_header) + 256] = {0};
    size_t bytes = sizeof(struct twill_consensus_header) + twill_decision_bytes(CONSENSUS_RANKS);
    size_t here = size < bytes - 3 ? size : bytes - 3;
    struct twill_consensus_header header = {0};
    if (here < 3)
        return size;
    memcpy(message + sizeof(header), data + 3, here - 3);
    header.kind = data[0] % 7;
    header.instance = consensus->instance + data[1] % 5 - 2;
    header.ballot = data[2] % 6;
    header.accepted = data[2] / 6 % 8;
    memcpy(message, &header, sizeof(header));
    twill_consensus_receive(consensus, data[1] / 5 % CONSENSUS_RANKS, message, bytes);
    return here;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct twill_consensus *consensus =
        twill_consensus_open(CONSENSUS_RANKS, 2, NULL, ignore_message, NULL);
    fuzz_must(consensus != NULL);
    twill_consensus_receive(consensus, 1, data, size); /* whatever its size */
    while (size >= 2) {
        uint8_t command = data[0], argument = data[1];
        data += 2;
        size -= 2;
        if (command % 8 == 0 &&
            (consensus->instance == 0 || twill_consensus_decision(consensus) != NULL))
            twill_consensus_enter(consensus, TWILL_AGREEING_ONLY, argument, 1, 2);
        else if (command % 8 == 1)
            twill_consensus_fail(consensus, argument % CONSENSUS_RANKS, argument >= 128);
        else if (command % 8 == 2)
            twill_consensus_tick(consensus);
        else {
            size_t used = receive_message(consensus, data, size);
            data += used;
            size -= used;
        }
        fuzz_must(twill_consensus_awaits(consensus, 0) != consensus->rank);
    }
    twill_consensus_close(consensus);
    return 0;
}
