/* SPDX-License-Identifier: Apache-2.0 */
/* The report of the preflight: a page with the findings and a table of hosts, or JSON. */
#include "fabric/launcher/preflight/preflight_front.h"
#include "lib/base/plural.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MOST_NAMES 8 /* most hosts that are named in a finding */

/* Write the names of a finding's hosts, such as "h0, h1 and 3 more: ". It is empty for none. */
static void list_hosts(const struct preflight *all, const bool *host, char *text, size_t bytes)
{
    int named = 0, total = 0;
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < all->hosts; i++)
        total += host[i];
    for (int i = 0; i < all->hosts && named < MOST_NAMES && used < bytes; i++)
        if (host[i])
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", named++ > 0 ? ", " : "",
                                     all->host[i].name);
    if (total > named && used < bytes)
        used += (size_t)snprintf(text + used, bytes - used, " and %d more", total - named);
    if (total > 0 && used < bytes)
        snprintf(text + used, bytes - used, ": ");
}

void preflight_title(const struct preflight *all, char *text, size_t bytes)
{
    size_t problems = preflight_count(all, true), warnings = preflight_count(all, false), used = 0;
    if (problems > 0)
        used = (size_t)snprintf(text, bytes, "%zu problem%s", problems, TWILL_PLURAL(problems));
    else
        used = (size_t)snprintf(text, bytes, "%d host%s, %d rank%s: ready", all->hosts,
                                TWILL_PLURAL(all->hosts), all->ranks, TWILL_PLURAL(all->ranks));
    if (warnings > 0 && used < bytes)
        snprintf(text + used, bytes - used, ", %zu warning%s", warnings, TWILL_PLURAL(warnings));
}

/* Print the problems, or the warnings, as a numbered list with advice. */
static void print_findings(const struct preflight *all, bool problems, FILE *out)
{
    char hosts[1024];
    int number = 0;
    if (preflight_count(all, problems) == 0)
        return;
    fprintf(out, "\n%s\n", problems ? "Problems" : "Warnings");
    for (size_t i = 0; i < all->findings; i++) {
        const struct preflight_finding *finding = &all->finding[i];
        if (finding->problem != problems)
            continue;
        list_hosts(all, finding->host, hosts, sizeof(hosts));
        fprintf(out, "%3d. %s%s (%s)\n     %s.\n", ++number, hosts, finding->what,
                preflight_checks[finding->check].name, finding->advice);
    }
}

/* Return a number as text, written into `text`, or "-" if it is negative, which means not known. */
static const char *number_text(char text[32], int64_t number)
{
    if (number < 0)
        return "-";
    snprintf(text, 32, "%" PRId64, number);
    return text;
}

/* Return a limit as text, "unlimited" if it is negative. */
static const char *limit_text(char text[32], int64_t number)
{
    return number < 0 ? "unlimited" : number_text(text, number);
}

/* Return the width of the column of host names, 4 .. 32. */
static int find_width(const struct preflight *all)
{
    int width = 4;
    for (int i = 0; i < all->hosts; i++) {
        int length = (int)strlen(all->host[i].name);
        width = length > width ? length : width;
    }
    return width < 32 ? width : 32;
}

/* Print the line of a host in the table. */
static void print_host(const struct preflight_host *host, int width, FILE *out)
{
    const struct preflight_facts *facts = &host->facts;
    char memory[32], locked[32], files[32], shm[32], speed[32], mtu[32], cores[32], clock[32] = "-";
    if (!host->answered) {
        fprintf(out, "%-*.32s %5d  no answer\n", width, host->name, host->ranks);
        return;
    }
    if (facts->clock_error_ns >= 0)
        snprintf(clock, sizeof(clock), "%+.1f ms",
                 llabs(facts->clock_ns) < 50000 ? 0.0 : (double)facts->clock_ns / 1e6);
    bool known = host->rank && host->rank[0].known;
    fprintf(out, "%-*.32s %5d %5s %8s %9s %9s %8s  %-12.12s %7s %6s %10s  %.8s\n", width,
            host->name, host->ranks, number_text(cores, known ? host->rank[0].cores : -1),
            preflight_bytes(memory, facts->memory_limit_bytes >= 0 ? facts->memory_limit_bytes
                                                                   : facts->memory_bytes),
            preflight_bytes(locked, facts->memlock_bytes), limit_text(files, facts->nofile),
            facts->shm_bytes < 0 ? "-" : preflight_bytes(shm, facts->shm_free_bytes),
            facts->interface[0] != '\0' ? facts->interface : "-",
            number_text(speed, facts->interface_mbits), number_text(mtu, facts->interface_mtu),
            clock, facts->library_digest);
}

