/* SPDX-License-Identifier: Apache-2.0 */
/* TWILL_METRICS, a file in the text format of Prometheus with calls, bytes and seconds. A thread
 * whose call completes when it is time writes it, and so does the end of a communicator. */
#include "algorithms/select/explain.h"
#include "lib/comm/comm.h"
#include "lib/engine/plan.h"
#include "lib/engine/time_split.h"
#include "lib/job/config.h"
#include "lib/job/context.h"
#include "lib/job/log.h"
#include "lib/report/recording.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The sums of one row of the file. Made when a run is laid out, and kept until the context ends.
 * The holder of its communicator adds, and any thread may read. */
struct twill_account {
    struct twill_account *next;
    uint32_t comm; /* number of the communicator */
    enum twill_collective collective;
    unsigned size; /* index in classes[], by the larger side of the call */
    char algorithm[TWILL_WHY_NAME];
    uint64_t calls, bytes;   /* bytes of the larger side of each call */
    uint64_t ticks, waiting; /* time in calls, and the part until the last rank had entered */
};

/* The metrics of a context, made and freed with it. The context's lock protects the list of
 * accounts. No account is freed before the context ends. While one thread (`writing`) writes the
 * file, others may add, so its counters may be of slightly different moments. */
struct twill_metrics {
    struct twill_observer observer; /* the first member, as context->observer points to it */
    char path[PATH_MAX];
    struct twill_account *accounts;
    uint64_t ticks_at_start, ns_at_start;
    uint64_t every_ns;        /* TWILL_TUNE=metrics_every */
    _Atomic uint64_t next_ns; /* twill_now() at which to write */
    _Atomic bool writing;
};

/* Classes of sizes, with the most bytes of each and its label. */
static const struct size_class {
    uint64_t most;
    const char *label;
} classes[] = {{UINT64_C(1) << 10, "1K"},
               {UINT64_C(1) << 16, "64K"},
               {UINT64_C(1) << 20, "1M"},
               {UINT64_C(1) << 24, "16M"},
               {UINT64_MAX, "more"}};

/* Return the metrics of a context, or NULL if it keeps none. */
static struct twill_metrics *metrics_of(const struct twill_context *context)
{
    return (struct twill_metrics *)(uintptr_t)context->observer;
}

/* Set run->layout.account to the sums of calls with the run's communicator, collective, class of
 * sizes and algorithm, and make it if there is none. Fails only if out of memory. */
static twill_status find_account(struct twill_request *run)
{
    struct twill_context *context = run->engine->context;
    struct twill_metrics *metrics = metrics_of(context);
    struct twill_account wanted = {.comm = run->engine->number,
                                   .collective = run->summary.collective};
    while (run->bytes > classes[wanted.size].most)
        wanted.size++;
    twill_why_name(&run->plan->choice, wanted.algorithm);
    twill_context_lock(context);
    struct twill_account *found = metrics->accounts;
    while (found != NULL &&
           (found->comm != wanted.comm || found->collective != wanted.collective ||
            found->size != wanted.size || strcmp(found->algorithm, wanted.algorithm) != 0))
        found = found->next;
    if (found == NULL && (found = malloc(sizeof(*found))) != NULL) {
        *found = wanted;
        found->next = metrics->accounts;
        metrics->accounts = found;
    }
    twill_context_unlock(context);
    run->layout.account = found;
    return found != NULL ? TWILL_OK
                         : TWILL_FAIL(&run->engine->error, TWILL_ERR_MEMORY,
                                      "out of memory for TWILL_METRICS");
}

/* Add a call that has ended to its account, and write the file if it is time. What the call has
 * waited is added later, by twill_split_add() through split->observed. */
static void count_call(struct twill_request *request)
{
    struct twill_account *account = request->layout.account;
    struct twill_metrics *metrics = metrics_of(request->engine->context);
    twill_counter_add(&account->calls, 1);
    twill_counter_add(&account->bytes, request->bytes);
    twill_counter_add(&account->ticks, request->ended - request->ticks);
    request->engine->split->observed = &account->waiting;
    uint64_t now = twill_now();
    if (now < atomic_load_explicit(&metrics->next_ns, memory_order_relaxed))
        return;
    atomic_store_explicit(&metrics->next_ns, now + metrics->every_ns, memory_order_relaxed);
    twill_metrics_write(request->engine->context);
}

/* The text of the file while it is composed, of `used` bytes. It grows by itself. */
struct metrics_text {
    char *start;
    size_t used, capacity;
};

/* Append formatted text, or nothing if there is no memory for it. */
static void TWILL_PRINTF(2, 3) add_text(struct metrics_text *text, const char *format, ...)
{
    va_list arguments;
    for (;;) {
        va_start(arguments, format);
        int length = twill_print_list(text->start + text->used, text->capacity - text->used, format,
                                      arguments);
        va_end(arguments);
        if (length < 0 || text->used + (size_t)length < text->capacity) {
            text->used += length > 0 ? (size_t)length : 0;
            return;
        }
        size_t capacity = 2 * text->capacity + (size_t)length;
        char *more = realloc(text->start, capacity);
        if (more == NULL)
            return;
        text->start = more;
        text->capacity = capacity;
    }
}

/* The families of metrics, with name and help. */
enum family { FAMILY_CALLS, FAMILY_BYTES, FAMILY_WAITING, FAMILY_MOVING, FAMILY_COUNT };
static const char *const families[FAMILY_COUNT][2] = {
    {"twill_calls_total", "Completed collectives."},
    {"twill_bytes_total", "Bytes of the larger side of completed collectives."},
    {"twill_waiting_seconds_total", "Time in collectives, waiting for the last rank to enter."},
    {"twill_moving_seconds_total", "The rest of the time in collectives."},
};

