/* SPDX-License-Identifier: Apache-2.0 */
/* Frames between twillrun and its host agents, over the pipes of ssh or another --agent. */
#ifndef TWILL_PIPE_H
#define TWILL_PIPE_H

#include "lib/base/base.h"

/* Version of the protocol. Only twillruns of the same version work together. */
#define TWILL_FRAME_PROTOCOL 8
/* A host agent writes this before its first frame. Output of ssh before it is skipped. */
#define TWILL_FRAME_MARK       "\ntwillrun-server:\n"
#define TWILL_FRAME_MOST       (64u * 1024) /* bytes of a frame, except JOB and LOOK */
#define TWILL_FRAME_MOST_JOB   (16u << 20)
#define TWILL_FRAME_MOST_CHAFF (256u * 1024) /* bytes before the mark */
#define TWILL_LINK_FULL        (1u << 20)    /* queued bytes at which output is no longer read */
#define TWILL_INPUT_WINDOW     (64u * 1024)  /* bytes of standard input on their way to rank 0 */
/* The kinds of frames, with what `value` and the data are. */
enum twill_frame_kind {
    /* from a host agent */
    TWILL_FRAME_HELLO = 1, /* value: protocol; data: version of twill */
    TWILL_FRAME_READY,     /* data: from rank 0's host, "address port" of its listener */
    TWILL_FRAME_STARTED,   /* data: why ranks are not bound, or empty */
    TWILL_FRAME_OUTPUT,    /* of a rank; value: 0 standard output, 1 standard error */
    TWILL_FRAME_CREDIT,    /* value: bytes of standard input that rank 0 has read */
    TWILL_FRAME_ENDED,     /* of a rank; value: its exit code; data: how it ended */
    TWILL_FRAME_FAILED,    /* value: exit code; the reason is on standard error */
    TWILL_FRAME_DONE,      /* the last frame */
    /* to a host agent */
    TWILL_FRAME_JOB,    /* data: see launcher_job.c */
    TWILL_FRAME_START,  /* data: "address port" of rank 0 */
    TWILL_FRAME_INPUT,  /* data: standard input; empty: its end */
    TWILL_FRAME_SIGNAL, /* value: number */
    TWILL_FRAME_END,    /* value: milliseconds of grace */
    /* both ways */
    TWILL_FRAME_GONE, /* exit notice of a rank for ranks in twill_init(), on all hosts */
    /* --elastic, from a host agent */
    /* value: ranks there that are not in the job yet; rank: how many of them have a handle */
    TWILL_FRAME_WAITING,
    /* --elastic, to a host agent */
    TWILL_FRAME_REPLACE, /* start a new process as this rank */
    TWILL_FRAME_DISMISS, /* if all ranks there wait to join, end them, as the job has ended */
    /* --elastic, both ways */
    /* A file was written (value 1) or removed (0), see elastic_folder.c. The data is its name, 0
     * and its contents. The front passes it on to the other hosts. */
    TWILL_FRAME_FILE,
    /* A host agent sends it back. That shows that it has reported all that happened before. */
    TWILL_FRAME_PROBE,
    /* from a host agent */
    TWILL_FRAME_SAID, /* of the library in a rank: a line for sayings.c */
    /* both ways, for --page: the question what ranks do, whose value is 1 + a rank whose events are
     * wanted or 0, and the answer of a host agent, whose data is JSON */
    TWILL_FRAME_LOOK,
    TWILL_FRAME_KINDS
};

/* A frame that twill_pipe_next() has returned. */
struct twill_frame {
    enum twill_frame_kind kind;
    uint32_t rank, value;
    const char *data; /* valid until the pipe is read again; not terminated */
    size_t bytes;
};

/* Both directions of a connection, in its owner. Descriptors are non-blocking and close-on-exec. */
struct twill_pipe {
    int in, out; /* -1: closed */
    char *inbox, *outbox;
    size_t taken, in_used, in_capacity;  /* [taken, in_used) is unprocessed */
    size_t sent, out_used, out_capacity; /* [sent, out_used) is not written yet */
};

/* Enlarge *buffer and *capacity if `bytes` do not fit behind `used`. Returns false if it cannot. */
bool twill_buffer_grow(char **buffer, size_t used, size_t *capacity, size_t bytes);
/* Queue bytes that are not a frame. Returns false if there is no memory. */
bool twill_pipe_append(struct twill_pipe *pipe, const void *data, size_t bytes);
/* Queue a frame. Returns false if the pipe is closed, as it also is if there is no memory. */
bool twill_pipe_put(struct twill_pipe *pipe, enum twill_frame_kind kind, uint32_t rank,
                    uint32_t value, const void *data, size_t bytes);
/* Write what is queued without blocking. Returns false if the pipe is closed, as after an error. */
bool twill_pipe_flush(struct twill_pipe *pipe);
/* Read once. Returns false at its end, after an error or if there is no memory, else true. */
bool twill_pipe_fill(struct twill_pipe *pipe);
/* Get the next frame. Returns 1, or 0 if it is not complete, or -1 if it is malformed. */
int twill_pipe_next(struct twill_pipe *pipe, struct twill_frame *frame);
/* Skip TWILL_FRAME_MARK, which a host agent writes before its first frame, and the bytes before it.
 * Returns 1 if it was found, or 0 if it has not arrived yet. Returns -1 if it is not in what has
 * arrived, which is more than TWILL_FRAME_MOST_CHAFF bytes. */
int twill_pipe_find_mark(struct twill_pipe *pipe);
/* Return how many bytes are queued and not written yet. */
static inline size_t twill_pipe_waiting(const struct twill_pipe *pipe)
{
    return pipe->out_used - pipe->sent;
}
/* Close both directions and free the buffers. Frames that are still queued are not sent. */
void twill_pipe_close(struct twill_pipe *pipe);

#endif
