/* SPDX-License-Identifier: Apache-2.0 */
/* The page: the result, problems and warnings with what to do, and a table of the hosts. */
#include "fabric/launcher/preflight/preflight_front.h"
#include "lib/base/plural.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MOST_NAMES 8 /* hosts that are named in a finding */

/* Write the names of a finding's hosts: "h0, h1 and 3 more: ". Empty for none. */
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

/* Write a number, or a dash if it is not known. */
static const char *number_text(char text[32], int64_t number)
{
    if (number < 0)
        return "-";
    snprintf(text, 32, "%" PRId64, number);
    return text;
}

static const char *limit_text(char text[32], int64_t number)
{
    return number < 0 ? "unlimited" : number_text(text, number);
}

static int find_width(const struct preflight *all)
{
    int width = 4;
    for (int i = 0; i < all->hosts; i++) {
        int length = (int)strlen(all->host[i].name);
        width = length > width ? length : width;
    }
    return width < 32 ? width : 32;
}

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

static void print_hosts(const struct preflight *all, FILE *out)
{
    int width = find_width(all);
    fprintf(out, "\n%-*s %5s %5s %8s %9s %9s %8s  %-12s %7s %6s %10s  %s\n", width, "host", "ranks",
            "cores", "memory", "memlock", "nofile", "shm free", "interface", "Mbit/s", "MTU",
            "clock", "libtwill");
    for (int i = 0; i < all->hosts; i++)
        print_host(&all->host[i], width, out);
}

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
