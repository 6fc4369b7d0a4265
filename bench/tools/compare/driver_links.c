/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's side of its connections to ranks on other hosts. What they send goes to their
 * contender's board, which only the driver sees here, so that all else works as on one host. */
#include "bench/tools/compare/peers/driver_link.h"
#include "bench/tools/compare/remote_hosts.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdlib.h>

struct list {
    char *text;
    size_t bytes;
};

static void add_address(struct list *list, const struct sockaddr *address)
{
    char one[INET_ADDRSTRLEN];
    const struct in_addr *in = &((const struct sockaddr_in *)(const void *)address)->sin_addr;
    size_t at = strlen(list->text), length;
    inet_ntop(AF_INET, in, one, sizeof(one));
    for (const char *word = list->text; *word != '\0'; word += length + (word[length] == ',')) {
        length = strcspn(word, ",");
        if (length == strlen(one) && strncmp(word, one, length) == 0)
            return;
    }
    if (at + strlen(one) + 2 < list->bytes)
        twill_compare_write(list->text + at, list->bytes - at, "%s%s", at > 0 ? "," : "", one);
}

/* Add the source address of the route to a host, if its name resolves. */
static void add_route(struct list *list, const char *host)
{
    struct addrinfo hint = {.ai_family = AF_INET, .ai_socktype = SOCK_DGRAM}, *found = NULL;
    struct sockaddr_in here;
    socklen_t length = sizeof(here);
    int probe = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (probe >= 0 && getaddrinfo(host, "9", &hint, &found) == 0 &&
        connect(probe, found->ai_addr, found->ai_addrlen) == 0 &&
        getsockname(probe, (struct sockaddr *)&here, &length) == 0)
        add_address(list, (struct sockaddr *)&here);
    if (found != NULL)
        freeaddrinfo(found);
    if (probe >= 0)
        close(probe);
}

/* List addresses under which other hosts may reach this one, the most likely first; loopback last,
 * for ranks on this host. */
static void addresses_list(const struct twill_compare_options *options, struct list *list)
{
    struct ifaddrs *all = NULL;
    list->text[0] = '\0';
    for (int i = 0; i < options->n_hosts; i++)
        add_route(list, options->hosts[i].name);
    if (getifaddrs(&all) != 0)
        all = NULL;
    for (int loopback = 0; loopback < 2; loopback++)
        for (struct ifaddrs *i = all; i != NULL; i = i->ifa_next)
            if (i->ifa_addr != NULL && i->ifa_addr->sa_family == AF_INET &&
                (i->ifa_flags & IFF_UP) != 0 &&
                ((i->ifa_flags & IFF_LOOPBACK) != 0) == (loopback == 1))
                add_address(list, i->ifa_addr);
    if (all != NULL)
        freeifaddrs(all);
}

bool twill_compare_listen(struct twill_compare_run *run)
{
    struct sockaddr_in here = {.sin_family = AF_INET};
    socklen_t length = sizeof(here);
    uint64_t noise[2];
    run->remote.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (run->remote.listener < 0 || getentropy(noise, sizeof(noise)) != 0 ||
        bind(run->remote.listener, (struct sockaddr *)&here, sizeof(here)) != 0 ||
        listen(run->remote.listener, TWILL_COMPARE_RANKS) != 0 ||
        getsockname(run->remote.listener, (struct sockaddr *)&here, &length) != 0) {
        fprintf(stderr, "twill-compare: --hosts: no socket to listen on: %s\n", strerror(errno));
        return false;
    }
    run->remote.port = ntohs(here.sin_port);
    twill_compare_write(run->remote.token, sizeof(run->remote.token), "%016llx",
                        (unsigned long long)(noise[0] ^ noise[1]));
    if (run->options.address != NULL)
        twill_compare_write(run->remote.addresses, sizeof(run->remote.addresses), "%s",
                            run->options.address);
    else
        addresses_list(&run->options,
                       &(struct list){run->remote.addresses, sizeof(run->remote.addresses)});
    return true;
}

void twill_compare_close_listener(struct twill_compare_run *run)
{
    if (run->remote.listener > 0)
        close(run->remote.listener);
    run->remote.listener = 0;
}

