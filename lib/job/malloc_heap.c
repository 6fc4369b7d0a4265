/* SPDX-License-Identifier: Apache-2.0 */
/* Finds or creates the region that malloc() is served from, or has its blocks watched. See
 * lib/job/heap.h. */
#include "lib/heap/malloc_interface.h"
#include "lib/job/heap.h"

#include "fabric/shm/mapping.h"
#include "lib/base/plural.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LEAST_BYTES    ((size_t)64 << 10) /* smallest block served, by default */
#define PROMOTES_BYTES ((size_t)1 << 20)  /* smallest buffer promoted, by default */

/* Return the reason for an outcome, with the remedy, for messages. */
static const char *text_of(enum twill_preloaded_outcome outcome)
{
    static const char *const texts[TWILL_PRELOADED_OUTCOMES] = {
        [TWILL_PRELOADED_OFF] = "it is not requested",
        [TWILL_PRELOADED_PROMOTES] = "calls promote buffers that come back",
        [TWILL_PRELOADED_READY] = "it is in use",
        [TWILL_PRELOADED_ABSENT] = TWILL_PRELOAD_LIBRARY
        " is not loaded (start with LD_PRELOAD=" TWILL_PRELOAD_LIBRARY ", or by twillrun)",
        [TWILL_PRELOADED_VERSION] = TWILL_PRELOAD_LIBRARY " is of another version of twill",
        [TWILL_PRELOADED_CHILD] = "this process was forked from one that has a context",
        [TWILL_PRELOADED_SMALL] =
            "the first context of this process shares less memory (TWILL_TUNE=heap_limit)",
        [TWILL_PRELOADED_MEMORY] =
            "no memory to share is left: TWILL_TUNE=heap_limit, memfd_create, ulimit -f, -v",
    };
    return texts[outcome];
}

/* Parse "off", "shared[:BYTES]" or "promote[:BYTES]" into preloaded->least, 0 for off, and
 * *promotes. Else return TWILL_ERR_CONFIG. */
static twill_status parse_preloaded(struct twill_preloaded *preloaded, const char *text,
                                    bool *promotes, struct twill_error *error)
{
    bool shared = strncmp(text, "shared", 6) == 0, promote = strncmp(text, "promote", 7) == 0;
    const char *end = text + (shared ? 6 : promote ? 7 : 0);
    int64_t bytes = shared ? LEAST_BYTES : PROMOTES_BYTES;
    bool good = shared || promote
                    ? *end == '\0' || (*end == ':' && twill_read_integer(end + 1, true, &bytes))
                    : strcmp(text, "off") == 0;
    if (!good || bytes < 1)
        return TWILL_FAIL(error, TWILL_ERR_CONFIG,
                          "TWILL_HEAP=%s: must be off, shared, shared:BYTES, promote or "
                          "promote:BYTES (K, M, G, T allowed)",
                          text);
    preloaded->least = shared || promote ? (size_t)bytes : 0;
    *promotes = promote;
    return TWILL_OK;
}

/* Return this process's region, creating it if there is none, or NULL and the reason in *why. */
static const struct twill_preload_region *region_of(const struct twill_preload *library,
                                                    size_t bytes, enum twill_preloaded_outcome *why)
{
    struct twill_preload_region mine = {.fd = -1};
    const struct twill_preload_region *region = library->region();
    *why = TWILL_PRELOADED_MEMORY;
    if (region != NULL)
        return region;
    if (twill_mapping_file(&mine.fd, TWILL_MAPPING_HEAP, bytes) != TWILL_SHARE_FINE)
        return NULL;
    struct twill_mapping *mapping = twill_mapping_create(mine.fd, bytes);
    if (mapping == NULL) {
        close(mine.fd);
        return NULL;
    }
    mine.mapping = mapping;
    mine.base = mapping->at;
    mine.bytes = bytes;
    (void)madvise(mine.base, bytes, MADV_HUGEPAGE); /* if the kernel has them for shared memory */
    region = library->offer(&mine);
    if (region == NULL || region->base != mine.base) { /* another thread was first */
        twill_mapping_drop(mapping, TWILL_MAPPING_USERS_UNKNOWN);
        close(mine.fd);
    }
    if (region == NULL)
        *why = TWILL_PRELOADED_CHILD;
    return region;
}

