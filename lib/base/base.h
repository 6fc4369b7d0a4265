/* SPDX-License-Identifier: Apache-2.0 */
/* Included by every module: the public types, errors, the log and a few helpers. */
#ifndef TWILL_BASE_H
#define TWILL_BASE_H

#include "lib/twill.h"

#include <stdarg.h>
#include <stdbool.h>

#define TWILL_CACHE_LINE 64
#define TWILL_WINDOW     2 /* instances of schedules in flight, of a communicator */
#define TWILL_HUGE_PAGE  (2u << 20)

/* Internal status of a transfer or run that is not complete yet; never returned to callers. */
#define TWILL_PENDING 1

#define TWILL_ARRAY_LENGTH(a) (sizeof(a) / sizeof((a)[0]))
#define TWILL_ALIGNED(n)      __attribute__((aligned(n)))
#define TWILL_PRINTF(f, a)    __attribute__((format(printf, f, a)))
#define TWILL_LIKELY(x)       __builtin_expect(!!(x), 1)
#define TWILL_UNLIKELY(x)     __builtin_expect(!!(x), 0)
/* An exported function of a library whose others are hidden. */
#define TWILL_EXPORTED __attribute__((visibility("default")))
/* The value of a macro as a string. */
#define TWILL_STRING(x)  #x
#define TWILL_TEXT_OF(x) TWILL_STRING(x)

