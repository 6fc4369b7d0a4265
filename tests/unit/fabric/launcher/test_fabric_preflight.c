/* SPDX-License-Identifier: Apache-2.0 */
/* twillrun --check: what is parsed, each check with a fault that only it finds, outliers,
 * connections over loopback, and that the page and JSON have the same findings; files of the
 * kernel, lists of CPUs, and lines between front and agents. */
#include "fabric/bootstrap/frames.h"
#include "fabric/launcher/preflight/preflight_agent.h"
#include "fabric/launcher/preflight/preflight_front.h"
#include "lib/base/base.h"
#include "tests/support/unit.h"

#include <limits.h>
#include <sys/stat.h>

#define HOSTS 4

/* --- a job without faults, to which tests add one --------------------------------------------- */

static void make_host(struct preflight_host *host, int index)
{
    struct preflight_facts *facts = &host->facts;
    *host = (struct preflight_host){.ranks = 2, .answered = true};
    host->rank = calloc(2, sizeof(*host->rank));
    assert_non_null(host->rank);
    snprintf(host->name, sizeof(host->name), "h%d", index);
    for (int k = 0; k < 2; k++) {
        host->rank[k] = (struct preflight_rank){.known = true, .cores = 4};
        snprintf(host->rank[k].cpus, sizeof(host->rank[k].cpus), "%d-%d", 4 * k, 4 * k + 3);
    }
    *facts = (struct preflight_facts){.cpus = 8,
                                      .memory_bytes = INT64_C(1) << 36,
                                      .memory_limit_bytes = -1,
                                      .memory_used_bytes = -1,
                                      .cpu_limit_milli = -1,
                                      .memlock_bytes = -1,
                                      .nofile = 1024,
                                      .nofile_most = 4096,
                                      .shm_bytes = INT64_C(1) << 33,
                                      .shm_free_bytes = INT64_C(1) << 32,
                                      .ptrace_scope = -1,
                                      .port = 40000,
                                      .interface_mtu = 1500,
                                      .interface_mbits = 10000,
                                      .clock_ns = 1000000,
                                      .clock_error_ns = 500000,
                                      .thp = "madvise",
                                      .library_path = "/usr/lib/libtwill.so.0",
                                      .library_version = "0.1.0",
                                      .library_digest = "0123456789abcdef",
                                      .key = "drawn by twillrun",
                                      .interface = "eth0",
                                      .interface_state = "up",
                                      .interface_duplex = "full"};
    snprintf(facts->address, sizeof(facts->address), "10.0.0.%d", index + 1);
}

static void make_job(struct preflight_job *job)
{
    job->ran = true;
    job->ranks = 2 * HOSTS;
    job->allreduce_us = 12;
    job->host = calloc((size_t)job->ranks, sizeof(*job->host));
    job->pair = calloc((size_t)(job->ranks * job->ranks), sizeof(*job->pair));
    assert_non_null(job->host);
    assert_non_null(job->pair);
    for (int a = 0; a < job->ranks; a++) {
        job->host[a] = a / 2;
        for (int b = a + 1; b < job->ranks; b++) {
            bool inside = a / 2 == b / 2;
            double more = (double)((7 * a + 3 * b) % 5) / 10; /* pairs differ a little */
            job->pair[job->pairs++] =
                (struct preflight_pair){.a = a,
                                        .b = b,
                                        .round_trip_us = (inside ? 1 : 30) * (1 + more),
                                        .megabytes = (inside ? 9000 : 1100) / (1 + more)};
        }
    }
}

static void make_good(struct preflight *all)
{
    assert_true(preflight_open(all, HOSTS));
    all->ranks = 2 * HOSTS;
    for (int i = 0; i < HOSTS; i++)
        make_host(&all->host[i], i);
    for (int i = 0; i < HOSTS * HOSTS; i++)
        all->link[i] = (struct preflight_link){.reach = PREFLIGHT_GOOD, .path_mtu = 1500};
    make_job(&all->job);
}

/* --- each check ------------------------------------------------------------------------------- */

static struct preflight_facts *facts_of(struct preflight *all, int host)
{
    return &all->host[host].facts;
}

static struct preflight_pair *pair_of(struct preflight *all, int a, int b)
{
    struct preflight_pair *pair = all->job.pair;
    while (pair->a != a || pair->b != b)
        pair++;
    return pair;
}

/* A fault, mostly of host 2: of its facts f, its ranks r, and its link to host 1. */
#define FAULT(name, ...)                                                                           \
    static void fault_##name(struct preflight *all)                                                \
    {                                                                                              \
        struct preflight_facts *f __attribute__((unused)) = facts_of(all, 2);                      \
        struct preflight_rank *r __attribute__((unused)) = all->host[2].rank;                      \
        struct preflight_link *link __attribute__((unused)) = preflight_link_of(all, 2, 1);        \
        __VA_ARGS__                                                                                \
    }
