/* SPDX-License-Identifier: Apache-2.0 */
/* Windows from creation to end, their waits and failures. */
#include "lib/window/window.h"
#include "kernels/kernels.h"
#include "lib/base/times.h"
#include "lib/twill_recover.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOT_SHARED      UINT64_MAX /* in place of an offset: this memory is not shared */
#define POLLS_PER_OTHER 8u         /* polls of a signal for each one of other communicators */

/* What a rank tells the others at the creation. */
struct window_offer {
    int64_t status, signals;
    uint64_t bytes, buffer_at, signal_at; /* offsets in the memory that the rank shares */
};

/* A rank sends this to the others once it has exposed its buffer. */
struct window_exposure {
    uint64_t exposed; /* 0: the network cannot write there, or from there */
    struct twill_extend_place place;
};
_Static_assert(sizeof(struct window_exposure) <= sizeof(struct window_offer), "takes its place");

/* --- failures ----------------------------------------------------------------------------------
 */

twill_status twill_window_fail(struct twill_window *window, const char *call, twill_status status,
                               const char *format, ...)
{
    char text[400];
    va_list arguments;
    if (atomic_load(&window->broken))
        return window->error.status;
    va_start(arguments, format);
    (void)twill_print_list(text, sizeof(text), format, arguments);
    va_end(arguments);
    (void)twill_extend_fail(window->comm, TWILL_EXTEND_ENDS, call, status, "%s", text);
    window->error = *twill_extend_comm(window->comm).error;
    if (window->error.status == TWILL_OK)
        (void)TWILL_FAIL(&window->error, status, "%s: %s", call, text);
    atomic_store(&window->broken, true);
    return window->error.status;
}

/* Break the window if `comm`, its own or the caller's, is broken. Returns whether it is. */
static bool inherit_failure(struct twill_window *window, const char *call, twill_comm *comm)
{
    struct twill_error failure;
    if (!twill_extend_failure(comm, true, &failure))
        return false;
    (void)twill_window_fail(window, call, failure.status, "%s", failure.message);
    return true;
}

/* Return whether memory that ranks of the node put into is private since twill_comm_shrink(). */
static bool is_private(const struct twill_window *window)
{
    return window->shared && twill_extend_memory(window->comm, window->rank).base == NULL;
}

/* Break the window, whose lock is held, if its memory has become private. */
static void look_at_memory(struct twill_window *window, const char *call)
{
    if (is_private(window))
        (void)twill_window_fail(window, call, TWILL_ERR_PEER,
                                "memory of twill_alloc() has become private, as a rank was left "
                                "behind alive: make a new window");
}

/* Break the window if any of its ranks has died or its communicators are broken. */
static void look_for_failures(struct twill_window *window, const char *call)
{
    char text[TWILL_EXTEND_TEXT];
    if (atomic_load(&window->broken) || inherit_failure(window, call, window->comm) ||
        inherit_failure(window, call, window->parent))
        return;
    look_at_memory(window, call);
    for (uint32_t r = 0; r < window->size; r++) {
        struct twill_window_peer *peer = &window->peer[r];
        if (r == window->rank || !twill_extend_is_dead(window->comm, r))
            continue;
        if (peer->suspect) {
            (void)twill_window_fail(
                window, call, TWILL_ERR_PEER, "%s",
                twill_extend_describe(window->comm, TWILL_EXTEND_DEAD_RANK, r, text, sizeof(text)));
            return;
        }
        peer->suspect = true;
    }
}

/* Refuse an argument of `call`, with a format and its arguments. */
#define REFUSE(window, call, format, ...)                                                          \
    (pthread_mutex_lock(&(window)->lock), twill_error_clear(&(window)->refused),                   \
     (void)TWILL_FAIL(&(window)->refused, TWILL_ERR_ARGUMENT, "rank %u: %s: " format,              \
                      (window)->rank, call, __VA_ARGS__),                                          \
     pthread_mutex_unlock(&(window)->lock), TWILL_ERR_ARGUMENT)

const char *twill_window_message(const twill_window *window)
{
    if (window == NULL)
        return "the window is NULL";
    return atomic_load(&window->broken) ? window->error.message : window->refused.message;
}

