/* SPDX-License-Identifier: Apache-2.0 */
/* Included by training_template.h: the steps and norms of optimizer.h for one instruction set. */

#define GRADIENT(type)                                                                             \
    {                                                                                              \
        EACH(v) g[v] = fetch_##type(step->gradient[0], at + v * STEP_LANES, n);                    \
        for (unsigned s = 1; s < step->sources; s++)                                               \
            EACH(v) g[v] = g[v] + fetch_##type(step->gradient[s], at + v * STEP_LANES, n);         \
    }
/* Load to g[registers] the sum of the step's gradient sources, times step->scale, from element `at`
 * on. If n is 0, all registers are filled. Otherwise there is one register, and only n elements are
 * read. */
TWILL_INLINE void load_gradient(const struct twill_optimizer_step *step, vector_f32 *g, size_t at,
                                unsigned registers, size_t n)
{
    const vector_f32 scale = splat_f32(step->scale);
    switch (step->gradient_type) {
    case TWILL_F16:
        GRADIENT(f16)
        break;
    case TWILL_BF16:
        GRADIENT(bf16)
        break;
    default:
        GRADIENT(f32)
    }
    EACH(v) g[v] = g[v] * scale;
}
#undef GRADIENT

/* Return LAMB's direction, from moments that include this step's gradient. */
TWILL_INLINE vector_f32 lamb_direction(const struct twill_update_job *job, vector_f32 w,
                                       vector_f32 m, vector_f32 v)
{
    vector_f32 root = sqrt_f32(v) * splat_f32(job->unbias2) + splat_f32(job->epsilon);
    vector_f32 u = m * splat_f32(job->unbias1) / root;
    if (job->decays)
        u = u + splat_f32(job->decay) * w;
    return u;
}

/* Add the gradient g to *m and *v, the first and the second moment of Adam and LAMB. */
TWILL_INLINE void add_to_moments(const struct twill_update_job *job, vector_f32 g, vector_f32 *m,
                                 vector_f32 *v)
{
    *m = splat_f32(job->beta1) * *m + splat_f32(job->rest1) * g;
    *v = splat_f32(job->beta2) * *v + splat_f32(job->rest2) * (g * g);
}

/* Update a register of weights *w and of the states *a and *b by the gradient g. `rule` is known at
 * compile time. For LAMB only *w changes, and g is not read, as norms_of_register() has added it to
 * the states. */
TWILL_INLINE void apply_rule(const struct twill_update_job *job, twill_optimizer_rule rule,
                             vector_f32 g, vector_f32 *w, vector_f32 *a, vector_f32 *b)
{
    const vector_f32 rate = splat_f32(job->rate), momentum = splat_f32(job->momentum);
    if (rule == TWILL_OPTIMIZER_ADAMW)
        *w = *w * splat_f32(job->keep);
    else if (rule != TWILL_OPTIMIZER_LAMB && job->decays)
        g = g + splat_f32(job->decay) * *w;
    switch (rule) {
    case TWILL_OPTIMIZER_SGD:
        if (job->has_momentum) {
            *a = momentum * *a + splat_f32(job->undamped) * g;
            if (job->nesterov)
                g = g + momentum * *a;
            else
                g = *a;
        }
        *w = *w - rate * g;
        return;
    case TWILL_OPTIMIZER_ADAGRAD:
        *a = *a + g * g;
        *w = *w - rate * g / (sqrt_f32(*a) + splat_f32(job->epsilon));
        return;
    case TWILL_OPTIMIZER_LARS:
        *a = momentum * *a + rate * g;
        *w = *w - *a;
        return;
    case TWILL_OPTIMIZER_LAMB:
        *w = *w - rate * lamb_direction(job, *w, *a, *b);
        return;
    default:
        add_to_moments(job, g, a, b);
        *w = *w - rate * *a / (sqrt_f32(*b) * splat_f32(job->unbias2) + splat_f32(job->epsilon));
    }
}

/* Update `registers` registers of parameters from element `at` on or, unless n is 0, n elements.
 * The states of LAMB are only read. `rule`, `registers`, n == 0 are compile-time. */
