/* SPDX-License-Identifier: Apache-2.0 */
/* twillrun's command line, and the programs in it. */
#include "fabric/launcher/launcher.h"
#include "lib/base/times.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char usage[] =
    "Usage: twillrun -n RANKS [options] [--] program [argument ...]\n"
    "       twillrun -n RANKS program [argument ...] : -n RANKS program ...\n"
    "       twillrun --hosts HOST[:RANKS],... [-n RANKS] [options] program ...\n"
    "       twillrun --check [--json[=FILE]] [options] [program]\n"
    "Start copies of a program, on this host or on several, as the ranks of one job.\n"
    "\n"
    "  -n, --ranks RANKS  how many, 1 .. 65535; with hosts, as many as they have\n"
    "                     places\n"
    "  -l, --label        put \"[rank] \" before each line of output\n"
    "  -x NAME[=VALUE]    set a variable for the ranks (no value: as it is here)\n"
    "      --bind WHAT    core, l3, numa or package: what each rank may use, equal\n"
    "                     shares of the cores (default, if there are enough) or all\n"
    "                     of the L3 cache, NUMA node or package that its share is in;\n"
    "                     none: do not bind\n"
    "      --threads-per-rank N  bind each rank to N cores that are near each other,\n"
    "                     for N threads of twill's and of its own (OpenMP); auto: to\n"
    "                     an equal share of the cores; an error if they do not fit\n"
    "      --ppn N        at most N ranks on each host, and places for N on hosts\n"
    "                     that are named without a number\n"
    "      --report-bindings  print to standard error what each rank is bound to\n"
    "      --grace SEC    after a rank failed: time for the others to end (default 3)\n"
    "      --elastic MIN:MAX  keep MAX ranks running: one that fails is replaced\n"
    "                     while MIN others live (see twillrun(1))\n"
    "      --page[=[ADDRESS:]PORT[,open]]  serve a web page of the job, whose address\n"
    "                     and token are printed (127.0.0.1, any port); open: no token\n"
    "      --check        instead, check hosts, network, limits and library for such\n"
    "                     a job, and print what is wrong and what to do; exits with 0\n"
    "                     if nothing is, 1 if something is, 2 if that is not known\n"
    "      --json[=FILE]  with --check: print JSON; or print the page, and JSON into\n"
    "                     a file\n"
    "  -h, --help         print this\n"
    "  -V, --version      print the version\n"
    "\n"
    "Several hosts:\n"
    "      --hosts LIST   HOST[:RANKS],...: where, and how many ranks there (1)\n"
    "      --hostfile FILE  a file with one host a line: HOST[:RANKS] or HOST\n"
    "                     slots=RANKS [max_slots=RANKS]\n"
    "      --map HOW      core (default): fill a host, then the next; node: one rank\n"
    "                     for each host, round-robin\n"
    "      --agent COMMAND  how to reach a host (default ssh): run as COMMAND HOST\n"
    "                     program\n"
    "      --remote PATH  where twillrun is on the other hosts (default: as here)\n"
    "      --timeout SEC  for all hosts to answer and start their ranks (default 30)\n"
    "      --oversubscribe  more ranks than the hosts have places for; max_slots=\n"
    "                     still holds\n"
    "\n"
    "Also, as with mpirun and srun: -np --np, -H --host, --machinefile, --npernode\n"
    "--ntasks-per-node (--ppn), --cpus-per-rank --cpus-per-task\n"
    "(--threads-per-rank), --map-by slot|core|node|ppr:N:node, with :PE=N for\n"
    "--threads-per-rank N behind it, and --bind-to none|core|l3cache|numa|socket|\n"
    "package, or hwthread, which is core here.\n"
    "\n"
    "Ranks find RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT\n"
    "TWILL_JOB in their environment. Standard input goes to rank 0. When a rank\n"
    "fails, the others are ended and its exit code is returned (128 + the number of\n"
    "the signal that killed it).\n";

