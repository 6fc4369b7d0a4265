/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a job that twill-page serves. The hosts of a job of several are asked through the
 * twillrun that has started twill-page, on standard input, which is a socket, in lines:
 *
 *   to twillrun    ready           once, when the page can be opened
 *   to twillrun    ask RANK        read all hosts, with events of this rank, or of none for -1
 *   from twillrun  host I JSON     the answer of the host with this index in --hosts
 *                  say TEXT        a message that twillrun has printed
 *
 * A twill-page --read on each host gets the numbers of ranks as lines and answers with JSON. */
#ifndef TWILL_PAGE_H
#define TWILL_PAGE_H

#include <stdbool.h>
#include <stddef.h>

struct json_object;

/* The source of the page, page.html. */
extern const char page_html[];

/* What twill-page shows. A variable of its main(). */
struct page_state {
    const char *job;              /* PID or program on this host, or NULL if hosts are asked */
    bool linked;                  /* a twillrun has started twill-page */
    struct json_object *hosts;    /* array of what was last read, by host */
    struct json_object *messages; /* array of the last messages of twillrun, with their times */
    unsigned awaited;             /* answers that are missing */
    double read_at;               /* seconds at which hosts were last read or asked */
    char *text;                   /* [capacity] lines of twillrun, not complete at the end */
    size_t used, capacity;
};

/* Prepare the state. `hosts` has the names of the hosts to ask, separated by commas, or is NULL. */
void page_state_open(struct page_state *state, const char *job, const char *hosts, bool linked);
/* Return the job as JSON text, that belongs to *made, which the caller puts: all of it, or the last
 * events of one rank. Reads or asks the hosts, and waits up to PAGE_ANSWER_MS for answers. */
const char *page_state_text(struct page_state *state, int rank, struct json_object **made);
/* Handle what twillrun has sent. Returns false at its end. */
bool page_state_receive(struct page_state *state);
/* Answer lines of standard input with JSON about a job on this host. Returns an exit status. */
int page_state_read(const char *job);

#endif
