/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of several ranks on memory of a GPU, or of a double of its driver (gpu.h). Usage:
 * program [MODE]. values: all kinds of memory; host: host memory only, CUDA not initialised;
 * messages: to the next rank and to itself; group: calls that are fused; streams: what waits for
 * what; freed: memory that is no more; hang: a rank that others go on without; overlap: a wrong
 * argument; fail: calls until one fails, which is reported; touch: read device memory, which must
 * kill. */
#include "tests/system/cuda/gpu.h"
#include "twill.h"
#include "twill_recover.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CUDA_MOST   300000u /* floats: many segments */
#define CUDA_BEYOND 16u     /* floats behind the last one, which no call may write */

enum memory_place { HOST, CUDA_SHARED, CUDA_DEVICE, MANAGED, CUDA_OTHER, POOL, PINNED, PLACES };

struct buffers {
    twill_comm *comm;
    int rank, size, tried;
    float *at[2][PLACES];
    float *scratch;
};

#define SPACE ((CUDA_MOST + CUDA_BEYOND) * sizeof(float))

static const char *const place_names[PLACES] = {"host",          "twill_alloc", "device", "managed",
                                                "other context", "pool",        "pinned"};

static const enum gpu_memory kinds[PLACES] = {[CUDA_DEVICE] = GPU_DEVICE,
                                              [MANAGED] = GPU_MANAGED,
                                              [CUDA_OTHER] = GPU_OTHER,
                                              [POOL] = GPU_POOL,
                                              [PINNED] = GPU_PINNED};

static bool is_on_device(enum memory_place place)
{
    return place == CUDA_DEVICE || place == CUDA_OTHER || place == POOL;
}

/* Allocate two buffers of each kind of memory; `device`: also of the kinds that need CUDA. */
static bool cuda_allocate_buffers(struct buffers *b, bool device)
{
    b->scratch = malloc(SPACE);
    for (size_t i = 0; i < 2; i++) {
        void *shared = NULL;
        b->at[i][HOST] = malloc(SPACE);
        if (b->scratch == NULL || b->at[i][HOST] == NULL ||
            twill_alloc(twill_comm_context(b->comm), &shared, SPACE) != TWILL_OK)
            return false;
        b->at[i][CUDA_SHARED] = shared;
        for (unsigned place = CUDA_DEVICE; place < PLACES && device; place++) {
            b->at[i][place] = gpu_alloc(kinds[place], SPACE);
            if (b->at[i][place] == NULL)
                return false;
        }
    }
    return true;
}

static void cuda_free_buffers(struct buffers *b, bool device)
{
    for (int i = 0; i < 2; i++) {
        for (unsigned place = CUDA_DEVICE; place < PLACES && device; place++)
            (void)gpu_free(kinds[place], b->at[i][place]);
        free(b->at[i][HOST]);
        (void)twill_free(twill_comm_context(b->comm), b->at[i][CUDA_SHARED]);
    }
    free(b->scratch);
}

/* --- contents --------------------------------------------------------------------------------- */

/* Write a buffer's first floats, from host memory. */
static void write_floats(const struct buffers *b, enum memory_place place, int which,
                         const float *from, size_t count)
{
    float *to = b->at[which][place];
    if (!is_on_device(place))
        memcpy(to, from, count * sizeof(float));
    else if (count > 0 && gpu_write(kinds[place], to, from, count * sizeof(float)) != 0)
        exit(1);
}

/* Return a buffer's first floats, in host memory that the next call reuses if it is a device's. */
static const float *cuda_get(const struct buffers *b, enum memory_place place, int which,
                             size_t count)
{
    if (!is_on_device(place))
        return b->at[which][place];
    if (gpu_read(kinds[place], b->scratch, b->at[which][place], count * sizeof(float)) != 0)
        exit(1);
    return b->scratch;
}

static float rank_input(int rank, size_t i)
{
    return (float)(rank + 1) * (float)(i % 1000 + 1);
}

