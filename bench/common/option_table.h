/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of a tool as a table. Anything else is an error that names the option. */
#ifndef TWILL_OPTION_TABLE_H
#define TWILL_OPTION_TABLE_H

#include <stdbool.h>
#include <stddef.h>

enum twill_option_kind {
    OPTION_SWITCH, /* sets a bool and takes no value */
    OPTION_TRUTH,  /* bool, 0 or 1 */
    OPTION_TEXT,   /* const char *, kept as it is */
    OPTION_COUNT,  /* size_t within bounds */
    OPTION_SIZE,   /* size_t within bounds, such as "64K" */
    OPTION_CHOICE, /* size_t, the index in `expected`, whose words are separated by blanks */
    OPTION_OWN,    /* read by read() */
    OPTION_MAYBE   /* as OPTION_OWN, but its value (--memory=64M or --memory 64M) may be NULL */
};

/* One option of a tool, in a constant table. The tool stores its options in a struct, to which the
 * offsets below refer. read() is for OPTION_OWN and OPTION_MAYBE. It stores the value `text` in
 * `member` and returns false if the value is wrong. */
struct twill_option {
    int letter; /* 0 if it has none */
    const char *name;
    enum twill_option_kind kind;
    size_t at;          /* offset of the member that is set, whose address read() gets */
    size_t least, most; /* bounds of a count or size (most 0 is none), least 1 for a text not "" */
    const char *expected; /* describes right values in messages, as "a number from 1" */
    bool (*read)(void *member, const char *text);
    size_t given; /* offset of a bool that is set to true if the option is given, or 0 */
};

/* The command line of a program, a constant of the caller of twill_options_parse(). `count` is the
 * number of options. */
struct twill_command {
    const char *program, *usage; /* start of messages ("twill-bench: train"), and text of --help */
    const struct twill_option *options;
    size_t count;
};

/* RUN to continue, DONE if help or version were printed, USAGE after an error. */
enum twill_parsed { TWILL_PARSED_RUN, TWILL_PARSED_DONE, TWILL_PARSED_USAGE };

/* Parse the options of argv and store their values in the struct `options`, whose other members
 * stay as they are. optind is then the first other word. Returns RUN, DONE after --help or
 * --version, or USAGE if an option is wrong. Prints only if `speak`, as one rank of a job does. */
enum twill_parsed twill_options_parse(const struct twill_command *command, void *options, int argc,
                                      char **argv, bool speak);

#endif
