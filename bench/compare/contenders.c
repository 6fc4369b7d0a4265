/* SPDX-License-Identifier: Apache-2.0 */
/* Who takes part: the table of contenders, finding the launchers and compilers of peers in PATH,
 * compiling their programs, and the command line that starts each. */
#include "bench/compare/compare.h"

#include <stdlib.h>
#include <string.h>

/* Programs that contenders are variants of. Peers' are compiled when a comparison runs, so that a
 * build of twill needs none of them. */
enum program { BOUND, TWILL, OPENMPI, MPICH, GLOO, UCC, ONECCL, PROGRAMS };

struct built {
    char path[TWILL_COMPARE_PATH + 64];
    char launcher[TWILL_COMPARE_PATH];
    char why[2 * TWILL_COMPARE_WORDS + 64]; /* it is not there */
};

struct entry {
    const char *name;
    enum program program;
    const char *options;   /* of the launcher */
    const char *arguments; /* of the program */
    const char *setting;
    bool tunes; /* it allocates per call, so that a tuned variant makes sense */
    bool rare;  /* --prepared or --peers must name it */
    const char *memory;
};

static const struct entry entries[] = {
    {"bound", BOUND, "", "", NULL, false, false, "own"},
    {"bound-stream", BOUND, "", "stream", NULL, false, false, "own"},
    {"twill", TWILL, "", "", NULL, false, false, "plain"},
    {"twill-huge", TWILL, "", "", NULL, false, false, "huge"},
    {"twill-alloc", TWILL, "", "", NULL, false, false, "own"},
    {"twill-heap", TWILL, "", "", "TWILL_HEAP=shared", false, false, "heap"},
    {"twill-prepared", TWILL, "", "prepared", NULL, false, true, "plain"},
    {"twill-alloc-prepared", TWILL, "", "prepared", NULL, false, true, "own"},
    {"ompi-cma", OPENMPI,
     "--mca pml ob1 --mca btl vader,self --mca btl_vader_single_copy_mechanism cma", "", NULL, true,
     false, "plain"},
    {"ompi-copy", OPENMPI,
     "--mca pml ob1 --mca btl vader,self --mca btl_vader_single_copy_mechanism none", "", NULL,
     true, false, "plain"},
    {"ompi-ucx", OPENMPI, "--mca pml ucx --mca pml_ucx_tls any --mca pml_ucx_devices any", "", NULL,
     true, false, "plain"},
    {"mpich", MPICH, "", "", NULL, true, false, "plain"},
    {"mpich-copy", MPICH, "", "", "UCX_TLS=^cma", false, false, "plain"},
    {"gloo", GLOO, "", "ring", NULL, false, false, "plain"},
    {"gloo-bcube", GLOO, "", "bcube", NULL, false, true, "plain"},
    {"gloo-halving", GLOO, "", "halving", NULL, false, false, "plain"},
    {"ucc", UCC, "", "", NULL, true, false, "plain"},
    {"oneccl", ONECCL, "", "", "CCL_ATL_TRANSPORT=ofi", true, false, "plain"},
};

/* An expert's: freed memory is kept and comes in huge pages, by either way of telling glibc. */
#define TUNABLES                                                                                   \
    "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1099511627776:"                           \
    "glibc.malloc.top_pad=67108864:glibc.malloc.hugetlb=1"
static const char *const tuned_settings[] = {
    "GLIBC_TUNABLES=" TUNABLES,
    "MALLOC_MMAP_MAX_=0",
    "MALLOC_TRIM_THRESHOLD_=1099511627776",
    "MALLOC_TOP_PAD_=67108864",
};

bool twill_compare_chosen(const struct twill_compare_options *options, const char *name)
{
    if (options->peers == NULL)
        return true;
    for (const char *word = options->peers; *word != '\0';) {
        char part[64];
        size_t length = strcspn(word, ",");
        twill_compare_write(part, sizeof(part), "%.*s", (int)length, word);
        if (part[0] != '\0' && strstr(name, part) != NULL)
            return true;
        word += length + (word[length] == ',');
    }
    return false;
}

/* Where a command is, by PATH. */
static bool find_command(const char *name, char *path, size_t bytes)
{
    const char *folders = getenv("PATH");
    for (const char *from = folders; from != NULL && *from != '\0';) {
        size_t length = strcspn(from, ":");
        twill_compare_write(path, bytes, "%.*s/%s", (int)length, from, name);
        if (access(path, X_OK) == 0)
            return true;
        from += length + (from[length] == ':');
    }
    path[0] = '\0';
    return false;
}

/* A compiler and a launcher of an MPI: under the names of its own, or under the common ones if the
 * launcher says that it is this MPI's. */
