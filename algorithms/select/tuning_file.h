/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of speed: the model of a machine, and a table of what was measured. As text, what
 * `twill-bench --calibrate` writes and TWILL_TUNING names:
 *
 *     twill-tuning 1
 *     # blank lines and what follows a # are passed over
 *     for GenuineIntel 6 143 2M 2                       the machine that was measured
 * (twill_tuning_key) machine auto                                      the model to start from
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
    char source[64]; /* where the timings are from: "TWILL_TUNING", "the timings of x.tuning", "" */
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

/* A machine as tuning files name it: timings of one decide for no other. */
struct twill_tuning_key {
    char cpu[64];      /* vendor, family and model number by CPUID; "": unknown, matches no file */
    uint64_t l2_bytes; /* of one core's L2 cache */
    uint32_t cores;    /* of the node */
};

#define TWILL_TUNING_KEY_BYTES 112

/* Write the key as the words after "for" in a file. */
void twill_tuning_key_print(char text[TWILL_TUNING_KEY_BYTES], const struct twill_tuning_key *key);

/* Return true if the file's text has a line "for" of this machine. Nothing else of it is read. */
bool twill_tuning_is_for(const char *text, const struct twill_tuning_key *here);

#endif
