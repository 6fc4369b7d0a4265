/* SPDX-License-Identifier: Apache-2.0 */
/* Counts in sentences, of the library and of the tools. */
#ifndef TWILL_PLURAL_H
#define TWILL_PLURAL_H

/* The ending of a noun after a count: none after one, else "s". */
#define TWILL_PLURAL(count) ((count) == 1 ? "" : "s")

#endif
