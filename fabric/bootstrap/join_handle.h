/* SPDX-License-Identifier: Apache-2.0 */
/* The handle by which new processes find a job that grows, or processes each other for a
 * reconfiguration: a line of letters, digits and
 * , : . % _ - that travels through whatever store the caller has. Nothing in it is secret: who
 * joins must know the key of the job besides. */
#ifndef TWILL_JOIN_HANDLE_H
#define TWILL_JOIN_HANDLE_H

#include "fabric/bootstrap/bootstrap.h"

#define TWILL_JOIN_HANDLE_TEXT 256 /* bytes that a handle's text needs at most */

struct twill_join_handle {
    uint32_t epoch;        /* that the job is about to have; size 0: that it has */
    uint32_t size, guests; /* ranks of the larger job; how many of them are new. 0, 0: of a single
                              process, for a reconfiguration */
    uint8_t origin[TWILL_NONCE_BYTES]; /* of the job: struct twill_oob; size 0: random */
    uint16_t port;                     /* at which rank 0, or the process, waits */
    char address[TWILL_ADDRESS_TEXT];
};

void twill_join_handle_write(const struct twill_join_handle *handle,
                             char text[TWILL_JOIN_HANDLE_TEXT]);
/* Returns TWILL_ERR_ARGUMENT unless twill_join_handle_write() has written the text. */
twill_status twill_join_handle_read(struct twill_join_handle *handle, const char *text,
                                    struct twill_error *error);

#endif
