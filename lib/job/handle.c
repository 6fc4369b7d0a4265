/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the objects behind public handles: map, pool, retire. */
#include "lib/job/job_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HANDLE_PAGE ((size_t)4096) /* mmap rounds up to larger pages */

/* Return the bytes to map for an object of `bytes` bytes, in whole pages. */
static size_t mapped(size_t bytes)
{
    return twill_round_up(bytes, HANDLE_PAGE);
}

void *twill_handle_map(size_t bytes)
{
    void *memory =
        mmap(NULL, mapped(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory != MAP_FAILED ? memory : NULL;
}

/* Replace an object's pages by read-only ones of zeros, which use no memory and merge. */
void twill_handle_retire(void *memory, size_t bytes)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
    if (mmap(memory, mapped(bytes), PROT_READ, flags, -1, 0) == MAP_FAILED)
        memset(memory, 0, mapped(bytes)); /* vm.max_map_count reached */
}

void *twill_handle_pool_get(struct twill_handle_pool *pool, size_t bytes, unsigned keep)
{
    if (pool->count <= keep)
        return twill_handle_map(bytes);
    void *memory = pool->memory[pool->first];
    pool->first = (pool->first + 1) % pool->capacity;
    pool->count--;
    return memory;
}

/* Make the ring of a pool that is full larger. Returns whether there was memory. */
static bool enlarge(struct twill_handle_pool *pool)
{
    unsigned capacity = pool->capacity * 2 + 32;
    void **more = calloc(capacity, sizeof(*more));
    if (more == NULL)
        return false;
    for (unsigned i = 0; i < pool->count; i++)
        more[i] = pool->memory[(pool->first + i) % pool->capacity];
    free(pool->memory);
    pool->memory = more;
    pool->capacity = capacity;
    pool->first = 0;
    return true;
}

void twill_handle_pool_put(struct twill_handle_pool *pool, void *memory, size_t bytes,
                           unsigned whole)
{
    pool->bytes = bytes;
    if (pool->count == pool->capacity && !enlarge(pool)) {
        twill_handle_retire(memory, bytes);
        return;
    }
    pool->memory[(pool->first + pool->count++) % pool->capacity] = memory;
    if (pool->count > whole)
        (void)madvise(pool->memory[(pool->first + pool->count - whole - 1) % pool->capacity],
                      mapped(bytes), MADV_DONTNEED);
}

void twill_handle_pool_retire(struct twill_handle_pool *pool)
{
    for (unsigned i = 0; i < pool->count; i++)
        twill_handle_retire(pool->memory[(pool->first + i) % pool->capacity], pool->bytes);
    free(pool->memory);
    *pool = (struct twill_handle_pool){.count = 0};
}

void twill_handle_warn(const char *call, const char *sentence)
{
    struct twill_log log = {.level = TWILL_LOG_WARN, .rank = -1};
    const char *setting = getenv("TWILL_LOG");
    if (setting == NULL || strcmp(setting, "none") != 0)
        twill_say(&log, TWILL_LOG_WARN, "%s: %s", call, sentence);
}
