/* SPDX-License-Identifier: Apache-2.0 */
/* twillrun --check: what is parsed, each check with a fault that only it finds, outliers,
 * connections over loopback, and that the page and JSON have the same findings. */
#include "fabric/launcher/preflight/preflight_agent.h"
#include "fabric/launcher/preflight/preflight_front.h"
#include "lib/base/base.h"
#include "tests/support/unit.h"

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

#define FAULT(name, ...)                                                                           \
    static void fault_##name(struct preflight *all)                                                \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
FAULT(silent, all->host[2].answered = false; strcpy(all->host[2].error, "ssh: no route");)
FAULT(deaf, strcpy(facts_of(all, 2)->listen_error, "no interface"); facts_of(all, 2)->port = 0;)
FAULT(dropped, preflight_link_of(all, 2, 1)->reach = PREFLIGHT_DROPPED;)
FAULT(refused, preflight_link_of(all, 2, 1)->reach = PREFLIGHT_REFUSED;)
FAULT(unreachable, preflight_link_of(all, 2, 1)->reach = PREFLIGHT_UNREACHABLE;
      preflight_link_of(all, 2, 1)->error = ENETUNREACH;)
FAULT(failed, preflight_link_of(all, 2, 1)->reach = PREFLIGHT_FAILED;
      preflight_link_of(all, 2, 1)->error = EMFILE;)
FAULT(stalled, preflight_link_of(all, 2, 1)->reach = PREFLIGHT_STALLED;)
FAULT(mtu, facts_of(all, 2)->interface_mtu = 9000;)
FAULT(path_mtu, preflight_link_of(all, 2, 1)->path_mtu = 1400;)
FAULT(half, strcpy(facts_of(all, 2)->interface_duplex, "half");)
FAULT(down, strcpy(facts_of(all, 2)->interface_state, "down");)
FAULT(slow_nic, facts_of(all, 2)->interface_mbits = 1000;)
FAULT(faster_nic, strcpy(facts_of(all, 2)->faster_interface, "eth1");
      facts_of(all, 2)->faster_mbits = 100000;)
FAULT(clock, facts_of(all, 2)->clock_ns = -INT64_C(2000000000);)
FAULT(version, strcpy(facts_of(all, 2)->library_version, "0.0.9");)
FAULT(library, strcpy(facts_of(all, 2)->library_digest, "fedcba9876543210");)
FAULT(no_program, all->has_program = true; strcpy(facts_of(all, 2)->program_error, "No such file");)
FAULT(program, all->has_program = true; strcpy(facts_of(all, 0)->program_digest, "aa");
      strcpy(facts_of(all, 1)->program_digest, "aa");
      strcpy(facts_of(all, 3)->program_digest, "aa");
      strcpy(facts_of(all, 2)->program_digest, "bb");)
FAULT(no_key, facts_of(all, 2)->key[0] = '\0';)
FAULT(key, strcpy(facts_of(all, 2)->key_error, "/k has mode 644");
      facts_of(all, 2)->key_is_named = 1;)
FAULT(home_key, strcpy(facts_of(all, 2)->key_error, "/home/k has mode 644");)
FAULT(
    keys, for (int i = 0; i < HOSTS; i++) {
        facts_of(all, i)->key_is_named = 1;
        strcpy(facts_of(all, i)->key_digest, i == 2 ? "22" : "11");
    })
FAULT(memlock, facts_of(all, 2)->memlock_bytes = 65536;)
FAULT(rdma, facts_of(all, 2)->memlock_bytes = 8 << 20; facts_of(all, 2)->rdma_devices = 1;)
FAULT(nofile, facts_of(all, 2)->nofile = 100;)
FAULT(nofile_most, facts_of(all, 2)->nofile = facts_of(all, 2)->nofile_most = 100;)
FAULT(no_shm, facts_of(all, 2)->shm_bytes = facts_of(all, 2)->shm_free_bytes = -1;)
FAULT(shm, facts_of(all, 2)->shm_free_bytes = 1 << 20;)
FAULT(cma, facts_of(all, 2)->cma_error = EPERM;)
FAULT(yama, facts_of(all, 2)->cma_error = EPERM; facts_of(all, 2)->ptrace_scope = 1;)
FAULT(no_thp, strcpy(facts_of(all, 2)->thp, "never");)
FAULT(thp, strcpy(facts_of(all, 2)->thp, "always");)
FAULT(memory, facts_of(all, 2)->memory_limit_bytes = INT64_C(2) << 30;
      facts_of(all, 2)->memory_used_bytes = INT64_C(3) << 29;)
FAULT(cpu, facts_of(all, 2)->cpu_limit_milli = 1500;)
FAULT(
    crowd, for (int k = 0; k < 2; k++) {
        strcpy(all->host[2].rank[k].cpus, "0");
        all->host[2].rank[k].cores = 1;
    })
FAULT(overlap, strcpy(all->host[2].rank[1].cpus, "3-6,9");)
FAULT(job, all->job.ran = false; strcpy(all->job.error, "rank 3: no memory");)
FAULT(wrong, all->job.wrong = true;)
FAULT(round_trip, for (size_t i = 0; i < all->job.pairs;
                       i++) if (all->job.pair[i].a == 1 && all->job.pair[i].b == 6) all->job.pair[i]
                      .round_trip_us = 900;)
FAULT(bandwidth, for (size_t i = 0; i < all->job.pairs;
                      i++) if (all->job.pair[i].a == 1 && all->job.pair[i].b == 6) all->job.pair[i]
                     .megabytes = 11;)

/* The one finding that a fault leads to. host -1: of no host. */
static const struct fault_case {
    void (*fault)(struct preflight *all);
    enum preflight_check check;
    bool problem;
    int host;
    const char *what;
} cases[] = {
    {fault_silent, PREFLIGHT_ANSWER, true, 2, "does not answer: ssh: no route"},
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