void twill_compare_link_text(const struct twill_compare_run *run, int index, char *text,
                             size_t bytes)
{
    twill_compare_write(text, bytes, TWILL_COMPARE_LINK "%d:%s-%d:%s", run->remote.port,
                        run->remote.token, index, run->remote.addresses);
}

void twill_compare_close_links(struct twill_compare_contender *contender)
{
    for (int rank = 0; rank < TWILL_COMPARE_RANKS; rank++) {
        if (contender->link[rank] > 0)
            close(contender->link[rank]);
        contender->link[rank] = 0;
    }
    contender->connected = contender->posts = 0;
}

/* --- start ------------------------------------------------------------------------------------ */

/* Assign cores: ranks of one machine, which may be several hosts, share its cores in rank order, in
 * blocks if there are more ranks than cores: 0 0 1 1. */
static void assign_cores(struct twill_compare_run *run, const struct twill_compare_hello *hellos)
{
    int ranks = run->options.ranks;
    bool enough = true;
    for (int rank = 0; rank < ranks; rank++) {
        int place = 0, peers = 0, cores = 0;
        uint32_t list[TWILL_COMPARE_CPUS];
        for (int other = 0; other < ranks; other++)
            if (run->options.shared || strcmp(hellos[other].boot_id, hellos[rank].boot_id) == 0) {
                place += other < rank;
                peers++;
            }
        for (int cpu = 0; cpu < TWILL_COMPARE_CPUS; cpu++)
            if (hellos[rank].cpus[cpu / 8] & 1 << cpu % 8)
                list[cores++] = (uint32_t)cpu;
        run->core[rank] = cores == 0       ? 0
                          : peers <= cores ? list[place]
                                           : list[place * cores / peers];
        enough = enough && peers <= cores;
    }
    run->bind = run->options.bind < 0 ? enough : run->options.bind == 1;
}

/* All ranks have connected: send each the head of the board. */
static void welcome_link(struct twill_compare_run *run, struct twill_compare_contender *contender)
{
    struct twill_compare_board *board = contender->board;
    if (!run->cores_assigned)
        assign_cores(run, run->remote.hellos);
    run->cores_assigned = true;
    for (int rank = 0; rank < board->ranks; rank++) {
        struct twill_compare_welcome answer = {.ranks = board->ranks,
                                               .bind = run->bind,
                                               .core = run->core[rank],
                                               .capacity = board->capacity,
                                               .patience = run->options.timeout};
        twill_compare_send(contender->link[rank], TWILL_COMPARE_WELCOME, rank, &answer,
                           sizeof(answer));
    }
}

