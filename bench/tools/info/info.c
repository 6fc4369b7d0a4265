/* SPDX-License-Identifier: Apache-2.0 */
/* twill-info shows the machine, what twill chose and why, its variables, and where pages are. */
#include "bench/tools/info/info.h"
#include "bench/common/option_names.h"
#include "bench/common/option_table.h"
#include "bench/common/report.h"
#include "bench/common/tool_calls.h"
#include "lib/twill_recover.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "Usage: twill-info [--env] [--memory[=SIZE]] [--gradient-threads N]\n"
    "       twill-info --threads[=N] [--topology FILE] [--ppn RANKS]\n"
    "       twill-info --job PID|NAME [--events N]\n"
    "                  [--json | --flight-recorder PREFIX]\n"
    "       twill-info --page PID|NAME [--serve [ADDRESS:]PORT[,open]]\n"
    "       twill-info --why COLLECTIVE SIZE [TYPE] [mapped] [fetched] [narrow]\n"
    "                  [vector] [ordered] [left] [--world WORLD] [--topology FILE]\n"
    "                  [--machine NAME] [--model FILE] [--threads=N]\n"
    "       twill-info --why factors ROWSxCOLUMNSxSAMPLES [--world WORLD] ...\n"
    "Show the machine as twill sees it, what it chose and why; or what a running job\n"
    "does.\n"
    "\n"
    "      --env            the environment variables: value, default, source and\n"
    "                       help\n"
    "      --memory[=SIZE]  allocate SIZE (64M) by TWILL_MEMORY, touch it, and ask\n"
    "                       the kernel where its pages and those shared by the node's\n"
    "                       ranks are; fails if they should be bound and are not\n"
    "      --threads[=N]    draw which thread works on which core, by package, NUMA\n"
    "                       node, L3 cache and tile: those of this job's ranks on the\n"
    "                       first host, or N of each; or with --topology those of\n"
    "                       --ppn ranks (1) on that machine, as twillrun binds them\n"
    "                       if it is told their threads; with --why, ranks have N\n"
    "                       that share copies and reductions\n"
    "      --gradient-threads N  where N communication threads of a gradient set run:\n"
    "                       package, NUMA node, core, PU, and the endpoint of each;\n"
    "                       one block a rank\n"
    "      --job PID|NAME   what each rank of a job of this user on this host does:\n"
    "                       the call, the rank it waits for, and which rank is\n"
    "                       behind, stopped or dead; the PID of a rank or of the\n"
    "                       launcher, or the name of the program\n"
    "      --events N       and the last N events of each rank and communicator (0)\n"
    "      --json           as JSON\n"
    "      --flight-recorder PREFIX\n"
    "                       instead: write PREFIX0, PREFIX1 ... as PyTorch's flight\n"
    "                       recorder does\n"
    "      --page PID|NAME  serve a web page of that job until Ctrl-C, and print its\n"
    "                       address, with a token; for ranks of Slurm or torchrun too\n"
    "      --serve WHERE    at this address and port (127.0.0.1, any); open: no token\n"
    "      --why            which algorithm a call takes: candidates, prices, what\n"
    "                       was measured, and why others do not apply; buffers of\n"
    "                       twill_alloc (mapped), of peers that can be read\n"
    "                       (fetched), shards of different sizes (vector), operations\n"
    "                       that do not commute (ordered) or have narrow partial\n"
    "                       results (narrow), TWILL_REPRODUCIBLE (left). Of a dense\n"
    "                       layer with SAMPLES a rank: whether a set gathers its\n"
    "                       factors\n"
    "      --world WORLD    for that world instead of this job: 24x8 (nodes x ranks),\n"
    "                       24x2x8 (nodes x packages x ranks), 24x2x4x8 (... x L3\n"
    "                       caches x ranks), 4+2 (ranks of each node), or\n"
    "                       groups=2,nodes=12,packages=2,numa=2,l3=2,tiles=2,ranks=2\n"
    "                       (each per unit of the level above); TWILL_LAYOUT=groups\n"
    "                       and TWILL_LAYOUT=units apply\n"
    "      --topology FILE  for nodes of that machine (as TWILL_LAYOUT=topology),\n"
    "                       where ranks are bound as twillrun binds them; without\n"
    "                       --world one node, a rank for each core\n"
    "      --machine NAME   for that machine, instead of TWILL_TUNE=machine: auto,\n"
    "                       fattree, fattree2, fattree4, theta\n"
    "      --model FILE     by that file's model and measurements, instead of\n"
    "                       TWILL_TUNING's\n"
    "  -h, --help  -V, --version\n"
    "\n"
    "Exit status: 0 success, 1 a failure or misplaced pages, 2 a wrong command line.\n";

