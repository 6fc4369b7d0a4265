/* SPDX-License-Identifier: Apache-2.0 */
/* Sets with an optimizer: parameters against a serial oracle in f64, on any number of ranks. */
#include "tests/support/unit.h"
#include "tests/support/update_cases.h"

static const char *const update_settings[] = {
    "TWILL_GRADIENTS=", "TWILL_GRADIENTS=bucket=0", "TWILL_GRADIENTS=bucket=16K,first=1K",
    "TWILL_GRADIENTS=order=priority,bucket=32K,first=4K,segment=4K",
    "TWILL_GRADIENTS=compress=f16,order=priority,bucket=16K,first=1K,segment=4K"};
/* Is the case run with compression, too? Quotients by three have no exact f16. */
static bool may_compress(const twill_optimizer *optimizer, twill_type type, unsigned world)
{
    return type == TWILL_F32 && twill_update_worlds[world].size != 3 &&
           (optimizer->rule == TWILL_OPTIMIZER_SGD || optimizer->rule == TWILL_OPTIMIZER_LAMB);
}

static void run_rule(const twill_optimizer *optimizer, twill_type type)
{
    float *oracle = calloc(UPDATE_TENSORS * UPDATE_COUNT, sizeof(*oracle));
    for (unsigned w = 0; w < UPDATE_WORLDS; w++)
        for (unsigned s = 0; s < (may_compress(optimizer, type, w) ? 3 : 2); s++) {
            unsigned settings = s == 2 ? 4 : (w + 2 * s + (unsigned)optimizer->rule) % 4;
            struct twill_update_case c = {&twill_update_worlds[w], update_settings[settings],
                                          .optimizer = *optimizer, .type = type,
                                          .own = (w + s) % 2 == 0, .oracle = oracle};
            if (s == 0)
                twill_update_run_oracle(&c);
            twill_test_run_ranks(c.world->size, twill_update_rank, &c);
        }
    free(oracle);
}

TWILL_TEST(rules_equal_the_oracle)
{
    for (int rule = 0; rule < TWILL_OPTIMIZER_COUNT; rule++) {
        twill_optimizer o;
        twill_optimizer_defaults(&o, (twill_optimizer_rule)rule);
        o.rate = 0.01;
        o.weight_decay = 0.02;
        o.epsilon = 1e-3; /* a root near zero would amplify the rounding of f32 */
        if (rule == TWILL_OPTIMIZER_SGD || rule == TWILL_OPTIMIZER_LARS)
            o.momentum = 0.9;
        o.nesterov = rule == TWILL_OPTIMIZER_SGD;
        run_rule(&o, TWILL_F32);
    }
}

TWILL_TEST(narrow_parameters_have_master_weights)
{
    twill_optimizer o;
    twill_optimizer_defaults(&o, TWILL_OPTIMIZER_ADAMW);
    o.epsilon = 1e-3;
    run_rule(&o, TWILL_BF16);
    twill_optimizer_defaults(&o, TWILL_OPTIMIZER_LAMB);
    o.epsilon = 1e-3;
    run_rule(&o, TWILL_BF16);
}

/* --- bits ------------------------------------------------------------------------------------ */

#define BITS_COUNT 3000u

/* Make a set of one tensor, with or without an optimizer, and run a step. Returns the result. */
static const float *run_once(twill_gradients **set, twill_comm *comm, int rank,
                             const twill_optimizer *optimizer)
{
    twill_gradients_options options;
    twill_gradients_defaults(&options);
    options.op = TWILL_SUM;
    const twill_tensor tensor = {.name = "w", .count = BITS_COUNT, .type = TWILL_F32};
    if (twill_gradients_create(set, comm, &options) != TWILL_OK ||
        twill_gradients_add(*set, &tensor, NULL) != TWILL_OK ||
        (optimizer != NULL && twill_gradients_set_optimizer(*set, optimizer) != TWILL_OK) ||
        twill_gradients_commit(*set) != TWILL_OK)
        return NULL;
    float *gradient = twill_gradients_memory(*set, 0);
    for (size_t i = 0; i < BITS_COUNT; i++)
        gradient[i] = 1.0f / (float)(3 + (i * 37 + (size_t)rank * 11) % 1009);
    if (twill_gradients_ready(*set, 0) != TWILL_OK || twill_gradients_wait_all(*set) != TWILL_OK)
        return NULL;
    return optimizer != NULL ? twill_gradients_parameters(*set, 0) : gradient;
}

