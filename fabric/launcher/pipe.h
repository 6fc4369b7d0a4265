/* SPDX-License-Identifier: Apache-2.0 */
/* Frames between twillrun and its servers on other hosts, over the two pipes of an agent (ssh). */
#ifndef TWILL_PIPE_H
#define TWILL_PIPE_H

#include "lib/base.h"

/* Changes when anything of it changes: twillruns of different protocols do not talk to each other.
 */
#define TWILL_FRAME_PROTOCOL 2
/* What a server says before its first frame: what an agent printed before is skipped. */
#define TWILL_FRAME_MARK       "\ntwillrun-server:\n"
#define TWILL_FRAME_MOST       (64u * 1024) /* bytes of a frame, but of a job */
#define TWILL_FRAME_MOST_JOB   (16u << 20)
#define TWILL_FRAME_MOST_CHAFF (256u * 1024) /* before the mark */
#define TWILL_LINK_FULL        (1u << 20)    /* waiting to be written: take no more */
#define TWILL_INPUT_WINDOW     (64u * 1024)  /* of standard input on its way to rank 0 */

enum twill_frame_kind {
    /* from a server */
    TWILL_FRAME_HELLO = 1, /* value: protocol; version of twill */
    TWILL_FRAME_READY,     /* rank 0's host: "address port" where it listens; others: empty */
    TWILL_FRAME_STARTED,   /* why ranks are not bound, or empty */
    TWILL_FRAME_OUTPUT,    /* of a rank; value: 0 standard output, 1 standard error */
    TWILL_FRAME_CREDIT,    /* value: bytes of standard input that rank 0 has taken */
    TWILL_FRAME_ENDED,     /* a rank; value: its exit code; how it ended */
    TWILL_FRAME_FAILED,    /* value: exit code; it has said why on standard error */
    TWILL_FRAME_DONE,      /* nothing comes after it */
    /* to a server */
    TWILL_FRAME_JOB,    /* launcher_job.h */
    TWILL_FRAME_START,  /* "address port" */
    TWILL_FRAME_INPUT,  /* empty: the end */
    TWILL_FRAME_SIGNAL, /* value: number */
    TWILL_FRAME_END,    /* value: milliseconds of grace */
    /* both ways */
    TWILL_FRAME_GONE, /* a rank has ended: what those in twill_init hear; so to all servers */
    TWILL_FRAME_KINDS
};

struct twill_frame {
    enum twill_frame_kind kind;
    uint32_t rank, value;
    const char *data; /* until the pipe is read again; no 0 at its end */
    size_t bytes;
};

/* Both directions; descriptors are non-blocking and close-on-exec. */
struct twill_pipe {
    int in, out; /* -1: closed */
    char *inbox, *outbox;
    size_t taken, in_used, in_capacity;  /* [taken, in_used) is to be looked at */
    size_t sent, out_used, out_capacity; /* [sent, out_used) is to be written */
};

/* Queue a frame. false: no memory, or nobody reads there; nothing more is written then. */
bool twill_pipe_put(struct twill_pipe *pipe, enum twill_frame_kind kind, uint32_t rank,
                    uint32_t value, const void *data, size_t bytes);
/* Write what can be written. false: nobody reads there. */
bool twill_pipe_flush(struct twill_pipe *pipe);
/* Read what there is. false: at its end, or no memory. */
bool twill_pipe_fill(struct twill_pipe *pipe);
/* The next frame that has come: 1, 0 not yet, -1 that is no frame. */
int twill_pipe_next(struct twill_pipe *pipe, struct twill_frame *frame);
/* Skip what comes before the mark, and it: the same results, -1 for too much of it. */
int twill_pipe_find_mark(struct twill_pipe *pipe);
static inline size_t twill_pipe_waiting(const struct twill_pipe *pipe)
{
    return pipe->out_used - pipe->sent;
}
void twill_pipe_close(struct twill_pipe *pipe);

#endif