/* Return whether a call on the window can begin: TWILL_OK, or the error. */
static twill_status check_window(const struct twill_window *window)
{
    if (window == NULL)
        return TWILL_ERR_ARGUMENT;
    if (*window->process.fork_guard == 0)
        return TWILL_ERR_FORKED;
    return TWILL_UNLIKELY(atomic_load(&window->broken)) ? TWILL_ERR_BROKEN : TWILL_OK;
}

/* Check the number of a signal. Returns TWILL_OK or TWILL_ERR_ARGUMENT. */
static twill_status check_signal(struct twill_window *window, const char *call, int signal)
{
    if (signal < 0 || signal >= window->signals)
        return REFUSE(window, call, "signal %d is outside 0 .. %d", signal, window->signals - 1);
    return TWILL_OK;
}

/* --- waits -------------------------------------------------------------------------------------
 */

/* A wait of one call, on its stack, with the arguments of twill_window_await(). */
struct window_wait {
    struct twill_window *window;
    const char *call;
    int signal;
    uint64_t limit, since, seen; /* time of the last progress, and what was seen then */
    unsigned polls;
};

/* Advance the context, or a window without messages only at times. Returns the steps made. */
static int advance(void *of)
{
    struct window_wait *wait = of;
    if (wait->window->post == NULL && wait->polls++ % POLLS_PER_OTHER != 0)
        return 0;
    return twill_context_advance(wait->window->process.context, NULL);
}

static bool is_over(const void *awaited)
{
    const struct window_wait *wait = awaited;
    const struct twill_window *window = wait->window;
    if (atomic_load_explicit(&window->broken, memory_order_relaxed))
        return true;
    if (wait->signal != TWILL_NO_SIGNAL)
        return twill_window_raised(window, wait->signal) >= wait->limit;
    return atomic_load(&window->posted) <= wait->limit &&
           (!window->ends || atomic_load(&window->senders) == 0);
}

/* Break the window, whose lock is held, because `wait` has seen no progress for its timeout. */
static void time_out(const struct window_wait *wait)
{
    struct twill_window *window = wait->window;
    const struct twill_extend_comm comm = twill_extend_comm(window->comm);
    char what[100] = "puts are not sent, or ranks have not ended the window";
    if (wait->signal != TWILL_NO_SIGNAL)
        snprintf(what, sizeof(what), "signal %d is at %llu and has not reached %llu", wait->signal,
                 (unsigned long long)twill_window_raised(window, wait->signal),
                 (unsigned long long)wait->limit);
    (void)twill_window_fail(window, wait->call, TWILL_ERR_TIMEOUT, "%s within %.1f s (%s)", what,
                            (double)comm.timeout_ns * 1e-9, comm.timeout_name);
}

/* Look for failures, if it is time and no other thread does. */
static void check_failures(struct twill_window *window, const char *call, uint64_t now)
{
    if (now < atomic_load(&window->next_check) || pthread_mutex_trylock(&window->lock) != 0)
        return;
    atomic_store(&window->next_check, now + TWILL_CHECK_EVERY_NS);
    look_for_failures(window, call);
    pthread_mutex_unlock(&window->lock);
}

/* Look for failures and for the deadline, as due. Returns TWILL_OK, as done() finds the failure. */
static twill_status blocked_on(void *of, struct twill_waiting *state)
{
    struct window_wait *wait = of;
    struct twill_window *window = wait->window;
    uint64_t now = twill_now(), seen = atomic_load(&window->moved);
    if (wait->signal != TWILL_NO_SIGNAL)
        seen += twill_window_raised(window, wait->signal);
    state->polled = window->post != NULL;
    if (wait->since == 0 || seen != wait->seen) {
        wait->since = now;
        wait->seen = seen;
    }
    check_failures(window, wait->call, now);
    if (now - wait->since > twill_extend_comm(window->comm).timeout_ns) {
        pthread_mutex_lock(&window->lock);
        time_out(wait);
        pthread_mutex_unlock(&window->lock);
    }
    return TWILL_OK;
}

twill_status twill_window_await(struct twill_window *window, const char *call, int signal,
                                uint64_t limit)
{
    struct window_wait wait = {.window = window, .call = call, .signal = signal, .limit = limit};
    const struct twill_waitable waitable = {advance, is_over, blocked_on, .of = &wait,
                                            .awaited = &wait};
    twill_status status = twill_extend_await(window->comm, waitable, UINT64_MAX);
    return atomic_load(&window->broken) ? window->error.status : status;
}

