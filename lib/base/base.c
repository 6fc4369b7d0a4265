/* SPDX-License-Identifier: Apache-2.0 */
/* Defines base.h: errors, the log, texts without a locale, random bytes, descriptors, the clock. */
#include "lib/base/base.h"
#include "lib/base/lists.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* Return the C locale. C libraries have it as a constant, so nothing is allocated or freed. */
static locale_t c_locale(void)
{
    return newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

int twill_print_list(char *text, size_t bytes, const char *format, va_list arguments)
{
    locale_t before = uselocale(c_locale()); /* only of this thread */
    int length = vsnprintf(text, bytes, format, arguments);
    uselocale(before);
    return length;
}

int twill_print(char *text, size_t bytes, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = twill_print_list(text, bytes, format, arguments);
    va_end(arguments);
    return length;
}

double twill_read_real(const char *text, char **end)
{
    return strtod_l(text, end, c_locale());
}

/* Return the factor of a size's suffix. It is 1 for "" and "B". For K, M, G and T, in either case
 * and with B or iB behind or nothing, it is 2^10, 2^20, 2^30 and 2^40. Return 0 for any other. */
static int64_t suffix_factor(const char *suffix)
{
    static const char letters[] = "KMGT";
    if (*suffix == '\0' || strcmp(suffix, "B") == 0)
        return 1;
    const char *letter = memchr(letters, *suffix & ~0x20, 4);
    if (letter == NULL ||
        (suffix[1] != '\0' && strcmp(suffix + 1, "B") != 0 && strcmp(suffix + 1, "iB") != 0))
        return 0;
    return (int64_t)1 << (10 * (letter - letters + 1));
}

bool twill_read_integer(const char *text, bool bytes, int64_t *number)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    int64_t factor = bytes ? suffix_factor(end) : *end == '\0';
    if (end == text || errno != 0 || factor == 0 || (bytes && value < 0) ||
        value > INT64_MAX / factor)
        return false;
    *number = value * factor;
    return true;
}

bool twill_words_equal(const char *a, const char *b, size_t length)
{
    return strncasecmp_l(a, b, length, c_locale()) == 0;
}

void twill_error_clear(struct twill_error *error)
{
    error->status = TWILL_OK;
    error->depth = 0;
    error->message[0] = '\0';
}

twill_status twill_error_set_list(struct twill_error *error, twill_status status, uint32_t rank,
                                  const char *file, int line, const char *before,
                                  const char *format, va_list arguments)
{
    if (error == NULL || error->status != TWILL_OK)
        return status;
    error->status = status;
    error->rank = rank;
    size_t bytes = sizeof(error->message),
           used = (size_t)snprintf(error->message, bytes, "%s", before);
    if (used < bytes)
        twill_print_list(error->message + used, bytes - used, format, arguments);
    return twill_error_pass(error, status, file, line);
}

twill_status twill_error_set(struct twill_error *error, twill_status status, uint32_t rank,
                             const char *file, int line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    status = twill_error_set_list(error, status, rank, file, line, "", format, arguments);
    va_end(arguments);
    return status;
}

void twill_error_prefix(struct twill_error *error, const char *format, ...)
{
    char before[128], after[sizeof(error->message)];
    va_list arguments;
    if (error == NULL || error->status == TWILL_OK)
        return;
    va_start(arguments, format);
    twill_print_list(before, sizeof(before), format, arguments);
    va_end(arguments);
    memcpy(after, error->message, sizeof(after));
    size_t used = (size_t)snprintf(error->message, sizeof(error->message), "%s", before);
    snprintf(error->message + used, sizeof(error->message) - used, "%s", after);
}

twill_status twill_error_pass(struct twill_error *error, twill_status status, const char *file,
                              int line)
{
    if (error != NULL && error->depth < TWILL_ARRAY_LENGTH(error->places)) {
        error->places[error->depth].file = file;
        error->places[error->depth].line = line;
        error->depth++;
    }
    return status;
}

