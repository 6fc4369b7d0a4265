/* SPDX-License-Identifier: Apache-2.0 */
/* The predefined types and operations of MPI: see mpi_test_types.h. */
#include "mpi_test_types.h"

#include <string.h>

struct bases bases;
struct operation operations[PREDEFINED_OPS];

static void add_type(const char *name, MPI_Datatype type, enum kind kind, enum second second,
                     int pair)
{
    if (type == MPI_DATATYPE_NULL || bases.count == MOST_BASES)
        return;
    static const size_t sizes[] = {0, 0, 4, 8, sizeof(long double), 16};
    int size = 0;
    MPI_Aint lower, extent;
    PMPI_Type_size(type, &size);
    PMPI_Type_get_extent(type, &lower, &extent);
    if (size == 0)
        return;
    struct base *b = &bases.base[bases.count++];
    *b = (struct base){name, type, kind, second, pair, (size_t)extent, {0}, {0}, {0}};
    size_t one = sizes[kind];
    if (one == 0)
        one = second == TWICE      ? (size_t)size / 2
              : second == WITH_INT ? (size_t)size - 4
                                   : (size_t)size;
    b->size[0] = one;
    if (second == TWICE) {
        b->size[1] = b->offset[1] = one;
    } else if (second == WITH_INT) {
        b->size[1] = sizeof(int);
        b->offset[1] = one < sizeof(int) ? sizeof(int) : one;
    }
    for (int i = 0; i < 2; i++)
        b->significant[i] = kind == EXTENDED && b->size[i] == sizeof(long double) ? 10 : b->size[i];
}

/* MPIs differ in the format of a Fortran real of 16 bytes: find the one in which 1 + 1 is 2. */
static enum kind kind_of_real16(MPI_Datatype type)
{
    if (type == MPI_DATATYPE_NULL)
        return QUAD;
    char memory[2][32];
    memset(memory, 0, sizeof memory);
    long double one = 1, two = 2;
    memcpy(memory[0], &one, 10);
    memcpy(memory[1], &one, 10);
    if (PMPI_Reduce_local(memory[0], memory[1], 1, type, MPI_SUM) != MPI_SUCCESS)
        return QUAD;
    return memcmp(memory[1], &two, 10) == 0 ? EXTENDED : QUAD;
}

#define TYPES_ADD(type, kind)        add_type(#type, type, kind, ALONE, 0)
#define ADD_COMPLEX(type, kind)      add_type(#type, type, kind, TWICE, 0)
#define ADD_PAIR(type, kind, second) add_type(#type, type, kind, second, 1)