twill_status twill_wait_signal(twill_window *window, int signal, uint64_t at_least, uint64_t *count)
{
    static const char call[] = "twill_wait_signal";
    TWILL_TRY(NULL, check_window(window));
    TWILL_TRY(NULL, check_signal(window, call, signal));
    twill_status status = TWILL_OK;
    if (at_least == 0 || twill_window_raised(window, signal) < at_least)
        status = twill_window_await(window, call, signal, at_least);
    if (at_least == 0 && status == TWILL_OK) {
        check_failures(window, call, twill_now());
        status = atomic_load(&window->broken) ? window->error.status : TWILL_OK;
    }
    if (count != NULL)
        *count = twill_window_raised(window, signal);
    return status;
}

/* --- puts --------------------------------------------------------------------------------------
 */

/* Check the arguments of a put. Returns TWILL_OK or TWILL_ERR_ARGUMENT. */
static twill_status check_put(struct twill_window *window, const char *call, const void *src,
                              size_t bytes, int to, size_t offset, int signal)
{
    if (to < 0 || (uint32_t)to >= window->size)
        return REFUSE(window, call, "to: rank %d is outside 0 .. %u", to, window->size - 1);
    size_t room = window->peer[to].bytes;
    if (bytes > room || offset > room - bytes)
        return REFUSE(window, call, "offset %zu + %zu bytes are outside the %zu bytes of rank %d",
                      offset, bytes, room, to);
    if (bytes > 0 && src == NULL)
        return REFUSE(window, call, "src is %s", "NULL");
    return signal == TWILL_NO_SIGNAL ? TWILL_OK : check_signal(window, call, signal);
}

/* Put, for the public function `call`. Returns TWILL_OK or the error. */
static twill_status put(struct twill_window *window, const char *call, const void *src,
                        size_t bytes, int to, size_t offset, int signal)
{
    TWILL_TRY(NULL, check_window(window));
    TWILL_TRY(NULL, check_put(window, call, src, bytes, to, offset, signal));
    const struct twill_window_peer *peer = &window->peer[to];
    if (peer->signal == NULL) {
        const struct twill_window_head head = {.offset = offset, .bytes = bytes, .signal = signal};
        return twill_window_send(window, call, (uint32_t)to, &head, src);
    }
    if (TWILL_UNLIKELY(is_private(window))) {
        pthread_mutex_lock(&window->lock);
        look_at_memory(window, call);
        pthread_mutex_unlock(&window->lock);
        return window->error.status;
    }
    if (bytes > 0)
        twill_kernels_copy(window->process.kernels, peer->base + offset, src, bytes, 0, NULL);
    if (signal == TWILL_NO_SIGNAL)
        return TWILL_OK;
    atomic_fetch_add(&peer->signal[signal].raised, 1); /* a barrier before the look of the ring */
    twill_extend_ring(window->comm, (uint32_t)to);
    return TWILL_OK;
}

twill_status twill_put(twill_window *window, const void *src, size_t bytes, int to, size_t offset,
                       int signal)
{
    return put(window, "twill_put", src, bytes, to, offset, signal);
}

twill_status twill_signal(twill_window *window, int to, int signal)
{
    TWILL_TRY(NULL, check_window(window));
    TWILL_TRY(NULL, check_signal(window, "twill_signal", signal));
    return put(window, "twill_signal", NULL, 0, to, 0, signal);
}

twill_status twill_window_flush(twill_window *window)
{
    TWILL_TRY(NULL, check_window(window));
    return atomic_load(&window->posted) == 0
               ? TWILL_OK
               : twill_window_await(window, "twill_window_flush", TWILL_NO_SIGNAL, 0);
}

/* --- creation and end --------------------------------------------------------------------------
 */

/* Return the offset of an allocation in what this rank shares, or NOT_SHARED. */
static uint64_t offset_of(const struct twill_window *window, const void *memory)
{
    const struct twill_extend_memory own = twill_extend_memory(window->parent, window->rank);
    uintptr_t at = (uintptr_t)memory - (uintptr_t)own.base;
    return own.base != NULL && at < own.bytes ? at : NOT_SHARED;
}

/* Check this rank's arguments, and get its signals. Sets *offer but for the status, and the error.
 * Returns TWILL_OK or the error. */