/* Write the prefix of a log line, in short form unless info or debug is on. Returns its length. */
static size_t begin_line(const struct twill_log *log, enum twill_log_level level, char *line,
                         size_t space)
{
    static const char *const names[] = {"", "warn", "info", "debug"};
    int used;
    if (log->level > TWILL_LOG_WARN && log->rank >= 0)
        used = snprintf(line, space, "twill: %s rank %d/%d %s: ", log->where, log->rank, log->size,
                        names[level]);
    else if (log->level > TWILL_LOG_WARN)
        used = snprintf(line, space, "twill: %s %s: ", log->where, names[level]);
    else if (log->rank >= 0)
        used = snprintf(line, space, "twill[%d]: ", log->rank);
    else
        used = snprintf(line, space, "twill: ");
    return (size_t)used;
}

void twill_say(const struct twill_log *log, enum twill_log_level level, const char *format, ...)
{
    if (!twill_log_enabled(log, level))
        return;
    char line[1024];
    size_t space = sizeof(line) - 1; /* one byte is left for the newline */
    size_t used = begin_line(log, level, line, space);
    va_list arguments;
    va_start(arguments, format);
    int length = twill_print_list(line + used, space - used, format, arguments);
    va_end(arguments);
    used += length > 0 ? twill_min((size_t)length, space - used - 1) : 0;
    if (log->print != NULL) {
        log->print(log->user, line);
        return;
    }
    line[used++] = '\n';
    int file = log->file > 0 ? log->file : STDERR_FILENO;
    if (write(file, line, used) < 0)
        return; /* a failure cannot be logged */
}

unsigned twill_text_distance(const char *text, size_t length, const char *name)
{
    unsigned row[TWILL_TEXT_DISTANCE_MOST];
    size_t columns = strlen(name);
    if (columns >= TWILL_TEXT_DISTANCE_MOST || length >= 2 * TWILL_TEXT_DISTANCE_MOST)
        return TWILL_TEXT_DISTANCE_MOST;
    for (size_t j = 0; j <= columns; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; i <= length; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= columns; j++) {
            size_t change = diagonal + (text[i - 1] != name[j - 1]);
            diagonal = row[j];
            row[j] = (unsigned)twill_min(twill_min(row[j], row[j - 1]) + 1, change);
        }
    }
    return (unsigned)twill_min(row[columns], TWILL_TEXT_DISTANCE_MOST);
}

void twill_text_list(char *text, size_t bytes, const char *name)
{
    static const char more[] = ", ...";
    size_t used = strlen(text), length = strlen(name);
    bool full = used >= sizeof(more) && strcmp(text + used - sizeof(more) + 1, more) == 0;
    if (full || used + sizeof(more) > bytes)
        return;
    bool fits = used + 2 + length + sizeof(more) <= bytes;
    snprintf(text + used, bytes - used, "%s%s", used > 0 && fits ? ", " : "", fits ? name : more);
}

void twill_text_plain(char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 127)
            text[i] = text[i] == '\t' ? ' ' : '?';
}

bool twill_random(void *bytes, size_t count)
{
    ssize_t got;
    do
        got = getrandom(bytes, count, 0);
    while (got < 0 && errno == EINTR);
    return got == (ssize_t)count;
}

int twill_fd_move(int fd, int least)
{
    int reason = errno, moved = fd;
    if (fd >= 0 && fd < least && (moved = fcntl(fd, F_DUPFD_CLOEXEC, least)) >= 0)
        close(fd);
    errno = reason;
    return moved >= 0 ? moved : fd;
}

/* Open placeholders (O_PATH). Reads and writes of these fail as those of closed descriptors do. */
void twill_fd_guard_begin(struct twill_fd_guard *guard)
{
    int fd;
    guard->held = 0;
    while ((fd = open("/", O_PATH | O_CLOEXEC)) >= 0 && fd < TWILL_FD_LEAST)
        guard->held |= 1u << fd;
    if (fd >= 0)
        close(fd);
}

void twill_fd_guard_end(struct twill_fd_guard *guard)
{
    for (int fd = 0; fd < TWILL_FD_LEAST; fd++) {
        int flags = (guard->held & 1u << fd) != 0 ? fcntl(fd, F_GETFL) : -1;
        if (flags >= 0 && (flags & O_PATH) != 0)
            close(fd);
    }
    guard->held = 0;
}