static float sum_inputs(int size, size_t i)
{
    return (float)(size * (size + 1) / 2) * (float)(i % 1000 + 1);
}

/* Write the rank's input, or a poison, to the first floats of a buffer. */
static void cuda_fill_input(const struct buffers *b, enum memory_place place, int which,
                            size_t count)
{
    for (size_t i = 0; i < count + CUDA_BEYOND; i++)
        b->scratch[i] = i < count ? rank_input(b->rank, i) : -1;
    write_floats(b, place, which, b->scratch, count + CUDA_BEYOND);
}

static void cuda_fill_poison(const struct buffers *b, enum memory_place place, int which,
                             size_t count)
{
    for (size_t i = 0; i < count + CUDA_BEYOND; i++)
        b->scratch[i] = -1;
    write_floats(b, place, which, b->scratch, count + CUDA_BEYOND);
}

static bool cuda_value_is_wrong(const struct buffers *b, const char *what, size_t i, float got,
                                float expected)
{
    if (got == expected)
        return false;
    printf("rank %d: %s: element %zu is %g, not %g\n", b->rank, what, i, (double)got,
           (double)expected);
    return true;
}

/* Check that a buffer has the sum of all ranks' inputs, or, with a root of 0 or more, that one's,
 * and that what is beyond is as it was. Returns 1, and says why, if not. */
static int cuda_check_values(const struct buffers *b, const char *what, const float *at,
                             size_t count, int root)
{
    for (size_t i = 0; i < count + CUDA_BEYOND; i++) {
        float expected = root < 0 ? sum_inputs(b->size, i) : rank_input(root, i);
        if (cuda_value_is_wrong(b, what, i, at[i], i < count ? expected : -1))
            return 1;
    }
    return 0;
}

static int cuda_check_status(const struct buffers *b, twill_status status, const char *what)
{
    if (status == TWILL_OK)
        return 0;
    printf("rank %d: %s: %s: %s\n", b->rank, what, twill_strerror(status),
           twill_comm_message(b->comm));
    return 1;
}

/* --- collectives ------------------------------------------------------------------------------ */

static twill_status broadcast_buffers(const struct buffers *b, bool in_place, float *src,
                                      float *dst, size_t count, int root)
{
    bool is_root = b->rank == root;
    return twill_broadcast(b->comm, is_root ? src : NULL, is_root && in_place ? NULL : dst, count,
                           TWILL_F32, root);
}

/* A root's data is only read, and the others' buffers are only written. */
static int try_copies(const struct buffers *b)
{
    bool is_root = b->rank == 0;
    float *at = b->at[0][CUDA_DEVICE];
    int to_host = gpu_copies(0), to_device = gpu_copies(1);
    if (to_host < 0)
        return 0;
    twill_status status = broadcast_buffers(b, true, at, at, 100, 0);
    to_host = gpu_copies(0) - to_host;
    to_device = gpu_copies(1) - to_device;
    if (status == TWILL_OK && to_host == is_root && to_device == !is_root && gpu_pinned() > 0)
        return 0;
    printf("rank %d: %d copies to the host, %d to the device, %d pinned\n", b->rank, to_host,
           to_device, gpu_pinned());
    return 1;
}

/* Twice: the second call uses the cached plan, and bounce memory that is pinned for it. */
static int try_allreduce(const struct buffers *b, const char *what, enum memory_place s, int si,
                         enum memory_place d, int di, size_t count)
{
    bool in_place = s == d && si == di;
    for (int again = 0; again < 2; again++) {
        cuda_fill_input(b, s, si, count);
        if (!in_place)
            cuda_fill_poison(b, d, di, count);
        twill_status status =
            twill_allreduce(b->comm, b->at[si][s], b->at[di][d], count, TWILL_F32, TWILL_SUM);
        if (cuda_check_status(b, status, what) ||
            cuda_check_values(b, what, cuda_get(b, d, di, count + CUDA_BEYOND), count, -1) ||
            (!in_place &&
             cuda_check_values(b, "src has changed", cuda_get(b, s, si, count + CUDA_BEYOND), count,
                               b->rank)))
            return 1;
    }
    return 0;
}