/* Set *library if the malloc library is loaded in this version. Returns `fine`, or why not. */
static enum twill_preloaded_outcome find_preloaded(const struct twill_preload **library,
                                                   enum twill_preloaded_outcome fine)
{
    const struct twill_preload *found = dlsym(RTLD_DEFAULT, TWILL_PRELOAD_SYMBOL);
    if (found == NULL)
        return TWILL_PRELOADED_ABSENT;
    if (found->version != TWILL_PRELOAD_VERSION)
        return TWILL_PRELOADED_VERSION;
    *library = found;
    return fine;
}

/* Find or create this process's region, and allocate preloaded->token in it. Set preloaded->given
 * to what other ranks need to map it. Returns READY, CHILD if the process was forked, or MEMORY
 * without memory. Returns SMALL, without a token, if the region has fewer than `bytes` bytes. */
static enum twill_preloaded_outcome make_preloaded(struct twill_preloaded *preloaded, size_t bytes)
{
    enum twill_preloaded_outcome why;
    const struct twill_preload *library = preloaded->library;
    const struct twill_preload_region *region = region_of(library, bytes, &why);
    if (region == NULL)
        return why;
    if (region->bytes < bytes)
        return TWILL_PRELOADED_SMALL;
    preloaded->token = library->alloc(sizeof(uint64_t), sizeof(uint64_t));
    if (preloaded->token == NULL)
        return TWILL_PRELOADED_MEMORY;
    size_t at = (size_t)((unsigned char *)preloaded->token - region->base);
    preloaded->given = (struct twill_shm_region_given){
        .fd = region->fd, .mapping = region->mapping, .token_at = at};
    return at < bytes ? TWILL_PRELOADED_READY
                      : TWILL_PRELOADED_MEMORY; /* the first bytes are full */
}

twill_status twill_preloaded_open(struct twill_preloaded *preloaded, const char *setting,
                                  struct twill_error *error)
{
    bool promotes = false;
    TWILL_TRY(error, parse_preloaded(preloaded, setting, &promotes, error));
    if (promotes)
        preloaded->outcome = find_preloaded(&preloaded->watched, TWILL_PRELOADED_PROMOTES);
    else if (preloaded->least > 0)
        preloaded->outcome = find_preloaded(&preloaded->library, TWILL_PRELOADED_READY);
    return TWILL_OK;
}

void twill_preloaded_make(struct twill_preloaded *preloaded, size_t bytes)
{
    if (preloaded->library == NULL)
        return;
    enum twill_preloaded_outcome outcome = make_preloaded(preloaded, bytes);
    if (outcome != TWILL_PRELOADED_READY)
        twill_preloaded_close(preloaded);
    preloaded->outcome = outcome;
}

void twill_preloaded_begin(struct twill_preloaded *preloaded, size_t kept, uint32_t ranks)
{
    if (preloaded->watched != NULL && ranks > 1 && twill_promoted_watch(preloaded))
        preloaded->promotes = preloaded->least;
    preloaded->serving = preloaded->token != NULL && ranks > 1;
    if (preloaded->serving)
        preloaded->library->serve(preloaded->least, kept);
}

void twill_preloaded_warn(const struct twill_preloaded *preloaded, const struct twill_log *log,
                          int ineffective, bool mcdram)
{
    if (ineffective > 0)
        twill_say(log, TWILL_LOG_WARN,
                  "TWILL_HEAP does nothing on %d rank%s, of which this is the first: %s",
                  ineffective, TWILL_PLURAL(ineffective), text_of(preloaded->outcome));
    if (mcdram && preloaded->token != NULL)
        twill_say(
            log, TWILL_LOG_WARN,
            "TWILL_HEAP=shared: TWILL_MEMORY has no effect, memory is placed where it is first "
            "touched");
}

void twill_preloaded_close(struct twill_preloaded *preloaded)
{
    if (preloaded->promotes > 0)
        twill_promoted_unwatch(preloaded);
    preloaded->promotes = 0;
    if (preloaded->library == NULL)
        return;
    if (preloaded->serving)
        preloaded->library->stop();
    if (preloaded->token != NULL)
        preloaded->library->release(preloaded->token);
    *preloaded = (struct twill_preloaded){.outcome = TWILL_PRELOADED_OFF};
}
