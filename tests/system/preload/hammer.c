/* SPDX-License-Identifier: Apache-2.0 */
/* A rank whose malloc is libtwill-heap.so's: threads allocate, change and free blocks of all sizes
 * by every function there is, and check their contents, while the process forks. Prints "N blocks,
 * M of them shared" and exits with 0, or prints what is wrong and exits with 1. */
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <twill.h>
#include <unistd.h>

#include "lib/heap/malloc_interface.h"

enum { HAMMER_THREADS = 4, HAMMER_SLOTS = 48, FORKS = 12, MOMENTS = 200 };
#define LEAST            ((size_t)64 << 10)
#define HAMMER_FAIL(...) (fprintf(stderr, "hammer: " __VA_ARGS__), fputc('\n', stderr), _exit(1))

static const struct twill_preload_region *region;
static _Atomic long blocks, shared;
static _Atomic int running;

struct slot {
    unsigned char *at;
    size_t bytes;
    unsigned char mark;
};
static struct slot slots[HAMMER_SLOTS];
static pthread_mutex_t locks[HAMMER_SLOTS];

static int in_region(const void *at)
{
    return (uintptr_t)at - (uintptr_t)region->base < region->bytes;
}

static uint64_t draw_seed(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *seed >> 33;
}

/* Write bytes at both ends, and one of each page. */
static void fill_slot(const struct slot *slot)
{
    memset(slot->at, slot->mark, slot->bytes < 64 ? slot->bytes : 64);
    for (size_t i = 0; i < slot->bytes; i += 4096)
        slot->at[i] = slot->mark;
    slot->at[slot->bytes - 1] = slot->mark;
}

static void check_slot(const struct slot *slot, size_t bytes)
{
    for (size_t i = 0; i < bytes && i < 64; i++)
        if (slot->at[i] != slot->mark)
            HAMMER_FAIL("byte %zu of %zu at %p is %d, not %d", i, slot->bytes, (void *)slot->at,
                        slot->at[i], slot->mark);
    for (size_t i = 0; i < bytes; i += 4096)
        if (slot->at[i] != slot->mark)
            HAMMER_FAIL("byte %zu of %zu at %p is %d, not %d", i, slot->bytes, (void *)slot->at,
                        slot->at[i], slot->mark);
}

static void *get_block(size_t bytes, uint64_t *seed)
{
    size_t alignment = (size_t)64 << draw_seed(seed) % 10;
    void *at = NULL;
    switch (draw_seed(seed) % 7) {
    case 0:
        at = calloc(bytes / 8 + 1, 8);
        for (size_t i = 0; at != NULL && i < bytes; i++)
            if (((unsigned char *)at)[i] != 0)
                HAMMER_FAIL("byte %zu of calloc is not zero", i);
        return at;
    case 1:
        return posix_memalign(&at, alignment, bytes) == 0 && (uintptr_t)at % alignment == 0 ? at
                                                                                            : NULL;
    case 2:
        at = aligned_alloc(alignment, (bytes + alignment - 1) & ~(alignment - 1));
        return (uintptr_t)at % alignment == 0 ? at : NULL;
    case 3:
        at = memalign(alignment, bytes);
        return (uintptr_t)at % alignment == 0 ? at : NULL;
    case 4:
        return reallocarray(NULL, bytes / 4 + 1, 4);
    case 5:
        return bytes % 2 ? valloc(bytes) : pvalloc(bytes);
    default:
        return malloc(bytes);
    }
}

static void renew(struct slot *slot, uint64_t *seed)
{
    size_t bytes = 1 + draw_seed(seed) % ((size_t)1 << (4 + draw_seed(seed) % 18));
    slot->at = get_block(bytes, seed);
    if (slot->at == NULL)
        HAMMER_FAIL("no %zu bytes", bytes);
    if (malloc_usable_size(slot->at) < bytes)
        HAMMER_FAIL("%zu bytes, but only %zu are usable", bytes, malloc_usable_size(slot->at));
    if (bytes >= LEAST && !in_region(slot->at))
        HAMMER_FAIL("%zu bytes at %p are not shared", bytes, (void *)slot->at);
    blocks++;
    shared += in_region(slot->at);
    slot->bytes = bytes;
    slot->mark = (unsigned char)draw_seed(seed);
    fill_slot(slot);
}

static void change(struct slot *slot, uint64_t *seed)
{
    size_t bytes = 1 + draw_seed(seed) % ((size_t)1 << (4 + draw_seed(seed) % 18));
    void *moved = realloc(slot->at, bytes);
    if (moved == NULL)
        HAMMER_FAIL("realloc to %zu bytes", bytes);
    slot->at = moved;
    check_slot(slot, bytes < slot->bytes ? bytes : slot->bytes);
    slot->bytes = bytes;
    fill_slot(slot);
}

