/* SPDX-License-Identifier: Apache-2.0 */
/* The facts that a host reports about itself, such as limits, memory, the library and the key. */
#include "fabric/auth/job_key.h"
#include "fabric/launcher/preflight/preflight_agent.h"
#include "numa/cgroup.h"
#include "numa/topology.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

/* Return a resource limit, or -1 if it is unlimited or not known. */
static int64_t find_limit(int what, bool hard)
{
    struct rlimit limit;
    if (getrlimit(what, &limit) != 0)
        return -1;
    rlim_t value = hard ? limit.rlim_max : limit.rlim_cur;
    return value == RLIM_INFINITY ? -1 : (int64_t)twill_min(value, INT64_MAX);
}

/* Fill in the limits of locked memory and of open files. */
static void find_limits(struct preflight_facts *facts)
{
    facts->memlock_bytes = find_limit(RLIMIT_MEMLOCK, false);
    facts->nofile = find_limit(RLIMIT_NOFILE, false);
    facts->nofile_most = find_limit(RLIMIT_NOFILE, true);
}

/* Fill in the size of /dev/shm and the free space, or -1. */
static void find_shm(struct preflight_facts *facts)
{
    struct statvfs shm;
    facts->shm_bytes = facts->shm_free_bytes = -1;
    if (statvfs("/dev/shm", &shm) != 0)
        return;
    facts->shm_bytes = (int64_t)(shm.f_blocks * shm.f_frsize);
    facts->shm_free_bytes = (int64_t)(shm.f_bavail * shm.f_frsize);
}

/* Let a child read this process, as ranks are no ancestors of each other. Returns 0 or an errno. */
static int64_t try_cma(void)
{
    volatile int secret = 4711;
    int status = 0;
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        int copy = 0;
        struct iovec here = {&copy, sizeof(copy)}, there = {(void *)&secret, sizeof(secret)};
        secret = 0; /* in this process only */
        ssize_t n = process_vm_readv(parent, &here, 1, &there, 1, 0);
        _exit(n == sizeof(copy) && copy == 4711 ? 0 : n < 0 && errno < 256 ? errno : EIO);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
        return EIO;
    return WEXITSTATUS(status);
}

/* Return the number of visible entries of a folder, 0 if it cannot be read. */
static int64_t count_entries(const char *path)
{
    int64_t entries = 0;
    DIR *folder = opendir(path);
    const struct dirent *entry;
    while (folder && (entry = readdir(folder)))
        entries += entry->d_name[0] != '.';
    if (folder)
        closedir(folder);
    return entries;
}

/* Write the digest of a file's contents. It is empty if the file cannot be read. */
static void digest_file(char text[PREFLIGHT_TEXT], const char *path)
{
    uint8_t digest[TWILL_DIGEST_BYTES];
    struct stat state;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    text[0] = '\0';
    if (fd < 0)
        return;
    if (fstat(fd, &state) == 0 && S_ISREG(state.st_mode) && state.st_size > 0) {
        void *data = mmap(NULL, (size_t)state.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data != MAP_FAILED) {
            twill_secret_digest(data, (size_t)state.st_size, digest);
            (void)twill_hex_text(digest, 8, text);
            munmap(data, (size_t)state.st_size);
        }
    }
    close(fd);
}

/* Fill in the version, the path and the digest of the libtwill that is loaded. */
static void find_library(struct preflight_facts *facts)
{
    Dl_info info;
    snprintf(facts->library_version, sizeof(facts->library_version), "%s", twill_version());
    if (dladdr(__extension__(void *) twill_version, &info) != 0 && info.dli_fname)
        snprintf(facts->library_path, sizeof(facts->library_path), "%s", info.dli_fname);
    digest_file(facts->library_digest, facts->library_path);
}

/* Write to `path` where execvp() would find a program, and return 0. A name with a slash, or any
 * name without PATH, is the path itself. If it cannot be run, set `path` to `program` and return an
 * errno. After a search that is EACCES if only files without permission were found, else ENOENT. */
