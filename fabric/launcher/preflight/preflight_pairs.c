/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of connections between hosts, of the cores of ranks, and of the test job. */
#include "fabric/launcher/preflight/preflight_front.h"
#include "lib/base/plural.h"

#include <stdlib.h>
#include <string.h>

#define TIMES_OFF      3  /* an outlier is off the median by this factor, */
#define DEVIATIONS_OFF 12 /* by this number of median deviations (8 standard deviations), */
#define MICROSECONDS   20 /* and a round trip by this time */
#define FEWEST         3  /* pairs of a kind to judge by */

/* --- connections ----------------------------------------------------------------------------- */

static void report_connection(struct preflight *all, int from, int to)
{
    const struct preflight_link *link = preflight_link_of(all, from, to);
    const char *name = all->host[to].name, *address = all->host[to].facts.address;
    bool back = preflight_link_of(all, to, from)->reach == PREFLIGHT_GOOD;
    const char *other = back ? "; the other direction works" : "";
    switch (link->reach) {
    case PREFLIGHT_GOOD:
    case PREFLIGHT_STALLED: /* preflight_check_data() reports it */
        return;
    case PREFLIGHT_DROPPED:
        preflight_add(all, PREFLIGHT_CONNECT, true, from,
                      "Let firewalls pass TCP between the hosts, at all ports that the kernel "
                      "chooses (net.ipv4.ip_local_port_range), and see that both have a route to "
                      "the other",
                      "no answer from %s (%s) within %g s: packets are dropped, on the way there "
                      "or back%s",
                      name, address, (double)PREFLIGHT_REACH_NS / 1e9, other);
        return;
    case PREFLIGHT_REFUSED:
        preflight_add(all, PREFLIGHT_CONNECT, true, from,
                      "Something on the way answers that the port is closed, though a program "
                      "listens: allow TCP between the hosts in the firewall",
                      "%s (%s) refuses connections%s", name, address, other);
        return;
    case PREFLIGHT_UNREACHABLE:
        preflight_add(all, PREFLIGHT_CONNECT, true, from,
                      "Look at the routes (ip route get ADDRESS), or name an interface that leads "
                      "to all hosts by TWILL_INTERFACE",
                      "no way to %s (%s): %s%s", name, address, strerror(link->error), other);
        return;
    default:
        preflight_add(
            all, PREFLIGHT_CONNECT, true, from, "Try again; if it stays, look at both hosts' logs",
            "cannot connect to %s (%s): %s%s", name, address,
            link->reach == PREFLIGHT_UNTRIED ? "the agent did not report" : strerror(link->error),
            other);
    }
}

/* Visit the connections of which both ends have answered. Returns whether there are any. */
static bool visit_links(struct preflight *all,
                        void (*visit)(struct preflight *all, int from, int to))
{
    bool some = false;
    for (int from = 0; from < all->hosts; from++)
        for (int to = 0; to < all->hosts; to++)
            if (preflight_link_counts(all, from, to)) {
                visit(all, from, to);
                some = true;
            }
    return some;
}

bool preflight_check_connect(struct preflight *all)
{
    return visit_links(all, report_connection);
}

static void report_data(struct preflight *all, int from, int to)
{
    if (preflight_link_of(all, from, to)->reach == PREFLIGHT_STALLED)
        preflight_add(all, PREFLIGHT_DATA, true, from,
                      "Large packets are lost: set one MTU on all interfaces and switches of the "
                      "path (ping -M do -s 1472 ADDRESS), and let ICMP pass",
                      "%s (%s) takes connections, but 64 KiB do not arrive there within %g s",
                      all->host[to].name, all->host[to].facts.address,
                      (double)PREFLIGHT_REACH_NS / 1e9);
}

bool preflight_check_data(struct preflight *all)
{
    return visit_links(all, report_data);
}

/* Return the MTU that most interfaces have; of equally frequent ones the largest. */
static int64_t usual_mtu(const struct preflight *all)
{
    int64_t usual = 0;
    int most = 0;
    for (int i = 0; i < all->hosts; i++) {
        int64_t mtu = all->host[i].facts.interface_mtu;
        int count = 0;
        for (int k = 0; k < all->hosts; k++)
            count += all->host[k].answered && all->host[k].facts.interface_mtu == mtu;
        if (all->host[i].answered && mtu > 0 && (count > most || (count == most && mtu > usual))) {
            most = count;
            usual = mtu;
        }
    }
    return usual;
}