static twill_status prepare(struct twill_window *window, void *buffer, size_t bytes, int signals,
                            struct window_offer *offer)
{
    void *memory = NULL;
    size_t signal_bytes = (size_t)signals * sizeof(struct twill_window_signal);
    *offer = (struct window_offer){.signals = signals, .bytes = bytes};
    if (signals < 1 || signals > TWILL_WINDOW_SIGNALS)
        return TWILL_FAIL(&window->error, TWILL_ERR_ARGUMENT, "signals: %d is outside 1 .. %d",
                          signals, TWILL_WINDOW_SIGNALS);
    if (bytes > 0 && !twill_extend_pin(window->process.context, buffer, bytes, 1))
        return TWILL_FAIL(&window->error, TWILL_ERR_ARGUMENT,
                          "buffer: %zu bytes at %p are not memory of twill_alloc(), or freed",
                          bytes, buffer);
    window->buffer = bytes > 0 ? buffer : NULL;
    twill_status status = twill_alloc(window->process.context, &memory, signal_bytes);
    if (status != TWILL_OK)
        return TWILL_FAIL(&window->error, status, "%s",
                          twill_context_message(window->process.context));
    memset(memory, 0, signal_bytes);
    window->signal = memory;
    window->signals = signals;
    offer->buffer_at = bytes > 0 ? offset_of(window, buffer) : 0;
    offer->signal_at = offset_of(window, memory);
    window->shared = offer->signal_at != NOT_SHARED;
    return TWILL_OK;
}

/* Return TWILL_OK if all ranks can create the window, or set its error and return that. */
static twill_status compare_offers(struct twill_window *window, const struct window_offer *all)
{
    if (window->error.status != TWILL_OK)
        return window->error.status;
    for (uint32_t r = 0; r < window->size; r++) {
        twill_status status = (twill_status)all[r].status;
        if (status != TWILL_OK)
            return TWILL_FAIL(&window->error, status, "failed on rank %u: %s", r,
                              twill_strerror(status));
        if (all[r].signals != all[0].signals)
            return TWILL_FAIL(&window->error, TWILL_ERR_MISMATCH,
                              "signals is %d on rank 0 and %d on rank %u", (int)all[0].signals,
                              (int)all[r].signals, r);
    }
    return TWILL_OK;
}

/* Set how this rank reaches each rank, and which ones it receives messages from. Returns whether
 * there are messages in either direction. */
static bool reach_peers(struct twill_window *window, const struct window_offer *all)
{
    const struct twill_world *world = twill_extend_comm(window->comm).world;
    const struct window_offer *own = &all[window->rank];
    bool shares = own->signal_at != NOT_SHARED && own->buffer_at != NOT_SHARED, messages = false;
    for (uint32_t r = 0; r < window->size; r++) {
        struct twill_window_peer *peer = &window->peer[r];
        bool near = world->node[r] == world->node[window->rank];
        peer->bytes = all[r].bytes;
        if (r == window->rank) {
            peer->base = window->buffer;
            peer->signal = window->signal;
        } else if (near && all[r].signal_at != NOT_SHARED && all[r].buffer_at != NOT_SHARED) {
            unsigned char *base = twill_extend_memory(window->comm, r).base;
            peer->base = base + all[r].buffer_at;
            peer->signal = (void *)(base + all[r].signal_at);
        }
        peer->sends = r != window->rank && !(near && shares);
        messages = messages || peer->sends || peer->signal == NULL;
    }
    return messages;
}

/* Let the network write into the windows of other nodes' ranks, where all that takes part can.
 * `all` has a place of this type for each rank. Returns TWILL_OK or the error. */
static twill_status expose_window(struct twill_window *window, const char *call,
                                  struct window_exposure *all)
{
    const struct twill_extend_comm comm = twill_extend_comm(window->comm);
    const uint32_t *node = comm.world->node;
    size_t bytes = window->peer[window->rank].bytes;
    struct window_exposure own;
    window->exposed = comm.writes->expose(window->comm, call, window->buffer, bytes, &own.place);
    own.exposed = window->exposed;
    TWILL_TRY(NULL, twill_allgather(window->parent, &own, all, sizeof(own), TWILL_U8));
    for (uint32_t r = 0; r < window->size; r++) {
        struct twill_window_peer *peer = &window->peer[r];
        peer->place = all[r].place;
        peer->written = own.exposed && all[r].exposed && node[r] != node[window->rank];
    }
    return TWILL_OK;
}

