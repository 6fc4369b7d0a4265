/* SPDX-License-Identifier: Apache-2.0 */
/* TWILL_FIRST_NAN names the rank, call and element, or the tensor, bucket and step, of the first
 * NaN or infinity that a sum gets. Later steps begin with the results of the ones before. */
#include "lib/job/context.h"
#include "tests/support/gradient_sets.h"
#include "tests/support/numbers.h"

enum { STEPS = 4, COUNT_MOST = 70000 };

/* Return whether an element is a NaN or infinity, by its bits. */
static bool exceeds(twill_type type, const void *array, size_t index)
{
    const struct twill_test_layout *l = twill_test_layout(type);
    uint64_t bits = twill_test_get(type, array, index) & ~(UINT64_C(1) << (l->bits - 1));
    uint64_t largest = UINT64_MAX >> (65 - l->bits); /* of magnitudes */
    return l->finite ? bits == largest : bits >> l->mantissa == largest >> l->mantissa;
}

TWILL_TEST(kernels_find_the_first)
{
    static const twill_type types[] = {TWILL_F32,  TWILL_F64,    TWILL_F16,
                                       TWILL_BF16, TWILL_F8E4M3, TWILL_F8E5M2};
    enum { COUNT = 300 };
    double array[COUNT];
    const struct twill_kernels *kernels;
    (void)state;
    for (size_t table = 0; (kernels = twill_test_next_table(&table)) != NULL;)
        for (size_t t = 0; t < sizeof(types) / sizeof(*types); t++) {
            size_t width = twill_type_size(types[t]), want = COUNT;
            twill_test_fill(types[t], array, COUNT, test_seed() + t);
            for (size_t from = COUNT; from-- > 0;) {
                want = exceeds(types[t], array, from) ? from : want;
                assert_int_equal(twill_kernels_find_nan(kernels, types[t],
                                                        (unsigned char *)array + from * width,
                                                        COUNT - from, NULL) +
                                     from,
                                 want);
            }
        }
    assert_int_equal(twill_kernels_find_nan(twill_kernels_at(0), TWILL_I32, array, 9, NULL), 9);
}

enum nan_form { PLAIN, IN_PLACE, STARTED, PERSISTENT, GROUPED, SCATTERED, ROOTED, SCALED, MAXIMUM };

static const struct nan_call {
    const char *nodes, *mode;
    enum nan_form form;
    twill_type type;
    size_t count;
    int step, rank; /* from 1, and of the one that has it */
    size_t element;
    float value;
    const char *words; /* of the message, or NULL if there is none */
} calls[] = {
    {"3", "fail", PLAIN, TWILL_F32, 5, 2, 1, 3, NAN,
     "rank 1: allreduce #2 (count 5, f32 sum): element 3 of src is a NaN or infinity"},
    {"2", "fail", IN_PLACE, TWILL_F64, 70000, 3, 0, 69999, INFINITY,
     "rank 0: allreduce #3 (count 70000, f64 sum): element 69999 of src"},
    {"2x2", "fail", STARTED, TWILL_BF16, 9000, 1, 3, 0, -INFINITY,
     "rank 3: allreduce #1 (count 9000, bf16 sum): element 0 of src"},
    {"2x2", "fail", PERSISTENT, TWILL_F16, 40, 2, 2, 39, NAN,
     "(count 40, f16 sum): element 39 of src"},
    {"2", "fail", PERSISTENT, TWILL_F32, 60000, 3, 1, 7, NAN,
     "(count 60000, f32 sum): element 7 of src"},
    {"3", "fail", GROUPED, TWILL_F32, 6, 2, 2, 4, NAN,
     "rank 2: allreduce #2 (count 6, f32 sum): element 4 of src"},
    {"1x3", "fail", SCATTERED, TWILL_F32, 4, 2, 0, 9, NAN,
     "rank 0: reduce_scatter #2 (count 4, f32 sum): element 9 of src"},
    {"3", "fail", ROOTED, TWILL_F32, 4, 1, 2, 2, NAN,
     "rank 2: reduce #1 (count 4, f32 sum, root 0): element 2 of src"},
    {"2", "fail", SCALED, TWILL_F32, 4, 2, 1, 1, NAN, "element 1 of src"},
    {"2", "fail", MAXIMUM, TWILL_F32, 4, 2, 1, 1, INFINITY, NULL},
    {"2", "off", PLAIN, TWILL_F32, 4, 2, 1, 1, NAN, NULL},
    {"3", "report", PLAIN, TWILL_F32, 5, 2, 1, 3, NAN,
     "rank 1: allreduce #2 (count 5, f32 sum): element 3 of src"},
    {"2x2", "report", IN_PLACE, TWILL_BF16, 5000, 2, 1, 0, NAN,
     "rank 1: allreduce #2 (count 5000, bf16 sum): element 0 of src"},
    {"1x3", "report", PERSISTENT, TWILL_F64, 50, 3, 2, 49, NAN, "element 49 of src"},
};

