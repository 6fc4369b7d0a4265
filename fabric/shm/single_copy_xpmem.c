/* SPDX-License-Identifier: Apache-2.0 */
/* Single-copy access by XPMEM (SGI, Cray; github.com/hpc/xpmem), which Cray XC has. A process
 * exports its whole address space as a segment, and others map pages of it. libxpmem.so.0 is opened
 * at run time, and its behaviour is taken from its header and kernel module. As segment numbers can
 * be guessed, only processes of one user (and root) may attach, as for cma. The module checks this
 * for the caller that asks for access. NOT RUN ON HARDWARE: tested with a double
 * (tests/doubles/xpmem). With a real module the token decides.
 *
 * An attachment maps addresses, not pages. Pages appear when touched and vanish when the owner
 * unmaps them (the module has an MMU notifier), and pages mapped there later appear then. So
 * attachments are kept when a buffer is freed, and are valid for the next buffer at that address.
 * As with any shared mapping, touching an address that the owner has unmapped, or whose owner has
 * died, is a SIGBUS. A rank that frees a buffer in use by a call, or dies in the call, thus crashes
 * the readers, as with Open MPI's smsc/xpmem. MPICH's issue 3515 shows what fails if the module
 * does not follow unmapping.
 *
 * At most REGIONS attachments of a peer are kept, unless more are in use. The least recently used
 * one without a user is given up for a new one. */
#include "fabric/shm/single_copy.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

/* Per peer. Repeated calls on one pair of buffers need two. */
enum { REGIONS = 64 };

/* As in xpmem.h. */
typedef int64_t segid_type;
typedef int64_t apid_type;
/* A place in the memory that another process exports, as in xpmem.h. `apid` is what xpmem_get()
 * returned for that memory, and `offset` counts bytes from its start. */
struct xpmem_address {
    apid_type apid;
    off_t offset;
};
#define WHOLE_SPACE  ((size_t)-1L) /* XPMEM_MAXADDR_SIZE */
#define READ_WRITE   2             /* XPMEM_RDWR */
#define PERMIT_MODE  1             /* XPMEM_PERMIT_MODE */
#define OWNER_ONLY   ((void *)(uintptr_t)0600)
#define NOT_ATTACHED ((void *)-1L)

/* The functions of libxpmem, as xpmem.h declares them. */
struct xpmem_library {
    void *handle;
    segid_type (*make)(void *address, size_t bytes, int permit, void *value);
    int (*remove)(segid_type segment);
    apid_type (*get)(segid_type segment, int flags, int permit, void *value);
    int (*release)(apid_type apid);
    void *(*attach)(struct xpmem_address address, size_t bytes, void *at);
    int (*detach)(void *at);
};

/* Pages of a peer that XPMEM has mapped here, in the list of that peer until they are given up. */
struct twill_region {
    struct twill_region *next; /* most recently used first */
    uint64_t from;             /* address of the pages in the peer */
    size_t bytes;
    unsigned char *at; /* address of the pages here */
    unsigned users;    /* accesses under way; it is given up only without any */
};

/* Access to one peer, and the pages of it that are mapped. An element of xpmem->peer[]. */
struct xpmem_peer {
    apid_type apid; /* 0 if there is none */
    struct twill_region *regions;
};

/* State of XPMEM in one struct twill_single_copy, from xpmem_open() to xpmem_close(). */
struct xpmem {
    struct xpmem_library library;
    segid_type segment; /* of this rank, 0 if there is none */
    uint64_t page;
    uint32_t peers;
    struct xpmem_peer *peer;
};

/* Load libxpmem, never to unload it, as it keeps a descriptor open. Returns 0, ENOENT if the
 * library cannot be loaded, or ENOSYS if it lacks a function. */
static int load_xpmem(struct xpmem_library *library)
{
    const struct {
        const char *name;
        void *function;
    } symbols[] = {
        {"xpmem_make", &library->make},     {"xpmem_remove", &library->remove},
        {"xpmem_get", &library->get},       {"xpmem_release", &library->release},
        {"xpmem_attach", &library->attach}, {"xpmem_detach", &library->detach},
    };
    library->handle = dlopen("libxpmem.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library->handle == NULL)
        return ENOENT;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(symbols); i++) {
        void *found = dlsym(library->handle, symbols[i].name);
        if (found == NULL)
            return ENOSYS;
        *(void **)symbols[i].function = found;
    }
    return 0;
}

/* Return errno after a failure, or EIO if it is 0. */
static int cause_of_failure(void)
{
    return errno != 0 ? errno : EIO;
}

/* Unmap a region, take it out of its list and free it. */
static void give_up_region(struct xpmem *x, struct twill_region **link)
{
    struct twill_region *region = *link;
    *link = region->next;
    (void)x->library.detach(region->at);
    free(region);
}

/* If more than `most` regions of a peer are mapped, unmap the one used longest ago of those without
 * users. Returns whether one was unmapped, so false if all have users. */
static bool give_up_oldest(struct xpmem *x, struct xpmem_peer *peer, size_t most)
{
    struct twill_region **oldest = NULL;
    size_t count = 0;
    for (struct twill_region **link = &peer->regions; *link != NULL; link = &(*link)->next) {
        count++;
        if ((*link)->users == 0)
            oldest = link;
    }
    if (oldest == NULL || count <= most)
        return false;
    give_up_region(x, oldest);
    return true;
}