/* One kind of memory for src, one for dst; exchanged on odd ranks if `mixed`. */
static int try_places(const struct buffers *b, enum memory_place from, enum memory_place to,
                      bool mixed, bool in_place, size_t count)
{
    bool turn = mixed && b->rank % 2 == 1;
    enum memory_place s = turn ? to : from, d = in_place ? s : turn ? from : to;
    int di = in_place ? 0 : 1, root = b->size - 1;
    char what[100];
    snprintf(what, sizeof(what), "%s to %s%s, %zu floats", place_names[s], place_names[d],
             in_place ? ", in place" : "", count);
    if (try_allreduce(b, what, s, 0, d, di, count))
        return 1;
    cuda_fill_input(b, s, 0, count);
    if (!in_place)
        cuda_fill_poison(b, d, di, count);
    twill_status status = broadcast_buffers(b, in_place, b->at[0][s], b->at[di][d], count, root);
    return cuda_check_status(b, status, what) ||
           cuda_check_values(b, what, cuda_get(b, d, di, count + CUDA_BEYOND), count, root);
}

/* All pairs of the usual kinds; the others with themselves and with malloc's. */
static bool is_pair(enum memory_place from, enum memory_place to)
{
    return (from <= MANAGED && to <= MANAGED) || from == to || from == HOST || to == HOST;
}

/* An odd number of bytes, which are not copied as rows. */
static int try_bytes(const struct buffers *b)
{
    unsigned char bytes[8] = {1, 2, 3, 4, 5, 6, 7, 99}, got[8];
    void *at = b->at[0][CUDA_DEVICE];
    if (gpu_write(GPU_DEVICE, at, bytes, 8) != 0 ||
        cuda_check_status(b, twill_allreduce(b->comm, at, at, 7, TWILL_U8, TWILL_SUM), "bytes") ||
        gpu_read(GPU_DEVICE, got, at, 8) != 0)
        return 1;
    for (size_t i = 0; i < 8; i++)
        if (cuda_value_is_wrong(b, "bytes", i, got[i], (float)(i < 7 ? b->size * bytes[i] : 99)))
            return 1;
    return 0;
}

static int try_all(struct buffers *b, enum memory_place most, bool has_cuda)
{
    static const size_t counts[] = {0, 1, 5, 1000, CUDA_MOST};
    int failures = 0;
    for (int i = 0; i < 5 * PLACES * PLACES * 4 && failures == 0; i++) {
        size_t count = counts[i / (PLACES * PLACES * 4)];
        enum memory_place from = (enum memory_place)(i / (PLACES * 4) % PLACES);
        enum memory_place to = (enum memory_place)(i / 4 % PLACES);
        if (from >= most || to >= most || !is_pair(from, to))
            continue;
        bool enters = b->tried++ % 3 == 0 && has_cuda; /* a context, as most threads have */
        if (enters)
            gpu_enter();
        void *current = has_cuda ? gpu_current() : NULL;
        failures += try_places(b, from, to, i & 1, i & 2, count);
        if (has_cuda && gpu_current() != current) {
            printf("rank %d: another context is current\n", b->rank);
            failures++;
        }
        if (enters)
            gpu_leave();
    }
    if (failures == 0)
        printf("rank %d: %d combinations right\n", b->rank, b->tried);
    return failures;
}

