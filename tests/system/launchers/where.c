/* SPDX-License-Identifier: Apache-2.0 */
/* A program for launchers to start: every rank adds its number to a sum, and prints in one line
 * where it is and how it was detected. -2: set up twice, one after the other; -t: print how many
 * threads the process has after set-up; -k: the last rank is killed, and the others shrink and add
 * without it. Exit status 0: the sum was right. */
#include "lib/twill_recover.h"

#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char *bootstrap_of(twill_context *context)
{
    const char *text;
    for (size_t i = 0; (text = twill_context_describe(context, i)) != NULL; i++)
        if (strncmp(text, "bootstrap: ", 11) == 0)
            return text + 11;
    return "?";
}

static int threads(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    for (struct dirent *entry; folder && (entry = readdir(folder)) != NULL;)
        count += entry->d_name[0] != '.';
    if (folder)
        closedir(folder);
    return count;
}

static bool go(bool count)
{
    twill_comm *comm;
    double mine, sum = 0;
    if (twill_init(&comm) != TWILL_OK)
        return false; /* the reason was printed */
    int rank = twill_comm_rank(comm), size = twill_comm_size(comm);
    mine = rank + 1;
    twill_status status = twill_allreduce(comm, &mine, &sum, 1, TWILL_F64, TWILL_SUM);
    bool right = status == TWILL_OK && sum == size * (size + 1) / 2.0;
    printf("rank %d of %d, local %d of %d, node %d of %d, %s: %s\n", rank, size,
           twill_comm_local_rank(comm), twill_comm_local_size(comm), twill_comm_node(comm),
           twill_comm_nodes(comm), right ? "right" : "WRONG",
           bootstrap_of(twill_comm_context(comm)));
    if (count)
        printf("threads %d\n", threads());
    twill_finalize(comm);
    return right;
}

static bool go_on(void)
{
    twill_comm *comm, *smaller;
    double one = 1, sum = 0;
    if (twill_init(&comm) != TWILL_OK)
        return false;
    if (twill_comm_rank(comm) == twill_comm_size(comm) - 1)
        (void)raise(SIGKILL);
    while (twill_allreduce(comm, &one, &sum, 1, TWILL_F64, TWILL_SUM) == TWILL_OK)
        ;
    if (twill_comm_shrink(&smaller, comm) != TWILL_OK) {
        printf("%s\n", twill_comm_message(comm));
        return false;
    }
    twill_comm_leave(comm);
    int size = twill_comm_size(smaller);
    bool right =
        twill_allreduce(smaller, &one, &sum, 1, TWILL_F64, TWILL_SUM) == TWILL_OK && sum == size;
    printf("rank %d of %d goes on: %g\n", twill_comm_rank(smaller), size, sum);
    twill_finalize(smaller);
    return right;
}

int main(int argc, char **argv)
{
    bool twice = argc > 1 && strcmp(argv[1], "-2") == 0;
    bool count = argc > 1 && strcmp(argv[1], "-t") == 0;
    setvbuf(stdout, NULL, _IOLBF, 0); /* whole lines, not mixed with those of other ranks */
    if (argc > 1 && strcmp(argv[1], "-k") == 0)
        return go_on() ? 0 : 1;
    return go(count) && (!twice || go(count)) ? 0 : 1;
}
