/* SPDX-License-Identifier: Apache-2.0 */
/* Probes for SystemTap, bpftrace and perf, provider "twill", where <sys/sdt.h> is there: a nop in
 * the code and a note in the library, no cost otherwise. */
#ifndef TWILL_PROBES_H
#define TWILL_PROBES_H

#ifdef TWILL_WITH_PROBES
#include <sys/sdt.h>
/* name, then the number of the communicator, of its call, and one more value. */
#define TWILL_PROBE(name, comm, sequence, value) DTRACE_PROBE3(twill, name, comm, sequence, value)
#else
#define TWILL_PROBE(name, comm, sequence, value) ((void)0)
#endif

#endif
