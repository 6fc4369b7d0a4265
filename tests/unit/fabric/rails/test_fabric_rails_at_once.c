/* SPDX-License-Identifier: Apache-2.0 */
/* The composite of rails over rails that complete every request in post(). */
#include "fabric/rails/rails.h"
#include "fabric/transports.h"
#include "tests/support/messages.h"
#include "tests/support/unit.h"

/* More large messages than slots, on several lanes, that all complete at once: those that wait go
 * on, on every lane. */
#define RAILS_AT_ONCE_AT_ONCE 12u

static struct twill_transfer_queue *at_once(struct twill_transport *transport)
{
    return (struct twill_transfer_queue *)(void *)(transport + 1);
}

static twill_status at_once_post(struct twill_transport *transport, struct twill_transfer *request,
                                 struct twill_error *error)
{
    twill_transfer_push(at_once(transport), request);
    return TWILL_OK;
}

static int at_once_progress(struct twill_transport *transport, struct twill_error *error)
{
    int finished = 0;
    for (; at_once(transport)->head != NULL; finished++)
        twill_transfer_pop(at_once(transport), TWILL_OK);
    return finished;
}

static void at_once_close(struct twill_transport *transport)
{
    free(transport);
}

TWILL_TEST(test_at_once)
{
    static const struct twill_transport_ops ops = {
        .post = at_once_post, .progress = at_once_progress, .close = at_once_close};
    static const uint32_t weight[2] = {1, 1};
    static struct twill_transfer request[RAILS_AT_ONCE_AT_ONCE];
    static unsigned char data[1024];
    struct twill_oob oob = {.rank = 0, .size = 2};
    struct twill_transport_params params = {.oob = &oob};
    struct twill_transport *rail[2], *rails;
    struct twill_error error = {0};
    for (uint32_t r = 0; r < 2; r++) {
        rail[r] = calloc(1, sizeof(**rail) + sizeof(struct twill_transfer_queue));
        assert_non_null(rail[r]);
        rail[r]->ops = &ops;
    }
    assert_int_equal(twill_rails_join(&rails, rail, weight, 2, sizeof(data), &params, &error),
                     TWILL_OK);
    assert_int_equal(rails->ops->connect(rails, 1, &error), TWILL_OK);
    for (uint32_t i = 0; i < RAILS_AT_ONCE_AT_ONCE; i++) {
        request[i] = (struct twill_transfer){.kind = TWILL_TRANSFER_RECV,
                                             .lane = (uint8_t)(i * 2 / RAILS_AT_ONCE_AT_ONCE),
                                             .peer = 1,
                                             .buffer = data,
                                             .bytes = sizeof(data)};
        assert_int_equal(rails->ops->post(rails, &request[i], &error), TWILL_OK);
    }
    for (uint32_t i = 0; i < RAILS_AT_ONCE_AT_ONCE; i++)
        assert_true(rails->ops->progress(rails, &error) >= 0);
    for (uint32_t i = 0; i < RAILS_AT_ONCE_AT_ONCE; i++)
        assert_int_equal(request[i].status, TWILL_OK);
    rails->ops->close(rails);
}
