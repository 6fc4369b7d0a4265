/* SPDX-License-Identifier: Apache-2.0 */
/* Gradient sets: bad input and failures. Each gets a sentence that names the tensor and the rank,
 * and every rank leaves. Also the scale of sums, and the comparison of parameters. */
#include "lib/train/gradients.h"
#include "tests/support/gradient_sets.h"
#include "tests/support/unit.h"

static twill_status add_named(struct twill_test_set *r, const char *name, size_t count,
                              twill_type type, void *memory)
{
    const twill_tensor tensor = {.name = name, .count = count, .type = type, .gradient = memory};
    return twill_gradients_add(r->set, &tensor, NULL);
}

/* Does the set's message name this rank, and have these words? */
static bool says_here(const struct twill_test_set *r, const char *words)
{
    char where[24];
    snprintf(where, sizeof(where), "rank %d: ", twill_comm_rank(r->comm));
    return twill_test_set_says(r, where) && twill_test_set_says(r, words);
}

#define CHECK_REFUSED(r, call, words)                                                              \
    do {                                                                                           \
        TWILL_CHECK((call) == TWILL_ERR_ARGUMENT);                                                 \
        TWILL_CHECK(says_here((r), (words)));                                                      \
    } while (0)

TWILL_TEST_SETS(test_refused, ranks, TWILL_LAYOUTS("2"), *c, TWILL_TEST_PATIENT)
{
    static float memory[2][64]; /* ranks are threads: each uses its own */
    int done;
    CHECK_REFUSED(r, add_named(r, "", 4, TWILL_F32, NULL), "has no name");
    CHECK_REFUSED(r, add_named(r, "a", 0, TWILL_F32, NULL), "'a': count 0");
    CHECK_REFUSED(r, add_named(r, "a", 4, (twill_type)99, NULL), "'a': type 99");
    CHECK_REFUSED(r, twill_gradients_ready(r->set, 0), "call twill_gradients_commit() first");
    CHECK_REFUSED(r, twill_gradients_wait_all(r->set), "call twill_gradients_commit() first");
    TWILL_CHECK(add_named(r, "a", 40, TWILL_F32, memory[rank]) == TWILL_OK);
    CHECK_REFUSED(r, add_named(r, "a", 40, TWILL_F32, NULL), "'a' is registered twice");
    CHECK_REFUSED(r, add_named(r, "a", 40, TWILL_F64, NULL), "'a' is registered twice");
    CHECK_REFUSED(r, add_named(r, "b", 4, TWILL_F32, &memory[rank][39]), "'b' overlaps tensor 'a'");
    TWILL_CHECK(add_named(r, "b", 24, TWILL_F32, &memory[rank][40]) == TWILL_OK);
    TWILL_CHECK(twill_gradients_commit(r->set) == TWILL_OK);
    CHECK_REFUSED(r, twill_gradients_commit(r->set), "was called before");
    CHECK_REFUSED(r, add_named(r, "c", 4, TWILL_F32, NULL), "call it before the commit");
    CHECK_REFUSED(r, twill_gradients_ready(r->set, 2), "tensor 2: the set has 2 tensors");
    CHECK_REFUSED(r, twill_gradients_wait(r->set, -1), "tensor -1: the set has");
    CHECK_REFUSED(r, twill_gradients_test(r->set, 0, NULL), "done is NULL");
    TWILL_CHECK(twill_gradients_ready(r->set, 1) == TWILL_OK);
    CHECK_REFUSED(r, twill_gradients_ready(r->set, 1), "'b' is marked ready twice");
    TWILL_CHECK(twill_gradients_test(r->set, 1, &done) == TWILL_OK && !done);
    TWILL_CHECK(twill_gradients_ready(r->set, 0) == TWILL_OK);
    TWILL_CHECK(twill_gradients_wait_all(r->set) == TWILL_OK); /* no harm was done */
}

/* --- tensors that differ --------------------------------------------------------------------- */

