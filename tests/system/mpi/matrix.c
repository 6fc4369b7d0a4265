/* SPDX-License-Identifier: Apache-2.0 */
/* Every collective call in every form, with every predefined type and operation, and with types of
 * every memory layout, compared with PMPI. */
#include "cases.h"

#include <stdio.h>
#include <string.h>

static const int counts[] = {0, 1, 3, 17, 211, 4001};

/* The random choices of a sweep. Each sweep has its own: a communicator that is larger on one rank
 * than on another draws more there, and the next sweep covers all ranks again. */
struct luck {
    uint64_t seed;
    int turn; /* forms rotate */
};

static void try(struct spec *spec, struct luck *luck)
{
    spec->seed = next(&luck->seed);
    if (spec_possible(spec))
        case_run(spec);
}

/* Try the next form in turn, or all. */
static void try_forms(struct spec *spec, struct luck *luck, int all)
{
    for (int i = 0; i < FORMS; i++) {
        spec->form = (enum form)((i + luck->turn) % FORMS);
        if (!calls[spec->call].form[spec->form])
            continue;
        try(spec, luck);
        if (!all)
            break;
    }
    luck->turn++;
}

/* Each call and form with some counts, every root, in place and not. */
static void matrix_sweep_calls(const struct where *where, struct luck *luck)
{
    const struct operation *operation = &operations[BXOR];
    for (int call = 0; call < CALLS; call++) {
        for (int root = 0; root < (calls[call].rooted ? where->size : 1); root++) {
            for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
                for (int in_place = 0; in_place < 2; in_place++) {
                    struct spec spec = {.call = (enum call)call,
                                        .comm = where->comm,
                                        .where = where->name,
                                        .root = root,
                                        .count = counts[n],
                                        .base = call == BARRIER ? NULL : base_of(MPI_INT),
                                        .operation = calls[call].reduces ? operation : NULL,
                                        .in_place = in_place,
                                        .strange = (int)((size_t)root + n) % 2,
                                        .misaligned = n == 3};
                    try_forms(&spec, luck, harness.thorough || n == 3 || n == 0);
                }
            }
        }
    }
}

/* Every operation on every type that the MPI below accepts. */
static void sweep_operations(const struct where *where, struct luck *luck)
{
    static const enum call reductions[] = {ALLREDUCE, REDUCE, REDUCE_SCATTER, REDUCE_SCATTER_BLOCK,
                                           SCAN,      EXSCAN};
    int pairs = 0;
    for (int b = 0; b < bases.count; b++) {
        for (int o = 0; o < PREDEFINED_OPS; o++) {
            if (!operation_takes(&operations[o], &bases.base[b]))
                continue;
            pairs++;
            for (int i = 0; i < 6; i++) {
                struct spec spec = {.call = reductions[i],
                                    .comm = where->comm,
                                    .where = where->name,
                                    .root = (b + o) % where->size,
                                    .count = 1 + (b * 7 + o * 5 + i) % 40,
                                    .base = &bases.base[b],
                                    .operation = &operations[o],
                                    .in_place = (b + o + i) % 3 == 0,
                                    .misaligned = (b + o + i) % 4 == 0};
                try_forms(&spec, luck, harness.thorough);
            }
        }
    }
    if (harness.rank == 0)
        printf("%d types, %d pairs of type and operation\n", bases.count, pairs);
}

static void sweep_user_operations(const struct where *where, struct luck *luck)
{
    static const int few[] = {0, 1, 5, 100, 3000};
    for (int call = 0; call < CALLS; call++) {
        for (int u = 0; u < USER_OPERATIONS * 5 && calls[call].reduces; u++) {
            struct spec spec = {.call = (enum call)call,
                                .comm = where->comm,
                                .where = where->name,
                                .root = u % where->size,
                                .count = few[u / USER_OPERATIONS],
                                .user = &user_operations[u % USER_OPERATIONS],
                                .in_place = u % 3 == 0};
            if (spec.user->extent > 1000 && spec.count > 100)
                continue;
            try_forms(&spec, luck, harness.thorough || spec.count == 5);
        }
    }
}

/* Open MPI overflows a buffer when it unpacks elements of more than 16 bytes with gaps, and MPICH
 * does not copy the padding of long doubles. */
static const struct base *draw_base(int layout, struct luck *luck)
{
    const struct base *base;
    do
        base = &bases.base[below(&luck->seed, bases.count)];
    while (layout != PLAIN && (base->extent > 16 || base->kind == EXTENDED));
    return base;
}

/* Every memory layout, equal on all ranks or not, for calls that only move data. */
static void sweep_layouts(const struct where *where, struct luck *luck)
{
    for (int call = BCAST; call < CALLS; call++) {
        for (int i = 0; i < 4 * (LAYOUTS + 1) && !calls[call].reduces; i++) {
            int layout = i % (LAYOUTS + 1);
            struct spec spec = {.call = (enum call)call,
                                .comm = where->comm,
                                .where = where->name,
                                .root = i % where->size,
                                .count = (const int[]){6, 30, 0, 600}[i / (LAYOUTS + 1)],
                                .base = draw_base(layout, luck),
                                .in_place = below(&luck->seed, 3) == 0,
                                .layout = layout,
                                .strange = below(&luck->seed, 2),
                                .bottom = below(&luck->seed, 3) == 0,
                                .misaligned = below(&luck->seed, 4) == 0};
            try_forms(&spec, luck, harness.thorough);
        }
    }
}

/* Some MiB. */
static void sweep_large(const struct where *where, struct luck *luck)
{
    for (int call = BCAST; call < CALLS; call++) {
        for (int i = 0; i < 3; i++) {
            int whole = call == BCAST || call == REDUCE || call == ALLREDUCE || call >= SCAN;
            struct spec spec = {.call = (enum call)call,
                                .comm = where->comm,
                                .where = where->name,
                                .root = i % where->size,
                                .count = (whole ? 700001 : 150001) * (harness.thorough ? 4 : 1),
                                .base = base_of(calls[call].reduces ? MPI_FLOAT : MPI_INT),
                                .operation = calls[call].reduces ? &operations[SUM] : NULL,
                                .in_place = i == 1,
                                .layout = i == 2 && !calls[call].reduces ? ANY_LAYOUT : PLAIN};
            try_forms(&spec, luck, harness.thorough);
        }
    }
}

static void sweep_matrix(void (*body)(const struct where *where, struct luck *luck),
                         const struct where *where)
{
    static uint64_t number;
    struct luck luck = {.seed = mix(harness.seed, number++)};
    body(where, &luck);
    if (harness.verbose)
        fprintf(stderr, "%g s %llu cases\n", MPI_Wtime(), (unsigned long long)harness.cases);
}

int main(int argc, char **argv)
{
    static struct where where[SWEPT_COMMS];
    harness_begin(&argc, &argv, "matrix");
    bases_find();
    userops_make();
    comms_make(where);
    for (int i = 0; i < (harness.thorough ? SWEPT_COMMS : 2); i++)
        sweep_matrix(matrix_sweep_calls, &where[i]);
    sweep_matrix(sweep_operations, &where[0]);
    sweep_matrix(sweep_user_operations, &where[2]);
    sweep_matrix(sweep_layouts, &where[0]);
    sweep_matrix(sweep_layouts, &where[3]);
    sweep_matrix(sweep_large, &where[0]);
    comms_free(where);
    userops_free();
    return harness_end();
}
