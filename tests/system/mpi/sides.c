/* SPDX-License-Identifier: Apache-2.0 */
/* The buffers of a case, with guards around them: see cases.h. */
#include "cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDES_GUARD = 64, LINE = 64 };

static size_t element_extent(const struct spec *spec)
{
    return spec->user ? spec->user->extent : spec->base->extent;
}

static void choose_type(struct side *side, const struct spec *spec, int rank, int receives,
                        int vectors)
{
    uint64_t seed = mix(mix(spec->seed, (uint64_t)rank), (uint64_t)receives + 5);
    int reduces = calls[spec->call].reduces, grain = 1, layout = spec->layout;
    side->grain = 1;
    side->type = spec->user ? spec->user->type : spec->base ? spec->base->type : MPI_DATATYPE_NULL;
    if (reduces || layout == PLAIN || !spec->base)
        return;
    if (layout == ANY_LAYOUT)
        layout = (int)(seed % LAYOUTS);
    if (layout == TRANSPOSED && vectors)
        layout = VECTOR;
    uint64_t choice = seed >> 20;
    side->type = layout_make((enum layout)layout, spec->base->type, &grain, 1, choice);
    if (layout == TRANSPOSED) { /* the number of items is known now */
        int items = side->total / grain;
        PMPI_Type_free(&side->type);
        side->type = layout_make(TRANSPOSED, spec->base->type, &grain, items, choice);
    }
    side->own = layout != PLAIN;
    side->grain = grain;
}