static void report_path_mtu(struct preflight *all, int from, int to)
{
    const struct preflight_link *link = preflight_link_of(all, from, to);
    int64_t here = all->host[from].facts.interface_mtu, there = all->host[to].facts.interface_mtu;
    int64_t least = here < there ? here : there;
    if (link->path_mtu > 0 && link->path_mtu < least)
        preflight_add(all, PREFLIGHT_MTU, false, from,
                      "Give all routers and tunnels of the path the MTU of its ends",
                      "packets to %s have at most %d bytes, where both interfaces have an MTU of "
                      "%lld",
                      all->host[to].name, link->path_mtu, (long long)least);
}

bool preflight_check_mtu(struct preflight *all)
{
    int64_t usual = usual_mtu(all);
    for (int i = 0; i < all->hosts; i++) {
        const struct preflight_facts *facts = &all->host[i].facts;
        if (all->host[i].answered && facts->interface_mtu > 0 && facts->interface_mtu != usual)
            preflight_add(all, PREFLIGHT_MTU, false, i,
                          "ip link set INTERFACE mtu N, alike on all hosts",
                          "%s has an MTU of %lld, where other hosts have %lld", facts->interface,
                          (long long)facts->interface_mtu, (long long)usual);
    }
    (void)visit_links(all, report_path_mtu);
    return usual > 0;
}

/* --- cores ----------------------------------------------------------------------------------- */

/* Report ranks that may run on just the CPUs of rank `local`, if they are more than its cores. */
static void report_crowd(struct preflight *all, int host, int local)
{
    const struct preflight_rank *ranks = all->host[host].rank, *one = &ranks[local];
    int sharing = 0;
    for (int k = 0; k < all->host[host].ranks; k++) {
        bool same = ranks[k].known && strcmp(ranks[k].cpus, one->cpus) == 0;
        if (same && k < local)
            return; /* reported there */
        sharing += same;
    }
    if (sharing > one->cores)
        preflight_add(all, PREFLIGHT_BINDING, false, host,
                      "Start fewer ranks there: those that share a core wait for each other",
                      "%d ranks share %d core%s (CPUs %s)", sharing, one->cores,
                      TWILL_PLURAL(one->cores), one->cpus);
}

/* Report two ranks whose CPUs overlap without being equal. */
static void report_overlap(struct preflight *all, int host, int a, int b)
{
    const struct preflight_rank *ranks = all->host[host].rank;
    uint64_t left[PREFLIGHT_CPUS / 64], right[PREFLIGHT_CPUS / 64], both = 0;
    if (strcmp(ranks[a].cpus, ranks[b].cpus) == 0 || !preflight_cpus_parse(left, ranks[a].cpus) ||
        !preflight_cpus_parse(right, ranks[b].cpus))
        return;
    for (int i = 0; i < PREFLIGHT_CPUS / 64; i++)
        both |= left[i] & right[i];
    if (both != 0)
        preflight_add(all, PREFLIGHT_BINDING, false, host,
                      "Bind all ranks in one way (--bind core), or none",
                      "local ranks %d (CPUs %s) and %d (CPUs %s) overlap", a, ranks[a].cpus, b,
                      ranks[b].cpus);
}

bool preflight_check_binding(struct preflight *all)
{
    bool known = false;
    for (int i = 0; i < all->hosts; i++) {
        const struct preflight_host *host = &all->host[i];
        for (int a = 0; a < host->ranks && host->rank; a++) {
            if (!host->rank[a].known)
                continue;
            known = true;
            report_crowd(all, i, a);
            for (int b = a + 1; b < host->ranks; b++)
                if (host->rank[b].known)
                    report_overlap(all, i, a, b);
        }
    }
    return known;
}

/* --- the test job ---------------------------------------------------------------------------- */

bool preflight_check_job(struct preflight *all)
{
    const struct preflight_job *job = &all->job;
    if (job->skipped || job->ranks == 0)
        return false;
    if (!job->ran)
        preflight_add(all, PREFLIGHT_JOB, true, -1,
                      "The sentence is of twill or twillrun: docs/troubleshooting.md explains it",
                      "the test job failed: %s", job->error);
    if (job->wrong)
        preflight_add(all, PREFLIGHT_JOB, true, -1,
                      "Try TWILL_CHECKSUM=network, and a memory test: data is damaged on the way",
                      "the allreduce of the test job had a wrong result");
    return true;
}

