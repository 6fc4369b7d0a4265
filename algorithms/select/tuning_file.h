/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of speed: the model of a machine, and a table of what was measured. As text, what
 * `twill-bench --calibrate` writes and TWILL_TUNING names:
 *
 *     twill-tuning 1
 *     # blank lines and what follows a # are passed over
 *     machine auto                                      the model to start from
 *     model link.network.latency 4100000                one of its fields: picoseconds (per KiB)
 *     measured allreduce direct@flat 1x2 4096 1190000   collective,
 * algorithm[=parameters][@flavour], nodes x ranks of the fullest, bytes, picoseconds (f32)
 *
 * A measured entry goes before the price, for worlds of its shape. Between two of them time is
 * interpolated; outside, the price is scaled to meet the nearest. */
#ifndef TWILL_TUNING_FILE_H
#define TWILL_TUNING_FILE_H

#include "algorithms/select/machine_model.h"
#include "algorithms/select/override.h"

struct twill_measured {
    enum twill_collective collective;
    const struct twill_algorithm *algorithm;
    int protocol; /* -1: it has none */
    uint16_t parameter[TWILL_PARAMETERS];
    uint32_t nodes, ranks; /* of the fullest node */
    size_t bytes;
    uint64_t picoseconds;
};

struct twill_tuning {
    struct twill_machine_model model;
    struct twill_measured *measured; /* by what they are of, then by bytes */
    size_t count;
    char source[64]; /* who has measured, for people: "TWILL_TUNING", "built-in timings of ..." */
};

/* What a file says, or without one the model alone. machine: of twill_machine_model_find(), NULL or
 * "auto" where the text may name another. text: NULL, or what was in `file`, which messages name.
 * TWILL_ERR_CONFIG says file and line. */
twill_status twill_tuning_create(struct twill_tuning **tuning, const char *machine,
                                 const char *text, const char *file, struct twill_error *error);
void twill_tuning_destroy(struct twill_tuning *tuning);

/* To compare among ranks: choices are the same where this is. Never 0. */
uint64_t twill_tuning_hash(const struct twill_tuning *tuning);

/* The entries of this candidate in worlds like this: *first of how many. */
size_t twill_tuning_find(const struct twill_tuning *tuning, const struct twill_algorithm *algorithm,
                         const struct twill_shape *shape, const struct twill_world *world,
                         const struct twill_measured **first);

/* A machine of which timings are built in (algorithms/select/built_in_timings.c), as lines of a
 * file. */
struct twill_tuned_machine {
    const char *name;  /* for people */
    const char *cpu;   /* vendor, family and model number */
    uint64_t l2_bytes; /* of a core's */
    uint32_t cores;
    const char *text;
};
const struct twill_tuned_machine *twill_tuned_machine_at(size_t index); /* NULL past the end */
/* NULL: of such a machine nothing is known, and the model decides. */
const struct twill_tuned_machine *twill_tuned_machine_find(const char *cpu, uint64_t l2_bytes,
                                                           uint32_t cores);
/* Add what was measured there. Whoever adds it must know that all ranks do. */
twill_status twill_tuning_add(struct twill_tuning *tuning,
                              const struct twill_tuned_machine *machine, struct twill_error *error);

#endif