static void *hammer_thread(void *number)
{
    uint64_t seed = (uintptr_t)number;
    for (long i = 0; running || i < 20000; i++) {
        unsigned s = (unsigned)(draw_seed(&seed) % HAMMER_SLOTS);
        pthread_mutex_lock(&locks[s]); /* others free what this one takes */
        if (slots[s].at == NULL) {
            renew(&slots[s], &seed);
        } else if (draw_seed(&seed) % 3 == 0) {
            change(&slots[s], &seed);
        } else {
            check_slot(&slots[s], slots[s].bytes);
            errno = 77;
            free(slots[s].at);
            if (errno != 77)
                HAMMER_FAIL("free() changes errno");
            slots[s].at = NULL;
        }
        pthread_mutex_unlock(&locks[s]);
        if (i % 500 == 0) {
            void *library = dlopen("libutil.so.1", RTLD_NOW);
            if (library != NULL)
                dlclose(library);
        }
    }
    return NULL;
}

/* Write to a block so that the compiler cannot drop it. */
static void touch_block(unsigned char *block, size_t bytes)
{
    memset(block, 1, bytes);
    __asm__ volatile("" : : "r"(block) : "memory");
}

/* A child has its parent's data, its writes are private, and it can still allocate and free. */
static void fork_once(unsigned char *block, size_t bytes)
{
    memset(block, 42, bytes);
    pid_t child = fork();
    if (child == 0) {
        unsigned char *more = malloc(4 * LEAST), *moved = malloc(LEAST);
        if (block[0] != 42 || block[bytes - 1] != 42)
            HAMMER_FAIL("a child does not see what its parent wrote");
        memset(block, 43, bytes);
        if (more == NULL || in_region(more) || moved == NULL)
            HAMMER_FAIL("a child takes memory from its parent's peers");
        touch_block(more, 4 * LEAST);
        block = realloc(block, 2 * bytes);
        if (block == NULL || in_region(block) || block[bytes - 1] != 43)
            HAMMER_FAIL("realloc in a child");
        free(block);
        free(more);
        free(moved);
        _exit(0);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        HAMMER_FAIL("the child ended with status %x", child < 0 ? -1 : status);
    for (size_t i = 0; i < bytes; i++)
        if (block[i] != 42)
            HAMMER_FAIL("byte %zu was changed by a child", i);
}

/* Hold the region's lock as often as can be. */
static void *take_lock_on(void *unused)
{
    (void)unused;
    while (running) {
        void *block = malloc(LEAST);
        __asm__ volatile("" : : "r"(block) : "memory");
        free(block);
    }
    return NULL;
}

/* A child is forked at any moment, also while another thread holds the lock, and the blocks of that
 * moment are those of the child. */
static void fork_at_any_moment(void)
{
    pthread_t threads[HAMMER_THREADS];
    int status = 0;
    running = 1;
    for (int t = 0; t < HAMMER_THREADS; t++)
        if (pthread_create(&threads[t], NULL, take_lock_on, NULL) != 0)
            HAMMER_FAIL("no thread");
    for (int i = 0; i < MOMENTS && status == 0; i++) {
        unsigned char *block = malloc(LEAST);
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            if (malloc_usable_size(block) < LEAST)
                HAMMER_FAIL("a child does not know its parent's block");
            free(realloc(block, 3 * LEAST));
            _exit(0);
        }
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
            HAMMER_FAIL("child %d ended with status %x", i, child < 0 ? -1 : status);
        free(block);
    }
    running = 0;
    for (int t = 0; t < HAMMER_THREADS; t++)
        pthread_join(threads[t], NULL);
}

/* A library that holds a lock while it allocates, and takes it before a fork. */
static pthread_mutex_t library_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic enum { NOT, HAMMER_HELD, FORKING } library_is;

static void library_takes(void)
{
    pthread_mutex_lock(&library_lock);
}

static void library_gives(void)
{
    pthread_mutex_unlock(&library_lock);
}

static void fork_begins(void)
{
    if (library_is == HAMMER_HELD)
        library_is = FORKING;
}

static void *allocate_in_library(void *unused)
{
    (void)unused;
    library_takes();
    library_is = HAMMER_HELD;
    while (library_is != FORKING)
        usleep(100);
    usleep(50000); /* until the fork waits for the lock, or has all the locks that it can get */
    unsigned char *block = malloc(2 * LEAST);
    touch_block(block, 2 * LEAST);
    free(block);
    library_gives();
    return NULL;
}

