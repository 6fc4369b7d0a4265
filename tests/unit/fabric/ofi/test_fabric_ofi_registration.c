/* SPDX-License-Identifier: Apache-2.0 */
/* Registrations of the ofi transport with a provider that requires them (here forced to: those of
 * tcp are as real as they get without such a network): how long they last, and whether they are
 * trusted after memory was freed or moved in between, also over several rails. */
#include "fabric/rails/rails.h"
#include "tests/support/ofi_ends.h"
#include "tests/support/unit.h"

#define PAGE  4096u
#define BYTES (1u << 20)

static void *map(void *where, size_t bytes)
{
    void *p = mmap(where, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | (where != NULL ? MAP_FIXED : 0), -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* Free memory and have the same addresses again. */
static void map_anew(void *where, size_t bytes)
{
    munmap(where, bytes);
    TWILL_NOTE(map(where, bytes) == where, "no memory");
}

/* Skip where locked memory cannot be observed: under sanitizers and with old kernels. */
static void need_locks(void)
{
    if (twill_locked_works())
        return;
    print_message("  skipped: locked memory cannot be observed here\n");
    skip();
}

/* --- two ends whose provider needs registration, and memory that is unmapped and mapped again - */

static const struct setup registering = {"tcp", {.force_registration = true}};
static const struct setup narrow = {"tcp", {.force_registration = true, .cached = 3}};

/* A rank's end, and two buffers. */
struct pair {
    struct twill_test_end *end;
    unsigned char *data[2];    /* sent, received */
    unsigned char *regions[2]; /* that are persistent; NULL: none */
    struct twill_persistent persistent;
    struct twill_transport_ops rail;
    uint32_t number;
    struct twill_transfer r[2]; /* outlive a failure */
};
static _Thread_local struct pair own; /* of each rank */

/* How a test is run. */
struct pair_test {
    const struct setup *setup;
    bool processes; /* else threads, each of which knows what the others have pinned */
    bool on_rails;  /* on two of them */
    bool unlocked;  /* does not need to observe locks */
    void (*body)(struct pair *pair);
};

static bool find(void *user, const void *start, size_t bytes, void **region, size_t *region_bytes)
{
    const struct pair *pair = user;
    const unsigned char *p = start;
    for (unsigned i = 0; i < 2; i++) {
        *region = pair->regions[i];
        *region_bytes = BYTES;
        if (pair->regions[i] != NULL && p >= pair->regions[i] &&
            p + bytes <= pair->regions[i] + BYTES)
            return true;
    }
    return false;
}

static twill_status open_registering(struct twill_transport **transport,
                                     const struct twill_transport_params *params,
                                     struct twill_error *error)
{
    return twill_ofi_open(transport, params, &registering.options, error);
}

static bool open_pair(struct twill_test_end *end, const void *how)
{
    static const struct test_setting settings[] = {
        {"TWILL_TUNE=registration", "auto"}, {"TWILL_RAILS", "2"}, {NULL, NULL}};
    static size_t pinned;
    const struct pair_test *test = how;
    own = (struct pair){.end = end, .data = {map(NULL, BYTES), map(NULL, BYTES)}};
    TWILL_REQUIRE(own.data[0] != NULL && own.data[1] != NULL);
    own.persistent = (struct twill_persistent){find, &own, &pinned};
    end->params.persistent = test->processes ? NULL : &own.persistent;
    end->params.setting = test_setting;
    end->params.settings = settings;
    if (!test->on_rails)
        return ofi_open_shared(end, test->setup);
    own.rail = twill_ofi_transport;
    own.rail.open = open_registering;
    end->params.common = &end->common;
    end->params.provider = test->setup->provider;
    return end_opened(end, twill_rails_open(&end->transport, &own.rail, &end->params, &end->error));
}

static void use_pair(struct twill_test_end *end, void *user)
{
    const struct pair_test *test = user;
    test->body(&own);
}

static void run_pair(struct pair_test test)
{
    if (!test.unlocked)
        need_locks();
    end_test_run((struct end_test){.ranks = 2,
                                   .processes = test.processes,
                                   .open = open_pair,
                                   .how = &test,
                                   .body = use_pair,
                                   .user = &test});
}

/* Define a test of two ranks: the body follows, the other arguments are of struct pair_test. */
#define PAIR_TEST(name, ...)                                                                       \
    static void body_of_##name(struct pair *pair);                                                 \
    TWILL_TEST(name)                                                                               \
    {                                                                                              \
        run_pair((struct pair_test){.body = body_of_##name, __VA_ARGS__});                         \
    }                                                                                              \
    static void body_of_##name(struct pair *pair)

/* Exchange a large message in both directions, from `out` and into `in`, with new contents. */
static bool swap_at(struct pair *pair, unsigned char *out, unsigned char *in, size_t bytes)
{
    struct twill_test_end *end = pair->end;
    unsigned number = pair->number++;
    TWILL_REQUIRE(!twill_test_failed());
    text_fill(out, bytes, 2 * number + end->rank);
    memset(in, 0, bytes);
    pair->r[0] = end_transfer(TWILL_TRANSFER_SEND, end->peer, 0, out, bytes);
    pair->r[1] = end_transfer(TWILL_TRANSFER_RECV, end->peer, 0, in, bytes);
    TWILL_REQUIRE(end_post(end, &pair->r[0]) && end_post(end, &pair->r[1]));
    TWILL_REQUIRE(end_await(end, pair->r, 2));
    TWILL_REQUIRE(pair->r[0].status == TWILL_OK && pair->r[1].status == TWILL_OK);
    return TWILL_NOTE(text_is(in, 0, bytes, 2 * number + end->peer), "message %u", number);
}

static bool swap(struct pair *pair)
{
    return swap_at(pair, pair->data[0], pair->data[1], BYTES);
}

/* Return the counters of a rank's end, with those of its rails. */
static struct twill_transport_counters counters(const struct pair *pair)
{
    struct twill_transport_counters sum;
    twill_transport_count(pair->end->transport, &sum);
    return sum;
}

static bool counted(const struct pair *pair, uint64_t made, uint64_t ended, uint64_t hits, int line)
{
    struct twill_transport_counters c = counters(pair);
    return twill_test_note(
        c.registrations == made && c.deregistrations == ended && c.registration_hits == hits,
        __FILE__, line, "counted()",
        " rank %u: %llu registrations, %llu ended, %llu hits, not %llu %llu %llu", pair->end->rank,
        (unsigned long long)c.registrations, (unsigned long long)c.deregistrations,
        (unsigned long long)c.registration_hits, (unsigned long long)made,
        (unsigned long long)ended, (unsigned long long)hits);
}
/* Check how many registrations were made, ended, and found. */
#define CHECK_COUNTS(...) TWILL_CHECK(counted(pair, __VA_ARGS__, __LINE__))

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

PAIR_TEST(test_steady, .setup = &registering)
{
    for (unsigned i = 0; i < 100; i++) {
        TWILL_CHECK(swap(pair));
        CHECK_COUNTS(2, 0, 2 * i);
    }
    struct twill_transport_counters c = counters(pair);
    TWILL_CHECK(c.copied == 0 && c.header_bytes <= 80 * c.messages,
                "%llu bytes copied, %llu bytes of headers for %llu messages",
                (unsigned long long)c.copied, (unsigned long long)c.header_bytes,
                (unsigned long long)c.messages);
    /* Ranges within them, and a range that begins on a page that is locked already. */
    TWILL_CHECK(swap_at(pair, pair->data[0] + 100000, pair->data[1] + 5, 30000));
    CHECK_COUNTS(2, 0, 200);
}

/* --- memory freed and allocated again at one address ----------------------------------------- */

PAIR_TEST(test_reuse, .setup = &registering)
{
    for (unsigned i = 0; i < 6; i++) {
        TWILL_CHECK(swap(pair));
        CHECK_COUNTS(2 + 2 * i, 2 * i, 0); /* the other is not trusted any more either */
        map_anew(pair->data[i % 2], BYTES);
    }
    for (unsigned i = 0; i < 6; i++) { /* one page of it */
        const size_t places[] = {0, BYTES / 2, BYTES - PAGE};
        TWILL_CHECK(swap(pair));
        map_anew(pair->data[i % 2] + places[i % 3], PAGE);
    }
    TWILL_CHECK(counters(pair).registrations >= 2 + 2 * 6 + 5,
                "a page was had anew, the registration was not");
    /* Memory that malloc() unmaps and maps again. */
    for (unsigned i = 0; i < 6; i++) {
        unsigned char *out = malloc(BYTES), *in = malloc(BYTES);
        TWILL_CHECK(out != NULL && in != NULL && swap_at(pair, out, in, BYTES), "round %u", i);
        free(out);
        free(in);
    }
}

/* --- more buffers than the cache holds ------------------------------------------------------- */

/* Exchange some bytes of both buffers, from the i-th eighth on. */
static bool swap_eighth(struct pair *pair, unsigned i, size_t bytes)
{
    size_t at = i * (size_t)(BYTES / 8);
    return swap_at(pair, pair->data[0] + at, pair->data[1] + at, bytes);
}

PAIR_TEST(test_evict, .setup = &narrow)
{
    const size_t eighth = BYTES / 8;
    for (unsigned i = 0; i < 8; i++) /* 16 ranges, 3 are cached */
        TWILL_CHECK(swap_eighth(pair, i, eighth));
    CHECK_COUNTS(16, 13, 0);
    TWILL_CHECK(swap_eighth(pair, 7, eighth)); /* the newest */
    CHECK_COUNTS(16, 13, 2);
    TWILL_CHECK(swap_eighth(pair, 0, eighth));
    CHECK_COUNTS(18, 15, 2);
    for (unsigned i = 0; i < 7; i++) { /* each overlaps the next by a page */
        TWILL_CHECK(swap_eighth(pair, i, eighth + PAGE));
        CHECK_COUNTS(20 + 2 * i, 17 + 2 * i, 2 + 2 * i);
        TWILL_CHECK(swap_eighth(pair, i, eighth + PAGE));
    }
}

/* --- persistent memory ----------------------------------------------------------------------- */

/* Forget a pair's buffers, as if they were freed. */
static void forget(const struct pair *pair)
{
    struct twill_common *common = pair->end->common;
    for (unsigned i = 0; i < 2; i++)
        common->forget(common, pair->data[i], BYTES);
}

PAIR_TEST(test_persistent, .setup = &registering, .unlocked = true)
{
    memcpy(pair->regions, pair->data, sizeof(pair->data));
    for (unsigned i = 0; i < 8; i++)
        TWILL_CHECK(swap_at(pair, pair->data[0] + i * 70000, pair->data[1] + i * 70000, 70000));
    CHECK_COUNTS(2, 0, 14);
    forget(pair);
    for (unsigned i = 0; i < 2; i++)
        map_anew(pair->data[i], BYTES);
    TWILL_CHECK(swap(pair));
    CHECK_COUNTS(4, 0, 14);
}

PAIR_TEST(test_rails, .setup = &registering, .on_rails = true, .unlocked = true)
{
    memcpy(pair->regions, pair->data, sizeof(pair->data));
    TWILL_CHECK(swap(pair) && swap(pair));
    CHECK_COUNTS(4, 0, 4);
    forget(pair);
    TWILL_CHECK(swap(pair));
    CHECK_COUNTS(8, 0, 4);
}

/* --- a child that writes what the parent still sends ------------------------------------------ */

PAIR_TEST(test_fork, .setup = &registering, .processes = true)
{
    TWILL_CHECK(swap(pair));
    pid_t child = fork();
    if (child == 0) {
        memset(pair->data[0], 0xee, BYTES);
        memset(pair->data[1], 0xee, BYTES);
        _exit(twill_locked_still(pair->data[0], BYTES) ? 1 : 0); /* locks are not inherited */
    }
    TWILL_CHECK(swap(pair));
    int status = 1;
    TWILL_CHECK(waitpid(child, &status, 0) == child && status == 0);
    TWILL_CHECK(swap(pair));
    CHECK_COUNTS(2, 0, 4);
}

/* --- communicators in threads, on buffers that are allocated and freed ----------------------- */

static void *drive(void *user)
{
    struct pair *pair = user;
    for (unsigned i = 0; i < 10; i++) {
        if (!swap(pair))
            return NULL;
        map_anew(pair->data[i % 2], BYTES);
    }
    return pair;
}

PAIR_TEST(test_threads, .setup = &registering, .unlocked = true)
{
    struct twill_test_end end;
    struct pair second = {.end = &end, .data = {map(NULL, BYTES), map(NULL, BYTES)}};
    pthread_t thread;
    void *fine = NULL;
    TWILL_CHECK(end_more(&end, pair->end, 1) && end_barrier(pair->end));
    pthread_create(&thread, NULL, drive, &second);
    TWILL_NOTE(drive(pair) != NULL, "first");
    pthread_join(thread, &fine);
    TWILL_CHECK(fine != NULL, "second");
    TWILL_CHECK(end_barrier(pair->end));
    end_close_more(&end);
    munmap(second.data[0], BYTES);
    munmap(second.data[1], BYTES);
}

/* --- memory moved to where other memory was: its lock moves with it -------------------------- */

static bool move_mapping(unsigned char *from, unsigned char *to)
{
    return munmap(to, BYTES) == 0 &&
           mremap(from, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to;
}

PAIR_TEST(test_moved, .setup = &registering, .processes = true)
{
    unsigned char *other = map(NULL, BYTES), *away = map(NULL, BYTES);
    TWILL_CHECK(other != NULL && away != NULL);
    TWILL_CHECK(swap(pair) && swap_at(pair, other, pair->data[1], BYTES));
    CHECK_COUNTS(3, 0, 1);
    TWILL_CHECK(move_mapping(other, pair->data[0]) && swap(pair));
    CHECK_COUNTS(5, 3, 1);
    TWILL_CHECK(swap(pair)); /* no lock was left anywhere */
    CHECK_COUNTS(5, 3, 3);
    /* First to a new place, then to where other memory was that was used in between. */
    TWILL_CHECK(map(other, BYTES) != NULL && swap_at(pair, other, pair->data[1], BYTES));
    CHECK_COUNTS(6, 3, 4);
    TWILL_CHECK(move_mapping(other, away) && swap(pair));
    CHECK_COUNTS(8, 8, 4);
    TWILL_CHECK(move_mapping(away, pair->data[0]) && swap(pair));
    CHECK_COUNTS(10, 10, 4);
    TWILL_CHECK(munlock(pair->data[0], BYTES) == 0 && swap(pair));
    CHECK_COUNTS(12, 10, 4);
    TWILL_CHECK(swap(pair));
    CHECK_COUNTS(12, 10, 6);
}

/* --- memory freed while the first communicator is created ------------------------------------ */

struct giver {
    struct twill_common **common;
    atomic_bool done;
};

static void *give_back(void *user)
{
    struct giver *giver = user;
    while (!atomic_load(&giver->done)) {
        twill_common_forget(giver->common, giver, sizeof(*giver));
        sched_yield();
    }
    return NULL;
}

static bool open_while_freeing(struct twill_test_end *end, const void *how)
{
    struct giver giver = {&end->common, false};
    pthread_t thread;
    TWILL_REQUIRE(pthread_create(&thread, NULL, give_back, &giver) == 0);
    bool open = ofi_open_shared(end, how) && end_barrier(end);
    atomic_store(&giver.done, true);
    pthread_join(thread, NULL);
    return open;
}

END_TEST(test_early, 2, false, open_while_freeing, &registering)
{
}
