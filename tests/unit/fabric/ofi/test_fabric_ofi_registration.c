/* SPDX-License-Identifier: Apache-2.0 */
/* Registrations of the ofi transport with a provider that requires them (here forced to: those of
 * tcp are as real as they get without such a network): how long they last, and whether they are
 * trusted after memory was freed in between. */
#include "fabric/rails/rails.h"
#include "tests/support/ofi_ends.h"
#include "tests/support/unit.h"

/* --- two ends whose provider needs registration, and memory that is unmapped and mapped again - */

#define PAGE  4096u
#define BYTES (1u << 20)

static const struct setup registering = {"registering", "tcp", {.force_registration = true}};

static void *map(void *where, size_t bytes)
{
    void *p = mmap(where, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | (where != NULL ? MAP_FIXED : 0), -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* Skip where locked memory cannot be observed: under sanitizers and with old kernels. */
static void need_locks(void)
{
    if (twill_locked_works())
        return;
    print_message("  skipped: locked memory cannot be observed here\n");
    skip();
}

struct pair {
    struct end end;
    struct twill_common *common;
    unsigned char *data[2]; /* sent, received */
    uint32_t number;
    struct twill_transfer r[2]; /* outlive a failure */
};

/* There are no persistent regions, but ranks of one process know what the others have pinned. */
static bool find_nothing(void *user, const void *start, size_t bytes, void **region,
                         size_t *region_bytes)
{
    return false;
}

/* Return the counters of a rank's end, with those of its rails. */
static struct twill_transport_counters counters(const struct pair *pair)
{
    struct twill_transport_counters sum;
    twill_transport_count(pair->end.transport, &sum);
    return sum;
}

/* Open an end. ops: how each of two rails is opened; NULL: without rails. */
static bool pair_open_on(struct pair *pair, twill_bootstrap *caller, const struct setup *setup,
                         const struct twill_persistent *persistent,
                         const struct twill_transport_ops *ops)
{
    static const struct test_setting settings[] = {
        {"TWILL_TUNE=registration", "auto"}, {"TWILL_RAILS", "2"}, {NULL, NULL}};
    memset(pair, 0, sizeof(*pair));
    struct end *end = &pair->end;
    end->oob = twill_test_oob(caller);
    end->rank = (uint32_t)caller->rank;
    end->size = (uint32_t)caller->size;
    end->params = (struct twill_transport_params){.oob = end->oob,
                                                  .provider = setup->provider,
                                                  .common = &pair->common,
                                                  .persistent = persistent,
                                                  .setting = test_setting,
                                                  .settings = settings};
    for (unsigned i = 0; i < 2; i++)
        pair->data[i] = map(NULL, BYTES);
    twill_status status =
        ops != NULL ? twill_rails_open(&end->transport, ops, &end->params, &end->error)
                    : twill_ofi_open(&end->transport, &end->params, &setup->options, &end->error);
    return TWILL_NOTE(status == TWILL_OK && pair->data[1] != NULL, "%s", end->error.message) &&
           end->transport->ops->connect(end->transport, 1 - end->rank, &end->error) == TWILL_OK;
}

static bool pair_open(struct pair *pair, twill_bootstrap *caller, const struct setup *setup,
                      const struct twill_persistent *persistent)
{
    return pair_open_on(pair, caller, setup, persistent, NULL);
}

static void pair_close(struct pair *pair)
{
    end_close(&pair->end);
    if (pair->common != NULL)
        pair->common->close(pair->common);
    for (unsigned i = 0; i < 2; i++)
        munmap(pair->data[i], BYTES);
}

/* Exchange a large message in both directions, from `out` and into `in`, with new contents. */
static bool swap_at(struct pair *pair, unsigned char *out, unsigned char *in, size_t bytes)
{
    struct end *end = &pair->end;
    if (twill_test_failed())
        return false;
    struct twill_transfer *r = pair->r;
    uint32_t peer = 1 - end->rank, number = pair->number++;
    fill(out, bytes, end->rank, peer, number);
    memset(in, 0, bytes);
    for (unsigned i = 0; i < 2; i++) {
        r[i] = (struct twill_transfer){.kind = i == 0 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV,
                                       .peer = peer,
                                       .signature = 3,
                                       .buffer = i == 0 ? out : in,
                                       .bytes = bytes};
        if (!post(end, &r[i]))
            return false;
    }
    return wait_done(end, r, 2) && all_ok(r, 2) && filled(in, bytes, peer, end->rank, number);
}

static bool swap(struct pair *pair)
{
    return swap_at(pair, pair->data[0], pair->data[1], BYTES);
}

static bool counted(struct pair *pair, uint64_t made, uint64_t ended, uint64_t hits, int line)
{
    struct twill_transport_counters c = counters(pair);
    return twill_test_note(
        c.registrations == made && c.deregistrations == ended && c.registration_hits == hits,
        __FILE__, line, "counted()",
        " rank %u: %llu registrations, %llu ended, %llu hits, not %llu %llu %llu", pair->end.rank,
        (unsigned long long)c.registrations, (unsigned long long)c.deregistrations,
        (unsigned long long)c.registration_hits, (unsigned long long)made,
        (unsigned long long)ended, (unsigned long long)hits);
}

/* Find the persistent regions of a test, of which `user` lists two. */
static bool find(void *user, const void *start, size_t bytes, void **region, size_t *region_bytes)
{
    unsigned char **persistent = user;
    const unsigned char *p = start;
    for (unsigned i = 0; i < 2; i++) {
        *region = persistent[i];
        *region_bytes = BYTES;
        if (persistent[i] != NULL && p >= persistent[i] && p + bytes <= persistent[i] + BYTES)
            return true;
    }
    return false;
}

/* --- tests --------------------------------------------------------------------------------------
 */

static const struct setup narrow = {"narrow", "tcp", {.force_registration = true, .cached = 3}};

/* --- is memory still the same mapping? ------------------------------------------------------- */

TWILL_TEST(test_locked)
{
    need_locks();
    unsigned char *p = map(NULL, 8 * PAGE);
    assert_non_null(p);
    assert_false(twill_locked_still(p, 8 * PAGE));
    assert_true(twill_locked_take(p, 8 * PAGE, false));
    assert_true(twill_locked_still(p, 8 * PAGE));
    assert_true(twill_locked_still(p, PAGE));
    assert_int_not_equal(madvise(p, 8 * PAGE, MADV_DONTNEED), 0); /* pages cannot change */
    assert_false(
        twill_locked_take(p, 8 * PAGE, false)); /* locked already: it seems to be another owner's */
    for (unsigned page = 0; page < 8;
         page += 7 - page % 2 * 3) { /* first and last page, mapped anew */
        assert_non_null(map(p + page * PAGE, PAGE));
        assert_false(twill_locked_still(p, 8 * PAGE));
        assert_int_equal(munlock(p, 8 * PAGE), 0);
        assert_true(twill_locked_take(p, 8 * PAGE, false));
    }
    assert_int_equal(munmap(p + 5 * PAGE, 3 * PAGE),
                     0); /* the last page is unmapped, and stays so */
    assert_false(twill_locked_still(p, 6 * PAGE));
    assert_false(twill_locked_still(p, 8 * PAGE));
    unsigned char vec;
    assert_int_not_equal(mincore(p + 5 * PAGE, PAGE, &vec), 0);
    assert_true(twill_locked_still(p, 5 * PAGE));
    assert_int_equal(munmap(p, 5 * PAGE), 0);
    assert_false(twill_locked_still(p, 5 * PAGE));
    assert_false(twill_locked_take(p, 5 * PAGE, false));
}

/* --- the same buffers again and again, and headers -------------------------------------------- */

static void rank_steady(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct pair pair;
    struct twill_persistent persistent = {.find = find_nothing, .pinned = user};
    if (pair_open(&pair, caller, &registering, &persistent)) {
        for (unsigned i = 0; i < 100 && swap(&pair); i++)
            if (!counted(&pair, 2, 0, 2 * i, __LINE__))
                break;
        struct twill_transport_counters c = counters(&pair);
        TWILL_NOTE(c.copied == 0 && c.header_bytes <= 80 * c.messages,
                   "%llu bytes copied, %llu bytes of headers for %llu messages",
                   (unsigned long long)c.copied, (unsigned long long)c.header_bytes,
                   (unsigned long long)c.messages);
        /* Ranges within them, and a range that begins on a page that is locked already. */
        swap_at(&pair, pair.data[0] + 100000, pair.data[1] + 5, 30000);
        counted(&pair, 2, 0, 200, __LINE__);
        rank_barrier(&pair.end);
    }
    pair_close(&pair);
}

TWILL_TEST(test_steady)
{
    need_locks();
    size_t pinned = 0;
    twill_test_run_ranks(2, rank_steady, &pinned);
}

/* --- memory freed and allocated again at one address ----------------------------------------- */

static void rank_reuse(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct pair pair;
    struct twill_persistent persistent = {.find = find_nothing, .pinned = user};
    if (pair_open(&pair, caller, &registering, &persistent)) {
        for (unsigned i = 0; i < 6 && swap(&pair); i++) {
            counted(&pair, 2 + 2 * i, 2 * i, 0,
                    __LINE__); /* the other is not trusted any more either */
            munmap(pair.data[i % 2], BYTES);
            map(pair.data[i % 2], BYTES);
        }
        for (unsigned i = 0; i < 6 && swap(&pair); i++) { /* one page of it */
            size_t skip = i % 3 == 0 ? 0 : i % 3 == 1 ? BYTES / 2 : BYTES - PAGE;
            munmap(pair.data[i % 2] + skip, PAGE);
            map(pair.data[i % 2] + skip, PAGE);
        }
        TWILL_NOTE(counters(&pair).registrations >= 2 + 2 * 6 + 5,
                   "a page was had anew, the registration was not");
        /* Memory that malloc() unmaps and maps again. */
        for (unsigned i = 0; i < 6; i++) {
            unsigned char *out = malloc(BYTES), *in = malloc(BYTES);
            TWILL_NOTE(out != NULL && in != NULL && swap_at(&pair, out, in, BYTES), "round %u", i);
            free(out);
            free(in);
        }
        rank_barrier(&pair.end);
    }
    pair_close(&pair);
}

TWILL_TEST(test_reuse)
{
    need_locks();
    size_t pinned = 0;
    twill_test_run_ranks(2, rank_reuse, &pinned);
}

/* --- more buffers than the cache holds ------------------------------------------------------- */

static void rank_evict(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct pair pair;
    struct twill_persistent persistent = {.find = find_nothing, .pinned = user};
    size_t section = BYTES / 8;
    if (pair_open(&pair, caller, &narrow, &persistent)) {
        for (unsigned i = 0; i < 8; i++) /* 16 ranges, 3 are cached */
            swap_at(&pair, pair.data[0] + i * section, pair.data[1] + i * section, section);
        counted(&pair, 16, 13, 0, __LINE__);
        swap_at(&pair, pair.data[0] + 7 * section, pair.data[1] + 7 * section,
                section); /* the newest */
        counted(&pair, 16, 13, 2, __LINE__);
        swap_at(&pair, pair.data[0], pair.data[1], section);
        counted(&pair, 18, 15, 2, __LINE__);
        for (unsigned i = 0; i < 7; i++) { /* each overlaps the next by a page */
            unsigned char *out = pair.data[0] + i * section, *in = pair.data[1] + i * section;
            swap_at(&pair, out, in, section + PAGE);
            counted(&pair, 20 + 2 * i, 17 + 2 * i, 2 + 2 * i, __LINE__);
            swap_at(&pair, out, in, section + PAGE);
        }
        rank_barrier(&pair.end);
    }
    pair_close(&pair);
}

TWILL_TEST(test_evict)
{
    need_locks();
    size_t pinned = 0;
    twill_test_run_ranks(2, rank_evict, &pinned);
}

/* --- persistent memory ----------------------------------------------------------------------- */

TWILL_TEST_OF_RANKS(test_persistent, 2)
{
    struct pair pair;
    unsigned char *regions[2] = {NULL, NULL};
    struct twill_persistent persistent = {find, regions, NULL};
    if (pair_open(&pair, bootstrap, &registering, &persistent)) {
        memcpy(regions, pair.data, sizeof(regions));
        for (unsigned i = 0; i < 8; i++)
            swap_at(&pair, pair.data[0] + i * 70000, pair.data[1] + i * 70000, 70000);
        counted(&pair, 2, 0, 14, __LINE__);
        for (unsigned i = 0; i < 2; i++) { /* freed, and allocated again */
            pair.common->forget(pair.common, pair.data[i], BYTES);
            munmap(pair.data[i], BYTES);
            map(pair.data[i], BYTES);
        }
        swap(&pair);
        counted(&pair, 4, 0, 14, __LINE__);
        rank_barrier(&pair.end);
    }
    pair_close(&pair);
}

/* --- a child that writes what the parent still sends ------------------------------------------ */

static void rank_fork(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct pair pair;
    TWILL_CHECK(pair_open(&pair, caller, &registering, NULL));
    TWILL_CHECK(swap(&pair));
    pid_t child = fork();
    if (child == 0) {
        memset(pair.data[0], 0xee, BYTES);
        memset(pair.data[1], 0xee, BYTES);
        _exit(twill_locked_still(pair.data[0], BYTES) ? 1 : 0); /* locks are not inherited */
    }
    TWILL_CHECK(swap(&pair));
    int status = 1;
    TWILL_CHECK(waitpid(child, &status, 0) == child && status == 0);
    TWILL_CHECK(swap(&pair));
    TWILL_CHECK(counted(&pair, 2, 0, 4, __LINE__));
    rank_barrier(&pair.end);
    pair_close(&pair);
}

TWILL_TEST(test_fork)
{
    need_locks();
    twill_test_run_processes(2, rank_fork, NULL);
}

/* --- communicators in threads, on buffers that are allocated and freed ----------------------- */

static void *drive(void *user)
{
    struct pair *pair = user;
    for (unsigned i = 0; i < 10; i++) {
        if (!swap(pair))
            return NULL;
        munmap(pair->data[i % 2], BYTES);
        map(pair->data[i % 2], BYTES);
    }
    return pair;
}

static void rank_threads(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct pair pair[2];
    struct twill_persistent persistent = {.find = find_nothing, .pinned = user};
    pthread_t thread;
    if (pair_open(&pair[0], caller, &registering, &persistent)) {
        pair[1] = pair[0];
        struct end *end = &pair[1].end;
        end->params.comm = 1;
        bool open =
            twill_ofi_transport.open(&end->transport, &end->params, &end->error) == TWILL_OK &&
            twill_ofi_transport.connect(end->transport, 1 - end->rank, &end->error) == TWILL_OK;
        pair[1].data[0] = map(NULL, BYTES);
        pair[1].data[1] = map(NULL, BYTES);
        rank_barrier(&pair[0].end);
        void *fine = NULL;
        if (TWILL_NOTE(open, "%s", end->error.message)) {
            pthread_create(&thread, NULL, drive, &pair[1]);
            TWILL_NOTE(drive(&pair[0]) != NULL, "first");
            pthread_join(thread, &fine);
            TWILL_NOTE(fine != NULL, "second");
            rank_barrier(&pair[0].end);
            twill_ofi_transport.close(end->transport);
        }
        munmap(pair[1].data[0], BYTES);
        munmap(pair[1].data[1], BYTES);
    }
    pair_close(&pair[0]);
}

TWILL_TEST(test_threads)
{
    size_t pinned = 0;
    twill_test_run_ranks(2, rank_threads, &pinned);
}

/* --- memory that is moved --------------------------------------------------------------------- */

/* Registrations of the ofi transport when memory is moved, over several rails, and when another
 * thread frees memory. */

/* --- memory moved to where other memory was: its lock moves with it -------------------------- */

static bool move_mapping(unsigned char *from, unsigned char *to)
{
    return munmap(to, BYTES) == 0 &&
           mremap(from, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to;
}

static void rank_moved(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct pair pair;
    TWILL_CHECK(pair_open(&pair, caller, &registering, NULL));
    unsigned char *other = map(NULL, BYTES), *away = map(NULL, BYTES);
    TWILL_CHECK(other != NULL && away != NULL);
    TWILL_CHECK(swap(&pair) && swap_at(&pair, other, pair.data[1], BYTES));
    counted(&pair, 3, 0, 1, __LINE__);
    TWILL_CHECK(move_mapping(other, pair.data[0]));
    swap(&pair);
    counted(&pair, 5, 3, 1, __LINE__);
    swap(&pair); /* no lock was left anywhere */
    counted(&pair, 5, 3, 3, __LINE__);
    /* First to a new place, then to where other memory was that was used in between. */
    TWILL_CHECK(map(other, BYTES) != NULL && swap_at(&pair, other, pair.data[1], BYTES));
    counted(&pair, 6, 3, 4, __LINE__);
    TWILL_CHECK(move_mapping(other, away));
    swap(&pair);
    counted(&pair, 8, 8, 4, __LINE__);
    TWILL_CHECK(move_mapping(away, pair.data[0]));
    swap(&pair);
    counted(&pair, 10, 10, 4, __LINE__);
    TWILL_CHECK(munlock(pair.data[0], BYTES) == 0);
    swap(&pair);
    counted(&pair, 12, 10, 4, __LINE__);
    swap(&pair);
    counted(&pair, 12, 10, 6, __LINE__);
    rank_barrier(&pair.end);
    pair_close(&pair);
}

TWILL_TEST(test_moved)
{
    need_locks();
    twill_test_run_processes(2, rank_moved, NULL);
}

/* --- on several rails ------------------------------------------------------------------------- */

static twill_status open_registering(struct twill_transport **transport,
                                     const struct twill_transport_params *params,
                                     struct twill_error *error)
{
    return twill_ofi_open(transport, params, &registering.options, error);
}

TWILL_TEST_OF_RANKS(test_rails, 2)
{
    struct pair pair;
    unsigned char *regions[2] = {NULL, NULL};
    struct twill_persistent persistent = {find, regions, NULL};
    struct twill_transport_ops ops = twill_ofi_transport;
    ops.open = open_registering;
    if (pair_open_on(&pair, bootstrap, &registering, &persistent, &ops)) {
        memcpy(regions, pair.data, sizeof(regions));
        swap(&pair);
        swap(&pair);
        counted(&pair, 4, 0, 4, __LINE__);
        for (unsigned i = 0; i < 2; i++)
            pair.common->forget(pair.common, pair.data[i], BYTES);
        swap(&pair);
        counted(&pair, 8, 0, 4, __LINE__);
        rank_barrier(&pair.end);
    }
    pair_close(&pair);
}

/* --- memory freed while the first communicator is created ------------------------------------ */

struct giver {
    struct twill_common *common;
    atomic_bool done;
};

static void *give_back(void *user)
{
    struct giver *giver = user;
    while (!atomic_load(&giver->done)) {
        twill_common_forget(&giver->common, giver, sizeof(*giver));
        sched_yield();
    }
    return NULL;
}

TWILL_TEST_OF_RANKS(test_early, 2)
{
    struct giver giver = {NULL, false};
    struct end end;
    pthread_t thread;
    TWILL_CHECK(pthread_create(&thread, NULL, give_back, &giver) == 0);
    if (end_open_with(&end, bootstrap, &registering, 0, &giver.common))
        rank_barrier(&end);
    atomic_store(&giver.done, true);
    pthread_join(thread, NULL);
    end_close(&end);
    if (giver.common != NULL)
        giver.common->close(giver.common);
}