bool twill_read_number(const char *text, long low, long high, int *value)
{
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    *value = (int)number;
    return end != text && *end == '\0' && errno == 0 && number >= low && number <= high;
}

/* Parse the number of ranks. Returns false after a message. */
static bool read_ranks(struct twill_options *options, const char *text)
{
    bool good = twill_read_number(text, 1, TWILL_MAX_RANKS, &options->ranks);
    if (!good)
        twill_complain("-n %s: not a number of ranks from 1 to %d", text, TWILL_MAX_RANKS);
    return good;
}

/* Set *ns to the seconds in `text`, which may have a fraction. Returns false, after a message that
 * names option `name`, if `text` is no number from 0 to TWILL_LAUNCH_MOST_S. */
static bool read_seconds(uint64_t *ns, const char *name, const char *text)
{
    char *end;
    double value = twill_read_real(text, &end);
    if (end == text || *end != '\0' || !(value >= 0 && value <= TWILL_LAUNCH_MOST_S)) {
        twill_complain("--%s %s: not a number of seconds from 0 to %d", name, text,
                       TWILL_LAUNCH_MOST_S);
        return false;
    }
    *ns = (uint64_t)(value * 1e9);
    return true;
}

const char *const twill_bind_names[TWILL_BIND_COUNT] = {
    [TWILL_BIND_NONE] = "none", [TWILL_BIND_CORE] = "core",       [TWILL_BIND_L3] = "l3",
    [TWILL_BIND_NUMA] = "numa", [TWILL_BIND_PACKAGE] = "package",
};

/* Parse --bind. Returns false after a message. */
static bool read_bind(struct twill_options *options, const char *text)
{
    for (int i = TWILL_BIND_NONE; i < TWILL_BIND_COUNT; i++)
        if (strcmp(text, twill_bind_names[i]) == 0) {
            options->bind.to = (enum twill_bind)i;
            return true;
        }
    twill_complain("--bind %s: not none, core, l3, numa or package", text);
    return false;
}

/* Parse mpirun's --bind-to. A rank gets at least whole cores. Returns false after a message. */
static bool read_bind_to(struct twill_options *options, const char *text)
{
    static const struct {
        const char *name;
        enum twill_bind bind;
    } names[] = {
        {"none", TWILL_BIND_NONE},      {"core", TWILL_BIND_CORE},
        {"hwthread", TWILL_BIND_CORE},  {"l3", TWILL_BIND_L3},
        {"l3cache", TWILL_BIND_L3},     {"numa", TWILL_BIND_NUMA},
        {"socket", TWILL_BIND_PACKAGE}, {"package", TWILL_BIND_PACKAGE},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(names); i++)
        if (strcmp(text, names[i].name) == 0) {
            options->bind.to = names[i].bind;
            return true;
        }
    twill_complain("--bind-to %s: not none, core, hwthread, l3cache, numa, socket or package",
                   text);
    return false;
}

/* Parse --map. Returns false after a message. */
static bool read_map(struct twill_options *options, const char *text)
{
    bool node = strcmp(text, "node") == 0, core = strcmp(text, "core") == 0;
    options->map.how = node ? TWILL_MAP_NODE : TWILL_MAP_CORE;
    if (!node && !core)
        twill_complain("--map %s: not core or node", text);
    return node || core;
}

/* Parse the number of cores of each rank, or "auto". Returns false after a message. */
static bool read_cores(struct twill_options *options, const char *text)
{
    bool is_auto = strcmp(text, "auto") == 0;
    if (!is_auto && !twill_read_number(text, 1, TWILL_MAX_CORES, &options->bind.cores)) {
        twill_complain("--threads-per-rank %s: not a number of cores from 1 to %d, or auto", text,
                       TWILL_MAX_CORES);
        return false;
    }
    if (is_auto)
        options->bind.cores = TWILL_CORES_AUTO;
    return true;
}