/* The command line, in main(). Strings are NULL if not given. */
struct request {
    bool environment, memory, why; /* --env, --memory and --why are given */
    struct twill_job_options job;  /* name is NULL if not requested */
    bool elsewhere;                /* --why is about another world than this job */
    size_t bytes;
    size_t gradient_threads; /* for --gradient-threads, 0 if not requested */
    bool draw;               /* --threads is given */
    size_t threads, ppn;     /* of --threads and --ppn, 0 if not given */
    const char *world, *topology, *machine;
    const char *page, *serve; /* of --page and --serve */
    char question[1024];      /* for --why, as twill_context_why() takes it */
};

enum { FIELD_NAME, FIELD_VALUE, FIELD_DEFAULT, FIELD_SOURCE, FIELD_HELP, FIELD_COUNT };

/* Print a table of twill's environment variables, with the value, default, source and help of
 * each. */
static void print_environment(twill_context *context)
{
    static const struct twill_info_line titles = {
        .field = {"variable", "value", "default", "source", "help"}};
    struct twill_info_line line = titles;
    int widths[FIELD_COUNT] = {0};
    for (size_t n = 0; n == 0 || twill_info_cut(twill_context_variable(context, n - 1), &line); n++)
        for (int i = 0; i < FIELD_COUNT; i++) {
            size_t length = strlen(line.field[i]);
            int most = length < 40 ? (int)length : 40;
            widths[i] = most > widths[i] ? most : widths[i];
        }
    line = titles;
    for (size_t n = 0; n == 0 || twill_info_cut(twill_context_variable(context, n - 1), &line);
         n++) {
        for (int i = 0; i < FIELD_HELP; i++)
            printf("%-*s  ", widths[i], line.field[i]);
        printf("%s\n", line.field[FIELD_HELP]);
    }
}

/* Print twill_context_describe() with the texts of "key: text" lines in one column. */
static void print_description(twill_context *context)
{
    enum { WIDEST = 24 };
    const char *line;
    int width = 0;
    for (size_t i = 0; (line = twill_context_describe(context, i)) != NULL; i++) {
        const char *colon = strstr(line, ": ");
        if (colon != NULL && colon - line > width && colon - line <= WIDEST)
            width = (int)(colon - line);
    }
    for (size_t i = 0; (line = twill_context_describe(context, i)) != NULL; i++) {
        const char *colon = strstr(line, ": ");
        if (colon != NULL && colon - line <= WIDEST)
            printf("%-*.*s  %s\n", width, (int)(colon - line), line, colon + 2);
        else
            printf("%s\n", line);
    }
}

/* Print how soon an error names a rank that does not answer, if there are two or more ranks. */
static void print_bounds(const twill_comm *comm)
{
    twill_bounds bounds;
    if (twill_comm_size(comm) < 2 || twill_comm_bounds(comm, &bounds) != TWILL_OK)
        return;
    printf("noticed within          a dead process %.2f s, ", bounds.death);
    if (bounds.host > 0)
        printf("a lost host %.1f s, ", bounds.host);
    printf("a silent rank %.1f s\n", bounds.silent);
}

/* The value of TWILL_MEMORY, and whether it requests to bind (":bind") memory of the user, before
 * its comma, and of the library, after it. */
struct placement_request {
    char value[128];
    bool user, library;
};

/* Return the value of TWILL_MEMORY in the context, which is its default if it is not set. Also
 * return whether it has ":bind" before its comma, for memory of the user, and after it, for memory
 * of the library. The value is "?" if the context lists no such variable. */
static struct placement_request find_placement_request(twill_context *context)
{
    struct placement_request placement_request = {"?", false, false};
    struct twill_info_line line;
    for (size_t n = 0; twill_info_cut(twill_context_variable(context, n), &line); n++)
        if (strcmp(line.field[FIELD_NAME], "TWILL_MEMORY") == 0)
            snprintf(placement_request.value, sizeof(placement_request.value), "%s",
                     line.field[FIELD_VALUE]);
    const char *bind = strstr(placement_request.value, ":bind");
    const char *comma = strchr(placement_request.value, ',');
    placement_request.user = bind != NULL && (comma == NULL || bind < comma);
    placement_request.library = comma != NULL && strstr(comma, ":bind") != NULL;
    return placement_request;
}