static void rank_bits(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    twill_comm *comm;
    twill_gradients *plain = NULL, *updating = NULL;
    twill_optimizer sgd;
    twill_optimizer_defaults(&sgd, TWILL_OPTIMIZER_SGD);
    sgd.rate = 1;
    if (twill_test_open(&comm, bootstrap, user, TWILL_TEST_PATIENT, "TWILL_REPRODUCIBLE=1")) {
        const float *sum = run_once(&plain, comm, rank, NULL),
                    *parameters = run_once(&updating, comm, rank, &sgd);
        size_t differ = 0;
        for (size_t i = 0; sum != NULL && parameters != NULL && i < BITS_COUNT; i++)
            differ += -parameters[i] < sum[i] || -parameters[i] > sum[i];
        (void)TWILL_NOTE(sum != NULL && parameters != NULL && differ == 0, "%zu of %u sums differ",
                         differ, BITS_COUNT);
    }
    (void)twill_test_barrier(bootstrap);
    twill_gradients_destroy(plain);
    twill_gradients_destroy(updating);
    twill_test_close(comm);
}

TWILL_TEST(sums_have_the_bits_of_an_allreduce)
{
    twill_test_run_ranks(3, rank_bits, "");
    twill_test_run_ranks(4, rank_bits, "2x2");
}

/* --- rates, and bad input -------------------------------------------------------------------- */

static bool refuses(twill_gradients *set, const twill_optimizer *optimizer, const char *named)
{
    return TWILL_NOTE(twill_gradients_set_optimizer(set, optimizer) == TWILL_ERR_ARGUMENT &&
                          strstr(twill_gradients_message(set), named) != NULL,
                      "'%s' is not in '%s'", named, twill_gradients_message(set));
}

static bool refuse_all(twill_gradients *set)
{
    twill_optimizer o;
    twill_optimizer_defaults(&o, TWILL_OPTIMIZER_ADAM);
    TWILL_REQUIRE(refuses(set, NULL, "optimizer is NULL"));
    o.rate = (double)NAN;
    TWILL_REQUIRE(refuses(set, &o, "adam: rate is nan"));
    o.rate = 1;
    o.rule = TWILL_OPTIMIZER_COUNT;
    TWILL_REQUIRE(refuses(set, &o, "no rule 6"));
    o.bytes = 3;
    return refuses(set, &o, "optimizer.bytes is 3");
}

/* A rate may change between steps, a rule may not. */
static bool change_rate(twill_gradients *set)
{
    twill_optimizer o;
    twill_optimizer_defaults(&o, TWILL_OPTIMIZER_ADAM);
    TWILL_REQUIRE(refuses(set, &o, "the rule is sgd since"));
    twill_optimizer_defaults(&o, TWILL_OPTIMIZER_SGD);
    o.momentum = 0.5;
    TWILL_REQUIRE(refuses(set, &o, "committed with momentum 0"));
    o.momentum = 0;
    for (int step = 0; step < 3; step++) {
        o.rate = step;
        TWILL_REQUIRE(twill_gradients_set_optimizer(set, &o) == TWILL_OK);
        *(uint16_t *)twill_gradients_memory(set, 0) = 0xbf80; /* -1 in bf16 */
        if (step == 2) { /* from 1, which the steps before have led to, to 16 */
            *(uint16_t *)twill_gradients_parameters(set, 0) = 0x4180;
            TWILL_REQUIRE(twill_gradients_reload(set) == TWILL_OK);
        }
        TWILL_REQUIRE(twill_gradients_ready(set, 0) == TWILL_OK);
        o.rate = 7;
        TWILL_REQUIRE(refuses(set, &o,
                              "twill_gradients_set_optimizer within a step, which "
                              "twill_gradients_wait_all() ends: tensor 'w' is marked"));
        TWILL_REQUIRE(twill_gradients_wait_all(set) == TWILL_OK);
    }
    return TWILL_NOTE(*(uint16_t *)twill_gradients_parameters(set, 0) == 0x4190, "not 16 + 2 * 1");
}