static bool find_mpi(struct twill_compare_run *run, bool open, char *compiler, char *launcher)
{
    char log[TWILL_COMPARE_PATH + 32], said[TWILL_COMPARE_WORDS];
    const size_t bytes = TWILL_COMPARE_PATH;
    if (find_command(open ? "mpicc.openmpi" : "mpicc.mpich", compiler, bytes) &&
        find_command(open ? "mpirun.openmpi" : "mpiexec.mpich", launcher, bytes))
        return true;
    if (!find_command("mpicc", compiler, bytes) ||
        !find_command(open ? "mpirun" : "mpiexec", launcher, bytes))
        return false;
    char *command[] = {launcher, (char[]){"--version"}, NULL};
    twill_compare_write(log, sizeof(log), "%s/version.log", run->work);
    if (twill_compare_command(run, command, log) != 0)
        return false;
    twill_compare_first_line(log, open ? "Open MPI" : "HYDRA", said, sizeof(said));
    return strstr(said, open ? "Open MPI" : "HYDRA") != NULL;
}

static void missing(struct built *built, const char *why)
{
    twill_compare_write(built->why, sizeof(built->why), "%s", why);
}

/* COMPILER flags -o work/compare-NAME SOURCE libraries */
static void compile(struct twill_compare_run *run, struct built *built, const char *name,
                    const char *compiler, const char *source, const char *prefix,
                    const char *library)
{
    char text[8 * TWILL_COMPARE_PATH], log[TWILL_COMPARE_PATH + 64], said[TWILL_COMPARE_WORDS];
    char quoted[2 * TWILL_COMPARE_PATH + 64] = "";
    twill_compare_write(built->path, sizeof(built->path), "%s/compare-%s", run->work, name);
    twill_compare_write(log, sizeof(log), "%s/%s-compile.log", run->work, name);
    if (prefix != NULL)
        twill_compare_write(quoted, sizeof(quoted), "-I%s/include -L%s/lib -Wl,-rpath,%s/lib",
                            prefix, prefix, prefix);
    twill_compare_write(text, sizeof(text), "%s -O3 -D_GNU_SOURCE -o %s %s/%s %s %s", compiler,
                        built->path, run->sources, source, quoted, library);
    char *words[TWILL_COMPARE_ARGUMENTS], *rest = text;
    int n = 0;
    while (n < TWILL_COMPARE_ARGUMENTS - 1 && (words[n] = strsep(&rest, " ")) != NULL)
        n += words[n][0] != '\0';
    words[n] = NULL;
    if (twill_compare_command(run, words, log) != 0 || access(built->path, X_OK) != 0) {
        twill_compare_first_line(log, "rror", said, sizeof(said));
        twill_compare_write(built->why, sizeof(built->why),
                            "not here, or its program does not compile: %s", said);
    }
}

static void build_mpi(struct twill_compare_run *run, struct built *built, bool open)
{
    char compiler[TWILL_COMPARE_PATH];
    if (find_mpi(run, open, compiler, built->launcher))
        compile(run, built, open ? "openmpi" : "mpich", compiler, "peer_mpi.c", NULL, "");
    else
        missing(built, open ? "not here: no mpicc.openmpi with mpirun.openmpi, and no mpicc with "
                              "an mpirun of Open MPI"
                            : "not here: no mpicc.mpich with mpiexec.mpich, and no mpicc with an "
                              "mpiexec of MPICH");
}

/* twill's program and the bound came with the tools. */
static void take(struct twill_compare_run *run, struct built *built, const char *name)
{
    twill_compare_write(built->path, sizeof(built->path), "%s/compare-%s", run->programs, name);
    if (access(built->path, X_OK) != 0)
        twill_compare_write(built->why, sizeof(built->why), "%s is not there", built->path);
}

static void build(struct twill_compare_run *run, enum program program, struct built *built)
{
    const struct twill_compare_options *options = &run->options;
    twill_compare_write(built->launcher, sizeof(built->launcher), "%s/twillrun", run->bin);
    switch (program) {
    case BOUND:
        take(run, built, "bound");
        break;
    case TWILL:
        take(run, built, "twill");
        break;
    case GLOO:
        compile(run, built, "gloo", "c++", "peer_gloo.cpp", NULL, "-lgloo -lpthread");
        break;
    case UCC:
        if (options->ucc != NULL)
            compile(run, built, "ucc", "cc", "peer_ucc.c", options->ucc, "-lucc");
        else
            missing(built, "--ucc PREFIX would say where it is");
        break;
    case ONECCL:
        if (options->oneccl != NULL)
            compile(run, built, "oneccl", "c++", "peer_oneccl.cpp", options->oneccl, "-lccl");
        else
            missing(built, "--oneccl PREFIX would say where it is");
        break;
    default:
        build_mpi(run, built, program == OPENMPI);
    }
}

static void append(char **list, int most, const char *text)
{
    int n = 0;
    while (list[n] != NULL)
        n++;
    if (n < most - 1)
        list[n] = strdup(text);
}

static void append_words(struct twill_compare_contender *contender, const char *text)
{
    char word[TWILL_COMPARE_PATH];
    while (*(text += strspn(text, " ")) != '\0') {
        size_t length = strcspn(text, " ");
        twill_compare_write(word, sizeof(word), "%.*s", (int)length, text);
        append(contender->command, TWILL_COMPARE_ARGUMENTS, word);
        text += length;
    }
}

static void append_setting(struct twill_compare_contender *contender, const char *text)
{
    append(contender->settings, TWILL_COMPARE_SETTINGS, text);
}

