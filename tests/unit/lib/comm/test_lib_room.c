/* SPDX-License-Identifier: Apache-2.0 */
/* The room in which communicators made out of others have their node memory. These
 * tests show failures while one is made, used and ended, and the memory that it takes. */
#include "fabric/shm/mapping.h"
#include "fabric/shm/node_room.h"
#include "fabric/shm/shared_region_state.h"
#include "fabric/shm/single_copy.h"
#include "lib/comm/comm.h"
#include "lib/comm/comm_internal.h"
#include "lib/job/context.h"
#include "lib/report/job_view.h"
#include "numa/memory_internal.h"
#include "tests/support/numbers.h"
#include "tests/support/scarce.h"
#include "tests/support/unit.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static twill_status use(twill_comm *comm)
{
    int32_t one = 1, sum = 0;
    twill_status status = twill_allreduce(comm, &one, &sum, 1, TWILL_I32, TWILL_SUM);
    return status == TWILL_OK && sum != twill_comm_size(comm) ? TWILL_ERR_INTERNAL : status;
}

/* --- threads ---------------------------------------------------------------------------------- */

enum { IDLE = 40 };
static twill_comm *idle[IDLE];

static void *use_all(void *of)
{
    twill_status *status = of;
    for (int i = 0; i < IDLE && *status == TWILL_OK; i++)
        *status = use(idle[i]);
    return NULL;
}

/* A thread makes the first calls of communicators while another makes and ends more of them. */
TWILL_TEST_ON(test_threads, processes, TWILL_LAYOUTS("2"), TWILL_TEST_PATIENT)
{
    twill_comm *made[IDLE];
    twill_status status = TWILL_OK;
    pthread_t thread;
    for (int i = 0; i < IDLE; i++)
        TWILL_CHECK(twill_test_fine(comm, twill_comm_dup(&idle[i], comm)));
    TWILL_CHECK(pthread_create(&thread, NULL, use_all, &status) == 0);
    for (int i = 0; i < IDLE; i++)
        TWILL_CHECK(twill_test_fine(comm, twill_comm_dup(&made[i], comm)));
    for (int i = 0; i < IDLE; i++)
        twill_comm_destroy(made[i]);
    TWILL_CHECK(pthread_join(thread, NULL) == 0 && status == TWILL_OK);
    for (int i = 0; i < IDLE; i++)
        twill_comm_destroy(idle[i]);
}

static void *wake_idle(void *of)
{
    twill_comm_wake_idle(of);
    return NULL;
}

/* A thread that only looks at an idle communicator waits for the call of another one. It is no
 * second call, which would end the communicator. */
TWILL_TEST_ON(test_wake_meets_call, processes, TWILL_LAYOUTS("1"), TWILL_TEST_PATIENT)
{
    twill_comm *made = NULL;
    const char *inside;
    pthread_t thread;
    TWILL_CHECK(twill_test_fine(comm, twill_comm_dup(&made, comm)));
    TWILL_CHECK(twill_comm_hold(made, "a call", &inside));
    TWILL_CHECK(pthread_create(&thread, NULL, wake_idle, made) == 0);
    for (int i = 0; i < 1000; i++)
        sched_yield();
    TWILL_CHECK(atomic_load(&made->live) == TWILL_IDLE);
    twill_comm_wake(made);
    twill_comm_release(made);
    TWILL_CHECK(pthread_join(thread, NULL) == 0 && atomic_load(&made->live) == TWILL_LIVE);
    twill_comm_destroy(made);
    TWILL_CHECK(twill_test_fine(comm, twill_comm_dup(&made, comm)));
    twill_comm_wake_idle(made);
    TWILL_CHECK(atomic_load(&made->live) == TWILL_LIVE && made->woken);
    TWILL_CHECK(twill_test_fine(made, use(made)));
    twill_comm_destroy(made);
}

/* --- failures while one is made -----------------------------------------------------------------
 */

/* The last rank gets no memory for one allocation of a duplication. It and the others end with an
 * error at once, in the duplication or in the first call, and later communicators work. */
