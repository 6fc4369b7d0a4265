/* SPDX-License-Identifier: Apache-2.0 */
/* Several programs in one job, as with mpirun: twillrun -n 1 first argument : -n 3 second. */
#include "fabric/launcher/launcher.h"

#include <stdlib.h>
#include <string.h>

static bool is_ranks_option(const char *word)
{
    static const char *const names[] = {"-n", "-np", "--np", "--ranks"};
    for (size_t i = 0; word && i < TWILL_ARRAY_LENGTH(names); i++)
        if (strcmp(word, names[i]) == 0)
            return true;
    return false;
}

/* Parse "-n RANKS program" after a ':'. */
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

bool twill_programs_read(struct twill_options *options, char **words, bool split)
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
    return options->command; /* one that --elastic adds */
}
