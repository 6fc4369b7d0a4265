/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the program that peers access without a copy. twill_promote() copies the whole pages of
 * a buffer into a block of this rank's region, and maps the block's pages over them. The bytes
 * before the first and after the last whole page stay where they are, as other data may lie in
 * these pages. The block has room for them, and each call copies them there and back (layout.c).
 *
 * A program may free a buffer without twill_demote(). So before each use, two futex calls ask the
 * kernel whether the buffer's first and last moved page are still those of the block. */
#include "fabric/shm/mapping.h"
#include "lib/job/job_internal.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE ((size_t)4096)

/* A buffer of twill_promote(), in the context's list under its lock. */
struct twill_promotion {
    struct twill_promotion *next;
    unsigned char *memory; /* as the caller gave it, with `bytes` */
    size_t bytes;
    unsigned char *from, *to; /* the moved pages, or NULL if there are none */
    unsigned char *alias;     /* where the region has the page of `from` */
    void *block;              /* memory of the heap that has these pages, or NULL */
    unsigned again;           /* further promotions of the same buffer that are not undone yet */
};

/* Return whether two addresses are the same byte of the same shared object. The kernel refuses with
 * EINVAL to requeue waiters of a futex to itself (man 2 futex), and changes nothing otherwise. */
static bool is_same_memory(unsigned char *one, unsigned char *other)
{
    return syscall(SYS_futex, one, FUTEX_CMP_REQUEUE_PI, 1, (void *)0, other, 0) < 0 &&
           errno == EINVAL;
}

/* Return whether the first and the last of the moved pages that [at, end) touches, if any, are
 * still where twill_promote() has put them. */
static bool are_in_place(const struct twill_promotion *p, const unsigned char *at,
                         const unsigned char *end)
{
    if (at >= p->to || end <= p->from)
        return true;
    size_t first = at > p->from ? (size_t)(at - p->from) & -PAGE : 0;
    size_t last = ((size_t)((end < p->to ? end : p->to) - p->from) - 1) & -PAGE;
    int before = errno;
    bool are = is_same_memory(p->from + first, p->alias + first) &&
               is_same_memory(p->from + last, p->alias + last);
    errno = before;
    return are;
}

/* Return whether the moved pages are still where twill_promote() has put them. */
static bool is_in_place(const struct twill_promotion *p)
{
    return are_in_place(p, p->from, p->to);
}

/* Return why the mapping that a line of /proc/self/maps describes cannot be moved, or NULL. */
static const char *refuse_mapping(const char *access, unsigned long inode, const char *name)
{
    if (access[3] != 'p')
        return "it is shared memory already";
    if (inode != 0)
        return "it is a mapping of a file";
    if (strncmp(access, "rw", 2) != 0)
        return "it cannot be read and written";
    return strncmp(name, "[stack", 6) == 0 ? "it is a stack" : NULL;
}

/* Return why the pages [from, to) cannot be moved, or NULL. */
static const char *refuse_pages(uintptr_t from, uintptr_t to)
{
    const char *why = NULL;
    char *line = NULL;
    size_t room = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps != NULL && why == NULL && from < to && getline(&line, &room, maps) > 0) {
        char access[5];
        int name = 0;
        uintptr_t begin, end;
        unsigned long inode;
        if (sscanf(line, "%lx-%lx %4s %*s %*s %lu %n", &begin, &end, access, &inode, &name) < 4 ||
            end <= from)
            continue;
        why = begin > from ? "it is not mapped" : refuse_mapping(access, inode, line + name);
        from = end;
    }
    if (maps == NULL || (why == NULL && from < to))
        why = "/proc/self/maps does not list it";
    if (maps != NULL)
        fclose(maps);
    free(line);
    return why;
}