/* Return a mapped region of a peer that contains all of the `bytes` bytes at its address `from`, or
 * NULL if there is none. Move the region to the front of the peer's list. */
static struct twill_region *find_region(struct xpmem_peer *peer, uint64_t from, size_t bytes)
{
    for (struct twill_region **link = &peer->regions; *link != NULL; link = &(*link)->next) {
        struct twill_region *region = *link;
        if (from < region->from || from - region->from > region->bytes ||
            bytes > region->bytes - (from - region->from))
            continue;
        *link = region->next;
        region->next = peer->regions;
        peer->regions = region;
        return region;
    }
    return NULL;
}

/* Attach region->bytes at region->from of a peer and set region->at. If that is refused, give up
 * idle attachments of any peer and try again. Returns 0 or an errno. */
static int attach_pages(struct xpmem *x, struct xpmem_peer *peer, struct twill_region *region)
{
    struct xpmem_address address = {peer->apid, (off_t)region->from};
    for (;;) {
        errno = 0;
        void *at = x->library.attach(address, region->bytes, NULL);
        region->at = at;
        if (at != NOT_ATTACHED && at != NULL)
            return 0;
        int cause = cause_of_failure();
        bool given = false;
        for (uint32_t p = 0; p < x->peers && !given; p++)
            given = give_up_oldest(x, &x->peer[p], 0);
        if (!given)
            return cause;
    }
}

/* Map `bytes` bytes at address `from` of a peer, unless a region has them already. Set *at to their
 * place here, and *found to the region, with one user more. Returns 0 or an errno. */
static int xpmem_attach_region(void *state, uint32_t number, uint64_t from, size_t bytes,
                               struct twill_region **found, void **at)
{
    struct xpmem *x = state;
    struct xpmem_peer *peer = &x->peer[number];
    struct twill_region *region = find_region(peer, from, bytes);
    if (region == NULL) {
        while (give_up_oldest(x, peer, REGIONS - 1))
            ;
        region = calloc(1, sizeof(*region));
        if (region == NULL)
            return ENOMEM;
        region->from = from & ~(x->page - 1);
        region->bytes = (size_t)(twill_round_up(from + bytes, x->page) - region->from);
        int cause = attach_pages(x, peer, region);
        if (cause != 0) {
            free(region);
            return cause;
        }
        region->next = peer->regions;
        peer->regions = region;
    }
    region->users++;
    *found = region;
    *at = region->at + (from - region->from);
    return 0;
}

void twill_region_release(struct twill_region *region)
{
    if (region != NULL)
        region->users--;
}

/* Unmap and free all of the state, which may be NULL. */
static void xpmem_close(void *state)
{
    struct xpmem *x = state;
    if (x == NULL)
        return;
    for (uint32_t p = 0; x->peer != NULL && p < x->peers; p++) {
        while (x->peer[p].regions != NULL)
            give_up_region(x, &x->peer[p].regions);
        if (x->peer[p].apid > 0)
            (void)x->library.release(x->peer[p].apid);
    }
    if (x->segment > 0)
        (void)x->library.remove(x->segment);
    if (x->library.handle != NULL)
        (void)dlclose(x->library.handle);
    free(x->peer);
    free(x);
}

/* Create *state and export all memory of this process. Returns 0 or an errno. */
static int xpmem_open(void **state, uint32_t peers, struct twill_single_copy_info *mine)
{
    struct xpmem *x = *state = calloc(1, sizeof(*x));
    if (x != NULL)
        x->peer = calloc(peers, sizeof(*x->peer));
    if (x == NULL || x->peer == NULL)
        return ENOMEM;
    x->peers = peers;
    x->page = (uint64_t)sysconf(_SC_PAGESIZE);
    int cause = load_xpmem(&x->library);
    if (cause != 0)
        return cause;
    errno = 0;
    x->segment = x->library.make(NULL, WHOLE_SPACE, PERMIT_MODE, OWNER_ONLY);
    if (x->segment <= 0)
        return cause_of_failure();
    mine->segment = (uint64_t)x->segment;
    return 0;
}

/* Get access to the memory of a peer. Returns 0, or an errno (ENOENT if it exports none). */
static int xpmem_connect_peer(void *state, uint32_t number,
                              const struct twill_single_copy_info *theirs)
{
    struct xpmem *x = state;
    if (theirs->segment == 0)
        return ENOENT;
    errno = 0;
    apid_type apid = x->library.get((segid_type)theirs->segment, READ_WRITE, PERMIT_MODE, NULL);
    if (apid <= 0)
        return cause_of_failure();
    x->peer[number].apid = apid;
    return 0;
}

const struct twill_single_copy_method twill_single_copy_xpmem = {.name = "xpmem",
                                                                 .setting = TWILL_SINGLE_COPY_XPMEM,
                                                                 .open = xpmem_open,
                                                                 .connect_peer = xpmem_connect_peer,
                                                                 .attach = xpmem_attach_region,
                                                                 .close = xpmem_close};