static void find_c(void)
{
    TYPES_ADD(MPI_INT, WHOLE);
    TYPES_ADD(MPI_CHAR, WHOLE);
    TYPES_ADD(MPI_SIGNED_CHAR, WHOLE);
    TYPES_ADD(MPI_UNSIGNED_CHAR, WHOLE);
    TYPES_ADD(MPI_BYTE, WHOLE);
    TYPES_ADD(MPI_PACKED, WHOLE);
    TYPES_ADD(MPI_WCHAR, WHOLE);
    TYPES_ADD(MPI_SHORT, WHOLE);
    TYPES_ADD(MPI_UNSIGNED_SHORT, WHOLE);
    TYPES_ADD(MPI_UNSIGNED, WHOLE);
    TYPES_ADD(MPI_LONG, WHOLE);
    TYPES_ADD(MPI_UNSIGNED_LONG, WHOLE);
    TYPES_ADD(MPI_LONG_LONG_INT, WHOLE);
    TYPES_ADD(MPI_UNSIGNED_LONG_LONG, WHOLE);
    TYPES_ADD(MPI_INT8_T, WHOLE);
    TYPES_ADD(MPI_INT16_T, WHOLE);
    TYPES_ADD(MPI_INT32_T, WHOLE);
    TYPES_ADD(MPI_INT64_T, WHOLE);
    TYPES_ADD(MPI_UINT8_T, WHOLE);
    TYPES_ADD(MPI_UINT16_T, WHOLE);
    TYPES_ADD(MPI_UINT32_T, WHOLE);
    TYPES_ADD(MPI_UINT64_T, WHOLE);
    TYPES_ADD(MPI_AINT, WHOLE);
    TYPES_ADD(MPI_OFFSET, WHOLE);
    TYPES_ADD(MPI_COUNT, WHOLE);
    TYPES_ADD(MPI_C_BOOL, TRUTH);
    TYPES_ADD(MPI_FLOAT, BINARY32);
    TYPES_ADD(MPI_DOUBLE, BINARY64);
    TYPES_ADD(MPI_LONG_DOUBLE, EXTENDED);
    ADD_COMPLEX(MPI_C_FLOAT_COMPLEX, BINARY32);
    ADD_COMPLEX(MPI_C_DOUBLE_COMPLEX, BINARY64);
    ADD_COMPLEX(MPI_C_LONG_DOUBLE_COMPLEX, EXTENDED);
    ADD_PAIR(MPI_FLOAT_INT, BINARY32, WITH_INT);
    ADD_PAIR(MPI_DOUBLE_INT, BINARY64, WITH_INT);
    ADD_PAIR(MPI_LONG_DOUBLE_INT, EXTENDED, WITH_INT);
    ADD_PAIR(MPI_LONG_INT, WHOLE, WITH_INT);
    ADD_PAIR(MPI_SHORT_INT, WHOLE, WITH_INT);
    ADD_PAIR(MPI_2INT, WHOLE, TWICE);
}

static void find_fortran(void)
{
    TYPES_ADD(MPI_CHARACTER, WHOLE);
    TYPES_ADD(MPI_LOGICAL, TRUTH);
    TYPES_ADD(MPI_INTEGER, WHOLE);
    TYPES_ADD(MPI_INTEGER1, WHOLE);
    TYPES_ADD(MPI_INTEGER2, WHOLE);
    TYPES_ADD(MPI_INTEGER4, WHOLE);
    TYPES_ADD(MPI_INTEGER8, WHOLE);
    TYPES_ADD(MPI_REAL, BINARY32);
    TYPES_ADD(MPI_REAL4, BINARY32);
    TYPES_ADD(MPI_REAL8, BINARY64);
    TYPES_ADD(MPI_DOUBLE_PRECISION, BINARY64);
    ADD_COMPLEX(MPI_COMPLEX, BINARY32);
    ADD_COMPLEX(MPI_COMPLEX8, BINARY32);
    ADD_COMPLEX(MPI_COMPLEX16, BINARY64);
    ADD_COMPLEX(MPI_DOUBLE_COMPLEX, BINARY64);
    ADD_PAIR(MPI_2REAL, BINARY32, TWICE);
    ADD_PAIR(MPI_2DOUBLE_PRECISION, BINARY64, TWICE);
    ADD_PAIR(MPI_2INTEGER, WHOLE, TWICE);
#ifdef MPI_REAL16
    TYPES_ADD(MPI_REAL16, kind_of_real16(MPI_REAL16));
    ADD_COMPLEX(MPI_COMPLEX32, kind_of_real16(MPI_REAL16));
#endif
#ifdef MPI_INTEGER16
    TYPES_ADD(MPI_INTEGER16, WHOLE);
#endif
#ifdef MPI_LOGICAL1
    TYPES_ADD(MPI_LOGICAL1, TRUTH);
    TYPES_ADD(MPI_LOGICAL2, TRUTH);
    TYPES_ADD(MPI_LOGICAL4, TRUTH);
    TYPES_ADD(MPI_LOGICAL8, TRUTH);
#endif
    TYPES_ADD(MPI_CXX_BOOL, TRUTH);
    ADD_COMPLEX(MPI_CXX_FLOAT_COMPLEX, BINARY32);
    ADD_COMPLEX(MPI_CXX_DOUBLE_COMPLEX, BINARY64);
    ADD_COMPLEX(MPI_CXX_LONG_DOUBLE_COMPLEX, EXTENDED);
}

