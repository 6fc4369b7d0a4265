/* SPDX-License-Identifier: Apache-2.0 */
/* A job as bytes: strings, each with a leading letter for its kind and a terminating 0. */
#include "fabric/host/local_address.h"
#include "fabric/launcher/launcher.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_OTHERS 8 /* hosts to find a route to, one of which must resolve */

/* The leading letter of each string. */
enum item {
    ITEM_RANKS = 'n',
    ITEM_ELASTIC = 'e', /* MIN:MAX:HOST */
    ITEM_RANK = 'r',
    ITEM_BIND = 'b',
    ITEM_CORES = 'c',
    ITEM_REPORT = 'p',
    ITEM_OVERSUBSCRIBE = 'v',
    ITEM_GRACE = 'g', /* in milliseconds */
    ITEM_KEY = 'k',
    ITEM_DIRECTORY = 'd',
    ITEM_ALONE = '1',
    ITEM_OTHER = 'o',
    ITEM_ASSIGNMENT = 'x',
    ITEM_PROGRAM = 'm', /* number of its ranks; its arguments follow */
    ITEM_ARGUMENT = 'a',
};

/* Write one string with its letter before it and a 0 after it. */
static void write_item(FILE *file, enum item item, const char *text)
{
    fprintf(file, "%c%s", item, text);
    fputc('\0', file);
}

/* Write a number in decimal as write_item() writes a string, with its letter before it and a 0
 * after it. */
static void put_number(FILE *file, enum item item, int number)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", number);
    write_item(file, item, text);
}

/* Return whether NAME=VALUE of the environment is sent to other hosts, as it must be the same
 * there. These are the variables TWILL_*, but not TWILL_JOB and TWILL_LISTEN_FD, and FI_* of
 * libfabric. */
static bool is_common(const char *variable)
{
    return (strncmp(variable, "TWILL_", 6) == 0 && strncmp(variable, "TWILL_JOB=", 10) != 0 &&
            strncmp(variable, "TWILL_LISTEN_FD=", 16) != 0) ||
           strncmp(variable, "FI_", 3) == 0;
}

/* Return whether no other host has ranks or may get some. */
static bool is_only(const struct twill_options *options, int site)
{
    for (int i = 0; i < options->sites; i++)
        if (i != site && twill_site_is_used(options, i))
            return false;
    return true;
}

/* Write the job for the host options->site[site] as one string for each setting, rank there, other
 * host, environment variable, program and argument. `key` is the value of TWILL_JOB, and
 * `directory` the ranks' working directory. */
static void put_all(FILE *file, const struct twill_options *options, int site, const char *key,
                    const char *directory)
{
    char mine[TWILL_HOST_TEXT], elastic[64];
    put_number(file, ITEM_RANKS, options->ranks);
    snprintf(elastic, sizeof(elastic), "%d:%d:%d", options->least, options->most, site);
    if (options->most > 0)
        write_item(file, ITEM_ELASTIC, elastic);
    put_number(file, ITEM_BIND, (int)options->bind.to);
    put_number(file, ITEM_CORES, options->bind.cores);
    if (options->report)
        write_item(file, ITEM_REPORT, "");
    if (options->oversubscribe)
        write_item(file, ITEM_OVERSUBSCRIBE, "");
    put_number(file, ITEM_GRACE, (int)(options->grace_ns / 1000000));
    write_item(file, ITEM_KEY, key);
    write_item(file, ITEM_DIRECTORY, directory);
    if (is_only(options, site))
        write_item(file, ITEM_ALONE, "");
    for (int rank = 0; rank < twill_options_places(options); rank++)
        if (options->place[rank] == site)
            put_number(file, ITEM_RANK, rank);
    for (int i = 0, others = 0; i < options->sites && others < MOST_OTHERS; i++) {
        if (i == site || !twill_site_is_used(options, i))
            continue;
        write_item(file, ITEM_OTHER, twill_host_alias(options->site[i].name, mine));
        others++;
    }
    for (char **variable = environ; *variable; variable++)
        if (is_common(*variable) ||
            (options->bind.cores != 0 && strncmp(*variable, "OMP_NUM_THREADS=", 16) == 0))
            write_item(file, ITEM_ASSIGNMENT, *variable);
    for (int i = 0; i < options->assigned; i++)
        write_item(file, ITEM_ASSIGNMENT, options->assignments[i]);
    for (int i = 0; i < options->programs; i++) {
        put_number(file, ITEM_PROGRAM, options->program[i].ranks);
        for (char **argument = options->program[i].words; *argument; argument++)
            write_item(file, ITEM_ARGUMENT, *argument);
    }
}

char *twill_job_write(const struct twill_options *options, int site, const char *key, size_t *bytes)
{
    char *data = NULL, directory[PATH_MAX];
    if (!getcwd(directory, sizeof(directory))) {
        twill_complain("the current directory: %s", strerror(errno));
        return NULL;
    }
    FILE *file = open_memstream(&data, bytes);
    if (file)
        put_all(file, options, site, key, directory);
    bool good = file && !ferror(file);
    if (file)
        good = fclose(file) == 0 && good;
    if (good && *bytes <= TWILL_FRAME_MOST_JOB)
        return data;
    if (good)
        twill_complain("the program, its arguments and -x have %zu bytes, more than %u", *bytes,
                       TWILL_FRAME_MOST_JOB);
    else
        twill_complain("no memory for the job");
    free(data);
    return NULL;
}

