/* SPDX-License-Identifier: Apache-2.0 */
/* The common parts of harnesses of libFuzzer. */
#ifndef TWILL_FUZZ_INPUT_H
#define TWILL_FUZZ_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* Called by libFuzzer with each input. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Define a function that the linker puts in the place of another one (--wrap). */
#define FUZZ_REPLACED(result, name, ...)                                                           \
    result __real_##name(__VA_ARGS__);                                                             \
    result __wrap_##name(__VA_ARGS__);                                                             \
    result __wrap_##name(__VA_ARGS__)

/* What holds for every input. */
static inline void fuzz_must(bool right)
{
    if (!right)
        abort();
}

/* Return a copy with a terminating zero, in memory of its exact size. The caller frees it. */
static inline char *fuzz_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    fuzz_must(text != NULL);
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

/* Make a file of memory with these contents, and its path. The caller closes it. */
static inline int fuzz_file(const uint8_t *data, size_t size, char path[64])
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    fuzz_must(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

/* Send what fits into the socket's buffer, then its end. */
static inline void fuzz_feed(int fd, const uint8_t *data, size_t size)
{
    (void)!send(fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    shutdown(fd, SHUT_WR);
}

#endif