TWILL_TEST_ON(test_without_memory, processes, TWILL_LAYOUTS("2", "3"), TWILL_TEST_HASTY)
{
    int32_t mine[2] = {0, 1}, all[2 * 3];
    for (int left = 0; mine[1] != 0 && left < 400 && !TEST_SLOW; left++) {
        twill_comm *parent, *made = NULL, *later;
        TWILL_CHECK(twill_test_fine(comm, twill_comm_dup(&parent, comm)));
        TWILL_CHECK(twill_test_fine(parent, use(parent)) && twill_test_barrier(bootstrap));
        scarce_memory = rank == size - 1 ? left : -1;
        mine[0] = twill_comm_dup(&made, parent);
        mine[1] = rank == size - 1 && scarce_memory < 0;
        scarce_memory = -1;
        twill_status used = mine[0] == TWILL_OK ? use(made) : (twill_status)mine[0];
        TWILL_CHECK(used != TWILL_ERR_TIMEOUT, "after %d allocations: %s", left,
                    twill_comm_message(mine[0] == TWILL_OK ? made : parent));
        TWILL_CHECK(bootstrap->exchange(bootstrap->user, mine, all, sizeof(mine)) == 0);
        mine[1] = all[2 * size - 1];
        TWILL_CHECK(all[2 * (size - 1)] == TWILL_OK || used != TWILL_OK);
        TWILL_CHECK(all[2 * (size - 1)] != TWILL_OK || used == TWILL_OK);
        if (all[2 * (size - 1)] != TWILL_OK && mine[0] == TWILL_OK)
            TWILL_CHECK(TWILL_SAYS(twill_comm_message(made), twill_test_text("rank %d", size - 1)));
        twill_comm_destroy(made);
        twill_comm_destroy(parent);
        TWILL_CHECK(twill_test_fine(comm, twill_comm_dup(&later, comm)));
        TWILL_CHECK(twill_test_fine(later, use(later)));
        twill_comm_destroy(later);
    }
}

/* The place of a rank that asks for no communicator is used again at once. */
TWILL_TEST_ON(test_given_back, processes, TWILL_LAYOUTS("3"), TWILL_TEST_PATIENT)
{
    for (int i = 0; i < 100; i++) {
        twill_comm *made = NULL;
        TWILL_CHECK(twill_test_fine(
            comm, twill_comm_split(&made, comm, rank == 0 ? TWILL_COLOUR_NONE : 0, 0)));
        TWILL_CHECK((made == NULL) == (rank == 0));
        twill_comm_destroy(made);
        TWILL_CHECK(rank > 0 || twill_room_count(comm->node->room) == 1);
    }
}

/* A thread in twill_comm_revoke() keeps a communicator from being destroyed. A later attempt does
 * not count this rank twice. */
TWILL_TEST_ON(test_destroyed_twice, processes, TWILL_LAYOUTS("2"), "TWILL_TIMEOUT=1")
{
    twill_comm *made = NULL;
    TWILL_CHECK(twill_test_fine(comm, twill_comm_dup(&made, comm)));
    if (rank == 0)
        atomic_store(&made->claim.revoking, 1);
    twill_comm_destroy(made);
    TWILL_CHECK(rank > 0 || twill_comm_is_live(made));
    TWILL_CHECK(twill_test_barrier(bootstrap));
    if (rank == 0) {
        atomic_store(&made->claim.revoking, 0);
        twill_comm_destroy(made);
        TWILL_CHECK(!twill_comm_is_live(made) && !made->broken);
    }
}

/* A parent that does not know whether single copy works, as with xpmem, has its children try. */
TWILL_TEST_ON(test_single_copy, processes, TWILL_LAYOUTS("2", "3x1"), TWILL_TEST_PATIENT)
{
    twill_comm *made = NULL;
    bool fetches = twill_single_copy_fetches(comm->links.single_copy);
    twill_single_copy_close(comm->links.single_copy);
    comm->links.single_copy = NULL;
    TWILL_CHECK(twill_test_fine(comm, twill_comm_dup(&made, comm)));
    TWILL_CHECK(twill_single_copy_fetches(made->links.single_copy) == fetches);
    TWILL_CHECK(twill_test_fine(made, use(made)));
    twill_comm_destroy(made);
}

/* --- memory -------------------------------------------------------------------------------------
 */

