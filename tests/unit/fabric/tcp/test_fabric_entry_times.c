/* SPDX-License-Identifier: Apache-2.0 */
/* Entry times in messages: clocks that are far apart, messages that are read late, unknown times.
 */
#include "fabric/entry_times.h"
#include "tests/support/unit.h"

#define APART  UINT64_C(3600000000000) /* ns: a peer whose clock is an hour ahead */
#define LATE   200000                  /* us: how late a message is read */
#define MARGIN 0.05 /* s: less than that, more than any pause between two clocks */
#define RANK   7u

struct clocks {
    struct twill_clock_pair start;
    double rate; /* ticks a second */
};

static struct clocks start_clocks(void)
{
    struct clocks clocks = {.start = twill_clock_read()};
    usleep(LATE);
    struct twill_clock_pair now = twill_clock_read();
    clocks.rate =
        (double)(now.ticks - clocks.start.ticks) * 1e9 / (double)(now.ns - clocks.start.ns);
    return clocks;
}

/* Pack an entry as a peer whose clock is ahead. */
static struct twill_entry_message message_of(const struct clocks *clocks, uint64_t ticks)
{
    struct twill_entry_message message;
    struct twill_last_entry last = {ticks, RANK};
    twill_entry_pack(&last, &clocks->start, &message);
    message.sent += APART;
    return message;
}

static void assert_seconds(const struct clocks *clocks, uint64_t ticks, uint64_t expected)
{
    double apart = (double)(int64_t)(ticks - expected) / clocks->rate;
    assert_true(apart > -MARGIN && apart < MARGIN);
}

TWILL_TEST(late_messages_do_not_move_entries)
{
    struct clocks clocks = start_clocks();
    struct twill_clock_filter filter = {0};
    uint64_t entered = twill_ticks();
    struct twill_entry_message message = message_of(&clocks, entered);
    struct twill_last_entry last = twill_entry_unpack(&message, &clocks.start, &filter);
    assert_int_equal(last.rank, RANK);
    assert_seconds(&clocks, last.ticks, entered);
    message = message_of(&clocks, entered);
    usleep(LATE);
    last = twill_entry_unpack(&message, &clocks.start, &filter);
    assert_seconds(&clocks, last.ticks, entered);
    /* Its age counts, too. */
    message = message_of(&clocks, entered);
    assert_true((double)message.age * 1e-9 > LATE * 1e-6 - MARGIN);
    last = twill_entry_unpack(&message, &clocks.start, &filter);
    assert_seconds(&clocks, last.ticks, entered);
}

TWILL_TEST(unknown_entries_stay_unknown)
{
    struct clocks clocks = start_clocks();
    struct twill_clock_filter filter = {0};
    struct twill_entry_message message = message_of(&clocks, 0);
    assert_true(twill_entry_unpack(&message, &clocks.start, &filter).ticks == 0);
    message = message_of(&clocks, twill_ticks() + (uint64_t)clocks.rate); /* from the future */
    assert_true(twill_entry_unpack(&message, &clocks.start, &filter).ticks == 0);
}
