/* SPDX-License-Identifier: Apache-2.0 */
/* The hosts of a job, with their names, which of them is this host, and the placement of ranks. */
#include "fabric/bootstrap/frames.h"
#include "fabric/launcher/launcher.h"
#include "lib/base/plural.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_NAME 255

/* Return whether a text has only characters of a name, an address or user@name. A dash at its
 * beginning would make it an option. */
static bool host_name_is_valid(const char *text, size_t bytes)
{
    static const char good[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:%@";
    return bytes > 0 && bytes <= MOST_NAME && text[0] != '-' && strspn(text, good) >= bytes;
}

/* Return whether a name resolves to an address of an interface of this host. */
static bool resolves_here(const char *name)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    bool here = false;
    if (getaddrinfo(name, NULL, &hints, &found) != 0)
        return false;
    for (const struct addrinfo *one = found; one && !here; one = one->ai_next) {
        struct twill_endpoint endpoint;
        char interface[32] = "";
        if (twill_endpoint_of(one->ai_addr, one->ai_addrlen, &endpoint))
            twill_interface_of(interface, endpoint.address);
        here = interface[0] != '\0' || endpoint.loopback;
    }
    freeaddrinfo(found);
    return here;
}

/* Return whether a name is localhost, this host's name or its part before the first dot, without a
 * look-up. */
static bool is_own_name(const char *name)
{
    char mine[MOST_NAME + 1] = "";
    (void)gethostname(mine, sizeof(mine) - 1);
    return strcmp(name, "localhost") == 0 || strcmp(name, mine) == 0 ||
           (strcspn(mine, ".") == strlen(name) && strncmp(name, mine, strlen(name)) == 0);
}

/* Return whether to look a name up. user@name is reached through the agent, even on this host. */
static bool is_to_look_up(const struct twill_options *options, int site)
{
    return twill_site_is_used(options, site) && !options->site[site].local &&
           !strchr(options->site[site].name, '@');
}

/* Look names up in a child process, so that a name server that does not answer cannot block this
 * one. *answers, which the caller closes also after a failure, brings a byte for each host in
 * order, 1 if its name has an address of this host and else 0. Returns the child's pid, or -1. */
static pid_t begin_look_up(const struct twill_options *options, int *answers)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    fflush(NULL);
    pid_t pid = fork();
    for (int i = 0; i < options->sites && pid == 0; i++) {
        char here = is_to_look_up(options, i) && resolves_here(options->site[i].name);
        if (write(ends[1], &here, 1) != 1)
            _exit(1);
    }
    if (pid == 0)
        _exit(0);
    close(ends[1]);
    *answers = ends[0];
    return pid;
}

/* Find out which names are this host. Those not resolved in time count as other hosts. */
static void look_up_hosts(struct twill_options *options)
{
    struct pollfd answers = {.fd = -1, .events = POLLIN};
    uint64_t until = twill_now() + options->timeout_ns;
    char here;
    pid_t pid = begin_look_up(options, &answers.fd);
    if (pid < 0)
        twill_complain("names of hosts cannot be looked up: %s", strerror(errno));
    for (int i = 0; i < options->sites && pid > 0; i++) {
        if (twill_wire_poll(&answers, 1, until) <= 0 || read(answers.fd, &here, 1) != 1) {
            twill_complain("host %s: its name was not looked up within %g s: taken for another "
                           "host than this",
                           options->site[i].name, (double)options->timeout_ns / 1e9);
            break;
        }
        options->site[i].local = options->site[i].local || here != 0;
    }
    if (answers.fd >= 0)
        close(answers.fd);
    if (pid > 0) {
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
    }
}

/* Find out which sites are this host, and merge them into the first of these. */
static void find_local(struct twill_options *options)
{
    bool left = false;
    int first = -1;
    for (int i = 0; i < options->sites; i++) {
        options->site[i].local =
            twill_site_is_used(options, i) && is_own_name(options->site[i].name);
        left = left || is_to_look_up(options, i);
    }
    if (left)
        look_up_hosts(options);
    for (int i = 0; i < options->sites; i++) { /* merge all names of this host */
        if (!options->site[i].local)
            continue;
        first = first < 0 ? i : first;
        for (int rank = 0; rank < twill_options_places(options) && i > first; rank++)
            if (options->place[rank] == i)
                options->place[rank] = first;
        if (i == first)
            continue;
        options->site[first].ranks += options->site[i].ranks;
        options->site[first].slots += options->site[i].slots;
        options->site[i].ranks = options->site[i].slots = 0;
        options->site[i].merged = true;
    }
}

/* Add a host, or slots to one that was named before. `slots` is 0 for the default, one. `most` is
 * its limit with --oversubscribe, or 0. Returns false, after a message, if there is no memory. */
