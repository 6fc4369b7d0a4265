/* SPDX-License-Identifier: Apache-2.0 */
/* What lies below every room: error records, the log, the clock. */
#include "lib/base.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

void twill_error_clear(struct twill_error *error)
{
    error->status = TWILL_OK;
    error->depth = 0;
    error->message[0] = '\0';
}

twill_status twill_error_set(struct twill_error *error, twill_status status, const char *file,
                             int line, const char *format, ...)
{
    if (error == NULL || error->status != TWILL_OK)
        return status;
    error->status = status;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof(error->message), format, arguments);
    va_end(arguments);
    return twill_error_pass(error, status, file, line);
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

void twill_say(const struct twill_log *log, enum twill_log_level level, const char *format, ...)
{
    if (log == NULL || level > log->level)
        return;
    char line[1024];
    int used = log->rank < 0 ? snprintf(line, sizeof(line), "twill: ")
                             : snprintf(line, sizeof(line), "twill[%d]: ", log->rank);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + used, sizeof(line) - (size_t)used, format, arguments);
    va_end(arguments);
    if (log->print != NULL)
        log->print(log->user, line);
    else
        fprintf(stderr, "%s\n", line);
}

uint64_t twill_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