static inline size_t twill_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t twill_max(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Round n up to a multiple of `to`, a power of two. */
static inline size_t twill_round_up(size_t n, size_t to)
{
    return (n + to - 1) & ~(to - 1);
}

/* A failure on its way up the call stack: its status, its message and the source lines it passed.
 * Each context and communicator has one; functions that can fail take a pointer to one, so that
 * nothing is global. Not thread safe: its owner's lock protects it. */
struct twill_error {
    twill_status status;
    uint32_t rank; /* the rank of the communicator that has failed or misbehaved, if it is one other
                      rank and TWILL_FAIL_RANK said so; else TWILL_NO_RANK. TWILL_OK: undefined */
    unsigned depth;
    struct twill_error_place {
        const char *file;
        int line;
    } places[8];
    char message[512];
};

#define TWILL_NO_RANK      UINT32_MAX
#define TWILL_RANK_TEXT    48 /* bytes of a rank's name: twill_rank_text() */
#define TWILL_ADDRESS_TEXT 64 /* bytes of a numeric IPv4 or IPv6 address as text */

void twill_error_clear(struct twill_error *error);
/* Record a failure unless there is one already, and return `status`. error may be NULL. Called by
 * TWILL_FAIL and TWILL_FAIL_RANK. */
twill_status twill_error_set(struct twill_error *error, twill_status status, uint32_t rank,
                             const char *file, int line, const char *format, ...)
    TWILL_PRINTF(6, 7);
/* Like twill_error_set(), with a list of arguments and a text, such as a rank's name, before the
 * message: "rank 1: ". No argument may point into the error. */
twill_status twill_error_set_list(struct twill_error *error, twill_status status, uint32_t rank,
                                  const char *file, int line, const char *before,
                                  const char *format, va_list arguments) TWILL_PRINTF(7, 0);
/* Put a text, such as a rank's name, before the message, if there is one. error may be NULL. */
void twill_error_prefix(struct twill_error *error, const char *format, ...) TWILL_PRINTF(2, 3);
/* Append a source line to the trace and return `status`. error may be NULL. */
twill_status twill_error_pass(struct twill_error *error, twill_status status, const char *file,
                              int line);

/* The lowest value of twill_status. */
#define TWILL_STATUS_LOWEST TWILL_ERR_EXCLUDED

/* Return a status that another process has sent, TWILL_ERR_INTERNAL if it is none of twill_status:
 * TWILL_TRY takes a positive one for success. */
static inline twill_status twill_status_received(int64_t sent)
{
    return sent <= 0 && sent >= TWILL_STATUS_LOWEST ? (twill_status)sent : TWILL_ERR_INTERNAL;
}

/* Record a failure and evaluate to its status:
 * return TWILL_FAIL(error, TWILL_ERR_SYSTEM, "memfd_create: %s", strerror(errno)); */
#define TWILL_FAIL(error, status, ...) TWILL_FAIL_RANK(error, status, TWILL_NO_RANK, __VA_ARGS__)
/* Record also which rank of the communicator the failure is about. */
#define TWILL_FAIL_RANK(error, status, rank, ...)                                                  \
    twill_error_set((error), (status), (rank), __FILE__, __LINE__, __VA_ARGS__)

/* Return from the function if the call fails, adding this line to the trace. */
#define TWILL_TRY(error, call)                                                                     \
    do {                                                                                           \
        twill_status twill_try_status_ = (call);                                                   \
        if (TWILL_UNLIKELY(twill_try_status_ < 0))                                                 \
            return twill_error_pass((error), twill_try_status_, __FILE__, __LINE__);               \
    } while (0)

/* Jump to the label `fail`, with the variable `status` set, if the call fails. */
#define TWILL_TRY_OR_FAIL(error, call)                                                             \
    do {                                                                                           \
        status = (call);                                                                           \
        if (TWILL_UNLIKELY(status < 0)) {                                                          \
            twill_error_pass((error), status, __FILE__, __LINE__);                                 \
            goto fail;                                                                             \
        }                                                                                          \
    } while (0)

enum twill_log_level { TWILL_LOG_NONE, TWILL_LOG_WARN, TWILL_LOG_INFO, TWILL_LOG_DEBUG };

/* The log of a context, which fills it in before several threads use it. */
struct twill_log {
    enum twill_log_level level;
    int rank;                                    /* -1: not known yet */
    void (*print)(void *user, const char *line); /* called instead of writing, or NULL */
    void *user;
    int size;       /* number of ranks */
    int file;       /* descriptor of TWILL_LOG_FILE; 0: standard error */
    char where[72]; /* "host:pid" */
};

static inline bool twill_log_enabled(const struct twill_log *log, enum twill_log_level level)
{
    return log != NULL && level <= log->level;
}

/* Return the level for a line that several ranks would write alike: `level` on the first of them,
 * one level more verbose on the others. */
static inline enum twill_log_level twill_log_once(enum twill_log_level level, bool first)
{
    return first ? level : (enum twill_log_level)twill_min(level + 1, TWILL_LOG_DEBUG);
}

/* Is this the first rank of the job, or a process whose rank is not known yet? */
static inline bool twill_log_is_first(const struct twill_log *log)
{
    return log == NULL || log->rank <= 0;
}

/* Write a line, with one write(), if `level` is enabled: "twill[RANK]: ...", or, if the log's level
 * is info or debug, "twill: HOST:PID rank RANK/SIZE LEVEL: ...". Longer ones than 1023 bytes are
 * cut. Any thread may call it. Do not log secrets. */
void twill_say(const struct twill_log *log, enum twill_log_level level, const char *format, ...)
    TWILL_PRINTF(3, 4);

/* Print as snprintf() and vsnprintf() do, and read as strtod() does, with the point of the C
 * locale: a program that has called setlocale() may have another one. Any thread may call them. */
int twill_print(char *text, size_t bytes, const char *format, ...) TWILL_PRINTF(3, 4);
int twill_print_list(char *text, size_t bytes, const char *format, va_list arguments)
    TWILL_PRINTF(3, 0);
double twill_read_real(const char *text, char **end);
/* Read an integer; one of bytes is not negative and may end in K, M, G or T. Returns false if the
 * text is not one. */
bool twill_read_integer(const char *text, bool bytes, int64_t *number);
/* Return whether the first `length` bytes of two words are equal, or both words if they are
 * shorter. ASCII letters of either case count as equal, whatever the locale is. */
bool twill_words_equal(const char *a, const char *b, size_t length);

/* Return " (too many open files: see ulimit -n)" if this process, or the host, has no descriptor
 * left, else "": for errors of libraries that do not say so. */
const char *twill_shortage_text(void);

#define TWILL_TEXT_DISTANCE_MOST 64u

/* Return the Levenshtein distance between the first `length` bytes of a text and a name, at most
 * TWILL_TEXT_DISTANCE_MOST, which is also returned if one is too long. For "did you mean". */
unsigned twill_text_distance(const char *text, size_t length, const char *name);

/* Append a name to a list in `text`, whose size is `bytes`: "ring, tree". One that has no place for
 * all names ends with "..." instead of a part of one. */
void twill_text_list(char *text, size_t bytes, const char *name);

/* Replace tabs by blanks, and other control characters, such as those that command a terminal, by
 * '?'. For text that came from another host. */
void twill_text_plain(char *text, size_t bytes);

/* Fill memory with random bytes of the kernel, up to 256. Returns false with errno on failure. */
bool twill_random(void *bytes, size_t count);

/* Move a descriptor of the library to the lowest free number from `least` on: what it keeps must
 * not get a number of a standard stream that is closed (TWILL_FD_LEAST), or numbers that the
 * program may need. Returns the new one, or `fd` if it needs no move, cannot be moved, or is
 * negative. errno stays. */
#define TWILL_FD_LEAST 3
int twill_fd_move(int fd, int least);

/* Standard streams that are closed, occupied while other libraries open their descriptors: what the
 * program prints is to go nowhere, as before, not into these. */
struct twill_fd_guard {
    unsigned held; /* bit i: descriptor i */
};
void twill_fd_guard_begin(struct twill_fd_guard *guard);
/* Close them again, those that the program has not replaced meanwhile. */
void twill_fd_guard_end(struct twill_fd_guard *guard);

/* The limit of descriptors (ulimit -Sn) is raised to the hard limit for a short while only: the
 * program keeps its own, and its children inherit that. What is opened meanwhile is to be moved to
 * numbers from `before` on. Another thread of the program that forks just then passes the raised
 * limit on. */
struct twill_fd_limit {
    uint64_t before, now;
};
void twill_fd_limit_raise(struct twill_fd_limit *limit);
void twill_fd_limit_restore(const struct twill_fd_limit *limit);
/* Return how many descriptors below `limit` this process has open, or without /proc the lowest free
 * one. */
size_t twill_fd_count(uint64_t limit);

/* Set a counter, or add to it, that other threads may read at any time. One thread changes it at a
 * time. */
static inline void twill_counter_set(uint64_t *counter, uint64_t value)
{
    __atomic_store_n(counter, value, __ATOMIC_RELAXED);
}

static inline void twill_counter_add(uint64_t *counter, uint64_t more)
{
    __atomic_store_n(counter, *counter + more, __ATOMIC_RELAXED);
}
static inline uint64_t twill_counter_read(const uint64_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

/* Continue a hash of 64-bit values. Not for secrets. */
static inline uint64_t twill_hash_mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

/* Return the monotonic time in nanoseconds. */
uint64_t twill_now(void);

/* Return the time of a cheap clock of unknown rate that all cores of a host share: the TSC on
 * x86-64. */
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
