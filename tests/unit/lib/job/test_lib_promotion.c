/* SPDX-License-Identifier: Apache-2.0 */
/* twill_promote() and twill_demote(): contents, neighbours on the same page, what is refused,
 * forked children, parts of a buffer, and memory that is freed while it is promoted.
 * test_lib_mapped.c has all collectives on promoted memory. */
#include "lib/job/context.h"
#include "tests/support/unit.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 64, BYTES = PAGES * PAGE };
#define SETTINGS TWILL_TEST_PATIENT, "TWILL_TUNE=heap_limit=16M"

/* Return new private memory of one page more than BYTES. */
static unsigned char *new_pages(void)
{
    unsigned char *pages =
        mmap(NULL, BYTES + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; pages != MAP_FAILED && i < BYTES + PAGE; i++)
        pages[i] = (unsigned char)(i % 251);
    return pages;
}

/* Return whether new_pages() has its first contents, where `added` is added between two offsets. */
static bool has_contents(const unsigned char *pages, size_t from, size_t to, unsigned added)
{
    for (size_t i = 0; i < BYTES + PAGE; i++)
        if (pages[i] != (unsigned char)(i % 251 + (i >= from && i < to ? added : 0)))
            return TWILL_NOTE(false, "byte %zu is %u", i, pages[i]);
    return true;
}

/* The page of address `at` is shared memory, as /proc/self/maps says. */
static bool is_shared(const void *at)
{
    char line[600], access[5];
    unsigned long begin, end;
    bool is = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL)
        if (sscanf(line, "%lx-%lx %4s", &begin, &end, access) == 3 && (uintptr_t)at >= begin &&
            (uintptr_t)at < end)
            is = access[3] == 's';
    if (maps != NULL)
        fclose(maps);
    return is;
}

/* Sum bytes of all ranks, which have the same, in place. */
static bool double_bytes(twill_comm *comm, unsigned char *at, size_t bytes)
{
    return TWILL_NOTE(twill_allreduce(comm, at, at, bytes, TWILL_U8, TWILL_SUM) == TWILL_OK, "%s",
                      twill_comm_message(comm));
}

static const struct {
    size_t skip, bytes;
} buffers[] = {{0, BYTES}, {8, BYTES}, {4000, BYTES - 5000}, {1, BYTES + PAGE - 2}};

/* Only whole pages move. A call on the buffer, or on a part, changes nothing else on its pages. */
TWILL_TEST_CASES(keeps_contents, ranks, buffers, "2", SETTINGS)
{
    twill_context *context = twill_comm_context(comm);
    unsigned char *pages = new_pages(), *at = pages + c->skip;
    size_t end = c->skip + c->bytes;
    TWILL_CHECK(pages != MAP_FAILED && twill_promote(context, at, c->bytes) == TWILL_OK, "%s",
                twill_context_message(context));
    TWILL_CHECK(has_contents(pages, 0, 0, 0));
    TWILL_CHECK(is_shared(pages) == (c->skip == 0) && is_shared(pages + PAGE) &&
                is_shared(pages + end - 1) == (end % PAGE == 0) && !is_shared(pages + BYTES));
    for (size_t i = 0; i < c->bytes; i++)
        at[i] = (unsigned char)(rank == 0 ? 5 : (c->skip + i) % 251);
    TWILL_CHECK(double_bytes(comm, at, c->bytes));
    TWILL_CHECK(has_contents(pages, c->skip, end, 5));
    for (size_t i = 0; i < c->bytes; i++)
        at[i] = (unsigned char)((rank == 0 ? 0 : (c->skip + i) % 251));
    TWILL_CHECK(double_bytes(comm, at, 70001) && double_bytes(comm, at + 70001, c->bytes - 70001));
    TWILL_CHECK(has_contents(pages, 0, 0, 0));
    TWILL_CHECK(twill_demote(context, at) == TWILL_OK && !is_shared(pages + PAGE));
    TWILL_CHECK(has_contents(pages, 0, 0, 0));
    TWILL_CHECK(twill_demote(context, at) == TWILL_ERR_ARGUMENT &&
                TWILL_SAYS(twill_context_message(context), "nothing was promoted"));
    munmap(pages, BYTES + PAGE);
}

