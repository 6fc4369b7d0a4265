/* SPDX-License-Identifier: Apache-2.0 */
/* Measure what a timeline, or another setting, adds to a training step, and what an event of the
 * ring costs. */
#include "bench/common/gradient_list.h"
#include "bench/common/progress_line.h"
#include "bench/common/report.h"
#include "bench/common/tool_calls.h"
#include "bench/tools/compare/peers/played_compute.h"
#include "lib/base/plural.h"
#include "lib/base/trace.h"
#include "lib/twill_train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OVERHEAD_STEPS 1000
#define STEPS_WARM     3
#define BATCH          32
#define GFLOPS         10000.0
#define EVENTS_TIMED   (UINT64_C(1) << 24)
#define SIDES          2

/* One of the two variants of a training step that are compared, without and with a setting. It has
 * its own context and gradient set, and the samples of its steps. */
struct overhead_side {
    const char *name;
    twill_comm *comm;
    twill_gradients *set;
    double step[OVERHEAD_STEPS], processor[OVERHEAD_STEPS]; /* seconds */
};

/* The state of a rank that compares training steps without and with a setting. side[0] is without,
 * side[1] with it. main() allocates and frees it. */
struct overhead {
    struct twill_bench_list list;
    twill_comm *comm; /* for the barrier before each step */
    struct overhead_side side[SIDES];
    struct played_compute compute;
    size_t steps; /* timed steps of each side */
};

/* Return whether the status is an error, after printing the call and message if so. */
static bool fails(const char *call, twill_status status, const char *message)
{
    if (status != TWILL_OK)
        fprintf(stderr, "%s: %s\n", call, message);
    return status != TWILL_OK;
}

/* Create the context of a side with this setting, "NAME=...", and its gradient set of all tensors
 * of the list. Returns false after an error, which is printed. */
static bool open_side(struct overhead *o, struct overhead_side *side, const char *setting)
{
    const twill_bootstrap bootstrap = twill_bench_bootstrap(o->comm);
    const char *const settings[] = {setting, NULL};
    char message[512] = "";
    if (fails("init", twill_init_with(&side->comm, &bootstrap, settings, message, sizeof(message)),
              message) ||
        fails("create", twill_gradients_create(&side->set, side->comm, NULL),
              twill_comm_message(side->comm)))
        return false;
    for (size_t i = 0; i < o->list.keys; i++) {
        char name[24];
        snprintf(name, sizeof(name), "%zu", i);
        const twill_tensor tensor = {
            .name = name, .count = (size_t)o->list.elements[i], .type = TWILL_F32};
        if (fails("add", twill_gradients_add(side->set, &tensor, NULL),
                  twill_gradients_message(side->set)))
            return false;
    }
    return !fails("commit", twill_gradients_commit(side->set), twill_gradients_message(side->set));
}

/* Destroy the gradient set of a side, and finalize its context. */
static void close_side(struct overhead_side *side)
{
    twill_gradients_destroy(side->set);
    twill_finalize(side->comm);
}

/* Advance the reductions of a set. Returns whether that fails. */
static int test_set(void *of)
{
    int done;
    return twill_gradients_test(of, -1, &done) != TWILL_OK;
}

/* Return the CPU time of this process in seconds. */
static double processor_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Play the backward pass, which writes each tensor and then has the set reduce it. Wait for the
 * set, and play the forward pass. Begins with a barrier. Stores the seconds and the processor
 * time as sample `step` of the side. Returns false after an error, which is printed. */
static bool run_step(struct overhead *o, struct overhead_side *side, size_t step)
{
    const struct twill_bench_list *list = &o->list;
    if (fails("barrier", twill_barrier(o->comm), twill_comm_message(o->comm)))
        return false;
    double from = twill_bench_now(), processor = processor_now();
    twill_status status = TWILL_OK;
    o->compute.test = test_set;
    o->compute.of = side->set;
    played_launch(&o->compute);
    for (size_t i = list->keys; i-- > 0 && status == TWILL_OK;) {
        double forward = twill_bench_list_seconds(list, i, BATCH, GFLOPS);
        (void)played_for(&o->compute, 2 * forward);
        memset(twill_gradients_memory(side->set, (int)i), 0,
               (size_t)list->elements[i] * sizeof(float));
        status = twill_gradients_ready(side->set, (int)i);
    }
    if (status == TWILL_OK)
        status = twill_gradients_wait_all(side->set);
    o->compute.test = NULL;
    played_launch(&o->compute);
    for (size_t i = 0; i < list->keys; i++)
        (void)played_for(&o->compute, twill_bench_list_seconds(list, i, BATCH, GFLOPS));
    side->step[step] = twill_bench_now() - from;
    side->processor[step] = processor_now() - processor;
    return !fails("step", status, twill_gradients_message(side->set));
}

