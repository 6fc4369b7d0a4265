/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that look at one host at a time, or compare what hosts say of themselves. */
#include "fabric/launcher/preflight/preflight.h"

#include <errno.h>
#include <string.h>

#define MIB           (INT64_C(1) << 20)
#define MEMLOCK_RDMA  (1024 * MIB) /* a rank's registered buffers, at least */
#define MEMLOCK_LEAST (1 * MIB)
#define SHM_LEAST     (64 * MIB) /* what Docker gives by default */
#define MEMORY_EACH   (512 * MIB)
#define NOFILE_SPARE  128 /* of a rank beside connections: files, memory, libraries */
#define NOFILE_EACH   4   /* for each rank of the job: set-up, failure detector, both directions */
#define CLOCK_MOST_NS INT64_C(100000000)

/* Visit the hosts that have answered. */
#define FOR_ANSWERED(all, i)                                                                       \
    for (int i = 0; i < (all)->hosts; i++)                                                         \
        if ((all)->host[i].answered)

bool preflight_check_answer(struct preflight *all)
{
    for (int i = 0; i < all->hosts; i++) {
        if (!all->host[i].answered)
            preflight_add(all, PREFLIGHT_ANSWER, true, i,
                          "Try `ssh HOST true`, and twillrun at the same path there (--agent, "
                          "--remote, --timeout)",
                          "does not answer: %s", all->host[i].error);
        else if (all->host[i].facts.listen_error[0] != '\0')
            preflight_add(all, PREFLIGHT_ANSWER, true, i,
                          "Name an interface that leads to the other hosts by TWILL_INTERFACE",
                          "no address for the job: %s", all->host[i].facts.listen_error);
    }
    return true;
}

/* Find the most frequent of the hosts' texts: the others differ from it. */
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

static bool some_answered(const struct preflight *all)
{
    bool some = false;
    FOR_ANSWERED(all, i)
    {
        some = true;
    }
    return some;
}

bool preflight_check_library(struct preflight *all)
{
    const char *version = usual_text(all, offsetof(struct preflight_facts, library_version));
    const char *digest = usual_text(all, offsetof(struct preflight_facts, library_digest));
    FOR_ANSWERED(all, i)
    {
        const struct preflight_facts *facts = &all->host[i].facts;
        if (strcmp(facts->library_version, version) != 0)
            preflight_add(all, PREFLIGHT_LIBRARY, true, i, "Install one version on all hosts",
                          "libtwill %s (%s), where other hosts have %s", facts->library_version,
                          facts->library_path, version);
        else if (strcmp(facts->library_digest, digest) != 0)
            preflight_add(all, PREFLIGHT_LIBRARY, true, i, "Install the same build on all hosts",
                          "%s differs from that of other hosts: digest %s, not %s",
                          facts->library_path, facts->library_digest, digest);
    }
    return some_answered(all);
}

bool preflight_check_program(struct preflight *all)
{
    const char *digest = usual_text(all, offsetof(struct preflight_facts, program_digest));
    if (!all->has_program)
        return false;
    FOR_ANSWERED(all, i)
    {
        const struct preflight_facts *facts = &all->host[i].facts;
        if (facts->program_error[0] != '\0')
            preflight_add(all, PREFLIGHT_PROGRAM, true, i, "Put it there, or into a shared folder",
                          "the program %s cannot be run: %s", facts->program_path,
                          facts->program_error);
        else if (strcmp(facts->program_digest, digest) != 0)
            preflight_add(all, PREFLIGHT_PROGRAM, false, i, "Copy the same build to all hosts",
                          "%s differs from that of other hosts: digest %s, not %s",
                          facts->program_path, facts->program_digest, digest);
    }
    return some_answered(all);
}

bool preflight_check_key(struct preflight *all)
{
    const char *digest = usual_text(all, offsetof(struct preflight_facts, key_digest));
    FOR_ANSWERED(all, i)
    {
        const struct preflight_facts *facts = &all->host[i].facts;
        if (facts->key[0] == '\0')
            preflight_add(all, PREFLIGHT_KEY, true, i,
                          "Start ranks by twillrun, or set TWILL_KEY_FILE",
                          "ranks get no key of the job");
        if (facts->key_error[0] != '\0')
            preflight_add(all, PREFLIGHT_KEY, facts->key_is_named == 1, i,
                          "The file must belong to you, with mode 0600, and have 16 to 64 hex "
                          "digits",
                          "%s", facts->key_error);
        else if (facts->key_digest[0] != '\0' && strcmp(facts->key_digest, digest) != 0)
            preflight_add(all, PREFLIGHT_KEY, facts->key_is_named == 1, i,
                          "Copy one key file to all hosts: jobs of srun or torchrun take it",
                          "the key file has another key than on other hosts");
    }
    return some_answered(all);
}