FAULT(silent, all->host[2].answered = false; strcpy(all->host[2].error, "ssh: no route");)
FAULT(few_cores, all->host[2].answered = false;
      strcpy(all->host[2].error, "--threads-per-rank 9 on h2: too few");)
FAULT(deaf, strcpy(f->listen_error, "no interface"); f->port = 0;)
FAULT(dropped, link->reach = PREFLIGHT_DROPPED;)
FAULT(refused, link->reach = PREFLIGHT_REFUSED;)
FAULT(unreachable, link->reach = PREFLIGHT_UNREACHABLE; link->error = ENETUNREACH;)
FAULT(failed, link->reach = PREFLIGHT_FAILED; link->error = EMFILE;)
FAULT(stalled, link->reach = PREFLIGHT_STALLED;)
FAULT(mtu, f->interface_mtu = 9000;)
FAULT(path_mtu, link->path_mtu = 1400;)
FAULT(half, strcpy(f->interface_duplex, "half");)
FAULT(down, strcpy(f->interface_state, "down");)
FAULT(slow_nic, f->interface_mbits = 1000;)
FAULT(faster_nic, strcpy(f->faster_interface, "eth1"); f->faster_mbits = 100000;)
FAULT(clock, f->clock_ns = -INT64_C(2000000000);)
FAULT(version, strcpy(f->library_version, "0.0.9");)
FAULT(library, strcpy(f->library_digest, "fedcba9876543210");)
FAULT(no_program, all->has_program = true; strcpy(f->program_error, "No such file");)
FAULT(program, all->has_program = true; for (int i = 0; i < HOSTS; i++)
          strcpy(facts_of(all, i)->program_digest, i == 2 ? "bb" : "aa");)
FAULT(no_key, f->key[0] = '\0';)
FAULT(key, strcpy(f->key_error, "/k has mode 644"); f->key_is_named = 1;)
FAULT(home_key, strcpy(f->key_error, "/home/k has mode 644");)
FAULT(keys, for (int i = 0; i < HOSTS; i++) facts_of(all, i)->key_is_named = 1;
      for (int i = 0; i < HOSTS; i++) strcpy(facts_of(all, i)->key_digest, i == 2 ? "22" : "11");)
FAULT(memlock, f->memlock_bytes = 65536;)
FAULT(rdma, f->memlock_bytes = 8 << 20; f->rdma_devices = 1;)
FAULT(nofile, f->nofile = 100;)
FAULT(nofile_most, f->nofile = f->nofile_most = 100;)
FAULT(no_shm, f->shm_bytes = f->shm_free_bytes = -1;)
FAULT(shm, f->shm_free_bytes = 1 << 20;)
FAULT(cma, f->cma_error = EPERM;)
FAULT(yama, f->cma_error = EPERM; f->ptrace_scope = 1;)
FAULT(no_thp, strcpy(f->thp, "never");)
FAULT(thp, strcpy(f->thp, "always");)
FAULT(memory, f->memory_limit_bytes = INT64_C(2) << 30; f->memory_used_bytes = INT64_C(3) << 29;)
FAULT(cpu, f->cpu_limit_milli = 1500;)
FAULT(crowd, r[0].cores = r[1].cores = 1; strcpy(r[0].cpus, "0"); strcpy(r[1].cpus, "0");)
FAULT(overlap, strcpy(r[1].cpus, "3-6,9");)
FAULT(job, all->job.ran = false; strcpy(all->job.error, "rank 3: no memory");)
FAULT(wrong, all->job.wrong = true;)
FAULT(round_trip, pair_of(all, 1, 6)->round_trip_us = 900;)
FAULT(bandwidth, pair_of(all, 1, 6)->megabytes = 11;)

