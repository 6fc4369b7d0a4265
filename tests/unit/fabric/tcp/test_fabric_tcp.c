/* SPDX-License-Identifier: Apache-2.0 */
/* Messages over the tcp transport, between ranks that are threads. */
#include "fabric/entry_times.h"
#include "fabric/tcp/tcp_records.h"
#include "kernels/kernels.h"
#include "tests/support/tcp_ends.h"
#include "tests/support/unit.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

/* --- what every transport must do ------------------------------------------------------------ */

enum { READ = TWILL_TCP_RX_BYTES, SCRATCH = TWILL_TCP_SCRATCH };
static const size_t sizes[] = {0,    1,        8,    63,       64,           65,
                               1000, READ - 1, READ, READ + 1, SCRATCH + 61, (3u << 20) + 5};

static void sweep(struct twill_test_end *end, void *user)
{
    (void)(twill_test_early(end) && twill_test_sweep(end, sizes, TWILL_ARRAY_LENGTH(sizes)) &&
           twill_test_mismatch(end));
}

TWILL_TEST(test_sweep)
{
    for (int ranks = 2; ranks <= 3; ranks++)
        end_test_run((struct end_test){.ranks = ranks, .open = tcp_open, .body = sweep});
}

static bool has_six(void)
{
    struct sockaddr_storage address;
    socklen_t length;
    if (!twill_endpoint_address("::1", 0, &address, &length))
        return false;
    int fd = twill_socket_listen((struct sockaddr *)&address, length, 1);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

TWILL_TEST(test_six)
{
    if (!has_six())
        skip();
    end_test_run((struct end_test){.ranks = 2, .open = tcp_open, .how = "::1", .body = sweep});
}

static void flood(struct twill_test_end *end, void *user)
{
    const struct twill_transport_counters *c = &end->transport->counters;
    uint64_t messages = (uint64_t)(end->size - 1) * TWILL_LANES * 60;
    TWILL_CHECK(twill_test_flood(end, 60, 40000));
    TWILL_CHECK(c->messages == messages && c->bytes > messages &&
                    c->header_bytes >= 16 * messages && c->header_bytes < 96 * messages,
                "counters: %llu messages, %llu bytes, %llu of headers",
                (unsigned long long)c->messages, (unsigned long long)c->bytes,
                (unsigned long long)c->header_bytes);
}

TWILL_TEST(test_flood)
{
    for (int ranks = 2; ranks <= 4; ranks += 2)
        end_test_run((struct end_test){.ranks = ranks, .open = tcp_open, .body = flood});
}

/* --- several threads serve the channels ------------------------------------------------------- */

static bool open_shared(struct twill_test_end *end, const void *interface)
{
    tcp_share(end);
    return tcp_open(end, interface);
}

END_TEST(test_shared, 2, false, open_shared, NULL)
{
    TWILL_CHECK(twill_test_flood(end, 4, 2 << 20));
    TWILL_CHECK(*tcp_forks() > 0);
}

END_TEST(test_shared_sweep, 3, false, open_shared, NULL)
{
    (void)(twill_test_sweep(end, sizes, TWILL_ARRAY_LENGTH(sizes)) && twill_test_mismatch(end));
}

/* --- a sender far ahead of its receiver ------------------------------------------------------- */

#define TCP_AHEAD 3000

TCP_TEST(test_ahead, 2)
{
    struct twill_transfer *r = calloc(TCP_AHEAD, sizeof(*r));
    uint32_t *data = calloc(TCP_AHEAD, sizeof(*data));
    TWILL_CHECK(r != NULL && data != NULL);
    for (uint32_t i = 0; i < TCP_AHEAD; i++) {
        data[i] = end->rank == 0 ? i : 0;
        r[i] = end_one_way(end, 0, &data[i], sizeof(data[i]));
    }
    for (uint32_t i = 0; end->rank == 0 && i < TCP_AHEAD; i++)
        TWILL_CHECK(end_post(end, &r[i]));
    TWILL_CHECK(end_linger(end, SECOND / 10) >= 0);
    for (uint32_t i = 0; end->rank == 1 && i < TCP_AHEAD; i++)
        TWILL_CHECK(end_post(end, &r[i]));
    TWILL_CHECK(end_await(end, r, TCP_AHEAD));
    for (uint32_t i = 0; i < TCP_AHEAD; i++)
        TWILL_CHECK(r[i].status == TWILL_OK && data[i] == i, "message %u: %d, holds %u", i,
                    r[i].status, data[i]);
    free(r);
    free(data);
}

/* --- a large message with a late RECV does not block other channels ------------------------------
 */

#define TCP_LARGE ((size_t)64 << 20)

TCP_TEST(test_channels, 2)
{
    bool sends = end->rank == 0;
    unsigned char *large = calloc(1, TCP_LARGE), small[64] = {0};
    struct twill_transfer slow = end_one_way(end, 0, large, TCP_LARGE), quick;
    TWILL_CHECK(large != NULL);
    large[TCP_LARGE - 1] = sends ? 9 : 0;
    TWILL_CHECK(!sends || end_post(end, &slow));
    for (unsigned i = 0; i < 20; i++) {
        small[0] = sends ? (unsigned char)i : 0xff;
        quick = end_one_way(end, 1, small, sizeof(small));
        TWILL_CHECK(end_complete(end, &quick));
        TWILL_CHECK(small[0] == i && (!sends || slow.status == TWILL_PENDING),
                    "message %u, large one: %d", i, slow.status);
    }
    TWILL_CHECK((sends || end_post(end, &slow)) && end_await(end, &slow, 1));
    TWILL_CHECK(slow.status == TWILL_OK && large[TCP_LARGE - 1] == 9, "large: %d", slow.status);
    free(large);
}

/* --- both sides report a large message that does not match ------------------------------------ */

TCP_TEST(test_refused, 2)
{
    bool sends = end->rank == 0;
    unsigned char *large = calloc(1, TCP_LARGE);
    struct twill_transfer r = end_one_way(end, 2, large, sends ? TCP_LARGE : 4711);
    r.signature += end->rank;
    TWILL_CHECK(end_complete(end, &r));
    TWILL_CHECK(r.status == TWILL_ERR_MISMATCH && r.peer_bytes == (sends ? 4711 : TCP_LARGE) &&
                    r.peer_signature == (sends ? 8 : 7),
                "rank %u: %d, %llu bytes, signature %u", end->rank, r.status,
                (unsigned long long)r.peer_bytes, r.peer_signature);
    /* Later messages arrive. */
    r = end_one_way(end, 2, large, 100000);
    TWILL_CHECK(end_complete(end, &r) && r.status == TWILL_OK, "then: %d", r.status);
    free(large);
}

/* --- two communicators with one listener ------------------------------------------------------ */

TCP_TEST(test_comms, 2)
{
    struct twill_test_end other;
    TWILL_CHECK(end_more(&other, end, 17));
    struct twill_test_end *order[2] = {end->rank == 0 ? end : &other,
                                       end->rank == 0 ? &other : end};
    struct twill_transfer r[4];
    unsigned char data[4][100];
    /* In opposite order, so that each accepts connections of the other first. */
    for (unsigned i = 0; i < 4; i++) {
        memset(data[i], order[i / 2] == end ? 1 : 2, sizeof(data[i]));
        r[i] = end_transfer(i % 2 == 0 ? TWILL_TRANSFER_RECV : TWILL_TRANSFER_SEND, end->peer, 5,
                            data[i], sizeof(data[i]));
        if (i % 2 == 0)
            data[i][50] = 0;
        TWILL_CHECK(end_post(order[i / 2], &r[i]));
    }
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    for (unsigned done = 0; done < 4; done += r[done].status != TWILL_PENDING)
        TWILL_CHECK(end_works(end) && end_works(&other) && twill_now() < limit);
    for (unsigned i = 0; i < 4; i++)
        TWILL_CHECK(r[i].status == TWILL_OK && data[i][50] == data[i][0], "rank %u, %u: %d",
                    end->rank, i, r[i].status);
    TWILL_CHECK(end_barrier(end));
    end_close_more(&other);
}

/* --- congestion control ----------------------------------------------------------------------- */

/* Where reno replaces a congestion control that paces: which hosts, which settings, and that
 * connections then have it at both ends. */

TWILL_TEST(test_needs)
{
    static const struct {
        const char *controls; /* of each rank: unpaced, by the system, for good */
        uint64_t networks[3];
        bool near, paced;
    } rows[] = {
        {"sss", {7, 7, 7}, true, false},  {"sss", {7, 7, 8}, false, true},
        {"sss", {7, 0, 7}, false, true},  {"sss", {0, 0, 0}, false, true},
        {"usu", {7, 7, 7}, true, false},  {"usu", {7, 8, 7}, false, true},
        {"uuu", {7, 8, 7}, false, false}, {"uug", {7, 7, 7}, true, true},
        {"gsu", {1, 2, 3}, false, true},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(rows); i++) {
        enum twill_tcp_control controls[3];
        for (unsigned r = 0; r < 3; r++)
            controls[r] = rows[i].controls[r] == 'u'   ? TWILL_TCP_UNPACED
                          : rows[i].controls[r] == 's' ? TWILL_TCP_PACED_BY_SYSTEM
                                                       : TWILL_TCP_PACED_FOR_GOOD;
        bool paced = !rows[i].paced;
        bool near = twill_tcp_needs_no_pace(controls, rows[i].networks, 3, &paced);
        if (near != rows[i].near || paced != rows[i].paced)
            fail_msg("row %zu: %d %d", i, near, paced);
    }
}

static const char *name_of(int fd, char name[32])
{
    socklen_t length = 31;
    memset(name, 0, 32);
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length) != 0)
        return "?";
    return name;
}