/* Return whether a page exists. */
static bool exists(void *at)
{
    unsigned char resident = 0;
    return mincore(at, 1, &resident) == 0 && (resident & 1) != 0;
}

/* A rank that reports that it waits writes to no communicator that all leave idle. */
TWILL_TEST_ON(test_idle_stays_idle, processes, TWILL_LAYOUTS("2"), TWILL_TEST_PATIENT)
{
    twill_comm *unused = NULL, *used = NULL;
    uint32_t other = (uint32_t)!rank;
    TWILL_CHECK(twill_test_fine(comm, twill_comm_dup(&unused, comm)));
    TWILL_CHECK(twill_test_fine(comm, twill_comm_dup(&used, comm)));
    if (rank == 1)
        TWILL_CHECK(twill_comm_acquire(used, "a test") == TWILL_OK);
    TWILL_CHECK(twill_test_barrier(bootstrap));
    if (rank == 0)
        twill_comm_report(comm, &other, 1);
    TWILL_CHECK(!exists(unused->node->area[unused->local]));
    TWILL_CHECK(exists(used->node->area[used->local])); /* the other rank may wait there */
    if (rank == 1)
        twill_comm_release(used);
    TWILL_CHECK(twill_test_barrier(bootstrap));
    twill_comm_destroy(unused);
    twill_comm_destroy(used);
}

/* Return whether this process may read at an address. */
static bool is_readable(const void *at)
{
    int end[2];
    bool fine = pipe(end) == 0;
    long written = fine ? syscall(SYS_write, end[1], at, 1ul) : 0;
    if (fine) {
        close(end[0]);
        close(end[1]);
    }
    return written == 1;
}

/* mlockall() finds only those pages of a room that parts have had. */
TWILL_TEST_ON(test_shut, ranks, TWILL_LAYOUTS("2"), TWILL_TEST_PATIENT)
{
    twill_comm *made[16];
    const struct twill_node *node = comm->node;
    for (int i = 0; i < 16; i++)
        TWILL_CHECK(twill_test_fine(comm, twill_comm_dup(&made[i], comm)));
    for (uint32_t l = 0; l < node->size; l++) {
        unsigned char *at = twill_shm_region_room(node->region, node->in_region[l]);
        size_t end = made[15]->node->place[l].at;
        TWILL_CHECK(is_readable(at) && is_readable(at + end));
        TWILL_CHECK(!is_readable(at + 2 * end) && !is_readable(at + node->room_bytes - 1));
    }
    TWILL_CHECK(twill_test_barrier(bootstrap));
    for (int i = 0; i < 16; i++)
        twill_comm_destroy(made[i]);
}

/* The pages of a room are made on the NUMA node of its rank, and a part that its last user has
 * placed elsewhere is so again for the next one. */
TWILL_TEST_ON(test_near, processes, TWILL_LAYOUTS("2"), TWILL_TEST_PATIENT)
{
    twill_comm *made = NULL, *next = NULL;
    TWILL_CHECK(twill_test_fine(comm, twill_comm_dup(&made, comm)));
    TWILL_CHECK(twill_test_fine(made, use(made)));
    unsigned char *at = (unsigned char *)made->node->area[made->local];
    size_t bytes = twill_node_part_bytes(made->node->shared_bytes, made->node->pair_bytes, 2);
    bool binds =
        twill_memory_near(at, bytes, 0) == 0 && twill_memory_bound_to(at) == twill_numa_bit(0);
    TWILL_CHECK(twill_test_barrier(bootstrap));
    made->node->placed = binds;
    twill_comm_destroy(made);
    for (int i = 0; i < 9; i++) {
        TWILL_CHECK(twill_test_barrier(bootstrap));
        TWILL_CHECK(twill_test_fine(comm, twill_comm_dup(&next, comm)));
        TWILL_CHECK(twill_memory_bound_to(next->node->area[next->local]) == 0);
        twill_comm_destroy(next);
    }
    twill_room_near(comm->node->room, 0);
    TWILL_CHECK(!binds || twill_memory_bound_to(at) == twill_numa_bit(0));
    twill_room_near(comm->node->room, -1);
    TWILL_CHECK(twill_memory_bound_to(at) == 0);
}