/* Print the table of hosts. */
static void print_hosts(const struct preflight *all, FILE *out)
{
    int width = find_width(all);
    fprintf(out, "\n%-*s %5s %5s %8s %9s %9s %8s  %-12s %7s %6s %10s  %s\n", width, "host", "ranks",
            "cores", "memory", "memlock", "nofile", "shm free", "interface", "Mbit/s", "MTU",
            "clock", "libtwill");
    for (int i = 0; i < all->hosts; i++)
        print_host(&all->host[i], width, out);
}

/* Print the times of the test job, if it ran. */
static void print_job(const struct preflight *all, FILE *out)
{
    const struct preflight_job *job = &all->job;
    char text[4][32];
    if (!job->ran)
        return;
    fprintf(out, "\nTest job of %d rank%s: an allreduce of 8 bytes takes %s us.\n", job->ranks,
            TWILL_PLURAL(job->ranks), preflight_measure(text[0], job->allreduce_us));
    for (int inside = 1; inside >= 0; inside--) {
        struct preflight_spread trip, rate;
        if (!preflight_spread_find(&trip, all, false, inside) ||
            !preflight_spread_find(&rate, all, true, inside))
            continue;
        fprintf(out, "%zu pair%s of ranks %s: round trip %s us (worst %s), %s MB/s (worst %s).\n",
                trip.pairs, TWILL_PLURAL(trip.pairs), inside ? "on a host" : "between hosts",
                preflight_measure(text[0], trip.median), preflight_measure(text[1], trip.worst),
                preflight_measure(text[2], 1 / rate.median),
                preflight_measure(text[3], 1 / rate.worst));
    }
}

/* Print which checks had nothing to look at, if any. */
static void print_unchecked(const struct preflight *all, FILE *out)
{
    int count = 0;
    for (int i = 0; i < PREFLIGHT_CHECK_COUNT; i++)
        if (!all->checked[i])
            fprintf(out, "%s%s",
                    count++ == 0 ? "\nNot checked, as there is nothing to look at: " : ", ",
                    preflight_checks[i].name);
    if (count > 0)
        fputs(".\n", out);
}

int preflight_print_page(const struct preflight *all, FILE *out)
{
    char title[128];
    preflight_title(all, title, sizeof(title));
    fprintf(out, "%s\n", title);
    print_findings(all, true, out);
    print_findings(all, false, out);
    print_hosts(all, out);
    print_job(all, out);
    print_unchecked(all, out);
    return preflight_count(all, true) > 0;
}

/* Return a new array with the problems, or the warnings. */
static struct json_object *findings_json(const struct preflight *all, bool problems)
{
    struct json_object *array = json_object_new_array();
    for (size_t i = 0; i < all->findings; i++) {
        const struct preflight_finding *finding = &all->finding[i];
        if (finding->problem != problems)
            continue;
        struct json_object *one = json_object_new_object(), *hosts = json_object_new_array();
        for (int k = 0; k < all->hosts; k++)
            if (finding->host[k])
                json_object_array_add(hosts, json_object_new_string(all->host[k].name));
        preflight_put_text(one, "check", preflight_checks[finding->check].name);
        json_object_object_add(one, "hosts", hosts);
        preflight_put_text(one, "what", finding->what);
        preflight_put_text(one, "advice", finding->advice);
        json_object_array_add(array, one);
    }
    return array;
}

/* Return the result of a check in a word. It is "problem" if it has found a problem, else "warning"
 * if it has found anything. Else it is "good", or "not checked" if it was not made. */
static const char *check_state(const struct preflight *all, int check)
{
    const char *state = all->checked[check] ? "good" : "not checked";
    for (size_t i = 0; i < all->findings; i++) {
        if ((int)all->finding[i].check != check)
            continue;
        if (all->finding[i].problem)
            return "problem";
        state = "warning";
    }
    return state;
}