/* How it is started. Cores are taken by the ranks themselves, so that all have the same ones. */
static void command(const struct twill_compare_run *run, const struct entry *entry,
                    const struct built *built, struct twill_compare_contender *contender)
{
    char ranks[16];
    bool open = entry->program == OPENMPI;
    twill_compare_write(ranks, sizeof(ranks), "%d", run->options.ranks);
    append(contender->command, TWILL_COMPARE_ARGUMENTS, built->launcher);
    append_words(contender, open ? "--oversubscribe --bind-to none -np" : "-n");
    append_words(contender, ranks);
    append_words(contender, entry->options);
    append(contender->command, TWILL_COMPARE_ARGUMENTS, built->path);
    append(contender->command, TWILL_COMPARE_ARGUMENTS, contender->path);
    append(contender->command, TWILL_COMPARE_ARGUMENTS, contender->memory);
    append_words(contender, entry->arguments);
    if (entry->setting != NULL)
        append_setting(contender, entry->setting);
    if (open && geteuid() == 0) {
        append_setting(contender, "OMPI_ALLOW_RUN_AS_ROOT=1");
        append_setting(contender, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1");
    }
    if (open && run->options.ranks > run->cores)
        append_setting(contender, "OMPI_MCA_mpi_yield_when_idle=1");
    for (size_t i = 0; contender->tuned && i < sizeof(tuned_settings) / sizeof(char *); i++)
        append_setting(contender, tuned_settings[i]);
}

static void add(struct twill_compare_run *run, const struct entry *entry, const struct built *built,
                bool tuned)
{
    if (run->n_contenders == TWILL_COMPARE_CONTENDERS)
        return;
    struct twill_compare_contender *contender = &run->contenders[run->n_contenders++];
    twill_compare_write(contender->name, sizeof(contender->name), "%s%s", entry->name,
                        tuned ? "-tuned" : "");
    contender->kind = entry->program == BOUND   ? TWILL_COMPARE_BOUND
                      : entry->program == TWILL ? TWILL_COMPARE_TWILL
                                                : TWILL_COMPARE_PEER;
    contender->tuned = tuned;
    contender->memory = tuned ? "huge" : entry->memory;
    twill_compare_write(contender->path, sizeof(contender->path), "%.*s/%s",
                        TWILL_COMPARE_PATH - 40, run->boards, contender->name);
    twill_compare_write(contender->log, sizeof(contender->log), "%.*s/%s.log",
                        TWILL_COMPARE_PATH - 40, run->work, contender->name);
    twill_compare_write(contender->absent, sizeof(contender->absent), "%s", built->why);
    contender->found = built->why[0] == '\0';
    command(run, entry, built, contender);
}

/* Does twillrun have the library that serves malloc() from shared memory? */
static bool has_heap(const struct twill_compare_run *run)
{
    static const char *const folders[] = {"../lib", TWILL_COMPARE_LIBRARY};
    char path[2 * TWILL_COMPARE_PATH];
    for (int i = 0; i < 2; i++) {
        twill_compare_write(path, sizeof(path), "%s/%s/libtwill-heap.so", run->bin, folders[i]);
        if (access(path, R_OK) == 0)
            return true;
    }
    return false;
}

/* Is an entry, in a variant, part of this comparison? */
static bool takes_part(const struct twill_compare_run *run, const struct entry *entry, bool tuned)
{
    char name[64];
    twill_compare_write(name, sizeof(name), "%s%s", entry->name, tuned ? "-tuned" : "");
    if (strcmp(entry->memory, "heap") == 0 && !has_heap(run))
        return false;
    if (entry->rare && entry->program == TWILL && !run->options.prepared)
        return false;
    if (entry->rare && entry->program != TWILL && run->options.peers == NULL)
        return false;
    return (!tuned || entry->tunes) &&
           (entry->program <= TWILL || twill_compare_chosen(&run->options, name));
}

bool twill_compare_gather(struct twill_compare_run *run)
{
    const size_t n = sizeof(entries) / sizeof(entries[0]);
    struct built *built = calloc(PROGRAMS, sizeof(*built));
    bool wanted[PROGRAMS] = {false};
    if (built == NULL)
        return false;
    for (size_t i = 0; i < n; i++)
        wanted[entries[i].program] |=
            takes_part(run, &entries[i], false) || takes_part(run, &entries[i], true);
    for (int program = 0; program < PROGRAMS; program++)
        if (wanted[program] && !twill_compare_interrupted(run))
            build(run, (enum program)program, &built[program]);
    for (int tuned = 0; tuned < 2; tuned++)
        for (size_t i = 0; i < n; i++)
            if (takes_part(run, &entries[i], tuned))
                add(run, &entries[i], &built[entries[i].program], tuned);
    free(built);
    return !twill_compare_interrupted(run);
}

void twill_compare_free_contenders(struct twill_compare_run *run)
{
    for (int i = 0; i < run->n_contenders; i++) {
        for (int k = 0; k < TWILL_COMPARE_ARGUMENTS; k++)
            free(run->contenders[i].command[k]);
        for (int k = 0; k < TWILL_COMPARE_SETTINGS; k++)
            free(run->contenders[i].settings[k]);
    }
}