struct tensor_difference {
    const char *name;
    size_t count;
    twill_type type;
    int more; /* tensors beside it */
    const char *options, *words;
};

static const struct tensor_difference differences[] = {
    {"conv2", 12, TWILL_F32, 1, NULL,
     "tensor 1: 'conv1' (12 f32, priority 0, memory of the set) on "
     "ranks 0, 2; 'conv2' (12 f32"},
    {"conv1", 13, TWILL_F32, 1, NULL, "'conv1' (13 f32, priority 0, memory of the set) on rank 1"},
    {"conv1", 12, TWILL_F16, 1, NULL, "'conv1' (12 f16, priority 0, memory of the set) on rank 1"},
    {"conv1", 12, TWILL_F32, 2, NULL,
     "the number of tensors: 3 tensors on ranks 0, 2; 4 tensors on "
     "rank 1"},
    {"conv1", 12, TWILL_F32, 1, "TWILL_GRADIENTS=", NULL},
};

TWILL_TEST_SETS(test_differences, ranks, differences, "3", TWILL_TEST_PATIENT)
{
    const struct tensor_difference *same = &differences[TWILL_ARRAY_LENGTH(differences) - 1],
                                   *mine = rank == 1 ? c : same;
    TWILL_CHECK(add_named(r, "first", 5, TWILL_F32, NULL) == TWILL_OK);
    TWILL_CHECK(add_named(r, mine->name, mine->count, mine->type, NULL) == TWILL_OK);
    for (int i = 0; i < mine->more; i++)
        TWILL_CHECK(add_named(r, i == 0 ? "last" : "more", 5, TWILL_F32, NULL) == TWILL_OK);
    twill_status status = twill_gradients_commit(r->set);
    if (c->words == NULL) {
        TWILL_CHECK(status == TWILL_OK);
    } else {
        TWILL_CHECK(status == TWILL_ERR_MISMATCH);
        TWILL_CHECK(twill_test_set_says(r, c->words));
        TWILL_CHECK(twill_gradients_ready(r->set, 0) == TWILL_ERR_BROKEN);
    }
}

/* Rank 1 has another value of one option: by TWILL_GRADIENTS, in the program, or of an optimizer.
 */
struct option_difference {
    const char *entry, *words;
};

static const struct option_difference option_differences[] = {
    {"op", "op=avg on ranks 0, 2; op=sum on rank 1"},
    {"scale", "scale=1 on ranks 0, 2; scale=0.10000000000000002 on rank 1"},
    {"optimizer", "no optimizer on ranks 0, 2; optimizer=adam on rank 1"},
    {"beta2", "beta2=0.999 on ranks 0, 2; beta2=0.95 on rank 1"},
    {"bucket=4096", "bucket=8388608 on ranks 0, 2; bucket=4096 on rank 1"},
    {"first=4096", "first=1048576 on ranks 0, 2; first=4096 on rank 1"},
    {"segment=64K", "segment=1048576 on ranks 0, 2; segment=65536 on rank 1"},
    {"order=priority", "order=backward on ranks 0, 2; order=priority on rank 1"},
    {"autotune=1", "autotune=0 on ranks 0, 2; autotune=1 on rank 1"},
    {"check=7", "check=0 on ranks 0, 2; check=7 on rank 1"},
    {"report=5", "report=0 on ranks 0, 2; report=5 on rank 1"},
    {"late=1", "late=0 on ranks 0, 2; late=1 on rank 1"},
    {"compress=int8", "compress=none on ranks 0, 2; compress=int8 on rank 1"},
    {"automatic=1", "automatic=0 on ranks 0, 2; automatic=1 on rank 1"},
    {"feedback=0", "feedback=1 on ranks 0, 2; feedback=0 on rank 1"},
    {"ratio=0.010000000000000002", "ratio=0.01 on ranks 0, 2; ratio=0.010000000000000002 on rank"},
    {"threshold=0.5", "threshold=0 on ranks 0, 2; threshold=0.5 on rank 1"},
    {"factors=reduce", "factors=price on ranks 0, 2; factors=reduce on rank 1"},
    {"threads=2", "threads=0 on ranks 0, 2; threads=2 on rank 1"},
};

