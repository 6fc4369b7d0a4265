/* SPDX-License-Identifier: Apache-2.0 */
/* The front: starts an agent on each host by a twillrun of its own, so that one host that does not
 * answer does not keep the others from it, and asks them in turn. */
#include "fabric/launcher/preflight/preflight_front.h"
#include "lib/base/base.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FACTS_NS                                                                                   \
    (10 * PREFLIGHT_SECOND_NS) /* for facts, after twillrun's own limit for an answer */
#define REPLY_NS     (10 * PREFLIGHT_SECOND_NS) /* for a reply; name servers may be slow */
#define CLOCK_NS     (3 * PREFLIGHT_SECOND_NS)
#define CLOCK_ROUNDS 5

/* A preflight as it runs. A local variable of preflight_collect(). */
struct preflight_front {
    struct preflight *all;
    const struct preflight_request *request;
    struct preflight_program *program; /* [hosts] */
    uint64_t *sent_ns;                 /* [hosts] when the clock was asked for */
    int64_t *sent_real_ns;             /* [hosts] the same by this host's clock */
};

/* --- arguments ------------------------------------------------------------------------------- */

void preflight_words_add(struct preflight_words *words, const char *format, ...)
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

void preflight_words_free(struct preflight_words *words)
{
    for (size_t i = 0; i < words->count; i++)
        free(words->word[i]);
    free(words->word);
}

void preflight_words_begin(struct preflight_words *words, const struct preflight_request *request)
{
    *words = (struct preflight_words){.count = 0};
    preflight_words_add(words, "%s", request->launcher);
    for (char **word = request->common; *word; word++)
        preflight_words_add(words, "%s", *word);
    preflight_words_add(words, "--label"); /* whole lines, with their ranks */
    preflight_words_add(words, "--grace");
    preflight_words_add(words, "0.5");
    preflight_words_add(words, "--timeout");
    preflight_words_add(words, "%g", request->timeout);
}

void preflight_site_add(char *list, size_t bytes, const struct preflight_host *host)
{
    size_t used = strlen(list);
    bool six = strchr(host->name, ':') != NULL;
    snprintf(list + used, bytes - used, "%s%s%s%s:%d", used > 0 ? "," : "", six ? "[" : "",
             host->name, six ? "]" : "", host->ranks);
}

/* --- replies --------------------------------------------------------------------------------- */

static int64_t real_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Keep the clock's difference of the round with the shortest way. */
static void take_clock(struct preflight_front *front, int host, int64_t there_ns)
{
    struct preflight_facts *facts = &front->all->host[host].facts;
    int64_t half_ns = (int64_t)(twill_now() - front->sent_ns[host]) / 2;
    if (facts->clock_error_ns >= 0 && half_ns >= facts->clock_error_ns)
        return;
    facts->clock_error_ns = half_ns;
    facts->clock_ns = there_ns - front->sent_real_ns[host] - half_ns;
}

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

/* Wait for replies. A host that owes one in the end is not asked again. */
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

/* --- questions ------------------------------------------------------------------------------- */

static bool start_agents(struct preflight_front *front)
{
    for (int i = 0; i < front->all->hosts; i++) {
        struct preflight_words words;
        char site[PREFLIGHT_TEXT + 32] = "";
        preflight_site_add(site, sizeof(site), &front->all->host[i]);
        preflight_words_begin(&words, front->request);
        preflight_words_add(&words, "--hosts");
        preflight_words_add(&words, "%s", site);
        preflight_words_add(&words, "--");
        preflight_words_add(&words, "%s", front->request->worker);
        preflight_words_add(&words, "--agent");
        if (front->request->program)
            preflight_words_add(&words, "%s", front->request->program);
        bool good = !words.failed &&
                    preflight_program_start(&front->program[i], (const char *const *)words.word,
                                            &front->request->files);
        front->program[i].owed = front->all->host[i].ranks + 1;
        preflight_words_free(&words);
        if (!good) {
            fprintf(stderr, "twillrun --check: cannot start %s: %s\n", front->request->launcher,
                    strerror(errno));
            return false;
        }
    }
    return true;
}

/* Return how a host is called by others. */
static const char *host_alias(const struct preflight_host *host, char mine[PREFLIGHT_TEXT])
{
    const char *at = strchr(host->name, '@');
    if (strcmp(host->name, "localhost") != 0)
        return at ? at + 1 : host->name;
    mine[0] = mine[PREFLIGHT_TEXT - 1] = '\0';
    (void)gethostname(mine, PREFLIGHT_TEXT - 1);
    return mine;
}

/* Ask a host for the time, which it is to say at once. */
static void ask_clocks(struct preflight_front *front)
{
    for (int round = 0; round < CLOCK_ROUNDS; round++) {
        for (int i = 0; i < front->all->hosts; i++) {
            if (!front->all->host[i].answered)
                continue;
            front->program[i].owed = 1;
            front->sent_ns[i] = twill_now();
            front->sent_real_ns[i] = real_now();
            preflight_program_tell(&front->program[i], "clock\n");
        }
        await_replies(front, CLOCK_NS);
    }
}

/* Have hosts first .. last - 1 listen, in the direction of one that answers to a name. */
static void ask_to_listen(struct preflight_front *front, int first, int last, const char *towards)
{
    const struct preflight *all = front->all;
    for (int i = first; i < last; i++) {
        struct preflight_words line = {.count = 0};
        char mine[PREFLIGHT_TEXT];
        if (!all->host[i].answered)
            continue;
        preflight_program_tell(&front->program[i], "listen");
        if (towards[0] != '\0')
            preflight_words_add(&line, " %s", towards);
        for (int k = 0; k < all->hosts && towards[0] == '\0'; k++)
            if (k != i)
                preflight_words_add(&line, " %s", host_alias(&all->host[k], mine));
        for (size_t k = 0; k < line.count; k++)
            preflight_program_tell(&front->program[i], line.word[k]);
        preflight_program_tell(&front->program[i], "\n");
        preflight_words_free(&line);
        front->program[i].owed = 1;
    }
    await_replies(front, REPLY_NS);
}

/* Have every host connect to every other. */
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

/* --- the whole ------------------------------------------------------------------------------- */

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
    /* As twillrun does: rank 0's host takes the way to any other, these the way to it. */
    ask_to_listen(front, first, first + 1, "");
    ask_to_listen(front, first + 1, all->hosts, all->host[first].facts.address);
    ask_to_connect(front);
}

/* Note which hosts are still silent, before their twillruns are ended. */
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

/* Say why the twillruns of other hosts have ended. */
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
    front.sent_ns = calloc(hosts, sizeof(*front.sent_ns));
    front.sent_real_ns = calloc(hosts, sizeof(*front.sent_real_ns));
    bool good = front.program && front.sent_ns && front.sent_real_ns;
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
    free(front.sent_ns);
    free(front.sent_real_ns);
    if (good)
        preflight_job_run(all, request);
    return good;
}
