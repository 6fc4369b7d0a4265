/* SPDX-License-Identifier: Apache-2.0 */
/* Tuning files by machine: of those in ~/.twill/tuning and in the installed folder, the one for the
 * machine that this process runs on. */
#ifndef TWILL_TUNING_FOLDER_H
#define TWILL_TUNING_FOLDER_H

#include "algorithms/select/tuning_file.h"

/* Read a whole tuning file into `text`, which the caller frees; *text is NULL if it is empty.
 * Return TWILL_ERR_CONFIG, with a message that names TWILL_TUNING, if it cannot be read. */
twill_status twill_tuning_read(char **text, const char *path, struct twill_error *error);

/* Set *timings to those of the first file for this machine, which the caller destroys, or to NULL
 * if there is none. A file that is for this machine and cannot be parsed is an error: its message
 * names file and line. `ignored`, of `bytes` bytes, receives the path of a tuning file in these
 * folders whose name does not end in .tuning, or "". */
twill_status twill_tuning_find_timings(struct twill_tuning **timings,
                                       const struct twill_tuning_key *here, char *ignored,
                                       size_t bytes, struct twill_error *error);

#endif
