/* SPDX-License-Identifier: Apache-2.0 */
/* An agent of the preflight, which twillrun starts as the ranks of one host. All ranks report what
 * they are bound to. The first one answers the front's commands until its standard input ends:
 *
 *      clock                                     the time here
 *      listen NAME ...                           listen at the address towards the first of these
 *      connect HOST ADDRESS PORT ...             connect to each, and report the results */
#include "fabric/launcher/preflight/preflight_agent.h"
#include "fabric/host/local_address.h"
#include "fabric/launcher/preflight/preflight_wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define POLL_MS 50 /* how late a deadline may be noticed */

/* State of the agent on a host, a local variable of preflight_agent(). */
struct preflight_agent {
    struct preflight_facts facts;
    struct preflight_links links;
    bool connecting; /* a reply is due when all attempts are over */
    char *line;      /* [PREFLIGHT_LINE_MOST] the incomplete command */
    size_t used;
};

/* Print the facts as the reply of this name. */
static void say_facts(const struct preflight_agent *agent, const char *reply)
{
    struct json_object *object = json_object_new_object();
    preflight_put_text(object, "reply", reply);
    preflight_facts_put(object, &agent->facts);
    preflight_say(object);
}

/* Print the time of the real-time clock, in ns, as the reply to "clock". */
static void say_clock(void)
{
    struct json_object *object = json_object_new_object();
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    preflight_put_text(object, "reply", "clock");
    preflight_put_number(object, "now_ns", (int64_t)now.tv_sec * 1000000000 + now.tv_nsec);
    preflight_say(object);
}

/* Listen where a rank of this host would, by TWILL_INTERFACE or on the route to another host.
 * `names` lists those, separated by spaces, and the first that has an address counts. The list is
 * changed. Then print the facts, which have the address and port, or the error, as the reply. */
static void begin_listening(struct preflight_agent *agent, char *names)
{
    char peer[TWILL_ADDRESS_TEXT] = "", why[128], *rest = NULL;
    struct twill_error error = {0};
    struct preflight_facts *facts = &agent->facts;
    const char *requested = getenv("TWILL_INTERFACE");
    char address[TWILL_ADDRESS_TEXT] = "", interface[32] = "", faster[32];
    uint32_t mbits;
    for (char *name = strtok_r(names, " ", &rest); name && peer[0] == '\0';
         name = strtok_r(NULL, " ", &rest))
        twill_address_resolve(peer, name);
    if (twill_interface_choose(address, interface, requested, peer, why, sizeof(why), &error) !=
        TWILL_OK) {
        snprintf(facts->listen_error, sizeof(facts->listen_error), "%s", error.message);
    } else {
        snprintf(facts->address, sizeof(facts->address), "%s", address);
        snprintf(facts->interface, sizeof(facts->interface), "%s", interface);
        preflight_interface_find(facts, "");
        if ((requested == NULL || *requested == '\0') &&
            twill_interface_faster(faster, &mbits, interface)) {
            snprintf(facts->faster_interface, sizeof(facts->faster_interface), "%s", faster);
            facts->faster_mbits = mbits;
        }
        facts->port = preflight_links_listen(&agent->links, address);
        if (facts->port == 0)
            snprintf(facts->listen_error, sizeof(facts->listen_error), "cannot listen on %s: %s",
                     address, strerror(errno));
    }
    say_facts(agent, "listen");
}

/* Begin to connect to the hosts in "HOST ADDRESS PORT ...". finish_connecting() replies later. */
static void begin_connecting(struct preflight_agent *agent, char *words)
{
    char *rest = NULL, *host, *address, *port;
    for (char *next = words; (host = strtok_r(next, " ", &rest)); next = NULL) {
        address = strtok_r(NULL, " ", &rest);
        port = strtok_r(NULL, " ", &rest);
        if (!address || !port)
            break;
        (void)preflight_links_call(&agent->links, atoi(host), address, (uint16_t)atoi(port),
                                   agent->facts.address);
    }
    agent->connecting = true;
}

