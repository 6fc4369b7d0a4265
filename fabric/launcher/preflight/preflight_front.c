/* SPDX-License-Identifier: Apache-2.0 */
/* The front of the preflight. It starts an agent on each host with a separate twillrun, so that a
 * host that does not answer holds up no other, and asks them. Then it runs the test job. */
#include "fabric/launcher/preflight/preflight_front.h"
#include "fabric/host/local_address.h"
#include "lib/base/base.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FACTS_NS     (10 * PREFLIGHT_SECOND_NS) /* for facts, after twillrun's own limit */
#define REPLY_NS     (10 * PREFLIGHT_SECOND_NS) /* for a reply; name servers may be slow */
#define CLOCK_NS     (3 * PREFLIGHT_SECOND_NS)
#define CLOCK_ROUNDS 5
#define JOB_NS       (60 * PREFLIGHT_SECOND_NS) /* for the job, after twillrun's own limit */
#define JOB_TIMEOUT  "20" /* seconds, its TWILL_TIMEOUT unless the user has set it */

/* A running preflight, a local variable of preflight_collect(). */
struct preflight_front {
    struct preflight *all;
    const struct preflight_request *request;
    struct preflight_program *program; /* [hosts] */
};

/* The arguments of a twillrun, each allocated, until free_words(). */
struct words {
    char **word; /* NULL-terminated */
    size_t count;
    bool failed; /* there was no memory */
};
static void add_word(struct words *words, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Append a formatted word, or set words->failed if there is no memory. */
static void add_word(struct words *words, const char *format, ...)
{
    char *text = NULL, **more;
    va_list list;
    va_start(list, format);
    if (vasprintf(&text, format, list) < 0)
        text = NULL;
    va_end(list);
    more = realloc(words->word, (words->count + 2) * sizeof(*more));
    if (!text || !more) {
        free(text);
        words->word = more ? more : words->word;
        words->failed = true;
        return;
    }
    words->word = more;
    more[words->count++] = text;
    more[words->count] = NULL;
}

/* Free all words and their list. */
static void free_words(struct words *words)
{
    for (size_t i = 0; i < words->count; i++)
        free(words->word[i]);
    free(words->word);
}

/* Append a host as HOST:RANKS to a list for twillrun. */
static void add_site(char *list, size_t bytes, const struct preflight_host *host)
{
    size_t used = strlen(list);
    bool six = strchr(host->name, ':') != NULL;
    snprintf(list + used, bytes - used, "%s%s%s%s:%d", used > 0 ? "," : "", six ? "[" : "",
             host->name, six ? "]" : "", host->ranks);
}

/* Start a twillrun on the hosts `sites`, a list as of --hosts. Its ranks run request->worker with
 * the argument `role`, "--agent" or "--ranks", and then `argument` unless that is NULL. Returns
 * true, or false with errno set. */
static bool start_twillrun(struct preflight_program *program,
                           const struct preflight_request *request, const char *sites,
                           const char *role, const char *argument)
{
    const char *const mine[] = {"--hosts", sites, "--", request->worker, role, argument};
    struct words words = {.count = 0};
    add_word(&words, "%s", request->launcher);
    for (char **word = request->common; *word; word++)
        add_word(&words, "%s", *word);
    add_word(&words, "--label"); /* whole lines, with their ranks */
    add_word(&words, "--grace");
    add_word(&words, "0.5");
    add_word(&words, "--timeout");
    add_word(&words, "%g", request->timeout);
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(mine) && mine[i]; i++)
        add_word(&words, "%s", mine[i]);
    bool good = !words.failed &&
                preflight_program_start(program, (const char *const *)words.word, &request->files);
    free_words(&words);
    return good;
}

