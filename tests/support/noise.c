/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that were valid and are corrupted, or are lost. */
#include "tests/support/noise.h"

#include "lib/base/base.h"
#include "tests/support/numbers.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <dirent.h>
#include <linux/filter.h>
#include <string.h>
#include <sys/socket.h>

void twill_noise_add(struct twill_noise *noise, const void *what, size_t bytes)
{
    memcpy(noise->bytes + noise->count, what, bytes);
    noise->count += bytes;
}

void twill_noise_change(struct twill_noise *noise, uint64_t *seed)
{
    size_t at = twill_test_random(seed) % noise->count;
    size_t some = 1 + twill_test_random(seed) % 16;
    switch (twill_test_random(seed) % 5) {
    case 0: /* a bit */
        noise->bytes[at] ^= (unsigned char)(1u << twill_test_random(seed) % 8);
        break;
    case 1: /* the end is missing */
        noise->count = at;
        break;
    case 2: /* some bytes */
        for (size_t i = at; i < noise->count && i < at + some; i++)
            noise->bytes[i] = (unsigned char)(noise->bytes[i] + 1 + twill_test_random(seed) % 255);
        break;
    case 3: /* a gap */
        some = twill_min(some, noise->count - at);
        memmove(noise->bytes + at, noise->bytes + at + some, noise->count - at - some);
        noise->count -= some;
        break;
    default: /* the largest integers, at offsets of lengths and ranks */
        at = at / 4 * 4;
        memset(noise->bytes + at, noise->bytes[at] == 0xff ? 0x7f : 0xff,
               twill_min(8, noise->count - at));
    }
}

int twill_test_open_files(void)
{
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    assert_non_null(directory);
    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

bool twill_test_deafen(int fd)
{
    struct sock_filter nothing = {.code = BPF_RET | BPF_K, .k = 0};
    struct sock_fprog filter = {.len = 1, .filter = &nothing};
    int off = 0;
    return setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &off, sizeof(off)) == 0 &&
           setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)) == 0;
}
