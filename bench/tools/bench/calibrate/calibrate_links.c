/* SPDX-License-Identifier: Apache-2.0 */
/* Calibration of the model: messages within a node and between nodes, the latency of flags, and
 * what reducing each type costs compared with f32. */
#include "bench/common/report.h"
#include "bench/tools/bench/calibrate/calibrate.h"

#include <stdlib.h>
#include <string.h>

enum { CALIBRATE_LINKS_LARGE = 1 << 20, BURST = 64, CALIBRATE_LINKS_TURNS = 200 };

static void print_field(const struct twill_bench_calibration *c, const char *link,
                        const char *field, double seconds)
{
    if (c->rank == 0)
        fprintf(c->file, "model link.%s.%s %.0f\n", link, field,
                seconds > 0 ? seconds * 1e12 : 0.0);
}

/* Measure half a round trip between rank 0 and `other`; 0 on the other ranks. */
static twill_status ping_pong(struct twill_bench_calibration *c, int other, void *buffer,
                              size_t bytes, double *seconds)
{
    size_t turns = bytes > 4096 ? 20 : CALIBRATE_LINKS_TURNS;
    twill_status status = twill_barrier(c->comm);
    *seconds = 0;
    for (size_t i = 0; i < turns && status == TWILL_OK; i++) {
        double begin = twill_bench_now();
        if (c->rank == 0) {
            status = twill_send(c->comm, buffer, bytes, TWILL_U8, other);
            if (status == TWILL_OK)
                status = twill_recv(c->comm, buffer, bytes, TWILL_U8, other);
        } else if (c->rank == other) {
            status = twill_recv(c->comm, buffer, bytes, TWILL_U8, 0);
            if (status == TWILL_OK)
                status = twill_send(c->comm, buffer, bytes, TWILL_U8, 0);
        }
        c->samples[i] = (twill_bench_now() - begin) / 2;
    }
    *seconds = twill_bench_statistics(c->samples, turns).median;
    return status;
}

/* Measure the sender's time per message, in a burst of small ones. */
static twill_status burst(struct twill_bench_calibration *c, int other, char *buffer,
                          double *seconds)
{
    twill_request *requests[BURST] = {NULL};
    twill_status status = twill_barrier(c->comm);
    double begin = twill_bench_now();
    for (int i = 0; i < BURST && status == TWILL_OK; i++) {
        if (c->rank == 0)
            status = twill_send_start(c->comm, buffer, 8, TWILL_U8, other, &requests[i]);
        else if (c->rank == other)
            status = twill_recv_start(c->comm, buffer + 8 * i, 8, TWILL_U8, 0, &requests[i]);
    }
    if (status == TWILL_OK)
        status = twill_wait_all(BURST, requests);
    *seconds = (twill_bench_now() - begin) / BURST;
    return status;
}

/* Fit h(8) = 2 o + L, and the rate of large messages. */
static twill_status measure_link(struct twill_bench_calibration *c, const char *link, int other)
{
    double small = 0, large = 0, overhead = 0;
    char *buffer = calloc(1, CALIBRATE_LINKS_LARGE);
    twill_status status = buffer != NULL ? TWILL_OK : TWILL_ERR_MEMORY;
    if (status == TWILL_OK)
        status = ping_pong(c, other, buffer, 8, &small);
    for (int i = 0; i < 5 && status == TWILL_OK; i++) {
        double once;
        status = burst(c, other, buffer, &once);
        overhead = i == 0 || once < overhead ? once : overhead;
    }
    if (status == TWILL_OK)
        status = ping_pong(c, other, buffer, CALIBRATE_LINKS_LARGE, &large);
    overhead = overhead < small / 2 ? overhead : small / 2;
    print_field(c, link, "overhead", overhead);
    print_field(c, link, "latency", small - 2 * overhead);
    /* On a busy machine the small message may have taken longer. */
    print_field(c, link, "gap",
                (large > small ? large - small : large) / (CALIBRATE_LINKS_LARGE / 1024));
    free(buffer);
    return status;
}

/* Measure the cost of reducing each type beyond that of f32: the difference of two allreduces of
 * equal bytes, divided by the (P-1)/P of them that a rank reduces. */
static twill_status measure_types(struct twill_bench_calibration *c)
{
    const double plain = 1024 / 100e9; /* f32 at 100 GB/s, as in the model of machine "auto" */
    void *src = calloc(1, CALIBRATE_LINKS_LARGE), *dst = calloc(1, CALIBRATE_LINKS_LARGE);
    double seconds, base = 0;
    twill_status status = src != NULL && dst != NULL ? TWILL_OK : TWILL_ERR_MEMORY;
    for (int type = 0; type < TWILL_TYPE_COUNT && status == TWILL_OK && c->size > 1; type++) {
        struct twill_bench_subject subject = twill_bench_calibrated(
            c, TWILL_BENCH_ALLREDUCE, (twill_type)type, CALIBRATE_LINKS_LARGE);
        status = twill_bench_time_calls(c, c->comm, &subject,
                                        (struct twill_bench_pointers){src, dst}, &seconds);
        if (type == TWILL_F32)
            base = seconds;
        double reduced = (double)(CALIBRATE_LINKS_LARGE / 1024) * (c->size - 1) / c->size;
        double more = (seconds - base) / reduced;
        if (status == TWILL_OK && c->rank == 0)
            fprintf(c->file, "model reduce.%s %.0f\n", twill_type_name((twill_type)type),
                    (plain + (more > 0 ? more : 0)) * 1e12);
    }
    free(src);
    free(dst);
    return status;
}

twill_status twill_bench_calibrate_links(struct twill_bench_calibration *c)
{
    /* A rank on rank 0's node, and the first rank on another node. */
    int node = twill_comm_node(c->comm), near = 0, remote = 0;
    int64_t *nodes = calloc((size_t)c->size, sizeof(*nodes));
    twill_status status = nodes != NULL ? TWILL_OK : TWILL_ERR_MEMORY;
    if (status == TWILL_OK) {
        nodes[c->rank] = node;
        status = twill_allreduce(c->comm, nodes, nodes, (size_t)c->size, TWILL_I64, TWILL_SUM);
    }
    for (int r = c->size - 1; r > 0 && status == TWILL_OK; r--) {
        near = nodes[r] == nodes[0] ? r : near;
        remote = nodes[r] != nodes[0] ? r : remote;
    }
    free(nodes);
    if (status == TWILL_OK && near > 0)
        status = measure_link(c, "node", near);
    if (status == TWILL_OK && remote > 0)
        status = measure_link(c, "network", remote);
    double seconds;
    if (status == TWILL_OK && near > 0 && remote == 0) {
        struct twill_bench_subject subject =
            twill_bench_calibrated(c, TWILL_BENCH_BARRIER, TWILL_F32, 0);
        status = twill_bench_time_calls(c, c->comm, &subject,
                                        (struct twill_bench_pointers){NULL, NULL}, &seconds);
        print_field(c, "node", "signal", seconds * 0.8); /* the rest is the call and the polling */
    }
    if (status == TWILL_OK)
        status = measure_types(c);
    if (status != TWILL_OK)
        fprintf(stderr, "twill-bench: --calibrate: %s\n", twill_comm_message(c->comm));
    return status;
}
