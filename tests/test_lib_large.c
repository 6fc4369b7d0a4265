/* SPDX-License-Identifier: Apache-2.0 */
/* Counts are size_t: more than 2^31 elements in one call, 4 GiB a rank, between two processes. */
#include "tests/support/ranks.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT ((size_t)1 << 31 | 12345)
#define EVERY ((size_t)100003) /* elements looked at */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* Small integers are exact in bf16, and are the upper half of the float's bits. */
static uint16_t bf16_of(int value)
{
    float x = (float)value;
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return (uint16_t)(bits >> 16);
}

static void reduce_many(int rank, int size, twill_bootstrap *boot, void *user)
{
    (void)user;
    const char *settings[] = {"TWILL_TIMEOUT=120", "TWILL_HEAP_LIMIT=4M", NULL};
    twill_context *context = NULL;
    twill_comm *comm = NULL;
    twill_status status = twill_context_create(&context, boot, settings);
    if (status == TWILL_OK)
        status = twill_comm_create(&comm, context);
    TWILL_CHECK(status == TWILL_OK);
    uint16_t *x = mmap(NULL, COUNT * sizeof(*x), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TWILL_CHECK(x != MAP_FAILED);
    (void)madvise(x, COUNT * sizeof(*x), MADV_HUGEPAGE);
    for (size_t i = 0; i < COUNT; i += EVERY)
        x[i] = bf16_of(rank + 1 + (int)(i / EVERY % 50));
    x[COUNT - 1] = bf16_of(7 * (rank + 1));
    status = twill_allreduce(comm, x, x, COUNT, TWILL_BF16, TWILL_SUM);
    TWILL_CHECK(
        twill_test_note(status == TWILL_OK, __FILE__, __LINE__, "%s", twill_comm_message(comm)));
    for (size_t i = 0; i < COUNT - 1; i += EVERY) {
        int k = (int)(i / EVERY % 50);
        TWILL_CHECK(x[i] == bf16_of(size * (size + 1) / 2 + size * k));
        TWILL_CHECK(i == 0 || x[i - 1] == 0);
    }
    TWILL_CHECK(x[COUNT - 1] == bf16_of(7 * size * (size + 1) / 2));
    munmap(x, COUNT * sizeof(*x));
    twill_comm_destroy(comm);
    twill_context_destroy(context);
}

static void more_than_two_billion(void **unused)
{
    (void)unused;
    size_t free_bytes = (size_t)sysconf(_SC_AVPHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    if (SANITIZED || free_bytes < (size_t)12 << 30) {
        print_message("needs 12 GiB of free memory, and no sanitizer\n");
        skip();
    }
    twill_test_run_processes(2, reduce_many, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(more_than_two_billion)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
