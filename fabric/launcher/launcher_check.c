/* SPDX-License-Identifier: Apache-2.0 */
/* twillrun --check hands hosts and options to twill-check, which starts twillruns with them. */
#include "fabric/launcher/launcher.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK_PROGRAM "twill-check"

/* The arguments of twill-check. They are not freed, as exec or the end follows. */
struct check_words {
    const char **word; /* NULL-terminated */
    size_t count, most;
};

/* Add `word` to the list, and then `value` unless that is NULL. The strings are not copied. What
 * does not fit into the list is left out. */
static void add_check_words(struct check_words *words, const char *word, const char *value)
{
    for (const char *one = word; one && words->count + 1 < words->most;
         one = one == word ? value : NULL)
        words->word[words->count++] = one;
}

/* Write the path of a program in `folder`, relative to the folder of twillrun, whose path is
 * `launcher`. Returns false if it is too long, else true. */
static bool path_beside(char path[PATH_MAX], const char *launcher, const char *folder,
                        const char *name)
{
    const char *slash = strrchr(launcher, '/');
    int length = slash ? (int)(slash - launcher) : 1;
    int used = snprintf(path, PATH_MAX, "%.*s/%s/%s", length, slash ? launcher : ".", folder, name);
    return used > 0 && used < PATH_MAX;
}

const char *twill_helper_find(char path[PATH_MAX], const char *launcher, const char *name)
{
    static const char *const folders[] = {TWILL_CHECK_FOLDER, "../libexec/twill"}; /* as built */
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(folders); i++)
        if (path_beside(path, launcher, folders[i], name) && access(path, X_OK) == 0)
            return folders[i];
    return NULL;
}

/* Add the options that all twillruns of the check need. A variable of -x is set here and passed by
 * its name, so that its value appears on no command line. Variables for which there is no memory or
 * no room are left out. */
static void add_common(struct check_words *words, const struct twill_options *options)
{
    static char cores[16]; /* as the arguments of exec */
    add_check_words(words, "--agent", options->agent);
    if (options->remote)
        add_check_words(words, "--remote", options->remote);
    if (options->bind.to != TWILL_BIND_AUTO)
        add_check_words(words, "--bind", twill_bind_names[options->bind.to]);
    snprintf(cores, sizeof(cores), "%d", options->bind.cores);
    if (options->bind.cores != 0)
        add_check_words(words, "--threads-per-rank",
                        options->bind.cores == TWILL_CORES_AUTO ? "auto" : cores);
    if (options->oversubscribe)
        add_check_words(words, "--oversubscribe", NULL);
    for (int i = 0; i < options->assigned; i++) {
        char *name = strdup(options->assignments[i]);
        if (!name)
            return;
        name[strcspn(name, "=")] = '\0';
        if (setenv(name, options->assignments[i] + strlen(name) + 1, 1) == 0)
            add_check_words(words, "-x", name);
    }
}

/* Add the word "RANKS:NAME" for a host. */
static void add_check_site(struct check_words *words, const char *name, int ranks)
{
    char *site;
    if (asprintf(&site, "%d:%s", ranks, name) >= 0)
        add_check_words(words, "--site", site);
}

int twill_check_run(const struct twill_options *options)
{
    char self[PATH_MAX], local[PATH_MAX], worker[PATH_MAX], timeout[32], json[PATH_MAX];
    struct check_words words = {.most = 2 * (size_t)(options->sites + options->assigned) + 26};
    if (!twill_self_find(self)) {
        twill_complain("--check: /proc/self/exe: %s", strerror(errno));
        return TWILL_EXIT_USAGE;
    }
    words.word = calloc(words.most, sizeof(*words.word));
    if (!words.word) {
        twill_complain("no memory for %d hosts", options->sites);
        return TWILL_EXIT_USAGE;
    }
    const char *folder = twill_helper_find(local, self, CHECK_PROGRAM);
    if (folder == NULL) {
        twill_complain("--check: %s: %s; it belongs to the benchmarks (TWILL_BUILD_BENCH)", local,
                       strerror(errno));
        return TWILL_EXIT_USAGE;
    }
    if (!path_beside(worker, options->remote ? options->remote : self, folder, CHECK_PROGRAM))
        return TWILL_EXIT_USAGE;
    twill_print(timeout, sizeof(timeout), "%g", (double)options->timeout_ns / 1e9);
    snprintf(json, sizeof(json), "--json%s%s", options->json && *options->json ? "=" : "",
             options->json ? options->json : "");
    add_check_words(&words, local, NULL);
    add_check_words(&words, "--launcher", self);
    add_check_words(&words, "--worker", worker);
    add_check_words(&words, "--timeout", timeout);
    if (options->json)
        add_check_words(&words, json, NULL);
    if (options->command[0])
        add_check_words(&words, "--program", options->command[0]);
    for (int i = 0; i < options->sites; i++)
        if (options->site[i].ranks > 0)
            add_check_site(&words, options->site[i].name, options->site[i].ranks);
    if (options->sites == 0)
        add_check_site(&words, "localhost", options->ranks);
    add_check_words(&words, "--", NULL);
    add_common(&words, options);
    execv(words.word[0], (char *const *)words.word);
    twill_complain("--check: %s: %s", words.word[0], strerror(errno));
    return TWILL_EXIT_USAGE;
}
