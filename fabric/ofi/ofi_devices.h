/* SPDX-License-Identifier: Apache-2.0 */
/* Which kinds of networks this host has. */
#ifndef TWILL_OFI_DEVICES_H
#define TWILL_OFI_DEVICES_H

#include <stdbool.h>

/* Return whether /sys (sys: where it is) shows no device of another network than Ethernet, so that
 * libfabric can have nothing better. False where anything is unknown. */
bool twill_ofi_only_ethernet(const char *sys);

#endif