static int find_in_path(char path[PREFLIGHT_TEXT], const char *program)
{
    const char *folders = strchr(program, '/') ? NULL : getenv("PATH");
    int why = ENOENT;
    snprintf(path, PREFLIGHT_TEXT, "%s", program);
    if (!folders)
        return access(path, X_OK) == 0 ? 0 : errno;
    for (size_t length; *folders; folders += length + (folders[length] == ':')) {
        length = strcspn(folders, ":");
        snprintf(path, PREFLIGHT_TEXT, "%.*s/%s", (int)length, folders, program);
        if (access(path, X_OK) == 0)
            return 0;
        why = errno == EACCES ? EACCES : why;
    }
    snprintf(path, PREFLIGHT_TEXT, "%s", program);
    return why;
}

/* Fill in the path of a program, and its digest or why it cannot be run. */
static void find_program(struct preflight_facts *facts, const char *program)
{
    int why = find_in_path(facts->program_path, program);
    if (why != 0)
        snprintf(facts->program_error, sizeof(facts->program_error), "%s", strerror(why));
    else
        digest_file(facts->program_digest, facts->program_path);
}

/* Set facts->key if twillrun drew the key of the job. Read the key file that TWILL_KEY_FILE names
 * or, if it is not set, .twill/key in the directory HOME if there is one. Set the file's digest, or
 * its fault if it cannot be read. */
static void find_key(struct preflight_facts *facts)
{
    const char *job = getenv("TWILL_JOB"), *file = getenv("TWILL_KEY_FILE"), *home = getenv("HOME");
    struct twill_secret secret;
    struct twill_error error = {0};
    char path[PATH_MAX] = "";
    uint8_t proof[TWILL_PROOF_BYTES];
    if (job && strlen(job) >= TWILL_SECRET_LEAST)
        snprintf(facts->key, sizeof(facts->key), "drawn by twillrun");
    if (twill_is_set(file))
        snprintf(path, sizeof(path), "%s", file);
    else if (twill_is_set(home))
        snprintf(path, sizeof(path), "%s/.twill/key", home);
    facts->key_is_named = twill_is_set(file);
    if (path[0] == '\0' || (!twill_is_set(file) && access(path, F_OK) != 0))
        return; /* it is made when it is needed */
    if (twill_secret_read(&secret, path, &error) != TWILL_OK) {
        snprintf(facts->key_error, sizeof(facts->key_error), "%s", error.message);
        return;
    }
    twill_secret_prove(&secret, "preflight", "", 0, proof);
    (void)twill_hex_text(proof, 4, facts->key_digest);
    twill_secret_wipe(&secret, sizeof(secret));
}

/* Return the integer at the beginning of a file, or -1 if there is none. */
static int64_t read_number(const char *path)
{
    long long number = -1;
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%lld", &number) != 1)
        number = -1;
    if (file)
        fclose(file);
    return number;
}

/* Get the first line of a file, without its end, or "" if it cannot be read. */
static void read_text(char *text, size_t bytes, const char *path)
{
    FILE *file = fopen(path, "re");
    text[0] = '\0';
    if (file && !fgets(text, (int)bytes, file))
        text[0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    if (file)
        fclose(file);
}

void preflight_choice_find(char text[PREFLIGHT_TEXT], const char *path)
{
    char line[PREFLIGHT_TEXT];
    read_text(line, sizeof(line), path);
    const char *begin = strchr(line, '[');
    int length = begin ? (int)strcspn(begin + 1, "]") : 0;
    snprintf(text, PREFLIGHT_TEXT, "%.*s", length, begin ? begin + 1 : "");
}

void preflight_interface_find(struct preflight_facts *facts, const char *root)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/sys/class/net/%s/mtu", root, facts->interface);
    facts->interface_mtu = read_number(path);
    snprintf(path, sizeof(path), "%s/sys/class/net/%s/speed", root, facts->interface);
    facts->interface_mbits = read_number(path);
    snprintf(path, sizeof(path), "%s/sys/class/net/%s/operstate", root, facts->interface);
    read_text(facts->interface_state, sizeof(facts->interface_state), path);
    snprintf(path, sizeof(path), "%s/sys/class/net/%s/duplex", root, facts->interface);
    read_text(facts->interface_duplex, sizeof(facts->interface_duplex), path);
}

