/* SPDX-License-Identifier: Apache-2.0 */
/* What calls are given: predefined types and operations, the program's own, and types of other
 * memory layouts: see cases.h. */
#include "cases.h"

#include <stddef.h>
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

struct named_type {
    const char *name;
    MPI_Datatype type;
};
#define NAMED(type) ((struct named_type){#type, type})

static void add_types(const struct named_type *types, size_t count, enum kind kind,
                      enum second second)
{
    for (size_t i = 0; i < count; i++)
        add_type(types[i].name, types[i].type, kind, second, 0);
}
#define ADD_TYPES(kind, second, ...)                                                               \
    do {                                                                                           \
        const struct named_type types[] = {__VA_ARGS__};                                           \
        add_types(types, sizeof types / sizeof *types, kind, second);                              \
    } while (0)
#define ADD_PAIR(type, kind, second) add_type(#type, type, kind, second, 1)

static void find_c(void)
{
    ADD_TYPES(WHOLE, ALONE, NAMED(MPI_INT), NAMED(MPI_CHAR), NAMED(MPI_SIGNED_CHAR),
              NAMED(MPI_UNSIGNED_CHAR), NAMED(MPI_BYTE), NAMED(MPI_PACKED), NAMED(MPI_WCHAR),
              NAMED(MPI_SHORT), NAMED(MPI_UNSIGNED_SHORT), NAMED(MPI_UNSIGNED), NAMED(MPI_LONG),
              NAMED(MPI_UNSIGNED_LONG), NAMED(MPI_LONG_LONG_INT), NAMED(MPI_UNSIGNED_LONG_LONG),
              NAMED(MPI_INT8_T), NAMED(MPI_INT16_T), NAMED(MPI_INT32_T), NAMED(MPI_INT64_T),
              NAMED(MPI_UINT8_T), NAMED(MPI_UINT16_T), NAMED(MPI_UINT32_T), NAMED(MPI_UINT64_T),
              NAMED(MPI_AINT), NAMED(MPI_OFFSET), NAMED(MPI_COUNT));
    ADD_TYPES(TRUTH, ALONE, NAMED(MPI_C_BOOL));
    ADD_TYPES(BINARY32, ALONE, NAMED(MPI_FLOAT));
    ADD_TYPES(BINARY64, ALONE, NAMED(MPI_DOUBLE));
    ADD_TYPES(EXTENDED, ALONE, NAMED(MPI_LONG_DOUBLE));
    ADD_TYPES(BINARY32, TWICE, NAMED(MPI_C_FLOAT_COMPLEX));
    ADD_TYPES(BINARY64, TWICE, NAMED(MPI_C_DOUBLE_COMPLEX));
    ADD_TYPES(EXTENDED, TWICE, NAMED(MPI_C_LONG_DOUBLE_COMPLEX));
    ADD_PAIR(MPI_FLOAT_INT, BINARY32, WITH_INT);
    ADD_PAIR(MPI_DOUBLE_INT, BINARY64, WITH_INT);
    ADD_PAIR(MPI_LONG_DOUBLE_INT, EXTENDED, WITH_INT);
    ADD_PAIR(MPI_LONG_INT, WHOLE, WITH_INT);
    ADD_PAIR(MPI_SHORT_INT, WHOLE, WITH_INT);
    ADD_PAIR(MPI_2INT, WHOLE, TWICE);
}