/* Return the time of the real-time clock in ns. */
static int64_t real_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Keep the difference of a clock from the round that took the shortest time. */
static void take_clock(struct preflight_front *front, int host, int64_t there_ns)
{
    struct preflight_facts *facts = &front->all->host[host].facts;
    int64_t half_ns = (int64_t)(twill_now() - front->program[host].sent_ns) / 2;
    if (facts->clock_error_ns >= 0 && half_ns >= facts->clock_error_ns)
        return;
    facts->clock_error_ns = half_ns;
    facts->clock_ns = there_ns - front->program[host].sent_real_ns - half_ns;
}

/* Store what a rank reports about its CPUs, unless its number is invalid. */
static void take_rank(struct preflight_host *host, const struct json_object *object)
{
    int64_t local = preflight_get_number(object, "local_rank", -1);
    if (local < 0 || local >= host->ranks)
        return;
    struct preflight_rank *rank = &host->rank[local];
    rank->cores = (int)preflight_get_number(object, "cores", -1);
    rank->known = rank->cores >= 0;
    snprintf(rank->cpus, sizeof(rank->cpus), "%s", preflight_get_text(object, "cpus"));
    twill_text_plain(rank->cpus, strlen(rank->cpus));
}

/* Store the results of the connections from a host. Invalid ones are ignored. */
static void take_links(struct preflight *all, int from, const struct json_object *object)
{
    struct json_object *array = preflight_get_array(object, "links");
    for (size_t i = 0; array && i < json_object_array_length(array); i++) {
        struct json_object *one = json_object_array_get_idx(array, i);
        int64_t to = preflight_get_number(one, "to", -1);
        int64_t reach = preflight_get_number(one, "reach", PREFLIGHT_UNTRIED);
        if (to < 0 || to >= all->hosts || reach < PREFLIGHT_UNTRIED || reach > PREFLIGHT_FAILED)
            continue;
        *preflight_link_of(all, from, (int)to) = (struct preflight_link){
            .reach = (enum preflight_reach)reach,
            .error = (int)preflight_get_number(one, "error", 0),
            .path_mtu = (int)preflight_get_number(one, "path_mtu", 0),
            .took_us = preflight_get_number(one, "took_us", 0),
        };
    }
}

/* Store the reply of an agent, and count it. Other lines are ignored. `user` is the front. */
static void take_reply(void *user, int index, int rank, struct json_object *object)
{
    struct preflight_front *front = user;
    struct preflight_host *host = &front->all->host[index];
    const char *reply = preflight_get_text(object, "reply");
    (void)rank;
    if (strcmp(reply, "rank") == 0) {
        take_rank(host, object);
    } else if (strcmp(reply, "facts") == 0) {
        preflight_facts_get(object, &host->facts);
        host->answered = true;
    } else if (strcmp(reply, "listen") == 0) {
        int64_t clock_ns = host->facts.clock_ns, error_ns = host->facts.clock_error_ns;
        preflight_facts_get(object, &host->facts);
        host->facts.clock_ns = clock_ns;
        host->facts.clock_error_ns = error_ns;
    } else if (strcmp(reply, "clock") == 0) {
        take_clock(front, index, preflight_get_number(object, "now_ns", 0));
    } else if (strcmp(reply, "connect") == 0) {
        take_links(front->all, index, object);
    } else {
        return;
    }
    front->program[index].owed--;
}

/* Wait up to time_ns for all replies. Clear `answered` of each host that still owes one then, so
 * that it is not asked again. If it has answered before, also set its `error`. */
static void await_replies(struct preflight_front *front, uint64_t time_ns)
{
    preflight_programs_wait(front->program, front->all->hosts, twill_now() + time_ns, take_reply,
                            front);
    for (int i = 0; i < front->all->hosts; i++) {
        struct preflight_host *host = &front->all->host[i];
        if (front->program[i].owed > 0 && host->answered)
            snprintf(host->error, sizeof(host->error), "it stopped answering during the check");
        host->answered = host->answered && front->program[i].owed == 0;
        front->program[i].owed = 0;
    }
}

/* Start, for each host, a twillrun on this host that runs this program there as the agent. Returns
 * false, after a message, if one cannot be started. preflight_programs_end() ends the others. */
