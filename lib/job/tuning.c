/* SPDX-License-Identifier: Apache-2.0 */
/* Reads TWILL_TUNING, TWILL_TUNE=machine, TWILL_ALGORITHM and this machine's tuning file. */
#include "algorithms/select/tuning_file.h"
#include "lib/job/config.h"
#include "lib/job/job_internal.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES_MOST = 16 << 20 };

twill_status twill_tuning_read(char **text, const char *path, struct twill_error *error)
{
    twill_status status = TWILL_ERR_CONFIG;
    FILE *file = fopen(path, "re");
    *text = NULL;
    if (file == NULL)
        return TWILL_FAIL(error, status, "TWILL_TUNING=%s: %s", path, strerror(errno));
    size_t capacity = 0, length = 0;
    ssize_t read = getdelim(text, &capacity, '\0', file);
    length = read > 0 ? (size_t)read : 0;
    if (length == 0 && *text != NULL)
        **text = '\0';
    if (ferror(file) || !feof(file) || length > FILE_BYTES_MOST) {
        TWILL_FAIL(error, status, "TWILL_TUNING=%s: is not a text file%s%s", path,
                   ferror(file) ? ": " : "", ferror(file) ? strerror(errno) : "");
        free(*text);
        *text = NULL;
    } else {
        status = TWILL_OK;
    }
    fclose(file);
    return status;
}

/* Set *timings to those of the file if it is for this machine. A file that cannot be read or is for
 * another machine is skipped. Fails if a file for this machine cannot be parsed. */
static twill_status load_file(struct twill_tuning **timings, const char *path, const char *name,
                              const struct twill_tuning_key *here, struct twill_error *error)
{
    struct twill_error unread = {.status = TWILL_OK};
    char *text;
    twill_status status = TWILL_OK;
    if (twill_tuning_read(&text, path, &unread) == TWILL_OK && text != NULL &&
        twill_tuning_is_for(text, here)) {
        status = twill_tuning_create(timings, NULL, text, path, error);
        if (status == TWILL_OK)
            snprintf((*timings)->source, sizeof((*timings)->source), "the timings of %.44s", name);
    }
    free(text);
    return status;
}

/* Return whether a file's name is NAME.tuning. */
static bool is_tuning(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot != NULL && dot != name && strcmp(dot, ".tuning") == 0;
}

/* Return whether a folder's entry is not hidden, for scandir(). */
static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* Return whether a file begins with the heading of tuning files. */
static bool begins_as_tuning(const char *path)
{
    char start[sizeof(TWILL_TUNING_HEADING)] = "";
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    bool read = fgets(start, sizeof(start), file) != NULL;
    fclose(file);
    return read && strcmp(start, TWILL_TUNING_HEADING) == 0;
}

/* Set *timings, if it is NULL, to those of the first *.tuning file, by name, that is for this
 * machine. It stays NULL if the folder is missing or has none. Fails if that file cannot be parsed.
 * Set ignored[bytes] to the path of a tuning file with another ending, if there is one. */
static twill_status search_folder(struct twill_tuning **timings, const char *folder,
                                  const struct twill_tuning_key *here, char *ignored, size_t bytes,
                                  struct twill_error *error)
{
    struct dirent **names = NULL;
    twill_status status = TWILL_OK;
    int count = scandir(folder, &names, is_visible, alphasort);
    for (int i = 0; i < count; i++) {
        char path[PATH_MAX];
        const char *name = names[i]->d_name;
        int length = snprintf(path, sizeof(path), "%s/%s", folder, name);
        bool fits = (size_t)length < sizeof(path), named = is_tuning(name);
        if (fits && named && status == TWILL_OK && *timings == NULL)
            status = load_file(timings, path, name, here, error);
        else if (fits && !named && begins_as_tuning(path))
            snprintf(ignored, bytes, "%.*s", (int)bytes - 1, path);
        free(names[i]);
    }
    free(names);
    return status;
}

/* Write the path of an installed folder, `relative` to the folder of the shared library or program
 * that contains twill. Returns false if that is not known or the path is too long. */