/* What a socket of this machine has, and what it paces by. */
TWILL_TEST(test_control)
{
    const struct twill_transport_params unset = {0};
    const struct test_setting own[] = {{"TWILL_TUNE=congestion", "bbr"}, {NULL, NULL}};
    const struct twill_transport_params set = {.setting = test_setting, .settings = own};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    char name[32];
    assert_true(fd >= 0);
    assert_true(twill_tcp_use_reno(fd));
    assert_string_equal(name_of(fd, name), "reno");
    assert_int_equal(twill_tcp_control_of(&unset, fd), TWILL_TCP_UNPACED);
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "bbr", 3) == 0) {
        assert_int_equal(twill_tcp_control_of(&unset, fd), TWILL_TCP_PACED_BY_SYSTEM);
        assert_int_equal(twill_tcp_control_of(&set, fd), TWILL_TCP_PACED_FOR_GOOD);
    }
    close(fd);
    assert_false(twill_tcp_use_reno(-1));
}

/* Both ends of a connection over lo, which is one network. */
TCP_TEST(test_connected, 2)
{
    size_t bytes = 100000;
    char name[32];
    TWILL_CHECK(twill_test_sweep(end, &bytes, 1));
    const struct twill_tcp *t = tcp_of(end);
    bool paces = strncmp(name_of(t->common->listener, name), "bbr", 3) == 0;
    TWILL_CHECK(!paces && !t->common->paced && t->once == TWILL_TCP_ONCE, "listener: %s", name);
    /* Also if rank 0 connects before rank 1 has set its listener to reno. */
    name_of(tcp_channel(end, 0)->fd, name);
    TWILL_CHECK(!t->common->unpaced || strcmp(name, "reno") == 0, "connection: %s", name);
}

