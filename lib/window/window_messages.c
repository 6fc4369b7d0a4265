/* SPDX-License-Identifier: Apache-2.0 */
/* Puts between ranks that do not share memory. The receiver posts one head a peer. When a head has
 * announced data, they are received straight into the window, and only then the next head, so that
 * puts of a peer take effect in their order. Where the network writes data into the window, only a
 * head with the signal follows them, or nothing. */
#include "lib/window/window.h"

#include <stdlib.h>
#include <string.h>

/* --- receiving ---------------------------------------------------------------------------------
 */

/* Start to receive the peer's next head. Returns TWILL_OK or the error. */
static twill_status receive_head(struct twill_window *window, struct twill_window_peer *peer)
{
    return twill_recv_start(window->comm, &peer->head, sizeof(peer->head), TWILL_U8,
                            (int)(peer - window->peer), &peer->arrival);
}

/* Apply a put that is complete: raise its signal, and receive the next head unless the peer has
 * left. Returns TWILL_OK or the error. */
static twill_status take_put(struct twill_window *window, struct twill_window_peer *peer)
{
    peer->landing = false;
    if (peer->head.signal >= 0)
        atomic_fetch_add(&window->signal[peer->head.signal].raised, 1);
    peer->sends = peer->head.signal != TWILL_WINDOW_BYE;
    if (peer->sends)
        return receive_head(window, peer);
    atomic_fetch_sub(&window->senders, 1);
    return TWILL_OK;
}

/* Take a head that has arrived. Start to receive the data that it announces, if it does not have
 * them. Returns TWILL_OK or the error. */
static twill_status take_head(struct twill_window *window, struct twill_window_peer *peer)
{
    const struct twill_window_head *head = &peer->head;
    size_t room = window->peer[window->rank].bytes;
    unsigned char *to = window->buffer;
    if (head->bytes > room || head->offset > room - head->bytes ||
        head->signal < TWILL_WINDOW_BYE || head->signal >= window->signals)
        return TWILL_ERR_INTERNAL;
    if (head->bytes > sizeof(head->data)) {
        peer->landing = true;
        return twill_recv_start(window->comm, to + head->offset, head->bytes, TWILL_U8,
                                (int)(peer - window->peer), &peer->arrival);
    }
    if (head->bytes > 0)
        memcpy(to + head->offset, head->data, head->bytes);
    return take_put(window, peer);
}

/* Take what has arrived of a peer. Returns whether something has. */
static bool receive(struct twill_window *window, struct twill_window_peer *peer)
{
    int done;
    twill_status status = TWILL_PENDING;
    while (status >= 0 && peer->sends && twill_extend_has_ended(peer->arrival, NULL)) {
        status = twill_test(&peer->arrival, &done);
        if (status == TWILL_OK)
            status = peer->landing ? take_put(window, peer) : take_head(window, peer);
        if (status != TWILL_OK)
            (void)twill_window_fail(window, "twill_put", status, "a message failed");
    }
    return status == TWILL_OK;
}

/* --- sending -----------------------------------------------------------------------------------
 */

/* Free the requests of a post that are complete. Returns whether all are. */
static bool is_sent(struct twill_window *window, struct twill_window_post *post)
{
    int done;
    for (int i = 0; i < 2; i++)
        if (post->request[i] != NULL && twill_extend_has_ended(post->request[i], NULL) &&
            twill_test(&post->request[i], &done) != TWILL_OK)
            (void)twill_window_fail(window, "twill_put", TWILL_ERR_FABRIC, "a message failed");
    return post->request[0] == NULL && post->request[1] == NULL;
}

/* Update the number of puts that are being sent. Returns whether it has become less. */
static bool complete_sends(struct twill_window *window)
{
    unsigned before = atomic_load(&window->posted), now = 0;
    for (unsigned i = 0; before > 0 && i < TWILL_WINDOW_POSTS; i++)
        now += !is_sent(window, &window->post[i]);
    atomic_store(&window->posted, now);
    return now < before;
}

/* Advance what is sent and received, for threads that wait. Returns whether something moved. */
static bool advance_window(void *object)
{
    struct twill_window *window = object;
    bool moved = false;
    if (pthread_mutex_trylock(&window->lock) != 0)
        return false;
    for (uint32_t r = 0; r < window->size && !atomic_load(&window->broken); r++)
        moved |= receive(window, &window->peer[r]);
    if (!atomic_load(&window->broken))
        moved |= complete_sends(window);
    if (moved)
        atomic_fetch_add(&window->moved, 1);
    pthread_mutex_unlock(&window->lock);
    return moved;
}

