/* SPDX-License-Identifier: Apache-2.0 */
/* Child processes of twill-compare: compilers, which run to completion, and contenders, which sleep
 * on their boards between turns. Each is a process group and killed as one; the board has the pids
 * of ranks that a launcher put into other groups. */
#include "bench/tools/compare/remote_hosts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

void twill_compare_write(char *text, size_t bytes, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, bytes, format, arguments);
    va_end(arguments);
}

bool twill_compare_interrupted(const struct twill_compare_run *run)
{
    sigset_t pending;
    if (run->tidying || sigpending(&pending) != 0)
        return false;
    for (int signal = 1; signal < NSIG; signal++)
        if (sigismember(&run->signals, signal) == 1 && sigismember(&pending, signal) == 1)
            return true;
    return false;
}

static pid_t spawn(const struct twill_compare_run *run, char *const *command, char *const *settings,
                   const char *log)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    setpgid(0, 0);
    sigprocmask(SIG_UNBLOCK, &run->signals, NULL);
    int out = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int in = open("/dev/null", O_RDONLY);
    if (out >= 0 && in >= 0) {
        dup2(in, 0);
        dup2(out, 1);
        dup2(out, 2);
    }
    for (; settings != NULL && *settings != NULL; settings++)
        putenv(*settings);
    execvp(command[0], command);
    dprintf(2, "%s: %s\n", command[0], strerror(errno));
    _exit(127);
}

int twill_compare_command(struct twill_compare_run *run, char *const *command, const char *log)
{
    int status;
    pid_t pid = spawn(run, command, NULL, log);
    if (pid < 0)
        return -1;
    for (double waited = 0; waited < run->options.timeout; waited += 0.005) {
        if (waitpid(pid, &status, WNOHANG) == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        if (twill_compare_interrupted(run))
            break;
        usleep(5000);
    }
    kill(-pid, SIGKILL);
    waitpid(pid, &status, 0);
    return -1;
}

/* Return whether a line has letters; launchers' banners have lines without. */
static bool says_something(const char *line)
{
    return strpbrk(line, "abcdefghijklmnopqrstuvwxyz") != NULL;
}

void twill_compare_first_line(const char *path, const char *prefer, char *text, size_t bytes)
{
    char line[512];
    bool taken = false;
    FILE *file = fopen(path, "r");
    text[0] = '\0';
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "\r\n")] = '\0';
        if (!says_something(line))
            continue;
        bool preferred = prefer != NULL && strstr(line, prefer) != NULL;
        if (!taken || preferred)
            twill_compare_write(text, bytes, "%.*s", TWILL_COMPARE_TEXT - 1,
                                line + strspn(line, " \t"));
        taken = true;
        if (preferred || prefer == NULL)
            break;
    }
    if (file != NULL)
        fclose(file);
}

/* Kill the group, and the ranks that left it. */
static void kill_all(struct twill_compare_contender *contender)
{
    int status;
    twill_compare_close_links(contender);
    for (int rank = 0; rank < TWILL_COMPARE_RANKS; rank++)
        if (contender->board->pid[rank] > 1)
            kill(contender->board->pid[rank], SIGKILL);
    if (contender->pid > 0) {
        kill(-contender->pid, SIGTERM); /* lets a launcher clean up */
        for (int i = 0; i < 100 && waitpid(contender->pid, &status, WNOHANG) == 0; i++)
            usleep(10000);
        kill(-contender->pid, SIGKILL);
        waitpid(contender->pid, &status, 0);
    }
    contender->pid = 0;
}

/* Exclude a contender: report why, and leave no process behind. */
static bool give_up_contender(struct twill_compare_contender *contender, const char *what)
{
    char said[TWILL_COMPARE_TEXT] = "";
    twill_compare_write(said, sizeof(said), "%.*s", TWILL_COMPARE_TEXT - 1,
                        contender->board->message);
    if (said[0] == '\0')
        twill_compare_first_line(contender->log, NULL, said, sizeof(said));
    kill_all(contender);
    twill_compare_write(contender->absent, sizeof(contender->absent), "%s%s%s", what,
                        said[0] != '\0' ? ": " : "", said);
    fprintf(stderr, "twill-compare: %s is left out: %s\n", contender->name, contender->absent);
    munmap(contender->board, sizeof(*contender->board));
    contender->board = NULL;
    return false;
}

/* Sleep until all ranks are done, the launcher has ended, or the time is over. Time in which this
 * process does not run (stopped, or the machine suspended) does not count, as the ranks did not run
 * either. */
