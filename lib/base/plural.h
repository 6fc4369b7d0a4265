/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TWILL_PLURAL_H
#define TWILL_PLURAL_H

/* The ending of a noun after a count, "" after 1 and else "s", for messages. */
#define TWILL_PLURAL(count) ((count) == 1 ? "" : "s")

#endif
