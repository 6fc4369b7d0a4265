/* SPDX-License-Identifier: Apache-2.0 */
/* A proxy between two ranks of a test: a thread that forwards TCP connections, sees what they carry
 * and may alter it, as a bad link or an attacker would. */
#ifndef TWILL_TEST_PROXY_H
#define TWILL_TEST_PROXY_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TWILL_PROXY_PAIRS 8
#define TWILL_PROXY_KEPT  256
#define TWILL_PROXY_MARKER                                                                         \
    "a marker of 26 letters: xyz" /* what a test looks for in the payload                          \
                                   */

/* What is done once at an offset of the bytes from the end that connected, in the first
 * connection. */
enum twill_proxy_attack {
    TWILL_PROXY_NOTHING,
    TWILL_PROXY_FLIP,   /* a bit of the byte there */
    TWILL_PROXY_DROP,   /* `bytes` from there on are left out */
    TWILL_PROXY_REPEAT, /* the `bytes` before are sent again */
    TWILL_PROXY_CUT,    /* the connection ends there */
    TWILL_PROXY_RECORD, /* the `bytes` from there on are kept in recording[] */
    TWILL_PROXY_PASTE,  /* they are replaced by recording[] */
};

struct twill_proxy {
    /* Set by the test before it starts. */
    uint16_t target; /* port on 127.0.0.1 */
    enum twill_proxy_attack attack;
    size_t offset, bytes;
    unsigned char recording[TWILL_PROXY_KEPT];
    unsigned flips; /* markers in which a bit is flipped, whatever `attack` is */
    /* Results, valid after the proxy has stopped. */
    size_t markers;   /* seen */
    size_t forwarded; /* bytes from the end that connected */

    uint16_t port; /* on 127.0.0.1 */
    int listener, stop[2];
    pthread_t thread;
    struct twill_proxy_way {
        int from, to;
        size_t matched, at;
        unsigned char last[TWILL_PROXY_KEPT]; /* bytes that passed before, as a ring by `at` */
        bool caller, first;
    } ways[2 * TWILL_PROXY_PAIRS];
    size_t used;
};

bool twill_proxy_start(struct twill_proxy *proxy);
void twill_proxy_stop(struct twill_proxy *proxy);

#endif