/* --- records ---------------------------------------------------------------------------------- */

/* The records of a channel by themselves, two ends on a pair of sockets. */

#define ENOUGH 8u /* records that are acknowledged without being asked for */

/* Send these bytes in a record of their own. */
static void send_record(struct twill_tcp_records *from, size_t bytes)
{
    unsigned char data[100] = {0};
    const struct iovec iov = {data, bytes};
    assert_int_equal(twill_tcp_records_write(from, &iov, 1, bytes), bytes);
    assert_true(twill_tcp_records_push(from) > 0);
}

static void read_bytes(struct twill_tcp_records *at, size_t bytes)
{
    unsigned char data[100];
    struct twill_error error = {.status = TWILL_OK};
    assert_int_equal(twill_tcp_records_read(at, data, bytes, &error), bytes);
}

/* An acknowledgement arrives with the data before it, and is not read with them. Nothing else
 * arrives: a sender whose window is full waits for this one. */
TWILL_TEST(test_acknowledged_behind_data)
{
    const struct twill_session session = {.caller = true};
    struct twill_tcp_protection how = {.interface = "lo"};
    struct twill_transport_counters counters[2] = {{0}};
    struct twill_tcp_records *end[2];
    struct twill_error error = {.status = TWILL_OK};
    const struct twill_kernels *kernels;
    int fd[2];
    assert_int_equal(twill_kernels_select(&kernels, NULL, NULL), TWILL_OK);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    how.crc32c = kernels->crc32c;
    for (uint32_t i = 0; i < 2; i++) {
        end[i] = twill_tcp_records_new(&how, &counters[i], 1 - i, "the other");
        assert_non_null(end[i]);
        twill_tcp_records_begin(end[i], fd[i], &session);
    }
    for (unsigned i = 0; i < ENOUGH; i++)
        send_record(end[0], 1);
    send_record(end[1], 100);
    read_bytes(end[1], ENOUGH);
    read_bytes(end[0], 100);
    assert_true(twill_tcp_records_kept(end[0]));
    assert_int_equal(twill_tcp_records_look(end[0], &error), 1);
    assert_false(twill_tcp_records_kept(end[0]));
    assert_int_equal(twill_tcp_records_look(end[0], &error), 0);
    assert_int_equal(error.status, TWILL_OK);
    for (int i = 0; i < 2; i++) {
        twill_tcp_records_free(end[i]);
        (void)close(fd[i]);
    }
}

