/* SPDX-License-Identifier: Apache-2.0 */
/* What the interposer (interposer.c, preloaded) tells the program that it watches. */
#ifndef TWILL_INTERPOSER_H
#define TWILL_INTERPOSER_H

struct allocation_count {
    unsigned long ours;    /* everything but the following */
    unsigned long network; /* calls whose innermost caller, libc aside, is libfabric or below it */
    const char *first;     /* name of the first function of ours, NULL: none */
    void *caller;          /* and an address in who called it */
};

/* Count from now on, from 0. */
typedef void allocation_begin_fn(void);
/* Stop, and say what was counted. */
typedef void allocation_end_fn(struct allocation_count *count);

allocation_begin_fn allocation_begin;
allocation_end_fn allocation_end;

#endif
