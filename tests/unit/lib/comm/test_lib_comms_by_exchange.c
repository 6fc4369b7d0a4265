/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators made with the caller's exchange function: with requests under way on the old one,
 * of some of its ranks in any order, out of a broken one; and failures. */
#include "tests/support/scene.h"
#include "tests/support/unit.h"

/* libfabric 1.17 sometimes leaks a connection that is closed while it is being made. */
TWILL_TEST_LEAKS("leak:libfabric.so")

/* The exchange: over another communicator of the same ranks in the same order. */
struct lent {
    twill_comm *comm;
    int left;         /* exchanges until they fail, on all ranks */
    bool fails_after; /* on this rank the last one fails when it is over for the others */
};

static int exchange(void *user, const void *mine, void *all, size_t bytes)
{
    struct lent *lent = user;
    if (lent->left-- <= 0)
        return 7;
    int outcome = twill_allgather(lent->comm, mine, all, bytes, TWILL_U8) == TWILL_OK ? 0 : 8;
    return lent->fails_after && lent->left == 0 ? 7 : outcome;
}

static bool fine(twill_comm *parent, twill_status status)
{
    return TWILL_NOTE(status == TWILL_OK, "status %d: %s", status,
                      twill_context_message(twill_comm_context(parent)));
}

static bool refused(twill_comm *parent, twill_status status, twill_status expected,
                    const twill_comm *made, const char *word)
{
    const char *message = twill_context_message(twill_comm_context(parent));
    return TWILL_NOTE(status == expected && made == NULL && strstr(message, word) != NULL,
                      "status %d, expected %d and \"%s\" in: %s", status, expected, word, message);
}

/* Ranks of one parity, from the last to the first. */
static struct twill_test_group parity_of(int me, int size)
{
    struct twill_test_group group = {0};
    for (int r = size; r-- > 0;)
        if (r % 2 == me % 2)
            group.rank[group.size++] = r;
    return group;
}

/* The last rank starts the call that the others have under way only when all communicators are
 * made.
 */
TWILL_TEST_SCENE(with_requests_under_way)
{
    int me = twill_comm_rank(all), size = scene->shape->size;
    struct twill_test_group half = parity_of(me, size), whole = twill_test_everyone(size);
    struct lent by_half = {.left = 1000}, by_all = {.left = 1000};
    twill_comm *subset, *again;
    int64_t mine = me, sum = -1;
    twill_request *request = NULL;
    TWILL_CHECK(twill_test_fine(all, twill_comm_split(&by_half.comm, all, me % 2, -me)));
    TWILL_CHECK(twill_test_fine(all, twill_comm_dup(&by_all.comm, all)));
    if (me != size - 1)
        TWILL_CHECK(twill_test_fine(
            all, twill_allreduce_start(all, &mine, &sum, 1, TWILL_I64, TWILL_SUM, &request)));
    TWILL_CHECK(
        fine(all, twill_comm_create_over(&subset, all, half.size, half.rank, exchange, &by_half)));
    TWILL_CHECK(
        fine(all, twill_comm_create_over(&again, all, size, whole.rank, exchange, &by_all)));
    int left[] = {by_half.left, by_all.left};
    TWILL_CHECK(twill_test_works(subset, &half, me) && twill_test_works(again, &whole, me));
    if (me == size - 1)
        TWILL_CHECK(twill_test_fine(
            all, twill_allreduce_start(all, &mine, &sum, 1, TWILL_I64, TWILL_SUM, &request)));
    TWILL_CHECK(twill_test_fine(all, twill_wait(&request)));
    TWILL_CHECK(sum == size * (size - 1) / 2);
    TWILL_CHECK(twill_test_works(subset, &half, me) && twill_test_works(all, &whole, me));
    /* The exchange was used if there are several ranks, and never after set-up. */
    TWILL_CHECK((left[0] < 1000) == (half.size > 1) && (left[1] < 1000) == (size > 1));
    TWILL_CHECK(left[0] == by_half.left && left[1] == by_all.left);
    twill_comm_destroy(subset);
    TWILL_CHECK(twill_test_fine(again, twill_barrier(again)));
    if (me != size - 1) /* destroying it must not wait for the last rank */
        twill_comm_leave(again);
    TWILL_CHECK(twill_test_fine(all, twill_barrier(all)));
    if (me == size - 1)
        twill_comm_leave(again);
    twill_comm_destroy(by_half.comm);
    twill_comm_destroy(by_all.comm);
}

/* The parent is broken by a mismatch: what is made out of it works, and its message stays. */
TWILL_TEST_SCENE(of_a_broken_one)
{
    int me = twill_comm_rank(all), size = scene->shape->size;
    struct twill_test_group whole = twill_test_everyone(size);
    struct lent lent = {.left = 1000};
    twill_comm *broken, *made;
    float data[8] = {0}, sum[8];
    char message[64];
    TWILL_CHECK(twill_test_fine(all, twill_comm_dup(&broken, all)));
    TWILL_CHECK(twill_test_fine(all, twill_comm_dup(&lent.comm, all)));
    size_t count = me == 0 ? 7 : 8;
    TWILL_CHECK(size == 1 || twill_allreduce(broken, data, sum, count, TWILL_F32, TWILL_SUM) < 0);
    snprintf(message, sizeof(message), "%.63s", twill_comm_message(broken));
    TWILL_CHECK(
        fine(all, twill_comm_create_over(&made, broken, size, whole.rank, exchange, &lent)));
    TWILL_CHECK(strncmp(message, twill_comm_message(broken), strlen(message)) == 0);
    twill_comm_destroy(broken); /* before what is made out of it */
    TWILL_CHECK(twill_test_works(made, &whole, me));
    twill_comm_destroy(made);
    twill_comm_destroy(lent.comm);
}

