/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a rank that has died is given back by the survivors, once they have left the
 * communicators that it was in. */
#include "lib/comm/comm.h"
#include "lib/twill_recover.h"
#include "tests/support/unit.h"

#include <dirent.h>

enum { HEAP_RANKS = 4, HEAP_BYTES = 4 << 20 };

/* Return the number of ranks whose heap this process has mapped. */
static int count_mapped_heaps(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    unsigned long known[2 * HEAP_RANKS], inode;
    char line[512];
    int count = 0;
    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
        bool is_new = strstr(line, "/memfd:twill-heap") != NULL &&
                      sscanf(line, "%*s %*s %*s %*s %lu", &inode) == 1;
        for (int i = 0; i < count; i++) /* a heap may be several mappings */
            is_new = is_new && known[i] != inode;
        if (is_new && count < 2 * HEAP_RANKS)
            known[count++] = inode;
    }
    if (maps != NULL)
        (void)fclose(maps);
    return count;
}

/* Return the number of heaps that this process has descriptors of. */
static int count_open_heaps(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    if (folder == NULL)
        return -1;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char path[64], target[64] = "";
        snprintf(path, sizeof(path), "/proc/self/fd/%.20s", entry->d_name);
        count += readlink(path, target, sizeof(target) - 1) > 0 &&
                 strstr(target, "/memfd:twill-heap") != NULL;
    }
    closedir(folder);
    return count;
}

/* Are `count` heaps mapped? Their descriptors are closed as soon as that is done. */
static bool has_heaps(int count, int line)
{
    int mapped = count_mapped_heaps(), open = count_open_heaps();
    return twill_test_note(mapped == count && open == 0, __FILE__, line, "has_heaps()",
                           " %d heaps are mapped, instead of %d, and %d open", mapped, count, open);
}

/* The highest rank dies, then the next one, until one is left. */
TWILL_TEST_OF_PROCESSES(test_memory_of_the_dead, HEAP_RANKS)
{
    twill_context *context;
    twill_comm *comm, *copy, *smaller;
    float *memory, sum;
    if (rank > 0)
        twill_test_expect_death(rank);
    TWILL_CHECK(twill_test_join(&context, &comm, bootstrap, "4", TWILL_TEST_PATIENT));
    TWILL_CHECK(twill_alloc(context, (void **)&memory, HEAP_BYTES) == TWILL_OK);
    memset(memory, 0, HEAP_BYTES);
    for (int live = size; live > 1; live--) {
        TWILL_CHECK(twill_comm_dup(&copy, comm) == TWILL_OK);
        memory[0] = 1; /* of a call that the others have mapped it for */
        TWILL_CHECK(twill_allreduce(comm, memory, memory, HEAP_BYTES / sizeof(*memory), TWILL_F32,
                                    TWILL_MAX) == TWILL_OK);
        TWILL_CHECK(has_heaps(live, __LINE__));
        if (rank == live - 1)
            _exit(0);
        TWILL_CHECK(twill_allreduce(comm, memory, &sum, 1, TWILL_F32, TWILL_SUM) != TWILL_OK);
        TWILL_CHECK(twill_comm_shrink(&smaller, comm) == TWILL_OK);
        twill_comm_leave(comm);
        TWILL_CHECK(has_heaps(live, __LINE__)); /* the copy's calls may use it */
        twill_comm_leave(copy);
        TWILL_CHECK(has_heaps(live - 1, __LINE__));
        comm = smaller;
        TWILL_CHECK(twill_allreduce(comm, memory, &sum, 1, TWILL_F32, TWILL_SUM) == TWILL_OK);
        TWILL_CHECK(sum == (float)(live - 1));
    }
    twill_comm_leave(comm);
    TWILL_CHECK(twill_free(context, memory) == TWILL_OK);
    twill_context_destroy(context);
    TWILL_CHECK(has_heaps(0, __LINE__));
}
