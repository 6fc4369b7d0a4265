/* SPDX-License-Identifier: Apache-2.0 */
/* Included by every module: the public types, errors, the log and a few helpers. */
#ifndef TWILL_BASE_H
#define TWILL_BASE_H

#include "lib/twill.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>

#define TWILL_CACHE_LINE 64
#define TWILL_WINDOW     2 /* schedules that a communicator may have in flight */
#define TWILL_HUGE_PAGE  (2u << 20)

/* Internal status of a transfer or run that is not complete yet. Callers never get it. */
#define TWILL_PENDING 1

#define TWILL_ARRAY_LENGTH(a) (sizeof(a) / sizeof((a)[0]))
#define TWILL_ALIGNED(n)      __attribute__((aligned(n)))
#define TWILL_PRINTF(f, a)    __attribute__((format(printf, f, a)))
#define TWILL_LIKELY(x)       __builtin_expect(!!(x), 1)
#define TWILL_UNLIKELY(x)     __builtin_expect(!!(x), 0)
/* Export a function of a library whose other functions are hidden. */
#define TWILL_EXPORTED __attribute__((visibility("default")))
/* Make a string of the value of a macro. */
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

/* Begin to fetch the lines of `bytes` bytes, to write them without delay. Older x86 processors
 * ignore this. */
static inline void twill_fetch_to_write(const void *at, size_t bytes)
{
    const unsigned char *line = at;
    for (size_t i = 0; i < bytes; i += TWILL_CACHE_LINE)
#ifdef __x86_64__
        __asm__ volatile("prefetchw %0" : : "m"(line[i]));
#else
        __builtin_prefetch(line + i, 1);
#endif
}

/* A failure on its way up the call stack, with its status, message and the source lines passed.
 * Each context and communicator has one, under its lock. Others are on the stack of a function.
 * Functions that can fail take a pointer to one, so nothing is global. */
struct twill_error {
    twill_status status;
    uint32_t rank;  /* the rank of the communicator that TWILL_FAIL_RANK has blamed, or
                       TWILL_NO_RANK. Undefined if status is TWILL_OK */
    unsigned depth; /* number of places that are used */
    struct twill_error_place {
        const char *file;
        int line;
    } places[8]; /* its source lines, from the first on */
    char message[512];
};

#define TWILL_NO_RANK      UINT32_MAX
#define TWILL_RANK_TEXT    48 /* bytes of a rank's name: twill_rank_text() */
#define TWILL_ADDRESS_TEXT 64 /* bytes of a numeric IPv4 or IPv6 address as text */

void twill_error_clear(struct twill_error *error); /* make it TWILL_OK, with no message */
/* Record a failure about `rank` unless `error` is NULL or has one. Returns `status`. */
twill_status twill_error_set(struct twill_error *error, twill_status status, uint32_t rank,
                             const char *file, int line, const char *format, ...)
    TWILL_PRINTF(6, 7);
/* Do what twill_error_set() does, with a list of arguments and a text before the message, such as
 * "rank 1: ". No argument may point into the error. */
twill_status twill_error_set_list(struct twill_error *error, twill_status status, uint32_t rank,
                                  const char *file, int line, const char *before,
                                  const char *format, va_list arguments) TWILL_PRINTF(7, 0);
/* Put a text, such as a rank's name, before the message of a failure. Does nothing if `error` is
 * NULL or has none. */
void twill_error_prefix(struct twill_error *error, const char *format, ...) TWILL_PRINTF(2, 3);
/* Append a source line to the places of `error`, if it has room for one. Returns `status`. `error`
 * may be NULL. */
twill_status twill_error_pass(struct twill_error *error, twill_status status, const char *file,
                              int line);

/* The lowest value of twill_status. */
#define TWILL_STATUS_LOWEST TWILL_ERR_EXCLUDED

/* Return `sent`, a status that another process has sent, or TWILL_ERR_INTERNAL if it is no
 * twill_status. */
static inline twill_status twill_status_received(int64_t sent)
{
    return sent <= 0 && sent >= TWILL_STATUS_LOWEST ? (twill_status)sent : TWILL_ERR_INTERNAL;
}

