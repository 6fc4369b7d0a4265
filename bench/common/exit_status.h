/* SPDX-License-Identifier: Apache-2.0 */
/* Exit statuses of the tools. */
#ifndef TWILL_EXIT_STATUS_H
#define TWILL_EXIT_STATUS_H

enum { STATUS_GOOD = 0, STATUS_FAILED = 1, STATUS_USAGE = 2 };

#endif