/* Return whether [from, to) lies in the stack of the calling thread. */
static bool is_own_stack(const unsigned char *from, const unsigned char *to)
{
    pthread_attr_t attributes;
    void *start = NULL;
    size_t bytes = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0)
        return false;
    (void)pthread_attr_getstack(&attributes, &start, &bytes);
    (void)pthread_attr_destroy(&attributes);
    return to > (unsigned char *)start && from < (unsigned char *)start + bytes;
}

/* Replace pages by private ones with the same contents. Returns TWILL_OK or the error. */
static twill_status make_private(unsigned char *from, const unsigned char *to,
                                 struct twill_error *error)
{
    size_t bytes = (size_t)(to - from);
    void *new = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (new == MAP_FAILED)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "mmap of %zu bytes: %s", bytes, strerror(errno));
    memcpy(new, from, bytes);
    if (mremap(new, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, from) != MAP_FAILED)
        return TWILL_OK;
    (void)TWILL_FAIL(error, TWILL_ERR_MEMORY, "mremap of %zu bytes: %s", bytes, strerror(errno));
    munmap(new, bytes);
    return TWILL_ERR_MEMORY;
}

/* Free the block of a buffer whose pages are private again, or no longer those of the block. */
static void free_block(struct twill_context *context, struct twill_promotion *p)
{
    twill_context_give_shared(context, p->block, 0);
    p->block = NULL;
    p->from = p->to = NULL;
}

/* Get a block of the heap for the pages that a buffer touches, and set p->block and p->alias. The
 * buffer and its block are at the same offset in a huge page. Returns TWILL_OK or the error. */
static twill_status find_room(struct twill_context *context, struct twill_promotion *p,
                              struct twill_error *error)
{
    uintptr_t first = (uintptr_t)p->memory & -PAGE;
    size_t room = twill_round_up((uintptr_t)p->memory + p->bytes, PAGE) - first;
    size_t skip = room >= TWILL_HUGE_PAGE ? first % TWILL_HUGE_PAGE : 0;
    void *block = NULL;
    TWILL_TRY(error, twill_context_take_shared(context, &block, skip + room + PAGE, error));
    if (twill_heap_offset(&context->memory->heap, block, skip + room + PAGE) ==
        TWILL_HEAP_NOWHERE) {
        twill_context_give_shared(context, block, skip + room + PAGE);
        return TWILL_FAIL(error, TWILL_ERR_MEMORY,
                          "twill_promote: no room for %zu bytes: the %zu bytes that this rank "
                          "shares are full (TWILL_TUNE=heap_limit)",
                          p->bytes, context->memory->heap.bytes);
    }
    p->block = block;
    p->alias = (unsigned char *)twill_round_up((uintptr_t)block, PAGE) + skip +
               ((uintptr_t)p->from - first);
    return TWILL_OK;
}

/* Copy the pages to the block, and map the block's over them. A failed mremap() may have unmapped
 * them, so they are then mapped again. Returns TWILL_OK or the error. */
static twill_status move_pages(struct twill_promotion *p, struct twill_error *error)
{
    size_t bytes = (size_t)(p->to - p->from);
    twill_mapping_populate(p->alias, bytes);
    memcpy(p->alias, p->from, bytes);
    bool can_tell = !is_same_memory(p->from, p->alias);
    if (can_tell &&
        mremap(p->alias, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, p->from) == MAP_FAILED) {
        int cause = errno;
        (void)mmap(p->from, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                   -1, 0);
        memcpy(p->from, p->alias, bytes);
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "twill_promote: mremap of %zu bytes: %s", bytes,
                          strerror(cause));
    }
    if (!can_tell || !is_in_place(p)) {
        if (can_tell)
            (void)make_private(p->from, p->to, error);
        return TWILL_FAIL(error, TWILL_ERR_UNSUPPORTED,
                          "twill_promote: this kernel cannot tell whether memory is still mapped "
                          "(futex, FUTEX_CMP_REQUEUE_PI)");
    }
    (void)madvise(p->from, bytes, MADV_DONTFORK); /* a child would write to the parent's pages */
    (void)madvise(p->from, bytes, MADV_DODUMP);   /* the region is left out of core dumps */
    twill_mapping_populate(p->from, bytes);
    return TWILL_OK;
}