static bool add_host(struct twill_options *options, const char *name, size_t bytes, int slots,
                     int most)
{
    bool counted = slots > 0;
    slots = counted ? slots : 1;
    for (int i = 0; i < options->sites; i++)
        if (strlen(options->site[i].name) == bytes &&
            memcmp(options->site[i].name, name, bytes) == 0) {
            options->site[i].slots += slots;
            options->site[i].counted |= counted;
            options->site[i].most =
                options->site[i].most > 0 && most > 0 ? options->site[i].most + most : 0;
            return true;
        }
    size_t count = (size_t)options->sites;
    struct twill_site *more = realloc(options->site, (count + 1) * sizeof(*more));
    if (more) {
        options->site = more;
        more[count] = (struct twill_site){
            .name = strndup(name, bytes), .slots = slots, .most = most, .counted = counted};
    }
    if (!more || !more[count].name) {
        twill_complain("no memory for %zu hosts", count + 1);
        return false;
    }
    options->sites++;
    return true;
}

/* Parse "name", "name:2" or "[address]:2". An address with colons needs brackets to have a number.
 * `where` is the prefix of messages, "FILE:LINE: ". Returns false after a message. */
static bool add_entry(struct twill_options *options, const char *where, const char *text,
                      size_t bytes)
{
    char number[16] = "0";
    const char *colon = memchr(text, ':', bytes), *name = text;
    size_t length = bytes;
    int slots;
    if (bytes > 2 && text[0] == '[' && memchr(text, ']', bytes)) {
        name = text + 1;
        length = (size_t)((const char *)memchr(text, ']', bytes) - name);
        colon = name + length + 1 < text + bytes ? name + length + 1 : NULL;
    } else if (colon && memrchr(text, ':', bytes) == colon) {
        length = (size_t)(colon - text);
    } else {
        colon = NULL;
    }
    if (colon)
        snprintf(number, sizeof(number), "%.*s", (int)(text + bytes - colon - 1), colon + 1);
    if (!host_name_is_valid(name, length) || (colon && *colon != ':') ||
        !twill_read_number(number, colon != NULL, TWILL_MAX_RANKS, &slots)) {
        twill_complain("%shost %.*s: not NAME or NAME:RANKS with 1 to %d ranks", where, (int)bytes,
                       text, TWILL_MAX_RANKS);
        return false;
    }
    return add_host(options, name, length, slots, 0);
}

bool twill_sites_add(struct twill_options *options, const char *list)
{
    for (const char *text = list;;) {
        size_t bytes = strcspn(text, ",");
        if (!add_entry(options, "", text, bytes))
            return false;
        if (text[bytes] == '\0')
            return true;
        text += bytes + 1;
    }
}

/* Parse "slots=2" or "max_slots=4" of Open MPI's hostfiles. Returns false if it is neither. */
static bool read_slots(const char *word, int *slots, int *most)
{
    static const char *const names[] = {"slots=", "max_slots=", "max-slots="};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(names); i++)
        if (strncmp(word, names[i], strlen(names[i])) == 0)
            return twill_read_number(word + strlen(names[i]), 1, TWILL_MAX_RANKS,
                                     i == 0 ? slots : most);
    return false;
}

/* Add the host of a line, an entry of --hosts or "name slots=2 max_slots=4", up to a #. Changes the
 * line. Returns true, also if it is empty, or false after a message. */
static bool add_line(struct twill_options *options, const char *where, char *line)
{
    int slots = 0, most = 0;
    line[strcspn(line, "#\n")] = '\0';
    char *rest, *name = strtok_r(line, " \t\r", &rest);
    char *word = name ? strtok_r(NULL, " \t\r", &rest) : NULL;
    if (!name)
        return true;
    if (!word)
        return add_entry(options, where, name, strlen(name));
    if (!host_name_is_valid(name, strlen(name))) {
        twill_complain("%shost %s: not a name of a host", where, name);
        return false;
    }
    for (; word; word = strtok_r(NULL, " \t\r", &rest))
        if (!read_slots(word, &slots, &most)) {
            twill_complain("%shost %s: '%s' is not slots=RANKS or max_slots=RANKS", where, name,
                           word);
            return false;
        }
    if (most == 0 || most >= slots)
        return add_host(options, name, strlen(name), slots, most);
    twill_complain("%shost %s: max_slots=%d is less than its %d slots", where, name, most, slots);
    return false;
}