/* Parse MIN:MAX:HOST. Returns false if it is malformed. */
static bool read_elastic_item(struct twill_host_job *job, const char *text)
{
    struct twill_options *options = &job->options;
    int end = 0;
    return sscanf(text, "%9d:%9d:%9d%n", &options->least, &options->most, &job->host, &end) == 3 &&
           text[end] == '\0' && options->least >= 1 && options->most >= options->least &&
           options->most <= TWILL_MAX_RANKS && options->ranks >= 1 &&
           options->ranks <= options->most && job->host >= 0;
}

/* Begin another program in job->options, which `ranks` ranks run. item_read() then appends its
 * words to options->command, behind those of the program before and a NULL that ends them. Returns
 * true in all cases, for item_read() to return. */
static bool begin_program(struct twill_host_job *job, int ranks)
{
    struct twill_options *options = &job->options;
    job->arguments += options->programs > 0;
    options->program[options->programs++] =
        (struct twill_program){.ranks = ranks, .words = options->command + job->arguments};
    return true;
}

/* Parse one string of a received job, whose first letter says what it is, and enter it into *job.
 * *job then may point into `text`. Returns false if it is malformed. */
static bool item_read(struct twill_host_job *job, char *text)
{
    struct twill_options *options = &job->options;
    int number;
    switch (*text++) {
    case ITEM_RANKS:
        return twill_read_number(text, 1, TWILL_MAX_RANKS, &options->ranks);
    case ITEM_ELASTIC:
        return read_elastic_item(job, text);
    case ITEM_RANK: /* in ascending order, so rank 0 comes first on its host */
        if (!twill_read_number(text, 0, twill_options_places(options) - 1, &number) ||
            (job->here > 0 && job->rank[job->here - 1] >= number))
            return false;
        job->rank[job->here++] = number;
        return true;
    case ITEM_BIND:
        if (!twill_read_number(text, TWILL_BIND_AUTO, TWILL_BIND_COUNT - 1, &number))
            return false;
        options->bind.to = (enum twill_bind)number;
        return true;
    case ITEM_CORES:
        return twill_read_number(text, TWILL_CORES_AUTO, TWILL_MAX_CORES, &options->bind.cores);
    case ITEM_OVERSUBSCRIBE:
        options->oversubscribe = true;
        return true;
    case ITEM_REPORT:
        options->report = true;
        return true;
    case ITEM_GRACE:
        if (!twill_read_number(text, 0, INT_MAX, &number))
            return false;
        options->grace_ns = (uint64_t)number * 1000000;
        return true;
    case ITEM_KEY:
        job->key = text;
        return strlen(text) < sizeof(((struct twill_launch *)0)->job);
    case ITEM_DIRECTORY:
        job->directory = text;
        return true;
    case ITEM_ALONE:
        job->alone = true;
        return true;
    case ITEM_OTHER:
        job->other[job->others++] = text;
        return true;
    case ITEM_ASSIGNMENT:
        options->assignments[options->assigned++] = text;
        return strchr(text, '=') != NULL && text[0] != '=';
    case ITEM_PROGRAM:
        return twill_read_number(text, 0, options->ranks, &number) && begin_program(job, number);
    case ITEM_ARGUMENT:
        options->command[job->arguments++] = text;
        return true;
    default:
        return false;
    }
}

bool twill_job_read(struct twill_host_job *job, const char *data, size_t bytes)
{
    size_t strings = 0;
    *job = (struct twill_host_job){.bytes = malloc(bytes + 1)};
    for (size_t i = 0; i < bytes; i++)
        strings += data[i] == '\0';
    job->rank = calloc(strings + 1, sizeof(*job->rank));
    job->other = calloc(strings + 1, sizeof(*job->other));
    job->options.assignments = calloc(strings + 1, sizeof(char *));
    job->options.command = calloc(strings + 1, sizeof(char *));
    job->options.program = calloc(strings + 1, sizeof(*job->options.program));
    if (!job->options.program || !job->bytes || !job->rank || !job->other ||
        !job->options.assignments || !job->options.command || bytes == 0 || data[bytes - 1] != '\0')
        return false;
    memcpy(job->bytes, data, bytes);
    for (char *text = job->bytes; text < job->bytes + bytes; text += strlen(text) + 1)
        if (!item_read(job, text))
            return false;
    return job->options.ranks > 0 && (job->here > 0 || job->options.most > 0) && job->key &&
           job->directory && job->options.command[0];
}

void twill_job_free(struct twill_host_job *job)
{
    free(job->bytes);
    free(job->rank);
    free(job->other);
    free(job->options.assignments);
    free(job->options.command);
    free(job->options.program);
    *job = (struct twill_host_job){.bytes = NULL};
}
