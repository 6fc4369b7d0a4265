/* SPDX-License-Identifier: Apache-2.0 */
/* What every room may know: the public enums, error records, and a few helpers. */
#ifndef TWILL_BASE_H
#define TWILL_BASE_H

#include "twill.h"

#include <stdarg.h>
#include <stdbool.h>

#define TWILL_CACHE_LINE 64
#define TWILL_HUGE_PAGE  (2u << 20)

/* A transport's or run's "not yet"; never leaves the library. */
#define TWILL_PENDING 1

#define TWILL_ARRAY_LENGTH(a) (sizeof(a) / sizeof((a)[0]))
#define TWILL_ALIGNED(n)      __attribute__((aligned(n)))
#define TWILL_PRINTF(f, a)    __attribute__((format(printf, f, a)))
#define TWILL_LIKELY(x)       __builtin_expect(!!(x), 1)
#define TWILL_UNLIKELY(x)     __builtin_expect(!!(x), 0)

static inline size_t twill_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t twill_max(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Round up to a multiple of a power of two. */
static inline size_t twill_round_up(size_t n, size_t to)
{
    return (n + to - 1) & ~(to - 1);
}

/* An error as it travels up: the first sentence said about it, and the places it passed
 * (a back-trace without printing). One lives in each context and communicator; functions that
 * can fail take a pointer to it, so that nothing is global. */
struct twill_error {
    twill_status status;
    unsigned depth;
    struct twill_error_place {
        const char *file;
        int line;
    } places[8];
    char message[512];
};

/* Forget. */
void twill_error_clear(struct twill_error *error);
/* Record a failure with its sentence and return the status. The first one after a clear stays.
 * error may be NULL. Use the macro. */
twill_status twill_error_set(struct twill_error *error, twill_status status, const char *file,
                             int line, const char *format, ...) TWILL_PRINTF(5, 6);
/* Put something before the sentence: whose it is, or what it is about. error may be NULL. */
void twill_error_prefix(struct twill_error *error, const char *format, ...) TWILL_PRINTF(2, 3);
/* Add a place and return the status. */
twill_status twill_error_pass(struct twill_error *error, twill_status status, const char *file,
                              int line);

/* return TWILL_FAIL(error, TWILL_ERR_SYSTEM, "memfd_create: %s", strerror(errno)); */
#define TWILL_FAIL(error, status, ...)                                                             \
    twill_error_set((error), (status), __FILE__, __LINE__, __VA_ARGS__)

/* Return on error, leaving a trace. */
#define TWILL_TRY(error, call)                                                                     \
    do {                                                                                           \
        twill_status twill_try_status_ = (call);                                                   \
        if (TWILL_UNLIKELY(twill_try_status_ < 0))                                                 \
            return twill_error_pass((error), twill_try_status_, __FILE__, __LINE__);               \
    } while (0)

/* Set-up with several resources: jump to the one fail: label, `status` in scope. */
#define TWILL_TRY_OR_FAIL(error, call)                                                             \
    do {                                                                                           \
        status = (call);                                                                           \
        if (TWILL_UNLIKELY(status < 0)) {                                                          \
            twill_error_pass((error), status, __FILE__, __LINE__);                                 \
            goto fail;                                                                             \
        }                                                                                          \
    } while (0)

enum twill_log_level { TWILL_LOG_NONE, TWILL_LOG_WARN, TWILL_LOG_INFO, TWILL_LOG_DEBUG };

/* Where a module may say something. One per context, which sets it up before it is used by several
 * threads. */
struct twill_log {
    enum twill_log_level level;
    int rank;                                    /* -1 before it is known */
    void (*print)(void *user, const char *line); /* instead of writing; or NULL */
    void *user;
    int size;       /* ranks */
    int file;       /* descriptor of TWILL_LOG_FILE, or 0: standard error */
    char where[72]; /* "host:pid" */
};

static inline bool twill_log_enabled(const struct twill_log *log, enum twill_log_level level)
{
    return log != NULL && level <= log->level;
}

/* What is the same on several ranks is told at this level by the first of them, and at the next
 * quieter one by the others. Of a whole job that is rank 0, or a process that knows no rank yet. */
static inline enum twill_log_level twill_log_once(enum twill_log_level level, bool first)
{
    return first ? level : (enum twill_log_level)twill_min(level + 1, TWILL_LOG_DEBUG);
}

static inline bool twill_log_is_first(const struct twill_log *log)
{
    return log == NULL || log->rank <= 0;
}

/* Write a line, in one write, if the level allows: "twill[RANK]: ..."; at level info and above
 * "twill: HOST:PID rank RANK/SIZE LEVEL: ...". For any thread. Never for secrets. */
void twill_say(const struct twill_log *log, enum twill_log_level level, const char *format, ...)
    TWILL_PRINTF(3, 4);

#define TWILL_TEXT_DISTANCE_MOST 64u

/* How many letters to insert, drop or change (Levenshtein) from the first `length` of a text to a
 * name: for "did you mean". At most TWILL_TEXT_DISTANCE_MOST, also for a name too long to try. */
unsigned twill_text_distance(const char *text, size_t length, const char *name);

/* Monotonic time in nanoseconds. */
uint64_t twill_now(void);

/* Floats of 8 and 16 bits: folded in f32, rounded at the end. */
static inline bool twill_type_is_narrow(twill_type type)
{
    return type == TWILL_F16 || type == TWILL_BF16 || type == TWILL_F8E4M3 || type == TWILL_F8E5M2;
}

/* A cheap clock of unknown rate, the same on all cores of a host: cycles where there are any. */
static inline uint64_t twill_ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return twill_now();
#endif
}

static inline void twill_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

#endif