/* Record a failure and evaluate to its status, as in
 * return TWILL_FAIL(error, TWILL_ERR_SYSTEM, "memfd_create: %s", strerror(errno)); */
#define TWILL_FAIL(error, status, ...) TWILL_FAIL_RANK(error, status, TWILL_NO_RANK, __VA_ARGS__)
/* Do the same, and record which rank of the communicator the failure is about. */
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

/* The log of a context, of which it is a member. Constant once several threads use it. */
struct twill_log {
    enum twill_log_level level;
    int rank;                                    /* rank in the job, or -1 if not known yet */
    void (*print)(void *user, const char *line); /* called instead of writing, or NULL */
    void *user;
    int size;       /* number of ranks */
    int file;       /* descriptor of TWILL_LOG_FILE, or 0 for standard error */
    char where[72]; /* "host:pid" */
};

/* Return whether lines of a level are written. `log` may be NULL, and then none is. */
static inline bool twill_log_enabled(const struct twill_log *log, enum twill_log_level level)
{
    return log != NULL && level <= log->level;
}

/* Return the level for a line that several ranks would write alike. That is `level` on the first of
 * them, and one level more verbose on the others. */
static inline enum twill_log_level twill_log_once(enum twill_log_level level, bool first)
{
    return first ? level : (enum twill_log_level)twill_min(level + 1, TWILL_LOG_DEBUG);
}

/* Return whether this is the first rank of the job, or a process whose rank is not known yet. */
static inline bool twill_log_is_first(const struct twill_log *log)
{
    return log == NULL || log->rank <= 0;
}

/* If `level` is enabled, write a line, with one write(), or pass it to log->print() if there is
 * one. It begins with "twill[RANK]: ", or, if the log's level is info or debug, with "twill:
 * HOST:PID rank RANK/SIZE LEVEL: ". It is cut at 1023 bytes. Any thread may call it. Do not log
 * secrets. */
void twill_say(const struct twill_log *log, enum twill_log_level level, const char *format, ...)
    TWILL_PRINTF(3, 4);

/* Print as snprintf() does, but in the C locale, even if the program has called setlocale(). */
int twill_print(char *text, size_t bytes, const char *format, ...) TWILL_PRINTF(3, 4);
/* Print as vsnprintf() does, but in the C locale. */
int twill_print_list(char *text, size_t bytes, const char *format, va_list arguments)
    TWILL_PRINTF(3, 0);
/* Read a number as strtod() does, but in the C locale. Any thread may call it. */
double twill_read_real(const char *text, char **end);
/* Read an integer into *number. If `bytes`, it must not be negative. It may then end in B, or in K,
 * M, G or T (powers of 1024), also written as KB or KiB. Returns false, and leaves *number, for any
 * other text or one too large. */
bool twill_read_integer(const char *text, bool bytes, int64_t *number);
/* Return whether two words are equal in their first `length` bytes, or as a whole if shorter. ASCII
 * letters of either case count as equal in any locale. */
bool twill_words_equal(const char *a, const char *b, size_t length);

/* Return " (too many open files: see ulimit -n)" if this process or the host has no descriptor
 * left, else "". It completes errors of libraries that do not say so. */
const char *twill_shortage_text(void);

#define TWILL_TEXT_DISTANCE_MOST 64u

/* Return the Levenshtein distance between the first `length` bytes of a text and a name, for "did
 * you mean". Returns TWILL_TEXT_DISTANCE_MOST if it is larger or one of them is too long. */
unsigned twill_text_distance(const char *text, size_t length, const char *name);

/* Append a name to a list such as "ring, tree" in `text`, whose size is `bytes`. If a name does not
 * fit as a whole, the list ends with "..." instead. */
void twill_text_list(char *text, size_t bytes, const char *name);

/* In the first `bytes` bytes of a text from another host, replace tabs by blanks and other control
 * characters, also NUL, by '?'. */
void twill_text_plain(char *text, size_t bytes);

/* Fill bytes[count], at most 256 bytes, with random bytes of the kernel. Returns false with errno
 * on failure. */
bool twill_random(void *bytes, size_t count);

