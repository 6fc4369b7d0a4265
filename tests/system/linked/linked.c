/* SPDX-License-Identifier: Apache-2.0 */
/* A program that links twill: prints which libraries its process has loaded and which signals it
 * catches, at the start of main() and after an allreduce. Exit status 0: the sum was right. */
#include "lib/twill.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char *const watched[] = {"libfabric", "libpsm", "librdmacm", "libibverbs",
                                      "libmemkind"};
enum { WATCHED = sizeof(watched) / sizeof(watched[0]) };

static void say_libraries(void)
{
    bool loaded[WATCHED] = {false};
    char line[4096];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL)
        for (int i = 0; i < WATCHED; i++)
            loaded[i] = loaded[i] || strstr(line, watched[i]) != NULL;
    printf(" libraries:");
    for (int i = 0; i < WATCHED; i++)
        if (loaded[i])
            printf(" %s", watched[i]);
    if (maps != NULL)
        fclose(maps);
}

static void say_signals(void)
{
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    while (status != NULL && fgets(line, sizeof(line), status) != NULL)
        if (strncmp(line, "SigCgt:", 7) == 0)
            printf(" signals: %.*s", (int)strcspn(line + 8, "\n"), line + 8);
    if (status != NULL)
        fclose(status);
}

static void say_allocator(const char *when)
{
    printf("%s:", when);
    say_signals();
    say_libraries();
    printf("\n");
    fflush(stdout);
}

int main(void)
{
    twill_comm *comm;
    say_allocator("main");
    if (twill_init(&comm) != TWILL_OK)
        return 1; /* the reason was printed */
    int rank = twill_comm_rank(comm), size = twill_comm_size(comm);
    double mine = rank + 1, sum = 0;
    twill_status status = twill_allreduce(comm, &mine, &sum, 1, TWILL_F64, TWILL_SUM);
    say_allocator("used");
    twill_finalize(comm);
    return status == TWILL_OK && sum == size * (size + 1) / 2.0 ? 0 : 1;
}