/* Make a call on src, with the result in dst. */
static twill_status make(const struct nan_call *c, twill_comm *comm, twill_op scaled, void *src,
                         void *dst, twill_request **kept)
{
    twill_request *request = NULL;
    twill_op op = c->form == MAXIMUM ? TWILL_MAX : c->form == SCALED ? scaled : TWILL_SUM;
    size_t n = c->count;
    switch (c->form) {
    case STARTED:
        TWILL_TRY(NULL, twill_allreduce_start(comm, src, dst, n, c->type, op, &request));
        return twill_wait(&request);
    case PERSISTENT:
        if (*kept == NULL)
            TWILL_TRY(NULL, twill_allreduce_init(comm, src, dst, n, c->type, op, kept));
        TWILL_TRY(NULL, twill_request_start(*kept));
        return twill_wait(kept);
    case GROUPED:
        TWILL_TRY(NULL, twill_group_start(comm));
        TWILL_TRY(NULL, twill_allreduce(comm, dst, dst, 3, c->type, op));
        TWILL_TRY(NULL, twill_allreduce(comm, src, src, n, c->type, op));
        return twill_group_end(comm);
    case SCATTERED:
        return twill_reduce_scatter(comm, src, dst, n, c->type, op);
    case ROOTED:
        return twill_reduce(comm, src, dst, n, c->type, op, 0);
    default:
        return twill_allreduce(comm, src, c->form == IN_PLACE ? src : dst, n, c->type, op);
    }
}

/* Return how many lines of the file have these words. Stores the number of lines in *lines. */
static int count_lines(const char *path, const char *words, int *lines)
{
    char line[1024];
    int found = 0;
    FILE *file = fopen(path, "r");
    for (*lines = 0; file != NULL && fgets(line, sizeof(line), file) != NULL; ++*lines)
        found += strstr(line, words) != NULL;
    if (file != NULL)
        fclose(file);
    return found;
}

static const char *log_path(void)
{
    return twill_test_text("/tmp/twill-first-nan.%d", (int)getpid());
}

/* Check on rank 0 that the log of all ranks has one line, with these words, or is empty. */
static void check_log(int rank, twill_bootstrap *bootstrap, const char *words)
{
    int lines = 0;
    TWILL_CHECK(twill_test_barrier(bootstrap));
    if (rank != 0)
        return;
    int found = count_lines(log_path(), words != NULL ? words : "", &lines);
    TWILL_CHECK(lines == (words != NULL) && found == lines, "%d of %d lines have '%s'", found,
                lines, words);
    (void)unlink(log_path());
}