/* Run STEPS_WARM steps of each side and then o->steps more, with the sides by turns. The samples of
 * the first are overwritten. Returns false after an error, which is printed. */
static bool run_turns(struct overhead *o)
{
    struct twill_bench_progress progress;
    twill_bench_progress_begin(&progress, twill_comm_rank(o->comm) == 0);
    bool good = true;
    for (size_t step = 0; good && step < STEPS_WARM + o->steps; step++) {
        size_t at = step < STEPS_WARM ? 0 : step - STEPS_WARM;
        twill_bench_progress_show(&progress, step, STEPS_WARM + o->steps, "steps");
        for (size_t i = 0; good && i < SIDES; i++)
            good = run_step(o, &o->side[(i + step) % SIDES], at);
    }
    twill_bench_progress_clear(&progress);
    return good;
}

/* The kinds of timed loops, by what a round does. */
enum { EVENT_ALONE, CLOCK_ALONE, EVENT_AND_CLOCK, TIMED_KINDS };

/* Run a loop and return the nanoseconds of one round. By `kind`, a round records an event in the
 * ring (EVENT_ALONE), reads the clock (CLOCK_ALONE) or does both (EVENT_AND_CLOCK). */
static double time_events(struct twill_trace_ring *ring, int kind)
{
    const struct twill_trace trace = {.ring = ring};
    volatile uint64_t clock = 0;
    double from = twill_bench_now();
    for (uint64_t i = 0; i < EVENTS_TIMED; i++) {
        if (kind == CLOCK_ALONE) {
            clock = twill_ticks();
            continue;
        }
        uint64_t tick = kind == EVENT_AND_CLOCK ? twill_ticks() : i;
        twill_trace_emit(&trace, (struct twill_trace_event){.tick = tick,
                                                            .bytes = i,
                                                            .sequence = (uint32_t)i,
                                                            .peer = TWILL_TRACE_NO_PEER,
                                                            .what = 3,
                                                            .kind = TWILL_TRACE_CALL_BEGIN});
    }
    (void)clock;
    return (twill_bench_now() - from) * 1e9 / (double)EVENTS_TIMED;
}

/* Measure and print the nanoseconds that it takes to record an event in a trace ring, to read the
 * clock, and to do both. Each is the least of five loops. Prints nothing if out of memory. */
static void print_events(void)
{
    struct twill_trace_ring *ring = aligned_alloc(64, sizeof(*ring));
    double least[TIMED_KINDS] = {1e9, 1e9, 1e9};
    if (ring == NULL)
        return;
    memset(ring, 0, sizeof(*ring));
    for (int turn = 0; turn < 5 * TIMED_KINDS; turn++) {
        double ns = time_events(ring, turn % TIMED_KINDS), *to = &least[turn % TIMED_KINDS];
        *to = ns < *to ? ns : *to;
    }
    printf("an event of the ring: %.2f ns; a look at the clock: %.2f ns; both: %.2f ns, %.2f ns "
           "more than the clock (least of 5)\n",
           least[EVENT_ALONE], least[CLOCK_ALONE], least[EVENT_AND_CLOCK],
           least[EVENT_AND_CLOCK] - least[CLOCK_ALONE]);
    free(ring);
}

/* Print the time and the processor time of a step without and with the setting, and the
 * differences. */
