/* SPDX-License-Identifier: Apache-2.0 */
/* twill-compare: measure twill, the other libraries on this machine and a bound that copies
 * nothing, in turns and with one timing loop. */
#include "bench/common/exit_status.h"
#include "bench/tools/compare/remote_hosts.h"

#include <errno.h>
#include <ftw.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info;
    (void)kind;
    (void)walk;
    return remove(path);
}

static void remove_folder(const char *path)
{
    if (path[0] != '\0')
        nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* Make a temporary folder in the first parent that exists. */
static bool make_folder(const char *const *parents, char *path)
{
    for (; *parents != NULL; parents++) {
        twill_compare_write(path, TWILL_COMPARE_PATH, "%s/twill-compare.XXXXXX", *parents);
        if (mkdtemp(path) != NULL)
            return true;
    }
    fprintf(stderr, "twill-compare: no folder for temporary files: %s\n", strerror(errno));
    path[0] = '\0';
    return false;
}

/* Return the installed path next to the tools, or that in the build tree. */
static void locate_tool(const char *bin, const char *installed, const char *built, char *path)
{
    twill_compare_write(path, TWILL_COMPARE_PATH, "%.*s/%s", TWILL_COMPARE_PATH / 2, bin,
                        installed);
    if (access(path, R_OK) != 0)
        twill_compare_write(path, TWILL_COMPARE_PATH, "%s", built);
}

static bool find_programs(struct twill_compare_run *run)
{
    const char *temporary = getenv("TMPDIR");
    const char *const memory[] = {"/dev/shm", "/tmp", NULL};
    const char *const disk[] = {temporary != NULL ? temporary : "/tmp", "/tmp", NULL};
    ssize_t length = readlink("/proc/self/exe", run->folders.bin, sizeof(run->folders.bin) - 1);
    if (length <= 0 || strchr(run->folders.bin, '/') == NULL) {
        fprintf(stderr, "twill-compare: /proc/self/exe: %s\n", strerror(errno));
        return false;
    }
    run->folders.bin[length] = '\0';
    *strrchr(run->folders.bin, '/') = '\0';
    locate_tool(run->folders.bin, TWILL_COMPARE_LIBEXEC, TWILL_COMPARE_BUILT_PROGRAMS,
                run->folders.programs);
    locate_tool(run->folders.bin, TWILL_COMPARE_SHARE, TWILL_COMPARE_BUILT_SOURCES,
                run->folders.sources);
    if (run->options.paths.work == NULL)
        return make_folder(disk, run->folders.work) && make_folder(memory, run->folders.boards);
    if (mkdir(run->options.paths.work, 0777) != 0 && errno != EEXIST) {
        fprintf(stderr, "twill-compare: --work: %s: %s\n", run->options.paths.work,
                strerror(errno));
        return false;
    }
    /* launchers may change the working directory */
    char *full = realpath(run->options.paths.work, NULL);
    twill_compare_write(run->folders.work, sizeof(run->folders.work), "%s",
                        full != NULL ? full : run->options.paths.work);
    free(full);
    return make_folder(memory, run->folders.boards);
}

/* Assign core r to rank r; more ranks than cores share them in blocks: 0 0 1 1. */
static void find_cores(struct twill_compare_run *run)
{
    cpu_set_t set;
    uint32_t list[CPU_SETSIZE];
    int ranks = run->options.ranks;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof(set), &set);
    for (uint32_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set))
            list[run->cores++] = cpu;
    for (int rank = 0; rank < ranks && run->cores > 0; rank++)
        run->core[rank] = list[ranks <= run->cores ? rank : rank * run->cores / ranks];
    run->bind = run->options.bind < 0 ? ranks <= run->cores : run->options.bind == 1;
}

static void print_list(const struct twill_compare_run *run)
{
    for (int i = 0; i < run->n_contenders; i++) {
        const struct twill_compare_contender *one = &run->contenders[i];
        printf("%s:", one->name);
        for (int k = 0; one->settings[k] != NULL; k++)
            printf(" %s", one->settings[k]);
        for (int k = 0; one->command[k] != NULL; k++)
            printf(" %s", one->command[k]);
        printf("%s%s\n", one->absent[0] != '\0' ? "\n    left out: " : "", one->absent);
    }
}