TWILL_TEST_CASES(first_nan_of_calls, ranks, calls, c->nodes,
                 twill_test_text("TWILL_FIRST_NAN=%s", c->mode),
                 twill_test_text("TWILL_LOG_FILE=%s", log_path()), "TWILL_PROVIDER=tcp")
{
    size_t bytes = 4 * COUNT_MOST * sizeof(double);
    unsigned char *src = calloc(1, bytes), *dst = calloc(1, bytes);
    const bool fails = strcmp(c->mode, "fail") == 0 && c->words != NULL;
    twill_request *kept = NULL;
    twill_op scaled;
    float half = 0.5f;
    TWILL_CHECK(twill_op_create_scaled(twill_comm_context(comm), &scaled, TWILL_F32, &half) ==
                TWILL_OK);
    for (int step = 1; step <= STEPS; step++) {
        if (step == c->step && rank == c->rank)
            twill_test_put_float(c->type, src, c->element, c->value);
        twill_status status = make(c, comm, scaled, src, dst, &kept);
        if (fails && step == c->step) {
            if (status == TWILL_OK && c->form == ROOTED && rank != 0)
                status = twill_barrier(comm); /* a rank may leave a reduce before others enter */
            TWILL_CHECK(status == TWILL_ERR_ARGUMENT, "rank %d: %d", rank, (int)status);
            TWILL_CHECK(TWILL_SAYS(twill_comm_message(comm), c->words));
            break;
        }
        TWILL_CHECK(twill_test_fine(comm, status));
        memcpy(src, dst, c->form == IN_PLACE || c->form == GROUPED ? 0 : bytes);
        TWILL_CHECK(!fails || twill_test_barrier(bootstrap)); /* an error reaches ranks anywhere */
    }
    (void)twill_request_free(&kept);
    check_log(rank, bootstrap, fails ? NULL : c->words);
    free(src);
    free(dst);
}

static const struct nan_set {
    const char *nodes, *mode, *gradients;
    twill_type type;
    bool in_place, optimizer;
    int step, rank, tensor; /* a rank of -1: all */
    const char *words;
    enum nan_event { NO_EVENT, FENCE, OVERFLOW_BESIDE, OVERFLOW_BEFORE } event;
} sets[] = {
    {"2", "fail", "bucket=0", TWILL_F32, false, false, 2, 1, 1,
     "'tensor1', bucket 1, step 2: ", NO_EVENT},
    {"3", "fail", "threads=2", TWILL_BF16, true, false, 3, 2, 0,
     "'tensor0', bucket 0, step 3: ", NO_EVENT},
    {"2", "fail", "threads=1", TWILL_F32, true, true, 1, 0, 2,
     "'tensor2', bucket 0, step 1: ", NO_EVENT},
    {"2", "fail", "compress=int8", TWILL_F32, true, false, 2, 1, 1, "'tensor1', bucket 0, step 2",
     NO_EVENT},
    {"1x2", "fail", "bucket=0", TWILL_F32, true, false, 2, 0, 1,
     "'tensor1', bucket 1, step 2: ", NO_EVENT},
    {"1x3", "fail", "threads=2", TWILL_BF16, true, false, 3, 0, 0,
     "'tensor0', bucket 0, step 3: ", NO_EVENT},
    {"1x2", "report", "bucket=0", TWILL_F64, true, false, 2, 0, 1,
     "rank 0: tensor 'tensor1', bucket", NO_EVENT},
    {"1x2", "fail", "order=priority", TWILL_F32, true, false, 2, 0, 1, "'tensor1', bucket 0, st",
     NO_EVENT},
    {"2x1", "fail", "order=priority", TWILL_F64, false, false, 2, 1, 1, "'tensor1', bucket 0, st",
     NO_EVENT},
    {"3", "report", "bucket=0", TWILL_F16, true, false, 2, 1, 1, "rank 1: tensor 'tensor1', bucket",
     NO_EVENT},
    {"2x2", "report", "threads=2,bucket=0", TWILL_F32, false, false, 2, 3, 0, "rank 3: tensor 'ten",
     NO_EVENT},
    {"2", "off", "bucket=0", TWILL_F32, true, false, 2, 1, 1, NULL, NO_EVENT},
    {"1x2", "fail", "bucket=0", TWILL_F32, true, false, 3, 0, 1, "'tensor1', bucket 1, s", FENCE},
    {"1x3", "report", "threads=2", TWILL_BF16, true, false, 2, 1, 0,
     "rank 1: tensor 'tensor0', bucket 0, step 2", FENCE},
    {"1x3", "fail", "bucket=0", TWILL_F32, true, false, 2, 1, 1, "'tensor1', bucket 1, step 2",
     OVERFLOW_BESIDE},
    {"3", "fail", "threads=1", TWILL_BF16, false, false, 2, 2, 0, "'tensor0', bucket 0, step 2",
     OVERFLOW_BESIDE},
    {"1x2", "fail", "bucket=0", TWILL_BF16, true, false, 3, -1, 1, "'tensor1', bucket 1, step 3",
     OVERFLOW_BEFORE},
    {"1x3", "report", "threads=2", TWILL_F32, true, false, 2, -1, 0, "'tensor0', bucket 0, step 2",
     OVERFLOW_BEFORE},
};
enum { TENSORS = 3, TENSOR_COUNT = 40000, NAN_ELEMENT = TENSOR_COUNT - 3 };