/* The one finding that a fault leads to. host -1: of no host. */
static const struct fault_case {
    void (*fault)(struct preflight *all);
    enum preflight_check check;
    bool problem;
    int host;
    const char *what;
} cases[] = {
    {fault_silent, PREFLIGHT_ANSWER, true, 2, "does not answer: ssh: no route"},
    {fault_few_cores, PREFLIGHT_ANSWER, true, 2,
     "cannot start its ranks: --threads-per-rank 9 on h2: too few"},
    {fault_deaf, PREFLIGHT_ANSWER, true, 2, "no address for the job: no interface"},
    {fault_dropped, PREFLIGHT_CONNECT, true, 2,
     "no answer from h1 (10.0.0.2) within 3 s: packets are dropped, on the way there or back; the "
     "other direction works"},
    {fault_refused, PREFLIGHT_CONNECT, true, 2, "h1 (10.0.0.2) refuses connections"},
    {fault_unreachable, PREFLIGHT_CONNECT, true, 2, "no way to h1 (10.0.0.2): Network is unreach"},
    {fault_failed, PREFLIGHT_CONNECT, true, 2, "cannot connect to h1 (10.0.0.2): Too many open"},
    {fault_stalled, PREFLIGHT_DATA, true, 2, "h1 (10.0.0.2) takes connections, but 64 KiB do not"},
    {fault_mtu, PREFLIGHT_MTU, false, 2, "eth0 has an MTU of 9000, where other hosts have 1500"},
    {fault_path_mtu, PREFLIGHT_MTU, false, 2, "packets to h1 have at most 1400 bytes"},
    {fault_half, PREFLIGHT_NIC, true, 2, "eth0 runs at half duplex"},
    {fault_down, PREFLIGHT_NIC, true, 2, "eth0 is down"},
    {fault_faster_nic, PREFLIGHT_NIC, false, 2,
     "eth0 has 10000 Mbit/s, but eth1, which is up and not used, has 100000"},
    {fault_slow_nic, PREFLIGHT_NIC, false, 2, "eth0 has 1000 Mbit/s, where another host has 10000"},
    {fault_clock, PREFLIGHT_CLOCK, false, 2, "the clock is 2 s behind that of h"},
    {fault_version, PREFLIGHT_LIBRARY, true, 2, "libtwill 0.0.9 (/usr/lib/libtwill.so.0), where"},
    {fault_library, PREFLIGHT_LIBRARY, true, 2, "differs from that of other hosts: digest fedc"},
    {fault_no_program, PREFLIGHT_PROGRAM, true, 2, "cannot be run: No such file"},
    {fault_program, PREFLIGHT_PROGRAM, false, 2, "differs from that of other hosts: digest bb"},
    {fault_no_key, PREFLIGHT_KEY, true, 2, "ranks get no key of the job"},
    {fault_key, PREFLIGHT_KEY, true, 2, "/k has mode 644"},
    {fault_home_key, PREFLIGHT_KEY, false, 2, "/home/k has mode 644"},
    {fault_keys, PREFLIGHT_KEY, true, 2, "the key file has another key than on other hosts"},
    {fault_memlock, PREFLIGHT_MEMLOCK, false, 2, "only 64 KiB of memory may be locked; 1.0 MiB"},
    {fault_rdma, PREFLIGHT_MEMLOCK, true, 2, "only 8.0 MiB of memory may be locked; 1.0 GiB"},
    {fault_nofile, PREFLIGHT_NOFILE, false, 2, "only 100 files may be open in a rank unless it"},
    {fault_nofile_most, PREFLIGHT_NOFILE, true, 2, "only 100 files may be open in a rank; a job"},
    {fault_no_shm, PREFLIGHT_SHM, false, 2, "there is no /dev/shm"},
    {fault_shm, PREFLIGHT_SHM, false, 2, "/dev/shm has 8.0 GiB, of which 1.0 MiB are free"},
    {fault_cma, PREFLIGHT_CMA, false, 2, "each other's memory: Operation not permitted"},
    {fault_yama, PREFLIGHT_CMA, false, 2, "kernel.yama.ptrace_scope is 1"},
    {fault_no_thp, PREFLIGHT_THP, false, 2, "transparent huge pages are off"},
    {fault_thp, PREFLIGHT_THP, false, 2, "always, where other hosts have madvise"},
    {fault_memory, PREFLIGHT_MEMORY, false, 2, "leaves 512 MiB of memory for 2 ranks, of a limit"},
    {fault_cpu, PREFLIGHT_CPU, false, 2, "the cgroup allows 1.5 CPUs for 2 ranks"},
    {fault_crowd, PREFLIGHT_BINDING, false, 2, "2 ranks share 1 core (CPUs 0)"},
    {fault_overlap, PREFLIGHT_BINDING, false, 2, "local ranks 0 (CPUs 0-3) and 1 (CPUs 3-6,9)"},
    {fault_job, PREFLIGHT_JOB, true, -1, "the test job failed: rank 3: no memory"},
    {fault_wrong, PREFLIGHT_JOB, true, -1, "had a wrong result"},
    {fault_round_trip, PREFLIGHT_ROUND_TRIP, false, -1,
     "ranks 1 on h0 and 6 on h3 have a round trip of 900 us; the median of pairs between hosts"},
    {fault_bandwidth, PREFLIGHT_BANDWIDTH, false, -1,
     "ranks 1 on h0 and 6 on h3 exchange 11.0 MB/s; the median of pairs between hosts"},
};