static void print_sides(struct overhead *o)
{
    double step[SIDES], processor[SIDES], more[OVERHEAD_STEPS];
    for (int i = 0; i < SIDES; i++) {
        struct overhead_side *side = &o->side[i];
        struct twill_bench_statistics steps = twill_bench_statistics(side->step, o->steps);
        step[i] = steps.median;
        processor[i] = twill_bench_statistics(side->processor, o->steps).median;
        printf("%-24s %9.3f ms a step (median; least %.3f), %.3f ms of processor time\n",
               side->name, step[i] * 1e3, steps.min * 1e3, processor[i] * 1e3);
    }
    for (size_t i = 0; i < o->steps; i++)
        more[i] = o->side[1].step[i] / o->side[0].step[i];
    printf("%-24s %9.4f (median of the ratios of two steps in turn)\n", "with / without",
           twill_bench_statistics(more, o->steps).median);
    printf("%-24s %9.3f ms, %.2f %% of a step; processor time %.3f ms, %.2f %% of a step\n",
           "it adds", (step[1] - step[0]) * 1e3, (step[1] / step[0] - 1) * 100,
           (processor[1] - processor[0]) * 1e3, (processor[1] - processor[0]) / step[0] * 100);
}

/* Open both sides, the second with `setting` or, if that is NULL, a timeline in `folder`. Run their
 * steps, and close them. Rank 0 prints the comparison. Returns 0, or 1 after an error. */
static int measure(struct overhead *o, const char *setting, const char *folder)
{
    char timeline[128];
    snprintf(timeline, sizeof(timeline), "TWILL_TIMELINE=%s/step.json", folder);
    o->side[0].name = "without";
    o->side[1].name = setting != NULL ? setting : "with a timeline";
    bool good = open_side(o, &o->side[0], "TWILL_TIMELINE=") &&
                open_side(o, &o->side[1], setting != NULL ? setting : timeline);
    good = good && run_turns(o);
    if (good && twill_comm_rank(o->comm) == 0) {
        printf(
            "%zu tensor%s, %llu bytes, %d rank%s; computing by %s; %zu step%s of each in turns\n",
            o->list.keys, TWILL_PLURAL(o->list.keys),
            (unsigned long long)(o->list.total * sizeof(float)), twill_comm_size(o->comm),
            TWILL_PLURAL(twill_comm_size(o->comm)), o->compute.device ? "a device" : "the core",
            o->steps, TWILL_PLURAL(o->steps));
        print_sides(o);
        if (setting == NULL)
            print_events();
    }
    for (int i = 0; i < SIDES; i++)
        close_side(&o->side[i]);
    if (good)
        (void)twill_barrier(o->comm); /* all files are closed */
    return good ? 0 : 1;
}

/* Print what a setting adds to a step. Returns 0, 1 after a failure, or 2 if misused. */
int main(int argc, char **argv)
{
    struct overhead *o = calloc(1, sizeof(*o));
    char message[512] = "", folder[] = "/tmp/trace-overhead.XXXXXX", remove[64];
    size_t steps = 100;
    bool device = argc > 3 && strcmp(argv[3], "device") == 0;
    if (argc < 2 || argc > 5 || (argc > 3 && !device && strcmp(argv[3], "core") != 0) ||
        (argc > 2 && !twill_bench_parse_number(argv[2], 1, OVERHEAD_STEPS, &steps))) {
        fputs("Usage: trace-overhead LIST [STEPS [core|device [NAME=VALUE]]]\n", stderr);
        free(o);
        return 2;
    }
    if (o == NULL || !twill_bench_list_read(&o->list, argv[1], message, sizeof(message)) ||
        twill_init(&o->comm) != TWILL_OK ||
        (twill_comm_rank(o->comm) == 0 && mkdtemp(folder) == NULL) ||
        twill_broadcast(o->comm, folder, folder, sizeof(folder), TWILL_U8, 0) != TWILL_OK) {
        fprintf(stderr, "trace-overhead: cannot begin: %s\n", message);
        return 1;
    }
    o->steps = steps;
    o->compute.device = device;
    o->compute.turns_per_second = played_speed();
    int status = measure(o, argc > 4 ? argv[4] : NULL, folder);
    snprintf(remove, sizeof(remove), "rm -r %s", folder);
    if (twill_comm_rank(o->comm) == 0 && system(remove) != 0)
        fprintf(stderr, "trace-overhead: cannot remove %s\n", folder);
    twill_finalize(o->comm);
    twill_bench_list_free(&o->list);
    free(o);
    return status;
}