/* Two buffers that meet within a page, by requests of each form, and one that its context ends. */
TWILL_TEST_ON(several_buffers, ranks, TWILL_LAYOUTS("2", "2x1"), SETTINGS)
{
    twill_context *context = twill_comm_context(comm);
    unsigned char *pages = new_pages();
    const size_t middle = 100000;
    twill_request *request[2];
    TWILL_CHECK(twill_promote(context, pages, middle) == TWILL_OK &&
                twill_promote(context, pages + middle, BYTES - middle) == TWILL_OK);
    for (size_t i = 0; rank == 0 && i < BYTES; i++)
        pages[i] = 1;
    TWILL_CHECK(twill_allreduce_start(comm, pages, pages, middle, TWILL_U8, TWILL_SUM,
                                      &request[0]) == TWILL_OK &&
                twill_allreduce_start(comm, pages + middle, pages + middle, BYTES - middle,
                                      TWILL_U8, TWILL_SUM, &request[1]) == TWILL_OK &&
                twill_wait_all(2, request) == TWILL_OK);
    TWILL_CHECK(has_contents(pages, 0, BYTES, 1));
    for (size_t i = 0; i < BYTES; i++)
        pages[i] = (unsigned char)(rank == 0 ? 0 : pages[i] - 1);
    TWILL_CHECK(twill_group_start(comm) == TWILL_OK && double_bytes(comm, pages, middle) &&
                double_bytes(comm, pages + middle, BYTES - middle) &&
                twill_group_end(comm) == TWILL_OK);
    TWILL_CHECK(has_contents(pages, 0, 0, 0));
    TWILL_CHECK(twill_demote(context, pages) == TWILL_OK && has_contents(pages, 0, 0, 0));
}

/* Return the exit status of a child which has what the pages had at the fork, also after its parent
 * has changed them, and whose own stores stay its own. The child also forks. */
static int run_child(twill_context *context, unsigned char *pages)
{
    int go[2], status = 1;
    char byte = 0;
    TWILL_REQUIRE(pipe(go) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        bool fine = read(go[0], &byte, 1) == 1 && has_contents(pages, 0, 0, 0) &&
                    twill_demote(context, pages + 8) == TWILL_ERR_FORKED &&
                    !is_shared(pages + PAGE);
        memset(pages, 7, BYTES + PAGE);
        pid_t second = fork();
        if (second == 0)
            _exit(pages[0] == 7 && pages[PAGE] == 7 ? 3 : 4);
        fine = fine && waitpid(second, &status, 0) == second && WEXITSTATUS(status) == 3;
        munmap(pages, BYTES + PAGE);
        _exit(fine ? 0 : 1);
    }
    memset(pages + PAGE, 99, 2 * PAGE);
    TWILL_REQUIRE(pid > 0 && write(go[1], &byte, 1) == 1 && waitpid(pid, &status, 0) == pid);
    close(go[0]);
    close(go[1]);
    TWILL_REQUIRE(pages[PAGE] == 99 && pages[3 * PAGE - 1] == 99 && is_shared(pages + PAGE));
    for (size_t i = PAGE; i < 3 * PAGE; i++)
        pages[i] = (unsigned char)(i % 251);
    return status;
}

/* Children have copies, which the first call after the fork no longer keeps for more of them. */
TWILL_TEST_ON(children, processes, TWILL_LAYOUTS("2"), SETTINGS)
{
    twill_context *context = twill_comm_context(comm);
    unsigned char *pages = new_pages();
    TWILL_CHECK(twill_promote(context, pages + 8, BYTES) == TWILL_OK);
    for (int round = 0; round < 4; round++) {
        TWILL_CHECK(run_child(context, pages) == 0);
        TWILL_CHECK(has_contents(pages, 0, 0, 0));
        for (size_t i = 0; round == 1 && i < BYTES; i++)
            pages[i + 8] = (unsigned char)(rank == 0 ? 0 : pages[i + 8]);
        TWILL_CHECK(round != 1 || double_bytes(comm, pages + 8, BYTES));
    }
    TWILL_CHECK(twill_demote(context, pages + 8) == TWILL_OK && has_contents(pages, 0, 0, 0));
    munmap(pages, BYTES + PAGE);
}

/* A buffer that is part of another one outlives that one's promotion. */
TWILL_TEST_ON(part_of_another, ranks, TWILL_LAYOUTS("2"), SETTINGS)
{
    twill_context *context = twill_comm_context(comm);
    unsigned char *pages = new_pages(), *part = pages + 8 * PAGE + 8;
    const size_t bytes = 40 * PAGE;
    TWILL_CHECK(twill_promote(context, pages, BYTES) == TWILL_OK &&
                twill_promote(context, part, bytes) == TWILL_OK &&
                twill_promote(context, pages, bytes) == TWILL_OK);
    twill_request *request = NULL;
    TWILL_CHECK(twill_allreduce_init(comm, part, part, bytes, TWILL_U8, TWILL_SUM, &request) ==
                TWILL_OK);
    TWILL_CHECK(twill_demote(context, pages) == TWILL_OK && is_shared(pages) &&
                twill_demote(context, pages) == TWILL_OK && is_shared(pages));
    memset(part, rank + 1, bytes);
    TWILL_CHECK(twill_request_start(request) == TWILL_OK && twill_wait(&request) == TWILL_OK);
    TWILL_CHECK(part[0] == 3 && part[bytes - 1] == 3 && part[bytes] == (48 * PAGE + 8) % 251);
    twill_request_free(&request);
    TWILL_CHECK(twill_demote(context, pages) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_demote(context, part) == TWILL_OK && !is_shared(pages) && !is_shared(part));
    TWILL_CHECK(part[0] == 3 && pages[1] == 1);
    munmap(pages, BYTES + PAGE);
}