void bases_find(void)
{
    const struct operation all[PREDEFINED_OPS] = {
        {"SUM", MPI_SUM, SUM},    {"PROD", MPI_PROD, PROD},       {"MIN", MPI_MIN, MIN},
        {"MAX", MPI_MAX, MAX},    {"LAND", MPI_LAND, LAND},       {"LOR", MPI_LOR, LOR},
        {"LXOR", MPI_LXOR, LXOR}, {"BAND", MPI_BAND, BAND},       {"BOR", MPI_BOR, BOR},
        {"BXOR", MPI_BXOR, BXOR}, {"MINLOC", MPI_MINLOC, MINLOC}, {"MAXLOC", MPI_MAXLOC, MAXLOC}};
    memcpy(operations, all, sizeof all);
    MPI_Errhandler before;
    PMPI_Comm_get_errhandler(MPI_COMM_WORLD, &before);
    PMPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    find_c();
    find_fortran();
    PMPI_Comm_set_errhandler(MPI_COMM_WORLD, before);
    PMPI_Errhandler_free(&before);
}

const struct base *base_of(MPI_Datatype type)
{
    for (int i = 0; i < bases.count; i++)
        if (bases.base[i].type == type)
            return &bases.base[i];
    return NULL;
}

static int is_of_c(const struct base *base)
{
    static const char *const others[] = {"BYTE", "INTEGER", "OFFSET", "AINT", "COUNT"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strstr(base->name, others[i]))
            return 0;
    return 1;
}

/* What the standard allows. MPICH does not always report the rest, but may end the process. */
static int is_allowed(int operation, const struct base *base)
{
    int is_real = base->kind >= BINARY32 && !base->pair,
        is_whole = base->kind == WHOLE && !base->pair;
    int is_complex = is_real && base->second == TWICE, is_byte = base->type == MPI_BYTE;
    if (strstr(base->name, "PACKED") ||
        (strstr(base->name, "CHAR") && !strstr(base->name, "SIGNED")))
        return 0;
    if (operation <= PROD)
        return (is_real || is_whole) && !is_byte;
    if (operation <= MAX)
        return ((is_real && !is_complex) || is_whole) && !is_byte;
    if (operation <= LXOR)
        return (is_whole && is_of_c(base)) || base->kind == TRUTH;
    return operation <= BXOR ? is_whole : base->pair;
}

int operation_takes(const struct operation *operation, const struct base *base)
{
    if (!is_allowed(operation->index, base))
        return 0;
    char left[64], right[64];
    base_fill(base, operation, left, 1, 1);
    base_fill(base, operation, right, 1, 2);
    MPI_Errhandler before;
    PMPI_Comm_get_errhandler(MPI_COMM_WORLD, &before);
    PMPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int code = PMPI_Reduce_local(left, right, 1, base->type, operation->op);
    PMPI_Comm_set_errhandler(MPI_COMM_WORLD, before);
    PMPI_Errhandler_free(&before);
    return code == MPI_SUCCESS;
}

static void store_real(enum kind kind, double value, void *memory)
{
    float single = (float)value;
    long double extended = value;
    __float128 quad = value;
    switch (kind) {
    case BINARY32:
        memcpy(memory, &single, sizeof single);
        break;
    case BINARY64:
        memcpy(memory, &value, sizeof value);
        break;
    case EXTENDED:
        memcpy(memory, &extended, 10);
        break;
    default:
        memcpy(memory, &quad, sizeof quad);
        break;
    }
}

/* Sums of narrow integers saturate in Open MPI's vector code and wrap around in its loops. Both are
 * legal, so no sum here overflows. */
