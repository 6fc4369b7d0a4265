/* SPDX-License-Identifier: Apache-2.0 */
/* Times at which ranks entered a call, carried by messages. */
#include "fabric/entry_times.h"

#define AGE_UNKNOWN ((UINT64_C(1) << 40) - 1)

struct twill_clock_pair twill_clock_read(void)
{
    return (struct twill_clock_pair){twill_ticks(), twill_now()};
}

void twill_entry_pack(const struct twill_last_entry *last, const struct twill_clock_pair *start,
                      struct twill_entry_message *message)
{
    struct twill_clock_pair now = twill_clock_read();
    uint64_t age = AGE_UNKNOWN;
    if (last->ticks != 0 && last->ticks <= now.ticks && now.ticks > start->ticks) {
        double rate = (double)(now.ns - start->ns) / (double)(now.ticks - start->ticks);
        double ns = (double)(now.ticks - last->ticks) * rate;
        age = ns < (double)AGE_UNKNOWN ? (uint64_t)ns : AGE_UNKNOWN;
    }
    *message = (struct twill_entry_message){now.ns, age, last->rank & 0x3fffffu, last->news};
}

struct twill_last_entry twill_entry_unpack(const struct twill_entry_message *message,
                                           const struct twill_clock_pair *start,
                                           struct twill_clock_filter *filter)
{
    struct twill_last_entry last = {0, message->rank, message->news};
    struct twill_clock_pair now = twill_clock_read();
    int64_t difference = (int64_t)(now.ns - message->sent);
    int64_t drift = (int64_t)((now.ns - filter->at) / (1000000 / TWILL_CLOCK_DRIFT_PPM));
    if (filter->at == 0 || difference <= filter->least + drift)
        *filter = (struct twill_clock_filter){difference, now.ns};
    if (message->age == AGE_UNKNOWN || now.ns <= start->ns)
        return last;
    /* The time since the entry is the message's age plus the time that it waited to be read. */
    int64_t ago = (int64_t)message->age + difference - filter->least;
    double rate = (double)(now.ticks - start->ticks) / (double)(now.ns - start->ns);
    double ticks = ago > 0 ? (double)ago * rate : 0;
    last.ticks = ticks < (double)now.ticks ? now.ticks - (uint64_t)ticks : 0;
    return last;
}
