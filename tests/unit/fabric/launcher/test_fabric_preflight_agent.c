/* SPDX-License-Identifier: Apache-2.0 */
/* twillrun --check on a host: files of the kernel, lists of CPUs, lines between front and agents,
 * and connections over loopback. */
#include "fabric/bootstrap/frames.h"
#include "fabric/launcher/preflight/preflight_agent.h"
#include "fabric/launcher/preflight/preflight_front.h"
#include "lib/base/base.h"
#include "tests/support/unit.h"

#include <limits.h>
#include <sys/stat.h>

/* --- numbers ---------------------------------------------------------------------------------- */

TWILL_TEST(test_cpus)
{
    static const char *const bad[] = {"x",    "1-",     "3-2", "1,,2", "-1",
                                      "1024", "0-1024", "1 2", "1;2"};
    uint64_t bits[PREFLIGHT_CPUS / 64];
    assert_true(preflight_cpus_parse(bits, "0-3,65,127-128"));
    assert_int_equal(bits[0], 0xf);
    assert_true(bits[1] == (UINT64_C(1) << 63 | 2));
    assert_int_equal(bits[2], 1);
    assert_true(preflight_cpus_parse(bits, ""));
    assert_int_equal(bits[0], 0);
    assert_true(preflight_cpus_parse(bits, "1023"));
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(bad); i++)
        assert_false(preflight_cpus_parse(bits, bad[i]));
}

TWILL_TEST(test_numbers)
{
    double odd[] = {5, 1, 3}, even[] = {4, 1, 3, 100};
    char text[32];
    assert_true(preflight_median(odd, 3) == 3);
    assert_true(preflight_deviation(odd, 3, 3) == 2);
    assert_true(preflight_median(even, 4) == 3.5);
    assert_string_equal(preflight_bytes(text, 65536), "64 KiB");
    assert_string_equal(preflight_bytes(text, 1536), "1.5 KiB");
    assert_string_equal(preflight_bytes(text, 12), "12 bytes");
    assert_string_equal(preflight_bytes(text, -1), "unlimited");
    assert_string_equal(preflight_measure(text, 1234.5), "1234");
    assert_string_equal(preflight_measure(text, 12.34), "12.3");
    assert_string_equal(preflight_measure(text, 0.123), "0.12");
}

/* --- files ------------------------------------------------------------------------------------ */

/* Write a file of the emulated root, with its folders. */
static void put_file(const char *root, const char *name, const char *text)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s%s", root, name);
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0755);
        *slash = '/';
    }
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void make_root(char root[64])
{
    snprintf(root, 64, "/tmp/twill-preflight-XXXXXX");
    assert_non_null(mkdtemp(root));
}

static void remove_root(const char *root)
{
    char line[128];
    snprintf(line, sizeof(line), "rm -rf %s", root);
    assert_int_equal(system(line), 0);
}

