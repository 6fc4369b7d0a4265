/* SPDX-License-Identifier: Apache-2.0 */
/* Tuning is a machine model and a table of measurements. As text, it is what `twill-bench
 * --calibrate` writes and TWILL_TUNING names:
 *
 *     twill-tuning 1
 *     # blank lines and comments are skipped
 *     for GenuineIntel 6 143 2M 2                       the measured machine (twill_tuning_key)
 *     machine auto                                      the model to start from
 *     model link.network.latency 4100000                one of its fields: picoseconds (per KiB)
 *     measured allreduce direct@flat 1x2 4096 1190000   collective,
 *         algorithm[=parameters][@protocol], nodes x ranks of the fullest, bytes, picoseconds (f32)
 *
 * On worlds of its shape a measurement takes precedence over the price. Between two measurements
 * the time is interpolated. Beyond them the price is scaled to match the nearest. */
#ifndef TWILL_TUNING_FILE_H
#define TWILL_TUNING_FILE_H

#include "algorithms/select/machine_model.h"
#include "algorithms/select/override.h"

/* The first line of a tuning file. */
#define TWILL_TUNING_HEADING "twill-tuning 1"

/* One measurement, the time of one call of an algorithm. Its tuning owns it. */
struct twill_measured {
    enum twill_collective collective;
    const struct twill_algorithm *algorithm;
    int protocol; /* -1 if it has none */
    uint16_t parameter[TWILL_PARAMETERS];
    uint32_t nodes, ranks; /* ranks of the fullest node */
    size_t bytes;
    uint64_t picoseconds;
};

/* A machine model and measurements, from which all ranks choose algorithms alike. Made by
 * twill_tuning_create(), freed by twill_tuning_destroy(), and constant in between. */
struct twill_tuning {
    struct twill_machine_model model;
    struct twill_measured *measured; /* [count] sorted by all members, bytes last */
    size_t count;
    /* of the measurements, such as "TWILL_TUNING" or "the timings of x.tuning", or "" */
    char source[64];
};

/* Create *tuning from the text of a tuning file, or from a machine model alone if text is NULL. The
 * model is the one named `machine`, or "auto" if that is NULL, unless the text names another one.
 * `file` is the name of the text in messages. On failure *tuning is NULL. Returns TWILL_ERR_CONFIG
 * if `machine` is unknown, or the text malformed, with file and line in the message. */
twill_status twill_tuning_create(struct twill_tuning **tuning, const char *machine,
                                 const char *text, const char *file, struct twill_error *error);
/* Free a tuning, which may be NULL. */
void twill_tuning_destroy(struct twill_tuning *tuning);

/* Return a hash of model and measurements, never 0. Ranks with equal hashes choose alike. */
uint64_t twill_tuning_hash(const struct twill_tuning *tuning);

/* Find the measurements of an algorithm with the collective, protocol and parameters of the shape.
 * They must be of worlds with as many nodes as this one, and as many ranks on the fullest node.
 * Returns how many there are, one after the other from *first on, by size. If there are none,
 * *first is NULL. */
size_t twill_tuning_find(const struct twill_tuning *tuning, const struct twill_algorithm *algorithm,
                         const struct twill_shape *shape, const struct twill_world *world,
                         const struct twill_measured **first);

/* Identifies the machine of a tuning file, whose measurements are not used on any other. A plain
 * value. */
struct twill_tuning_key {
    /* vendor, family and model number by CPUID, or "" if unknown, which matches no file */
    char cpu[64];
    uint64_t l2_bytes; /* of the L2 cache of one core */
    uint32_t cores;    /* of the node */
};

#define TWILL_TUNING_KEY_BYTES 112

/* Print the key as the words after "for" in a tuning file, as in "GenuineIntel 6 143 2048K 2". */
void twill_tuning_key_print(char text[TWILL_TUNING_KEY_BYTES], const struct twill_tuning_key *key);

/* Return whether the text of a tuning file, all else ignored, has a line "for" of this machine. */
bool twill_tuning_is_for(const char *text, const struct twill_tuning_key *here);

#endif
