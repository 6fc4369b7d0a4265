/* SPDX-License-Identifier: Apache-2.0 */
/* A double of libxpmem.so.0 for ranks that are threads of one process: attaching returns the
 * address itself. Segments of other processes are refused, as on a system without the module. It is
 * as strict about its arguments as the real one: whole pages, and only numbers it has returned. */
#include "tests/doubles/xpmem/xpmem_double.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>

typedef int64_t segid_type;
typedef int64_t apid_type;
struct xpmem_addr {
    apid_type apid;
    off_t offset;
};

XPMEM_DOUBLE_API segid_type xpmem_make(void *address, size_t bytes, int permit, void *value);
XPMEM_DOUBLE_API int xpmem_remove(segid_type segment);
XPMEM_DOUBLE_API apid_type xpmem_get(segid_type segment, int flags, int permit, void *value);
XPMEM_DOUBLE_API int xpmem_release(apid_type apid);
XPMEM_DOUBLE_API void *xpmem_attach(struct xpmem_addr address, size_t bytes, void *at);
XPMEM_DOUBLE_API int xpmem_detach(void *at);

enum { XPMEM_PAGE = 4096, RDWR = 2, PERMIT_MODE = 1, XPMEM_MOST = 4096, APID = 1 << 20 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    struct xpmem_double now;
    int left; /* attaches */
    void *attached[XPMEM_MOST];
} state = {.left = XPMEM_DOUBLE_NEVER};

static int fail_double(int cause)
{
    errno = cause;
    return -1;
}

void xpmem_double_count(struct xpmem_double *now)
{
    pthread_mutex_lock(&lock);
    *now = state.now;
    pthread_mutex_unlock(&lock);
}

void xpmem_double_reset(int attaches)
{
    pthread_mutex_lock(&lock);
    state.now.most_attachments = state.now.attachments;
    state.now.attaches = 0;
    state.left = attaches;
    pthread_mutex_unlock(&lock);
}

/* The number contains the process. Only the owner may write to a rank's memory. */
segid_type xpmem_make(void *address, size_t bytes, int permit, void *value)
{
    if (address != NULL || bytes != (size_t)-1 || permit != PERMIT_MODE ||
        value != (void *)(uintptr_t)0600)
        return fail_double(EINVAL);
    pthread_mutex_lock(&lock);
    state.now.segments++;
    pthread_mutex_unlock(&lock);
    return (segid_type)getpid();
}

int xpmem_remove(segid_type segment)
{
    if (segment != (segid_type)getpid())
        return fail_double(EINVAL);
    pthread_mutex_lock(&lock);
    state.now.segments--;
    pthread_mutex_unlock(&lock);
    return 0;
}

apid_type xpmem_get(segid_type segment, int flags, int permit, void *value)
{
    if (flags != RDWR || permit != PERMIT_MODE ||
        value != NULL) /* the module refuses a mode here */
        return fail_double(EINVAL);
    if (segment != (segid_type)getpid())
        return fail_double(ENOENT);
    pthread_mutex_lock(&lock);
    state.now.permits++;
    pthread_mutex_unlock(&lock);
    return APID;
}

int xpmem_release(apid_type apid)
{
    if (apid != APID)
        return fail_double(EINVAL);
    pthread_mutex_lock(&lock);
    state.now.permits--;
    pthread_mutex_unlock(&lock);
    return 0;
}

static int keep_double(void *at)
{
    for (int i = 0; i < XPMEM_MOST; i++) {
        if (state.attached[i] == NULL) {
            state.attached[i] = at;
            return 0;
        }
    }
    return fail_double(ENOMEM);
}

void *xpmem_attach(struct xpmem_addr address, size_t bytes, void *at)
{
    void *there = (void *)(uintptr_t)address.offset;
    int failed = 0;
    if (address.apid != APID || at != NULL || address.offset % XPMEM_PAGE != 0 ||
        bytes % XPMEM_PAGE != 0 || bytes == 0) {
        (void)fail_double(EINVAL);
        return (void *)-1;
    }
    pthread_mutex_lock(&lock);
    failed = state.left == 0 ? fail_double(EPERM) : keep_double(there);
    if (failed == 0) {
        state.left -= state.left != XPMEM_DOUBLE_NEVER;
        state.now.attaches++;
        if (++state.now.attachments > state.now.most_attachments)
            state.now.most_attachments = state.now.attachments;
    }
    pthread_mutex_unlock(&lock);
    return failed == 0 ? there : (void *)-1;
}

int xpmem_detach(void *at)
{
    int found = -1;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < XPMEM_MOST && found < 0; i++)
        found = state.attached[i] == at ? i : -1;
    if (found >= 0) {
        state.attached[found] = NULL;
        state.now.attachments--;
    }
    pthread_mutex_unlock(&lock);
    return found >= 0 ? 0 : fail_double(EINVAL);
}