TWILL_TEST(test_no_fault)
{
    struct preflight all;
    char title[128];
    make_good(&all);
    preflight_look(&all);
    for (size_t i = 0; i < all.findings; i++)
        print_message("%s\n", all.finding[i].what);
    assert_int_equal(all.findings, 0);
    for (int i = 0; i < PREFLIGHT_CHECK_COUNT; i++)
        assert_int_equal(all.checked[i], i != PREFLIGHT_PROGRAM); /* none was given */
    preflight_title(&all, title, sizeof(title));
    assert_string_equal(title, "4 hosts, 8 ranks: ready");
    preflight_close(&all);
}

/* Print as a page or as JSON, into memory that the caller frees. */
static char *printed(const struct preflight *all, bool json, int code)
{
    char *text = NULL;
    size_t bytes;
    FILE *file = open_memstream(&text, &bytes);
    assert_non_null(file);
    assert_int_equal(json ? preflight_print_json(all, file) : preflight_print_page(all, file),
                     code);
    fclose(file);
    return text;
}

/* A fault leads to its finding and to no other; the page and JSON have it. */
TWILL_TEST(test_faults)
{
    bool covered[PREFLIGHT_CHECK_COUNT] = {false};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(cases); i++) {
        const struct fault_case *one = &cases[i];
        struct preflight all;
        make_good(&all);
        one->fault(&all);
        preflight_look(&all);
        if (all.findings != 1 || !strstr(all.finding[0].what, one->what))
            print_message("wanted: %s\nfound: %zu, %s\n", one->what, all.findings,
                          all.findings > 0 ? all.finding[0].what : "");
        assert_int_equal(all.findings, 1);
        const struct preflight_finding *finding = &all.finding[0];
        assert_non_null(strstr(finding->what, one->what));
        assert_int_equal(finding->check, one->check);
        assert_int_equal(finding->problem, one->problem);
        for (int k = 0; k < HOSTS; k++)
            assert_int_equal(finding->host[k], k == one->host);
        char *page = printed(&all, false, one->problem), *json = printed(&all, true, one->problem);
        assert_non_null(strstr(page, finding->what));
        assert_non_null(strstr(page, finding->advice));
        struct json_object *object = json_tokener_parse(json);
        assert_non_null(object);
        struct json_object *array =
            preflight_get_array(object, one->problem ? "problems" : "warnings");
        assert_int_equal(json_object_array_length(array), 1);
        assert_string_equal(preflight_get_text(json_object_array_get_idx(array, 0), "what"),
                            finding->what);
        assert_string_equal(preflight_get_text(json_object_array_get_idx(array, 0), "check"),
                            preflight_checks[one->check].name);
        json_object_put(object);
        free(page);
        free(json);
        preflight_close(&all);
        covered[one->check] = true;
    }
    for (int i = 0; i < PREFLIGHT_CHECK_COUNT; i++)
        assert_true(covered[i]);
}

/* Equal findings of several hosts are one; the first line counts. */
TWILL_TEST(test_page)
{
    struct preflight all;
    char title[128];
    make_good(&all);
    for (int i = 1; i < HOSTS; i++) {
        facts_of(&all, i)->nofile = facts_of(&all, i)->nofile_most = 100;
        facts_of(&all, i)->shm_free_bytes = 0;
    }
    all.job.wrong = true;
    preflight_look(&all);
    preflight_title(&all, title, sizeof(title));
    assert_string_equal(title, "2 problems, 1 warning");
    char *page = printed(&all, false, 1);
    assert_memory_equal(page, title, strlen(title));
    assert_non_null(strstr(page, "  1. h1, h2, h3: only 100 files may be open"));
    free(page);
    preflight_close(&all);
}

/* The test job leaves out the hosts of which most connections are broken, and no others. */
TWILL_TEST(test_choose)
{
    struct preflight all;
    bool chosen[HOSTS];
    make_good(&all);
    assert_int_equal(preflight_job_choose(&all, chosen), 2 * HOSTS);
    preflight_link_of(&all, 0, 1)->reach = PREFLIGHT_DROPPED;
    preflight_link_of(&all, 1, 3)->reach = PREFLIGHT_STALLED;
    assert_int_equal(preflight_job_choose(&all, chosen), 2 * (HOSTS - 1));
    assert_false(chosen[1]);
    all.host[2].answered = false;
    assert_int_equal(preflight_job_choose(&all, chosen), 4);
    assert_true(chosen[0] && chosen[3]);
    preflight_close(&all);
}

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
