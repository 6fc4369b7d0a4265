/* SPDX-License-Identifier: Apache-2.0 */
/* The command lines that start contenders: by their launcher, on one host or, with an agent, on
 * several. Programs without a launcher are started by the agent, rank by rank. */
#include "bench/tools/compare/contenders.h"

#include <stdlib.h>
#include <string.h>

/* Tuned by an expert: freed memory is kept and comes in huge pages, in both ways that glibc can be
 * told. */
#define TUNABLES                                                                                   \
    "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1099511627776:"                           \
    "glibc.malloc.top_pad=67108864:glibc.malloc.hugetlb=1"
static const char *const tuned_settings[] = {
    "GLIBC_TUNABLES=" TUNABLES,
    "MALLOC_MMAP_MAX_=0",
    "MALLOC_TRIM_THRESHOLD_=1099511627776",
    "MALLOC_TOP_PAD_=67108864",
};

static void append_argument(char **list, int most, const char *text)
{
    int n = 0;
    while (list[n] != NULL)
        n++;
    if (n < most - 1)
        list[n] = strdup(text);
}

static void append_arguments(struct twill_compare_contender *contender, const char *text)
{
    char word[TWILL_COMPARE_PATH];
    while (*(text += strspn(text, " ")) != '\0') {
        size_t length = strcspn(text, " ");
        twill_compare_write(word, sizeof(word), "%.*s", (int)length, text);
        append_argument(contender->command, TWILL_COMPARE_ARGUMENTS, word);
        text += length;
    }
}

static void append_setting(struct twill_compare_contender *contender, const char *text)
{
    append_argument(contender->settings, TWILL_COMPARE_SETTINGS, text);
}

static void append_program(struct twill_compare_contender *contender,
                           const struct twill_compare_entry *entry,
                           const struct twill_compare_built *built)
{
    append_argument(contender->command, TWILL_COMPARE_ARGUMENTS, built->path);
    append_argument(contender->command, TWILL_COMPARE_ARGUMENTS, contender->path);
    append_argument(contender->command, TWILL_COMPARE_ARGUMENTS, contender->memory);
    append_arguments(contender, entry->arguments);
}

/* The library goes before the MPI in the ranks only, not in launchers. */
static void append_preload(struct twill_compare_contender *contender,
                           const struct twill_compare_entry *entry,
                           const struct twill_compare_built *built)
{
    char arguments[2 * TWILL_COMPARE_PATH + 32];
    if (strchr(entry->name, '+') == NULL)
        return;
    twill_compare_write(arguments, sizeof(arguments),
                        entry->program == OPENMPI ? "-x LD_PRELOAD=%s" : "-genv LD_PRELOAD %s",
                        built->preload);
    append_arguments(contender, arguments);
}

static void on_one_host(const struct twill_compare_run *run,
                        const struct twill_compare_entry *entry,
                        const struct twill_compare_built *built,
                        struct twill_compare_contender *contender)
{
    char ranks[16];
    twill_compare_write(ranks, sizeof(ranks), "%d", run->options.ranks);
    append_argument(contender->command, TWILL_COMPARE_ARGUMENTS, built->launcher);
    append_arguments(contender,
                     entry->program == OPENMPI ? "--oversubscribe --bind-to none -np" : "-n");
    append_arguments(contender, ranks);
    append_arguments(contender, entry->options);
    append_preload(contender, entry, built);
    append_program(contender, entry, built);
}

/* Format NAME:RANKS,NAME:RANKS. */
static void list_hosts(const struct twill_compare_run *run, char *text, size_t bytes)
{
    size_t at = 0;
    for (int i = 0; i < run->options.n_hosts && at < bytes; i++) {
        twill_compare_write(text + at, bytes - at, "%s%s:%d", i > 0 ? "," : "",
                            run->options.hosts[i].name, run->options.hosts[i].ranks);
        at += strlen(text + at);
    }
}

/* Name the variables that the launcher must pass to the ranks. */
static void append_exports(struct twill_compare_contender *contender)
{
    for (int i = 0; contender->settings[i] != NULL; i++) {
        char name[64];
        twill_compare_write(name, sizeof(name), "%.*s", (int)strcspn(contender->settings[i], "="),
                            contender->settings[i]);
        append_arguments(contender, "-x");
        append_arguments(contender, name);
    }
}

