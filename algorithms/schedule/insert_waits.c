/* SPDX-License-Identifier: Apache-2.0 */
/* Insert WAITs and AWAITs only where they are needed: a WAIT by what steps access, an AWAIT by what
 * messages prove. */
#include "algorithms/schedule/emit.h"
#include "algorithms/schedule/step_table.h"

#include <string.h>

/* The blocks of this rank that a step accesses through one operand. */
struct step_touch {
    unsigned space;
    uint32_t first, blocks;
    bool write;
};

static bool touches_overlap(const struct step_touch *a, const struct step_touch *b)
{
    return a->space == b->space && (a->write || b->write) && a->first < b->first + b->blocks &&
           b->first < a->first + a->blocks;
}

/* SRC counts as DST, which it is in place. */
static struct step_touch touch_of(const struct twill_step *step, twill_operand operand, bool write)
{
    unsigned space = twill_operand_space(operand);
    return (struct step_touch){.space = space == TWILL_SRC ? TWILL_DST : space,
                               .first = twill_operand_block(operand),
                               .blocks = twill_operand_is_peer(operand) ? 0 : step->blocks,
                               .write = write};
}

static unsigned step_touches(const struct twill_step *step, struct step_touch touch[2])
{
    const struct twill_step_shape *shape = twill_step_shape(step->op);
    unsigned count = 0;
    if (shape->src != 0)
        touch[count++] = touch_of(step, step->src, false);
    if (shape->dst != 0)
        touch[count++] = touch_of(step, step->dst, true);
    return count;
}

static bool steps_conflict(const struct twill_step *a, const struct twill_step *b)
{
    struct step_touch x[2], y[2];
    unsigned n = step_touches(a, x), m = step_touches(b, y);
    for (unsigned i = 0; i < n; i++)
        for (unsigned k = 0; k < m; k++)
            if (touches_overlap(&x[i], &y[k]))
                return true;
    return false;
}

size_t twill_emit_mark(const struct twill_emitter *e)
{
    return e->lanes[e->lane].count;
}

/* Move the step that needs the WAIT to the mark: the steps between could not go before the WAIT
 * either. Not past a message in the same direction with the same peer, because messages match in
 * order. */
static void move_to_mark(struct twill_step_list *list, size_t mark, size_t step)
{
    struct twill_step first = list->steps[step];
    for (size_t i = mark; i < step; i++)
        if (twill_step_shape(first.op)->posts && list->steps[i].peer[0] == first.peer[0] &&
            (list->steps[i].op == TWILL_STEP_SEND) == (first.op == TWILL_STEP_SEND))
            return;
    memmove(&list->steps[mark + 1], &list->steps[mark], (step - mark) * sizeof(first));
    list->steps[mark] = first;
}

void twill_emit_insert_wait(struct twill_emitter *e, size_t mark)
{
    struct twill_step_list *list = &e->lanes[e->lane];
    size_t posted = 0, end = list->count, needs = list->count; /* the first step that needs it */
    if (mark == end)
        return;
    for (size_t i = mark; i > 0 && list->steps[i - 1].op != TWILL_STEP_WAIT; i--) {
        const struct twill_step *step = &list->steps[i - 1];
        if (!twill_step_shape(step->op)->posts)
            continue;
        posted++;
        for (size_t k = mark; k < needs; k++)
            if (steps_conflict(step, &list->steps[k]))
                needs = k;
    }
    if (needs == end && posted < TWILL_EMIT_POSTED)
        return;
    if (needs < end)
        move_to_mark(list, mark, needs);
    twill_emit_wait(e);
    if (e->no_memory)
        return;
    struct twill_step wait = list->steps[end];
    memmove(&list->steps[mark + 1], &list->steps[mark], (end - mark) * sizeof(wait));
    list->steps[mark] = wait;
}

void twill_emit_join(struct twill_emitter *e, twill_emit_knows_fn knows, const void *user)
{
    struct twill_group node = twill_group_node(e);
    bool needed = false;
    for (uint32_t i = 0; i < node.size; i++)
        needed = needed || (i != node.me && !knows(user, node.rank[i], e->rank));
    if (needed)
        twill_emit_signal(e);
}

void twill_emit_await_join(struct twill_emitter *e, twill_emit_knows_fn knows, const void *user)
{
    struct twill_group node = twill_group_node(e);
    for (uint32_t i = 1; i < node.size; i++) {
        uint32_t other = node.rank[(node.me + i) % node.size];
        if (!knows(user, e->rank, other))
            twill_emit_await_one(e, other, 1, 0);
    }
}