/* Return what is compared: the round trip in us, or the time of a MB, as bandwidths end at 0. */
static double pair_cost(const struct preflight_pair *pair, bool bandwidth)
{
    return !bandwidth ? pair->round_trip_us : pair->megabytes > 0 ? 1 / pair->megabytes : 0;
}

static bool pair_is_inside(const struct preflight_job *job, const struct preflight_pair *pair)
{
    return job->host[pair->a] == job->host[pair->b];
}

bool preflight_spread_find(struct preflight_spread *spread, const struct preflight *all,
                           bool bandwidth, bool inside)
{
    const struct preflight_job *job = &all->job;
    double *value = malloc((job->pairs + 1) * sizeof(*value));
    *spread = (struct preflight_spread){.pairs = 0};
    for (size_t i = 0; i < job->pairs && value; i++)
        if (pair_is_inside(job, &job->pair[i]) == inside)
            value[spread->pairs++] = pair_cost(&job->pair[i], bandwidth);
    if (spread->pairs > 0) {
        spread->median = preflight_median(value, spread->pairs);
        spread->worst = value[spread->pairs - 1];
        spread->deviation = preflight_deviation(value, spread->pairs, spread->median);
    }
    free(value);
    return spread->pairs > 0;
}

static bool is_outlier(const struct preflight_spread *spread, double cost, bool bandwidth)
{
    return cost > TIMES_OFF * spread->median &&
           cost > spread->median + DEVIATIONS_OFF * spread->deviation &&
           (bandwidth || cost > spread->median + MICROSECONDS);
}

/* Report a pair of ranks, with its place. */
static void report_pair(struct preflight *all, const struct preflight_pair *pair, bool bandwidth,
                        const struct preflight_spread *spread)
{
    const int *host = all->job.host;
    const char *kind = host[pair->a] == host[pair->b] ? "on a host" : "between hosts";
    const char *a = all->host[host[pair->a]].name, *b = all->host[host[pair->b]].name;
    char value[32], median[32];
    preflight_measure(value, bandwidth ? pair->megabytes : pair->round_trip_us);
    preflight_measure(median, bandwidth ? 1 / spread->median : spread->median);
    if (bandwidth)
        preflight_add(all, PREFLIGHT_BANDWIDTH, false, -1,
                      "Look at duplex, speed and errors of both interfaces (ethtool -S), and at "
                      "what else runs there",
                      "ranks %d on %s and %d on %s exchange %s MB/s; the median of pairs %s is "
                      "%s MB/s",
                      pair->a, a, pair->b, b, value, kind, median);
    else
        preflight_add(all, PREFLIGHT_ROUND_TRIP, false, -1,
                      "Look at the path (tracepath), at what else runs on both hosts, and at "
                      "their power settings",
                      "ranks %d on %s and %d on %s have a round trip of %s us; the median of "
                      "pairs %s is %s us",
                      pair->a, a, pair->b, b, value, kind, median);
}

static bool is_same_path(const struct preflight_job *job, const struct preflight_pair *x,
                         const struct preflight_pair *y)
{
    return job->host[x->a] == job->host[y->a] && job->host[x->b] == job->host[y->b];
}

/* Of the outliers between two hosts, or on one, report the worst. */
static bool report_outliers(struct preflight *all, bool bandwidth)
{
    const struct preflight_job *job = &all->job;
    bool judged = false;
    for (int inside = 0; inside < 2; inside++) {
        struct preflight_spread spread;
        if (!preflight_spread_find(&spread, all, bandwidth, inside) || spread.pairs < FEWEST)
            continue;
        judged = true;
        for (size_t i = 0; i < job->pairs; i++) {
            const struct preflight_pair *pair = &job->pair[i];
            double value = pair_cost(pair, bandwidth);
            bool worst =
                pair_is_inside(job, pair) == inside && is_outlier(&spread, value, bandwidth);
            for (size_t k = 0; k < job->pairs && worst; k++) {
                double other = pair_cost(&job->pair[k], bandwidth);
                worst = k == i || other <= value || !is_same_path(job, pair, &job->pair[k]);
            }
            if (worst)
                report_pair(all, pair, bandwidth, &spread);
        }
    }
    return judged;
}

bool preflight_check_round_trip(struct preflight *all)
{
    return report_outliers(all, false);
}

bool preflight_check_bandwidth(struct preflight *all)
{
    return report_outliers(all, true);
}
