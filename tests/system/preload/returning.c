/* SPDX-License-Identifier: Apache-2.0 */
/* A rank with TWILL_HEAP=promote: calls with a buffer that comes back share its pages, until it is
 * freed, resized or unmapped. Prints "all right" and exits with 0, or says what is wrong. */
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <twill.h>
#include <unistd.h>

#define MIB             ((size_t)1 << 20)
#define RETURNING_CALLS 6
#define WRONG(...)      (fprintf(stderr, "returning: " __VA_ARGS__), fputc('\n', stderr), _exit(1))

static twill_comm *comm;

/* Return whether the middle of a buffer is a shared mapping. */
static bool is_shared(const void *buffer, size_t bytes)
{
    unsigned long at = (unsigned long)buffer + bytes / 2, from, to;
    char line[512], access[5] = "";
    FILE *maps = fopen("/proc/self/maps", "re");
    bool found = false;
    while (maps != NULL && !found && fgets(line, sizeof(line), maps) != NULL)
        found = sscanf(line, "%lx-%lx %4s", &from, &to, access) == 3 && at >= from && at < to;
    if (!found)
        WRONG("no mapping of %p", buffer);
    fclose(maps);
    return access[3] == 's';
}

static void must_be(bool shared, const void *buffer, size_t bytes, const char *when)
{
    if (is_shared(buffer, bytes) != shared)
        WRONG("%zu bytes are %s %s", bytes, shared ? "private" : "shared", when);
}

static void fill(int *at, size_t bytes, int mark)
{
    for (size_t i = 0; i < bytes / sizeof(int); i++)
        at[i] = mark + (int)i;
}

static void check(const int *at, size_t bytes, int mark, int factor, const char *when)
{
    for (size_t i = 0; i < bytes / sizeof(int); i++)
        if (at[i] != (mark + (int)i) * factor)
            WRONG("element %zu is %d %s", i, at[i], when);
}

/* Sum a buffer in place several times, and check each sum. */
static void call(void *buffer, size_t bytes, const char *when)
{
    for (int i = 0; i < RETURNING_CALLS; i++) {
        fill(buffer, bytes, i);
        if (twill_allreduce(comm, buffer, buffer, bytes / sizeof(int), TWILL_I32, TWILL_SUM) !=
            TWILL_OK)
            WRONG("%s", twill_comm_message(comm));
        check(buffer, bytes, i, twill_comm_size(comm), when);
    }
    must_be(true, buffer, bytes, when);
}

/* A block of malloc that is resized and freed, at the end of the heap or with a mapping. */
static void use_blocks(const char *which)
{
    char *block = malloc(4 * MIB);
    call(block + 1024, 3 * MIB, which);
    fill((int *)block, 4 * MIB, 7);
    block = realloc(block, 9 * MIB);
    must_be(false, block, 4 * MIB, "after realloc");
    check((int *)block, 4 * MIB, 7, 1, "after realloc");
    call(block, 9 * MIB, "once it has grown");
    free(block);
    char *next = malloc(9 * MIB);
    memset(next, 1, 9 * MIB);
    must_be(false, next, 9 * MIB, "in a new block");
    call(next, 9 * MIB, "in the new block");
    free(next);
}

/* A block that a second context uses, too, which cannot promote it again. */
static void use_another(twill_context *context)
{
    twill_context *other;
    twill_comm *first = comm;
    char *block = malloc(5 * MIB);
    call(block, 5 * MIB, "of the first context");
    if (twill_context_create(&other, NULL, NULL) != TWILL_OK ||
        twill_comm_create(&comm, other) != TWILL_OK)
        WRONG("%s", twill_context_message(context));
    call(block, 5 * MIB, "of a second context");
    free(block);
    twill_comm_destroy(comm);
    twill_context_destroy(other);
    comm = first;
    block = malloc(5 * MIB);
    memset(block, 1, 5 * MIB);
    must_be(false, block, 5 * MIB, "after two contexts");
    free(block);
}

/* A mapping of the program, which moves. */
static void use_mappings(void)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    void *at = mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, flags, -1, 0);
    call(at, 2 * MIB, "in a mapping");
    fill(at, 2 * MIB, 3);
    at = mremap(at, 2 * MIB, 8 * MIB, MREMAP_MAYMOVE);
    if (at == MAP_FAILED)
        WRONG("mremap failed");
    must_be(false, at, 2 * MIB, "after mremap");
    check(at, 2 * MIB, 3, 1, "after mremap");
    call(at, 8 * MIB, "in the longer mapping");
    if (munmap(at, 8 * MIB) != 0)
        WRONG("munmap failed");
}

/* A child has its own copy, and may free it. */
static void use_child(void)
{
    int *block = malloc(2 * MIB), status;
    call(block, 2 * MIB, "before a fork");
    fill(block, 2 * MIB, 1);
    pid_t child = fork();
    if (child == 0) {
        check(block, 2 * MIB, 1, 1, "in the child");
        memset(block, 0, 2 * MIB);
        free(block);
        _exit(0);
    }
    if (waitpid(child, &status, 0) != child || status != 0)
        WRONG("the child ended with %d", status);
    check(block, 2 * MIB, 1, 1, "after the child's end");
    call(block, 2 * MIB, "after a fork");
    free(block);
}

/* Allocate, resize and free blocks, as other threads do while calls run. */
static void *hammer(void *stop)
{
    for (int mark = 0; !*(_Atomic bool *)stop; mark++) {
        int *block = malloc(2 * MIB);
        fill(block, 2 * MIB, mark);
        block = realloc(block, 3 * MIB);
        check(block, 2 * MIB, mark, 1, "in another thread");
        free(block);
        usleep(1000);
    }
    return NULL;
}

int main(void)
{
    twill_context *context;
    _Atomic bool stop = false;
    pthread_t thread;
    if (twill_context_create(&context, NULL, NULL) != TWILL_OK ||
        twill_comm_create(&comm, context) != TWILL_OK)
        WRONG("%s", twill_context_message(context));
    if (pthread_create(&thread, NULL, hammer, &stop) != 0)
        WRONG("no thread");
    use_blocks("in a mapping of malloc");
    use_mappings();
    use_child();
    mallopt(M_MMAP_THRESHOLD, (int)(64 * MIB));
    mallopt(M_TRIM_THRESHOLD, (int)(256 * MIB));
    use_blocks("at the end of the heap");
    use_another(context);
    for (int i = 0; i < 70; i++) { /* more than are noted */
        void *block = malloc(MIB + (size_t)i * 4096);
        call(block, MIB + (size_t)i * 4096, "in one of many");
        free(block);
    }
    void *kept = malloc(5 * MIB);
    call(kept, 5 * MIB, "in the last block");
    stop = true;
    pthread_join(thread, NULL);
    twill_comm_destroy(comm);
    twill_context_destroy(context);
    check(kept, 5 * MIB, RETURNING_CALLS - 1, 2, "after the context's end");
    must_be(false, kept, 5 * MIB, "after the context's end");
    free(kept);
    puts("all right");
    return 0;
}