/* Parse the number of ranks of each host. Returns false after a message. */
static bool read_ppn(struct twill_options *options, const char *text)
{
    bool good = twill_read_number(text, 1, TWILL_MAX_RANKS, &options->map.ppn);
    if (!good)
        twill_complain("--ppn %s: not a number of ranks from 1 to %d", text, TWILL_MAX_RANKS);
    return good;
}

/* Parse mpirun's --map-by: slot, core, node or ppr:RANKS:node, and maybe PE=CORES behind a colon.
 * Returns false after a message. */
static bool read_map_by(struct twill_options *options, const char *text)
{
    char copy[64], *rest = NULL;
    snprintf(copy, sizeof(copy), "%s", text);
    const char *word = strtok_r(copy, ":", &rest);
    bool good = word && strlen(text) < sizeof(copy);
    options->map.how = TWILL_MAP_CORE;
    if (good && strcmp(word, "ppr") == 0) {
        const char *ranks = strtok_r(NULL, ":", &rest), *unit = strtok_r(NULL, ":", &rest);
        good = ranks && unit && strcmp(unit, "node") == 0 && read_ppn(options, ranks);
    } else if (good && strcmp(word, "node") == 0) {
        options->map.how = TWILL_MAP_NODE;
    } else {
        good = good && (strcmp(word, "core") == 0 || strcmp(word, "slot") == 0);
    }
    word = good ? strtok_r(NULL, ":", &rest) : NULL;
    if (word && strncasecmp(word, "PE=", 3) == 0 && !*rest)
        return read_cores(options, word + 3);
    good = good && !word;
    if (!good)
        twill_complain("--map-by %s: not slot, core or node, or ppr:RANKS:node, with :PE=CORES "
                       "behind it or not",
                       text);
    return good;
}

/* Append the argument of -x, NAME=VALUE, to options->assignments. With a NAME alone, the value is
 * that in twillrun's own environment. Returns true, or false after a message if the name is
 * missing, the environment does not have it, or there is no memory. */
static bool read_assignment(struct twill_options *options, char *text)
{
    const char *equals = strchr(text, '=');
    if (equals == text || *text == '\0') {
        twill_complain("-x %s: a name is missing", text);
        return false;
    }
    if (!equals && !getenv(text)) {
        twill_complain("-x %s: not set here, and no value is given", text);
        return false;
    }
    size_t size = equals ? 0 : strlen(text) + strlen(getenv(text)) + 2;
    char *whole = equals ? strdup(text) : malloc(size);
    if (!whole) {
        twill_complain("no memory for -x %s", text);
        return false;
    }
    if (!equals) /* ranks on other hosts do not inherit it */
        snprintf(whole, size, "%s=%s", text, getenv(text));
    options->assignments[options->assigned++] = whole;
    return true;
}

/* Parse an option about hosts or how to reach them. Returns false after a message. */
static bool read_hosts(struct twill_options *options, int option)
{
    switch (option) {
    case 'H':
        return twill_sites_add(options, optarg);
    case 'F':
        return twill_sites_read(options, optarg);
    case 'm':
        return read_map(options, optarg);
    case 'M':
        return read_map_by(options, optarg);
    case 'T':
        return read_seconds(&options->timeout_ns, "timeout", optarg);
    case 'R':
        options->remote = optarg;
        return true;
    default:
        options->agent = optarg;
        if (optarg[strspn(optarg, " ")] == '\0')
            twill_complain("--agent: a program is missing");
        return optarg[strspn(optarg, " ")] != '\0';
    }
}

/* Parse MIN:MAX of --elastic. Returns false after a message. */
static bool read_elastic(struct twill_options *options, char *text)
{
    char *colon = strchr(text, ':');
    bool good = colon != NULL && strlen(text) < 16;
    char least[16] = "";
    if (good)
        snprintf(least, sizeof(least), "%.*s", (int)(colon - text), text);
    good = good && twill_read_number(colon + 1, 1, TWILL_MAX_RANKS, &options->most) &&
           twill_read_number(least, 1, options->most, &options->least);
    if (!good)
        twill_complain("--elastic %s: not MIN:MAX with 1 <= MIN <= MAX <= %d", text,
                       TWILL_MAX_RANKS);
    return good;
}