/* Print how many pages are on each NUMA node that has some, and how many are absent. */
static void print_pages(const struct twill_bench_pages *pages)
{
    for (int node = 0; node < TWILL_BENCH_NODES; node++)
        if (pages->on_node[node] > 0)
            printf("  NUMA node %-3d %10zu pages  %6.2f%%\n", node, pages->on_node[node],
                   100.0 * (double)pages->on_node[node] / (double)pages->total);
    if (pages->elsewhere > 0)
        printf("  absent        %10zu pages\n", pages->elsewhere);
}

/* Print whether the pages are bound and, if `whole`, all present. Returns 0 if so, else 1. Without
 * `bind`, which means that binding was requested, print that it was not and return 0. */
static int judge_pages(const struct twill_bench_pages *pages, bool bind, bool whole)
{
    if (!bind) {
        printf("No :bind was requested, so pages may be on any node.\n");
        return 0;
    }
    bool good = twill_bench_pages_bound(pages) && !(whole && pages->elsewhere > 0);
    printf("%s\n", good ? "Bound as requested: every page is on a node of the policy."
                        : "NOT bound as requested.");
    return good ? 0 : 1;
}

/* Print why pages could not be queried, with the text of an errno. Returns 1, an exit status. */
static int fail_pages_query(int error)
{
    fprintf(stderr, "twill-info: --memory: move_pages: %s (in a container, allow the call)\n",
            strerror(error));
    return 1;
}

/* Print where communicators' shared memory is, if this process maps any. Returns 1 if it is not
 * bound as requested, or if that cannot be queried, else 0. */
static int check_shared_pages(const struct placement_request *placement_request)
{
    struct twill_bench_pages pages;
    unsigned ranges;
    int error = twill_bench_pages_find_named("/memfd:twill-comm", &pages, &ranges);
    if (error != 0)
        return fail_pages_query(error);
    if (ranges == 0)
        return 0;
    printf("shared  %zu bytes of %u ranks' regions of a communicator, policy: %s\n",
           pages.total * pages.page_bytes, ranges, pages.policy);
    print_pages(&pages);
    return judge_pages(&pages, placement_request->library, false);
}

/* Allocate `bytes` bytes by twill_alloc(), touch them, and print on which NUMA nodes they are, and
 * then communicators' shared memory. Returns 0, or 1 if that is not where TWILL_MEMORY binds it, or
 * after a message on failure. */