static bool start_agents(struct preflight_front *front)
{
    for (int i = 0; i < front->all->hosts; i++) {
        char site[PREFLIGHT_TEXT + 32] = "";
        add_site(site, sizeof(site), &front->all->host[i]);
        if (!start_twillrun(&front->program[i], front->request, site, "--agent",
                            front->request->program)) {
            fprintf(stderr, "twillrun --check: cannot start %s: %s\n", front->request->launcher,
                    strerror(errno));
            return false;
        }
        front->program[i].owed = front->all->host[i].ranks + 1;
    }
    return true;
}

/* Ask each host for the time, which it answers at once, CLOCK_ROUNDS times, and wait for the
 * replies. take_clock() keeps the best of each host. */
static void ask_clocks(struct preflight_front *front)
{
    for (int round = 0; round < CLOCK_ROUNDS; round++) {
        for (int i = 0; i < front->all->hosts; i++) {
            if (!front->all->host[i].answered)
                continue;
            front->program[i].owed = 1;
            front->program[i].sent_ns = twill_now();
            front->program[i].sent_real_ns = real_now();
            preflight_program_tell(&front->program[i], "clock\n");
        }
        await_replies(front, CLOCK_NS);
    }
}

/* Make hosts first .. last - 1 listen at the address on their route to the host `towards`, or to
 * any of the other hosts if that is empty. Waits for their replies. */
static void ask_to_listen(struct preflight_front *front, int first, int last, const char *towards)
{
    const struct preflight *all = front->all;
    for (int i = first; i < last; i++) {
        struct words line = {.count = 0};
        char mine[TWILL_HOST_TEXT];
        if (!all->host[i].answered)
            continue;
        preflight_program_tell(&front->program[i], "listen");
        if (towards[0] != '\0')
            add_word(&line, " %s", towards);
        for (int k = 0; k < all->hosts && towards[0] == '\0'; k++)
            if (k != i)
                add_word(&line, " %s", twill_host_alias(all->host[k].name, mine));
        for (size_t k = 0; k < line.count; k++)
            preflight_program_tell(&front->program[i], line.word[k]);
        preflight_program_tell(&front->program[i], "\n");
        free_words(&line);
        front->program[i].owed = 1;
    }
    await_replies(front, REPLY_NS);
}

/* Make every host connect to every other, and wait for the results. */
static void ask_to_connect(struct preflight_front *front)
{
    const struct preflight *all = front->all;
    char one[PREFLIGHT_TEXT + 64];
    for (int i = 0; i < all->hosts; i++) {
        if (!all->host[i].answered || all->host[i].facts.port <= 0)
            continue;
        preflight_program_tell(&front->program[i], "connect");
        for (int k = 0; k < all->hosts; k++) {
            const struct preflight_facts *facts = &all->host[k].facts;
            if (k == i || !all->host[k].answered || facts->port <= 0)
                continue;
            snprintf(one, sizeof(one), " %d %s %d", k, facts->address, (int)facts->port);
            preflight_program_tell(&front->program[i], one);
        }
        preflight_program_tell(&front->program[i], "\n");
        front->program[i].owed = 1;
    }
    await_replies(front, 2 * PREFLIGHT_REACH_NS + REPLY_NS);
}

/* Return how many connections between a host and the chosen ones do not work. Each pair of hosts
 * has two, one from either end. */
static int count_broken(const struct preflight *all, const bool *chosen, int host)
{
    int broken = 0;
    for (int k = 0; k < all->hosts; k++)
        if (k != host && chosen[k])
            broken += (preflight_link_of(all, host, k)->reach != PREFLIGHT_GOOD) +
                      (preflight_link_of(all, k, host)->reach != PREFLIGHT_GOOD);
    return broken;
}

