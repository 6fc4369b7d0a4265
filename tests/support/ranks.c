/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as threads or forked processes, and the allgather among them. */
#include "tests/support/ranks.h"
#include "tests/support/run.h"

#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define MAX_RANKS 256
/* After a failed check a rank has left, and others may wait for it in a call: they have this long
 * to end by themselves. */
#define AFTERMATH (UINT64_C(20) * 1000000000)

/* The ranks of a run. In shared memory, so that it serves threads and processes alike. */
struct group {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int size;
    int arrived;
    int gone;            /* ranks that have left their function */
    uint64_t generation; /* exchanges completed; its parity chooses the buffer */
    size_t bytes;        /* of the exchange in progress */
    uint8_t nonce[TWILL_NONCE_BYTES];
    uint64_t came[MAX_RANKS]; /* exchanges that each rank has entered */
    bool left[MAX_RANKS];
    bool may_die[MAX_RANKS];
    atomic_bool failed;
    char failure[1024];
};

struct rank {
    struct group *group;
    twill_rank_fn fn;
    void *user;
    int rank;
    pthread_t thread;
    pid_t pid;
    twill_bootstrap caller;
};

static struct group *current; /* of the run in progress */

static size_t group_bytes(int size)
{
    return sizeof(struct group) + 2 * (size_t)size * TWILL_TEST_EXCHANGE_BYTES;
}

static unsigned char *buffer(struct group *group, uint64_t generation)
{
    size_t each = (size_t)group->size * TWILL_TEST_EXCHANGE_BYTES;
    return (unsigned char *)(group + 1) + (generation % 2) * each;
}

static struct group *group_create(int size)
{
    assert_true(size >= 1 && size <= MAX_RANKS);
    struct group *group = mmap(NULL, group_bytes(size), PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(group != MAP_FAILED);
    group->size = size;
    uint64_t now = twill_now();
    pid_t pid = getpid();
    memcpy(group->nonce, &now, sizeof(now));
    memcpy(group->nonce + sizeof(now), &pid, sizeof(pid));
    pthread_mutexattr_t mutex;
    pthread_mutexattr_init(&mutex);
    pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&group->mutex, &mutex);
    pthread_mutexattr_destroy(&mutex);
    pthread_condattr_t changed;
    pthread_condattr_init(&changed);
    pthread_condattr_setpshared(&changed, PTHREAD_PROCESS_SHARED);
    pthread_condattr_setclock(&changed, CLOCK_MONOTONIC);
    pthread_cond_init(&group->changed, &changed);
    pthread_condattr_destroy(&changed);
    return group;
}

/* Return the first rank that has not entered an exchange. The mutex is held. */
static int absentee(const struct group *group, uint64_t generation)
{
    int absent = 0;
    while (absent + 1 < group->size && group->came[absent] > generation)
        absent++;
    return absent;
}

static int exchange(void *user, const void *mine, void *all, size_t bytes)
{
    struct rank *self = user;
    struct group *group = self->group;
    if (bytes > TWILL_TEST_EXCHANGE_BYTES)
        return 1;
    struct timespec limit;
    clock_gettime(CLOCK_MONOTONIC, &limit);
    limit.tv_sec += TWILL_TEST_PATIENCE / 1000000000;
    pthread_mutex_lock(&group->mutex);
    uint64_t generation = group->generation;
    unsigned char *data = buffer(group, generation);
    bool wrong = group->arrived > 0 && group->bytes != bytes;
    memcpy(data + (size_t)self->rank * bytes, mine, wrong ? 0 : bytes);
    group->bytes = bytes;
    group->came[self->rank] = generation + 1;
    if (!wrong && ++group->arrived == group->size) {
        group->arrived = 0;
        group->generation++;
        pthread_cond_broadcast(&group->changed);
    }
    int rc = 0;
    while (!wrong && rc == 0 && group->generation == generation && group->gone == 0)
        rc = pthread_cond_timedwait(&group->changed, &group->mutex, &limit);
    bool done = group->generation != generation, late = !done && rc != 0;
    int absent = absentee(group, generation);
    pthread_mutex_unlock(&group->mutex);
    if (late)
        TWILL_NOTE(false, "rank %d waits in exchange %llu for rank %d", self->rank,
                   (unsigned long long)generation, absent);
    /* The other buffer is filled next, and this one only after all ranks have returned from here.
     */
    if (done)
        memcpy(all, data, (size_t)group->size * bytes);
    return done ? 0 : 1;
}