/* Print the results of all attempts as the reply to "connect", once all of them are over. */
static void finish_connecting(struct preflight_agent *agent)
{
    struct preflight_link result;
    if (!agent->connecting || preflight_links_pending(&agent->links) > 0)
        return;
    struct json_object *object = json_object_new_object(), *array = json_object_new_array();
    for (int i = 0; i < agent->links.attempts; i++) {
        struct json_object *one = json_object_new_object();
        preflight_put_number(one, "to", preflight_links_result(&agent->links, i, &result));
        preflight_put_number(one, "reach", result.reach);
        preflight_put_number(one, "error", result.error);
        preflight_put_number(one, "path_mtu", result.path_mtu);
        preflight_put_number(one, "took_us", result.took_us);
        json_object_array_add(array, one);
    }
    preflight_put_text(object, "reply", "connect");
    json_object_object_add(object, "links", array);
    preflight_say(object);
    preflight_links_clear(&agent->links);
    agent->connecting = false;
}

/* Do what one line from the front says. Other lines are ignored. */
static void handle_command(struct preflight_agent *agent, char *line)
{
    if (strcmp(line, "clock") == 0)
        say_clock();
    else if (strncmp(line, "listen", 6) == 0)
        begin_listening(agent, line + 6);
    else if (strncmp(line, "connect", 7) == 0)
        begin_connecting(agent, line + 7);
}

/* Read and handle commands. Returns false if the front has ended or sends too long a line. */
static bool read_commands(struct preflight_agent *agent)
{
    ssize_t n =
        read(STDIN_FILENO, agent->line + agent->used, PREFLIGHT_LINE_MOST - 1 - agent->used);
    if (n <= 0)
        return n < 0 && (errno == EAGAIN || errno == EINTR);
    agent->used += (size_t)n;
    agent->line[agent->used] = '\0';
    for (char *end; (end = strchr(agent->line, '\n'));) {
        *end = '\0';
        handle_command(agent, agent->line);
        agent->used -= (size_t)(end + 1 - agent->line);
        memmove(agent->line, end + 1, agent->used + 1);
    }
    return agent->used < PREFLIGHT_LINE_MOST - 1;
}

/* Handle commands and connections until the front ends. Returns the exit code. */
static int answer_front(struct preflight_agent *agent)
{
    for (;;) {
        size_t count = (size_t)preflight_links_count(&agent->links);
        struct pollfd *polls = calloc(count + 1, sizeof(*polls));
        if (!polls)
            return 1;
        polls[0] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
        preflight_links_polls(&agent->links, polls + 1);
        int ready = poll(polls, count + 1, agent->connecting ? POLL_MS : -1);
        bool more = true;
        if (ready > 0) {
            preflight_links_turn(&agent->links, polls + 1);
            more = polls[0].revents == 0 || read_commands(agent);
        }
        free(polls);
        if (!more || (ready < 0 && errno != EINTR))
            return more;
        finish_connecting(agent);
    }
}

/* Print a line of JSON to standard output. It has this process's LOCAL_RANK, the list of CPUs that
 * it may use, and the number of their cores, -1 if that is not known. */
static void say_rank(void)
{
    struct preflight_rank rank;
    struct json_object *object = json_object_new_object();
    const char *local = getenv("LOCAL_RANK");
    preflight_rank_find(&rank);
    preflight_put_text(object, "reply", "rank");
    preflight_put_number(object, "local_rank", local ? atoi(local) : 0);
    preflight_put_number(object, "cores", rank.known ? rank.cores : -1);
    preflight_put_text(object, "cpus", rank.cpus);
    preflight_say(object);
}

int preflight_agent(const char *program)
{
    struct preflight_agent agent = {.links = {.listener = -1}};
    const char *local = getenv("LOCAL_RANK");
    say_rank();
    if (local && strcmp(local, "0") != 0)
        return 0;
    agent.line = malloc(PREFLIGHT_LINE_MOST);
    if (!agent.line)
        return 1;
    agent.line[0] = '\0';
    preflight_facts_find(&agent.facts, program);
    say_facts(&agent, "facts");
    int code = answer_front(&agent);
    preflight_links_close(&agent.links);
    free(agent.line);
    return code;
}