/* Small calls of a group are one call; one of them has host memory. */
static int try_group(const struct buffers *b)
{
    static const enum memory_place places[] = {CUDA_DEVICE, POOL, HOST, CUDA_OTHER};
    twill_status status = TWILL_OK;
    for (int again = 0; again < 2 && status == TWILL_OK; again++) {
        for (size_t i = 0; i < 4; i++) {
            cuda_fill_input(b, places[i], 0, 5);
            cuda_fill_poison(b, places[i], 1, 5);
        }
        status = twill_group_start(b->comm);
        for (size_t i = 0; i < 4 && status == TWILL_OK; i++)
            status = twill_allreduce(b->comm, b->at[0][places[i]], b->at[1][places[i]], 5,
                                     TWILL_F32, TWILL_SUM);
        if (status == TWILL_OK)
            status = twill_group_end(b->comm);
        for (size_t i = 0; i < 4 && status == TWILL_OK; i++)
            if (cuda_check_values(b, place_names[places[i]],
                                  cuda_get(b, places[i], 1, 5 + CUDA_BEYOND), 5, -1))
                return 1;
    }
    if (cuda_check_status(b, status, "group"))
        return 1;
    printf("rank %d: groups right\n", b->rank);
    return 0;
}

/* --- messages --------------------------------------------------------------------------------- */

/* To the next rank, from the previous one, in each form of a call. */
enum cuda_form { BLOCKING, CUDA_STARTED, CUDA_PERSISTENT, GROUPED, FORMS };

static twill_status pass_on_call(const struct buffers *b, enum cuda_form form, float *src,
                                 float *dst, size_t count)
{
    int to = (b->rank + 1) % b->size, from = (b->rank + b->size - 1) % b->size;
    twill_request *request[2] = {NULL};
    twill_status status;
    switch (form) {
    case BLOCKING:
        return twill_sendrecv(b->comm, src, count, to, dst, count, from, TWILL_F32);
    case CUDA_STARTED:
        status = twill_recv_start(b->comm, dst, count, TWILL_F32, from, &request[0]);
        if (status == TWILL_OK)
            status = twill_send(b->comm, src, count, TWILL_F32, to);
        return status == TWILL_OK ? twill_wait(&request[0]) : status;
    case CUDA_PERSISTENT:
        status =
            twill_sendrecv_init(b->comm, src, count, to, dst, count, from, TWILL_F32, &request[0]);
        for (int i = 0; i < 2 && status == TWILL_OK; i++) {
            status = twill_request_start(request[0]);
            status = status == TWILL_OK ? twill_wait_all(1, request) : status;
        }
        return status == TWILL_OK ? twill_request_free(&request[0]) : status;
    default:
        status = twill_group_start(b->comm);
        status = status == TWILL_OK ? twill_send(b->comm, src, count, TWILL_F32, to) : status;
        status = status == TWILL_OK ? twill_recv(b->comm, dst, count, TWILL_F32, from) : status;
        return status == TWILL_OK ? twill_group_end(b->comm) : status;
    }
}

static int try_messages(const struct buffers *b)
{
    static const size_t counts[] = {0, 1, 1000, CUDA_MOST};
    int from = (b->rank + b->size - 1) % b->size, tried = 0;
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        for (int how = 0; how < (int)FORMS * 4; how++, tried++) {
            enum memory_place s = how & 1 ? CUDA_DEVICE : HOST,
                              d = how & 2 ? CUDA_DEVICE : CUDA_SHARED;
            cuda_fill_input(b, s, 0, counts[c]);
            cuda_fill_poison(b, d, 1, counts[c]);
            twill_status status =
                pass_on_call(b, (enum cuda_form)(how / 4), b->at[0][s], b->at[1][d], counts[c]);
            if (cuda_check_status(b, status, "message") ||
                cuda_check_values(b, "message", cuda_get(b, d, 1, counts[c] + CUDA_BEYOND),
                                  counts[c], from))
                return 1;
        }
    }
    twill_context *context = twill_comm_context(b->comm);
    if (twill_register(context, b->at[0][CUDA_DEVICE], CUDA_MOST) != TWILL_ERR_ARGUMENT)
        return 1;
    printf("rank %d: %d messages right; %s\n", b->rank, tried, twill_context_message(context));
    return 0;
}