/* Return a new object with the result of each check. */
static struct json_object *checks_json(const struct preflight *all)
{
    struct json_object *object = json_object_new_object();
    for (int i = 0; i < PREFLIGHT_CHECK_COUNT; i++) {
        struct json_object *one = json_object_new_object();
        preflight_put_text(one, "state", check_state(all, i));
        preflight_put_text(one, "help", preflight_checks[i].help);
        json_object_object_add(object, preflight_checks[i].name, one);
    }
    return object;
}

/* Return a new array with the connections from host `from` to each other host, if both have
 * answered and listen. */
static struct json_object *links_json(const struct preflight *all, int from)
{
    struct json_object *array = json_object_new_array();
    for (int to = 0; to < all->hosts; to++) {
        const struct preflight_link *link = preflight_link_of(all, from, to);
        if (!preflight_link_counts(all, from, to))
            continue;
        struct json_object *one = json_object_new_object();
        preflight_put_text(one, "to", all->host[to].name);
        preflight_put_text(one, "result", preflight_reach_name(link->reach));
        preflight_put_number(one, "connect_us", link->took_us);
        preflight_put_number(one, "path_mtu", link->path_mtu);
        json_object_array_add(array, one);
    }
    return array;
}

/* Return a new array with the hosts. */
static struct json_object *hosts_json(const struct preflight *all)
{
    struct json_object *array = json_object_new_array();
    for (int i = 0; i < all->hosts; i++) {
        const struct preflight_host *host = &all->host[i];
        struct json_object *one = json_object_new_object(), *ranks = json_object_new_array();
        preflight_put_text(one, "name", host->name);
        json_object_object_add(one, "answered", json_object_new_boolean(host->answered));
        if (!host->answered)
            preflight_put_text(one, "error", host->error);
        else
            preflight_facts_put(one, &host->facts);
        for (int k = 0; k < host->ranks && host->rank; k++) {
            struct json_object *rank = json_object_new_object();
            preflight_put_number(rank, "cores", host->rank[k].known ? host->rank[k].cores : -1);
            preflight_put_text(rank, "cpus", host->rank[k].cpus);
            json_object_array_add(ranks, rank);
        }
        json_object_object_add(one, "ranks", ranks);
        json_object_object_add(one, "connections", links_json(all, i));
        json_object_array_add(array, one);
    }
    return array;
}

/* Return a new object with the results of the test job, among them an array of the pairs of ranks
 * with their times. */
static struct json_object *job_json(const struct preflight *all)
{
    const struct preflight_job *job = &all->job;
    struct json_object *object = json_object_new_object(), *pairs = json_object_new_array();
    json_object_object_add(object, "ran", json_object_new_boolean(job->ran));
    preflight_put_number(object, "ranks", job->ranks);
    preflight_put_real(object, "allreduce_us", job->allreduce_us);
    for (size_t i = 0; i < job->pairs; i++) {
        const struct preflight_pair *pair = &job->pair[i];
        struct json_object *one = json_object_new_object();
        preflight_put_number(one, "a", pair->a);
        preflight_put_number(one, "b", pair->b);
        preflight_put_text(one, "host_a", all->host[job->host[pair->a]].name);
        preflight_put_text(one, "host_b", all->host[job->host[pair->b]].name);
        preflight_put_real(one, "round_trip_us", pair->round_trip_us);
        preflight_put_real(one, "megabytes_per_second", pair->megabytes);
        json_object_array_add(pairs, one);
    }
    json_object_object_add(object, "pairs", pairs);
    return object;
}

int preflight_print_json(const struct preflight *all, FILE *out)
{
    struct json_object *object = json_object_new_object();
    char title[128];
    preflight_title(all, title, sizeof(title));
    preflight_put_text(object, "result", title);
    json_object_object_add(object, "ready",
                           json_object_new_boolean(preflight_count(all, true) == 0));
    preflight_put_number(object, "host_count", all->hosts);
    preflight_put_number(object, "rank_count", all->ranks);
    json_object_object_add(object, "problems", findings_json(all, true));
    json_object_object_add(object, "warnings", findings_json(all, false));
    json_object_object_add(object, "checks", checks_json(all));
    json_object_object_add(object, "hosts", hosts_json(all));
    json_object_object_add(object, "job", job_json(all));
    fprintf(out, "%s\n",
            json_object_to_json_string_ext(object, JSON_C_TO_STRING_PRETTY |
                                                       JSON_C_TO_STRING_NOSLASHESCAPE));
    json_object_put(object);
    return preflight_count(all, true) > 0;
}