static void find_fortran(void)
{
    ADD_TYPES(WHOLE, ALONE, NAMED(MPI_CHARACTER), NAMED(MPI_INTEGER), NAMED(MPI_INTEGER1),
              NAMED(MPI_INTEGER2), NAMED(MPI_INTEGER4), NAMED(MPI_INTEGER8));
    ADD_TYPES(TRUTH, ALONE, NAMED(MPI_LOGICAL), NAMED(MPI_CXX_BOOL));
    ADD_TYPES(BINARY32, ALONE, NAMED(MPI_REAL), NAMED(MPI_REAL4));
    ADD_TYPES(BINARY64, ALONE, NAMED(MPI_REAL8), NAMED(MPI_DOUBLE_PRECISION));
    ADD_TYPES(BINARY32, TWICE, NAMED(MPI_COMPLEX), NAMED(MPI_COMPLEX8),
              NAMED(MPI_CXX_FLOAT_COMPLEX));
    ADD_TYPES(BINARY64, TWICE, NAMED(MPI_COMPLEX16), NAMED(MPI_DOUBLE_COMPLEX),
              NAMED(MPI_CXX_DOUBLE_COMPLEX));
    ADD_TYPES(EXTENDED, TWICE, NAMED(MPI_CXX_LONG_DOUBLE_COMPLEX));
    ADD_PAIR(MPI_2REAL, BINARY32, TWICE);
    ADD_PAIR(MPI_2DOUBLE_PRECISION, BINARY64, TWICE);
    ADD_PAIR(MPI_2INTEGER, WHOLE, TWICE);
#ifdef MPI_REAL16
    ADD_TYPES(kind_of_real16(MPI_REAL16), ALONE, NAMED(MPI_REAL16));
    ADD_TYPES(kind_of_real16(MPI_REAL16), TWICE, NAMED(MPI_COMPLEX32));
#endif
#ifdef MPI_INTEGER16
    ADD_TYPES(WHOLE, ALONE, NAMED(MPI_INTEGER16));
#endif
#ifdef MPI_LOGICAL1
    ADD_TYPES(TRUTH, ALONE, NAMED(MPI_LOGICAL1), NAMED(MPI_LOGICAL2), NAMED(MPI_LOGICAL4),
              NAMED(MPI_LOGICAL8));
#endif
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

/* --- operations of the program ---------------------------------------------------------------- */

struct user_operation user_operations[USER_OPERATIONS];

struct op_text {
    unsigned char length, letter[39];
};
/* x -> factor x + addend, with a hole. */
struct affine {
    uint64_t factor;
    uint16_t addend;
    uint16_t hole[3];
};
struct page {
    uint32_t word[1280]; /* larger than twill's limit for an element */
};
enum { USEROPS_TEXT, AFFINE, USEROPS_PAGE, USEROPS_ADD, USEROPS_LEFT, CROOKED };

static void check_type(MPI_Datatype type, int which)
{
    if (type != user_operations[which].type)
        harness_fail("the operation '%s' is called with another type", user_operations[which].name);
}

static void concatenate(void *in, void *inout, int *length, MPI_Datatype *type)
{
    check_type(*type, USEROPS_TEXT);
    const struct op_text *a = in;
    struct op_text *b = inout;
    for (int i = 0; i < *length; i++, a++, b++) {
        struct op_text joined = *a;
        size_t more = b->length;
        if (joined.length + more > sizeof joined.letter)
            more = sizeof joined.letter - joined.length;
        memcpy(joined.letter + joined.length, b->letter, more);
        joined.length = (unsigned char)(joined.length + more);
        *b = joined;
    }
}

static void compose_affine(void *in, void *inout, int *length, MPI_Datatype *type)
{
    check_type(*type, AFFINE);
    const struct affine *a = in;
    struct affine *b = inout;
    for (int i = 0; i < *length; i++, a++, b++) {
        b->addend = (uint16_t)(b->factor * a->addend + b->addend);
        b->factor *= a->factor;
    }
}

static void exclusive(void *in, void *inout, int *length, MPI_Datatype *type)
{
    check_type(*type, USEROPS_PAGE);
    const uint32_t *a = in;
    uint32_t *b = inout;
    for (size_t i = 0; i < (size_t)*length * 1280; i++)
        b[i] ^= a[i];
}

static void add_op(void *in, void *inout, int *length, MPI_Datatype *type)
{
    check_type(*type, USEROPS_ADD);
    for (int i = 0; i < *length; i++)
        ((uint32_t *)inout)[i] += ((const uint32_t *)in)[i];
}

static void left(void *in, void *inout, int *length, MPI_Datatype *type)
{
    check_type(*type, USEROPS_LEFT);
    memcpy(inout, in, (size_t)*length * sizeof(double));
}

/* 3 bytes: an odd size and alignment. */
static void crooked(void *in, void *inout, int *length, MPI_Datatype *type)
{
    check_type(*type, CROOKED);
    for (int i = 0; i < 3 * *length; i++)
        ((unsigned char *)inout)[i] += ((const unsigned char *)in)[i];
}

static void make_op(int which, const char *name, MPI_User_function *function, int commutes,
                    MPI_Datatype type, int own)
{
    struct user_operation *user = &user_operations[which];
    MPI_Aint lower, extent;
    if (own)
        MPI_Type_commit(&type);
    PMPI_Type_get_extent(type, &lower, &extent);
    *user = (struct user_operation){name, MPI_OP_NULL, type, (size_t)extent, own, which == AFFINE};
    MPI_Op_create(function, commutes, &user->op);
}

static MPI_Datatype contiguous(int count, MPI_Datatype of)
{
    MPI_Datatype type;
    MPI_Type_contiguous(count, of, &type);
    return type;
}

static MPI_Datatype affine_type(void)
{
    MPI_Datatype type, whole;
    MPI_Type_create_struct(2, (int[]){1, 1}, (MPI_Aint[]){0, offsetof(struct affine, addend)},
                           (MPI_Datatype[]){MPI_UINT64_T, MPI_UINT16_T}, &type);
    MPI_Type_create_resized(type, 0, sizeof(struct affine), &whole);
    MPI_Type_free(&type);
    return whole;
}

void userops_make(void)
{
    make_op(USEROPS_TEXT, "concatenation", concatenate, 0,
            contiguous(sizeof(struct op_text), MPI_BYTE), 1);
    make_op(AFFINE, "composition", compose_affine, 0, affine_type(), 1);
    make_op(USEROPS_PAGE, "exclusive or of pages", exclusive, 1, contiguous(1280, MPI_UINT32_T), 1);
    make_op(USEROPS_ADD, "add", add_op, 1, MPI_UINT32_T, 0);
    make_op(USEROPS_LEFT, "left", left, 0, MPI_DOUBLE, 0);
    make_op(CROOKED, "crooked", crooked, 1, contiguous(3, MPI_UNSIGNED_CHAR), 1);
}

void userops_free(void)
{
    for (int i = 0; i < USER_OPERATIONS; i++) {
        MPI_Op_free(&user_operations[i].op);
        if (user_operations[i].own)
            MPI_Type_free(&user_operations[i].type);
    }
}

void userop_fill(const struct user_operation *user, void *memory, size_t count, uint64_t seed)
{
    fill_bytes(memory, count * user->extent, seed);
    if (user != &user_operations[USEROPS_TEXT])
        return;
    struct op_text *text = memory;
    for (size_t i = 0; i < count; i++) {
        memset(&text[i], 0, sizeof text[i]);
        text[i].length = (unsigned char)(1 + below(&seed, 4));
        for (int j = 0; j < text[i].length; j++)
            text[i].letter[j] = (unsigned char)('a' + below(&seed, 26));
    }
}

/* --- layouts ---------------------------------------------------------------------------------- */

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
