/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators made out of others, and failures: bad arguments, one that breaks while the others
 * work, a rank that dies while they are made. */
#include "lib/comm/comm_internal.h"
#include "lib/job/context.h"
#include "tests/support/scene.h"
#include "tests/support/unit.h"

/* libfabric 1.17 sometimes leaks a connection that is closed while it is being made. */
TWILL_TEST_LEAKS("leak:libfabric.so")

/* --- bad arguments --------------------------------------------------------------------------- */

static bool refused(twill_comm *comm, twill_status status, const twill_comm *made, const char *word)
{
    return TWILL_NOTE(status == TWILL_ERR_ARGUMENT && made == NULL &&
                          strstr(twill_comm_message(comm), word) != NULL,
                      "status %d, expected \"%s\" in: %s", status, word, twill_comm_message(comm));
}

TWILL_TEST_SCENE(wrong_arguments)
{
    int me = twill_comm_rank(all), size = scene->shape->size;
    const int twice[] = {0, 0}, outside[] = {0, size}, negative[] = {-1, 0};
    const int others[] = {(me + 1) % size};
    twill_comm *made = all;
    TWILL_CHECK(twill_comm_dup(&made, NULL) == TWILL_ERR_ARGUMENT && made == NULL);
    TWILL_CHECK(twill_comm_dup(NULL, all) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(refused(all, twill_comm_split(&made, all, me == 0 ? -2 : 0, 0), made,
                        "colour -2 of rank 0"));
    TWILL_CHECK(
        refused(all, twill_comm_split_level(&made, all, (twill_level)17, 0), made, "level 17"));
    TWILL_CHECK(refused(all, twill_comm_create_group(&made, all, 0, twice), made, "count 0"));
    TWILL_CHECK(refused(all, twill_comm_create_group(&made, all, size + 1, twice), made, "count "));
    TWILL_CHECK(refused(all, twill_comm_create_group(&made, all, 1, NULL), made, "ranks is NULL"));
    if (size >= 2) {
        TWILL_CHECK(refused(all, twill_comm_create_group(&made, all, 2, twice), made,
                            "ranks[1] = 0 is repeated"));
        TWILL_CHECK(refused(all, twill_comm_create_group(&made, all, 2, outside), made, "outside"));
        TWILL_CHECK(
            refused(all, twill_comm_create_group(&made, all, 2, negative), made, "ranks[0]"));
        TWILL_CHECK(refused(all, twill_comm_create_group(&made, all, 1, others), made,
                            "do not contain the calling rank"));
    }
    struct twill_test_group whole = twill_test_everyone(size);
    TWILL_CHECK(twill_test_works(all, &whole, me)); /* none of them breaks it */
    TWILL_CHECK(twill_comm_dup(&made, all) == TWILL_OK && twill_comm_message(all)[0] == '\0');
    TWILL_CHECK(twill_test_works(made, &whole, me));
    twill_comm_destroy(made);
}

/* A failure breaks its communicator only, and its message gives ranks in that communicator and in
 * the job. */
TWILL_TEST_SCENE(failures_stay_apart)
{
    int me = twill_comm_rank(all), size = scene->shape->size;
    twill_comm *upper, *turned;
    float data[8] = {0}, sum[8];
    struct twill_test_group whole = twill_test_everyone(size);
    if (size <= 2)
        return;
    TWILL_CHECK(twill_test_fine(all, twill_comm_split(&upper, all, me == 0, 0)));
    TWILL_CHECK(twill_test_fine(all, twill_comm_split(&turned, all, 0, -me)));
    if (me != 0) {
        size_t count = me == size - 1 ? 7 : 8;
        twill_status status = twill_allreduce(upper, data, sum, count, TWILL_F32, TWILL_SUM);
        const char *message = twill_comm_message(upper);
        TWILL_CHECK(status == TWILL_ERR_MISMATCH && strstr(message, " of the job (") != NULL,
                    "rank %d: status %d: %s", me, status, message);
        TWILL_CHECK(twill_barrier(upper) == TWILL_ERR_BROKEN);
        twill_comm *made = all;
        TWILL_CHECK(twill_comm_dup(&made, upper) == TWILL_ERR_BROKEN && made == NULL);
    }
    TWILL_CHECK(twill_test_works(all, &whole, me));
    for (int r = 0; r < size; r++)
        whole.rank[r] = size - 1 - r;
    TWILL_CHECK(twill_test_works(turned, &whole, me));
    twill_comm_destroy(turned);
    twill_comm_destroy(upper);
}

static const struct twill_test_shape of_processes[] = {{3, 1, ""}, {4, 1, "2x2"}};

/* The last rank ends instead of making the communicator; the others report that soon. */
TWILL_TEST_SCENES(death_while_it_is_made, of_processes, 1, NULL)
{
    int me = twill_comm_rank(all), size = scene->shape->size;
    twill_comm *made = all;
    TWILL_CHECK(twill_test_fine(all, twill_barrier(all)) && twill_test_barrier(scene->bootstrap));
    if (me == size - 1)
        _exit(0);
    twill_status status = twill_comm_split(&made, all, 0, 0);
    TWILL_CHECK(TWILL_ENDS(all, status, TWILL_ERR_PEER, "twill_comm_split") && made == NULL);
    TWILL_CHECK(TWILL_SAYS(twill_comm_message(all), "died"));
    TWILL_CHECK(twill_barrier(all) == TWILL_ERR_BROKEN);
}

/* Does the message name ranks of this group only, by their numbers in the job and in the group? */
static bool names_ranks_of(const char *message, const struct twill_test_group *group)
{
    int named = 0;
    for (const char *at = message; (at = strstr(at, "rank ")) != NULL; at += 5) {
        int job = -1, here = -1, read = 0;
        if (strncmp(at, "rank is", 7) == 0) /* "the rank is gone" */
            continue;
        named++;
        if (sscanf(at, "rank %d of the job (%d here)%n", &job, &here, &read) != 2 || read == 0 ||
            here < 0 || twill_test_place(group, job) != here)
            return false;
    }
    return named >= 2;
}

static const struct twill_test_shape split_shapes[] = {{6, 1, ""}, {6, 1, "6x1"}, {6, 1, "2+3+1"}};

/* A rank ends while others are in a call on a communicator with other numbers: their messages name
 * it by its number in the job. */
TWILL_TEST_SCENES(death_in_a_split, split_shapes, 2,
                  seed == 0 ? "TWILL_PROVIDER=tcp" : "TWILL_PROVIDER=ofi:tcp")
{
    int me = twill_comm_rank(all), size = scene->shape->size;
    twill_comm *made = NULL;
    struct twill_test_group group = {.size = 0};
    float data[4096] = {0}, sum[4096];
    for (int r = size - 1; r >= 0; r--)
        if (r % 2 == 0)
            group.rank[group.size++] = r;
    TWILL_CHECK(twill_test_fine(all, twill_comm_split(&made, all, me % 2, -me)));
    TWILL_CHECK(twill_test_fine(made, twill_barrier(made)) && twill_test_barrier(scene->bootstrap));
    if (me == 2)
        _exit(0);
    twill_status status = TWILL_OK;
    while (me % 2 == 0 && status == TWILL_OK)
        status = twill_allreduce(made, data, sum, 4096, TWILL_F32, TWILL_SUM);
    TWILL_CHECK(me % 2 != 0 || (TWILL_ENDS(made, status, TWILL_ERR_PEER, "rank 2 of the job (") &&
                                TWILL_NOTE(names_ranks_of(twill_comm_message(made), &group), "%s",
                                           twill_comm_message(made))));
    twill_comm_leave(made);
}

/* --- one deadline for several communicators --------------------------------------------------- */

#define COMMS_FAILURE_MANY 30
/* Two thirds of what one deadline after the other would take, and many times what one takes. */
#define COMMS_FAILURE_LIMIT (COMMS_FAILURE_MANY * TWILL_TEST_SOON / 3 * 2)
/* Searches for the cause: one call after the other would search as often as there are calls; one is
 * enough, and some more if a rank is so late that data still moves after a timeout. */
#define COMMS_FAILURE_SEARCHES (COMMS_FAILURE_MANY / 3 * 2)

static const struct twill_test_shape threes[] = {{3, 0, ""}, {3, 0, "3x1"}};

/* The last rank neither destroys many communicators nor makes calls on them. */
TWILL_TEST_SCENES(one_deadline, threes, 2, TWILL_TEST_HASTY)
{
    int me = twill_comm_rank(all), odd = scene->shape->size - 1;
    twill_comm *made[COMMS_FAILURE_MANY];
    twill_request *request[COMMS_FAILURE_MANY];
    float data[8] = {0}, sum[COMMS_FAILURE_MANY][8];
    for (int i = 0; i < COMMS_FAILURE_MANY; i++)
        TWILL_CHECK(twill_test_fine(all, twill_comm_dup(&made[i], all)));
    uint64_t since = twill_now();
    for (int i = 0; i < COMMS_FAILURE_MANY && scene->seed == 1 && me != odd; i++)
        TWILL_CHECK(
            twill_test_fine(made[i], twill_allreduce_start(made[i], data, sum[i], 8, TWILL_F32,
                                                           TWILL_SUM, &request[i])));
    if (scene->seed == 1 && me != odd)
        TWILL_CHECK(twill_wait_all(COMMS_FAILURE_MANY, request) == TWILL_ERR_TIMEOUT);
    for (int i = 0; i < COMMS_FAILURE_MANY && me != odd; i++) {
        TWILL_CHECK(scene->seed == 0 || twill_barrier(made[i]) == TWILL_ERR_BROKEN);
        twill_comm_destroy(made[i]);
    }
    TWILL_CHECK(me == odd || twill_now() - since < COMMS_FAILURE_LIMIT);
    TWILL_CHECK(all->context->health.searches <= COMMS_FAILURE_SEARCHES);
    TWILL_CHECK(twill_test_barrier(scene->bootstrap));
    for (int i = 0; i < COMMS_FAILURE_MANY && me == odd; i++)
        twill_comm_leave(made[i]);
}

static const struct twill_test_shape apart[] = {{3, 0, "3x1"}};

/* A rank is late for one communicator and arrives at another: destroying that one has the full
 * deadline. */
TWILL_TEST_SCENES(late_is_not_absent, apart, 1, TWILL_TEST_HASTY)
{
    int me = twill_comm_rank(all), odd = scene->shape->size - 1;
    twill_comm *missed, *used, *idle;
    TWILL_CHECK(twill_test_fine(all, twill_comm_dup(&missed, all)));
    TWILL_CHECK(twill_test_fine(all, twill_comm_dup(&used, all)));
    TWILL_CHECK(twill_test_fine(all, twill_comm_dup(&idle, all)));
    uint64_t patience = idle->tuning.timeout_ns;
    bool waited = false, have_waited[3];
    if (me != odd) {
        TWILL_CHECK(twill_barrier(missed) == TWILL_ERR_TIMEOUT);
        waited = missed->waits.timed_out_since != 0; /* else the other rank has, and notified us */
        twill_comm_shorten_deadline(idle);
        TWILL_CHECK((idle->tuning.timeout_ns < patience) == waited);
        idle->tuning.timeout_ns = patience;
    }
    TWILL_CHECK(scene->bootstrap->exchange(scene->bootstrap->user, &waited, have_waited,
                                           sizeof(waited)) == 0);
    TWILL_CHECK(have_waited[0] || have_waited[1]);
    TWILL_CHECK(twill_test_fine(used, twill_barrier(used)));
    twill_comm_shorten_deadline(idle);
    TWILL_CHECK(idle->tuning.timeout_ns == patience);
    twill_comm_destroy(used);
    twill_comm_destroy(idle);
    twill_comm_leave(missed);
}

/* One rank makes another kind of communicator than the rest, or calls a collective instead. */
TWILL_TEST_SCENES(disagreement, twill_test_shapes, 3, NULL)
{
    twill_comm *made = NULL;
    int me = twill_comm_rank(all), odd = scene->shape->size - 1;
    twill_status status;
    float value = 0, sum;
    if (scene->shape->size == 1)
        return;
    if (me != odd)
        status = twill_comm_split(&made, all, 0, 0);
    else if (scene->seed == 0)
        status = twill_comm_dup(&made, all);
    else if (scene->seed == 1)
        status = twill_allreduce(all, &value, &sum, 1, TWILL_F32, TWILL_SUM);
    else
        status = twill_barrier(all);
    TWILL_CHECK(status == TWILL_ERR_MISMATCH && made == NULL, "rank %d: status %d: %s", me, status,
                twill_comm_message(all));
}
