/* SPDX-License-Identifier: Apache-2.0 */
/* Times at which ranks entered a call, carried by messages between nodes, whose clocks differ.
 *
 * A message carries the sender's clock and how long before it the last rank that the sender knows
 * of had entered. The receiver takes the least difference that it has seen between the two clocks
 * for the difference of the clocks (as NTP's clock filter does): an entry then appears late by the
 * shortest time that a message from that rank has taken, and by TWILL_CLOCK_DRIFT since that
 * message, but not by the time that messages wait until they are read. */
#ifndef TWILL_ENTRY_TIMES_H
#define TWILL_ENTRY_TIMES_H

#include "lib/base/base.h"

#define TWILL_CLOCK_DRIFT_PPM 50

/* The latest entry into a call that is known. */
struct twill_last_entry {
    uint64_t ticks; /* twill_ticks() of this host; 0: none is known */
    uint32_t rank;
};

/* The same in a message. */
struct twill_entry_message {
    uint64_t sent; /* twill_now() of the sender */
    uint64_t age : 40, rank : 24;
};
_Static_assert(sizeof(struct twill_entry_message) == 16, "half of a header");

/* This host's two clocks at one time, and so the rate of twill_ticks(). */
struct twill_clock_pair {
    uint64_t ticks, ns;
};

/* What is known of a peer's clock. */
struct twill_clock_filter {
    int64_t least; /* difference in ns of this clock and the peer's, with a message's way */
    uint64_t at;   /* twill_now() of that; 0: no message yet */
};

/* Read both clocks. */
struct twill_clock_pair twill_clock_read(void);

/* Fill what a message carries. start: read when the link was opened. */
void twill_entry_pack(const struct twill_last_entry *last, const struct twill_clock_pair *start,
                      struct twill_entry_message *message);
/* Return the entry that a message from a peer carries, in this host's ticks. */
struct twill_last_entry twill_entry_unpack(const struct twill_entry_message *message,
                                           const struct twill_clock_pair *start,
                                           struct twill_clock_filter *filter);

#endif