static bool find_installed(char folder[PATH_MAX], const char *relative)
{
    Dl_info self;
    if (dladdr((const void *)(uintptr_t)twill_tuning_read, &self) == 0 || self.dli_fname == NULL)
        return false;
    const char *slash = strrchr(self.dli_fname, '/');
    int length = slash != NULL ? (int)(slash - self.dli_fname) : 0;
    return (size_t)snprintf(folder, PATH_MAX, "%.*s/%s", length, self.dli_fname, relative) <
           PATH_MAX;
}

/* Set *timings to those of the first file for this machine, which the caller destroys, or to NULL.
 * Searches .twill/tuning in the directory HOME, then the installed folders. Fails if that file
 * cannot be parsed. Sets ignored[bytes] to the path of a tuning file in these folders whose name
 * does not end in .tuning, or to "". */
static twill_status find_timings(struct twill_tuning **timings, const struct twill_tuning_key *here,
                                 char *ignored, size_t bytes, struct twill_error *error)
{
    char folder[PATH_MAX];
    ignored[0] = '\0';
    const char *home = getenv("HOME");
    *timings = NULL;
    if (home != NULL && home[0] == '/' &&
        (size_t)snprintf(folder, sizeof(folder), "%s/.twill/tuning", home) < sizeof(folder))
        TWILL_TRY(error, search_folder(timings, folder, here, ignored, bytes, error));
    /* For an installed library, and for a program in bin/ or in a build tree. */
    const char *relative[] = {TWILL_TUNING_FOLDER, "../share/twill/tuning"};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(relative) && *timings == NULL; i++)
        if (find_installed(folder, relative[i]))
            TWILL_TRY(error, search_folder(timings, folder, here, ignored, bytes, error));
    return TWILL_OK;
}

/* Return an error if TWILL_ALGORITHM is malformed. Whether it applies is known only in a call. */
static twill_status check_overrides(struct twill_context *context)
{
    const char *requested = twill_config_text(context->config, TWILL_VARIABLE_ALGORITHM);
    struct twill_override *overrides = NULL;
    size_t count = 0;
    if (requested != NULL)
        TWILL_TRY(&context->error,
                  twill_overrides_parse(&overrides, &count, requested, &context->error));
    free(overrides);
    return TWILL_OK;
}

twill_status twill_context_open_tuning(struct twill_context *context)
{
    TWILL_TRY(&context->error, check_overrides(context));
    const char *path = twill_config_text(context->config, TWILL_VARIABLE_TUNING);
    const char *machine = twill_config_text(context->config, TWILL_VARIABLE_MACHINE);
    char *text = NULL;
    if (path != NULL)
        TWILL_TRY(&context->error, twill_tuning_read(&text, path, &context->error));
    twill_status status =
        twill_tuning_create(&context->selection.tuning, machine,
                            path != NULL && text == NULL ? "" : text, path, &context->error);
    free(text);
    const struct twill_machine *here = twill_topology_machine(context->machine.topology);
    if (status != TWILL_OK || !here->is_this_machine || here->cpu[0] == '\0')
        return status;
    struct twill_tuning_key key = {.l2_bytes = here->l2_bytes, .cores = here->cores};
    char printed[TWILL_TUNING_KEY_BYTES];
    memcpy(key.cpu, here->cpu, sizeof(key.cpu));
    twill_tuning_key_print(printed, &key);
    twill_context_note(context, "tuning key: %s", printed);
    char ignored[200] = "";
    if (path == NULL &&
        strcmp(context->selection.tuning->model.name, twill_machine_model_at(0)->name) == 0)
        status = find_timings(&context->selection.timings, &key, ignored, sizeof(ignored),
                              &context->error);
    if (ignored[0] != '\0')
        twill_context_note(context, "tuning: %s is ignored: its name does not end in .tuning",
                           ignored);
    return status;
}

twill_status twill_context_agree_tuning(struct twill_context *context, bool all_have_it)
{
    if (context->selection.timings != NULL && all_have_it) {
        twill_tuning_destroy(context->selection.tuning);
        context->selection.tuning = context->selection.timings;
        context->selection.timings = NULL;
    }
    twill_context_note(context, "choices: by the model %s%s%s",
                       context->selection.tuning->model.name,
                       context->selection.tuning->source[0] != '\0' ? ", and before it " : "",
                       context->selection.tuning->source);
    return TWILL_OK;
}
