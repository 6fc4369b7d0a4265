/* SPDX-License-Identifier: Apache-2.0 */
/* What threads of this process are bound to. */
#ifndef TWILL_THREAD_BINDING_H
#define TWILL_THREAD_BINDING_H

/* Count the threads of this process with this name that may run on one PU only, this one. */
unsigned twill_test_threads_on(const char *thread, int pu);

#endif