/* Failures that do not break the parent. */
TWILL_TEST_SCENE(when_something_is_wrong)
{
    int me = twill_comm_rank(all), size = scene->shape->size;
    struct twill_test_group whole = twill_test_everyone(size);
    const int twice[] = {0, 0}, own_first[] = {me, 1 - me}, others[] = {(me + 1) % size};
    struct lent lent = {.left = 1000};
    twill_comm *made = all;
    TWILL_CHECK(twill_test_fine(all, twill_comm_dup(&lent.comm, all)));
    TWILL_CHECK(twill_comm_create_over(&made, NULL, 1, &me, NULL, NULL) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(made == NULL);
    TWILL_CHECK(refused(all, twill_comm_create_over(NULL, all, 1, &me, NULL, NULL),
                        TWILL_ERR_ARGUMENT, NULL, "made is NULL"));
    TWILL_CHECK(refused(all, twill_comm_create_over(&made, all, 0, &me, exchange, &lent),
                        TWILL_ERR_ARGUMENT, made, "count 0 is outside"));
    TWILL_CHECK(refused(all, twill_comm_create_over(&made, all, 1, NULL, exchange, &lent),
                        TWILL_ERR_ARGUMENT, made, "ranks is NULL"));
    if (size >= 2) {
        TWILL_CHECK(refused(all, twill_comm_create_over(&made, all, 2, twice, exchange, &lent),
                            TWILL_ERR_ARGUMENT, made, "ranks[1] = 0 is repeated"));
        TWILL_CHECK(refused(all, twill_comm_create_over(&made, all, 1, others, exchange, &lent),
                            TWILL_ERR_ARGUMENT, made, "do not contain the calling rank"));
        TWILL_CHECK(refused(all, twill_comm_create_over(&made, all, size, whole.rank, NULL, NULL),
                            TWILL_ERR_ARGUMENT, made, "exchange is NULL"));
    }
    if (size == 2)
        TWILL_CHECK(refused(all, twill_comm_create_over(&made, all, 2, own_first, exchange, &lent),
                            TWILL_ERR_MISMATCH, made, "makes a communicator with other ranks"));
    lent.left = 1000;
    TWILL_CHECK(fine(all, twill_comm_create_over(&made, all, size, whole.rank, exchange, &lent)));
    twill_comm_destroy(made);
    made = NULL;
    int exchanges = 1000 - lent.left;
    for (int good = 0; good < exchanges && size > 1; good++) { /* each of the exchanges fails */
        lent.left = good;
        TWILL_CHECK(refused(all,
                            twill_comm_create_over(&made, all, size, whole.rank, exchange, &lent),
                            TWILL_ERR_BOOTSTRAP, made, "returned 7"));
    }
    TWILL_CHECK(twill_comm_message(all)[0] == '\0' && twill_test_works(all, &whole, me));
    lent.left = 1000;
    TWILL_CHECK(fine(all, twill_comm_create_over(&made, all, size, whole.rank, exchange, &lent)));
    TWILL_CHECK(twill_test_works(made, &whole, me));
    twill_comm_destroy(made);
    twill_comm_destroy(lent.comm);
}

/* The last rank fails in the last exchange, after which the others have the communicator: they do
 * not wait for it there. */
TWILL_TEST_SCENE(when_one_rank_lacks_it)
{
    int me = twill_comm_rank(all), size = scene->shape->size, last = size - 1;
    struct twill_test_group whole = twill_test_everyone(size);
    struct lent lent = {.left = 1000};
    twill_comm *made;
    float data[8] = {0}, sum[8];
    if (size == 1)
        return;
    TWILL_CHECK(twill_test_fine(all, twill_comm_dup(&lent.comm, all)));
    for (int times = 0; times < 2; times++) { /* the first one may need more exchanges */
        lent.left = 1000;
        TWILL_CHECK(
            fine(all, twill_comm_create_over(&made, all, size, whole.rank, exchange, &lent)));
        twill_comm_destroy(made);
    }
    lent.left = 1000 - lent.left;
    lent.fails_after = me == last;
    twill_status status = twill_comm_create_over(&made, all, size, whole.rank, exchange, &lent);
    if (me == last) {
        TWILL_CHECK(refused(all, status, TWILL_ERR_BOOTSTRAP, made, "returned 7"));
    } else {
        TWILL_CHECK(fine(all, status));
        status = twill_allreduce(made, data, sum, 8, TWILL_F32, TWILL_SUM);
        TWILL_CHECK(status == TWILL_ERR_BOOTSTRAP &&
                        strstr(twill_comm_message(made), "returned 7") != NULL,
                    "rank %d: status %d: %s", me, status, twill_comm_message(made));
    }
    TWILL_CHECK(twill_test_works(all, &whole, me));
    twill_comm_destroy(made);
    twill_comm_destroy(lent.comm);
}
