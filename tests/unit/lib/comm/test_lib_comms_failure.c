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

static void play_wrong(struct twill_test_scene *scene, twill_comm *all)
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

TWILL_TEST(wrong_arguments)
{
    twill_test_play_all(play_wrong);
}

/* A failure breaks its communicator only, and its message gives ranks in that communicator and in
 * the job. */
static void play_failure(struct twill_test_scene *scene, twill_comm *all)
{
    int me = twill_comm_rank(all), size = scene->shape->size;
    twill_comm *upper, *turned;
    float data[8] = {0}, sum[8];
    struct twill_test_group whole = twill_test_everyone(size);
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

TWILL_TEST(failures_stay_apart)
{
    for (size_t s = 0; s < TWILL_TEST_SHAPES; s++) {
        struct twill_test_scene scene = {.shape = &twill_test_shapes[s], .play = play_failure};
        if (twill_test_shapes[s].size > 2)
            twill_test_play(&scene);
    }
}

/* The last rank ends instead of making the communicator; the others report that soon. */
static void play_death(struct twill_test_scene *scene, twill_comm *all)
{
    int me = twill_comm_rank(all), size = scene->shape->size;
    twill_comm *made = all;
    TWILL_CHECK(twill_test_fine(all, twill_barrier(all)) && twill_test_barrier(scene->bootstrap));
    if (me == size - 1)
        _exit(0);
    twill_status status = twill_comm_split(&made, all, 0, 0);
    const char *message = twill_comm_message(all);
    TWILL_CHECK(status == TWILL_ERR_PEER && made == NULL &&
                    strstr(message, "twill_comm_split") != NULL && strstr(message, "died") != NULL,
                "rank %d: status %d: %s", me, status, message);
    TWILL_CHECK(twill_barrier(all) == TWILL_ERR_BROKEN);
}

TWILL_TEST(death_while_it_is_made)
{
    static const struct twill_test_shape processes[] = {{3, 1, ""}, {4, 1, "2x2"}};
    for (size_t s = 0; s < TWILL_ARRAY_LENGTH(processes); s++) {
        struct twill_test_scene scene = {.shape = &processes[s], .play = play_death};
        twill_test_play(&scene);
    }
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

/* A rank ends while others are in a call on a communicator with other numbers: their messages name
 * it by its number in the job. */
static void play_death_in_a_split(struct twill_test_scene *scene, twill_comm *all)
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
    const char *message = twill_comm_message(made);
    TWILL_CHECK(me % 2 != 0 || TWILL_NOTE(status == TWILL_ERR_PEER &&
                                              strstr(message, "rank 2 of the job (") != NULL &&
                                              names_ranks_of(message, &group),
                                          "rank %d: status %d: %s", me, status, message));
    twill_comm_leave(made);
}

TWILL_TEST(death_in_a_split)
{
    static const struct twill_test_shape shapes[] = {{6, 1, ""}, {6, 1, "6x1"}, {6, 1, "2+3+1"}};
    static const char *const providers[] = {"tcp", "ofi:tcp"};
    for (size_t s = 0; s < TWILL_ARRAY_LENGTH(shapes); s++)
        for (size_t p = 0; p < TWILL_ARRAY_LENGTH(providers); p++) {
            char provider[32];
            snprintf(provider, sizeof(provider), "TWILL_PROVIDER=%s", providers[p]);
            struct twill_test_scene scene = {
                .shape = &shapes[s], .play = play_death_in_a_split, .settings = {provider}};
            twill_test_play(&scene);
        }
}

/* --- one deadline for several communicators --------------------------------------------------- */

#define COMMS_FAILURE_MANY 30
/* Two thirds of what one deadline after the other would take, and many times what one takes. */
#define COMMS_FAILURE_LIMIT (COMMS_FAILURE_MANY * TWILL_TEST_SOON / 3 * 2)
/* Searches for the cause: one call after the other would search as often as there are calls; one is
 * enough, and some more if a rank is so late that data still moves after a timeout. */
#define COMMS_FAILURE_SEARCHES (COMMS_FAILURE_MANY / 3 * 2)

/* The last rank neither destroys many communicators nor makes calls on them. */
static void play_absence(struct twill_test_scene *scene, twill_comm *all)
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

/* A rank is late for one communicator and arrives at another: destroying that one has the full
 * deadline. */
static void play_late(struct twill_test_scene *scene, twill_comm *all)
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

TWILL_TEST(late_is_not_absent)
{
    static const struct twill_test_shape shape = {3, 0, "3x1"};
    struct twill_test_scene scene = {
        .shape = &shape, .play = play_late, .settings = {TWILL_TEST_HASTY}};
    twill_test_play(&scene);
}

TWILL_TEST(one_deadline)
{
    static const struct twill_test_shape shapes[] = {{3, 0, ""}, {3, 0, "3x1"}};
    for (size_t s = 0; s < TWILL_ARRAY_LENGTH(shapes); s++)
        for (uint64_t seed = 0; seed < 2; seed++) {
            struct twill_test_scene scene = {.shape = &shapes[s],
                                             .play = play_absence,
                                             .settings = {TWILL_TEST_HASTY},
                                             .seed = seed};
            twill_test_play(&scene);
        }
}

/* One rank makes another kind of communicator than the rest, or calls a collective instead. */
static void play_disagreement(struct twill_test_scene *scene, twill_comm *all)
{
    twill_comm *made = NULL;
    int me = twill_comm_rank(all), odd = scene->shape->size - 1;
    twill_status status;
    float value = 0, sum;
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

TWILL_TEST(disagreement)
{
    for (size_t s = 1; s < TWILL_TEST_SHAPES; s++)
        for (uint64_t seed = 0; seed < 3; seed++) {
            struct twill_test_scene scene = {
                .shape = &twill_test_shapes[s], .play = play_disagreement, .seed = seed};
            twill_test_play(&scene);
        }
}