/* If --elastic is given, check that the number of ranks of -n is in its range. Without -n, set that
 * to the most of --elastic. Returns true, or false after a message. */
static bool check_elastic(struct twill_options *options)
{
    if (options->most == 0)
        return true;
    if (options->ranks == 0)
        options->ranks = options->most;
    if (options->ranks >= options->least && options->ranks <= options->most)
        return true;
    twill_complain("-n %d: outside --elastic %d:%d", options->ranks, options->least, options->most);
    return false;
}

/* Check the options about the cores of ranks and their number on each host, and set what follows
 * from them. Returns false after a message. */
static bool check_places(struct twill_options *options)
{
    if (options->bind.cores != 0 && options->bind.to > TWILL_BIND_AUTO &&
        options->bind.to != TWILL_BIND_CORE) {
        twill_complain("--bind %s: --threads-per-rank binds ranks to cores",
                       twill_bind_names[options->bind.to]);
        return false;
    }
    if (options->bind.cores != 0)
        options->bind.to = TWILL_BIND_CORE; /* an error if it is refused */
    if (options->sites > 0 || options->map.ppn == 0)
        return true;
    if (options->ranks == 0)
        options->ranks = options->map.ppn;
    int ranks = twill_options_places(options);
    if (ranks > options->map.ppn)
        twill_complain("-n %d: --ppn %d allows no more on this host (--hosts names others)", ranks,
                       options->map.ppn);
    return ranks <= options->map.ppn;
}

/* Parse one option. Returns false if twillrun must exit with *code. */
static bool read_option(struct twill_options *options, int option, int *code)
{
    switch (option) {
    case 'n':
        return read_ranks(options, optarg);
    case 'c':
        return read_cores(options, optarg);
    case 'p':
        return read_ppn(options, optarg);
    case 'l':
        options->label = true;
        return true;
    case 'x':
        return read_assignment(options, optarg);
    case 'b':
        return read_bind(options, optarg);
    case 'B':
        options->report = true;
        return true;
    case 't':
        return read_bind_to(options, optarg);
    case 'v':
        options->oversubscribe = true;
        return true;
    case 'E':
        return read_elastic(options, optarg);
    case 'g':
        return read_seconds(&options->grace_ns, "grace", optarg);
    case 'H':
    case 'F':
    case 'A':
    case 'R':
    case 'T':
    case 'm':
    case 'M':
        return read_hosts(options, option);
    case 'w':
        options->page = optarg ? optarg : "";
        return true;
    case 'S':
        options->serve = true;
        return true;
    case 'C':
        options->check = true;
        return true;
    case 'J':
        options->json = optarg ? optarg : "";
        return true;
    case 'h':
        fputs(usage, stdout);
        *code = 0;
        return false;
    case 'V':
        printf("twillrun (twill) " TWILL_VERSION_TEXT "\n");
        *code = 0;
        return false;
    default: /* getopt has printed a message */
        return false;
    }
}

