/* SPDX-License-Identifier: Apache-2.0 */
/* The table of contenders; finds the launchers and compilers of peers in PATH and compiles their
 * programs. */
#include "bench/tools/compare/contenders.h"

#include <stdlib.h>
#include <string.h>

static const struct twill_compare_entry on_one_host[] = {
    {"bound", BOUND, "", "", NULL, false, false, "own"},
    {"bound-stream", BOUND, "", "stream", NULL, false, false, "own"},
    {"twill", TWILL, "", "", NULL, false, false, "plain"},
    {"twill-huge", TWILL, "", "", NULL, false, false, "huge"},
    {"twill-alloc", TWILL, "", "", NULL, false, false, "own"},
    {"twill-heap", TWILL, "", "", "TWILL_HEAP=shared", false, false, "heap"},
    {"twill-persistent", TWILL, "", "persistent", NULL, false, true, "plain"},
    {"twill-alloc-persistent", TWILL, "", "persistent", NULL, false, true, "own"},
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

/* Between hosts. Within a host, each library uses what it likes. */
static const struct twill_compare_entry between_hosts[] = {
    {"raw", RAW, "", "exchange", NULL, false, false, "plain"},
    {"raw-window", RAW, "", "window", NULL, false, false, "plain"},
    {"raw-steps", RAW, "", "steps", NULL, false, false, "plain"},
    {"raw-pingpong", RAW, "", "pingpong", NULL, false, false, "plain"},
    {"fi-pingpong", PINGPONG, "", "fi_pingpong -e rdm -p 'tcp;ofi_rxm'", NULL, false, false, ""},
    {"twill", TWILL, "", "", NULL, false, false, "plain"},
    {"twill-alloc", TWILL, "", "", NULL, false, false, "own"},
    {"twill-persistent", TWILL, "", "persistent", NULL, false, true, "plain"},
    {"twill-ofi", TWILL, "", "", "TWILL_PROVIDER=ofi:tcp", false, false, "plain"},
    {"ompi-tcp", OPENMPI, "--mca pml ob1 --mca btl tcp,vader,self", "", NULL, true, false, "plain"},
    {"ompi-tcp2", OPENMPI, "--mca pml ob1 --mca btl tcp,vader,self --mca btl_tcp_links 2", "", NULL,
     false, false, "plain"},
    {"ompi-ucx", OPENMPI, "--mca pml ucx --mca pml_ucx_tls any --mca pml_ucx_devices any", "",
     "UCX_TLS=tcp,sm,self", true, false, "plain"},
    {"mpich", MPICH, "", "", "UCX_TLS=tcp,sm,self", true, false, "plain"},
    {"gloo", GLOO, "", "ring", NULL, false, false, "plain"},
    {"gloo-bcube", GLOO, "", "bcube", NULL, false, true, "plain"},
    {"gloo-halving", GLOO, "", "halving", NULL, false, false, "plain"},
};

/* --steps: on one host and between hosts. */
#define STEPS_OF_TWILL                                                                             \
    {"twill", TWILL, "", "", NULL, false, false, "plain"},                                         \
    {                                                                                              \
        "twill-thread", TWILL, "", "", "TWILL_PROGRESS=thread", false, false, "plain"              \
    }
static const struct twill_compare_entry steps_on_one_host[] = {
    STEPS_OF_TWILL,
    {"ompi-cma", OPENMPI,
     "--mca pml ob1 --mca btl vader,self --mca btl_vader_single_copy_mechanism cma", "", NULL,
     false, false, "plain"},
    {"ompi-ucx", OPENMPI, "--mca pml ucx --mca pml_ucx_tls any --mca pml_ucx_devices any", "", NULL,
     false, false, "plain"},
    {"mpich", MPICH, "", "", NULL, false, false, "plain"},
    {"gloo", GLOO, "", "ring", NULL, false, false, "plain"},
};
static const struct twill_compare_entry steps_between_hosts[] = {
    STEPS_OF_TWILL,
    {"ompi-tcp", OPENMPI, "--mca pml ob1 --mca btl tcp,vader,self", "", NULL, false, false,
     "plain"},
    {"ompi-ucx", OPENMPI, "--mca pml ucx --mca pml_ucx_tls any --mca pml_ucx_devices any", "",
     "UCX_TLS=tcp,sm,self", false, false, "plain"},
    {"mpich", MPICH, "", "", "UCX_TLS=tcp,sm,self", false, false, "plain"},
    {"gloo", GLOO, "", "ring", NULL, false, false, "plain"},
};

/* Pairs with and without twill, on one host or several. */
#define PAIR_CONTENDER(name, program, setting, arguments, memory)                                  \
    {name, program, "", arguments, setting, false, false, memory},                                 \
    {                                                                                              \
        name "+twill", program, "", arguments, setting, false, false, memory                       \
    }
#define MPI(name, program)                                                                         \
    PAIR_CONTENDER(name, program, NULL, "", "plain"),                                              \
        PAIR_CONTENDER(name "-alloc", program, NULL, "", "own"),                                   \
        PAIR_CONTENDER(name "-nonblocking", program, NULL, "nonblocking", "plain"),                \
    {                                                                                              \
        name "+off", program, "", "", "TWILL_MPI=0", false, false, "plain"                         \
    }
static const struct twill_compare_entry with_mpi[] = {MPI("ompi", OPENMPI), MPI("mpich", MPICH)};

/* Set the table for this comparison and return its length. */
static size_t entries_of(const struct twill_compare_run *run,
                         const struct twill_compare_entry **entries)
{
    bool hosts = run->options.n_hosts > 0;
    if (run->options.played.n_lists > 0) {
        *entries = hosts ? steps_between_hosts : steps_on_one_host;
        return hosts ? sizeof(steps_between_hosts) / sizeof(steps_between_hosts[0])
                     : sizeof(steps_on_one_host) / sizeof(steps_on_one_host[0]);
    }
    *entries = run->options.mpi ? with_mpi : hosts ? between_hosts : on_one_host;
    return run->options.mpi ? sizeof(with_mpi) / sizeof(with_mpi[0])
           : hosts          ? sizeof(between_hosts) / sizeof(between_hosts[0])
                            : sizeof(on_one_host) / sizeof(on_one_host[0]);
}

bool twill_compare_chosen(const struct twill_compare_options *options, const char *name)
{
    if (options->peers == NULL)
        return true;
    for (const char *word = options->peers; *word != '\0';) {
        char pattern[64];
        size_t length = strcspn(word, ",");
        twill_compare_write(pattern, sizeof(pattern), "%.*s", (int)length, word);
        if (pattern[0] != '\0' && strstr(name, pattern) != NULL)
            return true;
        word += length + (word[length] == ',');
    }
    return false;
}

/* Find a command in PATH. */
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

/* Find an MPI's compiler and launcher: under its own names, or under the common ones if the
 * launcher says that it belongs to this MPI. */
static bool find_mpi(struct twill_compare_run *run, bool open, char *compiler, char *launcher)
{
    char log[TWILL_COMPARE_PATH + 32], said[TWILL_COMPARE_TEXT];
    const size_t bytes = TWILL_COMPARE_PATH;
    if (find_command(open ? "mpicc.openmpi" : "mpicc.mpich", compiler, bytes) &&
        find_command(open ? "mpirun.openmpi" : "mpiexec.mpich", launcher, bytes))
        return true;
    if (!find_command("mpicc", compiler, bytes) ||
        !find_command(open ? "mpirun" : "mpiexec", launcher, bytes))
        return false;
    char *command[] = {launcher, (char[]){"--version"}, NULL};
    twill_compare_write(log, sizeof(log), "%s/version.log", run->folders.work);
    if (twill_compare_command(run, command, log) != 0)
        return false;
    twill_compare_first_line(log, open ? "Open MPI" : "HYDRA", said, sizeof(said));
    return strstr(said, open ? "Open MPI" : "HYDRA") != NULL;
}

static void missing(struct twill_compare_built *built, const char *why)
{
    twill_compare_write(built->why, sizeof(built->why), "%s", why);
}

/* Run COMPILER flags -o work/compare-NAME SOURCE libraries. */
static void compile(struct twill_compare_run *run, struct twill_compare_built *built,
                    const char *name, const char *compiler, const char *source, const char *prefix,
                    const char *library)
{
    char text[8 * TWILL_COMPARE_PATH], log[TWILL_COMPARE_PATH + 64], said[TWILL_COMPARE_TEXT];
    char quoted[2 * TWILL_COMPARE_PATH + 64] = "";
    twill_compare_write(built->path, sizeof(built->path), "%s/compare-%s", run->folders.work, name);
    twill_compare_write(log, sizeof(log), "%s/%s-compile.log", run->folders.work, name);
    if (prefix != NULL)
        twill_compare_write(quoted, sizeof(quoted), "-I%s/include -L%s/lib -Wl,-rpath,%s/lib",
                            prefix, prefix, prefix);
    twill_compare_write(text, sizeof(text), "%s -O3 -D_GNU_SOURCE -o %s %s/%s %s %s", compiler,
                        built->path, run->folders.sources, source, quoted, library);
    char *words[TWILL_COMPARE_ARGUMENTS], *rest = text;
    int n = 0;
    while (n < TWILL_COMPARE_ARGUMENTS - 1 && (words[n] = strsep(&rest, " ")) != NULL)
        n += words[n][0] != '\0';
    words[n] = NULL;
    if (twill_compare_command(run, words, log) != 0 || access(built->path, X_OK) != 0) {
        twill_compare_first_line(log, "rror", said, sizeof(said));
        twill_compare_write(built->why, sizeof(built->why),
                            "not installed, or its program does not compile: %s", said);
    }
}

/* Find one of our libraries, in the build tree or installed. */
static bool find_library(const struct twill_compare_run *run, const char *name, char *path,
                         size_t bytes)
{
    static const char *const folders[] = {"../lib", TWILL_COMPARE_LIBRARY};
    for (int i = 0; i < 2; i++) {
        twill_compare_write(path, bytes, "%s/%s/%s", run->folders.bin, folders[i], name);
        if (access(path, R_OK) == 0)
            return true;
    }
    path[0] = '\0';
    return false;
}

static void build_mpi(struct twill_compare_run *run, struct twill_compare_built *built, bool open)
{
    char compiler[TWILL_COMPARE_PATH];
    find_library(run, open ? "libtwill-mpi-openmpi.so" : "libtwill-mpi-mpich.so", built->preload,
                 sizeof(built->preload));
    if (find_mpi(run, open, compiler, built->launcher))
        compile(run, built, open ? "openmpi" : "mpich", compiler, "peer_mpi.c", NULL, "-ldl");
    else
        missing(built,
                open ? "not installed: no mpicc.openmpi with mpirun.openmpi, and no mpicc with "
                       "an mpirun of Open MPI"
                     : "not installed: no mpicc.mpich with mpiexec.mpich, and no mpicc with an "
                       "mpiexec of MPICH");
}

/* Use a program that was built with the tools: twill's or the bound. */
static void take_program(struct twill_compare_run *run, struct twill_compare_built *built,
                         const char *name)
{
    twill_compare_write(built->path, sizeof(built->path), "%s/compare-%s", run->folders.programs,
                        name);
    if (access(built->path, X_OK) != 0)
        twill_compare_write(built->why, sizeof(built->why), "%s is missing", built->path);
}

static void build(struct twill_compare_run *run, enum twill_compare_program program,
                  struct twill_compare_built *built)
{
    const struct twill_compare_options *options = &run->options;
    twill_compare_write(built->launcher, sizeof(built->launcher), "%s/twillrun", run->folders.bin);
    switch (program) {
    case BOUND:
        take_program(run, built, "bound");
        break;
    case TWILL:
        take_program(run, built, "twill");
        break;
    case RAW:
        take_program(run, built, "raw");
        break;
    case PINGPONG:
        if (!find_command("fi_pingpong", built->path, sizeof(built->path)))
            missing(built, "not installed: no fi_pingpong");
        break;
    case GLOO:
        compile(run, built, "gloo", "c++", "peer_gloo.cpp", NULL, "-lgloo -lpthread");
        break;
    case UCC:
        if (options->paths.ucc != NULL)
            compile(run, built, "ucc", "cc", "peer_ucc.c", options->paths.ucc, "-lucc");
        else
            missing(built, "its path was not given: --ucc PREFIX");
        break;
    case ONECCL:
        if (options->paths.oneccl != NULL)
            compile(run, built, "oneccl", "c++", "peer_oneccl.cpp", options->paths.oneccl, "-lccl");
        else
            missing(built, "its path was not given: --oneccl PREFIX");
        break;
    default:
        build_mpi(run, built, program == OPENMPI);
    }
}

/* Return the contender without twill: the name up to the plus, or -1. */
static int find_base(const struct twill_compare_run *run, const char *name)
{
    size_t length = strcspn(name, "+");
    for (int i = 0; name[length] != '\0' && i < run->n_contenders; i++)
        if (strlen(run->contenders[i].name) == length &&
            strncmp(run->contenders[i].name, name, length) == 0)
            return i;
    return -1;
}

static enum twill_compare_kind entry_kind(const struct twill_compare_entry *entry)
{
    if (entry->program == BOUND)
        return TWILL_COMPARE_BOUND;
    if (entry->program == TWILL || strchr(entry->name, '+') != NULL)
        return TWILL_COMPARE_TWILL;
    if (entry->program < RAW)
        return TWILL_COMPARE_PEER;
    return strstr(entry->arguments, "pingpong") == NULL ? TWILL_COMPARE_BOUND : TWILL_COMPARE_TRIP;
}

static void add_contender(struct twill_compare_run *run, const struct twill_compare_entry *entry,
                          const struct twill_compare_built *built, bool tuned)
{
    if (run->n_contenders == TWILL_COMPARE_CONTENDERS)
        return;
    struct twill_compare_contender *contender = &run->contenders[run->n_contenders++];
    twill_compare_write(contender->name, sizeof(contender->name), "%s%s", entry->name,
                        tuned ? "-tuned" : "");
    contender->kind = entry_kind(entry);
    contender->below = find_base(run, entry->name);
    contender->self_only = strstr(entry->name, "+off") != NULL;
    contender->pingpong = entry->program == PINGPONG ? entry->arguments : NULL;
    contender->tuned = tuned;
    contender->memory = tuned ? "huge" : entry->memory;
    if (run->options.n_hosts > 0)
        twill_compare_link_text(run, run->n_contenders - 1, contender->path,
                                sizeof(contender->path));
    else
        twill_compare_write(contender->path, sizeof(contender->path), "%.*s/%s",
                            TWILL_COMPARE_PATH - 40, run->folders.boards, contender->name);
    twill_compare_write(contender->log, sizeof(contender->log), "%.*s/%s.log",
                        TWILL_COMPARE_PATH - 40, run->folders.work, contender->name);
    twill_compare_write(contender->absent, sizeof(contender->absent), "%s", built->why);
    if (strchr(entry->name, '+') != NULL && built->why[0] == '\0' && built->preload[0] == '\0')
        twill_compare_write(contender->absent, sizeof(contender->absent),
                            "libtwill-mpi is missing: twill was built without this MPI");
    contender->found = contender->absent[0] == '\0';
    twill_compare_command_of(run, entry, built, contender);
}

/* Return whether an entry, tuned or not, takes part in this comparison. */
static bool takes_part(const struct twill_compare_run *run, const struct twill_compare_entry *entry,
                       bool tuned)
{
    char name[64], path[2 * TWILL_COMPARE_PATH];
    twill_compare_write(name, sizeof(name), "%s%s", entry->name, tuned ? "-tuned" : "");
    if (strcmp(entry->memory, "heap") == 0 &&
        !find_library(run, "libtwill-heap.so", path, sizeof(path)))
        return false;
    if (entry->rare && entry->program == TWILL && !run->options.persistent)
        return false;
    if (entry->rare && entry->program != TWILL && run->options.peers == NULL)
        return false;
    return (!tuned || entry->tunes) && (entry->program <= TWILL || entry->program == RAW ||
                                        twill_compare_chosen(&run->options, name));
}

bool twill_compare_gather(struct twill_compare_run *run)
{
    const struct twill_compare_entry *entries;
    const size_t n = entries_of(run, &entries);
    struct twill_compare_built *built = calloc(PROGRAMS, sizeof(*built));
    bool selected[PROGRAMS] = {false};
    if (built == NULL)
        return false;
    for (size_t i = 0; i < n; i++)
        selected[entries[i].program] |=
            takes_part(run, &entries[i], false) || takes_part(run, &entries[i], true);
    for (int program = 0; program < PROGRAMS; program++)
        if (selected[program] && !twill_compare_interrupted(run))
            build(run, (enum twill_compare_program)program, &built[program]);
    for (int tuned = 0; tuned < 2; tuned++)
        for (size_t i = 0; i < n; i++)
            if (takes_part(run, &entries[i], tuned))
                add_contender(run, &entries[i], &built[entries[i].program], tuned);
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
