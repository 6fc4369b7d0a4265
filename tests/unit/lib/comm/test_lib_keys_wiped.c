/* SPDX-License-Identifier: Apache-2.0 */
/* When its context is destroyed, a process has no copy of the job's key, of the secret of its run
 * and of the failure detector's session keys left: not in the heap, not on the stack, not in its
 * variables. */
#include "fabric/detector/detector_state.h"
#include "lib/comm/comm.h"
#include "lib/job/context.h"
#include "tests/support/job_ranks.h"
#include "tests/support/unit.h"

#define MASK    0x5a /* copies of this test are masked, so that they are not found */
#define ALIGNED 4    /* keys are members of structures with numbers */
#define VALUES  5000

static unsigned char run_secret[TWILL_SECRET_BYTES], job_key[TWILL_SECRET_BYTES];
static unsigned char called_key[TWILL_SECRET_BYTES], accepted_key[TWILL_SECRET_BYTES];

static void mask_copy(unsigned char to[TWILL_SECRET_BYTES], const struct twill_secret *from)
{
    for (size_t i = 0; i < TWILL_SECRET_BYTES; i++)
        to[i] = from->key[i] ^ MASK;
}

static bool is_masked(const unsigned char *at, const unsigned char masked[TWILL_SECRET_BYTES])
{
    for (size_t i = 0; i < TWILL_SECRET_BYTES; i++)
        if ((at[i] ^ MASK) != masked[i])
            return false;
    return true;
}

/* Count copies in the private writable memory of this process, and say where they are. */
static unsigned count_copies(const unsigned char masked[TWILL_SECRET_BYTES], char *where,
                             size_t where_bytes)
{
    char line[512], access[8], name[256];
    unsigned found = 0;
    unsigned long from, to;
    FILE *maps = fopen("/proc/self/maps", "r");
    where[0] = '\0';
    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
        name[0] = '\0';
        if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %255s", &from, &to, access, name) < 3 ||
            strcmp(access, "rw-p") != 0)
            continue;
        for (unsigned long at = from; at + TWILL_SECRET_BYTES <= to; at += ALIGNED)
            if (is_masked((const unsigned char *)at, masked)) {
                size_t used = strlen(where);
                snprintf(where + used, where_bytes - used, " %s+%lx of %lx", name, at - from,
                         to - from);
                found++;
            }
    }
    if (maps != NULL)
        fclose(maps);
    return found;
}

static bool sum_works(twill_comm *comm, int size)
{
    static float values[VALUES];
    for (int i = 0; i < VALUES; i++)
        values[i] = 1;
    return twill_allreduce(comm, values, values, VALUES, TWILL_F32, TWILL_SUM) == TWILL_OK &&
           values[VALUES - 1] == (float)size;
}

/* Let the detector connect to the next rank, and accept the connection of the one before. */
static bool use_detector(struct twill_detector *detector, uint32_t next)
{
    const struct twill_detector_link *link = &detector->link[next];
    const uint64_t until = twill_now() + TWILL_TEST_PATIENCE;
    struct twill_notice notice;
    for (; twill_now() < until; usleep(1000)) {
        bool dead = twill_detector_is_dead(detector, next);
        (void)twill_detector_poll(detector, &notice);
        if (dead || link->state != LINK_OPEN || detector->callers == 0 ||
            detector->caller[0].rank < 0)
            continue;
        mask_copy(called_key, &link->session.key);
        mask_copy(accepted_key, &detector->caller[0].session.key);
        return true;
    }
    return false;
}

static bool use_library(int rank, int size, const struct twill_test_job *job, const char *layout)
{
    twill_context *context;
    twill_comm *comm, *half;
    char where[512];
    const char *all[] = {twill_test_text("RANK=%d", rank),
                         twill_test_text("WORLD_SIZE=%d", size),
                         twill_test_text("MASTER_PORT=%s", job->port),
                         twill_test_text("TWILL_LAYOUT=nodes=%s", layout),
                         "TWILL_ENCRYPT=1",
                         "TWILL_JOB=" TWILL_TEST_KEY,
                         "MASTER_ADDR=127.0.0.1",
                         NULL};
    twill_status status = twill_context_create(&context, NULL, all);
    TWILL_REQUIRE(status == TWILL_OK, "context: %s", twill_context_message(context));
    mask_copy(run_secret, &context->job.oob->secret);
    TWILL_REQUIRE(twill_comm_create(&comm, context) == TWILL_OK);
    TWILL_REQUIRE(twill_comm_split(&half, comm, 0, -rank) == TWILL_OK);
    TWILL_REQUIRE(sum_works(comm, size) && sum_works(half, size));
    TWILL_REQUIRE(use_detector(context->health.detector, (uint32_t)((rank + 1) % size)));
    TWILL_REQUIRE(sum_works(comm, size));                              /* all have */
    TWILL_REQUIRE(count_copies(run_secret, where, sizeof(where)) > 0); /* the scan finds them */
    twill_comm_destroy(half);
    twill_test_disconnect(comm, context);
    return true;
}

static void rank_wipes(int rank, int size, twill_bootstrap *caller, void *user)
{
    static const struct {
        const char *what;
        const unsigned char *masked;
    } keys[] = {{"secret of the run", run_secret},
                {"key of the job", job_key},
                {"session", called_key},
                {"accepted session", accepted_key}};
    char where[512];
    struct twill_secret key;
    TWILL_CHECK(twill_secret_parse(&key, "", TWILL_TEST_KEY, NULL) == TWILL_OK);
    mask_copy(job_key, &key);
    twill_secret_wipe(&key, sizeof(key));
    TWILL_CHECK(use_library(rank, size, user, "2+1"));
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(keys); i++) {
        unsigned left = count_copies(keys[i].masked, where, sizeof(where));
        (void)TWILL_NOTE(left == 0, "%s, %u copies:%s", keys[i].what, left, where);
    }
}

TWILL_TEST(test_wiped)
{
    struct twill_test_job job;
    if (TEST_SLOW) /* whose shadow memory would be searched, too */
        skip();
    twill_test_job_init(&job, "127.0.0.1", 3);
    twill_test_run_processes(3, rank_wipes, &job);
}