/* Make a step. Returns the first error of the set. */
static twill_status make_step(struct twill_test_set *r)
{
    for (int t = TENSORS; t-- > 0;)
        TWILL_TRY(NULL, twill_gradients_ready(r->set, t));
    return twill_gradients_wait_all(r->set);
}

/* Before a step, make the heap private, after which ranks cannot reduce in each other's memory, or
 * contribute finite values whose sum is infinite. */
static void prepare(const struct nan_set *c, struct twill_test_set *r, int step, void *const *at,
                    twill_bootstrap *bootstrap)
{
    struct twill_error error = {0};
    if (c->event == FENCE && step == c->step) {
        TWILL_CHECK(twill_test_barrier(bootstrap));
        TWILL_CHECK(twill_context_fence(r->context, &error) == TWILL_OK);
        TWILL_CHECK(twill_test_barrier(bootstrap));
    }
    if (c->event == OVERFLOW_BESIDE && step == c->step)
        for (size_t t = 0; t < TENSORS; t++)
            twill_test_put_float(c->type, at[t], 5, 3e38f);
    if (c->event == OVERFLOW_BEFORE && step == c->step - 1)
        twill_test_put_float(c->type, at[c->tensor], NAN_ELEMENT, 3e38f);
}

TWILL_TEST_SETS(first_nan_of_sets, ranks, sets, c->nodes,
                twill_test_text("TWILL_FIRST_NAN=%s", c->mode),
                twill_test_text("TWILL_GRADIENTS=%s", c->gradients),
                twill_test_text("TWILL_LOG_FILE=%s", log_path()), "TWILL_PROVIDER=tcp")
{
    unsigned char *own[TENSORS];
    const bool fails = strcmp(c->mode, "fail") == 0;
    twill_optimizer optimizer;
    for (unsigned t = 0; t < TENSORS; t++) {
        own[t] = calloc(TENSOR_COUNT, twill_type_size(c->type));
        TWILL_CHECK(twill_test_set_add(r, t, TENSOR_COUNT, c->type, c->in_place ? NULL : own[t],
                                       c->optimizer ? own[t] : NULL));
    }
    twill_optimizer_defaults(&optimizer, TWILL_OPTIMIZER_SGD);
    if (c->optimizer)
        TWILL_CHECK(twill_gradients_set_optimizer(r->set, &optimizer) == TWILL_OK);
    TWILL_CHECK(twill_test_set_commit(r));
    for (int step = 1; step <= STEPS; step++) {
        void *at[TENSORS];
        for (int t = 0; t < TENSORS; t++)
            at[t] = c->in_place ? twill_gradients_memory(r->set, t) : own[t];
        prepare(c, r, step, at, bootstrap);
        if (step == c->step && rank == c->rank)
            twill_test_put_float(c->type, at[c->tensor], NAN_ELEMENT, NAN);
        twill_status status = make_step(r);
        if (fails && step == c->step) {
            TWILL_CHECK(status != TWILL_OK);
            TWILL_CHECK(c->rank < 0 ||
                        twill_test_set_says(r, twill_test_text("rank %d: ", c->rank)));
            TWILL_CHECK(twill_test_set_says(r, c->words));
            TWILL_CHECK(twill_test_set_says(r, "element 39997 is a NaN or infinity"));
            break;
        }
        TWILL_CHECK(twill_test_set_ok(r, status));
        TWILL_CHECK(!fails || twill_test_barrier(bootstrap));
    }
    check_log(rank, bootstrap, fails ? NULL : c->words);
    twill_gradients_destroy(r->set); /* before its tensors */
    r->set = NULL;
    for (int t = 0; t < TENSORS; t++)
        free(own[t]);
}