TWILL_INLINE void update_batch(const struct twill_update_job *job, twill_optimizer_rule rule,
                               size_t at, unsigned registers, size_t n)
{
    const struct twill_optimizer_step *step = job->step;
    const bool second = rule == TWILL_OPTIMIZER_ADAM || rule == TWILL_OPTIMIZER_ADAMW ||
                        rule == TWILL_OPTIMIZER_LAMB;
    const bool first = rule != TWILL_OPTIMIZER_SGD || job->has_momentum;
    vector_f32 g[TWILL_STEP_REGISTERS], w[TWILL_STEP_REGISTERS];
    vector_f32 a[TWILL_STEP_REGISTERS], b[TWILL_STEP_REGISTERS];
    if (rule != TWILL_OPTIMIZER_LAMB)
        load_gradient(step, g, at, registers, n);
    EACH(v)
    {
        if (rule == TWILL_OPTIMIZER_LAMB)
            g[v] = splat_f32(0);
        w[v] = fetch_f32(job->weights, at + v * STEP_LANES, n);
        a[v] = first ? fetch_f32(step->state[0], at + v * STEP_LANES, n) : splat_f32(0);
        b[v] = second ? fetch_f32(step->state[1], at + v * STEP_LANES, n) : splat_f32(0);
    }
    EACH(v) apply_rule(job, rule, g[v], &w[v], &a[v], &b[v]);
    EACH(v) w[v] = canonical_f32(w[v]);
    EACH(v) put_f32(job->weights, at + v * STEP_LANES, w[v], n);
    if (step->parameter_type != TWILL_F32)
        EACH(v) put_any(step->parameter_type, step->parameter, at + v * STEP_LANES, w[v], n);
    if (first && rule != TWILL_OPTIMIZER_LAMB)
        EACH(v) put_f32(step->state[0], at + v * STEP_LANES, canonical_f32(a[v]), n);
    if (second && rule != TWILL_OPTIMIZER_LAMB)
        EACH(v) put_f32(step->state[1], at + v * STEP_LANES, canonical_f32(b[v]), n);
}

#define UPDATE(NOUN, stem)                                                                         \
    static void update_##stem(const struct twill_update_job *job, size_t first, size_t count)      \
    {                                                                                              \
        const twill_optimizer_rule rule = TWILL_OPTIMIZER_##NOUN;                                  \
        size_t at = first, end = first + count, batch = TWILL_STEP_REGISTERS * STEP_LANES;         \
        for (; end - at >= batch; at += batch)                                                     \
            update_batch(job, rule, at, TWILL_STEP_REGISTERS, 0);                                  \
        for (; end - at >= STEP_LANES; at += STEP_LANES)                                           \
            update_batch(job, rule, at, 1, 0);                                                     \
        if (at < end)                                                                              \
            update_batch(job, rule, at, 1, end - at);                                              \
    }
UPDATE(SGD, sgd)
UPDATE(ADAGRAD, adagrad)
UPDATE(ADAM, adam)
UPDATE(ADAMW, adamw)
UPDATE(LARS, lars)
UPDATE(LAMB, lamb)
#undef UPDATE

/* Sums of squares. Element i is added to lane i % TWILL_SQUARE_LANES. */
struct square_lanes {
    vector_f64 lane[TWILL_SQUARE_LANES / lanes_f64];
};
#define SQUARE_REGISTERS     (TWILL_SQUARE_LANES / lanes_f32)
#define SQUARES_OF_REGISTER  (lanes_f32 / lanes_f64)
#define ADD_SQUARES(sums, v) add_square(&(sums)->lane[(v)*SQUARES_OF_REGISTER], x[v])

/* Add the lanes in a tree. A NaN becomes the canonical one. */
static double sum_lanes(const struct square_lanes *sums)
{
    TWILL_ALIGNED(64) double lane[TWILL_SQUARE_LANES]; /* gcc 12 under asan also assumes it */
    for (unsigned i = 0; i < TWILL_SQUARE_LANES / lanes_f64; i++)
        store_f64(lane + i * lanes_f64, sums->lane[i]);
    for (unsigned width = TWILL_SQUARE_LANES / 2; width > 0; width /= 2)
        for (unsigned i = 0; i < width; i++)
            lane[i] += lane[i + width];
    return __builtin_isnan(lane[0]) ? __builtin_nan("") : lane[0];
}

/* Elements of register v when n remain of a batch, and whether it has any. */
#define REGISTER_PART(v, n)  twill_min((n) - (v)*STEP_LANES, STEP_LANES)
#define REGISTER_IS_IN(v, n) ((n) > (v)*STEP_LANES)