static bool await_contender(struct twill_compare_run *run,
                            struct twill_compare_contender *contender, const char *what)
{
    struct twill_compare_board *board = contender->board;
    char text[96];
    const double step = 0.2;
    for (double waited = 0;;) {
        int status;
        uint32_t done = __atomic_load_n(&board->done, __ATOMIC_ACQUIRE);
        if (done >= (uint32_t)board->ranks)
            break;
        double from = twill_compare_now();
        if (run->options.n_hosts == 0)
            twill_compare_sleep(&board->done, done, step);
        else if (!twill_compare_serve_links(run, contender, step))
            return give_up_contender(contender, "a rank closed its connection");
        double slept = twill_compare_now() - from;
        waited += slept < 2 * step ? slept : step;
        if (waitpid(contender->pid, &status, WNOHANG) == contender->pid) {
            contender->pid = 0;
            twill_compare_write(text, sizeof(text), "it ended during %s with status %d", what,
                                WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
            return give_up_contender(contender, text);
        }
        if (twill_compare_interrupted(run))
            return give_up_contender(contender, "interrupted");
        if (waited > run->options.timeout) {
            twill_compare_write(text, sizeof(text), "it hangs: %s took more than %g s", what,
                                run->options.timeout);
            return give_up_contender(contender, text);
        }
    }
    for (int rank = 0; rank < board->ranks; rank++)
        if (board->error[rank])
            return give_up_contender(contender, "a call failed");
    return true;
}

/* Map the board: a file for ranks on this host, private memory if they are connected by TCP. */
static void *map_board(const struct twill_compare_run *run,
                       const struct twill_compare_contender *contender)
{
    const size_t bytes = sizeof(struct twill_compare_board);
    if (run->options.n_hosts > 0)
        return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int file = open(contender->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    void *map = MAP_FAILED;
    if (file >= 0 && ftruncate(file, (off_t)bytes) == 0)
        map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0)
        close(file);
    return map;
}

static bool make_board(struct twill_compare_run *run, struct twill_compare_contender *contender)
{
    const struct twill_compare_options *options = &run->options;
    void *map = map_board(run, contender);
    if (map == MAP_FAILED) {
        twill_compare_write(contender->absent, sizeof(contender->absent),
                            "its board cannot be mapped: %s", strerror(errno));
        return false;
    }
    size_t largest = 0;
    for (int i = 0; i < options->n_sizes; i++)
        largest = options->sizes[i] > largest ? options->sizes[i] : largest;
    contender->board = map;
    contender->board->driver = (int32_t)getpid();
    contender->board->ranks = options->ranks;
    contender->board->bind = run->bind;
    contender->board->capacity =
        (largest * (size_t)options->ranks + (2 << 20) - 1) / (2 << 20) * (2 << 20);
    memcpy(contender->board->core, run->core, sizeof(run->core));
    return true;
}

/* Publish the order on the board. */
static void give_order(const struct twill_compare_run *run,
                       struct twill_compare_contender *contender)
{
    if (run->options.n_hosts > 0)
        twill_compare_send_order(contender);
    __atomic_add_fetch(&contender->board->turn, 1, __ATOMIC_ACQ_REL);
    twill_compare_wake(&contender->board->turn);
}

bool twill_compare_start(struct twill_compare_run *run, struct twill_compare_contender *contender)
{
    if (contender->pingpong != NULL) {
        twill_compare_write(contender->library, sizeof(contender->library),
                            "%s, one way counted, at its own pace", contender->pingpong);
        return true;
    }
    if (!make_board(run, contender))
        return false;
    contender->pid = spawn(run, contender->command, contender->settings, contender->log);
    if (contender->pid < 0) {
        contender->pid = 0;
        return give_up_contender(contender, "cannot be started");
    }
    setpgid(contender->pid, contender->pid);
    if (!await_contender(run, contender, "its start"))
        return false;
    twill_compare_write(contender->library, sizeof(contender->library), "%.*s",
                        TWILL_COMPARE_TEXT - 1, contender->board->library);
    return true;
}

bool twill_compare_turn(struct twill_compare_run *run, struct twill_compare_contender *contender,
                        const struct twill_compare_order *order)
{
    struct twill_compare_board *board = contender->board;
    char what[64];
    board->order = *order;
    board->done = 0;
    board->line_seconds = 0;
    board->line_start = board->ping.value;
    board->calls = board->batches = 0;
    memset(board->wrong, 0, sizeof(board->wrong));
    give_order(run, contender);
    twill_compare_write(what, sizeof(what), "%s of %zu bytes",
                        twill_compare_name((enum twill_compare_collective)order->collective),
                        (size_t)order->bytes);
    return await_contender(run, contender, what);
}

void twill_compare_end(struct twill_compare_run *run, struct twill_compare_contender *contender)
{
    struct twill_compare_order order = {.quit = 1};
    int status;
    if (contender->board == NULL)
        return;
    contender->board->order = order;
    give_order(run, contender);
    for (int i = 0; i < 500 && contender->pid > 0; i++) {
        if (waitpid(contender->pid, &status, WNOHANG) == contender->pid)
            contender->pid = 0;
        else
            usleep(10000);
    }
    if (contender->pid > 0) /* if the launcher has ended, so have the ranks */
        kill_all(contender);
    twill_compare_close_links(contender);
    munmap(contender->board, sizeof(*contender->board));
    contender->board = NULL;
}
