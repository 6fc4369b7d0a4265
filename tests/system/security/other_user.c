/* SPDX-License-Identifier: Apache-2.0 */
/* other_user job FILE: a rank that calls allreduce until the file is there. Prints its PID, then
 * how many values were wrong. other_user attack PORTS PID...: what another user can try against
 * these ranks and ports (a list with commas, or -). Prints a line for each success, then how much
 * was tried. other_user sockets FILE: until the file is there, call every unix socket of twill and
 * ask for the memory behind it. Prints the same. */
#include <twill.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define CONNECTIONS 200 /* to each port, a quarter of which stay open and say nothing */

/* --- the job ---------------------------------------------------------------------------------- */

static int run_job(const char *file)
{
    twill_comm *comm;
    long wrong = 0, calls = 0;
    if (twill_init(&comm) != TWILL_OK)
        return 1;
    int size = twill_comm_size(comm);
    void *memory = NULL;
    if (twill_alloc(twill_comm_context(comm), &memory, 4096 * sizeof(double)) != TWILL_OK)
        return 1;
    double *x = memory;
    printf("pid %d\n", (int)getpid());
    fflush(stdout);
    for (double over = 0; over == 0; calls++) {
        x[0] = access(file, F_OK) == 0;
        for (int i = 1; i < 4096; i++)
            x[i] = i;
        if (twill_allreduce(comm, x, x, 4096, TWILL_F64, TWILL_SUM) != TWILL_OK) {
            printf("failed: %s\n", twill_comm_message(comm));
            return 1;
        }
        over = x[0];
        for (int i = 1; i < 4096; i++)
            wrong += x[i] != (double)i * size;
        usleep(2000);
    }
    (void)twill_free(twill_comm_context(comm), x);
    twill_finalize(comm);
    printf("%s: %ld values are wrong\n", calls > 0 ? "done" : "no call", wrong);
    return 0;
}

/* --- the attack ------------------------------------------------------------------------------- */

static unsigned tried, successes;

static void report(const char *what, int pid, int succeeded)
{
    tried++;
    successes += succeeded != 0;
    if (succeeded)
        printf("OPEN: %s of %d\n", what, pid);
}

static void attack_process(int pid)
{
    static const char *const files[] = {"mem", "environ", "maps", "fd", "map_files", "fd/3"};
    char path[64], byte;
    struct iovec here = {&byte, 1}, there = {(void *)(uintptr_t)0x400000, 1};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        snprintf(path, sizeof(path), "/proc/%d/%s", pid, files[i]);
        int fd = open(path, O_RDONLY);
        report(files[i], pid, fd >= 0 && read(fd, &byte, 1) != -1);
        if (fd >= 0)
            close(fd);
    }
    report("process_vm_readv", pid,
           process_vm_readv(pid, &here, 1, &there, 1, 0) >= 0 || errno == EFAULT);
    report("process_vm_writev", pid,
           process_vm_writev(pid, &here, 1, &there, 1, 0) >= 0 || errno == EFAULT);
    report("ptrace", pid, ptrace(PTRACE_SEIZE, pid, NULL, NULL) == 0);
    report("SIGSTOP", pid, kill(pid, SIGSTOP) == 0);
    report("SIGKILL", pid, kill(pid, SIGKILL) == 0);
#ifdef SYS_pidfd_getfd
    int handle = (int)syscall(SYS_pidfd_open, pid, 0);
    for (int fd = 0; handle >= 0 && fd < 64; fd++)
        report("pidfd_getfd", pid, syscall(SYS_pidfd_getfd, handle, fd, 0) >= 0);
#endif
}

/* Send garbage to a port, and keep connections to it that send nothing. */
static void attack_port(int port)
{
    unsigned char garbage[400];
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int i = 0; i < CONNECTIONS; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&at, sizeof(at)) != 0)
            continue;
        tried++;
        for (size_t b = 0; b < sizeof(garbage); b++)
            garbage[b] = (unsigned char)(rand() >> 7);
        if (i % 2 == 0) /* of the others each end keeps the connection open */
            (void)!send(fd, garbage, sizeof(garbage), MSG_NOSIGNAL);
        if (i % 4 == 0)
            close(fd);
    }
}

static int attack(int argc, char **argv)
{
    for (int i = 3; i < argc; i++)
        attack_process(atoi(argv[i]));
    for (char *port = strtok(argv[2], ","); port != NULL; port = strtok(NULL, ","))
        if (atoi(port) > 0)
            attack_port(atoi(port));
    printf("%u tried, %u open\n", tried, successes);
    return 0;
}

/* Call a unix socket. Returns whether it sent a descriptor. */
static int gets_descriptor(const char *name)
{
    char control[256], bytes[512] = {0};
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    size_t length = strlen(name);
    if (length >= sizeof(at.sun_path))
        return 0;
    memcpy(at.sun_path, name, length);
    at.sun_path[0] = '\0'; /* @ in /proc/net/unix */
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    struct iovec data = {bytes, sizeof(bytes)};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = 256};
    int got = 0;
    if (connect(fd, (struct sockaddr *)&at,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)) == 0) {
        struct pollfd one = {.fd = fd, .events = POLLIN};
        tried++;
        (void)!send(fd, bytes, 64, MSG_NOSIGNAL);
        if (poll(&one, 1, 50) > 0 && recvmsg(fd, &message, 0) > 0)
            got = CMSG_FIRSTHDR(&message) != NULL;
    }
    close(fd);
    return got;
}

static int call_sockets(const char *file)
{
    char line[512];
    while (access(file, F_OK) != 0) {
        FILE *list = fopen("/proc/net/unix", "r");
        while (list != NULL && fgets(line, sizeof(line), list) != NULL) {
            char *name = strstr(line, "@twill");
            if (name == NULL)
                continue;
            name[strcspn(name, "\n")] = '\0';
            if (gets_descriptor(name)) {
                successes++;
                printf("OPEN: %s\n", name);
            }
        }
        if (list != NULL)
            fclose(list);
    }
    printf("%u tried, %u open\n", tried, successes);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "job") == 0)
        return run_job(argv[2]);
    if (argc >= 4 && strcmp(argv[1], "attack") == 0)
        return attack(argc, argv);
    if (argc == 3 && strcmp(argv[1], "sockets") == 0)
        return call_sockets(argv[2]);
    return 2;
}