bool preflight_check_memlock(struct preflight *all)
{
    char text[32], text2[32];
    FOR_ANSWERED(all, i)
    {
        const struct preflight_facts *facts = &all->host[i].facts;
        bool rdma = facts->rdma_devices > 0;
        int64_t least = rdma ? MEMLOCK_RDMA : MEMLOCK_LEAST;
        if (facts->memlock_bytes >= 0 && facts->memlock_bytes < least)
            preflight_add(
                all, PREFLIGHT_MEMLOCK, rdma, i,
                "Raise ulimit -l: memlock in /etc/security/limits.conf, LimitMEMLOCK= of "
                "the service that starts the ranks",
                "only %s of memory may be locked; %s should be, %s",
                preflight_bytes(text, facts->memlock_bytes), preflight_bytes(text2, least),
                rdma ? "as network adapters read and write locked memory" : "for libfabric");
    }
    return some_answered(all);
}

bool preflight_check_nofile(struct preflight *all)
{
    int64_t needed = NOFILE_SPARE + NOFILE_EACH * (int64_t)all->ranks;
    FOR_ANSWERED(all, i)
    {
        const struct preflight_facts *facts = &all->host[i].facts;
        bool most = facts->nofile_most >= 0 && facts->nofile_most < needed;
        if (facts->nofile >= 0 && facts->nofile < needed)
            preflight_add(all, PREFLIGHT_NOFILE, most, i,
                          "Raise ulimit -n: nofile in /etc/security/limits.conf, LimitNOFILE= of "
                          "the service that starts the ranks",
                          "only %lld files may be open in a rank%s; a job of %d ranks needs up to "
                          "%lld",
                          (long long)facts->nofile, most ? "" : " unless it raises its limit",
                          all->ranks, (long long)needed);
    }
    return some_answered(all);
}

bool preflight_check_shm(struct preflight *all)
{
    char text[32], text2[32];
    FOR_ANSWERED(all, i)
    {
        const struct preflight_facts *facts = &all->host[i].facts;
        if (facts->shm_bytes < 0)
            preflight_add(all, PREFLIGHT_SHM, false, i, "Mount a tmpfs there",
                          "there is no /dev/shm");
        else if (facts->shm_free_bytes < SHM_LEAST)
            preflight_add(all, PREFLIGHT_SHM, false, i,
                          "Enlarge it (mount -o remount,size=; docker --shm-size), or remove old "
                          "files",
                          "/dev/shm has %s, of which %s are free; twill does not use it, but MPI "
                          "libraries and data loaders do",
                          preflight_bytes(text, facts->shm_bytes),
                          preflight_bytes(text2, facts->shm_free_bytes));
    }
    return some_answered(all);
}

bool preflight_check_cma(struct preflight *all)
{
    FOR_ANSWERED(all, i)
    {
        const struct preflight_facts *facts = &all->host[i].facts;
        if (facts->cma_error == 0 || all->host[i].ranks < 2)
            continue;
        if (facts->ptrace_scope > 0)
            preflight_add(all, PREFLIGHT_CMA, false, i,
                          "sysctl kernel.yama.ptrace_scope=0, or use twill_alloc for large buffers",
                          "ranks may not read each other's memory: kernel.yama.ptrace_scope is "
                          "%lld; large messages are copied twice",
                          (long long)facts->ptrace_scope);
        else
            preflight_add(all, PREFLIGHT_CMA, false, i,
                          "Allow process_vm_readv in the container (--cap-add SYS_PTRACE), or use "
                          "twill_alloc for large buffers",
                          "ranks may not read each other's memory: %s; large messages are copied "
                          "twice",
                          strerror((int)facts->cma_error));
    }
    return some_answered(all);
}

bool preflight_check_thp(struct preflight *all)
{
    const char *usual = usual_text(all, offsetof(struct preflight_facts, thp));
    bool known = false;
    FOR_ANSWERED(all, i)
    {
        const char *thp = all->host[i].facts.thp;
        known = known || thp[0] != '\0';
        if (strcmp(thp, "never") == 0)
            preflight_add(all, PREFLIGHT_THP, false, i,
                          "echo madvise >/sys/kernel/mm/transparent_hugepage/enabled",
                          "transparent huge pages are off: large buffers take more TLB misses");
        else if (thp[0] != '\0' && strcmp(thp, usual) != 0)
            preflight_add(all, PREFLIGHT_THP, false, i, "Set it alike on all hosts",
                          "transparent huge pages: %s, where other hosts have %s", thp, usual);
    }
    return known;
}

