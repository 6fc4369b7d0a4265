/* SPDX-License-Identifier: Apache-2.0 */
/* User-defined operations: arguments, the table, and what ranks compare. */
#include "lib/base/lists.h"
#include "lib/job/context.h"
#include "lib/job/operation.h"
#include "tests/support/unit.h"

static void nothing(const void *left, const void *right, void *result, size_t count,
                    twill_type type, void *user)
{
}

static int open_context(void **state)
{
    twill_bootstrap alone = {.size = 1};
    return twill_context_create((twill_context **)state, &alone, NULL);
}

static int close_context(void **state)
{
    twill_context_destroy(*state);
    return 0;
}

static void refused(twill_context *context, twill_status status, const char *word)
{
    assert_int_equal(status, TWILL_ERR_ARGUMENT);
    if (strstr(twill_context_message(context), word) == NULL)
        fail_msg("expected \"%s\" in: %s", word, twill_context_message(context));
}

TWILL_TEST(arguments)
{
    twill_context *context = *state;
    twill_op op;
    float factor = 2;
    assert_int_equal(twill_op_create(NULL, &op, nothing, NULL, 0, 1), TWILL_ERR_ARGUMENT);
    assert_int_equal(twill_op_create_scaled(NULL, &op, TWILL_F32, &factor), TWILL_ERR_ARGUMENT);
    assert_int_equal(twill_op_destroy(NULL, TWILL_OP_CREATED), TWILL_ERR_ARGUMENT);
    refused(context, twill_op_create(context, NULL, nothing, NULL, 0, 1), "op is NULL");
    refused(context, twill_op_create(context, &op, NULL, NULL, 0, 1), "function is NULL");
    refused(context, twill_op_create(context, &op, nothing, NULL, 4097, 1), "element_bytes 4097");
    refused(context, twill_op_create_scaled(context, NULL, TWILL_F32, &factor), "op is NULL");
    refused(context, twill_op_create_scaled(context, &op, TWILL_F32, NULL), "factor is NULL");
    refused(context, twill_op_create_scaled(context, &op, TWILL_TYPE_COUNT, &factor), "type");
    refused(context, twill_op_create_scaled(context, &op, (twill_type)-1, &factor), "type -1");
    refused(context, twill_op_create_narrow(context, NULL, TWILL_F16, NULL, NULL), "op is NULL");
    refused(context, twill_op_create_narrow(context, &op, TWILL_F32, NULL, NULL), "type 0");
    refused(context, twill_op_create_narrow(context, &op, TWILL_TYPE_COUNT, NULL, NULL), "type");
    assert_int_equal(twill_op_create_narrow(NULL, &op, TWILL_F16, NULL, NULL), TWILL_ERR_ARGUMENT);
    refused(context, twill_op_destroy(context, TWILL_SUM), "op 0");
    refused(context, twill_op_destroy(context, TWILL_OP_CREATED), "op 256");
    refused(context, twill_op_destroy(context, (twill_op)-1), "op -1");
}

TWILL_TEST(made_found_forgotten)
{
    twill_context *context = *state;
    twill_op op[TWILL_OPERATIONS], more;
    for (unsigned i = 0; i < TWILL_OPERATIONS; i++) {
        assert_int_equal(twill_op_create(context, &op[i], nothing, &op[i], i, i % 2), TWILL_OK);
        assert_true(op[i] >= TWILL_OP_CREATED);
        assert_string_equal(twill_op_name(op[i]), "created");
    }
    assert_int_equal(twill_op_create(context, &more, nothing, NULL, 0, 1), TWILL_ERR_MEMORY);
    assert_non_null(strstr(twill_context_message(context), "256"));
    for (unsigned i = 0; i < TWILL_OPERATIONS; i++) {
        const struct twill_operation *found = twill_context_operation(context, op[i]);
        assert_non_null(found);
        assert_ptr_equal(found->function, nothing);
        assert_ptr_equal(found->user, &op[i]);
        assert_int_equal(found->element, i);
        assert_int_equal(found->commutative, i % 2);
        assert_false(found->scaled);
    }
    assert_int_equal(twill_op_destroy(context, op[77]), TWILL_OK);
    assert_null(twill_context_operation(context, op[77]));
    assert_int_equal(twill_op_destroy(context, op[77]), TWILL_ERR_ARGUMENT);
    assert_int_equal(twill_op_create(context, &more, nothing, NULL, 0, 1), TWILL_OK);
    assert_int_equal(more, op[77]);
    for (unsigned i = 0; i < TWILL_OPERATIONS; i++)
        assert_int_equal(twill_op_destroy(context, op[i]), TWILL_OK);
    for (int built_in = 0; built_in < TWILL_OP_COUNT; built_in++)
        assert_null(twill_context_operation(context, (twill_op)built_in));
}