/* Append an account's value of a family of metrics, and a newline. */
static void add_value(struct metrics_text *text, const struct twill_metrics *metrics,
                      const struct twill_account *account, enum family family)
{
    uint64_t all = twill_ticks() - metrics->ticks_at_start;
    double second = (double)(twill_now() - metrics->ns_at_start) * 1e-9 / (double)(all | 1);
    uint64_t ticks = twill_counter_read(&account->ticks);
    uint64_t waiting = twill_min(twill_counter_read(&account->waiting), ticks);
    if (family == FAMILY_CALLS)
        add_text(text, "%llu\n", (unsigned long long)twill_counter_read(&account->calls));
    else if (family == FAMILY_BYTES)
        add_text(text, "%llu\n", (unsigned long long)twill_counter_read(&account->bytes));
    else
        add_text(text, "%.9f\n",
                 second * (double)(family == FAMILY_WAITING ? waiting : ticks - waiting));
}

/* Append the whole text of the file to *text. Takes the context's lock. */
static void compose(struct twill_context *context, struct metrics_text *text)
{
    const struct twill_metrics *metrics = metrics_of(context);
    twill_context_lock(context);
    for (enum family family = FAMILY_CALLS; family < FAMILY_COUNT; family++) {
        const char *name = families[family][0];
        add_text(text, "# HELP %s %s\n# TYPE %s counter\n", name, families[family][1], name);
        for (const struct twill_account *a = metrics->accounts; a != NULL; a = a->next) {
            add_text(text,
                     "%s{rank=\"%d\",comm=\"%u\",collective=\"%s\",size=\"%s\",algorithm=\"%s\"} ",
                     name, context->log.rank, a->comm, twill_collective_facts(a->collective)->name,
                     classes[a->size].label, a->algorithm);
            add_value(text, metrics, a, family);
        }
    }
    twill_context_unlock(context);
}

/* Write a text to a new file, and rename that, so that readers see either the old file or the new
 * one. Returns false, with errno, on failure. */
static bool replace_file(const char *path, const struct metrics_text *text)
{
    char part[PATH_MAX + 32];
    snprintf(part, sizeof(part), "%s.%d.part", path, (int)getpid());
    int fd = twill_fd_move(open(part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666),
                           TWILL_FD_LEAST);
    if (fd < 0)
        return false;
    size_t done = 0;
    while (done < text->used) {
        ssize_t wrote = write(fd, text->start + done, text->used - done);
        if (wrote < 0 && errno != EINTR)
            break;
        done += wrote > 0 ? (size_t)wrote : 0;
    }
    bool good = done == text->used;
    int reason = errno;
    if (close(fd) == 0 && good && rename(part, path) == 0)
        return true;
    errno = good ? errno : reason;
    (void)unlink(part);
    return false;
}

void twill_metrics_write(struct twill_context *context)
{
    struct twill_metrics *metrics = metrics_of(context);
    struct metrics_text text = {.capacity = 4096};
    if (metrics == NULL || atomic_exchange_explicit(&metrics->writing, true, memory_order_acquire))
        return;
    text.start = malloc(text.capacity);
    if (text.start != NULL) {
        compose(context, &text);
        if (!replace_file(metrics->path, &text))
            twill_say(&context->log, TWILL_LOG_WARN, "TWILL_METRICS: %s: %s", metrics->path,
                      strerror(errno));
        free(text.start);
    }
    atomic_store_explicit(&metrics->writing, false, memory_order_release);
}

/* Free the metrics of a context that ends. */
static void close_metrics(struct twill_context *context)
{
    struct twill_metrics *metrics = metrics_of(context);
    while (metrics->accounts != NULL) {
        struct twill_account *account = metrics->accounts;
        metrics->accounts = account->next;
        free(account);
    }
    free(metrics);
    context->observer = NULL;
}

twill_status twill_metrics_open(struct twill_context *context, struct twill_error *error)
{
    const char *pattern = twill_config_text(context->config, TWILL_VARIABLE_METRICS);
    if (pattern == NULL || context->observer != NULL)
        return TWILL_OK;
    struct twill_metrics *metrics = calloc(1, sizeof(*metrics));
    if (metrics == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory for TWILL_METRICS");
    const char *wrong = twill_log_name_file(&context->log, pattern, metrics->path);
    size_t used = strlen(metrics->path);
    if (wrong == NULL && strstr(pattern, "%r") == NULL && context->log.size > 1)
        snprintf(metrics->path + used, sizeof(metrics->path) - used, ".%d", context->log.rank);
    if (wrong != NULL) {
        free(metrics);
        return TWILL_FAIL(error, TWILL_ERR_CONFIG, "TWILL_METRICS=%.60s: %s", pattern, wrong);
    }
    metrics->ticks_at_start = twill_ticks();
    metrics->ns_at_start = twill_now();
    metrics->every_ns = (uint64_t)context->config->number[TWILL_VARIABLE_METRICS_EVERY];
    atomic_init(&metrics->next_ns, metrics->ns_at_start + metrics->every_ns);
    metrics->observer = (struct twill_observer){.planned = find_account, .ended = count_call};
    context->observer = &metrics->observer;
    twill_context_lock(context);
    twill_context_at_end(context, close_metrics);
    twill_context_unlock(context);
    return TWILL_OK;
}