/* Move the whole pages of a buffer into the region, unless peers cannot map it or do already.
 * Returns TWILL_OK, or the error, after which nothing has moved. */
static twill_status move_buffer(struct twill_context *context, struct twill_promotion *p,
                                struct twill_error *error)
{
    const struct twill_heap *heap = &context->memory->heap;
    if (heap->region == NULL || heap->fenced ||
        twill_heap_offset(heap, p->memory, p->bytes) != TWILL_HEAP_NOWHERE)
        return TWILL_OK;
    p->from = (unsigned char *)twill_round_up((uintptr_t)p->memory, PAGE);
    p->to = p->memory + p->bytes - ((uintptr_t)p->memory + p->bytes) % PAGE;
    const char *why = NULL;
    if (p->bytes < TWILL_PROMOTED_LEAST)
        why = "it has less than 64 KiB";
    else if (is_own_stack(p->from, p->to))
        why = "it is a stack";
    else
        why = refuse_pages((uintptr_t)p->from, (uintptr_t)p->to);
    if (why != NULL)
        return TWILL_FAIL(error, TWILL_ERR_UNSUPPORTED, "twill_promote: %zu bytes at %p: %s",
                          p->bytes, (void *)p->memory, why);
    TWILL_TRY(error, find_room(context, p, error));
    twill_context_forget_memory(context, p->memory, p->bytes);
    twill_status status = move_pages(p, error);
    if (status != TWILL_OK)
        free_block(context, p);
    return status;
}

/* Add a buffer to the context's list. */
static void add_to_list(struct twill_context *context, struct twill_promotion *p)
{
    twill_context_lock(context);
    p->next = context->memory->promotions;
    context->memory->promotions = p;
    twill_context_unlock(context);
}

/* Count a further promotion of a buffer that is in the list. Returns false if it is not. */
static bool promote_again(struct twill_context *context, const void *memory, size_t bytes)
{
    twill_context_lock(context);
    struct twill_promotion *p = context->memory->promotions;
    while (p != NULL && (p->memory != memory || p->bytes != bytes))
        p = p->next;
    bool is = p != NULL && (p->from == NULL || is_in_place(p));
    if (is)
        p->again++;
    twill_context_unlock(context);
    return is;
}

/* Promote a buffer and add it to the list. Returns TWILL_OK or the error. */
static twill_status promote(struct twill_context *context, void *memory, size_t bytes,
                            struct twill_error *error)
{
    struct twill_promotion *p = calloc(1, sizeof(*p));
    if (p == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "twill_promote: out of memory");
    p->memory = memory;
    p->bytes = bytes;
    twill_status status = move_buffer(context, p, error);
    if (status != TWILL_OK) {
        free(p);
        return status;
    }
    add_to_list(context, p);
    if (p->block != NULL)
        atomic_fetch_add(&context->memory->promoted, 1);
    return TWILL_OK;
}

twill_status twill_promote(twill_context *context, void *memory, size_t bytes)
{
    struct twill_error error = {0};
    if (context == NULL || !context->ready)
        return TWILL_ERR_ARGUMENT;
    twill_status status =
        twill_context_check_memory(context, "twill_promote", memory, bytes, &error);
    if (status == TWILL_OK && !promote_again(context, memory, bytes))
        status = promote(context, memory, bytes, &error);
    return twill_context_outcome(context, status, &error);
}

/* Undo one promotion of the buffer at `memory` by the context or by one that it has replaced. If it
 * was the last, take the buffer out of the list, set *owner to that context, and return it. Sets
 * *found to whether there was one. */