bool preflight_check_memory(struct preflight *all)
{
    char text[32], text2[32];
    FOR_ANSWERED(all, i)
    {
        const struct preflight_facts *facts = &all->host[i].facts;
        int64_t needed = MEMORY_EACH * all->host[i].ranks;
        int64_t used = facts->memory_used_bytes > 0 ? facts->memory_used_bytes : 0;
        if (facts->memory_limit_bytes >= 0 && facts->memory_limit_bytes - used < needed)
            preflight_add(
                all, PREFLIGHT_MEMORY, false, i, "Ask the scheduler or the container for more",
                "the cgroup leaves %s of memory for %d ranks, of a limit of %s",
                preflight_bytes(
                    text, facts->memory_limit_bytes > used ? facts->memory_limit_bytes - used : 0),
                all->host[i].ranks, preflight_bytes(text2, facts->memory_limit_bytes));
    }
    return some_answered(all);
}

bool preflight_check_cpu(struct preflight *all)
{
    FOR_ANSWERED(all, i)
    {
        const struct preflight_facts *facts = &all->host[i].facts;
        if (facts->cpu_limit_milli >= 0 && facts->cpu_limit_milli < 1000 * all->host[i].ranks)
            preflight_add(all, PREFLIGHT_CPU, false, i,
                          "Ask the scheduler or the container for a CPU for each rank: one that is "
                          "held back delays all",
                          "the cgroup allows %.2g CPUs for %d ranks",
                          (double)facts->cpu_limit_milli / 1000, all->host[i].ranks);
    }
    return some_answered(all);
}

bool preflight_check_nic(struct preflight *all)
{
    int64_t fastest = 0;
    bool known = false;
    FOR_ANSWERED(all, i)
    {
        known = known || all->host[i].facts.interface[0] != '\0';
        if (all->host[i].facts.interface_mbits > fastest)
            fastest = all->host[i].facts.interface_mbits;
    }
    FOR_ANSWERED(all, i)
    {
        const struct preflight_facts *facts = &all->host[i].facts;
        if (facts->interface[0] == '\0')
            continue;
        if (strcmp(facts->interface_duplex, "half") == 0)
            preflight_add(all, PREFLIGHT_NIC, true, i,
                          "Look at the cable and at the port of the switch (ethtool INTERFACE)",
                          "%s runs at half duplex", facts->interface);
        if (strcmp(facts->interface_state, "down") == 0)
            preflight_add(all, PREFLIGHT_NIC, true, i,
                          "ip link set INTERFACE up, and look at the cable", "%s is down",
                          facts->interface);
        if (facts->faster_interface[0] != '\0')
            preflight_add(all, PREFLIGHT_NIC, false, i,
                          "Set TWILL_INTERFACE to the faster one, if it leads to the other hosts",
                          "%s has %lld Mbit/s, but %s, which is up and not used, has %lld",
                          facts->interface, (long long)facts->interface_mbits,
                          facts->faster_interface, (long long)facts->faster_mbits);
        if (facts->interface_mbits > 0 && facts->interface_mbits < fastest)
            preflight_add(all, PREFLIGHT_NIC, false, i,
                          "Look at the cable and at the port of the switch (ethtool INTERFACE)",
                          "%s has %lld Mbit/s, where another host has %lld", facts->interface,
                          (long long)facts->interface_mbits, (long long)fastest);
    }
    return known;
}

/* Return the host with the middle one of the clocks that are known, of `compared`; -1: none. */
static int middle_clock(const struct preflight *all, int *compared)
{
    int middle = -1;
    *compared = 0;
    FOR_ANSWERED(all, i)
    {
        *compared += all->host[i].facts.clock_error_ns >= 0;
    }
    FOR_ANSWERED(all, i)
    {
        const struct preflight_facts *facts = &all->host[i].facts;
        int before = 0;
        FOR_ANSWERED(all, k)
        {
            const struct preflight_facts *other = &all->host[k].facts;
            before += other->clock_error_ns >= 0 && (other->clock_ns < facts->clock_ns ||
                                                     (other->clock_ns == facts->clock_ns && k < i));
        }
        if (facts->clock_error_ns >= 0 && before == (*compared - 1) / 2)
            middle = i;
    }
    return middle;
}

bool preflight_check_clock(struct preflight *all)
{
    int compared, middle = middle_clock(all, &compared);
    FOR_ANSWERED(all, i)
    {
        const struct preflight_facts *facts = &all->host[i].facts;
        if (middle < 0 || facts->clock_error_ns < 0)
            continue;
        const struct preflight_facts *other = &all->host[middle].facts;
        int64_t ahead = facts->clock_ns - other->clock_ns;
        int64_t apart = ahead < 0 ? -ahead : ahead;
        if (apart > CLOCK_MOST_NS + facts->clock_error_ns + other->clock_error_ns)
            preflight_add(all, PREFLIGHT_CLOCK, false, i,
                          "Run a time service (chrony, ntpd) on all hosts: logs and files of the "
                          "job have wrong times",
                          "the clock is %.3g s %s that of %s", (double)apart / 1e9,
                          ahead > 0 ? "ahead of" : "behind", all->host[middle].name);
    }
    return compared > 1;
}