/* Place the shards in random order with gaps; some lie before the address. */
static void place_shards(struct side *side, uint64_t seed)
{
    int order[MOST_RANKS], at = 0;
    for (int i = 0; i < side->shards; i++) {
        int j = below(&seed, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    for (int i = 0; i < side->shards; i++) {
        int r = order[i];
        side->displs[r] = at;
        at += side->counts[r] + below(&seed, 3);
    }
    int shift = below(&seed, 2) ? at / 2 : 0;
    for (int r = 0; r < side->shards; r++)
        side->displs[r] =
            side->counts[r] == 0 && below(&seed, 2) ? 7 - 3 * r : side->displs[r] - shift;
}

static void find_extent(struct side *side, int vectors)
{
    MPI_Aint lower, extent, true_lower, true_extent, least = 0, most = 0;
    PMPI_Type_get_extent(side->type, &lower, &extent);
    PMPI_Type_get_true_extent(side->type, &true_lower, &true_extent);
    for (int r = 0, from = 0; r < side->shards; r++) {
        if (vectors)
            from = side->displs[r];
        if (side->counts[r] > 0) {
            MPI_Aint first = from * extent + true_lower;
            MPI_Aint last = (from + side->counts[r] - 1) * extent + true_lower + true_extent;
            least = first < least ? first : least;
            most = last > most ? last : most;
        }
        from += side->counts[r];
    }
    side->before = ((size_t)-least + SIDES_GUARD + LINE - 1) / LINE * LINE;
    side->after = (size_t)most + SIDES_GUARD;
}

void side_make(struct side *side, const struct spec *spec, int rank, int receives, int vectors)
{
    side->type = side->at[0] = side->at[1] = MPI_DATATYPE_NULL;
    side->receives = receives;
    side->vectors = vectors;
    if (!spec->base && !spec->user)
        return;
    for (int r = 0; r < side->shards; r++)
        side->total += side->elements[r];
    choose_type(side, spec, rank, receives, vectors);
    for (int r = 0; r < side->shards; r++)
        side->counts[r] = side->elements[r] / side->grain;
    if (vectors)
        place_shards(side, mix(mix(spec->seed, 31 + (uint64_t)receives), (uint64_t)rank));
    if (side->present)
        find_extent(side, vectors);
    for (int which = 0; which < 2; which++) {
        struct arena *arena = &side->arena[which];
        side->at[which] = side->type;
        if (!side->present)
            continue;
        size_t bytes = side->before + side->after;
        arena->memory = aligned_alloc(LINE, (bytes + 2 * LINE) / LINE * LINE);
        arena->base = arena->memory + side->before;
        if (which == 0 && spec->misaligned)
            arena->base += 1 + mix(spec->seed, (uint64_t)rank) % 7;
        if (spec->bottom && side->own)
            side->at[which] = layout_at(side->type, arena->base);
    }
}

void side_make_alike(struct side *side, const struct side *of, const struct spec *spec, int rank)
{
    *side = (struct side){.present = of->present, .shards = of->shards, .vectors = of->vectors};
    memcpy(side->elements, of->elements, sizeof side->elements);
    side_make(side, spec, rank, of->receives, of->vectors);
}

void side_transfer(const struct side *from, struct side *to)
{
    MPI_Aint lower, from_extent, to_extent, from_at = 0, to_at = 0;
    PMPI_Type_get_extent(from->type, &lower, &from_extent);
    PMPI_Type_get_extent(to->type, &lower, &to_extent);
    for (int r = 0; r < from->shards && from->present; r++) {
        int bytes = 0, at = 0;
        PMPI_Pack_size(from->counts[r], from->type, MPI_COMM_SELF, &bytes);
        char *packed = malloc((size_t)bytes + 1);
        MPI_Aint from_here = from->vectors ? from->displs[r] : from_at;
        MPI_Aint to_here = to->vectors ? to->displs[r] : to_at;
        PMPI_Pack(from->arena[1].base + from_here * from_extent, from->counts[r], from->type,
                  packed, bytes, &at, MPI_COMM_SELF);
        bytes = at;
        at = 0;
        PMPI_Unpack(packed, bytes, &at, to->arena[1].base + to_here * to_extent, to->counts[r],
                    to->type, MPI_COMM_SELF);
        free(packed);
        from_at += from->counts[r];
        to_at += to->counts[r];
    }
}

void side_free(struct side *side)
{
    for (int which = 0; which < 2; which++) {
        free(side->arena[which].memory);
        if (side->at[which] != side->type)
            PMPI_Type_free(&side->at[which]);
    }
    if (side->own)
        PMPI_Type_free(&side->type);
}

void *side_address(const struct side *side, const struct spec *spec, int which)
{
    if (!side->present || (side->total == 0 && side->receives == spec->strange))
        return NULL;
    return side->at[which] != side->type ? MPI_BOTTOM : side->arena[which].base;
}

void side_fill(struct side *side, const struct spec *spec, uint64_t seed, int operand)
{
    if (!side->present)
        return;
    char *base = side->arena[0].base;
    fill_bytes(base - side->before, side->before + side->after, seed);
    if (operand && spec->user)
        userop_fill(spec->user, base, (size_t)side->total, seed);
    else if (operand && spec->operation)
        base_fill(spec->base, spec->operation, base, (size_t)side->total, seed);
    memcpy(side->arena[1].base - side->before, base - side->before, side->before + side->after);
}

void side_forget(struct side *side, const struct spec *spec, int from)
{
    size_t extent = element_extent(spec);
    for (int which = 0; which < 2 && side->present; which++)
        memset(side->arena[which].base + (size_t)from * extent, 0,
               (size_t)(side->total - from) * extent);
}

long side_difference(struct side *side, const struct spec *spec)
{
    size_t bytes = side->before + side->after;
    const char *tested = side->arena[0].base - side->before;
    const char *reference = side->arena[1].base - side->before;
    for (int which = 0; which < 2 && spec->operation; which++)
        base_wipe_padding(spec->base, side->arena[which].base, (size_t)side->total);
    if (memcmp(tested, reference, bytes) == 0)
        return -1;
    size_t at = 0;
    while (tested[at] == reference[at])
        at++;
    return (long)at;
}

const char *side_difference_text(const struct side *side, long at)
{
    static char text[200];
    if (at < 0)
        return "";
    const unsigned char *tested = (unsigned char *)side->arena[0].base - side->before + at;
    const unsigned char *reference = (unsigned char *)side->arena[1].base - side->before + at;
    snprintf(text, sizeof text, "byte %ld is %02x, not %02x", at - (long)side->before, *tested,
             *reference);
    return text;
}