TWILL_TEST_SETS(test_options, ranks, option_differences, "3", TWILL_TEST_PATIENT)
{
    struct twill_error error = {0};
    bool other = rank == 1, adam = strcmp(c->entry, "beta2") == 0;
    twill_gradients_options options;
    twill_optimizer optimizer;
    twill_gradients_destroy(r->set);
    twill_gradients_defaults(&options);
    if (other && strchr(c->entry, '=') != NULL) /* the variable itself is the same on all ranks */
        TWILL_CHECK(twill_entries_apply(&options, c->entry, &error) == TWILL_OK);
    if (other && strcmp(c->entry, "op") == 0)
        options.op = TWILL_SUM;
    if (other && strcmp(c->entry, "scale") == 0)
        options.scale = 0.1 + 1.5e-17;
    TWILL_CHECK(twill_gradients_create(&r->set, r->comm, &options) == TWILL_OK);
    TWILL_CHECK(add_named(r, "a", 4, TWILL_F32, NULL) == TWILL_OK);
    twill_optimizer_defaults(&optimizer, TWILL_OPTIMIZER_ADAM);
    if (adam && other)
        optimizer.beta2 = 0.95;
    if (adam || (other && strcmp(c->entry, "optimizer") == 0))
        TWILL_CHECK(twill_gradients_set_optimizer(r->set, &optimizer) == TWILL_OK);
    TWILL_CHECK(twill_gradients_commit(r->set) == TWILL_ERR_MISMATCH);
    TWILL_CHECK(twill_test_set_says(r, "the ranks differ in their options: "));
    TWILL_CHECK(twill_test_set_says(r, c->words));
}

TWILL_TEST_SETS(test_bad_options, ranks, TWILL_LAYOUTS("1"), *c, TWILL_TEST_PATIENT)
{
    twill_gradients *none;
    twill_gradients_options options;
    for (int i = 0; i < 4; i++) {
        twill_gradients_defaults(&options);
        options.bytes -= i == 0;
        options.op = i == 1 ? TWILL_MAX : options.op;
        options.scale = i == 2 ? 0 : 1;
        options.segment_bytes = i == 3 ? 5 : 4096;
        TWILL_CHECK(TWILL_ENDS(r->comm, twill_gradients_create(&none, r->comm, &options),
                               TWILL_ERR_ARGUMENT, "options"));
        TWILL_CHECK(none == NULL);
    }
}

static const char *const bad_variables[] = {"TWILL_GRADIENTS=buckets=1", "TWILL_GRADIENTS=bucket=x",
                                            "TWILL_GRADIENTS=order=forward",
                                            "TWILL_GRADIENTS=@/nonexistent"};

TWILL_TEST_CASES(test_bad_variables, ranks, bad_variables, "1", TWILL_TEST_PATIENT, *c)
{
    twill_gradients *none;
    TWILL_CHECK(TWILL_ENDS(comm, twill_gradients_create(&none, comm, NULL), TWILL_ERR_CONFIG,
                           "TWILL_GRADIENTS"));
}

/* --- failures in a step ---------------------------------------------------------------------- */

static bool commit_two(struct twill_test_set *r)
{
    TWILL_REQUIRE(add_named(r, "early", 1000, TWILL_F32, NULL) == TWILL_OK);
    TWILL_REQUIRE(add_named(r, "late", 1000, TWILL_F32, NULL) == TWILL_OK);
    return TWILL_NOTE(twill_gradients_commit(r->set) == TWILL_OK, "%s",
                      twill_gradients_message(r->set));
}

