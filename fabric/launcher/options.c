/* SPDX-License-Identifier: Apache-2.0 */
/* twillrun's arguments. */
#include "fabric/launcher/launcher.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RANKS 65535

static const char usage[] =
    "Usage: twillrun -n RANKS [options] [--] program [argument ...]\n"
    "Start RANKS copies of a program on this host as the ranks of one job.\n"
    "\n"
    "  -n, --ranks RANKS    how many, 1 .. 65535\n"
    "  -l, --label          put \"[rank] \" before each line of output\n"
    "  -x NAME[=VALUE]      set a variable for the ranks (without a value: as it is here)\n"
    "      --bind WHAT      none (default), or core: whole cores, split evenly over the ranks\n"
    "      --grace SECONDS  after a rank failed: time for the others to end (default 3)\n"
    "  -h, --help           print this\n"
    "  -V, --version        print the version\n"
    "\n"
    "Ranks find RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT TWILL_JOB in\n"
    "their environment. Standard input goes to rank 0. When a rank fails, the others are ended "
    "and\n"
    "its exit code is returned (128 + the number of the signal that killed it).\n";

static bool read_ranks(struct twill_options *options, const char *text)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < 1 || value > MAX_RANKS) {
        twill_complain("-n %s: not a number of ranks from 1 to %d", text, MAX_RANKS);
        return false;
    }
    options->ranks = (int)value;
    return true;
}

static bool read_grace(struct twill_options *options, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= 0 && value <= 86400)) {
        twill_complain("--grace %s: not a number of seconds from 0 to 86400", text);
        return false;
    }
    options->grace_ns = (uint64_t)(value * 1e9);
    return true;
}

static bool read_bind(struct twill_options *options, const char *text)
{
    if (strcmp(text, "none") == 0)
        options->bind = TWILL_BIND_NONE;
    else if (strcmp(text, "core") == 0)
        options->bind = TWILL_BIND_CORE;
    else
        twill_complain("--bind %s: not none or core", text);
    return strcmp(text, "none") == 0 || strcmp(text, "core") == 0;
}

static bool read_assignment(struct twill_options *options, char *text)
{
    const char *equals = strchr(text, '=');
    if (equals == text || *text == '\0') {
        twill_complain("-x %s: no name", text);
        return false;
    }
    if (!equals && !getenv(text)) {
        twill_complain("-x %s: not set here, and no value is given", text);
        return false;
    }
    if (equals) /* else ranks have it anyway: they inherit this environment */
        options->assignments[options->assigned++] = text;
    return true;
}

static bool read_option(struct twill_options *options, int option, int *code)
{
    switch (option) {
    case 'n':
        return read_ranks(options, optarg);
    case 'l':
        options->label = true;
        return true;
    case 'x':
        return read_assignment(options, optarg);
    case 'b':
        return read_bind(options, optarg);
    case 'g':
        return read_grace(options, optarg);
    case 'h':
        fputs(usage, stdout);
        *code = 0;
        return false;
    case 'V':
        printf("twillrun (twill) %d.%d.%d\n", TWILL_VERSION_MAJOR, TWILL_VERSION_MINOR,
               TWILL_VERSION_PATCH);
        *code = 0;
        return false;
    default: /* getopt has said what */
        return false;
    }
}

int twill_options_read(struct twill_options *options, int argc, char **argv, int *code)
{
    static const struct option names[] = {
        {"ranks", required_argument, NULL, 'n'},
        {"label", no_argument, NULL, 'l'},
        {"bind", required_argument, NULL, 'b'},
        {"grace", required_argument, NULL, 'g'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},
        {NULL, 0, NULL, 0},
    };
    int option;
    *code = TWILL_EXIT_USAGE;
    options->assignments = calloc((size_t)argc + 1, sizeof(*options->assignments));
    if (!options->assignments) {
        twill_complain("no memory for the arguments");
        return -1;
    }
    while ((option = getopt_long(argc, argv, "+n:lx:hV", names, NULL)) != -1)
        if (!read_option(options, option, code))
            return -1;
    if (options->ranks == 0) {
        twill_complain("how many ranks? (-n RANKS; twillrun --help tells more)");
        return -1;
    }
    if (optind >= argc) {
        twill_complain("no program given (twillrun --help tells more)");
        return -1;
    }
    options->command = argv + optind;
    return 0;
}
