/* SPDX-License-Identifier: Apache-2.0 */
/* Single-copy access: probed between all ranks, agreed by all; and what happens when it is refused,
 * when the peer is another process, has died, or has nothing mapped there. */
#include "fabric/shm/single_copy.h"
#include "tests/support/unit.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

struct access_scene {
    enum twill_single_copy_kind setting;
    uint32_t nodes;
    bool fetches, maps; /* expected result */
    const char *says[2];
    int refused;  /* a rank whose kernel refuses process_vm_readv; 0: none */
    int impostor; /* a rank that sends another process's data; 0: none */
};

/* Let process_vm_readv fail with EPERM in this process from now on. */
static bool refuse_reads(void)
{
    struct sock_filter rule[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {TWILL_ARRAY_LENGTH(rule), rule};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* A bootstrap that falsifies a rank's first message, which ends with its peer info. */
static struct {
    const struct twill_bootstrap_ops *ops;
    int calls;
} lying;

static twill_status gather_lie(struct twill_oob *oob, const void *mine, void *all, size_t bytes,
                               struct twill_error *error)
{
    unsigned char message[1024];
    struct twill_single_copy_info info;
    if (lying.calls++ > 0)
        return lying.ops->allgather(oob, mine, all, bytes, error);
    if (bytes < sizeof(info) || bytes > sizeof(message))
        return TWILL_ERR_INTERNAL;
    unsigned char *end = message + bytes - sizeof(info);
    memcpy(message, mine, bytes);
    memcpy(&info, end, sizeof(info));
    info.token[3] ^= 1; /* as if another process had other data there */
    memcpy(end, &info, sizeof(info));
    return lying.ops->allgather(oob, message, all, bytes, error);
}

struct access_end {
    struct twill_oob *oob;
    struct twill_world world;
    struct twill_single_copy *single_copy;
    char how[200];
};

/* All three steps. */
static twill_status negotiate(struct access_end *end, enum twill_single_copy_kind setting,
                              struct twill_error *error)
{
    struct twill_oob_batch batch = {.oob = end->oob};
    uint32_t me = (uint32_t)end->oob->rank;
    if (!twill_single_copy_applies(&end->world, setting, end->how, sizeof(end->how)))
        return TWILL_OK;
    twill_status status =
        twill_single_copy_offer(&end->single_copy, me, &end->world, setting, &batch, error);
    TWILL_TRY(error, twill_oob_batch_exchange(&batch, status, error));
    twill_single_copy_probe(end->single_copy, me, &end->world, &batch);
    TWILL_TRY(error, twill_oob_batch_exchange(&batch, TWILL_OK, error));
    twill_single_copy_conclude(&end->single_copy, me, &end->world, end->how, sizeof(end->how));
    return TWILL_OK;
}

static bool open_end(struct access_end *end, twill_bootstrap *caller,
                     const struct access_scene *scene)
{
    struct twill_error error = {.status = TWILL_OK};
    uint32_t label[8] = {0};
    *end = (struct access_end){.oob = twill_test_oob(caller)};
    struct twill_bootstrap_ops ops = *end->oob->ops;
    const struct twill_bootstrap_ops *honest = end->oob->ops;
    for (int r = 0; r < caller->size; r++)
        label[r] = (uint32_t)r % scene->nodes;
    TWILL_REQUIRE(twill_world_create(&end->world, (uint32_t)caller->size, label, &error) ==
                  TWILL_OK);
    if (scene->impostor > 0 && caller->rank == scene->impostor) {
        lying.ops = honest;
        lying.calls = 0;
        ops.allgather = gather_lie;
        end->oob->ops = &ops;
    }
    twill_status status = negotiate(end, scene->setting, &error);
    end->oob->ops = honest;
    return TWILL_NOTE(status == TWILL_OK, "%s", error.message);
}

static void close_end(struct access_end *end)
{
    twill_single_copy_close(end->single_copy);
    twill_world_destroy(&end->world);
    twill_test_oob_close(end->oob);
}

static bool gather_ends(struct access_end *end, const void *mine, void *all, size_t bytes)
{
    struct twill_error error = {.status = TWILL_OK};
    return TWILL_NOTE(twill_oob_allgather(end->oob, mine, all, bytes, &error) == TWILL_OK, "%s",
                      error.message);
}

/* Every rank reads every other's memory, across page boundaries, and memory that is not mapped. */
static bool read_all(struct access_end *end, int rank, int size)
{
    enum { PAGES = 4, PAGE = 4096 };
    static const size_t from[] = {0, 1, 4090, 0}, bytes[] = {1, 4095, 20, 3 * PAGE};
    unsigned char got[3 * PAGE];
    uint64_t all[8], mine;
    unsigned char *memory =
        mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TWILL_REQUIRE(memory != MAP_FAILED);
    TWILL_REQUIRE(munmap(memory + 3 * PAGE, PAGE) == 0);
    memset(memory, 10 + rank, 3 * PAGE);
    mine = (uint64_t)(uintptr_t)memory;
    TWILL_REQUIRE(gather_ends(end, &mine, all, sizeof(mine)));
    for (int r = 0; r < size; r++) {
        for (size_t i = 0; i < TWILL_ARRAY_LENGTH(from) && r != rank; i++) {
            memset(got, 0, sizeof(got));
            int cause = twill_single_copy_fetch(end->single_copy, (uint32_t)r, got,
                                                all[r] + from[i], bytes[i]);
            TWILL_REQUIRE(cause == 0 && got[0] == 10 + r && got[bytes[i] - 1] == 10 + r);
            TWILL_REQUIRE(bytes[i] == sizeof(got) || got[bytes[i]] == 0);
        }
    }
    TWILL_REQUIRE(gather_ends(end, &mine, all, sizeof(mine)));
    TWILL_REQUIRE(munmap(memory + 2 * PAGE, PAGE) == 0);
    TWILL_REQUIRE(gather_ends(end, &mine, all, sizeof(mine)));
    int other = (rank + 1) % size;
    TWILL_REQUIRE(twill_single_copy_fetch(end->single_copy, (uint32_t)other, got, all[other],
                                          3 * PAGE) == EFAULT);
    TWILL_REQUIRE(gather_ends(end, &mine, all, sizeof(mine)));
    munmap(memory, 2 * PAGE);
    return true;
}

/* Map pages of another rank; mapping them again makes no new attachment. */
static bool attach_all(struct access_end *end, int rank, int size)
{
    struct twill_region *region[2];
    void *at[2];
    uint64_t all[8], mine;
    int value = 100 + rank;
    mine = (uint64_t)(uintptr_t)&value;
    TWILL_REQUIRE(gather_ends(end, &mine, all, sizeof(mine)));
    for (int r = 0; r < size; r++) {
        for (int i = 0; i < 2 && r != rank; i++)
            TWILL_REQUIRE(twill_single_copy_attach(end->single_copy, (uint32_t)r, all[r],
                                                   sizeof(value), &region[i], &at[i]) == 0);
        if (r == rank)
            continue;
        TWILL_REQUIRE(region[0] == region[1] && at[0] == at[1] && *(int *)at[0] == 100 + r);
        twill_region_release(region[0]);
        twill_region_release(region[1]);
    }
    return gather_ends(end, &mine, all, sizeof(mine));
}

/* Derive access for the ranks in reverse order, and then for all but one of those. */
static bool hand_on_ends(struct access_end *end, int rank, int size)
{
    struct twill_error error = {.status = TWILL_OK};
    struct twill_world world;
    struct twill_single_copy *single_copy, *less;
    uint32_t ranks[8], fewer[8], label[8] = {0};
    uint64_t all[8], mine;
    int value = 50 + rank, got = 0;
    mine = (uint64_t)(uintptr_t)&value;
    for (int r = 0; r < size; r++)
        ranks[r] = (uint32_t)(size - 1 - r);
    TWILL_REQUIRE(twill_single_copy_derive(&single_copy, end->single_copy, &end->world, ranks,
                                           &end->world, ranks[rank], &error) == TWILL_OK);
    TWILL_REQUIRE(twill_world_create(&world, (uint32_t)size - 1, label, &error) == TWILL_OK);
    for (int r = 0; r < size - 1; r++)
        fewer[r] = (uint32_t)r + 1;
    TWILL_REQUIRE(gather_ends(end, &mine, all, sizeof(mine)));
    if (rank < size - 1) {
        TWILL_REQUIRE(twill_single_copy_derive(&less, single_copy, &end->world, fewer, &world,
                                               ranks[rank] - 1, &error) == TWILL_OK);
        TWILL_REQUIRE(twill_single_copy_is_known(less));
        for (int r = 0; r < size - 1; r++) { /* rank r of `world` is rank size - 2 - r of all */
            int of = size - 2 - r;
            TWILL_REQUIRE(twill_single_copy_fetch(less, (uint32_t)r, &got, all[of], sizeof(got)) ==
                          0);
            TWILL_REQUIRE(got == 50 + of);
        }
        twill_single_copy_close(less);
    }
    twill_world_destroy(&world);
    twill_single_copy_close(single_copy);
    return gather_ends(end, &mine, all, sizeof(mine));
}

static void probing_rank(int rank, int size, twill_bootstrap *caller, void *user)
{
    const struct access_scene *scene = user;
    struct access_end end;
    if (scene->refused > 0 && rank == scene->refused)
        TWILL_CHECK(refuse_reads());
    if (open_end(&end, caller, scene)) {
        bool fetches = twill_single_copy_fetches(end.single_copy),
             maps = twill_single_copy_maps(end.single_copy);
        TWILL_NOTE(fetches == scene->fetches && maps == scene->maps &&
                       (end.single_copy != NULL) == (fetches || maps) &&
                       strstr(end.how, scene->says[0]) != NULL &&
                       strstr(end.how, scene->says[1]) != NULL,
                   "fetches %d, maps %d: %s", fetches, maps, end.how);
        if (fetches && scene->nodes == 1 && !twill_test_failed())
            (void)read_all(&end, rank, size);
        TWILL_CHECK(twill_single_copy_is_known(end.single_copy) == (fetches && !maps));
        if (fetches && !maps && scene->nodes == 1 && !twill_test_failed())
            (void)hand_on_ends(&end, rank, size);
        if (maps && scene->nodes == 1 && !twill_test_failed())
            (void)attach_all(&end, rank, size);
    }
    close_end(&end);
}

#define AUTO TWILL_SINGLE_COPY_AUTO
#define CMA  TWILL_SINGLE_COPY_CMA

/* A refusal between any two ranks of a node disables the method for all. */
TWILL_TEST(test_processes)
{
    static const struct access_scene scenes[] = {
        {AUTO, 1, true, false, {"cma: yes", "xpmem: none (rank 0"}, 0, 0},
        {CMA, 1, true, false, {"cma: yes", "xpmem: not requested"}, 0, 0},
        {CMA, 2, true, false, {"cma: yes", ""}, 0, 0},
        {CMA, 4, false, false, {"no rank shares a node", ""}, 0, 0},
        {TWILL_SINGLE_COPY_NONE, 1, false, false, {"TWILL_TUNE=reach", ""}, 0, 0},
        {TWILL_SINGLE_COPY_XPMEM, 1, false, false, {"xpmem: none", "cma: not requested"}, 0, 0},
        {AUTO, 1, false, false, {"cma: none (rank 2 reads rank 0: ", "not permitted"}, 2, 0},
        {AUTO, 2, false, false, {"cma: none (rank 3 reads rank 1: ", ""}, 3, 0},
        {AUTO, 1, false, false, {"cma: none (rank 0 reads rank 1: ", ""}, 0, 1},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(scenes); i++)
        twill_test_run_processes(4, probing_rank, (void *)(uintptr_t)&scenes[i]);
}

TWILL_TEST(test_threads)
{
    struct access_scene scene = {AUTO, 1, true, true, {"cma: yes", "xpmem: yes"}, 0, 0};
    twill_test_run_ranks(3, probing_rank, &scene);
    scene.maps = false; /* the double cannot attach other processes */
    scene.says[1] = "xpmem: none (rank 0 reads rank 2";
    twill_test_run_mixed(4, 2, probing_rank, &scene);
}

TWILL_TEST_OF_PROCESSES(test_death, 3)
{
    struct access_scene scene = {CMA, 1, true, false, {"", ""}, 0, 0};
    struct access_end end;
    uint64_t all[8], mine;
    int value = 7, got = 0, cause = 0;
    mine = (uint64_t)(uintptr_t)&value;
    if (open_end(&end, bootstrap, &scene) && gather_ends(&end, &mine, all, sizeof(mine))) {
        if (rank == 1) {
            twill_test_expect_death(1);
            raise(SIGKILL);
        }
        uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
        while (cause == 0 && twill_now() < limit)
            cause = twill_single_copy_fetch(end.single_copy, 1, &got, all[1], sizeof(got));
        TWILL_NOTE(cause == ESRCH, "%s", strerror(cause));
    }
    close_end(&end);
}