bool twill_test_barrier(twill_bootstrap *bootstrap)
{
    char all[MAX_RANKS];
    return bootstrap->exchange(bootstrap->user, "x", all, 1) == 0;
}

static void leave_group(struct group *group, int rank)
{
    pthread_mutex_lock(&group->mutex);
    if (!group->left[rank]) {
        group->left[rank] = true;
        group->gone++;
    }
    pthread_cond_broadcast(&group->changed);
    pthread_mutex_unlock(&group->mutex);
}

static void *rank_main(void *argument)
{
    struct rank *self = argument;
    self->fn(self->rank, self->group->size, &self->caller, self->user);
    leave_group(self->group, self->rank);
    return NULL;
}

/* Say which signal ends the process, and where. cmocka's handler jumps to the test's beginning,
 * which is on another thread's stack. */
static void explain_signal(int number, siginfo_t *info, void *context)
{
    void *frames[32];
    char text[80];
    (void)context;
    int bytes = snprintf(text, sizeof(text), "a rank ended by signal %d, address %p:\n", number,
                         info->si_addr);
    (void)!write(STDERR_FILENO, text, (size_t)bytes);
    backtrace_symbols_fd(frames, backtrace(frames, 32), STDERR_FILENO);
    signal(number, SIG_DFL);
    raise(number);
}

/* Sanitizers explain signals themselves. */
static void explain_signals(void)
{
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGPIPE};
    struct sigaction action = {.sa_sigaction = explain_signal, .sa_flags = SA_SIGINFO | SA_NODEFER};
    for (size_t i = 0; !TEST_SLOW && i < TWILL_ARRAY_LENGTH(numbers); i++)
        sigaction(numbers[i], &action, NULL);
}

static struct rank *ranks_create(int size, twill_rank_fn fn, void *user)
{
    struct rank *ranks = calloc((size_t)size, sizeof(*ranks));
    assert_non_null(ranks);
    current = group_create(size);
    explain_signals();
    for (int r = 0; r < size; r++) {
        ranks[r].group = current;
        ranks[r].fn = fn;
        ranks[r].user = user;
        ranks[r].rank = r;
        ranks[r].caller =
            (twill_bootstrap){.rank = r, .size = size, .exchange = exchange, .user = &ranks[r]};
    }
    return ranks;
}

static void ranks_end(struct rank *ranks)
{
    struct group *group = current;
    current = NULL;
    char failure[sizeof(group->failure)];
    memcpy(failure, group->failure, sizeof(failure));
    bool failed = atomic_load(&group->failed);
    /* A killed process may hold the mutex for ever: unmap without destroying it. */
    munmap(group, group_bytes(group->size));
    free(ranks);
    if (failed)
        fail_msg("%s", failure);
}

/* Return whether a check failed so long ago that the remaining ranks hang. Does not take the mutex,
 * which a dead process may hold. */
static bool is_aftermath(uint64_t *since)
{
    if (!atomic_load(&current->failed))
        return false;
    if (*since == 0)
        *since = twill_now();
    return twill_now() - *since > AFTERMATH;
}

/* Threads that hang cannot be ended singly, and use a stack that is about to go: end the
 * process. */
static void await_threads(void)
{
    struct timespec until;
    uint64_t since = 0;
    pthread_mutex_lock(&current->mutex);
    while (current->gone < current->size) {
        if (is_aftermath(&since)) {
            print_error("%s\n%d of %d ranks have not ended since\n", current->failure,
                        current->size - current->gone, current->size);
            fflush(NULL);
            _exit(1);
        }
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec++;
        pthread_cond_timedwait(&current->changed, &current->mutex, &until);
    }
    pthread_mutex_unlock(&current->mutex);
}

void twill_test_run_ranks(int size, twill_rank_fn fn, void *user)
{
    struct rank *ranks = ranks_create(size, fn, user);
    for (int r = 0; r < size; r++)
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, rank_main, &ranks[r]), 0);
    await_threads();
    for (int r = 0; r < size; r++)
        pthread_join(ranks[r].thread, NULL);
    ranks_end(ranks);
}

/* Run the ranks of one process: `threads` of them. */
static void process_main(struct rank *ranks, int threads)
{
    for (int t = 1; t < threads; t++)
        if (pthread_create(&ranks[t].thread, NULL, rank_main, &ranks[t]) != 0)
            _exit(1);
    rank_main(&ranks[0]);
    for (int t = 1; t < threads; t++)
        pthread_join(ranks[t].thread, NULL);
    _exit(0);
}

