/* SPDX-License-Identifier: Apache-2.0 */
/* Rails, as twill-info shows them: which are used, and their traffic. */
#include "fabric/rails/rails.h"
#include "lib/base/plural.h"
#include "lib/comm/comm.h"

#include <stdio.h>

/* Count the rails of a transport; 0 if it is not between nodes. */
static size_t rails_count(const struct twill_transport *transport)
{
    size_t count = 0;
    if (transport->ops->rail == NULL)
        return transport->label != NULL ? 1 : 0;
    while (transport->ops->rail(transport, count) != NULL)
        count++;
    return count;
}

/* Return the communicator's rail number `index`, or NULL past the last one. */
static const struct twill_transport *rail_at(const struct twill_comm *comm, size_t index)
{
    for (unsigned t = 0; t < comm->links.transports; t++) {
        const struct twill_transport *transport = comm->links.transport[t];
        size_t count = rails_count(transport);
        if (index < count)
            return transport->ops->rail != NULL ? transport->ops->rail(transport, index)
                                                : transport;
        index -= count;
    }
    return NULL;
}

static const char *rail_name(const struct twill_transport *rail)
{
    return rail->label != NULL ? rail->label : rail->ops->describe(rail);
}

void twill_comm_note_rails(struct twill_comm *comm)
{
    const struct twill_transport *rail;
    for (size_t i = 0; (rail = rail_at(comm, i)) != NULL; i++)
        twill_context_note(comm->context, "rail %zu: %s", i, rail_name(rail));
    for (size_t t = 0; twill_transport_at(t) != NULL; t++) {
        const struct twill_rails_choice *choice =
            (const struct twill_rails_choice *)comm->context->transports.common[t];
        if (twill_transport_at(t)->rails == NULL || choice == NULL)
            continue;
        twill_context_note(comm->context, "rails of this node: %s (%s)", choice->taken,
                           choice->why);
    }
}

const char *twill_comm_rail(twill_comm *comm, size_t index)
{
    const struct twill_transport *rail = twill_comm_is_live(comm) ? rail_at(comm, index) : NULL;
    struct twill_transport_counters count;
    if (rail == NULL)
        return NULL;
    twill_transport_count(rail, &count);
    snprintf(comm->links.rail_line, sizeof(comm->links.rail_line),
             "rail %zu: %.96s: %llu message%s, %llu bytes, %llu of headers", index, rail_name(rail),
             (unsigned long long)count.messages, TWILL_PLURAL(count.messages),
             (unsigned long long)count.bytes, (unsigned long long)count.header_bytes);
    return comm->links.rail_line;
}