TWILL_TEST(test_cgroup_2)
{
    struct preflight_facts facts;
    char root[64];
    make_root(root);
    put_file(root, "/proc/self/cgroup", "0::/a/b\n");
    put_file(root, "/sys/fs/cgroup/a/b/memory.max", "max\n");
    put_file(root, "/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    preflight_cgroup_find(&facts, root);
    assert_int_equal(facts.memory_limit_bytes, -1);
    assert_int_equal(facts.cpu_limit_milli, -1);
    put_file(root, "/sys/fs/cgroup/a/memory.max", "2147483648\n"); /* of the parent */
    put_file(root, "/sys/fs/cgroup/a/memory.current", "4096\n");
    put_file(root, "/sys/fs/cgroup/a/cpu.max", "150000 100000\n");
    preflight_cgroup_find(&facts, root);
    assert_int_equal(facts.memory_limit_bytes, INT64_C(2147483648));
    assert_int_equal(facts.memory_used_bytes, 4096);
    assert_int_equal(facts.cpu_limit_milli, 1500);
    put_file(root, "/sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
    preflight_cgroup_find(&facts, root);
    assert_int_equal(facts.cpu_limit_milli, 500);
    remove_root(root);
}

TWILL_TEST(test_cgroup_1)
{
    struct preflight_facts facts;
    char root[64];
    make_root(root);
    put_file(root, "/proc/self/cgroup", "12:pids:/x\n5:memory:/x\n4:cpu,cpuacct:/x\n0::/x\n");
    put_file(root, "/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712\n");
    preflight_cgroup_find(&facts, root);
    assert_int_equal(facts.memory_limit_bytes, -1);
    put_file(root, "/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1048576\n");
    put_file(root, "/sys/fs/cgroup/memory/x/memory.usage_in_bytes", "1024\n");
    put_file(root, "/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "-1\n");
    put_file(root, "/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
    put_file(root, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us",
             "200000\n"); /* all that a container sees */
    put_file(root, "/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    preflight_cgroup_find(&facts, root);
    assert_int_equal(facts.memory_limit_bytes, 1048576);
    assert_int_equal(facts.memory_used_bytes, 1024);
    assert_int_equal(facts.cpu_limit_milli, 2000);
    put_file(root, "/proc/self/cgroup", "garbage\n:\n::\n7\n");
    preflight_cgroup_find(&facts, root);
    assert_int_equal(facts.memory_limit_bytes, -1);
    remove_root(root);
}

TWILL_TEST(test_sysfs)
{
    struct preflight_facts facts = {.interface = "ib0"};
    char root[64], path[PATH_MAX], text[PREFLIGHT_TEXT];
    make_root(root);
    put_file(root, "/sys/class/net/ib0/mtu", "4092\n");
    put_file(root, "/sys/class/net/ib0/speed", "200000\n");
    put_file(root, "/sys/class/net/ib0/operstate", "up\n");
    preflight_interface_find(&facts, root);
    assert_int_equal(facts.interface_mtu, 4092);
    assert_int_equal(facts.interface_mbits, 200000);
    assert_string_equal(facts.interface_state, "up");
    assert_string_equal(facts.interface_duplex, ""); /* there is none */
    put_file(root, "/thp", "always [madvise] never\n");
    snprintf(path, sizeof(path), "%s/thp", root);
    preflight_choice_find(text, path);
    assert_string_equal(text, "madvise");
    put_file(root, "/thp", "none here\n");
    preflight_choice_find(text, path);
    assert_string_equal(text, "");
    remove_root(root);
}

/* What this host says of itself is plausible. */
TWILL_TEST(test_facts)
{
    struct preflight_facts facts;
    assert_int_equal(setenv("TWILL_JOB", "00112233445566778899aabbccddeeff", 1), 0);
    assert_int_equal(setenv("TWILL_KEY_FILE", "/nowhere/key", 1), 0);
    preflight_facts_find(&facts, "sh");
    assert_true(facts.cpus >= 1 && facts.memory_bytes > 1 << 20);
    assert_string_equal(facts.library_version, twill_version());
    assert_string_equal(facts.key, "drawn by twillrun");
    assert_non_null(strstr(facts.key_error, "/nowhere/key"));
    assert_int_equal(facts.key_is_named, 1);
    assert_string_equal(facts.program_error, "");
    assert_int_equal(strlen(facts.program_digest), 16);
    preflight_facts_find(&facts, "no-such-program");
    assert_string_equal(facts.program_error, strerror(ENOENT));
    unsetenv("TWILL_JOB");
    unsetenv("TWILL_KEY_FILE");
}

/* --- lines ------------------------------------------------------------------------------------ */

TWILL_TEST(test_lines)
{
    static const char *const bad[] = {"",      "hello",   "[1] hello",  "[] {}",      "[-1] {}",
                                      "[1]{}", "[1] [2]", "[1] {\"a\"", "[70000] {}", "[x] {}"};
    struct preflight_facts facts = {.nofile = 77, .key = "k"};
    int rank = -1;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(bad); i++)
        assert_null(preflight_line_parse(bad[i], &rank));
    struct json_object *object = preflight_line_parse(
        "[12] {\"cpus\":3,\"nofile\":\"many\",\"thp\":\"a\\u001b[31mb\",\"key\":5}", &rank);
    assert_non_null(object);
    assert_int_equal(rank, 12);
    preflight_facts_get(object, &facts);
    assert_int_equal(facts.cpus, 3);
    assert_int_equal(facts.nofile, 77);        /* of another type: unchanged */
    assert_string_equal(facts.thp, "a?[31mb"); /* does not command a terminal */
    assert_string_equal(facts.key, "");        /* of another type: no text */
    json_object_put(object);
}

TWILL_TEST(test_facts_travel)
{
    struct preflight_facts facts, copy;
    preflight_facts_find(&facts, NULL);
    memset(&copy, 0, sizeof(copy));
    struct json_object *object = json_object_new_object();
    preflight_facts_put(object, &facts);
    preflight_facts_get(object, &copy);
#define PREFLIGHT_EQUAL(name) assert_int_equal(facts.name, copy.name);
    PREFLIGHT_NUMBERS(PREFLIGHT_EQUAL)
#undef PREFLIGHT_EQUAL
#define PREFLIGHT_EQUAL(name) assert_string_equal(facts.name, copy.name);
    PREFLIGHT_TEXTS(PREFLIGHT_EQUAL)
#undef PREFLIGHT_EQUAL
    json_object_put(object);
}

TWILL_TEST(test_said)
{
    struct preflight_program program = {.pid = 0};
    char text[256];
    strcpy(program.said,
           "twillrun: host h1: ssh: refused\ntwillrun: host h1: no answer\n[0] \x1b[1m");
    preflight_program_said(&program, "h1", text, sizeof(text));
    assert_string_equal(text, "ssh: refused; no answer; ?[1m");
}

/* --- connections ------------------------------------------------------------------------------ */

/* Return a socket that listens and never accepts, or that does not listen; its port is set. */
static int open_port(uint16_t *port, bool listening)
{
    struct twill_endpoint here;
    int fd = twill_socket_listen_at("127.0.0.1", 0, 4);
    assert_true(fd >= 0 && twill_socket_name(fd, false, &here));
    assert_true(listening || shutdown(fd, SHUT_RDWR) == 0);
    *port = here.port;
    return fd;
}

/* One agent calls another that serves, one that does not take the data, and a closed port. */
TWILL_TEST(test_links)
{
    static const enum preflight_reach wanted[] = {PREFLIGHT_GOOD, PREFLIGHT_STALLED,
                                                  PREFLIGHT_REFUSED, PREFLIGHT_FAILED};
    struct preflight_links links = {.listener = -1};
    struct preflight_link result;
    uint16_t deaf, closed, own = (uint16_t)preflight_links_listen(&links, "127.0.0.1");
    assert_true(own > 0);
    int silent = open_port(&deaf, true), unused = open_port(&closed, false);
    assert_true(preflight_links_call(&links, 10, "127.0.0.1", own, "127.0.0.1"));
    assert_true(preflight_links_call(&links, 11, "127.0.0.1", deaf, "127.0.0.1"));
    assert_true(preflight_links_call(&links, 12, "127.0.0.1", closed, "127.0.0.1"));
    assert_true(preflight_links_call(&links, 13, "no address", closed, "127.0.0.1"));
    while (preflight_links_pending(&links) > 0) {
        struct pollfd polls[16];
        int count = preflight_links_count(&links);
        assert_true(count <= 16);
        preflight_links_polls(&links, polls);
        assert_true(poll(polls, (nfds_t)count, 50) >= 0);
        preflight_links_turn(&links, polls);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(preflight_links_result(&links, i, &result), 10 + i);
        assert_int_equal(result.reach, wanted[i]);
        if (i == 0)
            assert_true(result.path_mtu > 1000);
    }
    preflight_links_close(&links);
    close(silent);
    close(unused);
    assert_int_equal(preflight_links_listen(&links, "no address"), 0);
}

/* Whoever connects can have no more than the bytes of a probe counted. */
TWILL_TEST(test_too_much)
{
    static const char data[PREFLIGHT_PROBE + 1];
    struct preflight_links links = {.listener = -1};
    struct pollfd polls[16];
    bool pending;
    int port = preflight_links_listen(&links, "127.0.0.1");
    int fd = twill_socket_dial("127.0.0.1", (uint16_t)port, &pending);
    assert_true(fd >= 0);
    size_t sent = 0;
    bool ended = false;
    uint64_t until = twill_now() + PREFLIGHT_REACH_NS * 10;
    for (char answer = 0; !ended;) {
        assert_true(twill_now() < until);
        ssize_t n = send(fd, data + sent, sizeof(data) - sent, MSG_NOSIGNAL);
        sent += n > 0 ? (size_t)n : 0;
        int count = preflight_links_count(&links);
        assert_true(count >= 1 && count <= 16);
        preflight_links_polls(&links, polls);
        assert_true(poll(polls, (nfds_t)count, 10) >= 0);
        preflight_links_turn(&links, polls);
        n = recv(fd, &answer, 1, 0);
        assert_true(n != 1 || answer == 'k');
        ended = n == 0 || (n < 0 && errno == ECONNRESET);
    }
    assert_int_equal(sent, sizeof(data));
    preflight_links_close(&links);
    close(fd);
}