TWILL_TEST(factors)
{
    twill_context *context = *state;
    for (int type = 0; type < TWILL_TYPE_COUNT; type++) {
        twill_op op;
        /* The factor of a narrow type is a float; nothing behind it is read. */
        unsigned char *factor;
        bool narrow = twill_type_is_narrow((twill_type)type);
        size_t bytes = narrow ? 4 : twill_type_size((twill_type)type);
        factor = test_malloc(bytes);
        for (size_t i = 0; i < bytes; i++)
            factor[i] = (unsigned char)(i + 1);
        assert_int_equal(twill_op_create_scaled(context, &op, (twill_type)type, factor), TWILL_OK);
        const struct twill_operation *found = twill_context_operation(context, op);
        assert_true(found->scaled && found->commutative && found->type == (twill_type)type);
        for (size_t i = 0; i < 8; i++)
            assert_int_equal(found->factor[i], i < bytes ? i + 1 : 0);
        assert_int_equal(twill_op_destroy(context, op), TWILL_OK);
        test_free(factor);
    }
}

/* Ranks number their operations independently: only the kind must agree. */
TWILL_TEST(kinds)
{
    twill_context *context = *state;
    twill_op a, b, ordered, wide, scaled, narrow, before;
    int factor = 3;
    float half = 0.5F;
    assert_int_equal(twill_op_create(context, &a, nothing, NULL, 8, 1), TWILL_OK);
    assert_int_equal(twill_op_create(context, &b, nothing, NULL, 8, 7), TWILL_OK);
    assert_int_equal(twill_op_create(context, &ordered, nothing, NULL, 8, 0), TWILL_OK);
    assert_int_equal(twill_op_create(context, &wide, nothing, NULL, 4096, 1), TWILL_OK);
    assert_int_equal(twill_op_create_scaled(context, &scaled, TWILL_I32, &factor), TWILL_OK);
    assert_int_equal(twill_op_create_narrow(context, &narrow, TWILL_F16, NULL, &half), TWILL_OK);
    assert_int_equal(twill_op_create_narrow(context, &before, TWILL_F16, &half, NULL), TWILL_OK);
    twill_op kind = twill_context_operation_kind(context, a);
    assert_int_equal(kind, twill_context_operation_kind(context, b));
    assert_int_not_equal(kind, twill_context_operation_kind(context, ordered));
    assert_int_not_equal(kind, twill_context_operation_kind(context, wide));
    assert_int_not_equal(kind, twill_context_operation_kind(context, scaled));
    assert_int_not_equal(kind, twill_context_operation_kind(context, narrow));
    assert_int_not_equal(twill_context_operation_kind(context, scaled),
                         twill_context_operation_kind(context, before));
    assert_int_not_equal(twill_context_operation_kind(context, narrow),
                         twill_context_operation_kind(context, before));
    assert_true(twill_context_operation_kind(context, wide) <= UINT16_MAX);
    assert_string_equal(twill_op_name(twill_context_operation_kind(context, wide)), "created");
    for (int op = 0; op < TWILL_OP_COUNT; op++)
        assert_int_equal(twill_context_operation_kind(context, (twill_op)op), op);
    twill_op all[] = {a, b, ordered, wide, scaled, narrow, before};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(all); i++)
        assert_int_equal(twill_op_destroy(context, all[i]), TWILL_OK);
}

TWILL_TEST_GROUP(open_context, close_context)
