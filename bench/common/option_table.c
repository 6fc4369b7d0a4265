/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/common/option_table.h"
#include "bench/common/report.h"
#include "lib/twill.h"

#include <getopt.h>
#include <string.h>

enum {
    OPTION_TABLE_MOST = 64,
    OPTION_NUMBER = 256
}; /* value for getopt of an option without a letter */

/* Return whether the option is -h or -V. If so, print usage or version if `speak` is set. */
static bool twill_bench_help(int letter, const char *program, const char *usage, bool speak)
{
    if (speak && letter == 'h')
        fputs(usage, stdout);
    if (speak && letter == 'V')
        printf("%s %s\n", program, twill_version());
    return letter == 'h' || letter == 'V';
}

/* Set *choice to the index of a text among words separated by blanks. Returns false if absent. */
static bool choose(const char *words, const char *text, size_t *choice)
{
    size_t length = strlen(text);
    *choice = 0;
    for (; length > 0 && *words != '\0'; words += *words == ' ', ++*choice) {
        size_t word = strcspn(words, " ");
        if (word == length && strncmp(words, text, word) == 0)
            return true;
        words += word;
    }
    return false;
}

/* Set the member of an option, from `text` if it has a value, or call its read(). Returns false if
 * the value is wrong. */
static bool set_member(const struct twill_option *option, void *member, const char *text)
{
    size_t *number = member, most = option->most > 0 ? option->most : SIZE_MAX;
    switch (option->kind) {
    case OPTION_SWITCH:
        return *(bool *)member = true;
    case OPTION_TRUTH:
        *(bool *)member = strcmp(text, "1") == 0;
        return *(bool *)member || strcmp(text, "0") == 0;
    case OPTION_TEXT:
        *(const char **)member = text;
        return *text != '\0' || option->least == 0;
    case OPTION_COUNT:
        return twill_bench_parse_number(text, option->least, most, number);
    case OPTION_SIZE:
        return twill_bench_parse_size(text, number) && *number >= option->least && *number <= most;
    case OPTION_CHOICE:
        return choose(option->expected, text, number);
    default:
        return option->read(member, text);
    }
}

/* Print to stderr that `text` is not a valid value of the option, and what would be. */
static void complain(const struct twill_command *command, const struct twill_option *option,
                     const char *text)
{
    char letter[8] = "";
    if (option->letter != 0)
        snprintf(letter, sizeof(letter), "-%c/", option->letter);
    fprintf(stderr, "%s: %s--%s: '%s' is not %s%s\n", command->program, letter, option->name, text,
            option->kind == OPTION_CHOICE ? "one of " : "",
            option->kind == OPTION_TRUTH ? "0 or 1" : option->expected);
}

/* Fill the tables of getopt_long() with the options, --help and --version. */
static void tables_of(const struct twill_command *command, struct option *names, char *letters)
{
    size_t n = 0;
    for (; n < command->count; n++) {
        const struct twill_option *option = &command->options[n];
        bool value = option->kind != OPTION_SWITCH;
        int takes = option->kind == OPTION_MAYBE ? optional_argument
                    : value                      ? required_argument
                                                 : no_argument;
        names[n] = (struct option){option->name, takes, NULL,
                                   option->letter != 0 ? option->letter : OPTION_NUMBER + (int)n};
        if (option->letter != 0)
            *letters++ = (char)option->letter;
        if (option->letter != 0 && value)
            *letters++ = ':';
    }
    names[n++] = (struct option){"help", no_argument, NULL, 'h'};
    names[n++] = (struct option){"version", no_argument, NULL, 'V'};
    names[n] = (struct option){0};
    strcpy(letters, "hV");
}

enum twill_parsed twill_options_parse(const struct twill_command *command, void *options, int argc,
                                      char **argv, bool speak)
{
    struct option names[OPTION_TABLE_MOST + 3];
    char letters[2 * OPTION_TABLE_MOST + 3], tool[32];
    snprintf(tool, sizeof(tool), "%.*s", (int)strcspn(command->program, ": "), command->program);
    tables_of(command, names, letters);
    opterr = speak;
    for (int value; (value = getopt_long(argc, argv, letters, names, NULL)) != -1;) {
        size_t i = 0;
        if (twill_bench_help(value, tool, command->usage, speak))
            return TWILL_PARSED_DONE;
        while (i < command->count && names[i].val != value)
            i++;
        if (i == command->count) /* getopt has printed a message */
            return TWILL_PARSED_USAGE;
        const struct twill_option *option = &command->options[i];
        if (option->kind == OPTION_MAYBE && optarg == NULL && optind < argc &&
            argv[optind][0] != '-')
            optarg = argv[optind++];
        bool good = set_member(option, (char *)options + option->at, optarg);
        if (!good && speak)
            complain(command, option, optarg);
        if (!good)
            return TWILL_PARSED_USAGE;
        if (option->given > 0)
            *((bool *)options + option->given) = true;
    }
    return TWILL_PARSED_RUN;
}