/* Memory that is freed while it is promoted. New memory there is not taken for it. */
TWILL_TEST_ON(freed, ranks, TWILL_LAYOUTS("2"), SETTINGS)
{
    twill_context *context = twill_comm_context(comm);
    for (int kept = 0; kept < 2; kept++) {
        unsigned char *pages = new_pages();
        TWILL_CHECK(twill_promote(context, pages, BYTES) == TWILL_OK);
        if (!kept || rank == 0)
            TWILL_CHECK(mmap(pages, BYTES, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == pages);
        memset(pages, rank + 1, BYTES);
        TWILL_CHECK(double_bytes(comm, pages, BYTES));
        for (size_t i = 0; i < BYTES; i++)
            TWILL_CHECK(pages[i] == 3, "byte %zu is %u", i, pages[i]);
        twill_status status = twill_demote(context, pages);
        TWILL_CHECK(status == (kept && rank == 1 ? TWILL_OK : TWILL_ERR_ARGUMENT));
        TWILL_CHECK(status == TWILL_OK ||
                    TWILL_SAYS(twill_context_message(context), "while it was promoted"));
        for (size_t i = 0; i < BYTES; i++)
            TWILL_CHECK(pages[i] == 3, "byte %zu is %u", i, pages[i]);
        munmap(pages, BYTES + PAGE);
    }
}

/* Memory of which only some pages are freed while it is promoted. A call on new memory in the
 * middle does not use the old pages, and what the program keeps is not given to others. */
TWILL_TEST_ON(partly_freed, ranks, TWILL_LAYOUTS("2"), SETTINGS)
{
    twill_context *context = twill_comm_context(comm);
    unsigned char *pages = new_pages(), *middle = pages + 16 * PAGE, *other = NULL;
    TWILL_CHECK(twill_promote(context, pages, BYTES) == TWILL_OK);
    TWILL_CHECK(mmap(middle, 16 * PAGE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == middle);
    memset(middle, rank + 1, 16 * PAGE);
    TWILL_CHECK(double_bytes(comm, middle, 16 * PAGE));
    TWILL_CHECK(middle[0] == 3 && middle[16 * PAGE - 1] == 3, "%u", middle[0]);
    munmap(pages + BYTES - PAGE, 2 * PAGE); /* as a realloc() to less does */
    pages[0] = 77;
    TWILL_CHECK(twill_demote(context, pages) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_alloc(context, (void **)&other, BYTES) == TWILL_OK);
    memset(other, 5, BYTES);
    TWILL_CHECK(pages[0] == 77 && twill_free(context, other) == TWILL_OK);
    munmap(pages, BYTES - PAGE);
}

/* Return whether memory is refused with this text. */
static bool is_refused(twill_context *context, void *memory, size_t bytes, const char *says)
{
    TWILL_REQUIRE(twill_promote(context, memory, bytes) == TWILL_ERR_UNSUPPORTED, "%s", says);
    return TWILL_SAYS(twill_context_message(context), says);
}

TWILL_TEST_ON(refused, ranks, TWILL_LAYOUTS("2"), SETTINGS)
{
    twill_context *context = twill_comm_context(comm);
    unsigned char stack[2 * (64 << 10)], *pages = new_pages();
    stack[0] = stack[sizeof(stack) - 1] = 0;
    TWILL_CHECK(is_refused(context, pages, (64 << 10) - 1, "less than 64 KiB"));
    TWILL_CHECK(is_refused(context, stack, sizeof(stack), "a stack"));
    TWILL_CHECK(twill_promote(context, NULL, BYTES) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_promote(context, pages, 0) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_promote(NULL, pages, BYTES) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_promote(context, pages, BYTES) == TWILL_OK);
    TWILL_CHECK(is_refused(context, pages + 1, BYTES, "shared memory already"));
    TWILL_CHECK(twill_promote(context, pages, BYTES) == TWILL_OK &&
                twill_demote(context, pages) == TWILL_OK && is_shared(pages) &&
                twill_demote(context, pages) == TWILL_OK && !is_shared(pages));
    TWILL_CHECK(mprotect(pages + 5 * PAGE, PAGE, PROT_READ) == 0);
    TWILL_CHECK(is_refused(context, pages, BYTES, "cannot be read and written"));
    munmap(pages + 5 * PAGE, PAGE);
    TWILL_CHECK(is_refused(context, pages, BYTES, "not mapped"));
    munmap(pages, BYTES + PAGE);
    int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    void *mapped = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    TWILL_CHECK(mapped != MAP_FAILED && is_refused(context, mapped, BYTES, "mapping of a file"));
    munmap(mapped, BYTES);
    close(file);
    void *own = NULL; /* peers map it already, and it stays as it is */
    TWILL_CHECK(twill_alloc(context, &own, BYTES) == TWILL_OK &&
                twill_promote(context, own, BYTES) == TWILL_OK &&
                twill_demote(context, own) == TWILL_OK && twill_free(context, own) == TWILL_OK);
    unsigned char *large = calloc(1, (size_t)32 << 20);
    TWILL_CHECK(twill_promote(context, large, (size_t)32 << 20) == TWILL_ERR_MEMORY &&
                TWILL_SAYS(twill_context_message(context), "TWILL_TUNE=heap_limit"));
    large[0] = 1;
    free(large);
}

TWILL_TEST_ON(alone, ranks, TWILL_LAYOUTS("1", "1x1"), SETTINGS)
{
    unsigned char *pages = new_pages();
    TWILL_CHECK(twill_promote(twill_comm_context(comm), pages, BYTES) == TWILL_OK);
    TWILL_CHECK(!is_shared(pages) && double_bytes(comm, pages, BYTES / (size_t)size));
    TWILL_CHECK(twill_demote(twill_comm_context(comm), pages) == TWILL_OK);
    munmap(pages, BYTES + PAGE);
}

/* A persistent call continues on its buffers after a recovery has made them private. */
TWILL_TEST_ON(fenced_under_a_request, ranks, TWILL_LAYOUTS("2"), SETTINGS)
{
    twill_context *context = twill_comm_context(comm);
    struct twill_error error = {0};
    unsigned char *buffer[2] = {new_pages()};
    twill_request *request[2];
    TWILL_CHECK(twill_promote(context, buffer[0], BYTES) == TWILL_OK &&
                twill_alloc(context, (void **)&buffer[1], BYTES) == TWILL_OK);
    for (int b = 0; b < 2; b++)
        TWILL_CHECK(twill_allreduce_init(comm, buffer[b], buffer[b], BYTES, TWILL_U8, TWILL_SUM,
                                         &request[b]) == TWILL_OK);
    for (unsigned round = 0; round < 4; round++) {
        TWILL_CHECK(round != 1 || twill_context_fence(context, &error) == TWILL_OK);
        TWILL_CHECK(is_shared(buffer[0]) == (round < 1));
        (void)twill_test_barrier(bootstrap);
        for (int b = 0; b < 2; b++) {
            memset(buffer[b], (int)round + rank, BYTES);
            TWILL_CHECK(twill_request_start(request[b]) == TWILL_OK &&
                        twill_wait(&request[b]) == TWILL_OK);
            TWILL_CHECK(buffer[b][0] == 2 * round + 1 && buffer[b][BYTES - 1] == 2 * round + 1,
                        "round %u, buffer %d: %u", round, b, buffer[b][0]);
        }
    }
    TWILL_CHECK(twill_demote(context, buffer[0]) == TWILL_OK && buffer[0][0] == 7);
    for (int b = 0; b < 2; b++)
        twill_request_free(&request[b]);
    TWILL_CHECK(twill_free(context, buffer[1]) == TWILL_OK);
    munmap(buffer[0], BYTES + PAGE);
}

/* A persistent call does not start on memory that was demoted, at addresses that peers know. */
TWILL_TEST_ON(demoted_under_a_request, ranks, TWILL_LAYOUTS("2"), SETTINGS)
{
    twill_context *context = twill_comm_context(comm);
    unsigned char *pages = new_pages();
    twill_request *request = NULL;
    TWILL_CHECK(twill_promote(context, pages, BYTES) == TWILL_OK &&
                twill_allreduce_init(comm, pages, pages, BYTES, TWILL_U8, TWILL_SUM, &request) ==
                    TWILL_OK &&
                twill_demote(context, pages) == TWILL_OK);
    (void)twill_test_barrier(bootstrap);
    TWILL_CHECK(
        TWILL_ENDS(comm, twill_request_start(request), TWILL_ERR_ARGUMENT, "freed or demoted"));
    (void)twill_test_barrier(bootstrap);
    twill_request_free(&request);
    munmap(pages, BYTES + PAGE);
}
