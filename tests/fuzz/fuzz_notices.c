/* SPDX-License-Identifier: Apache-2.0 */
/* Delivery of authenticated notices: failures, reports of waiting ranks and answers to them,
 * messages of agreements, for communicators that are open or have ended. Six bytes each: the
 * sender, the kind, and four that change it, then the data of an agreement's message. */
#include "fabric/bootstrap/bootstrap.h"
#include "fabric/shm/call_records.h"
#include "lib/comm/comm_internal.h"
#include "lib/engine/spread_ranks.h"
#include "lib/job/context.h"
#include "lib/wait/wait.h"
#include "tests/fuzz/fuzz_input.h"

#include <time.h>

#define RANKS     4
#define JOB_RANKS (RANKS + 2)
#define COMMS     2
#define DATA      TWILL_NOTICE_DATA(RANKS)

static const uint8_t *input;
static size_t input_size;
static unsigned char message[DATA];
static uint64_t now = 1000000000;
static struct twill_comm *opened[COMMS];

/* --- in the place of the failure detector's, and of others ------------------------------------ */

FUZZ_REPLACED(uint64_t, twill_now, void)
{
    return now += 1000000;
}

FUZZ_REPLACED(int, sched_yield, void)
{
    return 0;
}

FUZZ_REPLACED(int, nanosleep, const struct timespec *time, struct timespec *left)
{
    now += 100000000;
    return 0;
}

/* Make a message of an agreement: its head is right but for what a byte says. */
static size_t make_message(const uint8_t *data, size_t most)
{
    static const size_t lengths[] = {0, 8, sizeof(struct twill_decision), 1};
    struct twill_consensus_header header = {
        .kind = data[2] % 8, .instance = data[3] % 4, .ballot = data[4] % 8};
    size_t bytes =
        sizeof(header) + (data[5] < 128 ? twill_decision_bytes(RANKS) : lengths[data[5] % 4]);
    bytes = data[5] >= 250 ? data[4] : bytes;
    bytes = twill_min(twill_max(bytes, 1), sizeof(message));
    memset(message, 0, sizeof(message));
    memcpy(message, &header, twill_min(sizeof(header), bytes));
    size_t own = twill_min(most, bytes > sizeof(header) ? bytes - sizeof(header) : 0);
    memcpy(message + sizeof(header), input + 6, own);
    input += own;
    input_size -= own;
    return bytes;
}

FUZZ_REPLACED(bool, twill_detector_poll, struct twill_detector *detector,
              struct twill_notice *notice)
{
    if (input_size < 6)
        return false;
    const uint8_t *data = input;
    memset(notice, 0, sizeof(*notice));
    notice->from = data[0] % JOB_RANKS;
    notice->comm = data[0] / 16 % (COMMS + 1);
    if (data[1] % 4 < 2) {
        notice->data = message;
        notice->bytes = make_message(data, input_size - 6);
    } else if (data[1] % 4 == 2) {
        notice->status = (twill_status) - (data[2] % 14);
        snprintf(notice->message, sizeof(notice->message), "rank %u: so", data[3]);
        notice->state[0] = data[4];
    } else {
        notice->state[0] = data[2];
        notice->state[1] = data[3];
        notice->state[2] = (uint64_t)data[3] << data[4] % 64;
        notice->state[3] = data[5] == 255 ? UINT64_MAX : data[5] % 8;
        notice->state[3] |= (uint64_t)(data[5] / 8 % 2) << 32; /* an answer, with ranks */
        snprintf(notice->message, sizeof(notice->message),
                 data[5] / 16 % 4 == 3 ? "%d  %u" : " %u %u", data[3], data[4]);
    }
    input += 6;
    input_size -= 6;
    return true;
}

FUZZ_REPLACED(bool, twill_detector_send, struct twill_detector *detector, uint32_t peer,
              const struct twill_notice *notice)
{
    uint32_t sum = 0;
    fuzz_must(peer < JOB_RANKS && notice->bytes <= DATA);
    fuzz_must(memchr(notice->message, '\0', sizeof(notice->message)) != NULL);
    for (size_t i = 0; i < notice->bytes; i++)
        sum += ((const unsigned char *)notice->data)[i];
    fuzz_must(sum <= 255 * DATA);
    return sum % 2 == 0;
}

FUZZ_REPLACED(void, twill_detector_notify, struct twill_detector *detector,
              const struct twill_notice *notice, const uint32_t *ranks, size_t count,
              uint64_t patience_ns)
{
    for (size_t i = 0; i < count; i++)
        (void)__wrap_twill_detector_send(detector, ranks[i], notice);
}

FUZZ_REPLACED(bool, twill_detector_is_dead, struct twill_detector *detector, uint32_t peer)
{
    return peer == RANKS - 1;
}

FUZZ_REPLACED(const char *, twill_detector_lost_host, const struct twill_detector *detector,
              uint32_t peer)
{
    return peer == RANKS - 1 ? "a host" : NULL;
}

FUZZ_REPLACED(void, twill_node_sleep, struct twill_node *node, uint32_t word, uint64_t timeout_ns)
{
    now += timeout_ns;
}

FUZZ_REPLACED(twill_status, twill_comm_fail, struct twill_comm *comm, twill_status status,
              enum twill_cause cause)
{
    comm->broken = true;
    return status;
}