/* Wait until no rank uses the window any more. Returns false if it is broken. */
static bool end_together(struct twill_window *window)
{
    if (window->comm == NULL || atomic_load(&window->broken) ||
        (window->post != NULL && twill_window_end_messages(window) != TWILL_OK))
        return false;
    (void)twill_advancer_remove(&window->advancer, window->process.context);
    twill_extend_hurry(window->comm);
    return twill_barrier(window->comm) == TWILL_OK;
}

/* End and free a window. If it does not end on all ranks, its signals stay until the context ends,
 * as others may still raise them. If another thread does not stop to advance it, warn and keep it.
 */
static void close_window(struct twill_window *window)
{
    bool together = end_together(window);
    if (!twill_advancer_remove(&window->advancer, window->process.context)) {
        twill_say(window->process.log, TWILL_LOG_WARN,
                  "rank %u: a window is kept: another thread has been in it for TWILL_TIMEOUT",
                  window->rank);
        return;
    }
    if (window->comm != NULL && !together)
        (void)twill_comm_revoke(window->comm);
    else if (window->exposed && window->buffer != NULL)
        twill_extend_comm(window->comm)
            .writes->conceal(window->comm, "twill_window_destroy",
                             window->peer[window->rank].place);
    if (window->buffer != NULL)
        (void)twill_extend_pin(window->process.context, window->buffer, 1, -1);
    if (together || window->comm == NULL)
        (void)twill_free(window->process.context, window->signal);
    twill_comm_leave(window->comm);
    pthread_mutex_destroy(&window->lock);
    free(window->post);
    free(window);
}

void twill_window_destroy(twill_window *window)
{
    if (window != NULL && *window->process.fork_guard != 0)
        close_window(window);
}

/* Make the window with the other ranks. `all` has a place for the offer of each. Returns TWILL_OK,
 * or the error, which window->error has unless the parent's message explains it. */
static twill_status open_window(struct twill_window *window, const char *call, void *buffer,
                                size_t bytes, int signals, struct window_offer *all)
{
    struct window_offer own;
    twill_status status = prepare(window, buffer, bytes, signals, &own);
    own.status = status;
    TWILL_TRY(NULL, twill_allgather(window->parent, &own, all, sizeof(own), TWILL_U8));
    TWILL_TRY(NULL, compare_offers(window, all));
    TWILL_TRY(NULL, twill_comm_dup(&window->comm, window->parent));
    bool messages = reach_peers(window, all);
    if (twill_extend_comm(window->comm).world->nodes > 1)
        TWILL_TRY(NULL, expose_window(window, call, (void *)all));
    return messages ? twill_window_begin_messages(window) : TWILL_OK;
}

twill_status twill_window_create(twill_window **made, twill_comm *comm, void *buffer, size_t bytes,
                                 int signals)
{
    static const char call[] = "twill_window_create";
    twill_context *context = twill_comm_context(comm);
    if (made == NULL)
        return TWILL_ERR_ARGUMENT;
    *made = NULL;
    if (context == NULL)
        return TWILL_ERR_ARGUMENT;
    if (twill_extend_comm(comm).grouped)
        return twill_extend_fail(comm, TWILL_EXTEND_REFUSES, call, TWILL_ERR_ARGUMENT,
                                 "a group of calls is open");
    size_t size = (size_t)twill_comm_size(comm);
    struct twill_window *window =
        calloc(1, sizeof(*window) + size * (sizeof(*window->peer) + sizeof(struct window_offer)));
    if (window == NULL)
        return twill_extend_fail(comm, TWILL_EXTEND_FAILS, call, TWILL_ERR_MEMORY, "out of memory");
    window->peer = (void *)(window + 1);
    pthread_mutex_init(&window->lock, NULL);
    window->parent = comm;
    window->process = twill_extend_process(context);
    window->rank = (uint32_t)twill_comm_rank(comm);
    window->size = (uint32_t)size;
    twill_status status =
        open_window(window, call, buffer, bytes, signals, (void *)(window->peer + size));
    if (status == TWILL_OK) {
        *made = window;
        return TWILL_OK;
    }
    const struct twill_error error = window->error;
    close_window(window);
    return error.status == TWILL_OK
               ? status
               : twill_extend_fail(comm, TWILL_EXTEND_REFUSES, call, status, "%s", error.message);
}