#define TWILL_FD_LEAST 3
/* Move a descriptor of the library to the lowest free number from `least` on, so that it has
 * neither the number of a closed standard stream (TWILL_FD_LEAST) nor one that the program may
 * need. Returns the new number, or `fd` if it needs or allows no move. Keeps errno. */
int twill_fd_move(int fd, int least);

/* Placeholders for closed standard streams, while other libraries open their descriptors. If these
 * got the numbers of the streams, the program would print into them. */
struct twill_fd_guard {
    unsigned held; /* bit i is set if descriptor i is a placeholder */
};
void twill_fd_guard_begin(struct twill_fd_guard *guard); /* open the placeholders */
/* Close the placeholders that the program has not replaced meanwhile. */
void twill_fd_guard_end(struct twill_fd_guard *guard);

/* The soft limit of descriptors (ulimit -Sn) before and after twill_fd_limit_raise(). */
struct twill_fd_limit {
    uint64_t before, now;
};
/* Raise the soft limit to the hard limit, as far as allowed, and store it before and after that.
 * Both are 0 if it cannot be read. Restore it soon, as children inherit it, even one that another
 * thread forks meanwhile. Descriptors opened in between must be moved to numbers from `before`
 * on. */
void twill_fd_limit_raise(struct twill_fd_limit *limit);
/* Set the soft limit back to limit->before, if it was raised. */
void twill_fd_limit_restore(const struct twill_fd_limit *limit);
/* Return how many descriptors below `limit` this process has open. Without /proc return the lowest
 * free one, or SIZE_MAX if there is none. */
size_t twill_fd_count(uint64_t limit);

/* Functions for a counter. Any thread may read it while one thread at a time changes it. */
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

/* Return `hash`, the hash of earlier values, continued by one more value. Not for secrets. */
static inline uint64_t twill_hash_mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

/* Return the monotonic time in nanoseconds. */
uint64_t twill_now(void);

/* Return the time of a cheap clock of unknown rate, which the cores of a host share (the TSC). */
static inline uint64_t twill_ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return twill_now();
#endif
}

/* Execute the CPU's pause instruction, if it has one, for a thread that spins. */
static inline void twill_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* --- news: what all ranks learn with the data of a call in which one of them has it. A node has it
 * as words, which all its ranks write, and messages between nodes as a set of bits. --- */
enum twill_news {
    TWILL_NEWS_STOP, /* a rank has asked to stop after the call */
    TWILL_NEWS_NAN,  /* its input of the call had a NaN or infinity (TWILL_FIRST_NAN) */
    TWILL_NEWS_KINDS
};

/* Who is notified of a NaN or infinity that a call finds in what it adds, in place of the library
 * (watch() of struct twill_extend_comm). It belongs to its user. */
struct twill_nan_watch {
    void *user;
    /* Return whether one is still sought. */
    bool (*seeks)(const void *user);
    /* Take note of the first one of some elements. It is element number `element` of what rank
     * `rank` contributes to `request`. Return the text of the error with which the call must fail,
     * or NULL if it continues. */
    const char *(*found)(void *user, const void *request, uint32_t rank, size_t element);
};

/* The news of a node, zeroed at first. `any` is nonzero if there are some. told[] has the least
 * number of a call in which a rank had each of them, or 0. */
struct twill_news_words {
    _Atomic uint32_t any;
    _Atomic uint64_t told[TWILL_NEWS_KINDS];
};

/* Return the least number of a call in which a rank had such news, or 0 if none had. */
static inline uint64_t twill_news_told(const struct twill_news_words *words, enum twill_news news)
{
    return atomic_load_explicit(&words->told[news], memory_order_acquire);
}

/* Tell the node that a rank has news in call number `sequence`, and keep the least such number. A
 * rank that then sees data of a later step of this rank also sees this. Returns the least number of
 * before, or 0. */
static inline uint64_t twill_news_tell(struct twill_news_words *words, enum twill_news news,
                                       uint64_t sequence)
{
    uint64_t before = twill_news_told(words, news);
    while ((before == 0 || before > sequence) &&
           !atomic_compare_exchange_weak(&words->told[news], &before, sequence))
        ;
    atomic_store_explicit(&words->any, 1, memory_order_release);
    return before;
}

#endif