/* --- order with work of the device ------------------------------------------------------------ */

#define FILL_TWO 0x40000000u /* 2.0f */

static int check_twos(const struct buffers *b, const char *what, const float *at)
{
    for (size_t i = 0; i < CUDA_MOST; i++)
        if (cuda_value_is_wrong(b, what, i, at[i], 2.0F * (float)b->size))
            return 1;
    return 0;
}

/* A call waits for work on the default stream, and its result is there for other streams when it
 * returns; it does not wait for other streams, which is the caller's duty. */
static int try_streams(const struct buffers *b)
{
    float *src = b->at[0][CUDA_DEVICE], *dst = b->at[1][CUDA_DEVICE], *pinned = b->at[0][PINNED];
    int rounds = gpu_copies(0) < 0 ? 200 : 3; /* that a GPU is still at them when the call begins */
    for (int apart = 0; apart < 2; apart++) {
        for (int again = 0; again < 5; again++) {
            cuda_fill_poison(b, CUDA_DEVICE, 1, CUDA_MOST);
            if (gpu_queue_fill(src, FILL_TWO, CUDA_MOST, rounds, apart) != 0 ||
                (apart && gpu_wait() != 0) ||
                cuda_check_status(
                    b, twill_allreduce(b->comm, src, dst, CUDA_MOST, TWILL_F32, TWILL_SUM),
                    "streams") ||
                gpu_read_apart(pinned, dst, CUDA_MOST * sizeof(float)) != 0 ||
                check_twos(b, apart ? "another stream" : "the default stream", pinned))
                return 1;
        }
    }
    printf("rank %d: order of streams right\n", b->rank);
    return 0;
}

/* --- failures --------------------------------------------------------------------------------- */

static int try_overlap(const struct buffers *b)
{
    float *at = b->at[0][CUDA_DEVICE];
    twill_status status = twill_allreduce(b->comm, at, at + 1, 8, TWILL_F32, TWILL_SUM);
    printf("rank %d: overlap: %s\n", b->rank, twill_comm_message(b->comm));
    return status != TWILL_ERR_ARGUMENT;
}

/* A short call and a long one, whose copies differ. A later one shows whether ranks had completed
 * the failed one. */
static int try_failing(const struct buffers *b)
{
    twill_status status = TWILL_OK;
    float *at = b->at[0][CUDA_DEVICE];
    for (int i = 0; i < 3 && status == TWILL_OK; i++)
        status = twill_allreduce(b->comm, at, at, i == 1 ? CUDA_MOST : 1000, TWILL_F32, TWILL_SUM);
    printf("rank %d: status %d: %s\n", b->rank, (int)status, twill_comm_message(b->comm));
    return status == TWILL_OK || gpu_current() != NULL;
}

static int try_freed(const struct buffers *b)
{
    float *at = gpu_alloc(GPU_DEVICE, 8 << 20);
    for (int i = 0; i < 2; i++)
        if (cuda_check_status(b, twill_allreduce(b->comm, at, at, 1000, TWILL_F32, TWILL_SUM),
                              "freed"))
            return 1;
    if (gpu_free(GPU_DEVICE, at) != 0)
        return 1;
    twill_status status = twill_allreduce(b->comm, at, at, 1000, TWILL_F32, TWILL_SUM);
    printf("rank %d: status %d: %s\n", b->rank, (int)status, twill_comm_message(b->comm));
    return status != TWILL_ERR_ARGUMENT;
}

/* --- a rank that hangs ------------------------------------------------------------------------ */

static void leave_job(int signal_number)
{
    (void)signal_number;
    _exit(0);
}

/* The last rank hangs, and the others go on without it. As it could still write to memory that the
 * node shares, theirs moves to other pages, which may not stay pinned for the device. */