/* Load `part` (1 to STEP_LANES) elements at `at`. */
TWILL_INLINE vector_f32 fetch_part(twill_type type, const void *src, size_t at, size_t part)
{
    return fetch_any(type, src, at, part == STEP_LANES ? 0 : part);
}

/* Return the sum of the squares of `count` elements. */
TWILL_INLINE double squares_of(twill_type type, const void *src, size_t count)
{
    const unsigned registers = SQUARE_REGISTERS;
    struct square_lanes sums = {0};
    vector_f32 x[SQUARE_REGISTERS];
    size_t at = 0;
    for (; count - at >= TWILL_SQUARE_LANES; at += TWILL_SQUARE_LANES) {
        EACH(v) x[v] = fetch_any(type, src, at + v * STEP_LANES, 0);
        EACH(v) ADD_SQUARES(&sums, v);
    }
    for (unsigned v = 0; v < registers && REGISTER_IS_IN(v, count - at); v++) {
        x[v] = fetch_part(type, src, at + v * STEP_LANES, REGISTER_PART(v, count - at));
        ADD_SQUARES(&sums, v);
    }
    return sum_lanes(&sums);
}

#define SQUARES(NOUN, type)                                                                        \
    static double squares_##type(const void *src, size_t count)                                    \
    {                                                                                              \
        return squares_of(TWILL_##NOUN, src, count);                                               \
    }
SQUARES(F32, f32)
SQUARES(F16, f16)
SQUARES(BF16, bf16)
#undef SQUARES

/* Add the squares of a register's weights and of its update (the gradient, or LAMB's direction) to
 * *weights and *update. For LAMB, first update its moments in step->state. `rule` is a constant. n
 * is the number of elements in the register, 0 for all. */
TWILL_INLINE void norms_of_register(const struct twill_update_job *job, twill_optimizer_rule rule,
                                    size_t at, size_t n, vector_f64 *weights, vector_f64 *update)
{
    const struct twill_optimizer_step *step = job->step;
    vector_f32 g[1], w = fetch_f32(job->weights, at, n);
    load_gradient(step, g, at, 1, n);
    if (rule == TWILL_OPTIMIZER_LAMB) {
        vector_f32 a = fetch_f32(step->state[0], at, n), b = fetch_f32(step->state[1], at, n);
        add_to_moments(job, g[0], &a, &b);
        put_f32(step->state[0], at, canonical_f32(a), n);
        put_f32(step->state[1], at, canonical_f32(b), n);
        g[0] = lamb_direction(job, w, a, b);
    }
    add_square(weights, w);
    add_square(update, g[0]);
}

/* Make the first pass of LARS or LAMB over a range, for LAMB updating its moments. Returns its
 * squared norms. */
TWILL_INLINE struct twill_optimizer_norms
norms_of(const struct twill_update_job *job, twill_optimizer_rule rule, size_t first, size_t count)
{
    const unsigned registers = SQUARE_REGISTERS;
    struct square_lanes weights = {0}, update = {0};
    size_t at = first, end = first + count;
    for (; end - at >= TWILL_SQUARE_LANES; at += TWILL_SQUARE_LANES)
        EACH(v)
    norms_of_register(job, rule, at + v * STEP_LANES, 0, &weights.lane[v * SQUARES_OF_REGISTER],
                      &update.lane[v * SQUARES_OF_REGISTER]);
    for (unsigned v = 0; v < registers && REGISTER_IS_IN(v, end - at); v++) {
        size_t part = REGISTER_PART(v, end - at);
        norms_of_register(job, rule, at + v * STEP_LANES, part == STEP_LANES ? 0 : part,
                          &weights.lane[v * SQUARES_OF_REGISTER],
                          &update.lane[v * SQUARES_OF_REGISTER]);
    }
    return (struct twill_optimizer_norms){sum_lanes(&weights), sum_lanes(&update)};
}

/* Make the first pass of LARS over a range. Returns its squared norms. */
static struct twill_optimizer_norms norms_lars(const struct twill_update_job *job, size_t first,
                                               size_t count)
{
    return norms_of(job, TWILL_OPTIMIZER_LARS, first, count);
}

/* Make the first pass of LAMB over a range, updating its moments. Returns its squared norms. */
static struct twill_optimizer_norms norms_lamb(const struct twill_update_job *job, size_t first,
                                               size_t count)
{
    return norms_of(job, TWILL_OPTIMIZER_LAMB, first, count);
}
