/* SPDX-License-Identifier: Apache-2.0 */
/* The checks, with their limits and sentences. Each looks at a host or the test job. */
#include "fabric/launcher/preflight/preflight_front.h"
#include "lib/base/base.h"
#include "lib/base/plural.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define MIB            (INT64_C(1) << 20)
#define MEMLOCK_RDMA   (1024 * MIB) /* least registered buffers of a rank */
#define MEMLOCK_LEAST  (1 * MIB)
#define SHM_LEAST      (64 * MIB) /* Docker's default */
#define MEMORY_EACH    (512 * MIB)
#define NOFILE_SPARE   128 /* files, memory and libraries of a rank, besides connections */
#define NOFILE_EACH    4   /* for each rank of the job, in set-up, detector, both directions */
#define CLOCK_MOST_NS  INT64_C(100000000)
#define TIMES_OFF      3  /* an outlier is off the median by this factor, */
#define DEVIATIONS_OFF 12 /* by this number of median deviations (8 standard deviations), */
#define MICROSECONDS   20 /* and a round trip by this time */
#define FEWEST         3  /* fewest pairs of a kind to judge by */

/* The values of most hosts, from which the others differ. A local variable of preflight_look(). */
struct usual {
    const char *library_version, *library_digest, *program_digest, *key_digest, *thp;
    int64_t mtu;     /* the largest of the most frequent ones; 0: none is known */
    int64_t fastest; /* Mbit/s of an interface of the job */
    int clocks;      /* number of known clocks */
    int clock;       /* host with the median clock; -1: none */
};

/* The arguments of one check of a host, or of the test job, from preflight_look(). */
struct look {
    struct preflight *all;
    const struct usual *usual; /* the values of most hosts */
    enum preflight_check check;
    int host; /* index in all->host; -1: the test job is checked */
};

/* Visit the hosts that have answered. */
#define FOR_ANSWERED(all, i)                                                                       \
    for (int i = 0; i < (all)->hosts; i++)                                                         \
        if ((all)->host[i].answered)

/* Return the most frequent text of the member of facts at `offset`, over the hosts that have
 * answered. Empty texts do not count. Returns "" if all are empty. */
static const char *usual_text(const struct preflight *all, size_t offset)
{
    const char *usual = "";
    int most = 0;
    FOR_ANSWERED(all, i)
    {
        const char *text = (const char *)&all->host[i].facts + offset;
        int count = 0;
        FOR_ANSWERED(all, k)
        {
            count += strcmp(text, (const char *)&all->host[k].facts + offset) == 0;
        }
        if (count > most && text[0] != '\0') {
            most = count;
            usual = text;
        }
    }
    return usual;
}

/* Find the most frequent MTU, the fastest interface and the median clock. */
static void find_usual_numbers(const struct preflight *all, struct usual *usual)
{
    int most = 0;
    FOR_ANSWERED(all, i)
    {
        usual->clocks += all->host[i].facts.clock_error_ns >= 0;
    }
    FOR_ANSWERED(all, i)
    {
        const struct preflight_facts *facts = &all->host[i].facts;
        int64_t mtu = facts->interface_mtu;
        int count = 0, before = 0;
        FOR_ANSWERED(all, k)
        {
            const struct preflight_facts *other = &all->host[k].facts;
            count += other->interface_mtu == mtu;
            before += other->clock_error_ns >= 0 && (other->clock_ns < facts->clock_ns ||
                                                     (other->clock_ns == facts->clock_ns && k < i));
        }
        if (mtu > 0 && (count > most || (count == most && mtu > usual->mtu))) {
            most = count;
            usual->mtu = mtu;
        }
        if (facts->clock_error_ns >= 0 && before == (usual->clocks - 1) / 2)
            usual->clock = i;
        usual->fastest = twill_max(usual->fastest, facts->interface_mbits);
    }
}