/* Commit a set of one tensor of a type that cannot be updated. */
static bool refuse_type(twill_comm *comm)
{
    twill_gradients *set;
    twill_optimizer o;
    const twill_tensor tensor = {.name = "counts", .count = 1, .type = TWILL_F64};
    twill_optimizer_defaults(&o, TWILL_OPTIMIZER_SGD);
    TWILL_REQUIRE(twill_gradients_create(&set, comm, NULL) == TWILL_OK);
    TWILL_REQUIRE(twill_gradients_set_optimizer(set, &o) == TWILL_OK);
    TWILL_REQUIRE(twill_gradients_add(set, &tensor, NULL) == TWILL_OK);
    bool ok = twill_gradients_commit(set) == TWILL_ERR_ARGUMENT &&
              strstr(twill_gradients_message(set), "'counts': there is no optimizer for f64");
    (void)TWILL_NOTE(ok, "%s", twill_gradients_message(set));
    twill_gradients_destroy(set);
    return ok;
}

TWILL_TEST_OF_RANKS(bad_input_is_named, 2)
{
    twill_comm *comm;
    twill_gradients *set = NULL;
    twill_optimizer o;
    twill_optimizer_defaults(&o, TWILL_OPTIMIZER_SGD);
    const twill_tensor tensor = {.name = "w", .count = 1, .type = TWILL_BF16};
    if (twill_test_open(&comm, bootstrap, "", TWILL_TEST_PATIENT) &&
        twill_gradients_create(&set, comm, NULL) == TWILL_OK && refuse_all(set) &&
        twill_gradients_set_optimizer(set, &o) == TWILL_OK &&
        twill_gradients_add(set, &tensor, NULL) == TWILL_OK) {
        (void)TWILL_NOTE(twill_gradients_commit(set) == TWILL_OK, "%s",
                         twill_gradients_message(set));
        (void)(change_rate(set) && twill_test_barrier(bootstrap) && refuse_type(comm));
    }
    (void)twill_test_barrier(bootstrap);
    twill_gradients_destroy(set);
    twill_test_close(comm);
}

/* --- modes ------------------------------------------------------------------------------------ */

/* Sets with an optimizer that run one step late, have threads, or clip by the norm: their
 * parameters are those of the oracle, too. */

static const char *const update_combinations[] = {
    "TWILL_GRADIENTS=late=1,bucket=16K,first=1K",
    "TWILL_GRADIENTS=late=1,order=priority,bucket=16K,segment=4K",
    "TWILL_GRADIENTS=threads=2,bucket=16K,first=1K",
    "TWILL_GRADIENTS=late=1,threads=2,order=priority,bucket=16K,first=1K,segment=4K"};

TWILL_TEST(combinations_equal_the_oracle)
{
    static float oracle[UPDATE_TENSORS * UPDATE_COUNT];
    const struct {
        twill_optimizer_rule rule;
        twill_type type;
        double clip; /* below all norms */
    } kinds[] = {{TWILL_OPTIMIZER_ADAM, TWILL_F32, 0},
                 {TWILL_OPTIMIZER_ADAMW, TWILL_BF16, 3},
                 {TWILL_OPTIMIZER_LAMB, TWILL_F32, 2}};
    for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(update_combinations); i++)
        for (unsigned k = 0; k < TWILL_ARRAY_LENGTH(kinds); k++) {
            struct twill_update_case c = {&twill_update_worlds[(i + k) % 2 + 1],
                                          update_combinations[i], .type = kinds[k].type,
                                          .own = (i + k) % 2 == 0, .oracle = oracle};
            twill_optimizer_defaults(&c.optimizer, kinds[k].rule);
            c.optimizer.rate = 0.01;
            c.optimizer.epsilon = 1e-3;
            c.optimizer.clip_norm = kinds[k].clip;
            twill_update_run_oracle(&c);
            twill_test_run_ranks(c.world->size, twill_update_rank, &c);
        }
}

/* --- clipping -------------------------------------------------------------------------------- */

TWILL_TEST(gradients_are_clipped_by_their_norm)
{
    static float oracle[UPDATE_TENSORS * UPDATE_COUNT];
    for (unsigned i = 0; i < 6; i++) {
        const char *settings[] = {
            "TWILL_GRADIENTS=", "TWILL_GRADIENTS=order=priority,bucket=32K,first=4K,segment=4K",
            update_combinations[2]};
        struct twill_update_case c = {&twill_update_worlds[i % 4], settings[i % 3],
                                      .type = TWILL_F32, .own = i % 2 == 0, .oracle = oracle};
        twill_optimizer_defaults(&c.optimizer, TWILL_OPTIMIZER_SGD);
        c.optimizer.rate = 0.1;
        c.optimizer.clip_norm = 1.5;
        twill_update_run_oracle(&c);
        twill_test_run_ranks(c.world->size, twill_update_rank, &c);
    }
}
