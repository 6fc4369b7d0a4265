/* SPDX-License-Identifier: Apache-2.0 */
/* twill-info --gradient-threads makes a gradient set, whose description says where its threads run.
 */
#include "bench/tools/info/info.h"

#include "lib/base/plural.h"
#include "lib/twill_train.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREAD_LINE_BYTES 512u

/* Make and commit a set with a tensor for each thread. The caller destroys *set in any case. */
static twill_status make_set(twill_gradients **set, twill_comm *comm, int threads)
{
    twill_gradients_options options;
    twill_gradients_defaults(&options);
    options.threads = threads;
    options.bucket_bytes = 0; /* a bucket for each */
    twill_status status = twill_gradients_create(set, comm, &options);
    for (int t = 0; status == TWILL_OK && t < threads; t++) {
        char name[24];
        snprintf(name, sizeof(name), "tensor %d", t);
        const twill_tensor tensor = {.name = name, .count = 1, .type = TWILL_F32};
        status = twill_gradients_add(*set, &tensor, NULL);
    }
    return status == TWILL_OK ? twill_gradients_commit(*set) : status;
}

/* Print `line`, "thread N: PLACE, PLACE; ENDPOINT", as a branch of a tree, with a line for each
 * place and one for the thread. Leaves out the first places if `before`, the line printed before it
 * or NULL, has the same. */
static void print_branch(const char *line, const char *before)
{
    int indent = 1;
    bool differs = false;
    const char *end = strstr(line, "; ");
    size_t length = end != NULL ? (size_t)(end - line) : strlen(line);
    for (const char *at = strchr(line, ':') + 2; at < line + length; indent++) {
        size_t level = strcspn(at, ",;");
        if ((size_t)(at - line) + level > length)
            level = length - (size_t)(at - line);
        differs |= before == NULL || strncmp(before + (at - line), at, level) != 0;
        if (differs)
            printf("%*s%.*s\n", 2 * indent, "", (int)level, at);
        at += level;
        at += strspn(at, ", ");
    }
    printf("%*s%.*s%s%s\n", 2 * indent, "", (int)strcspn(line, ":"), line,
           end != NULL ? " -> " : "", end != NULL ? end + 2 : "");
}

/* Print the tree of where a rank's threads run. `lines` has a text of THREAD_LINE_BYTES bytes for
 * each of `threads` threads. */
static void print_rank(int rank, const char *lines, int threads)
{
    const char *before = NULL;
    printf("rank %d: %d communication thread%s\n", rank, threads, TWILL_PLURAL(threads));
    for (int t = 0; t < threads; t++) {
        const char *line = lines + (size_t)t * THREAD_LINE_BYTES;
        print_branch(line, before);
        before = line;
    }
}

int twill_bench_print_threads(twill_comm *comm, int threads)
{
    twill_gradients *set = NULL;
    size_t bytes = (size_t)threads * THREAD_LINE_BYTES, found = 0;
    char *mine = calloc(1, bytes), *all = calloc((size_t)twill_comm_size(comm), bytes);
    twill_status status =
        mine != NULL && all != NULL ? make_set(&set, comm, threads) : TWILL_ERR_MEMORY;
    const char *line;
    for (size_t i = 0; status == TWILL_OK && (line = twill_gradients_describe(set, i)) != NULL; i++)
        if (strncmp(line, "thread ", 7) == 0 && found < (size_t)threads)
            snprintf(mine + THREAD_LINE_BYTES * found++, THREAD_LINE_BYTES, "%s", line);
    if (status == TWILL_OK)
        status = twill_allgather(comm, mine, all, bytes, TWILL_U8);
    for (int r = 0; status == TWILL_OK && twill_comm_rank(comm) == 0 && r < twill_comm_size(comm);
         r++)
        print_rank(r, all + (size_t)r * bytes, threads);
    if (status != TWILL_OK)
        fprintf(stderr, "twill-info: --gradient-threads: %s\n",
                set != NULL ? twill_gradients_message(set) : twill_comm_message(comm));
    twill_gradients_destroy(set);
    free(mine);
    free(all);
    return status == TWILL_OK ? 0 : 1;
}