/* Return the usual values of the hosts that have answered. The texts stay theirs. */
static struct usual find_usual(const struct preflight *all)
{
    struct usual usual = {
        .library_version = usual_text(all, offsetof(struct preflight_facts, library_version)),
        .library_digest = usual_text(all, offsetof(struct preflight_facts, library_digest)),
        .program_digest = usual_text(all, offsetof(struct preflight_facts, program_digest)),
        .key_digest = usual_text(all, offsetof(struct preflight_facts, key_digest)),
        .thp = usual_text(all, offsetof(struct preflight_facts, thp)),
        .clock = -1,
    };
    find_usual_numbers(all, &usual);
    return usual;
}

/* Return the finding with the check, words and kind of *wanted, made if need be. Without memory,
 * return NULL and set all->no_memory. */
static struct preflight_finding *find_or_make(struct preflight *all,
                                              const struct preflight_finding *wanted)
{
    for (size_t i = 0; i < all->findings; i++)
        if (all->finding[i].check == wanted->check && all->finding[i].problem == wanted->problem &&
            strcmp(all->finding[i].what, wanted->what) == 0)
            return &all->finding[i];
    bool *host = calloc((size_t)all->hosts + 1, sizeof(*host));
    struct preflight_finding *more =
        host ? realloc(all->finding, (all->findings + 1) * sizeof(*more)) : NULL;
    if (!more) {
        free(host);
        all->no_memory = true;
        return NULL;
    }
    all->finding = more;
    more[all->findings] = *wanted;
    more[all->findings].host = host;
    return &more[all->findings++];
}