uint64_t twill_silence_bound_ns(const struct twill_comm *comm)
{
    return comm->tuning.timeout_ns;
}

/* This rank waits for all ranks that a report can name. */
unsigned twill_engine_waits_for(struct twill_engine *engine, uint32_t *ranks, unsigned most,
                                const char **step)
{
    for (unsigned i = 0; i < most; i++)
        ranks[i] = i % engine->world->size;
    *step = "message";
    return most;
}

void twill_context_note_of(struct twill_context *context, bool of_rank, const char *format, ...)
{
}

/* Nothing else is under way. */
int twill_context_advance(struct twill_context *context, const struct twill_comm *except)
{
    return 0;
}

int twill_comm_advance_others(struct twill_comm *self)
{
    return 0;
}

/* Waits learn nothing: no rank has a share of CPUs. */
void twill_spread_set_clock(struct twill_cpu_share *share, double rate)
{
}
void twill_spread_while_shared(struct twill_cpu_share *share, uint64_t at)
{
}
void twill_spread_put_off(struct twill_cpu_share *share, uint64_t at)
{
}

/* --- a context with two communicators, each rank on a node of its own ------------------------- */

static void open_comm(struct twill_context *context, uint32_t number)
{
    static uint32_t node[RANKS] = {0, 1, 2, 3}, local[RANKS], job[RANKS] = {0, 1, 2, 3}, mine[1];
    static struct twill_node_area *area;
    static struct twill_world world = {.size = RANKS, .nodes = RANKS, .node = node, .local = local};
    static struct twill_oob oob = {.size = RANKS, .job = job};
    static struct twill_node memory = {.size = 1, .area = &area, .rank = mine};
    struct twill_comm *comm = calloc(1, sizeof(*comm));
    struct twill_comm_health *health = calloc(1, sizeof(*health));
    if (area == NULL)
        area = aligned_alloc(4096, 1u << 20);
    fuzz_must(comm != NULL && health != NULL && area != NULL);
    memset(area, 0, sizeof(*area));
    comm->context = context;
    comm->world = &world;
    comm->job = job;
    comm->oob = &oob;
    comm->number = number;
    comm->local_size = 1;
    comm->node = &memory;
    comm->issue.sequence = 5;
    comm->tuning.timeout_ns = 1000000000;
    comm->health = health;
    comm->health->reported = calloc(RANKS, sizeof(*comm->health->reported));
    fuzz_must(comm->health->reported != NULL);
    const struct twill_call_record call = {.sequence = 5, .count = 4, .what = 0x201};
    twill_node_enter_call(&memory, &call, 1000);
    opened[number] = comm;
    context->comms.open[context->comms.opened++] = comm;
}

static void close_comm(struct twill_context *context, uint32_t number)
{
    struct twill_comm *comm = opened[number];
    if (comm == NULL)
        return;
    opened[number] = NULL;
    twill_agree_close(comm);
    context->comms.opened = 0;
    for (uint32_t i = 0; i < COMMS; i++)
        if (opened[i] != NULL)
            context->comms.open[context->comms.opened++] = opened[i];
    free(comm->health->reported);
    free(comm->health);
    free(comm);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct twill_comm *places[COMMS];
    static struct twill_oob job = {.size = JOB_RANKS};
    struct twill_context *context = calloc(1, sizeof(*context));
    const struct twill_decision *decision;
    struct twill_error error = {0};
    if (context == NULL || size == 0) {
        free(context);
        return 0;
    }
    context->health.detector = (struct twill_detector *)(void *)context; /* only passed on */
    fuzz_must(pthread_mutex_init(&context->health.detector_lock, NULL) == 0 &&
              pthread_mutex_init(&context->lock, NULL) == 0);
    context->job.world.nodes = RANKS;
    context->job.oob = &job;
    context->comms.open = places;
    context->comms.next_number = COMMS;
    for (uint32_t i = 0; i < COMMS; i++)
        open_comm(context, i);
    input = data + 1;
    input_size = size - 1;
    if (data[0] % 4 != 0) /* it agrees with what comes meanwhile */
        (void)twill_agree(opened[0], (enum twill_agreeing_call)(data[0] / 4 % 4), 1, 2000,
                          &decision, &error);
    if (data[0] / 64 % 2 != 0)
        close_comm(context, 0);
    for (uint32_t i = 0; i < COMMS; i++)
        if (opened[i] != NULL) {
            if (data[0] / 16 % 4 == 3) { /* it asks, and what comes answers */
                static const uint32_t awaited[] = {1, 2};
                uint32_t cause = RANKS;
                char place[128] = "";
                (void)twill_comm_find_cause(opened[i], awaited, 2, &cause, place, sizeof(place));
                fuzz_must(cause < RANKS && memchr(place, '\0', sizeof(place)) != NULL);
            }
            (void)twill_comm_poll_failures(opened[i], data[0] / 128 != 0);
            for (uint32_t r = 0; r < RANKS; r++)
                fuzz_must(opened[i]->health->reported[r].rank < RANKS);
            fuzz_must(memchr(opened[i]->error.message, '\0', sizeof(opened[i]->error.message)) !=
                      NULL);
        }
    for (uint32_t i = 0; i < COMMS; i++)
        close_comm(context, i);
    while (context->closers.count > 0)
        context->closers.close[--context->closers.count](context);
    free(context);
    return 0;
}