/* Accept a connection if it identifies itself as a rank of this contender within 2 s. */
static void accept_rank(struct twill_compare_run *run, struct twill_compare_contender *contender)
{
    struct twill_compare_frame frame;
    struct twill_compare_hello hello;
    char token[sizeof(hello.token)];
    int one = 1, link = accept4(run->remote.listener, NULL, NULL, SOCK_CLOEXEC);
    if (link < 0)
        return;
    setsockopt(link, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    twill_compare_write(token, sizeof(token), "%s-%d", run->remote.token,
                        (int)(contender - run->contenders));
    if (twill_compare_move(link, &frame, sizeof(frame), 0, 2) != 0 ||
        frame.kind != TWILL_COMPARE_HELLO || frame.bytes != sizeof(hello) ||
        twill_compare_move(link, &hello, sizeof(hello), 0, 2) != 0 ||
        strncmp(hello.token, token, sizeof(token)) != 0 ||
        frame.rank >= (uint32_t)run->options.ranks || contender->link[frame.rank] > 0) {
        close(link);
        return;
    }
    hello.boot_id[sizeof(hello.boot_id) - 1] = hello.host[sizeof(hello.host) - 1] = '\0';
    hello.congestion[sizeof(hello.congestion) - 1] = '\0';
    run->remote.hellos[frame.rank] = hello;
    contender->link[frame.rank] = link;
    if (++contender->connected == run->options.ranks)
        welcome_link(run, contender);
}

/* --- messages of ranks ------------------------------------------------------------------------ */

/* Store a contribution to an allgather; after the last one send all of them to every rank. They lie
 * without gaps at the start of board->exchange. */
static bool take_post(struct twill_compare_contender *contender, int rank, size_t bytes)
{
    struct twill_compare_board *board = contender->board;
    char *all = &board->exchange[0][0][0];
    if (bytes > TWILL_COMPARE_EXCHANGE || (contender->posts > 0 && bytes != contender->posted) ||
        twill_compare_move(contender->link[rank], all + (size_t)rank * bytes, bytes, 0, 10) != 0)
        return false;
    contender->posted = bytes;
    if (++contender->posts < board->ranks)
        return true;
    contender->posts = 0;
    for (int to = 0; to < board->ranks; to++)
        if (twill_compare_send(contender->link[to], TWILL_COMPARE_POSTED, to, all,
                               bytes * (size_t)board->ranks) != 0)
            return false;
    return true;
}

static bool forward_counts(struct twill_compare_contender *contender, int rank)
{
    struct twill_compare_counts counts;
    if (rank != 0 || twill_compare_move(contender->link[rank], &counts, sizeof(counts), 0, 10))
        return false;
    for (int to = 1; to < contender->board->ranks; to++)
        if (twill_compare_send(contender->link[to], TWILL_COMPARE_COUNTS, to, &counts,
                               sizeof(counts)) != 0)
            return false;
    return true;
}

static bool take_result(struct twill_compare_contender *contender, int rank)
{
    struct twill_compare_board *board = contender->board;
    struct twill_compare_result result;
    if (twill_compare_move(contender->link[rank], &result, sizeof(result), 0, 10) != 0 ||
        result.batches > TWILL_COMPARE_BATCHES)
        return false;
    board->error[rank] = result.error;
    board->wrong[rank] = result.wrong;
    memcpy(board->seconds[rank], result.seconds, sizeof(result.seconds));
    result.library[sizeof(result.library) - 1] = result.message[sizeof(result.message) - 1] = '\0';
    if (rank == 0) {
        board->calls = result.calls;
        board->batches = result.batches;
        memcpy(board->library, result.library, sizeof(board->library));
    }
    if (result.message[0] != '\0')
        memcpy(board->message, result.message, sizeof(board->message));
    board->done++;
    return true;
}

static bool take_frame(struct twill_compare_contender *contender, int rank)
{
    struct twill_compare_frame frame;
    if (twill_compare_move(contender->link[rank], &frame, sizeof(frame), 0, 10) != 0)
        return false;
    if (frame.kind == TWILL_COMPARE_POSTED)
        return take_post(contender, rank, frame.bytes);
    if (frame.kind == TWILL_COMPARE_COUNTS && frame.bytes == sizeof(struct twill_compare_counts))
        return forward_counts(contender, rank);
    return frame.kind == TWILL_COMPARE_RESULT &&
           frame.bytes == sizeof(struct twill_compare_result) && take_result(contender, rank);
}

bool twill_compare_serve_links(struct twill_compare_run *run,
                               struct twill_compare_contender *contender, double seconds)
{
    struct pollfd waits[TWILL_COMPARE_RANKS + 1];
    int ranks = run->options.ranks;
    for (int rank = 0; rank < ranks; rank++) {
        int link = contender->link[rank];
        waits[rank] = (struct pollfd){link > 0 ? link : -1, POLLIN, 0};
    }
    waits[ranks] = (struct pollfd){run->remote.listener, POLLIN, 0};
    if (poll(waits, (nfds_t)ranks + 1, (int)(seconds * 1e3)) <= 0)
        return true;
    if (waits[ranks].revents != 0)
        accept_rank(run, contender);
    for (int rank = 0; rank < ranks; rank++)
        if (waits[rank].revents != 0 && !take_frame(contender, rank))
            return false;
    return true;
}

void twill_compare_send_order(struct twill_compare_contender *contender)
{
    const struct twill_compare_board *board = contender->board;
    for (int rank = 0; rank < board->ranks; rank++) {
        if (contender->link[rank] <= 0)
            continue;
        twill_compare_send(contender->link[rank], TWILL_COMPARE_ORDERED, rank, &board->order,
                           sizeof(board->order));
        if (board->order.step != TWILL_COMPARE_NO_STEP)
            twill_compare_send(contender->link[rank], TWILL_COMPARE_MODEL, rank, &board->model,
                               sizeof(board->model));
    }
}