/* Start to write the data of a put in `post` into the target's window, and let its head send only
 * the signal. Returns TWILL_OK or the error. */
static twill_status write_data(struct twill_window *window, const char *call,
                               struct twill_window_post *post, const void *src)
{
    struct twill_extend_place place = window->peer[post->to].place;
    size_t bytes = post->head.bytes;
    place.at += post->head.offset;
    post->head.bytes = post->head.offset = 0;
    return twill_extend_comm(window->comm)
        .writes->start(window->comm, call, src, bytes, (int)post->to, place, &post->request[1]);
}

/* Start to send a put in `post`. Returns TWILL_OK or the error. */
static twill_status send_post(struct twill_window *window, const char *call,
                              struct twill_window_post *post, const void *src)
{
    struct twill_window_head *head = &post->head;
    bool apart = head->bytes > sizeof(head->data);
    if (apart && window->peer[post->to].written) {
        TWILL_TRY(NULL, write_data(window, call, post, src));
        if (head->signal == TWILL_NO_SIGNAL)
            return TWILL_OK;
        apart = false;
    }
    if (!apart && head->bytes > 0)
        memcpy(head->data, src, head->bytes);
    TWILL_TRY(NULL, twill_send_start(window->comm, head, sizeof(*head), TWILL_U8, (int)post->to,
                                     &post->request[0]));
    if (!apart)
        return TWILL_OK;
    return twill_send_start(window->comm, src, head->bytes, TWILL_U8, (int)post->to,
                            &post->request[1]);
}

/* Start to send a put if there is a free post. The lock is held. Returns TWILL_OK, TWILL_PENDING if
 * there is none, or the error. */
static twill_status try_send(struct twill_window *window, const char *call, uint32_t to,
                             const struct twill_window_head *head, const void *src)
{
    if (atomic_load(&window->broken))
        return window->error.status;
    (void)complete_sends(window);
    for (unsigned i = 0; i < TWILL_WINDOW_POSTS; i++) {
        struct twill_window_post *post = &window->post[i];
        if (!is_sent(window, post))
            continue;
        post->head = *head;
        post->to = to;
        twill_status status = send_post(window, call, post, src);
        atomic_fetch_add(&window->posted, 1);
        return status == TWILL_OK ? TWILL_OK
                                  : twill_window_fail(window, call, status, "a message failed");
    }
    return TWILL_PENDING;
}

twill_status twill_window_send(struct twill_window *window, const char *call, uint32_t to,
                               const struct twill_window_head *head, const void *src)
{
    for (;;) {
        pthread_mutex_lock(&window->lock);
        twill_status status = try_send(window, call, to, head, src);
        pthread_mutex_unlock(&window->lock);
        if (status != TWILL_PENDING)
            return status;
        TWILL_TRY(NULL, twill_window_await(window, call, TWILL_NO_SIGNAL, TWILL_WINDOW_POSTS - 1));
    }
}

/* --- begin and end -----------------------------------------------------------------------------
 */

twill_status twill_window_begin_messages(struct twill_window *window)
{
    twill_status status = TWILL_OK;
    pthread_mutex_lock(&window->lock);
    window->post = calloc(TWILL_WINDOW_POSTS, sizeof(*window->post));
    if (window->post == NULL)
        status =
            twill_window_fail(window, "twill_window_create", TWILL_ERR_MEMORY, "out of memory");
    for (uint32_t r = 0; r < window->size && status == TWILL_OK; r++)
        if (window->peer[r].sends) {
            atomic_fetch_add(&window->senders, 1);
            status = receive_head(window, &window->peer[r]);
        }
    if (status != TWILL_OK)
        status = twill_window_fail(window, "twill_window_create", status, "no receive begins");
    pthread_mutex_unlock(&window->lock);
    window->advancer = (struct twill_advancer){.advance = advance_window, .object = window};
    if (status == TWILL_OK)
        twill_advancer_add(window->process.context, &window->advancer);
    return status;
}

twill_status twill_window_end_messages(struct twill_window *window)
{
    static const char call[] = "twill_window_destroy";
    const struct twill_window_head bye = {.signal = TWILL_WINDOW_BYE};
    for (uint32_t r = 0; r < window->size; r++)
        if (window->peer[r].signal == NULL)
            TWILL_TRY(NULL, twill_window_send(window, call, r, &bye, NULL));
    window->ends = true;
    return twill_window_await(window, call, TWILL_NO_SIGNAL, 0);
}