/* Lock or unlock what shows that this rank lives. */
static bool seem(const struct twill_shm_region *region, short how)
{
    struct flock lock = {.l_type = how, .l_whence = SEEK_SET, .l_start = region->rank, .l_len = 1};
    return fcntl(region->life->fd, F_SETLK, &lock) == 0;
}

/* A part to which a rank that seems dead may still write is given to no other communicator. */
TWILL_TEST_ON(test_seems_dead, processes, TWILL_LAYOUTS("2"), TWILL_TEST_PATIENT)
{
    twill_comm *made = NULL;
    struct twill_room *room = comm->node->room;
    TWILL_CHECK(twill_test_fine(comm, twill_comm_dup(&made, comm)));
    uint64_t part = made->node->place[made->local].part;
    size_t bytes = twill_node_part_bytes(made->node->shared_bytes, made->node->pair_bytes, 2);
    TWILL_CHECK(rank == 0 || seem(comm->node->region, F_UNLCK));
    TWILL_CHECK(twill_test_barrier(bootstrap));
    if (rank == 0)
        twill_comm_destroy(made);
    for (int i = 0; rank == 0 && i < 64; i++) {
        struct twill_room_place place = twill_room_take(room, bytes);
        TWILL_CHECK(place.at > 0 && place.part != part);
        twill_room_give(room, &place, true);
    }
    TWILL_CHECK(rank > 0 || twill_room_count(room) == 1); /* none waits for ever */
    TWILL_CHECK(twill_test_barrier(bootstrap));
    TWILL_CHECK(rank == 0 || seem(comm->node->region, F_WRLCK));
    if (rank > 0)
        twill_comm_destroy(made);
}

/* A further communicator of the context has no room of its own, until the first has ended. */
TWILL_TEST_ON(test_one_room, ranks, TWILL_LAYOUTS("2"), TWILL_TEST_PATIENT)
{
    twill_comm *further = NULL, *made = NULL;
    struct twill_room *room = comm->node->room;
    for (int turn = 0; turn < 2; turn++) {
        TWILL_CHECK(twill_comm_create(&further, twill_comm_context(comm)) == TWILL_OK);
        TWILL_CHECK((further->node->room != NULL) == (turn == 1 && room != NULL));
        TWILL_CHECK(twill_test_fine(further, twill_comm_dup(&made, further)));
        TWILL_CHECK(twill_test_fine(made, use(made)) && twill_test_fine(further, use(further)));
        twill_comm_destroy(made);
        twill_comm_destroy(further);
        TWILL_CHECK(twill_test_barrier(bootstrap));
        comm->node->room = NULL; /* as if it had ended */
    }
    comm->node->room = room;
}

/* Return the bytes of memory that this rank's region has. */
static size_t bytes_of(const struct twill_shm_region *region)
{
    struct stat about = {.st_blocks = 0};
    return fstat(region->fd, &about) == 0 ? (size_t)about.st_blocks * 512 : 0;
}

/* A communicator that has ended gives its memory back, although one made out of it is in use. */
TWILL_TEST_ON(test_ended_parent, processes, TWILL_LAYOUTS("2"), TWILL_TEST_PATIENT)
{
    twill_comm *parent = NULL, *made = NULL, *next = NULL;
    const struct twill_shm_region *region;
    struct twill_room *room = comm->node->room;
    comm->node->room = NULL; /* so that the next one has room */
    TWILL_CHECK(twill_comm_create(&parent, twill_comm_context(comm)) == TWILL_OK);
    comm->node->room = room;
    region = parent->node->region;
    TWILL_CHECK(twill_test_fine(parent, use(parent)));
    TWILL_CHECK(twill_test_fine(parent, twill_comm_dup(&made, parent)));
    size_t with = bytes_of(region);
    twill_comm_destroy(parent);
    TWILL_CHECK(twill_test_barrier(bootstrap));
    for (int i = 0; i < 9; i++) { /* looks at ended ones */
        TWILL_CHECK(twill_test_fine(made, twill_comm_dup(&next, made)));
        TWILL_CHECK(i > 0 || twill_test_fine(next, use(next)));
        twill_comm_destroy(next);
        TWILL_CHECK(twill_test_barrier(bootstrap));
    }
    TWILL_CHECK(bytes_of(region) < with, "%zu bytes, %zu before", bytes_of(region), with);
    TWILL_CHECK(twill_test_fine(made, use(made)));
    twill_comm_destroy(made);
}