static void add(const struct look *look, bool problem, const char *advice, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Add a finding. Findings with the same words become one, of several hosts. */
static void add(const struct look *look, bool problem, const char *advice, const char *format, ...)
{
    struct preflight_finding wanted = {.check = look->check, .problem = problem, .advice = advice};
    va_list list;
    va_start(list, format);
    vsnprintf(wanted.what, sizeof(wanted.what), format, list);
    va_end(list);
    struct preflight_finding *finding = find_or_make(look->all, &wanted);
    if (finding && look->host >= 0)
        finding->host[look->host] = true;
}

/* Return the host that a check looks at. */
static const struct preflight_host *host_of(const struct look *look)
{
    return &look->all->host[look->host];
}

/* Add a problem if the host does not answer, refuses its ranks, or has no address for the job.
 * Returns true. */
static bool look_at_answer(const struct look *look, const struct preflight_facts *facts)
{
    const char *error = host_of(look)->error, *refusal = "--threads-per-rank ";
    if (!host_of(look)->answered && strncmp(error, refusal, strlen(refusal)) == 0)
        add(look, true, "Ask for fewer cores or ranks there", "cannot start its ranks: %s", error);
    else if (!host_of(look)->answered)
        add(look, true,
            "Try `ssh HOST true`, and twillrun at the same path there (--agent, --remote, "
            "--timeout)",
            "does not answer: %s", error);
    else if (facts->listen_error[0] != '\0')
        add(look, true, "Name an interface that leads to the other hosts by TWILL_INTERFACE",
            "no address for the job: %s", facts->listen_error);
    return true;
}

/* Add a problem if the host's libtwill is not that of most hosts. Returns true. */
static bool look_at_library(const struct look *look, const struct preflight_facts *facts)
{
    const struct usual *usual = look->usual;
    if (strcmp(facts->library_version, usual->library_version) != 0)
        add(look, true, "Install one version on all hosts",
            "libtwill %s (%s), where other hosts have %s", facts->library_version,
            facts->library_path, usual->library_version);
    else if (strcmp(facts->library_digest, usual->library_digest) != 0)
        add(look, true, "Install the same build on all hosts",
            "%s differs from that of other hosts: digest %s, not %s", facts->library_path,
            facts->library_digest, usual->library_digest);
    return true;
}

/* Add what is wrong with the program on a host. Returns false if no program is given, else true. */
static bool look_at_program(const struct look *look, const struct preflight_facts *facts)
{
    const struct usual *usual = look->usual;
    if (!look->all->has_program)
        return false;
    if (facts->program_error[0] != '\0')
        add(look, true, "Put it there, or into a shared folder", "the program %s cannot be run: %s",
            facts->program_path, facts->program_error);
    else if (strcmp(facts->program_digest, usual->program_digest) != 0)
        add(look, false, "Copy the same build to all hosts",
            "%s differs from that of other hosts: digest %s, not %s", facts->program_path,
            facts->program_digest, usual->program_digest);
    return true;
}

/* Add a problem if ranks on a host get no key of the job. Add a finding if its key file cannot be
 * used, or has another key than on most hosts. This is a problem if the user names the file, else a
 * warning. Returns true. */
static bool look_at_key(const struct look *look, const struct preflight_facts *facts)
{
    const struct usual *usual = look->usual;
    if (facts->key[0] == '\0')
        add(look, true, "Start ranks by twillrun, or set TWILL_KEY_FILE",
            "ranks get no key of the job");
    if (facts->key_error[0] != '\0')
        add(look, facts->key_is_named == 1,
            "The file must belong to you, with mode 0600, and have 16 to 64 hex "
            "digits",
            "%s", facts->key_error);
    else if (facts->key_digest[0] != '\0' && strcmp(facts->key_digest, usual->key_digest) != 0)
        add(look, facts->key_is_named == 1,
            "Copy one key file to all hosts: jobs of srun or torchrun take it",
            "the key file has another key than on other hosts");
    return true;
}

/* Add a finding if ranks may lock less than MEMLOCK_RDMA of memory, or MEMLOCK_LEAST on a host
 * without RDMA devices. It is a problem with such devices, else a warning. Returns true. */
static bool look_at_memlock(const struct look *look, const struct preflight_facts *facts)
{
    char text[32], text2[32];
    bool rdma = facts->rdma_devices > 0;
    int64_t least = rdma ? MEMLOCK_RDMA : MEMLOCK_LEAST;
    if (facts->memlock_bytes >= 0 && facts->memlock_bytes < least)
        add(look, rdma,
            "Raise ulimit -l: memlock in /etc/security/limits.conf, LimitMEMLOCK= of "
            "the service that starts the ranks",
            "only %s of memory may be locked; %s should be, %s",
            preflight_bytes(text, facts->memlock_bytes), preflight_bytes(text2, least),
            rdma ? "as network adapters read and write locked memory" : "for libfabric");
    return true;
}

/* Add a finding if a rank may open fewer than NOFILE_SPARE files and NOFILE_EACH for each rank of
 * the job. It is a problem if the hard limit is too low as well, else a warning. Returns true. */
static bool look_at_nofile(const struct look *look, const struct preflight_facts *facts)
{
    int64_t needed = NOFILE_SPARE + NOFILE_EACH * (int64_t)look->all->ranks;
    bool most = facts->nofile_most >= 0 && facts->nofile_most < needed;
    if (facts->nofile >= 0 && facts->nofile < needed)
        add(look, most,
            "Raise ulimit -n: nofile in /etc/security/limits.conf, LimitNOFILE= of "
            "the service that starts the ranks",
            "only %lld files may be open in a rank%s; a job of %d ranks needs up to "
            "%lld",
            (long long)facts->nofile, most ? "" : " unless it raises its limit", look->all->ranks,
            (long long)needed);
    return true;
}

/* Add a warning if there is no /dev/shm, or too little space in it. Returns true. */
static bool look_at_shm(const struct look *look, const struct preflight_facts *facts)
{
    char text[32], text2[32];
    if (facts->shm_bytes < 0)
        add(look, false, "Mount a tmpfs there", "there is no /dev/shm");
    else if (facts->shm_free_bytes < SHM_LEAST)
        add(look, false,
            "Enlarge it (mount -o remount,size=; docker --shm-size), or remove old "
            "files",
            "/dev/shm has %s, of which %s are free; twill does not use it, but MPI "
            "libraries and data loaders do",
            preflight_bytes(text, facts->shm_bytes), preflight_bytes(text2, facts->shm_free_bytes));
    return true;
}

/* Add a warning if the host has two ranks or more and they may not read each other's memory.
 * Returns true. */
static bool look_at_cma(const struct look *look, const struct preflight_facts *facts)
{
    if (facts->cma_error == 0 || host_of(look)->ranks < 2)
        return true;
    if (facts->ptrace_scope > 0)
        add(look, false, "sysctl kernel.yama.ptrace_scope=0, or use twill_alloc for large buffers",
            "ranks may not read each other's memory: kernel.yama.ptrace_scope is "
            "%lld; large messages are copied twice",
            (long long)facts->ptrace_scope);
    else
        add(look, false,
            "Allow process_vm_readv in the container (--cap-add SYS_PTRACE), or use "
            "twill_alloc for large buffers",
            "ranks may not read each other's memory: %s; large messages are copied "
            "twice",
            strerror((int)facts->cma_error));
    return true;
}

/* Add a warning if huge pages are off, or unlike most hosts. Returns whether that is known. */
static bool look_at_thp(const struct look *look, const struct preflight_facts *facts)
{
    if (strcmp(facts->thp, "never") == 0)
        add(look, false, "echo madvise >/sys/kernel/mm/transparent_hugepage/enabled",
            "transparent huge pages are off: large buffers take more TLB misses");
    else if (facts->thp[0] != '\0' && strcmp(facts->thp, look->usual->thp) != 0)
        add(look, false, "Set it alike on all hosts",
            "transparent huge pages: %s, where other hosts have %s", facts->thp, look->usual->thp);
    return facts->thp[0] != '\0';
}

/* Add a warning if the limit of the cgroup leaves the ranks too little memory. Returns true. */
static bool look_at_memory(const struct look *look, const struct preflight_facts *facts)
{
    char text[32], text2[32];
    int64_t needed = MEMORY_EACH * host_of(look)->ranks;
    int64_t used = facts->memory_used_bytes > 0 ? facts->memory_used_bytes : 0;
    if (facts->memory_limit_bytes >= 0 && facts->memory_limit_bytes - used < needed)
        add(look, false, "Ask the scheduler or the container for more",
            "the cgroup leaves %s of memory for %d ranks, of a limit of %s",
            preflight_bytes(
                text, facts->memory_limit_bytes > used ? facts->memory_limit_bytes - used : 0),
            host_of(look)->ranks, preflight_bytes(text2, facts->memory_limit_bytes));
    return true;
}

/* Add a warning if the cgroup allows less than a CPU for each rank. Returns true. */
static bool look_at_cpu(const struct look *look, const struct preflight_facts *facts)
{
    if (facts->cpu_limit_milli >= 0 && facts->cpu_limit_milli < 1000 * host_of(look)->ranks)
        add(look, false,
            "Ask the scheduler or the container for a CPU for each rank: one that is "
            "held back delays all",
            "the cgroup allows %.2g CPUs for %d ranks", (double)facts->cpu_limit_milli / 1000,
            host_of(look)->ranks);
    return true;
}

/* Add what is wrong with the host's interface. Returns false if that is not known, else true. */
static bool look_at_nic(const struct look *look, const struct preflight_facts *facts)
{
    const struct usual *usual = look->usual;
    if (facts->interface[0] == '\0')
        return false;
    if (strcmp(facts->interface_duplex, "half") == 0)
        add(look, true, "Look at the cable and at the port of the switch (ethtool INTERFACE)",
            "%s runs at half duplex", facts->interface);
    if (strcmp(facts->interface_state, "down") == 0)
        add(look, true, "ip link set INTERFACE up, and look at the cable", "%s is down",
            facts->interface);
    if (facts->faster_interface[0] != '\0')
        add(look, false, "Set TWILL_INTERFACE to the faster one, if it leads to the other hosts",
            "%s has %lld Mbit/s, but %s, which is up and not used, has %lld", facts->interface,
            (long long)facts->interface_mbits, facts->faster_interface,
            (long long)facts->faster_mbits);
    if (facts->interface_mbits > 0 && facts->interface_mbits < usual->fastest)
        add(look, false, "Look at the cable and at the port of the switch (ethtool INTERFACE)",
            "%s has %lld Mbit/s, where another host has %lld", facts->interface,
            (long long)facts->interface_mbits, (long long)usual->fastest);
    return true;
}

/* Add a warning if this host's clock differs from the median of the hosts' clocks by more than
 * CLOCK_MOST_NS and the possible errors of both. Returns whether the clocks of this host and of at
 * least one other are known. */
static bool look_at_clock(const struct look *look, const struct preflight_facts *facts)
{
    if (look->usual->clock < 0 || facts->clock_error_ns < 0)
        return false;
    const struct preflight_host *middle = &look->all->host[look->usual->clock];
    int64_t ahead = facts->clock_ns - middle->facts.clock_ns, apart = llabs(ahead);
    if (apart > CLOCK_MOST_NS + facts->clock_error_ns + middle->facts.clock_error_ns)
        add(look, false,
            "Run a time service (chrony, ntpd) on all hosts: logs and files of the job have wrong "
            "times",
            "the clock is %.3g s %s that of %s", (double)apart / 1e9,
            ahead > 0 ? "ahead of" : "behind", middle->name);
    return look->usual->clocks > 1;
}

/* Add a problem if the connection to host `to` has failed, by its result. */
static void report_connection(const struct look *look, int to)
{
    const struct preflight *all = look->all;
    int from = look->host;
    const struct preflight_link *link = preflight_link_of(all, from, to);
    const char *name = all->host[to].name, *address = all->host[to].facts.address;
    bool back = preflight_link_of(all, to, from)->reach == PREFLIGHT_GOOD;
    const char *other = back ? "; the other direction works" : "";
    switch (link->reach) {
    case PREFLIGHT_GOOD:
    case PREFLIGHT_STALLED: /* look_at_data() reports it */
        return;
    case PREFLIGHT_DROPPED:
        add(look, true,
            "Let firewalls pass TCP between the hosts, at all ports that the kernel "
            "chooses (net.ipv4.ip_local_port_range), and see that both have a route to "
            "the other",
            "no answer from %s (%s) within %g s: packets are dropped, on the way there "
            "or back%s",
            name, address, (double)PREFLIGHT_REACH_NS / 1e9, other);
        return;
    case PREFLIGHT_REFUSED:
        add(look, true,
            "Something on the way answers that the port is closed, though a program "
            "listens: allow TCP between the hosts in the firewall",
            "%s (%s) refuses connections%s", name, address, other);
        return;
    case PREFLIGHT_UNREACHABLE:
        add(look, true,
            "Look at the routes (ip route get ADDRESS), or name an interface that leads "
            "to all hosts by TWILL_INTERFACE",
            "no way to %s (%s): %s%s", name, address, strerror(link->error), other);
        return;
    default:
        add(look, true, "Try again; if it stays, look at both hosts' logs",
            "cannot connect to %s (%s): %s%s", name, address,
            link->reach == PREFLIGHT_UNTRIED ? "the agent did not report" : strerror(link->error),
            other);
    }
}

/* Call visit() for each other host `to`, if that host and host look->host have both answered and
 * listen. Returns whether there are any. */
static bool visit_links(const struct look *look, void (*visit)(const struct look *look, int to))
{
    bool some = false;
    for (int to = 0; to < look->all->hosts; to++)
        if (preflight_link_counts(look->all, look->host, to)) {
            visit(look, to);
            some = true;
        }
    return some;
}

/* Add a problem for each failed connection from host look->host to another. Returns whether there
 * are connections from it to look at, also if all are good. */
static bool look_at_connect(const struct look *look, const struct preflight_facts *facts)
{
    (void)facts;
    return visit_links(look, report_connection);
}

/* Add a problem if data does not arrive at host `to`, which takes connections. */
static void report_data(const struct look *look, int to)
{
    const struct preflight_host *there = &look->all->host[to];
    if (preflight_link_of(look->all, look->host, to)->reach == PREFLIGHT_STALLED)
        add(look, true,
            "Large packets are lost: set one MTU on all interfaces and switches of the path (ping "
            "-M do -s 1472 ADDRESS), and let ICMP pass",
            "%s (%s) takes connections, but 64 KiB do not arrive there within %g s", there->name,
            there->facts.address, (double)PREFLIGHT_REACH_NS / 1e9);
}

/* Add a problem for each connection from host look->host over which 64 KiB did not arrive. Returns
 * whether there are connections from it to look at, also if all are good. */
static bool look_at_data(const struct look *look, const struct preflight_facts *facts)
{
    (void)facts;
    return visit_links(look, report_data);
}

/* Add a warning if the path to host `to` has a smaller MTU than both ends. */
static void report_path_mtu(const struct look *look, int to)
{
    const struct preflight_host *there = &look->all->host[to];
    int mtu = preflight_link_of(look->all, look->host, to)->path_mtu;
    int64_t least = twill_min(host_of(look)->facts.interface_mtu, there->facts.interface_mtu);
    if (mtu > 0 && mtu < least)
        add(look, false, "Give all routers and tunnels of the path the MTU of its ends",
            "packets to %s have at most %d bytes, where both interfaces have an MTU of %lld",
            there->name, mtu, (long long)least);
}

/* Add a warning if the MTU of this host's interface is not look->usual->mtu, the most frequent one
 * of all hosts. Add one for each host to which the path has a smaller MTU than the interfaces at
 * its ends. Returns whether the MTU of any host is known. */
static bool look_at_mtu(const struct look *look, const struct preflight_facts *facts)
{
    if (facts->interface_mtu > 0 && facts->interface_mtu != look->usual->mtu)
        add(look, false, "ip link set INTERFACE mtu N, alike on all hosts",
            "%s has an MTU of %lld, where other hosts have %lld", facts->interface,
            (long long)facts->interface_mtu, (long long)look->usual->mtu);
    (void)visit_links(look, report_path_mtu);
    return look->usual->mtu > 0;
}

/* Report the ranks that have the same CPUs as rank `local`, if they are more than its cores. */
static void report_crowd(const struct look *look, int local)
{
    const struct preflight_rank *ranks = host_of(look)->rank, *one = &ranks[local];
    int sharing = 0;
    for (int k = 0; k < host_of(look)->ranks; k++) {
        bool same = ranks[k].known && strcmp(ranks[k].cpus, one->cpus) == 0;
        if (same && k < local)
            return; /* reported there */
        sharing += same;
    }
    if (sharing > one->cores)
        add(look, false, "Start fewer ranks there: those that share a core wait for each other",
            "%d ranks share %d core%s (CPUs %s)", sharing, one->cores, TWILL_PLURAL(one->cores),
            one->cpus);
}

/* Report two ranks whose CPUs overlap without being equal. */
static void report_overlap(const struct look *look, int a, int b)
{
    const struct preflight_rank *ranks = host_of(look)->rank;
    uint64_t left[PREFLIGHT_CPUS / 64], right[PREFLIGHT_CPUS / 64], both = 0;
    if (strcmp(ranks[a].cpus, ranks[b].cpus) == 0 || !preflight_cpus_parse(left, ranks[a].cpus) ||
        !preflight_cpus_parse(right, ranks[b].cpus))
        return;
    for (int i = 0; i < PREFLIGHT_CPUS / 64; i++)
        both |= left[i] & right[i];
    if (both != 0)
        add(look, false, "Bind all ranks in one way (--bind core), or none",
            "local ranks %d (CPUs %s) and %d (CPUs %s) overlap", a, ranks[a].cpus, b,
            ranks[b].cpus);
}

/* Add ranks of a host that share CPUs as warnings. Returns whether any CPUs are known. */
static bool look_at_binding(const struct look *look, const struct preflight_facts *facts)
{
    const struct preflight_host *host = host_of(look);
    bool known = false;
    (void)facts;
    for (int a = 0; a < host->ranks && host->rank; a++) {
        if (!host->rank[a].known)
            continue;
        known = true;
        report_crowd(look, a);
        for (int b = a + 1; b < host->ranks; b++)
            if (host->rank[b].known)
                report_overlap(look, a, b);
    }
    return known;
}

/* Add a problem if the test job failed, and one if its allreduce had a wrong result. Otherwise add
 * nothing. `facts` is not used. Returns false if the job was not started, else true. */
static bool look_at_job(const struct look *look, const struct preflight_facts *facts)
{
    const struct preflight_job *job = &look->all->job;
    (void)facts;
    if (job->skipped || job->ranks == 0)
        return false;
    if (!job->ran)
        add(look, true,
            "The sentence is of twill or twillrun: docs/guides/troubleshooting.md explains it",
            "the test job failed: %s", job->error);
    if (job->wrong)
        add(look, true, "Try TWILL_CHECKSUM=network, and a memory test: data is damaged on the way",
            "the allreduce of the test job had a wrong result");
    return true;
}

/* Return the value to compare, a round trip in us or the seconds for a MB (0: not known). */
static double pair_cost(const struct preflight_pair *pair, bool bandwidth)
{
    return !bandwidth ? pair->round_trip_us : pair->megabytes > 0 ? 1 / pair->megabytes : 0;
}

/* Return whether both ranks of a pair are on one host. */
static bool pair_is_inside(const struct preflight_job *job, const struct preflight_pair *pair)
{
    return job->host[pair->a] == job->host[pair->b];
}

bool preflight_spread_find(struct preflight_spread *spread, const struct preflight *all,
                           bool bandwidth, bool inside)
{
    const struct preflight_job *job = &all->job;
    double *value = malloc((job->pairs + 1) * sizeof(*value));
    *spread = (struct preflight_spread){.pairs = 0};
    for (size_t i = 0; i < job->pairs && value; i++)
        if (pair_is_inside(job, &job->pair[i]) == inside)
            value[spread->pairs++] = pair_cost(&job->pair[i], bandwidth);
    if (spread->pairs > 0) {
        spread->median = preflight_median(value, spread->pairs);
        spread->worst = value[spread->pairs - 1];
        spread->deviation = preflight_deviation(value, spread->pairs, spread->median);
    }
    free(value);
    return spread->pairs > 0;
}

/* Return whether the cost of a pair is far above the median of its kind, by TIMES_OFF and by
 * DEVIATIONS_OFF. With `bandwidth` the cost is a time for each megabyte. Otherwise it is a round
 * trip, which must also be longer by MICROSECONDS. */
static bool is_outlier(const struct preflight_spread *spread, double cost, bool bandwidth)
{
    return cost > TIMES_OFF * spread->median &&
           cost > spread->median + DEVIATIONS_OFF * spread->deviation &&
           (bandwidth || cost > spread->median + MICROSECONDS);
}

/* Add a warning about a pair of ranks that is slower than the others of its kind. */
static void report_pair(const struct look *look, const struct preflight_pair *pair, bool bandwidth,
                        const struct preflight_spread *spread)
{
    const struct preflight *all = look->all;
    const int *host = all->job.host;
    const char *kind = host[pair->a] == host[pair->b] ? "on a host" : "between hosts";
    const char *a = all->host[host[pair->a]].name, *b = all->host[host[pair->b]].name;
    char value[32], median[32];
    preflight_measure(value, bandwidth ? pair->megabytes : pair->round_trip_us);
    preflight_measure(median, bandwidth ? 1 / spread->median : spread->median);
    if (bandwidth)
        add(look, false,
            "Look at duplex, speed and errors of both interfaces (ethtool -S), and at "
            "what else runs there",
            "ranks %d on %s and %d on %s exchange %s MB/s; the median of pairs %s is "
            "%s MB/s",
            pair->a, a, pair->b, b, value, kind, median);
    else
        add(look, false,
            "Look at the path (tracepath), at what else runs on both hosts, and at "
            "their power settings",
            "ranks %d on %s and %d on %s have a round trip of %s us; the median of "
            "pairs %s is %s us",
            pair->a, a, pair->b, b, value, kind, median);
}

/* Return whether two pairs are between the same hosts, in the same order. */
static bool is_same_path(const struct preflight_job *job, const struct preflight_pair *x,
                         const struct preflight_pair *y)
{
    return job->host[x->a] == job->host[y->a] && job->host[x->b] == job->host[y->b];
}

/* Report pairs of ranks that are slower than the others: of those between the same two hosts, or
 * inside one host, only the worst. Returns false if there are too few pairs to judge, else true. */
static bool report_outliers(const struct look *look, bool bandwidth)
{
    const struct preflight_job *job = &look->all->job;
    bool judged = false;
    for (int inside = 0; inside < 2; inside++) {
        struct preflight_spread spread;
        if (!preflight_spread_find(&spread, look->all, bandwidth, inside) || spread.pairs < FEWEST)
            continue;
        judged = true;
        for (size_t i = 0; i < job->pairs; i++) {
            const struct preflight_pair *pair = &job->pair[i];
            double value = pair_cost(pair, bandwidth);
            bool worst =
                pair_is_inside(job, pair) == inside && is_outlier(&spread, value, bandwidth);
            for (size_t k = 0; k < job->pairs && worst; k++) {
                double other = pair_cost(&job->pair[k], bandwidth);
                worst = k == i || other <= value || !is_same_path(job, pair, &job->pair[k]);
            }
            if (worst)
                report_pair(look, pair, bandwidth, &spread);
        }
    }
    return judged;
}

/* Add warnings about pairs of ranks whose round trip is far above the median. Returns whether there
 * are enough pairs to judge, also if none is slow. */
static bool look_at_round_trip(const struct look *look, const struct preflight_facts *facts)
{
    (void)facts;
    return report_outliers(look, false);
}

/* Add warnings about pairs of ranks whose bandwidth is far below the median. Returns whether there
 * are enough pairs to judge, also if none is slow. */
static bool look_at_bandwidth(const struct look *look, const struct preflight_facts *facts)
{
    (void)facts;
    return report_outliers(look, true);
}

/* What one check looks at, and its function. A constant table in the order of the checks. */
static const struct check_kind {
    enum { HOST, ANSWERED_HOST, JOB } of; /* what is looked at */
    bool (*look)(const struct look *look, const struct preflight_facts *facts);
} kinds[PREFLIGHT_CHECK_COUNT] = {
#define CHECK_KIND(NOUN, name, of, help) {of, look_at_##name},
    PREFLIGHT_CHECKS(CHECK_KIND)
#undef CHECK_KIND
};

void preflight_look(struct preflight *all)
{
    const struct usual usual = find_usual(all);
    for (int i = 0; i < PREFLIGHT_CHECK_COUNT; i++) {
        const struct check_kind *kind = &kinds[i];
        struct look look = {
            .all = all, .usual = &usual, .check = (enum preflight_check)i, .host = -1};
        if (kind->of == JOB)
            all->checked[i] = kind->look(&look, NULL);
        for (int k = 0; k < all->hosts && kind->of != JOB; k++) {
            look.host = k;
            if ((kind->of == HOST || all->host[k].answered) &&
                kind->look(&look, &all->host[k].facts))
                all->checked[i] = true;
        }
    }
}
