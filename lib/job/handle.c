/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the objects behind public handles: map, pool, retire. */
#include "lib/job/job_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HANDLE_PAGE ((size_t)4096) /* mmap rounds up to larger pages */

/* Link of a pool, stored at the end of an object's memory, so that the object's state stays intact.
 * `memory` is the start of that memory. */
struct twill_handle_link {
    struct twill_handle_link *next;
    void *memory;
};

/* Return the bytes to map for an object of `bytes` bytes and its struct twill_handle_link, in whole
 * pages. */
static size_t mapped(size_t bytes)
{
    return twill_round_up(bytes + sizeof(struct twill_handle_link), HANDLE_PAGE);
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
    struct twill_handle_link *link = pool->first;
    if (link == NULL || pool->count <= keep)
        return twill_handle_map(bytes);
    pool->first = link->next;
    pool->count--;
    return link->memory;
}

void twill_handle_pool_put(struct twill_handle_pool *pool, void *memory, size_t bytes)
{
    unsigned char *end = (unsigned char *)memory + mapped(bytes);
    struct twill_handle_link *link = (struct twill_handle_link *)(void *)end - 1;
    *link = (struct twill_handle_link){.memory = memory};
    if (pool->first == NULL)
        pool->first = link;
    else
        pool->last->next = link;
    pool->last = link;
    pool->bytes = bytes;
    pool->count++;
}

void twill_handle_pool_retire(struct twill_handle_pool *pool)
{
    while (pool->first != NULL) {
        void *memory = pool->first->memory;
        pool->first = pool->first->next;
        twill_handle_retire(memory, pool->bytes);
    }
    *pool = (struct twill_handle_pool){.count = 0};
}

void twill_handle_warn(const char *call, const char *sentence)
{
    struct twill_log log = {.level = TWILL_LOG_WARN, .rank = -1};
    const char *setting = getenv("TWILL_LOG");
    if (setting == NULL || strcmp(setting, "none") != 0)
        twill_say(&log, TWILL_LOG_WARN, "%s: %s", call, sentence);
}
