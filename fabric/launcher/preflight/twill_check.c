/* SPDX-License-Identifier: Apache-2.0 */
/* twill-check, which only twillrun --check starts: in front, on each host, and as test ranks. */
#include "fabric/launcher/preflight/preflight.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define EXIT_COULD_NOT_RUN 2

static const char usage[] = "Usage: twill-check --launcher PATH --worker PATH [--program NAME] "
                            "[--json[=FILE]] --timeout SECONDS\n"
                            "                   --site RANKS:HOST ... -- [option of twillrun ...]\n"
                            "       twill-check --agent [program] | --ranks\n"
                            "Internal: twillrun --check starts it.\n";

/* The command line of the front, a local variable of main(). */
struct check_line {
    struct preflight_request request;
    char **site; /* [sites] */
    int sites;
};

/* Parse the command line of twill-check into *line. Returns true, or false if it is wrong. The
 * caller then prints the usage. */
static bool read_line(struct check_line *line, int argc, char **argv)
{
    static const struct option names[] = {
        {"launcher", required_argument, NULL, 'l'},
        {"worker", required_argument, NULL, 'w'},
        {"program", required_argument, NULL, 'p'},
        {"json", optional_argument, NULL, 'j'},
        {"timeout", required_argument, NULL, 't'},
        {"site", required_argument, NULL, 's'},
        {NULL, 0, NULL, 0},
    };
    int option;
    while ((option = getopt_long(argc, argv, "+", names, NULL)) != -1) {
        if (option == 'l')
            line->request.launcher = optarg;
        else if (option == 'w')
            line->request.worker = optarg;
        else if (option == 'p')
            line->request.program = optarg;
        else if (option == 'j') {
            line->request.json = true;
            line->request.json_file = optarg;
        } else if (option == 't')
            line->request.timeout = atof(optarg);
        else if (option == 's')
            line->site[line->sites++] = optarg;
        else
            return false;
    }
    line->request.common = argv + optind;
    return line->request.launcher && line->request.worker && line->request.timeout > 0 &&
           line->sites > 0;
}

/* Initialise *all with the hosts of the command line. Each is given as RANKS:HOST, so "2:h0" is
 * host h0 with 2 ranks. Returns false if one is malformed or there is no memory. */
static bool enter_sites(struct preflight *all, const struct check_line *line)
{
    if (!preflight_open(all, line->sites))
        return false;
    for (int i = 0; i < line->sites; i++) {
        const char *colon = strchr(line->site[i], ':');
        struct preflight_host *host = &all->host[i];
        host->ranks = atoi(line->site[i]);
        if (!colon || host->ranks < 1)
            return false;
        snprintf(host->name, sizeof(host->name), "%s", colon + 1);
        host->rank = calloc((size_t)host->ranks, sizeof(*host->rank));
        if (!host->rank)
            return false;
        all->ranks += host->ranks;
    }
    all->has_program = line->request.program != NULL;
    return true;
}

/* Print the page or JSON to standard output, or JSON to request->json_file and then the page.
 * Returns the exit code of twill-check, 0 without problems, 1 with some, or 2 if printing fails. */
static int print_results(const struct preflight *all, const struct preflight_request *request)
{
    FILE *file = stdout;
    int code;
    if (request->json && request->json_file)
        file = fopen(request->json_file, "we");
    if (!file) {
        fprintf(stderr, "twillrun --check: %s: %s\n", request->json_file, strerror(errno));
        return EXIT_COULD_NOT_RUN;
    }
    code = request->json ? preflight_print_json(all, file) : preflight_print_page(all, file);
    if (file != stdout) {
        bool written = !ferror(file);
        written = fclose(file) == 0 && written;
        code = written ? preflight_print_page(all, stdout) : EXIT_COULD_NOT_RUN;
    }
    return fflush(stdout) == 0 ? code : EXIT_COULD_NOT_RUN;
}

/* Raise this process's limit of open files, as the front needs three for each host. Keep the former
 * limit in request->files, for the twillruns. */
static void allow_files(struct preflight_request *request)
{
    struct rlimit most = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
    if (getrlimit(RLIMIT_NOFILE, &request->files) == 0)
        most = request->files;
    else
        request->files = most;
    most.rlim_cur = most.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &most);
}

/* Check the hosts and print the results. Returns the exit code of print_results(), or 2 if the
 * check could not run. */
static int run_front(struct check_line *line)
{
    struct preflight all;
    int code = EXIT_COULD_NOT_RUN;
    allow_files(&line->request);
    (void)signal(SIGPIPE, SIG_IGN); /* a twillrun may end while it is written to */
    if (!enter_sites(&all, line)) {
        fprintf(stderr, "twillrun --check: no memory for %d hosts\n", line->sites);
    } else if (preflight_collect(&all, &line->request)) {
        preflight_look(&all);
        if (all.no_memory)
            fprintf(stderr, "twillrun --check: no memory for the results\n");
        else
            code = print_results(&all, &line->request);
    }
    preflight_close(&all);
    return code;
}

/* Be the front, an agent or a rank, by the command line. Returns the exit code. */
int main(int argc, char **argv)
{
    struct check_line line = {.sites = 0};
    if (argc >= 2 && strcmp(argv[1], "--agent") == 0)
        return preflight_agent(argv[2]);
    if (argc == 2 && strcmp(argv[1], "--ranks") == 0)
        return preflight_rank_run();
    line.site = calloc((size_t)argc + 1, sizeof(*line.site));
    int code = EXIT_COULD_NOT_RUN;
    if (!line.site || !read_line(&line, argc, argv))
        fputs(usage, stderr);
    else
        code = run_front(&line);
    free(line.site);
    return code;
}