/* Let the launcher start its daemons by the agent. Hydra passes all variables on, but needs the
 * address at which its daemons reach it. */
static void by_launcher(const struct twill_compare_run *run,
                        const struct twill_compare_entry *entry,
                        const struct twill_compare_built *built,
                        struct twill_compare_contender *contender)
{
    char hosts[TWILL_COMPARE_PATH], arguments[4 * TWILL_COMPARE_PATH];
    list_hosts(run, hosts, sizeof(hosts));
    append_argument(contender->command, TWILL_COMPARE_ARGUMENTS, built->launcher);
    if (entry->program == MPICH)
        twill_compare_write(arguments, sizeof(arguments),
                            "-launcher rsh -launcher-exec %s -localhost %.*s -hosts %s "
                            "-bind-to none -n %d",
                            run->remote.agent, (int)strcspn(run->remote.addresses, ","),
                            run->remote.addresses, hosts, run->options.ranks);
    else
        twill_compare_write(arguments, sizeof(arguments),
                            entry->program == TWILL
                                ? "--agent %s --hosts %s -n %d"
                                : "--oversubscribe --bind-to none --mca plm rsh "
                                  "--mca plm_rsh_agent %s --host %s -np %d",
                            run->remote.agent, hosts, run->options.ranks);
    append_arguments(contender, arguments);
    if (entry->program != MPICH)
        append_exports(contender);
    append_arguments(contender, entry->options);
    append_preload(contender, entry, built);
    append_program(contender, entry, built);
}

/* Compose sh -c 'agent HOST "env RANK=0 ... program ..." & ... wait'. */
static void by_agent(const struct twill_compare_run *run, const struct twill_compare_entry *entry,
                     const struct twill_compare_built *built,
                     struct twill_compare_contender *contender)
{
    const struct twill_compare_options *options = &run->options;
    char *script = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&script, &bytes);
    if (out == NULL)
        return;
    for (int host = 0, rank = 0; host < options->n_hosts; host++)
        for (int local = 0; local < options->hosts[host].ranks; local++, rank++) {
            fprintf(out, "%s %s \"env RANK=%d WORLD_SIZE=%d LOCAL_RANK=%d LOCAL_WORLD_SIZE=%d",
                    run->remote.agent, options->hosts[host].name, rank, options->ranks, local,
                    options->hosts[host].ranks);
            for (int i = 0; contender->settings[i] != NULL; i++)
                fprintf(out, " %s", contender->settings[i]);
            fprintf(out, " %s %s %s %s", built->path, contender->path, contender->memory,
                    entry->arguments);
            fprintf(out, entry->program == RAW ? " %d\" & " : "\" & ", options->n_hosts);
        }
    fprintf(out, "wait");
    fclose(out);
    append_argument(contender->command, TWILL_COMPARE_ARGUMENTS, "sh");
    append_argument(contender->command, TWILL_COMPARE_ARGUMENTS, "-c");
    append_argument(contender->command, TWILL_COMPARE_ARGUMENTS, script);
    free(script);
}

/* Ranks bind themselves, so that all contenders use the same cores. */
void twill_compare_command_of(struct twill_compare_run *run,
                              const struct twill_compare_entry *entry,
                              const struct twill_compare_built *built,
                              struct twill_compare_contender *contender)
{
    bool open = entry->program == OPENMPI;
    if (entry->setting != NULL)
        append_setting(contender, entry->setting);
    for (size_t i = 0; contender->tuned && i < sizeof(tuned_settings) / sizeof(char *); i++)
        append_setting(contender, tuned_settings[i]);
    if (run->options.n_hosts == 0)
        on_one_host(run, entry, built, contender);
    else if (entry->program == OPENMPI || entry->program == MPICH || entry->program == TWILL)
        by_launcher(run, entry, built, contender);
    else
        by_agent(run, entry, built, contender);
    if (open && geteuid() == 0) {
        append_setting(contender, "OMPI_ALLOW_RUN_AS_ROOT=1");
        append_setting(contender, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1");
    }
    if (open && run->options.ranks > run->cores)
        append_setting(contender, "OMPI_MCA_mpi_yield_when_idle=1");
}