/* Hints for options that twillrun does not have, without dashes, with blanks and '-' for '_'. */
static const struct {
    const char *theirs, *hint;
} foreign[] = {
    {" N c n-per-node nproc nproc-per-node ntasks ",
     "-n RANKS is the number of all ranks, --ppn RANKS of those on each host"},
    {" d depth cpus-per-proc ", "--threads-per-rank N gives each rank N cores"},
    {" nnodes nodes nodelist node-rank w ",
     "--hosts HOST:RANKS,... starts the ranks of all hosts from one place"},
    {" f ", "--hostfile FILE names a file of hosts"},
    {" mca gmca prtemca pmixmca tune env genv genvlist export ",
     "-x NAME=VALUE sets a variable for all ranks; those of twill are in twill(7)"},
    {" tag-output prepend-rank tee ", "-l puts \"[rank] \" before each line of output"},
    {" wdir wd chdir D ", "ranks start in the current directory: cd there first"},
    {" cpu-bind bind-to-core bind-to-socket ",
     "--bind core, l3, numa, package or none says what each rank may use"},
    {" rank-by ranks-by ", "--map core or node says which ranks go where"},
    {" display-map display ", "--report-bindings prints what each rank is bound to"},
    {" rsh launcher ", "--agent COMMAND says how to reach a host"},
    {" prefix ", "--remote PATH says where twillrun is on the other hosts"},
    {" max-restarts enable-recovery ", "--elastic MIN:MAX replaces ranks that fail"},
    {" genvall allow-run-as-root standalone master-addr master-port rdzv-backend rdzv-endpoint "
     "rdzv-id ",
     "it is not needed here"},
};

/* Return what twillrun has instead of an option of mpirun, srun, torchrun or the like, as a
 * constant clause for a message. `word` is the option with its dashes. Returns NULL if it is not
 * known. */
static const char *find_hint(const char *word)
{
    char name[32];
    word += strspn(word, "-");
    int length = (int)strcspn(word, "=");
    if (length == 0 || snprintf(name, sizeof(name), " %.*s ", length, word) >= (int)sizeof(name))
        return NULL;
    for (char *at = name; *at; at++)
        *at = *at == '_' ? '-' : *at;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(foreign); i++)
        if (strchr(name + 1, ' ') == name + length + 1 && strstr(foreign[i].theirs, name))
            return foreign[i].hint;
    return NULL;
}

/* Return whether a word, which may be NULL, is an option with the number of ranks. */
static bool is_ranks_option(const char *word)
{
    static const char *const names[] = {"-n", "-np", "--np", "--ranks"};
    for (size_t i = 0; word && i < TWILL_ARRAY_LENGTH(names); i++)
        if (strcmp(word, names[i]) == 0)
            return true;
    return false;
}

/* Parse "-n RANKS program" after a ':'. Returns false after a message. */
static bool read_program(struct twill_options *options, char **words)
{
    struct twill_program *program = &options->program[options->programs++];
    if (!is_ranks_option(words[0]) || !words[1] || !words[2] || words[2][0] == '-') {
        twill_complain("after ':' there must be -n RANKS and another program (an argument ':' of "
                       "a program needs -- before the program)");
        return false;
    }
    if (options->most > 0 || options->check) {
        twill_complain("%s takes one program", options->check ? "--check" : "--elastic");
        return false;
    }
    if (options->ranks == 0) {
        twill_complain("with several programs there must be -n RANKS before each");
        return false;
    }
    if (!twill_read_number(words[1], 1, TWILL_MAX_RANKS - options->ranks, &program->ranks)) {
        twill_complain("%s %s: not a number of ranks from 1 to %d", words[0], words[1],
                       TWILL_MAX_RANKS - options->ranks);
        return false;
    }
    program->words = words + 2;
    options->ranks += program->ranks;
    return true;
}

/* List the programs in the words, which ':' separates if `split`. Returns false after a message. */
static bool read_programs(struct twill_options *options, char **words, bool split)
{
    size_t most = 1;
    for (char **word = words; *word; word++)
        most += strcmp(*word, ":") == 0;
    options->command = words;
    options->program = calloc(most, sizeof(*options->program));
    if (!options->program) {
        twill_complain("no memory for the programs");
        return false;
    }
    options->program[options->programs++] =
        (struct twill_program){.ranks = options->ranks, .words = words};
    for (char **word = words; split && *word; word++) {
        if (strcmp(*word, ":") != 0 || !word[1]) /* a last one, as in sh -c :, is an argument */
            continue;
        *word = NULL;
        if (!read_program(options, ++word))
            return false;
    }
    return true;
}