static int check_memory_pages(twill_context *context, size_t bytes)
{
    struct placement_request placement_request = find_placement_request(context);
    void *memory;
    size_t have = (size_t)sysconf(_SC_AVPHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    if (bytes > have) { /* all of it will be touched, so the kernel would kill this process */
        fprintf(stderr, "twill-info: --memory: %zu bytes are more than the %zu that are free\n",
                bytes, have);
        return 1;
    }
    twill_status status = twill_alloc(context, &memory, bytes);
    if (status != TWILL_OK) {
        fprintf(stderr, "twill-info: --memory: %zu bytes: %s: %s\n", bytes, twill_strerror(status),
                twill_context_message(context));
        return 1;
    }
    memset(memory, 1, bytes);
    struct twill_bench_pages pages;
    int error = twill_bench_pages_find(memory, bytes, &pages);
    printf("memory  %zu bytes by TWILL_MEMORY=%s, policy of the range: %s\n", bytes,
           placement_request.value, pages.policy);
    if (error == 0)
        print_pages(&pages);
    int result =
        error == 0 ? judge_pages(&pages, placement_request.user, true) : fail_pages_query(error);
    twill_free(context, memory);
    return result == 0 ? check_shared_pages(&placement_request) : result;
}

/* Append a prefix and a word to the question, quoted if it has blanks, unless it is NULL or "". */
static void add_word(struct request *request, const char *name, const char *value)
{
    size_t used = strlen(request->question);
    const char *mark = value != NULL && strchr(value, ' ') != NULL ? "\"" : "";
    if (value != NULL && *value != '\0')
        snprintf(request->question + used, sizeof(request->question) - used, " %s%s%s%s", name,
                 mark, value, mark);
}

/* Append a user's word as twill names it. If `first`, it is a collective (all_reduce). Otherwise it
 * may be a type (fp32) or a size with a B (8MB), which becomes bytes. Other words stay. */
static void add_translated(struct request *request, const char *word, bool first)
{
    char number[32];
    size_t bytes;
    int type = first ? -1 : twill_bench_type_parse(word);
    if (first)
        word = twill_bench_collective_name(word);
    else if (type >= 0)
        word = twill_type_name((twill_type)type);
    else if (twill_bench_parse_size(word, &bytes) && strchr(word, 'B') != NULL) {
        snprintf(number, sizeof(number), "%zu", bytes);
        word = number;
    }
    add_word(request, "", word);
}

/* Append to the question the entries groups= and units= of TWILL_LAYOUT, if it has any. */
static void add_layout(struct request *request)
{
    char copy[sizeof(request->question)], *rest = NULL;
    const char *layout = getenv("TWILL_LAYOUT");
    snprintf(copy, sizeof(copy), "%s", layout != NULL ? layout : "");
    for (char *word = strtok_r(copy, ";", &rest); word != NULL; word = strtok_r(NULL, ";", &rest))
        if (strncmp(word, "groups=", 7) == 0 || strncmp(word, "units=", 6) == 0)
            add_word(request, "", word);
}

/* Compose the question of --why from its words and options. Returns 0, or 2 after a message. */
static int compose_question(struct request *request, char **words)
{
    const char *const named[][3] = {{"world", "world=", request->world},
                                    {"topology", "topology=", request->topology},
                                    {"machine", "machine=", request->machine}};
    for (int i = 0; words[i] != NULL; i++)
        add_translated(request, words[i], i == 0);
    for (size_t i = 0; i < sizeof(named) / sizeof(named[0]); i++) {
        if (named[i][2] != NULL && strchr(named[i][2], '"') != NULL) {
            fprintf(stderr, "twill-info: --%s: '%s': must not contain a quotation mark\n",
                    named[i][0], named[i][2]);
            return 2;
        }
        add_word(request, named[i][1], named[i][2]);
    }
    char threads[24] = "";
    snprintf(threads, sizeof(threads), "%zu", request->threads);
    add_word(request, "threads=", request->threads > 0 ? threads : NULL);
    request->elsewhere = request->world != NULL || request->topology != NULL;
    if (request->elsewhere) {
        add_word(request, "groups=", getenv("TWILL_GROUPS"));
        add_word(request, "units=", getenv("TWILL_UNITS"));
        add_layout(request);
    }
    if (strlen(request->question) < sizeof(request->question) - 1)
        return 0;
    fprintf(stderr, "twill-info: --why: the question is too long\n");
    return 2;
}

/* Complain about options that need --job if it is missing. Returns whether it has complained. */
static bool lacks_job(const struct twill_job_options *job)
{
    if (job->name != NULL || (!job->json && job->recorder == NULL && job->events == 0))
        return false;
    fprintf(stderr, "twill-info: --events, --json and --flight-recorder go with --job\n");
    return true;
}

/* Note --memory with its size, which may be NULL. Returns false if the size is wrong or 0. */
static bool read_memory(void *member, const char *text)
{
    struct request *request = member;
    request->memory = true;
    return text == NULL || (twill_bench_parse_size(text, &request->bytes) && request->bytes > 0);
}

/* Note --threads with its number, which may be NULL. Returns false if the number is wrong or 0. */
static bool read_threads(void *member, const char *text)
{
    struct request *request = member;
    request->draw = true;
    return text == NULL || (twill_bench_parse_size(text, &request->threads) &&
                            request->threads > 0 && request->threads <= 1024);
}

/* Set TWILL_TUNING to the file of --model. Returns false if out of memory. */
static bool read_model(void *member, const char *text)
{
    (void)member;
    return setenv("TWILL_TUNING", text, 1) == 0;
}

#define INFO_AT(member) offsetof(struct request, member)

/* clang-format off */
static const struct twill_option info_options[] = {
    {0, "env", OPTION_SWITCH, INFO_AT(environment), 0, 0, NULL, NULL, 0},
    {0, "memory", OPTION_MAYBE, 0, 0, 0, "a size such as 64M", read_memory, 0},
    {0, "why", OPTION_SWITCH, INFO_AT(why), 0, 0, NULL, NULL, 0},
    {0, "threads", OPTION_MAYBE, 0, 0, 0, "a number from 1 to 1024", read_threads, 0},
    {0, "ppn", OPTION_COUNT, INFO_AT(ppn), 1, 1024, "a number from 1 to 1024", NULL, 0},
    {0, "gradient-threads", OPTION_COUNT, INFO_AT(gradient_threads), 1, 64, "a number from 1 to 64", NULL, 0},
    {0, "job", OPTION_TEXT, INFO_AT(job.name), 0, 0, NULL, NULL, 0},
    {0, "events", OPTION_COUNT, INFO_AT(job.events), 0, 4096, "a number up to 4096", NULL, 0},
    {0, "json", OPTION_SWITCH, INFO_AT(job.json), 0, 0, NULL, NULL, 0},
    {0, "flight-recorder", OPTION_TEXT, INFO_AT(job.recorder), 0, 0, NULL, NULL, 0},
    {0, "page", OPTION_TEXT, INFO_AT(page), 1, 0, "a PID or a name", NULL, 0},
    {0, "serve", OPTION_TEXT, INFO_AT(serve), 1, 0, "[ADDRESS:]PORT[,open]", NULL, 0},
    {0, "world", OPTION_TEXT, INFO_AT(world), 0, 0, NULL, NULL, 0},
    {0, "topology", OPTION_TEXT, INFO_AT(topology), 0, 0, NULL, NULL, 0},
    {0, "machine", OPTION_TEXT, INFO_AT(machine), 0, 0, NULL, NULL, 0},
    {0, "model", OPTION_OWN, 0, 0, 0, "a file", read_model, 0},
};
/* clang-format on */

/* Read the command line into *request. Returns -1 to continue, or the exit status. */
static int parse_info(struct request *request, int argc, char **argv)
{
    const struct twill_command command = {"twill-info", usage, info_options,
                                          sizeof(info_options) / sizeof(info_options[0])};
    enum twill_parsed parsed = twill_options_parse(&command, request, argc, argv, true);
    if (parsed != TWILL_PARSED_RUN)
        return parsed == TWILL_PARSED_DONE ? 0 : 2;
    if (request->why)
        return compose_question(request, argv + optind) == 0 ? -1 : 2;
    if (lacks_job(&request->job))
        return 2;
    bool any = request->world != NULL || request->machine != NULL ||
               (request->topology != NULL && !request->draw) ||
               (request->ppn > 0 && (!request->draw || request->topology == NULL));
    if (any)
        fprintf(stderr, "twill-info: --world, --topology and --machine go with --why, --topology "
                        "with --threads also, and --ppn with these two\n");
    else if (optind < argc)
        fprintf(stderr, "twill-info: unexpected argument: '%s'\n", argv[optind]);
    return optind < argc || any ? 2 : -1;
}

/* Make a communicator, and print on rank 0 what was requested. Returns an exit status, 0 to 2. */
static int show_context(twill_context *context, const struct request *request)
{
    twill_comm *comm;
    twill_status status = twill_comm_create(&comm, context);
    int result = status == TWILL_OK ? 0 : 1;
    bool others = request->environment || request->memory || request->why ||
                  request->gradient_threads > 0 || request->draw;
    if (twill_comm_rank(comm) <= 0 && !others) {
        print_description(context);
        print_bounds(comm);
    }
    if (twill_comm_rank(comm) <= 0 && request->environment)
        print_environment(context);
    if (status != TWILL_OK)
        fprintf(stderr, "twill-info: %s\n", twill_context_message(context));
    else if (request->memory && twill_comm_rank(comm) == 0)
        result = check_memory_pages(context, request->bytes);
    if (result == 0 && request->why && twill_comm_rank(comm) == 0)
        result = twill_bench_print_why(context, request->question);
    if (result == 0 && request->gradient_threads > 0)
        result = twill_bench_print_threads(comm, (int)request->gradient_threads);
    if (result == 0 && request->draw && !request->why)
        result = twill_info_draw_job(context, comm, (unsigned)request->threads);
    twill_comm_destroy(comm);
    return result;
}

/* Show what the command line asks for. Returns 0, 1 after a failure, or 2 if it is wrong. */
int main(int argc, char **argv)
{
    struct request request = {.bytes = 64 << 20};
    int mistake = parse_info(&request, argc, argv);
    if (mistake >= 0)
        return mistake;
    if (request.job.name != NULL)
        return twill_job_print(&request.job);
    if (request.page != NULL)
        return twill_job_serve(request.page, request.serve);
    if (request.draw && !request.why && request.topology != NULL)
        return twill_info_draw_machine(request.topology,
                                       request.ppn > 0 ? (unsigned)request.ppn : 1,
                                       (unsigned)request.threads);
    static const char *const real_layout[] = {"TWILL_LAYOUT=nodes=;groups=;units=", NULL};
    twill_context *context = NULL;
    twill_status status =
        twill_context_create(&context, NULL, request.elsewhere ? real_layout : NULL);
    int result = 1;
    if (status == TWILL_OK)
        result = show_context(context, &request);
    else
        fprintf(stderr, "twill-info: %s\n", twill_bench_why(NULL, context, status));
    twill_context_destroy(context);
    return result;
}
