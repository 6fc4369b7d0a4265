/* SPDX-License-Identifier: Apache-2.0 */
/* The test job, as the front starts it and reads it. */
#include "fabric/launcher/preflight/preflight_front.h"
#include "lib/base/base.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define JOB_NS                                                                                     \
    (60 * PREFLIGHT_SECOND_NS) /* for the whole job, after twillrun's limit for its start */
#define JOB_TIMEOUT "20"       /* seconds: its TWILL_TIMEOUT, unless the user has set it */

/* Return how many connections of a host to and from chosen ones do not work. */
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

/* What the replies of the job's ranks go to. */
struct job_reader {
    struct preflight_job *job;
    struct preflight_program program;
    bool *replied; /* [ranks] */
    int replies;
};

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

static bool start_job(struct job_reader *reader, const struct preflight_request *request,
                      const char *sites)
{
    struct preflight_words words;
    preflight_words_begin(&words, request);
    preflight_words_add(&words, "--hosts");
    preflight_words_add(&words, "%s", sites);
    preflight_words_add(&words, "--");
    preflight_words_add(&words, "%s", request->worker);
    preflight_words_add(&words, "--ranks");
    (void)setenv("TWILL_TIMEOUT", JOB_TIMEOUT, 0); /* twillrun sends it to the hosts */
    bool good =
        !words.failed &&
        preflight_program_start(&reader->program, (const char *const *)words.word, &request->files);
    preflight_words_free(&words);
    return good;
}

/* List the chosen hosts for twillrun, and note which rank is where: they are filled in order. */
static char *list_sites(struct preflight *all, const bool *chosen)
{
    size_t bytes = (size_t)all->hosts * (PREFLIGHT_TEXT + 16) + 1;
    char *sites = calloc(bytes, 1);
    int rank = 0;
    for (int i = 0; sites && i < all->hosts; i++) {
        if (!chosen[i])
            continue;
        preflight_site_add(sites, bytes, &all->host[i]);
        for (int k = 0; k < all->host[i].ranks; k++)
            all->job.host[rank++] = i;
    }
    return sites;
}

static void read_job(struct preflight *all, const struct preflight_request *request,
                     const char *sites)
{
    struct preflight_job *job = &all->job;
    struct job_reader reader = {.job = job};
    reader.replied = calloc((size_t)job->ranks, sizeof(*reader.replied));
    bool good = reader.replied && start_job(&reader, request, sites);
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

void preflight_job_run(struct preflight *all, const struct preflight_request *request)
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