static int try_hang(struct buffers *b)
{
    int64_t pids[64] = {0}, pid = getpid();
    int last = b->size - 1;
    twill_comm *smaller;
    struct buffers part = *b; /* of a communicator that the last rank is not in */
    signal(SIGUSR1, leave_job);
    if (cuda_check_status(b, twill_comm_split(&part.comm, b->comm, b->rank == last, 0), "split"))
        return 1;
    part.rank = twill_comm_rank(part.comm);
    part.size = twill_comm_size(part.comm);
    if (try_allreduce(&part, "part, before", CUDA_DEVICE, 0, CUDA_DEVICE, 0, CUDA_MOST))
        return 1;
    if (cuda_check_status(b, twill_allgather(b->comm, &pid, pids, 1, TWILL_I64), "pids") ||
        try_allreduce(b, "before", CUDA_DEVICE, 0, CUDA_DEVICE, 0, CUDA_MOST))
        return 1;
    while (b->rank == last)
        pause();
    float *at = b->at[0][CUDA_DEVICE];
    if (twill_allreduce(b->comm, at, at, 1000, TWILL_F32, TWILL_SUM) == TWILL_OK ||
        cuda_check_status(b, twill_comm_shrink(&smaller, b->comm), "twill_comm_shrink"))
        return 1;
    twill_comm_leave(b->comm);
    b->comm = smaller;
    b->rank = twill_comm_rank(smaller);
    b->size = twill_comm_size(smaller);
    int failed = try_allreduce(b, "after", CUDA_DEVICE, 0, CUDA_DEVICE, 1, CUDA_MOST) ||
                 try_allreduce(&part, "part, after", CUDA_DEVICE, 0, CUDA_DEVICE, 0, CUDA_MOST);
    twill_comm_destroy(part.comm);
    if (b->rank == 0)
        kill((pid_t)pids[last], SIGUSR1);
    if (!failed)
        printf("rank %d: %d ranks right after a hang\n", b->rank, b->size);
    return failed;
}

/* --- the program ------------------------------------------------------------------------------ */

static int run_mode(struct buffers *b, const char *mode)
{
    if (strcmp(mode, "host") == 0)
        return try_all(b, CUDA_DEVICE, false);
    if (strcmp(mode, "fail") == 0)
        return try_failing(b);
    if (strcmp(mode, "freed") == 0)
        return try_freed(b);
    if (strcmp(mode, "messages") == 0)
        return try_messages(b);
    if (strcmp(mode, "group") == 0)
        return try_group(b);
    if (strcmp(mode, "streams") == 0)
        return try_streams(b);
    if (strcmp(mode, "hang") == 0)
        return try_hang(b);
    if (strcmp(mode, "overlap") == 0)
        return try_overlap(b);
    return try_all(b, PLACES, true) || try_bytes(b) || try_copies(b);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "values";
    bool device = strcmp(mode, "host") != 0;
    struct buffers b = {0};
    if (twill_init(&b.comm) != TWILL_OK)
        return 1;
    signal(SIGSEGV, SIG_DFL); /* providers of libfabric install a handler that writes a file */
    b.rank = twill_comm_rank(b.comm);
    b.size = twill_comm_size(b.comm);
    if ((device && gpu_start() != 0) || !cuda_allocate_buffers(&b, device))
        return 1;
    if (device)
        gpu_fail_as_asked();
    if (strcmp(mode, "touch") == 0) {
        puts("reading");
        fflush(stdout);
        return *(volatile float *)b.at[0][CUDA_DEVICE] > 1; /* 0 if it were ordinary memory */
    }
    int failed = run_mode(&b, mode);
    cuda_free_buffers(&b, device);
    twill_finalize(b.comm);
    if (device && gpu_pinned() > 0) {
        printf("rank %d: %d ranges are still pinned\n", b.rank, gpu_pinned());
        failed = 1;
    }
    return failed != 0;
}
