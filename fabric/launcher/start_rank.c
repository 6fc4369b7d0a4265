/* SPDX-License-Identifier: Apache-2.0 */
/* Start one rank. */
#include "fabric/bootstrap/twillrun.h"
#include "fabric/launcher/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Error report of a child, through a pipe that exec closes. */
struct trouble {
    int cause; /* errno */
    int where; /* enum child_step */
};

enum child_step { STEP_SETUP, STEP_BIND, STEP_EXEC };

/* Number of peers for which libfabric's providers are configured by default. */
#define UNIVERSE_SIZE 256

/* Set an environment variable to a number. Returns false with errno set. */
static bool set_variable(const char *name, int value, bool replace)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", value);
    return setenv(name, text, replace) == 0;
}

/* In a rank's process, set TWILL_LAUNCHER_FD to `fd`, the rank's socket to twillrun, and to the
 * device and inode numbers of the rank's standard error. Returns false with errno set. */
static bool set_launcher(int fd)
{
    char text[64];
    struct stat about = {.st_dev = 0};
    (void)fstat(STDERR_FILENO, &about);
    snprintf(text, sizeof(text), "%d,%llx,%llx", fd, (unsigned long long)about.st_dev,
             (unsigned long long)about.st_ino);
    return setenv("TWILL_LAUNCHER_FD", text, 1) == 0;
}

/* With --threads-per-rank, allow the rank's program and twill a thread for each core that it is
 * bound to, unless the variables say otherwise. twill may leave one to its progress thread. Returns
 * false with errno set. */
static bool set_threads(const struct twill_launch *launch, int index)
{
    unsigned cores = launch->child[index].cores;
    return cores == 0 || (set_variable("OMP_NUM_THREADS", (int)cores, false) &&
                          setenv("TWILL_THREADS", "auto", false) == 0);
}

/* Set TWILL_ELASTIC, which names the folder of --elastic. A process that `joins` a running job
 * finds it by that alone. For such a process unset RANK, WORLD_SIZE and the others in starting[].
 * Returns true, or false with errno set. */
static bool set_elastic(const struct twill_launch *launch, bool joins)
{
    static const char *const starting[] = {"RANK",        "WORLD_SIZE",      "MASTER_ADDR",
                                           "MASTER_PORT", "TWILL_LISTEN_FD", "TWILL_LAUNCHER_FD"};
    char text[sizeof(launch->elastic.folder) + sizeof(launch->elastic.reached) + 24];
    for (size_t i = 0; joins && i < TWILL_ARRAY_LENGTH(starting); i++)
        if (unsetenv(starting[i]) != 0)
            return false;
    snprintf(text, sizeof(text), "%s%s,%d,%s", joins ? TWILL_ELASTIC_JOIN : "",
             launch->elastic.folder, launch->elastic.host, launch->elastic.reached);
    return setenv("TWILL_ELASTIC", text, 1) == 0;
}

/* Set a rank's environment, in its process. That is what -x sets, LD_PRELOAD, TWILL_ELASTIC,
 * TWILL_JOB, LOCAL_RANK and LOCAL_WORLD_SIZE. A rank that does not join a running job also gets
 * RANK, WORLD_SIZE, MASTER_ADDR and more. Returns true, or false with errno set. */
static bool set_environment(const struct twill_launch *launch, int index)
{
    const struct twill_options *options = launch->options;
    int rank = launch->child[index].rank;
    for (int i = 0; i < options->assigned; i++)
        if (putenv(options->assignments[i]) != 0)
            return false;
    if (!twill_preload_set() || !set_threads(launch, index))
        return false;
    if (launch->elastic.folder[0] && !set_elastic(launch, launch->child[index].joins))
        return false;
    if (launch->child[index].joins)
        return set_variable("LOCAL_RANK", index, true) &&
               set_variable("LOCAL_WORLD_SIZE", twill_max(launch->first, index + 1), true) &&
               setenv("TWILL_JOB", launch->job, 1) == 0;
    if (rank == 0 ? !set_variable("TWILL_LISTEN_FD", launch->listener, true)
                  : unsetenv("TWILL_LISTEN_FD") != 0)
        return false;
    int ranks = options->ranks;
    return set_launcher(launch->rank_socket[1]) && set_variable("RANK", rank, true) &&
           set_variable("WORLD_SIZE", ranks, true) && set_variable("LOCAL_RANK", index, true) &&
           set_variable("LOCAL_WORLD_SIZE", launch->first, true) &&
           set_variable("FI_UNIVERSE_SIZE", ranks > UNIVERSE_SIZE ? ranks : UNIVERSE_SIZE, false) &&
           /* Libraries that libfabric loads (PSM) install handlers for crashes and signals that
            * exit with status 1. Ask them not to. */
           setenv("IPATH_NO_BACKTRACE", "1", 0) == 0 && setenv("HFI_NO_BACKTRACE", "1", 0) == 0 &&
           setenv("MASTER_ADDR", launch->address, 1) == 0 &&
           setenv("MASTER_PORT", launch->port, 1) == 0 && setenv("TWILL_JOB", launch->job, 1) == 0;
}

/* Set up a rank's descriptors, in its process. out[0] and out[1] become standard output and error
 * unless -1. The first rank 0 keeps standard input and the listener, and others read /dev/null. A
 * rank that does not join a running job keeps the rank socket. Returns true, or false with errno
 * set. */