char **twill_program_of(const struct twill_options *options, int rank)
{
    for (int i = 0; i < options->programs; rank -= options->program[i++].ranks)
        if (rank < options->program[i].ranks)
            return options->program[i].words;
    return options->command; /* a rank that --elastic adds */
}

/* Return the letter of the next option, '?' after messages, or -1 at the end. Sets optarg. */
static int next_option(int argc, char **argv)
{
    static const struct option names[] = {
        /* "server" is internal, for the host agent */
        {"ranks", required_argument, NULL, 'n'},
        {"label", no_argument, NULL, 'l'},
        {"bind", required_argument, NULL, 'b'},
        {"report-bindings", no_argument, NULL, 'B'},
        {"grace", required_argument, NULL, 'g'},
        {"elastic", required_argument, NULL, 'E'},
        {"hosts", required_argument, NULL, 'H'},
        {"hostfile", required_argument, NULL, 'F'},
        {"agent", required_argument, NULL, 'A'},
        {"remote", required_argument, NULL, 'R'},
        {"timeout", required_argument, NULL, 'T'},
        {"map", required_argument, NULL, 'm'},
        {"oversubscribe", no_argument, NULL, 'v'},
        {"np", required_argument, NULL, 'n'},
        {"host", required_argument, NULL, 'H'},
        {"machinefile", required_argument, NULL, 'F'},
        {"bind-to", required_argument, NULL, 't'},
        {"map-by", required_argument, NULL, 'M'},
        {"ppn", required_argument, NULL, 'p'},
        {"npernode", required_argument, NULL, 'p'},
        {"ntasks-per-node", required_argument, NULL, 'p'},
        {"threads-per-rank", required_argument, NULL, 'c'},
        {"cpus-per-rank", required_argument, NULL, 'c'},
        {"cpus-per-task", required_argument, NULL, 'c'},
        {"page", optional_argument, NULL, 'w'},
        {"check", no_argument, NULL, 'C'},
        {"json", optional_argument, NULL, 'J'},
        {"server", no_argument, NULL, 'S'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},
        {NULL, 0, NULL, 0},
    };
    const char *word = argv[optind];
    int option = getopt_long_only(argc, argv, "+n:lx:H:hV", names, NULL); /* mpirun has -np */
    const char *hint = option == '?' ? find_hint(word) : NULL;
    if (hint) /* after getopt's message */
        twill_complain("instead of %.*s: %s", (int)strcspn(word, "="), word, hint);
    return option;
}

int twill_options_read(struct twill_options *options, int argc, char **argv, int *code)
{
    int option;
    *code = TWILL_EXIT_USAGE;
    options->assignments = calloc((size_t)argc + 1, sizeof(*options->assignments));
    if (!options->assignments) {
        twill_complain("no memory for the arguments");
        return -1;
    }
    while ((option = next_option(argc, argv)) != -1)
        if (!read_option(options, option, code))
            return -1;
    if (options->serve)
        return 0;
    if (!read_programs(options, argv + optind, strcmp(argv[optind - 1], "--") != 0) ||
        !check_elastic(options) || !check_places(options))
        return -1;
    if (options->sites > 0 && !twill_sites_place(options))
        return -1;
    if (options->ranks == 0) {
        twill_complain("how many ranks? (-n RANKS; see twillrun --help)");
        return -1;
    }
    if (options->json && !options->check) {
        twill_complain("--json goes with --check");
        return -1;
    }
    if (!options->command[0] && !options->check) {
        twill_complain("no program given (see twillrun --help)");
        return -1;
    }
    return 0;
}

void twill_options_free(struct twill_options *options)
{
    for (int i = 0; i < options->sites; i++)
        free(options->site[i].name);
    for (int i = 0; i < options->assigned; i++)
        free(options->assignments[i]);
    free(options->site);
    free(options->program);
    free(options->place);
    free(options->assignments);
}
