/* SPDX-License-Identifier: Apache-2.0 */
/* User-defined operations, with types for them: see userops.h. */
#include "userops.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct user_operation user_operations[USER_OPERATIONS];

struct matrix {
    uint32_t at[4];
};
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
enum { MATRIX, USEROPS_TEXT, AFFINE, USEROPS_PAGE, USEROPS_ADD, USEROPS_LEFT, CROOKED, GAPS };

static void check_type(MPI_Datatype type, int which)
{
    if (type != user_operations[which].type)
        harness_fail("the operation '%s' is called with another type", user_operations[which].name);
}

static void multiply(void *in, void *inout, int *length, MPI_Datatype *type)
{
    check_type(*type, MATRIX);
    const struct matrix *a = in;
    struct matrix *b = inout;
    for (int i = 0; i < *length; i++, a++, b++) {
        struct matrix product = {
            {a->at[0] * b->at[0] + a->at[1] * b->at[2], a->at[0] * b->at[1] + a->at[1] * b->at[3],
             a->at[2] * b->at[0] + a->at[3] * b->at[2], a->at[2] * b->at[1] + a->at[3] * b->at[3]}};
        *b = product;
    }
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

/* Every second number. */
static void gaps(void *in, void *inout, int *length, MPI_Datatype *type)
{
    check_type(*type, GAPS);
    for (int i = 0; i < *length; i++)
        for (int j = 0; j < 4; j += 2)
            ((uint32_t *)inout)[4 * i + j] += ((const uint32_t *)in)[4 * i + j];
}

static void make_op(int which, const char *name, MPI_User_function *function, int commutes,
                    MPI_Datatype type, int own)
{
    struct user_operation *user = &user_operations[which];
    MPI_Aint lower, extent;
    if (own)
        MPI_Type_commit(&type);
    PMPI_Type_get_extent(type, &lower, &extent);
    *user = (struct user_operation){name,           MPI_OP_NULL, type,
                                    (size_t)extent, own,         which == AFFINE || which == GAPS};
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

static MPI_Datatype gaps_type(void)
{
    MPI_Datatype type, whole;
    MPI_Type_vector(2, 1, 2, MPI_UINT32_T, &type);
    MPI_Type_create_resized(type, 0, 16, &whole);
    MPI_Type_free(&type);
    return whole;
}

void userops_make(void)
{
    make_op(MATRIX, "matrix product", multiply, 0, contiguous(4, MPI_UINT32_T), 1);
    make_op(USEROPS_TEXT, "concatenation", concatenate, 0,
            contiguous(sizeof(struct op_text), MPI_BYTE), 1);
    make_op(AFFINE, "composition", compose_affine, 0, affine_type(), 1);
    make_op(USEROPS_PAGE, "exclusive or of pages", exclusive, 1, contiguous(1280, MPI_UINT32_T), 1);
    make_op(USEROPS_ADD, "add", add_op, 1, MPI_UINT32_T, 0);
    make_op(USEROPS_LEFT, "left", left, 0, MPI_DOUBLE, 0);
    make_op(CROOKED, "crooked", crooked, 1, contiguous(3, MPI_UNSIGNED_CHAR), 1);
    make_op(GAPS, "gaps", gaps, 1, gaps_type(), 1);
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