static void print_results(const struct twill_compare_run *run)
{
    for (int i = 0; i < TWILL_COMPARE_COLLECTIVES; i++) {
        enum twill_compare_collective collective = (enum twill_compare_collective)i;
        if (run->options.selected[i] && !run->options.mpi)
            twill_compare_print_rows(run, stdout, collective);
        else if (run->options.selected[i] && !twill_compare_is_self(collective))
            twill_compare_print_pairs(run, stdout, collective);
    }
    if (run->options.mpi)
        twill_compare_print_passed(run, stdout);
    twill_compare_print_foot(run, stdout);
    if (run->options.mpi)
        twill_compare_print_least(run, stdout);
}

static bool compare_contenders(struct twill_compare_run *run)
{
    run->started = twill_compare_now();
    if (!twill_compare_gather(run))
        return false;
    if (run->options.list) {
        print_list(run);
        return true;
    }
    if (run->options.paths.plot != NULL)
        twill_compare_check_plot(run);
    for (int i = 0; i < run->n_contenders && !twill_compare_interrupted(run); i++)
        if (run->contenders[i].absent[0] == '\0')
            twill_compare_start(run, &run->contenders[i]);
    twill_compare_print_head(run, stdout);
    fflush(stdout);
    bool steps = run->options.played.n_lists > 0;
    bool good = steps ? twill_compare_measure_steps(run) : twill_compare_measure(run);
    twill_compare_congestion_back(run); /* early, in case of an interrupt */
    run->seconds = twill_compare_now() - run->started;
    for (int i = 0; i < run->n_contenders; i++)
        twill_compare_end(run, &run->contenders[i]);
    if (steps)
        twill_compare_print_steps(run, stdout);
    if (steps)
        twill_compare_print_foot(run, stdout);
    else
        print_results(run);
    if (run->options.paths.json != NULL)
        good = twill_compare_save(run) && good;
    if (run->options.paths.csv != NULL)
        good = twill_compare_save_csv(run) && good;
    if (run->options.paths.plot != NULL)
        good = twill_compare_plot(run) && good;
    return good && run->failures == 0;
}

/* Return whether every contender of twill and the bound took part to the end. MPIs may be
 * missing. */
static bool comparison_is_complete(const struct twill_compare_run *run)
{
    for (int i = 0; i < run->n_contenders; i++)
        if (run->contenders[i].kind <= TWILL_COMPARE_TWILL &&
            run->contenders[i].absent[0] != '\0' && (run->contenders[i].found || !run->options.mpi))
            return false;
    return true;
}

static void block_signals(struct twill_compare_run *run)
{
    sigemptyset(&run->signals);
    sigaddset(&run->signals, SIGINT);
    sigaddset(&run->signals, SIGTERM);
    sigaddset(&run->signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &run->signals, NULL);
}

int main(int argc, char **argv)
{
    int status = STATUS_FAILED;
    struct twill_compare_run *run = calloc(1, sizeof(*run));
    if (run == NULL)
        return STATUS_FAILED;
    enum twill_compare_parsed parsed = twill_compare_parse(&run->options, argc, argv);
    if (parsed == TWILL_COMPARE_RUN) {
        time_t now = time(NULL);
        struct tm local_time;
        strftime(run->date, sizeof(run->date), "%Y-%m-%d %H:%M:%S", localtime_r(&now, &local_time));
        find_cores(run);
        block_signals(run);
        bool hosts = run->options.n_hosts > 0;
        if (find_programs(run) &&
            (!hosts || (twill_compare_make_agent(run) && twill_compare_listen(run) &&
                        twill_compare_congestion(run))) &&
            compare_contenders(run) && comparison_is_complete(run))
            status = STATUS_GOOD;
        twill_compare_congestion_back(run);
        twill_compare_close_listener(run);
        if (twill_compare_interrupted(run))
            fprintf(stderr, "twill-compare: interrupted\n");
        remove_folder(run->folders.boards);
        if (run->options.paths.work == NULL)
            remove_folder(run->folders.work);
        for (int i = 0; i < run->n_rows; i++)
            for (int k = 0; k < run->n_contenders; k++)
                free(run->rows[i].cells[k].samples);
        twill_compare_free_steps(run);
        twill_compare_free_contenders(run);
        free(run->rows);
    } else {
        status = parsed == TWILL_COMPARE_DONE ? STATUS_GOOD : STATUS_USAGE;
    }
    free(run);
    return status;
}