static bool set_files(const struct twill_launch *launch, const struct twill_child *child,
                      const int out[2])
{
    if (!child->joins && fcntl(launch->rank_socket[1], F_SETFD, 0) != 0)
        return false;
    for (int i = 0; i < 2; i++)
        if (out[i] >= 0 && dup2(out[i], STDOUT_FILENO + i) < 0)
            return false;
    if (child->rank == 0 && !child->joins)
        return fcntl(launch->listener, F_SETFD, 0) == 0;
    int null = twill_null_open();
    return null >= 0 && dup2(null, STDIN_FILENO) >= 0;
}

/* Bind the rank, in its process. If the kernel refuses that, as in containers, and --bind was not
 * given, write so to the pipe `report` for twillrun. The rank then runs unbound. Returns true if it
 * may run, else false with errno set. */
static bool bind_rank(const struct twill_launch *launch, int index, int report)
{
    if (twill_child_bind(launch, index))
        return true;
    const struct trouble trouble = {.cause = errno, .where = STEP_BIND};
    return launch->options->bind.to == TWILL_BIND_AUTO &&
           write(report, &trouble, sizeof(trouble)) == sizeof(trouble);
}

/* In the child process, become the rank, or write a struct trouble to `report` and exit. */
static _Noreturn void be_child(const struct twill_launch *launch, int index, pid_t parent,
                               const int out[2], int report)
{
    const struct twill_options *options = launch->options;
    char **command = twill_program_of(options, launch->child[index].rank);
    struct trouble trouble = {.where = STEP_SETUP};
    /* The rank ends with the launcher, however that ends, but its children do not. It leads a
     * process group, so that signals also reach its children. */
    bool ok = prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent && setpgid(0, 0) == 0 &&
              set_files(launch, &launch->child[index], out) && set_environment(launch, index) &&
              setrlimit(RLIMIT_NOFILE, &options->files) == 0;
    if (ok) {
        trouble.where = STEP_BIND;
        ok = bind_rank(launch, index, report);
    }
    if (ok && sigprocmask(SIG_SETMASK, &launch->mask, NULL) == 0) {
        trouble.where = STEP_EXEC;
        execvp(command[0], command);
    }
    trouble.cause = errno;
    (void)!write(report, &trouble, sizeof(trouble));
    _exit(127);
}

/* Read from the pipe `report` whether a new process has started the rank's program. Returns 0 if
 * so. Else prints a message and returns 127 if the program was not found, or 126. If binding was
 * refused, leave this rank and later ones unbound. */
static int read_report(struct twill_launch *launch, int rank, int report)
{
    static const char *const steps[] = {"prepare", "bind"};
    struct trouble trouble;
    ssize_t n;
    while ((n = read(report, &trouble, sizeof(trouble))) < 0 && errno == EINTR)
        continue;
    if (n != sizeof(trouble))
        return 0;
    if (trouble.where == STEP_BIND && launch->options->bind.to == TWILL_BIND_AUTO) {
        twill_launch_unbind(launch, rank, trouble.cause);
        return read_report(launch, rank, report);
    }
    if (trouble.where == STEP_EXEC)
        twill_complain("cannot run %s: %s", twill_program_of(launch->options, rank)[0],
                       strerror(trouble.cause));
    else
        twill_complain("cannot %s rank %d: %s", steps[trouble.where], rank,
                       strerror(trouble.cause));
    return trouble.where == STEP_EXEC && trouble.cause == ENOENT ? 127 : 126;
}

/* Open pipes for labelled or forwarded output and set ends[] to the child's ends, or to -1 if the
 * output is neither. Returns false after a message. */
static bool open_streams(struct twill_launch *launch, struct twill_child *child, int ends[2])
{
    for (int i = 0; i < 2; i++) {
        int pair[2] = {-1, -1};
        ends[i] = -1;
        if (!launch->options->label && !launch->link)
            continue;
        if (pipe2(pair, O_CLOEXEC) != 0 || fcntl(pair[0], F_SETFL, O_NONBLOCK) != 0) {
            twill_complain("pipe for rank %d: %s", child->rank, strerror(errno));
            return false;
        }
        child->out[i].from = pair[0];
        child->out[i].link = launch->link;
        ends[i] = pair[1];
    }
    return true;
}

void twill_child_name(const struct twill_options *options, struct twill_child *child, int rank)
{
    child->rank = rank;
    if (options->label)
        snprintf(child->label, sizeof(child->label), "[%d] ", rank);
    for (int i = 0; i < 2; i++)
        child->out[i] = (struct twill_stream){
            .from = -1, .to = STDOUT_FILENO + i, .rank = rank, .label = child->label};
}

int twill_child_start(struct twill_launch *launch, int index)
{
    struct twill_child *child = &launch->child[index];
    int report[2], ends[2] = {-1, -1}, rank = child->rank;
    pid_t parent = getpid();
    if (!open_streams(launch, child, ends))
        return 1;
    if (pipe2(report, O_CLOEXEC) != 0) {
        twill_complain("pipe for rank %d: %s", rank, strerror(errno));
        return 1;
    }
    fflush(NULL);
    child->pid = fork();
    if (child->pid == 0)
        be_child(launch, index, parent, ends, report[1]);
    int why = errno;
    close(report[1]);
    for (int i = 0; i < 2; i++)
        if (ends[i] >= 0)
            close(ends[i]);
    if (child->pid < 0) {
        twill_complain("fork for rank %d: %s", rank, strerror(why));
        child->pid = 0;
    }
    int code = child->pid == 0 ? 1 : read_report(launch, rank, report[0]);
    close(report[0]);
    if (code != 0 && child->pid > 0) {
        (void)waitpid(child->pid, NULL, 0);
        child->pid = 0;
    }
    return code;
}