int preflight_job_choose(const struct preflight *all, bool *chosen)
{
    int ranks = 0;
    for (int i = 0; i < all->hosts; i++)
        chosen[i] = all->host[i].answered;
    for (int worst = 0; worst >= 0;) {
        int most = 0;
        worst = -1;
        for (int i = 0; i < all->hosts; i++) {
            int broken = chosen[i] ? count_broken(all, chosen, i) : 0;
            if (broken > 0 && broken >= most) {
                most = broken;
                worst = i;
            }
        }
        if (worst >= 0)
            chosen[worst] = false;
    }
    for (int i = 0; i < all->hosts; i++)
        ranks += chosen[i] ? all->host[i].ranks : 0;
    return ranks;
}

/* The job whose ranks reply, a local variable of read_job(). */
struct job_reader {
    struct preflight_job *job;
    struct preflight_program program;
    bool *replied; /* [ranks] */
    int replies;
};

/* Append the pairs of ranks that a rank of the test job has timed. */
static void take_pairs(struct preflight_job *job, int rank, const struct json_object *object)
{
    struct json_object *array = preflight_get_array(object, "pairs");
    size_t more = array ? json_object_array_length(array) : 0;
    if (more == 0)
        return;
    struct preflight_pair *pair = realloc(job->pair, (job->pairs + more) * sizeof(*pair));
    if (!pair)
        return;
    job->pair = pair;
    for (size_t i = 0; i < more; i++) {
        struct json_object *one = json_object_array_get_idx(array, i);
        int64_t with = preflight_get_number(one, "with", -1);
        if (with > rank && with < job->ranks)
            pair[job->pairs++] =
                (struct preflight_pair){.a = rank,
                                        .b = (int)with,
                                        .round_trip_us = preflight_get_real(one, "round_trip_us"),
                                        .megabytes = preflight_get_real(one, "megabytes")};
    }
}

/* Store the results in a rank's first reply of kind "job", and count the reply. Other lines are
 * ignored. `user` is the struct job_reader, and `index` is not used. */
static void take_result(void *user, int index, int rank, struct json_object *object)
{
    struct job_reader *reader = user;
    (void)index;
    if (strcmp(preflight_get_text(object, "reply"), "job") != 0 || rank >= reader->job->ranks ||
        reader->replied[rank])
        return;
    reader->replied[rank] = true;
    reader->replies++;
    reader->program.owed--;
    double allreduce_us = preflight_get_real(object, "allreduce_us");
    if (allreduce_us > reader->job->allreduce_us)
        reader->job->allreduce_us = allreduce_us;
    reader->job->wrong = reader->job->wrong || preflight_get_number(object, "wrong", 1) != 0;
    take_pairs(reader->job, rank, object);
}

/* Return the chosen hosts as a list for twillrun, which the caller frees, or NULL if there is no
 * memory. Also sets all->job.host[], as twillrun fills the hosts in order. */
static char *list_sites(struct preflight *all, const bool *chosen)
{
    size_t bytes = (size_t)all->hosts * (PREFLIGHT_TEXT + 16) + 1;
    char *sites = calloc(bytes, 1);
    int rank = 0;
    for (int i = 0; sites && i < all->hosts; i++) {
        if (!chosen[i])
            continue;
        add_site(sites, bytes, &all->host[i]);
        for (int k = 0; k < all->host[i].ranks; k++)
            all->job.host[rank++] = i;
    }
    return sites;
}

/* Run the test job on these sites, and store its results, or why it failed, in all->job. */
static void read_job(struct preflight *all, const struct preflight_request *request,
                     const char *sites)
{
    struct preflight_job *job = &all->job;
    struct job_reader reader = {.job = job};
    reader.replied = calloc((size_t)job->ranks, sizeof(*reader.replied));
    (void)setenv("TWILL_TIMEOUT", JOB_TIMEOUT, 0); /* twillrun sends it to the hosts */
    bool good = reader.replied && start_twillrun(&reader.program, request, sites, "--ranks", NULL);
    if (!good) {
        snprintf(job->error, sizeof(job->error), "cannot start twillrun: %s", strerror(errno));
        free(reader.replied);
        return;
    }
    reader.program.owed = job->ranks;
    preflight_programs_wait(&reader.program, 1,
                            twill_now() + (uint64_t)(request->timeout * 1e9) + JOB_NS, take_result,
                            &reader);
    job->ran = reader.replies == job->ranks;
    bool ended = reader.program.over;
    preflight_programs_end(&reader.program, 1, job->ran ? 10 * PREFLIGHT_SECOND_NS : 0);
    if (!job->ran) {
        preflight_program_said(&reader.program, "", job->error, sizeof(job->error));
        if (job->error[0] == '\0')
            snprintf(job->error, sizeof(job->error), "%d of %d ranks have reported%s",
                     reader.replies, job->ranks, ended ? "" : " in time");
    }
    free(reader.replied);
}

