/* SPDX-License-Identifier: Apache-2.0 */
/* User overrides of the choice, which are the value of TWILL_ALGORITHM. Entries are separated by
 * ";":
 *
 *     [COLLECTIVE[RANGE]:]NAME[=PARAMETERS][@PROTOCOL]
 *     allreduce[0-64K]:recursive_doubling;allreduce[64K-]:torus=4x6@staged;alltoall:bruck;ring
 *
 * COLLECTIVE is a twill_collective_name(). RANGE is "[FROM-TO]" in bytes of the whole message
 * (which twill-bench calls size), both included, with K, M or G (binary). FROM defaults to 0, TO to
 * no limit. NAME is that of an algorithm, or "auto" for no override. PARAMETERS are numbers from 1
 * with x between them, or a text for parse() of the algorithm. PROTOCOL is how the ranks of a node
 * exchange data.
 *
 * An entry for the collective takes precedence over one for all, a later entry over an earlier one.
 * An entry for all does not apply to collectives that the algorithm cannot do. The spelling of
 * every entry is checked, used or not, and TWILL_ERR_CONFIG names TWILL_ALGORITHM and the entry. */
#ifndef TWILL_OVERRIDE_H
#define TWILL_OVERRIDE_H

#include "algorithms/algorithms.h"

/* One entry of TWILL_ALGORITHM, parsed. twill_overrides_parse() makes an array of them. */
struct twill_override {
    const char *text; /* the entry, inside the parsed text, not terminated */
    int length;
    int collective;                          /* -1 for all that the algorithm does */
    size_t least, most;                      /* message sizes to which it applies, in bytes */
    const struct twill_algorithm *algorithm; /* NULL for "auto" */
    int protocol;                            /* -1 for any */
    uint16_t parameter[TWILL_PARAMETERS];
};

/* Parse text into an array of *count entries, which the caller frees with free(). It is NULL with a
 * count of 0 if there is no entry or on failure. The entries point into text, which must outlive
 * them. Returns TWILL_ERR_CONFIG if an entry is misspelt, or TWILL_ERR_MEMORY. */
twill_status twill_overrides_parse(struct twill_override **overrides, size_t *count,
                                   const char *text, struct twill_error *error);
/* Return the entry that applies to a collective with a message of `bytes` bytes, or NULL. If
 * several do, it is the last of those that name the collective, or if none names it, the last of
 * all. */
const struct twill_override *twill_override_find(const struct twill_override *overrides,
                                                 size_t count, enum twill_collective collective,
                                                 size_t bytes);
/* Parse a number of bytes such as 64K, with K, M or G (binary), at the start of `text` into *bytes.
 * Returns the characters used, or 0 if there is no number or it is too large. */
size_t twill_bytes_parse(const char *text, size_t length, size_t *bytes);

#endif