/* Lower facts->memory_limit_bytes, which is -1 for none, to the least limit of this process's
 * cgroup and those above it. Set memory_used_bytes to the use of the cgroup with that limit. `root`
 * is "" or a test's folder. */
static void find_memory_limit(struct preflight_facts *facts, const char *root)
{
    struct twill_cgroup group;
    uint64_t limit[2], used[2];
    for (bool more = twill_cgroup_find(&group, "memory", root); more;
         more = twill_cgroup_rise(&group)) {
        int64_t *least = &facts->memory_limit_bytes;
        const char *name = group.unified ? "memory.max" : "memory.limit_in_bytes";
        if (twill_cgroup_numbers(&group, name, limit) < 1 ||
            (*least >= 0 && (int64_t)limit[0] >= *least))
            continue;
        *least = (int64_t)limit[0];
        name = group.unified ? "memory.current" : "memory.usage_in_bytes";
        if (twill_cgroup_numbers(&group, name, used) > 0)
            facts->memory_used_bytes = (int64_t)used[0];
    }
}

/* Set facts->cpu_limit_milli to the least CPU limit of this process's cgroup and those above it, in
 * thousandths of a CPU. Leave it as it is if there is none. `root` is "", or the folder of a test's
 * files that replaces /. */
static void find_cpu_limit(struct preflight_facts *facts, const char *root)
{
    struct twill_cgroup group;
    uint64_t quota[2], period[2];
    for (bool more = twill_cgroup_find(&group, "cpu", root); more;
         more = twill_cgroup_rise(&group)) {
        int known =
            twill_cgroup_numbers(&group, group.unified ? "cpu.max" : "cpu.cfs_quota_us", quota);
        if (!group.unified && twill_cgroup_numbers(&group, "cpu.cfs_period_us", period) > 0)
            quota[known++] = period[0];
        if (known != 2 || quota[0] == 0 || quota[1] == 0)
            continue;
        int64_t milli = (int64_t)(quota[0] * 1000 / quota[1]), *least = &facts->cpu_limit_milli;
        *least = *least < 0 || milli < *least ? milli : *least;
    }
}

void preflight_cgroup_find(struct preflight_facts *facts, const char *root)
{
    facts->memory_limit_bytes = facts->memory_used_bytes = facts->cpu_limit_milli = -1;
    find_memory_limit(facts, root);
    find_cpu_limit(facts, root);
}

void preflight_facts_find(struct preflight_facts *facts, const char *program)
{
    struct utsname names;
    memset(facts, 0, sizeof(*facts));
    facts->port = facts->interface_mtu = facts->interface_mbits = facts->faster_mbits = -1;
    facts->clock_ns = facts->clock_error_ns = -1;
    facts->cpus = sysconf(_SC_NPROCESSORS_ONLN);
    facts->memory_bytes = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    if (uname(&names) == 0)
        snprintf(facts->system, sizeof(facts->system), "%s %s %s", names.sysname, names.release,
                 names.machine);
    find_limits(facts);
    find_shm(facts);
    facts->cma_error = try_cma();
    facts->ptrace_scope = read_number("/proc/sys/kernel/yama/ptrace_scope");
    facts->rdma_devices = count_entries("/sys/class/infiniband");
    preflight_choice_find(facts->thp, "/sys/kernel/mm/transparent_hugepage/enabled");
    preflight_cgroup_find(facts, "");
    find_library(facts);
    find_key(facts);
    if (program)
        find_program(facts, program);
}

void preflight_rank_find(struct preflight_rank *rank)
{
    struct twill_topology *topology = NULL;
    struct twill_cpus cpus;
    struct twill_error error = {0};
    *rank = (struct preflight_rank){.known = false};
    if (twill_topology_open(&topology, NULL, &error) != TWILL_OK)
        return;
    twill_topology_cpus(topology, &cpus);
    rank->cores = (int)twill_topology_cores(topology);
    rank->known = twill_cpus_list(&cpus, rank->cpus, sizeof(rank->cpus)) >= 0;
    twill_topology_close(topology);
}
