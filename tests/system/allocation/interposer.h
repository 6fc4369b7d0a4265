/* SPDX-License-Identifier: Apache-2.0 */
/* The interface between the interposer (interposer.c, preloaded) and the program that it
 * observes. */
#ifndef TWILL_INTERPOSER_H
#define TWILL_INTERPOSER_H

struct allocation_count {
    unsigned long ours;    /* all others */
    unsigned long network; /* calls whose innermost caller, libc aside, is libfabric or below it */
    const char *first;     /* name of the first function of ours, or NULL */
    void *caller;          /* and an address in its caller */
};

/* Start counting from 0. */
typedef void allocation_begin_fn(void);
/* Stop counting and return the result. */
typedef void allocation_end_fn(struct allocation_count *count);

allocation_begin_fn allocation_begin;
allocation_end_fn allocation_end;

#endif