/* Handlers before a fork run from the last registered to the first: ours must not keep a lock of
 * malloc while the library's waits for one whose holder allocates. */
static void fork_beside_library(void)
{
    pthread_t thread;
    int status;
    if (pthread_create(&thread, NULL, allocate_in_library, NULL) != 0)
        HAMMER_FAIL("no thread");
    while (library_is != HAMMER_HELD)
        usleep(100);
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        HAMMER_FAIL("no fork beside a library that allocates");
    pthread_join(thread, NULL);
}

static long shared_kib(void)
{
    char line[128];
    long kib = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        sscanf(line, "RssShmem: %ld", &kib);
    if (file != NULL)
        fclose(file);
    return kib;
}

/* A warm block causes no page fault, and freed memory does not stay for good. */
static void check_memory(void)
{
    struct rusage before, after;
    size_t bytes = (size_t)8 << 20;
    for (int i = 0; i < 100; i++) {
        unsigned char *block = malloc(bytes);
        touch_block(block, bytes);
        free(block);
        if (i == 0)
            getrusage(RUSAGE_SELF, &before);
    }
    getrusage(RUSAGE_SELF, &after);
    if (after.ru_minflt - before.ru_minflt > 2000)
        HAMMER_FAIL("%ld page faults in a block that is warm", after.ru_minflt - before.ru_minflt);
    long least = shared_kib();
    unsigned char *large = malloc(20 * bytes);
    if (!in_region(large))
        HAMMER_FAIL("%zu bytes are not shared", 20 * bytes);
    touch_block(large, 20 * bytes);
    long most = shared_kib();
    free(large);
    if (most - least < 100 << 10 || shared_kib() > least + (20 << 10))
        HAMMER_FAIL("%ld KiB before, %ld with a large block, %ld after it", least, most,
                    shared_kib());
}

static void run_threads(void)
{
    pthread_t threads[HAMMER_THREADS];
    size_t bytes = 3 * LEAST;
    unsigned char *block = malloc(bytes);
    for (int s = 0; s < HAMMER_SLOTS; s++)
        pthread_mutex_init(&locks[s], NULL);
    running = 1;
    for (uintptr_t t = 0; t < HAMMER_THREADS; t++)
        if (pthread_create(&threads[t], NULL, hammer_thread, (void *)(t + 1)) != 0)
            HAMMER_FAIL("no thread");
    for (int i = 0; i < FORKS; i++)
        fork_once(block, bytes);
    if (WEXITSTATUS(system("exit 3")) != 3)
        HAMMER_FAIL("no shell");
    running = 0;
    for (int t = 0; t < HAMMER_THREADS; t++)
        pthread_join(threads[t], NULL);
    for (int s = 0; s < HAMMER_SLOTS; s++) {
        if (slots[s].at != NULL)
            check_slot(&slots[s], slots[s].bytes);
        free(slots[s].at);
    }
    free(block);
}

int main(void)
{
    twill_context *context;
    twill_comm *comm;
    alarm(200); /* a fork that waits for ever is a fault */
    pthread_atfork(library_takes, library_gives, library_gives);
    void *early = malloc(4 * LEAST); /* before there is a context: not shared, but valid */
    const struct twill_preload *library = dlsym(RTLD_DEFAULT, TWILL_PRELOAD_SYMBOL);
    if (library == NULL || library->region() != NULL)
        HAMMER_FAIL("the library is not loaded, or has a region before there is a context");
    if (twill_context_create(&context, NULL, NULL) != TWILL_OK ||
        twill_comm_create(&comm, context) != TWILL_OK)
        HAMMER_FAIL("%s", twill_context_message(context));
    region = library->region();
    if (region == NULL || in_region(early))
        HAMMER_FAIL("no region");
    pthread_atfork(fork_begins, NULL, NULL);
    early = realloc(early, 8 * LEAST);
    if (!in_region(early))
        HAMMER_FAIL("realloc leaves a large block where it was");
    fork_beside_library();
    run_threads();
    fork_at_any_moment();
    check_memory();
    if (twill_barrier(comm) != TWILL_OK)
        HAMMER_FAIL("%s", twill_comm_message(comm));
    twill_comm_destroy(comm);
    twill_context_destroy(context);
    void *late = malloc(4 * LEAST);
    if (in_region(late))
        HAMMER_FAIL("memory is shared after the last context");
    free(late);
    free(early);
    printf("%ld blocks, %ld of them shared\n", blocks, shared);
    return 0;
}