static const struct forgetful {
    const char *ranks, *setting;
} forgetful[] = {{"2", "TWILL_GRADIENTS="},
                 {"3", "TWILL_GRADIENTS=order=priority"},
                 {"2", "TWILL_GRADIENTS=threads=2,bucket=0"},
                 {"2", "TWILL_GRADIENTS=late=1"}};

/* Rank 1 never marks `early`: it says so after its deadline, and the others are notified. */
TWILL_TEST_SETS(test_never_ready, ranks, forgetful, c->ranks,
                rank == 1 ? "TWILL_TIMEOUT=1" : TWILL_TEST_PATIENT, c->setting)
{
    TWILL_CHECK(commit_two(r));
    TWILL_CHECK(twill_gradients_ready(r->set, 1) == TWILL_OK);
    if (rank != 1)
        TWILL_CHECK(twill_gradients_ready(r->set, 0) == TWILL_OK);
    twill_status status = twill_gradients_wait_all(r->set);
    if (status == TWILL_OK && rank != 1) /* late: it delivers nothing yet */
        status = twill_gradients_drain(r->set);
    TWILL_CHECK(status == TWILL_ERR_TIMEOUT);
    TWILL_CHECK(twill_test_set_says(r, "rank 1"));
    TWILL_CHECK(twill_test_set_says(r, "tensor 'early' was not marked ready within 1.0 s"));
    TWILL_CHECK(twill_gradients_ready(r->set, 0) == TWILL_ERR_BROKEN);
}

TWILL_TEST_SETS(test_death, processes, forgetful, c->ranks, TWILL_TEST_PATIENT, c->setting)
{
    TWILL_CHECK(commit_two(r));
    TWILL_CHECK(twill_gradients_ready(r->set, 1) == TWILL_OK);
    TWILL_CHECK(twill_test_barrier(bootstrap));
    if (rank == 1)
        _exit(0);
    (void)twill_gradients_ready(r->set, 0); /* may find out already */
    twill_status status = twill_gradients_wait_all(r->set);
    if (status == TWILL_OK && strstr(c->setting, "late=1") != NULL)
        status = twill_gradients_drain(r->set);
    TWILL_CHECK(status != TWILL_OK && twill_test_set_says(r, "rank 1"));
}

/* A large tensor's memory is unmapped under the set. */
TWILL_TEST_SETS(test_freed, processes, TWILL_LAYOUTS("2"), *c, TWILL_TEST_PATIENT)
{
    size_t bytes = (size_t)1 << 20;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TWILL_CHECK(memory != MAP_FAILED);
    TWILL_CHECK(add_named(r, "gone", bytes / 4, TWILL_F32, memory) == TWILL_OK);
    TWILL_CHECK(twill_gradients_commit(r->set) == TWILL_OK);
    munmap(memory, bytes);
    CHECK_REFUSED(r, twill_gradients_ready(r->set, 0), "tensor 'gone': its memory is not mapped");
}

struct parent_caller {
    twill_comm *comm;
    twill_status status;
    _Atomic bool done;
};

/* Make a call on the parent that differs between the ranks, so that it breaks. */
static void *break_parent(void *argument)
{
    struct parent_caller *caller = argument;
    float value[8] = {0};
    size_t count = 4 + (size_t)twill_comm_rank(caller->comm);
    caller->status = twill_allreduce(caller->comm, value, value, count, TWILL_F32, TWILL_SUM);
    atomic_store_explicit(&caller->done, true, memory_order_relaxed); /* hides no race */
    return NULL;
}

/* The parent breaks in another thread, then the set is destroyed: that breaks its reducers, and is
 * not collective. */