static int64_t small_integer(const struct base *base, const struct operation *operation,
                             double value, uint64_t *state)
{
    if (base->pair)
        return (int64_t)value;
    switch (operation->index) {
    case SUM:
        return below(state, 128 / MOST_RANKS);
    case PROD:
        return 1 + (below(state, 4) == 0);
    default:
        return (int64_t)next(state);
    }
}

/* Open MPI 4.1 compares unsigned long as signed and MPI_Offset as unsigned, MPICH 4.0 all as
 * signed, so such values are kept small. */
static unsigned char sign_mask(const struct base *base)
{
    static const char *const doubtful[] = {"UNSIGNED", "UINT", "OFFSET", "AINT", "COUNT"};
    for (size_t i = 0; i < sizeof doubtful / sizeof *doubtful; i++)
        if (strstr(base->name, doubtful[i]))
            return 0x7f;
    return 0xff;
}

/* Small values: any order of sums and products is exact, and values of pairs are often equal. */
static void fill_value(const struct base *base, const struct operation *operation, int second,
                       void *memory, uint64_t *state)
{
    static const double factors[] = {1, -1, 2, -2, 0.5, -0.5, 1, 1};
    static const double close[] = {-1, -0.0, 0.0, 1}; /* the zeros are equal: the index decides */
    int index = base->pair && second;
    double value = index ? below(state, 1000) : below(state, 9) - 4;
    if (base->pair && !index)
        value = close[below(state, 4)];
    else if (operation->index == PROD && !(base->second == TWICE))
        value = factors[below(state, 8)];
    if (base->kind == TRUTH || base->kind == WHOLE || (index && base->second == WITH_INT)) {
        int64_t whole[2] = {(int64_t)next(state), (int64_t)next(state)};
        if (base->kind == TRUTH)
            whole[1] = 0, whole[0] &= 1;
        else if (base->pair || base->size[0] < sizeof(int))
            whole[1] = 0, whole[0] = small_integer(base, operation, value, state);
        if (operation->index >= LAND && operation->index <= LXOR && below(state, 2))
            whole[0] = whole[1] = 0;
        memcpy(memory, whole, base->size[second]);
        if (operation->index == MIN || operation->index == MAX)
            ((unsigned char *)memory)[base->size[second] - 1] &= sign_mask(base);
        return;
    }
    store_real(base->kind, value, memory);
}

void base_fill(const struct base *base, const struct operation *operation, void *memory,
               size_t count, uint64_t seed)
{
    uint64_t state = mix(seed, 77);
    char *at = memory;
    for (size_t i = 0; i < count; i++, at += base->extent)
        for (int second = 0; second < 2 && base->size[second] > 0; second++)
            fill_value(base, operation, second, at + base->offset[second], &state);
}

/* A product of complex numbers has zeros of either sign, depending on the order of factors. Of
 * equal zeros MPIs keep the first operand's, and of the indices the lowest. */
static void wipe_signs_of_zero(const struct base *base, unsigned char *memory, size_t count)
{
    for (size_t i = 0; i < count; i++, memory += base->extent) {
        for (int second = 0; second < 2; second++) {
            unsigned char *value = memory + base->offset[second], *sign;
            size_t zeros = 0;
            sign = value + base->significant[second] - 1;
            while (value + zeros < sign && value[zeros] == 0)
                zeros++;
            if (value + zeros == sign && *sign == 0x80)
                *sign = 0;
        }
    }
}

void base_wipe_padding(const struct base *base, void *memory, size_t count)
{
    if (base->kind >= BINARY32 && base->second != ALONE)
        wipe_signs_of_zero(base, memory, count);
    if (base->significant[0] + base->significant[1] == base->extent)
        return;
    char *at = memory;
    for (size_t i = 0; i < count; i++, at += base->extent) {
        size_t end = base->offset[0] + base->significant[0];
        if (base->size[1] > 0) {
            memset(at + end, 0, base->offset[1] - end);
            end = base->offset[1] + base->significant[1];
        }
        memset(at + end, 0, base->extent - end);
    }
}
