/* SPDX-License-Identifier: Apache-2.0 */
/** \file twill_window.h
 * \brief Windows: ranks put data into each other's memory, and raise signals there.
 *
 * They are for programs that write their own exchanges, such as of halos, or of the tokens of a
 * mixture of experts. A put needs no matching call at the target. A signal is a counter of the
 * target, which says how many puts have arrived. In a ring, where signal 0 says that data have
 * arrived, and signal 1 that the next rank has used them:
 *
 *     twill_alloc(twill_comm_context(comm), &slot, bytes);
 *     twill_window_create(&window, comm, slot, bytes, 2);
 *     for (uint64_t step = 1; step <= steps; step++) {
 *         twill_put(window, mine, bytes, next, 0, 0);
 *         twill_wait_signal(window, 0, step, NULL);
 *         use(slot);
 *         twill_signal(window, previous, 1);
 *         twill_wait_signal(window, 1, step, NULL);
 *     }
 *     twill_window_destroy(window);
 *
 * Conventions are those of twill.h. How data travel:
 * - On a node the caller copies them straight into the target's memory and adds to the signal. The
 *   target need not be in a call.
 * - Between nodes a put is a message. It progresses while a thread of its rank waits in any call on
 *   the context, and the target receives it into the window while one of its threads does. With
 *   TWILL_PROGRESS=thread both happen at any time. Messages also carry puts on a node if the
 *   target's window is private, because the memory that the target shares is full.
 * - Over libfabric's tcp, sockets, verbs, gni and cxi, and one rail, the network writes data of
 *   more than 108 bytes into the window, and only their signal is a message. The target must be in
 *   a call only to see the signal, and over tcp also to receive the data. twill's own TCP has no
 *   such writes. On verbs, gni and cxi this was not run on hardware.
 */
#ifndef TWILL_WINDOW_H
#define TWILL_WINDOW_H

#include "twill.h"

#ifdef __cplusplus
extern "C" {
#endif

/** \brief The memory that each rank of a communicator lets the others put data into. */
typedef struct twill_window twill_window;

/** \brief In place of a signal: raise none. */
#define TWILL_NO_SIGNAL (-1)
/** \brief The most signals of a rank in a window, of 64 bytes each. */
#define TWILL_WINDOW_SIGNALS 65536

/** \defgroup twill_windows Windows
 *
 * Puts and signals from one rank to one target take effect in the order of the calls. When the
 * target sees a signal, it also sees everything that the same rank has put there before. Puts of
 * different ranks have no order. While a put may be under way, the target does not access the bytes
 * that it goes to, and no other put goes there.
 *
 * Threads: all functions but the creation and the end may be called by any number of threads at a
 * time. Calls of different threads have no order.
 *
 * A bad argument is refused with ::TWILL_ERR_ARGUMENT, and the window stays usable. Any other
 * failure breaks it on all ranks, like the death of any of its ranks and what breaks \p comm. Calls
 * of twill_wait_signal() notice that within some 50 ms, or seconds if it is the death of another
 * host. Then later calls return ::TWILL_ERR_BROKEN. A put to a rank of the node that has died
 * returns ::TWILL_OK until then. A window also breaks where twill_comm_shrink() makes memory of
 * twill_alloc() private.
 *
 * \return ::TWILL_OK or an error, which twill_window_message() explains.
 * @{ */
/** \brief Create a window. All ranks of \p comm call it.
 *
 * \param[out] window  the new window, which twill_window_destroy() frees. It is NULL after an
 *                     error, which twill_comm_message() explains. \p comm then stays usable, unless
 *                     an exchange between the ranks has failed
 * \param comm         the ranks, and the deadline of waits. It must outlive the window
 * \param buffer       memory of twill_alloc() or a part of it, or NULL if \p bytes is 0. As long as
 *                     the window exists, twill_free() refuses this memory. Other memory is refused,
 *                     also if it was registered or promoted
 * \param bytes        size of \p buffer, which may differ between ranks
 * \param signals      number of signals of each rank, 1 .. ::TWILL_WINDOW_SIGNALS, which are 0 at
 *                     first. All ranks pass the same
 * \return also ::TWILL_ERR_MISMATCH if \p signals differs. An error on one rank is one on all. */
TWILL_API twill_status twill_window_create(twill_window **window, twill_comm *comm, void *buffer,
                                           size_t bytes, int signals);
/** \brief Put \p bytes bytes of \p src at byte \p offset of the window of rank \p to, 0 .. size-1,
 * which may be this rank. Then add 1 to signal \p signal of that rank, unless it is
 * ::TWILL_NO_SIGNAL. \p src may be any memory that does not overlap with the bytes that it goes to,
 * and must not change until twill_window_flush() has returned or the target has answered by a
 * signal. If 64 puts to other nodes have not been sent, the call waits for one of them. */
TWILL_API twill_status twill_put(twill_window *window, const void *src, size_t bytes, int to,
                                 size_t offset, int signal);
/** \brief Add 1 to signal \p signal of rank \p to, after all that this rank has put there. */
TWILL_API twill_status twill_signal(twill_window *window, int to, int signal);
/** \brief Wait until signal \p signal of this rank is \p at_least or more, and set *count to it,
 * unless that is NULL. A signal counts since the creation of the window and is never reset. If
 * \p at_least is 0, receive what has arrived and do not wait.
 * \return also ::TWILL_ERR_TIMEOUT, if within the deadline of the communicator the signal has not
 * changed and no message of a put has been sent or received. */
TWILL_API twill_status twill_wait_signal(twill_window *window, int signal, uint64_t at_least,
                                         uint64_t *count);
/** \brief Wait until the sources of this rank's puts may be changed. The data may not have arrived
 * yet. Only a signal by which the target answers says that they have. */
TWILL_API twill_status twill_window_flush(twill_window *window);
/** \brief Return the failure of a window, or its last refused argument, as a sentence, or "". It is
 * valid until the next call on the window. */
TWILL_API const char *twill_window_message(const twill_window *window);
/** \brief Free a window, or NULL. All its ranks call it and wait for each other, so that all puts
 * have arrived, unless it is broken. The buffer belongs to the caller again. After a failure, ranks
 * that have not noticed it may still put data there. */
TWILL_API void twill_window_destroy(twill_window *window);
/** @} */

#ifdef __cplusplus
}
#endif
#endif