/* --- entry times ------------------------------------------------------------------------------ */

/* Entry times in messages: clocks that are far apart, messages that are read late, unknown times.
 */

#define APART  UINT64_C(3600000000000) /* ns: a peer whose clock is an hour ahead */
#define LATE   200000                  /* us: how late a message is read */
#define MARGIN 0.05 /* s: less than that, more than any pause between two clocks */
#define RANK   7u

struct clocks {
    struct twill_clock_pair start;
    double rate; /* ticks a second */
};

static struct clocks start_clocks(void)
{
    struct clocks clocks = {.start = twill_clock_read()};
    usleep(LATE);
    struct twill_clock_pair now = twill_clock_read();
    clocks.rate =
        (double)(now.ticks - clocks.start.ticks) * 1e9 / (double)(now.ns - clocks.start.ns);
    return clocks;
}

/* Pack an entry as a peer whose clock is ahead. */
static struct twill_entry_message message_of(const struct clocks *clocks, uint64_t ticks)
{
    struct twill_entry_message message;
    struct twill_last_entry last = {.ticks = ticks, .rank = RANK};
    twill_entry_pack(&last, &clocks->start, &message);
    message.sent += APART;
    return message;
}

static void assert_seconds(const struct clocks *clocks, uint64_t ticks, uint64_t expected)
{
    double apart = (double)(int64_t)(ticks - expected) / clocks->rate;
    assert_true(apart > -MARGIN && apart < MARGIN);
}

TWILL_TEST(late_messages_do_not_move_entries)
{
    struct clocks clocks = start_clocks();
    struct twill_clock_filter filter = {0};
    uint64_t entered = twill_ticks();
    struct twill_entry_message message = message_of(&clocks, entered);
    struct twill_last_entry last = twill_entry_unpack(&message, &clocks.start, &filter);
    assert_int_equal(last.rank, RANK);
    assert_seconds(&clocks, last.ticks, entered);
    message = message_of(&clocks, entered);
    usleep(LATE);
    last = twill_entry_unpack(&message, &clocks.start, &filter);
    assert_seconds(&clocks, last.ticks, entered);
    /* Its age counts, too. */
    message = message_of(&clocks, entered);
    assert_true((double)message.age * 1e-9 > LATE * 1e-6 - MARGIN);
    last = twill_entry_unpack(&message, &clocks.start, &filter);
    assert_seconds(&clocks, last.ticks, entered);
}

TWILL_TEST(unknown_entries_stay_unknown)
{
    struct clocks clocks = start_clocks();
    struct twill_clock_filter filter = {0};
    struct twill_entry_message message = message_of(&clocks, 0);
    assert_true(twill_entry_unpack(&message, &clocks.start, &filter).ticks == 0);
    message = message_of(&clocks, twill_ticks() + (uint64_t)clocks.rate); /* from the future */
    assert_true(twill_entry_unpack(&message, &clocks.start, &filter).ticks == 0);
}