TWILL_TEST_SETS(test_parent_breaks, ranks, TWILL_LAYOUTS("2"), *c, TWILL_TEST_PATIENT)
{
    pthread_t thread;
    TWILL_CHECK(twill_test_set_add(r, 0, 100, TWILL_F32, NULL, NULL));
    TWILL_CHECK(twill_test_set_commit(r));
    struct parent_caller caller = {.comm = r->comm};
    TWILL_CHECK(pthread_create(&thread, NULL, break_parent, &caller) == 0);
    while (!atomic_load_explicit(&caller.done, memory_order_relaxed))
        (void)sched_yield();
    if (rank == 0) {
        twill_gradients_destroy(r->set);
        r->set = NULL;
    }
    pthread_join(thread, NULL);
    TWILL_CHECK(caller.status == TWILL_ERR_MISMATCH);
    if (rank == 1) {
        (void)twill_gradients_ready(r->set, 0); /* may find out already */
        TWILL_CHECK(twill_gradients_wait_all(r->set) != TWILL_OK);
        TWILL_CHECK(twill_test_set_says(r, "gradient set: "));
    }
}

/* --- scale, and the comparison of parameters ------------------------------------------------- */

/* The sum of the ranks' values is beyond f16, their mean is not. */
TWILL_TEST_SETS(test_scale, ranks, TWILL_LAYOUTS("4"), *c, TWILL_TEST_PATIENT)
{
    twill_gradients_options options;
    twill_gradients_destroy(r->set);
    twill_gradients_defaults(&options);
    options.scale = 0.5;
    TWILL_CHECK(twill_gradients_create(&r->set, r->comm, &options) == TWILL_OK);
    TWILL_CHECK(add_named(r, "half", 33, TWILL_F16, NULL) == TWILL_OK);
    TWILL_CHECK(add_named(r, "whole", 33, TWILL_F64, NULL) == TWILL_OK);
    CHECK_REFUSED(r, add_named(r, "numbers", 33, TWILL_I32, NULL), "scale is for floats, not i32");
    TWILL_CHECK(twill_gradients_commit(r->set) == TWILL_OK);
    uint16_t *half = twill_gradients_memory(r->set, 0);
    double *whole = twill_gradients_memory(r->set, 1);
    for (int i = 0; i < 33; i++) {
        half[i] = 0x7b00; /* 57,344 */
        whole[i] = rank;
    }
    TWILL_CHECK(twill_gradients_ready(r->set, 0) == TWILL_OK);
    TWILL_CHECK(twill_gradients_ready(r->set, 1) == TWILL_OK);
    TWILL_CHECK(twill_gradients_wait_all(r->set) == TWILL_OK);
    for (int i = 0; i < 33; i++) {
        TWILL_CHECK(half[i] == 0x7700); /* 28,672 */
        TWILL_CHECK(whole[i] == (size - 1) / 4.0);
    }
}

TWILL_TEST_SETS(test_comparison, ranks, TWILL_LAYOUTS("3"), *c, TWILL_TEST_PATIENT,
                "TWILL_GRADIENTS=check=2")
{
    static _Thread_local float parameters[2][64];
    for (int t = 0; t < 2; t++) {
        const twill_tensor tensor = {.name = t == 0 ? "good" : "bad",
                                     .count = 63,
                                     .type = TWILL_F32,
                                     .parameters = parameters[t]};
        TWILL_CHECK(twill_gradients_add(r->set, &tensor, NULL) == TWILL_OK);
    }
    TWILL_CHECK(twill_gradients_commit(r->set) == TWILL_OK);
    TWILL_CHECK(twill_gradients_check(r->set) == TWILL_OK);
    for (int step = 1; step <= 4; step++) {
        if (rank == 1 && step == 3)
            parameters[1][62] = -0.0f; /* equal, but not the same bits */
        TWILL_CHECK(twill_gradients_ready(r->set, 0) == TWILL_OK);
        TWILL_CHECK(twill_gradients_ready(r->set, 1) == TWILL_OK);
        twill_status status = twill_gradients_wait_all(r->set);
        TWILL_CHECK(status == (step < 4 ? TWILL_OK : TWILL_ERR_MISMATCH));
    }
    TWILL_CHECK(twill_test_set_says(r, "the parameters of tensor 'bad' after step 4"));
    TWILL_CHECK(twill_test_set_says(r, "on ranks 0, 2"));
}
