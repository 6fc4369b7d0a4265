/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets and a clock in memory, for harnesses of code that reads from the network: the linker puts
 * them in the place of the kernel's (CMakeLists.txt), so that an input costs microseconds. A wait
 * for something that never comes advances the clock instead. Descriptors of other kinds are the
 * kernel's as ever. */
#ifndef TWILL_FUZZ_SOCKET_H
#define TWILL_FUZZ_SOCKET_H

#include "tests/fuzz/fuzz_input.h"

/* Make two connected ends. */
void fuzz_pair(int fd[2]);
/* Make a connection that waits to be accepted. Returns the caller's end. */
int fuzz_connect(int listener);
/* Return the other end of the connection that the library has made since the last call, -1: none.
 * It lasts until the library makes another one. */
int fuzz_called(void);
/* Close all but listeners, and set what follows back. */
void fuzz_sockets_reset(void);
/* Limit the bytes that a read returns at a time. */
void fuzz_sockets_read_most(size_t bytes);
/* Have this called, if it is not NULL, by a wait that finds nothing: the other ends' turn. */
void fuzz_sockets_idle(void (*turn)(void));
/* From now on also sockets between processes of a host are in memory; no descriptors go over them.
 * Connections are refused, or made and not answered. */
void fuzz_sockets_unix(bool refuse);

#endif