bool twill_sites_read(struct twill_options *options, const char *path)
{
    char line[1024], where[1100];
    FILE *file = fopen(path, "re");
    bool good = file != NULL;
    int before = options->sites;
    for (int number = 1; good && fgets(line, sizeof(line), file); number++) {
        snprintf(where, sizeof(where), "--hostfile %.1000s:%d: ", path, number);
        good = strchr(line, '\n') || feof(file);
        if (good)
            good = add_line(options, where, line);
        else
            twill_complain("%sa line of more than %zu bytes", where, sizeof(line) - 2);
    }
    if (!file || ferror(file))
        twill_complain("--hostfile %s: %s", path, strerror(errno));
    else if (good && options->sites == before)
        twill_complain("--hostfile %s: it names no host", path);
    if (file)
        fclose(file);
    return good && options->sites > before;
}

/* Return whether the host can take another rank. */
static bool has_place(const struct twill_site *site, bool oversubscribe)
{
    return site->ranks < site->slots ||
           (oversubscribe && (site->most == 0 || site->ranks < site->most));
}

/* Return how many ranks all hosts can take. */
static long count_places(const struct twill_options *options, bool oversubscribe)
{
    long places = 0;
    for (int i = 0; i < options->sites; i++) {
        const struct twill_site *site = &options->site[i];
        places += !oversubscribe ? site->slots : site->most > 0 ? site->most : TWILL_MAX_RANKS;
    }
    return places;
}

/* Place ranks in ascending order by options->map.how. Ranks beyond the slots go round all hosts. */
static void ranks_place(struct twill_options *options, long slots)
{
    for (int rank = 0, at = 0; rank < twill_options_places(options); rank++) {
        bool over = rank >= slots;
        while (!has_place(&options->site[at], over))
            at = (at + 1) % options->sites;
        options->place[rank] = at;
        options->site[at].ranks++;
        if (options->map.how == TWILL_MAP_NODE || over || rank + 1 == slots)
            at = rank + 1 == slots ? 0 : (at + 1) % options->sites;
    }
}

/* Give each host as many places as --ppn has ranks for it. Returns false, after a message, if a
 * host was named with fewer places and --oversubscribe is not set, or its limit is lower. */
static bool give_places(struct twill_options *options)
{
    for (int i = 0; i < options->sites && options->map.ppn > 0; i++) {
        struct twill_site *site = &options->site[i];
        bool few = site->counted && site->slots < options->map.ppn && !options->oversubscribe;
        if (few || (site->most > 0 && site->most < options->map.ppn)) {
            int places = few ? site->slots : site->most;
            twill_complain("--ppn %d: host %s has places for %d rank%s", options->map.ppn,
                           site->name, places, TWILL_PLURAL(places));
            return false;
        }
        site->slots = options->map.ppn;
    }
    return true;
}

/* Check that no two names are of one host, as this would have the ranks of both. Returns false
 * after a message. */
static bool check_names(const struct twill_options *options)
{
    int local = 0;
    for (int i = 0; i < options->sites && options->map.ppn > 0; i++) {
        if (options->site[i].merged) {
            twill_complain("--ppn %d: hosts %s and %s are one host", options->map.ppn,
                           options->site[local].name, options->site[i].name);
            return false;
        }
        local = options->site[i].local ? i : local;
    }
    return true;
}

bool twill_sites_place(struct twill_options *options)
{
    if (!give_places(options))
        return false;
    long slots = count_places(options, false), most = count_places(options, true);
    if (options->ranks == 0)
        options->ranks = slots > TWILL_MAX_RANKS ? TWILL_MAX_RANKS : (int)slots;
    int ranks = twill_options_places(options);
    long places = options->oversubscribe ? most : slots;
    if (ranks > places) {
        twill_complain("%s%d: the hosts have places for %ld rank%s%s",
                       options->most > 0 ? "--elastic MIN:" : "-n ", ranks, places,
                       TWILL_PLURAL(places),
                       options->oversubscribe
                           ? " (max_slots)"
                           : " (--hosts NAME:RANKS,..., or --oversubscribe if more are intended)");
        return false;
    }
    options->place = calloc((size_t)ranks, sizeof(*options->place));
    if (!options->place) {
        twill_complain("no memory for %d ranks", ranks);
        return false;
    }
    ranks_place(options, slots);
    find_local(options);
    return check_names(options);
}

bool twill_site_is_used(const struct twill_options *options, int site)
{
    const struct twill_site *one = &options->site[site];
    return one->ranks > 0 || (options->most > 0 && !one->merged);
}

int twill_sites_only(const struct twill_options *options)
{
    int only = -1;
    for (int i = 0; i < options->sites; i++) {
        if (twill_site_is_used(options, i) && only >= 0)
            return -1;
        if (twill_site_is_used(options, i))
            only = i;
    }
    return only;
}
