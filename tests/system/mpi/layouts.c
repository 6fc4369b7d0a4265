/* SPDX-License-Identifier: Apache-2.0 */
/* Datatypes of one signature with different memory layouts: see layouts.h. */
#include "layouts.h"

const char *const layout_names[LAYOUTS] = {"plain",      "contiguous", "vector",    "indexed",
                                           "permuted",   "struct",     "resized",   "negative",
                                           "transposed", "subarray",   "duplicate", "nested"};

/* Blocks at multiples of extent: ascending with holes, descending without, or before the
 * address. */
static MPI_Datatype by_displacements(enum layout layout, MPI_Datatype base, int elements,
                                     MPI_Aint extent)
{
    int lengths[GRAIN];
    MPI_Aint at[GRAIN], shift = layout == NEGATIVE ? -2 * extent : 0;
    MPI_Datatype type, resized;
    for (int i = 0; i < elements; i++) {
        lengths[i] = 1;
        at[i] =
            layout == PERMUTED ? (elements - 1 - i) * extent : (2 * i + (i > 1)) * extent + shift;
    }
    PMPI_Type_create_hindexed(elements, lengths, at, base, &type);
    if (layout != NEGATIVE)
        return type;
    PMPI_Type_create_resized(type, -3 * extent, 2 * (elements + 1) * extent, &resized);
    PMPI_Type_free(&type);
    return resized;
}

/* A struct whose first field is one element, and whose second, after a hole, has the others. */
static MPI_Datatype structure(MPI_Datatype base, int elements, MPI_Aint extent)
{
    int lengths[2] = {1, elements - 1};
    MPI_Aint at[2] = {extent, 3 * extent};
    MPI_Datatype types[2] = {base, base}, type, resized;
    PMPI_Type_create_struct(elements > 1 ? 2 : 1, lengths, at, types, &type);
    PMPI_Type_create_resized(type, 0, (elements + 4) * extent, &resized);
    PMPI_Type_free(&type);
    return resized;
}

static MPI_Datatype resized(MPI_Datatype made, MPI_Aint extent)
{
    MPI_Datatype type;
    PMPI_Type_create_resized(made, 0, extent, &type);
    PMPI_Type_free(&made);
    return type;
}

static MPI_Datatype nested(MPI_Datatype base, int elements, MPI_Aint extent)
{
    if (elements % 2 != 0)
        return structure(base, elements, extent);
    MPI_Datatype inner = structure(base, 2, extent), type;
    PMPI_Type_vector(elements / 2, 1, 2, inner, &type);
    PMPI_Type_free(&inner);
    return type;
}

MPI_Datatype layout_make(enum layout layout, MPI_Datatype base, int *elements, int items,
                         uint64_t seed)
{
    static const int divisors[] = {1, 2, 3, 6};
    MPI_Datatype type;
    MPI_Aint lower, extent;
    PMPI_Type_get_extent(base, &lower, &extent);
    int n = *elements = layout == PLAIN || layout == DUPLICATE ? 1 : divisors[seed % 4];
    switch (layout) {
    case PLAIN:
        return base;
    case DUPLICATE:
        PMPI_Type_dup(base, &type);
        break;
    case CONTIGUOUS:
        PMPI_Type_contiguous(n, base, &type);
        break;
    case VECTOR:
        PMPI_Type_vector(n, 1, 2, base, &type);
        break;
    case INDEXED:
    case PERMUTED:
    case NEGATIVE:
        type = by_displacements(layout, base, n, extent);
        break;
    case STRUCTURE:
        type = structure(base, n, extent);
        break;
    case RESIZED:
        PMPI_Type_contiguous(n, base, &type);
        type = resized(type, (n + 1) * extent);
        break;
    case TRANSPOSED:
        PMPI_Type_vector(n, 1, items > 0 ? items : 1, base, &type);
        type = resized(type, extent);
        break;
    case SUBARRAY:
        PMPI_Type_create_subarray(1, (int[]){n + 3}, &n, (int[]){2}, MPI_ORDER_C, base, &type);
        break;
    default:
        type = nested(base, n, extent);
        break;
    }
    PMPI_Type_commit(&type);
    return type;
}

MPI_Datatype layout_at(MPI_Datatype type, const void *address)
{
    MPI_Datatype made;
    MPI_Aint at;
    PMPI_Get_address(address, &at);
    PMPI_Type_create_hindexed(1, (int[]){1}, &at, type, &made);
    PMPI_Type_commit(&made);
    return made;
}
