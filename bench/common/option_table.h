/* SPDX-License-Identifier: Apache-2.0 */
/* A tool's command line as a table: each option's letter, name, and the member that it sets. What
 * is not understood is an error that names the option. */
#ifndef TWILL_OPTION_TABLE_H
#define TWILL_OPTION_TABLE_H

#include <stdbool.h>
#include <stddef.h>

enum twill_option_kind {
    OPTION_SWITCH, /* bool: set; no value */
    OPTION_TRUTH,  /* bool: 0 or 1 */
    OPTION_TEXT,   /* const char *: kept as it is */
    OPTION_COUNT,  /* size_t within bounds */
    OPTION_SIZE,   /* size_t within bounds: "64K" */
    OPTION_CHOICE, /* size_t: which of `expected`, blanks between them */
    OPTION_OWN,    /* what read() makes of it */
    OPTION_MAYBE   /* as OPTION_OWN, but its value, --memory=64M or --memory 64M, may be NULL */
};

struct twill_option {
    int letter; /* 0: it has none */
    const char *name;
    enum twill_option_kind kind;
    size_t at;            /* offset of the member; OPTION_OWN: of what read() gets */
    size_t least, most;   /* of a count or size; most 0: no bound */
    const char *expected; /* of a wrong value: it is not ... */
    bool (*read)(void *member, const char *text);
    size_t given; /* offset of a bool that is set, too; 0: none */
};

struct twill_command {
    const char *program, *usage; /* as messages begin, "twill-bench: train"; --help */
    const struct twill_option *options;
    size_t count;
};

enum twill_parsed { TWILL_PARSED_RUN, TWILL_PARSED_DONE, TWILL_PARSED_USAGE };

/* Read the options of argv from optind on, which is then the first other argument. DONE: help or
 * version were printed. Prints only if `speak`, so that one rank of a job does. */
enum twill_parsed twill_options_parse(const struct twill_command *command, void *options, int argc,
                                      char **argv, bool speak);

#endif