static struct twill_promotion *take(struct twill_context *context, const void *memory,
                                    struct twill_context **owner, bool *found)
{
    struct twill_promotion *p = NULL;
    for (*found = false; context != NULL && !*found; context = context->older) {
        twill_context_lock(context);
        struct twill_promotion **at = &context->memory->promotions;
        while (*at != NULL && (*at)->memory != memory)
            at = &(*at)->next;
        *found = *at != NULL;
        if (*found && (*at)->again > 0) {
            (*at)->again--;
        } else if (*found) {
            p = *at;
            *at = p->next;
        }
        twill_context_unlock(context);
        *owner = context;
    }
    return p;
}

/* Make a buffer that is in no list private, and free it. If there is no memory for that, put it
 * back into the list. Returns TWILL_OK or the error. */
static twill_status demote(struct twill_context *context, struct twill_promotion *p,
                           struct twill_error *error)
{
    bool lost = p->from != NULL && !is_in_place(p);
    void *memory = p->memory;
    twill_context_forget_memory(context, memory, p->bytes);
    if (p->from != NULL && !lost && make_private(p->from, p->to, error) != TWILL_OK) {
        add_to_list(context, p);
        return error->status;
    }
    if (p->block != NULL)
        atomic_fetch_sub(&context->memory->promoted, 1);
    if (p->block != NULL && !lost) /* else the program may still use some of its pages */
        free_block(context, p);
    free(p);
    if (lost)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "twill_demote: the memory at %p was freed or replaced while it was "
                          "promoted",
                          memory);
    return TWILL_OK;
}

twill_status twill_demote(twill_context *context, void *memory)
{
    struct twill_error error = {0};
    struct twill_context *owner;
    if (context == NULL || !context->ready)
        return TWILL_ERR_ARGUMENT;
    twill_status status = twill_context_check_use(context, "twill_demote", &error);
    if (status == TWILL_OK) {
        bool found;
        struct twill_promotion *p = take(context, memory, &owner, &found);
        if (!found)
            status = TWILL_FAIL(&error, TWILL_ERR_ARGUMENT,
                                "twill_demote: nothing was promoted at %p", memory);
        else if (p != NULL)
            status = demote(owner, p, &error);
    }
    return twill_context_outcome(context, status, &error);
}

bool twill_promoted_find(struct twill_context *context, const void *memory, size_t bytes,
                         struct twill_promoted *found)
{
    const unsigned char *at = memory;
    twill_context_lock(context);
    struct twill_promotion *p = context->memory->promotions;
    while (p != NULL && (p->from == NULL || at < p->memory || bytes > p->bytes ||
                         at > p->memory + (p->bytes - bytes)))
        p = p->next;
    bool is = p != NULL && are_in_place(p, at, at + bytes);
    if (is) {
        found->at = p->alias + (at - p->from);
        found->head = at < p->from ? twill_min(bytes, (size_t)(p->from - at)) : 0;
        found->tail =
            at + bytes > p->to ? twill_min(bytes - found->head, (size_t)(at + bytes - p->to)) : 0;
    }
    twill_context_unlock(context);
    return is;
}

void twill_promoted_forget(struct twill_context *context)
{
    for (struct twill_promotion *p = context->memory->promotions; p != NULL; p = p->next)
        twill_context_forget_memory(context, p->memory, p->bytes);
}

twill_status twill_promoted_fence(struct twill_context *context, struct twill_error *error)
{
    for (struct twill_promotion *p = context->memory->promotions; p != NULL; p = p->next) {
        if (p->from != NULL && is_in_place(p))
            TWILL_TRY(error, make_private(p->from, p->to, error));
        p->from = p->to = NULL;
    }
    return TWILL_OK;
}

void twill_promoted_clear(struct twill_context *context)
{
    struct twill_error none = {0};
    (void)twill_promoted_fence(context, &none);
    while (context->memory->promotions != NULL) {
        struct twill_promotion *p = context->memory->promotions;
        context->memory->promotions = p->next;
        free(p);
    }
}
