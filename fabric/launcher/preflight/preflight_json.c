/* SPDX-License-Identifier: Apache-2.0 */
/* The page as JSON. */
#include "fabric/launcher/preflight/preflight_front.h"
#include "fabric/launcher/preflight/preflight_wire.h"

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

/* Return the result of a check in a word. */
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