static void end_processes(const struct rank *ranks, int size)
{
    for (int r = 0; r < size; r++)
        if (ranks[r].pid > 0 && kill(ranks[r].pid, SIGKILL) == 0)
            (void)waitpid(ranks[r].pid, NULL, 0);
}

/* Reap processes in the order of their end, so that exchanges fail when a rank is gone. */
static void reap_processes(struct rank *ranks, int size, int threads)
{
    uint64_t since = 0;
    for (int left = size; left > 0;) {
        if (is_aftermath(&since)) {
            end_processes(ranks, size);
            return;
        }
        for (int r = 0; r < size; r += threads) {
            int status = 0;
            if (ranks[r].pid <= 0 || waitpid(ranks[r].pid, &status, WNOHANG) != ranks[r].pid)
                continue;
            ranks[r].pid = 0;
            bool fine = WIFEXITED(status) && WEXITSTATUS(status) == 0;
            for (int t = r; t < r + threads && t < size; t++) {
                left--;
                leave_group(current, t);
                fine = fine || current->may_die[t];
            }
            TWILL_NOTE(fine, "rank %d ended with wait status %#x", r, (unsigned)status);
        }
        usleep(1000);
    }
}

void twill_test_run_mixed(int size, int threads, twill_rank_fn fn, void *user)
{
    struct rank *ranks = ranks_create(size, fn, user);
    fflush(NULL);
    for (int r = 0; r < size; r += threads) {
        ranks[r].pid = fork();
        assert_true(ranks[r].pid >= 0);
        if (ranks[r].pid == 0)
            process_main(&ranks[r], r + threads <= size ? threads : size - r);
    }
    reap_processes(ranks, size, threads);
    ranks_end(ranks);
}

void twill_test_run_processes(int size, twill_rank_fn fn, void *user)
{
    twill_test_run_mixed(size, 1, fn, user);
}

void twill_test_expect_death(int rank)
{
    current->may_die[rank] = true;
}

void *twill_test_shared(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

bool twill_test_note(bool ok, const char *file, int line, const char *what, const char *format, ...)
{
    if (ok || current == NULL) /* a program without a run of ranks uses the checks by itself */
        return ok;
    va_list arguments;
    va_start(arguments, format);
    pthread_mutex_lock(&current->mutex);
    if (!atomic_load(&current->failed)) {
        char text[800];
        vsnprintf(text, sizeof(text), format, arguments);
        snprintf(current->failure, sizeof(current->failure), "%s:%d: %s:%s", file, line, what,
                 text);
        atomic_store(&current->failed, true);
    }
    pthread_mutex_unlock(&current->mutex);
    va_end(arguments);
    return false;
}

bool twill_test_says(const char *message, const char *words, const char *file, int line)
{
    return twill_test_note(strstr(message, words) != NULL, file, line, "TWILL_SAYS()",
                           " \"%s\" is not in \"%s\"", words, message);
}

bool twill_test_failed(void)
{
    return atomic_load(&current->failed);
}

struct test_oob {
    struct twill_oob oob;
    twill_bootstrap *caller;
};

static twill_status oob_allgather(struct twill_oob *oob, const void *mine, void *all, size_t bytes,
                                  struct twill_error *error)
{
    twill_bootstrap *caller = ((struct test_oob *)oob)->caller;
    if (caller->exchange(caller->user, mine, all, bytes) != 0)
        return TWILL_FAIL(error, TWILL_ERR_BOOTSTRAP,
                          "rank %d: the test's exchange of %zu bytes "
                          "failed: a rank has left",
                          oob->rank, bytes);
    return TWILL_OK;
}

void twill_test_oob_close(struct twill_oob *oob)
{
    free(oob);
}

static const struct twill_bootstrap_ops test_oob_ops = {
    .size_of = sizeof(struct twill_bootstrap_ops),
    .name = "test",
    .allgather = oob_allgather,
    .close = twill_test_oob_close,
};

struct twill_oob *twill_test_oob(twill_bootstrap *caller)
{
    struct test_oob *oob = calloc(1, sizeof(*oob));
    if (oob == NULL)
        return NULL;
    oob->caller = caller;
    oob->oob = (struct twill_oob){.ops = &test_oob_ops,
                                  .rank = caller->rank,
                                  .size = caller->size,
                                  .timeout_ns = TWILL_TEST_PATIENCE,
                                  .address = "127.0.0.1",
                                  .how = "test"};
    memcpy(oob->oob.nonce, ((struct rank *)caller->user)->group->nonce, TWILL_NONCE_BYTES);
    return &oob->oob;
}