void twill_fd_limit_raise(struct twill_fd_limit *limit)
{
    struct rlimit files;
    *limit = (struct twill_fd_limit){0, 0};
    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return;
    limit->before = limit->now = files.rlim_cur;
    files.rlim_cur = files.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &files) == 0)
        limit->now = files.rlim_cur;
}

void twill_fd_limit_restore(const struct twill_fd_limit *limit)
{
    struct rlimit files;
    if (limit->now == limit->before || getrlimit(RLIMIT_NOFILE, &files) != 0)
        return;
    files.rlim_cur = twill_min(limit->before, files.rlim_max);
    (void)setrlimit(RLIMIT_NOFILE, &files);
}

size_t twill_fd_count(uint64_t limit)
{
    size_t count = 0;
    DIR *list = opendir("/proc/self/fd");
    if (list == NULL) {
        int lowest = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
        if (lowest >= 0)
            close(lowest);
        return lowest >= 0 ? (size_t)lowest : SIZE_MAX;
    }
    for (const struct dirent *entry; (entry = readdir(list)) != NULL;)
        count += entry->d_name[0] != '.' && strtoull(entry->d_name, NULL, 10) < limit;
    closedir(list);
    return count - 1; /* without the descriptor of the list */
}

uint64_t twill_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Check that the lists have exactly the enumerators of twill.h, in the same order. */
enum {
#define TYPE_AT(NOUN, name, bits, kind, pairs, with) TYPE_AT_##NOUN,
    TWILL_TYPES(TYPE_AT, ) TYPE_AT_COUNT
};
enum {
#define OP_AT(NOUN, name, with) OP_AT_##NOUN,
    TWILL_OPS(OP_AT, ) OP_AT_COUNT
};
enum {
#define LEVEL_AT(NOUN, name, noun, with) LEVEL_AT_##NOUN,
    TWILL_LEVELS(LEVEL_AT, ) LEVEL_AT_COUNT
};
#define TYPE_AGREES(NOUN, ...) _Static_assert((int)TYPE_AT_##NOUN == (int)TWILL_##NOUN, #NOUN);
#define OP_AGREES(NOUN, ...)   _Static_assert((int)OP_AT_##NOUN == (int)TWILL_##NOUN, #NOUN);
#define LEVEL_AGREES(NOUN, ...)                                                                    \
    _Static_assert((int)LEVEL_AT_##NOUN == (int)TWILL_LEVEL_##NOUN, #NOUN);
TWILL_TYPES(TYPE_AGREES, )
TWILL_OPS(OP_AGREES, )
TWILL_LEVELS(LEVEL_AGREES, )
_Static_assert((int)TYPE_AT_COUNT == (int)TWILL_TYPE_COUNT, "all types are in the list");
_Static_assert((int)OP_AT_COUNT == (int)TWILL_OP_COUNT, "all operations are in the list");
_Static_assert((int)LEVEL_AT_COUNT == (int)TWILL_LEVEL_COUNT, "all levels are in the list");

size_t twill_type_size(twill_type type)
{
#define TYPE_SIZE(NOUN, name, bits, ...) [TWILL_##NOUN] = (bits) / 8,
    static const unsigned char sizes[] = {TWILL_TYPES(TYPE_SIZE, )};
    return (unsigned)type < TWILL_TYPE_COUNT ? sizes[type] : 0;
}

const char *twill_type_name(twill_type type)
{
#define TYPE_NAME(NOUN, name, ...) [TWILL_##NOUN] = #name,
    static const char *const names[] = {TWILL_TYPES(TYPE_NAME, )};
    return (unsigned)type < TWILL_TYPE_COUNT ? names[type] : NULL;
}

const char *twill_shortage_text(void)
{
    int fd = epoll_create1(EPOLL_CLOEXEC);
    bool none = fd < 0 && (errno == EMFILE || errno == ENFILE);
    if (fd >= 0)
        close(fd);
    return none ? " (too many open files: see ulimit -n)" : "";
}