/* Choose the hosts of the test job and run it, or record why not. */
static void run_job(struct preflight *all, const struct preflight_request *request)
{
    struct preflight_job *job = &all->job;
    bool *chosen = calloc((size_t)all->hosts, sizeof(*chosen));
    job->ranks = chosen ? preflight_job_choose(all, chosen) : 0;
    job->host = calloc((size_t)job->ranks + 1, sizeof(*job->host));
    char *sites = chosen && job->host ? list_sites(all, chosen) : NULL;
    if (!sites)
        all->no_memory = true;
    else if (job->ranks == 0)
        job->skipped = "no host answered";
    else
        read_job(all, request, sites);
    free(sites);
    free(chosen);
}

/* Store the hosts' facts, clocks and connections, as the agents report them, in front->all. If
 * there is one host or none answers, no connections are made. */
static void ask_agents(struct preflight_front *front)
{
    const struct preflight *all = front->all;
    int first = 0;
    await_replies(front, (uint64_t)(front->request->timeout * 1e9) + FACTS_NS);
    ask_clocks(front);
    while (first < all->hosts && !all->host[first].answered)
        first++;
    if (all->hosts == 1 || first == all->hosts)
        return;
    /* As with twillrun, rank 0's host takes the way to any other, and these the way to it. */
    ask_to_listen(front, first, first + 1, "");
    ask_to_listen(front, first + 1, all->hosts, all->host[first].facts.address);
    ask_to_connect(front);
}

/* Record which hosts are still silent, before their twillruns are ended. */
static void note_silence(struct preflight_front *front)
{
    for (int i = 0; i < front->all->hosts; i++) {
        struct preflight_host *host = &front->all->host[i];
        if (!host->answered && host->error[0] == '\0' && !front->program[i].over)
            snprintf(host->error, sizeof(host->error),
                     "twillrun started the check's agent there, but that said nothing within %g s",
                     (double)FACTS_NS / 1e9);
    }
}

/* Set host->error of each host that has not answered and has no error yet. It becomes what its
 * twillrun, which has ended, wrote to standard error, or says that it wrote nothing. */
static void explain_silence(struct preflight_front *front)
{
    for (int i = 0; i < front->all->hosts; i++) {
        struct preflight_host *host = &front->all->host[i];
        if (host->answered || host->error[0] != '\0')
            continue;
        preflight_program_said(&front->program[i], host->name, host->error, sizeof(host->error));
        if (host->error[0] == '\0')
            snprintf(host->error, sizeof(host->error), "its twillrun ended without a message");
    }
}

bool preflight_collect(struct preflight *all, const struct preflight_request *request)
{
    struct preflight_front front = {.all = all, .request = request};
    size_t hosts = (size_t)all->hosts;
    front.program = calloc(hosts, sizeof(*front.program));
    bool good = front.program != NULL;
    for (size_t i = 0; good && i < hosts; i++)
        front.program[i] = (struct preflight_program){.in = -1, .out = -1, .err = -1, .over = true};
    good = good && start_agents(&front);
    if (good)
        ask_agents(&front);
    if (good)
        note_silence(&front);
    if (front.program)
        preflight_programs_end(front.program, all->hosts, PREFLIGHT_SECOND_NS);
    if (good)
        explain_silence(&front);
    free(front.program);
    if (good)
        run_job(all, request);
    return good;
}
