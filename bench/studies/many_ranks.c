/* SPDX-License-Identifier: Apache-2.0 */
/* many-ranks FOLDER die|stay SECONDS: one job of many_ranks.sh. The ranks sum once and write to
 * FOLDER/summed.RANK the seconds of twill_init(), their PID, and the bytes that malloc() has given
 * out. When FOLDER/go exists they sum for ever, and the rank in the middle is killed by SIGKILL
 * ("die"), or makes no call for SECONDS ("stay"). Each other rank writes to FOLDER/ended.RANK when
 * its call returned, and the sentence. */
#include <twill.h>

#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Write a line to FOLDER/NAME.RANK, which appears as a whole. */
static void note(const char *folder, const char *name, int rank, double number, const char *text)
{
    char path[512], made[520];
    snprintf(path, sizeof(path), "%s/%s.%d", folder, name, rank);
    snprintf(made, sizeof(made), "%s.new", path);
    FILE *file = fopen(made, "w");
    if (file == NULL)
        exit(3);
    fprintf(file, "%.3f %s\n", number, text);
    if (fclose(file) != 0 || rename(made, path) != 0)
        exit(3);
}

/* Leave the others in a call, and write the time from which they have waited. */
static void leave(const char *folder, int rank, const char *how, unsigned seconds)
{
    note(folder, "left", rank, now(), how);
    if (strcmp(how, "die") == 0)
        raise(SIGKILL);
    sleep(seconds);
}

int main(int argc, char **argv)
{
    twill_comm *comm;
    char go[512], text[1200];
    double sum = 0;
    twill_status status = TWILL_OK;
    if (argc != 4)
        return 2;
    double begun = now();
    if (twill_init(&comm) != TWILL_OK)
        return 1;
    int rank = twill_comm_rank(comm), size = twill_comm_size(comm);
    double mine = rank + 1;
    double ready = now() - begun;
    if (twill_allreduce(comm, &mine, &sum, 1, TWILL_F64, TWILL_SUM) != TWILL_OK ||
        sum != size * (size + 1) / 2.0)
        return 1;
    struct mallinfo2 heap = mallinfo2();
    snprintf(text, sizeof(text), "%d %zu", (int)getpid(), heap.uordblks + heap.hblkhd);
    note(argv[1], "summed", rank, ready, text);
    for (snprintf(go, sizeof(go), "%s/go", argv[1]); access(go, F_OK) != 0;)
        usleep(100000);
    if (rank == size / 2)
        leave(argv[1], rank, argv[2], (unsigned)atoi(argv[3]));
    else
        while (status == TWILL_OK)
            status = twill_allreduce(comm, &mine, &sum, 1, TWILL_F64, TWILL_SUM);
    if (rank != size / 2)
        note(argv[1], "ended", rank, now(), twill_comm_message(comm));
    return 0;
}