/* Ended handles take no address space for good. */
TWILL_TEST_ON(test_handles, processes, TWILL_LAYOUTS("1"), TWILL_TEST_PATIENT)
{
    enum { MANY = 600 };
    static twill_comm *made[MANY];
    size_t after[3] = {0};
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MANY; i++)
            TWILL_CHECK(twill_test_fine(comm, twill_comm_dup(&made[i], comm)));
        for (int i = 0; i < MANY; i++)
            twill_comm_destroy(made[i]);
        TWILL_CHECK(!twill_comm_is_live(made[0]) && !twill_comm_is_live(made[MANY - 1]));
        FILE *file = fopen("/proc/self/statm", "re");
        TWILL_CHECK(file != NULL && fscanf(file, "%zu", &after[round]) == 1 && fclose(file) == 0);
    }
    TWILL_CHECK(TEST_SLOW || after[2] < after[1] + 256, "%zu and %zu pages", after[1], after[2]);
}

/* Return twill_mapping_spare() of a process to which a limit applies. */
static bool has_spare(int resource, size_t limit)
{
    pid_t child = fork();
    if (child == 0) {
        struct rlimit most = {limit, RLIM_INFINITY};
        bool fine = resource < 0 ? mlockall(MCL_FUTURE) == 0 : setrlimit(resource, &most) == 0;
        _exit(fine && twill_mapping_spare() == 0);
    }
    int how = 0;
    return waitpid(child, &how, 0) != child || how == 0;
}

/* No room where address space or files are limited or new memory is locked. */
TWILL_TEST(test_spare)
{
    assert_true(TEST_SLOW || twill_mapping_spare() >= (size_t)64 << 30);
    assert_false(!TEST_SLOW && has_spare(RLIMIT_AS, (size_t)8 << 30));
    assert_false(has_spare(RLIMIT_FSIZE, (size_t)8 << 30));
    assert_false(!TEST_SLOW && geteuid() == 0 && has_spare(-1, 0));
}

/* --- readers outside the job
 * ---------------------------------------------------------------------- */

/* A reader finds the communicators of another process that it has used, of which it maps no more
 * than their memory. */
TWILL_TEST_ON(test_view, processes, TWILL_LAYOUTS("2"), TWILL_TEST_PATIENT)
{
    enum { MANY = 4 };
    twill_comm *made[MANY];
    char message[256];
    twill_job_view *view = NULL;
    int32_t pid[2], mine = getpid();
    unsigned found = 0;
    for (int i = 0; i < MANY; i++)
        TWILL_CHECK(twill_test_fine(comm, twill_comm_dup(&made[i], comm)));
    TWILL_CHECK(twill_test_fine(made[1], use(made[1])) && twill_test_fine(made[3], use(made[3])));
    TWILL_CHECK(bootstrap->exchange(bootstrap->user, &mine, pid, sizeof(mine)) == 0);
    if (rank == 0)
        TWILL_CHECK(twill_job_view_open(&view, twill_test_text("%d", pid[1]), 1, message, 256) ==
                        TWILL_OK,
                    "%s", message);
    for (size_t i = 0; view != NULL && i < view->regions; i++) {
        const struct twill_job_region *region = &view->region[i];
        TWILL_CHECK(region->view->bytes < (size_t)64 << 20);
        found |= region->owner->rank == 1 ? 1u << region->owner->number : 0;
    }
    TWILL_CHECK(rank > 0 ||
                    found == (1u << comm->number | 1u << made[1]->number | 1u << made[3]->number),
                "%x", found);
    TWILL_CHECK(twill_test_barrier(bootstrap));
    for (int i = 0; i < MANY; i++)
        twill_comm_destroy(made[i]);
    for (size_t i = 0; view != NULL && i < view->regions; i++)
        TWILL_CHECK(view->region[i].owner->job != 0); /* as it was */
    twill_job_view_close(view);
}
