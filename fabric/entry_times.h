/* SPDX-License-Identifier: Apache-2.0 */
/* Times at which ranks entered a call, carried by messages between nodes, whose clocks differ.
 *
 * A message carries the time on the sender's clock, and how long ago the last rank that the sender
 * knows of had entered. As the difference of two hosts' clocks, the receiver takes the least
 * difference between a message's sending and its arrival that it has seen (as NTP's clock filter
 * does). An entry therefore appears late by the shortest time that a message from that rank has
 * taken, plus TWILL_CLOCK_DRIFT_PPM of the time since that message. The time that messages wait
 * before they are read is not added. */
#ifndef TWILL_ENTRY_TIMES_H
#define TWILL_ENTRY_TIMES_H

#include "lib/base/base.h"

#define TWILL_CLOCK_DRIFT_PPM 50
/* The latest known entry of a rank into a call, by the rank that entered last. A value. */
struct twill_last_entry {
    uint64_t ticks; /* twill_ticks() of this host; 0: no entry is known */
    uint32_t rank;
    uint8_t news; /* in a message: set of enum twill_news, of this call or an
                     earlier one */
};

/* A struct twill_last_entry in a message. `age` is the nanoseconds from the entry to `sent`, or its
 * greatest value if no entry is known. */
struct twill_entry_message {
    uint64_t sent; /* twill_now() of the sender */
    uint64_t age : 40, rank : 22, news : TWILL_NEWS_KINDS;
};
_Static_assert(sizeof(struct twill_entry_message) == 16, "half of a header");

/* This host's two clocks, read one right after the other by twill_clock_read(). A value. Two such
 * pairs give the rate of twill_ticks(). */
struct twill_clock_pair {
    uint64_t ticks, ns; /* twill_ticks() and twill_now() */
};

/* An estimate of how far a peer's clock is from this host's. One for each link from a peer. */
struct twill_clock_filter {
    /* Least time in ns from sending (the peer's clock) to arrival (this host's clock). It is what
     * this host's clock is ahead, plus the time that the fastest message took. */
    int64_t least;
    uint64_t at; /* twill_now() when `least` was set; 0: no message yet */
};

/* Return the present values of twill_ticks() and twill_now(), read one right after the other. */
struct twill_clock_pair twill_clock_read(void);

/* Fill in what a message sent now carries about the entry `last`. The age is marked as not known if
 * last->ticks is 0. `start` is the clocks when the link opened, from which the rate of
 * twill_ticks() follows. */
void twill_entry_pack(const struct twill_last_entry *last, const struct twill_clock_pair *start,
                      struct twill_entry_message *message);
/* Return when the rank that a message names has entered its call, in ticks of this host. The ticks
 * are 0 if that is not known. `start` is this host's clocks when the link opened. If this message
 * took no longer than filter->least plus the clocks' drift since then, also sets *filter, the
 * estimate for the sender's clock, from it. */
struct twill_last_entry twill_entry_unpack(const struct twill_entry_message *message,
                                           const struct twill_clock_pair *start,
                                           struct twill_clock_filter *filter);

#endif
