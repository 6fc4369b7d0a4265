/* SPDX-License-Identifier: Apache-2.0 */
/* The key of a job, what is derived from it, and proofs of knowing it: HMAC-SHA-256 of libsodium.
 *
 * Whoever knows the key is of the job. It comes from, in this order: TWILL_JOB (hex, as twillrun
 * sets it), the file TWILL_KEY_FILE names, the launcher's own means (PMI, PMIx: rank 0 draws one
 * and the key-value store carries it), and ~/.twill/key, which is made when a job needs it. Files
 * serve many jobs, so a job's key is derived from theirs and a text that tells one job from
 * another. */
#ifndef TWILL_JOB_KEY_H
#define TWILL_JOB_KEY_H

#include "lib/base.h"

#define TWILL_SECRET_BYTES 32
#define TWILL_PROOF_BYTES  32
#define TWILL_DIGEST_BYTES 32
#define TWILL_SECRET_LEAST 16 /* hex digits of a key that is not to be guessed */
#define TWILL_SECRET_TEXT  (2 * TWILL_SECRET_BYTES + 1) /* in hex, with the closing zero */

struct twill_secret {
    uint8_t key[TWILL_SECRET_BYTES];
};

/* Where the key of a job may come from. Strings may be NULL or empty: not given. */
struct twill_secret_sources {
    const char *job;                  /* TWILL_JOB */
    const char *file;                 /* TWILL_KEY_FILE */
    const struct twill_secret *given; /* by the launcher's own means; NULL: by none */
    const char *identity;             /* tells this job from others that have the same file */
};

/* The key of a job from the first source there is. how: half a sentence for people, without it. */
twill_status twill_secret_find(struct twill_secret *secret,
                               const struct twill_secret_sources *sources, char *how,
                               size_t how_bytes, struct twill_error *error);

/* Hex digits, right-aligned; not zero. name: of the variable, for the sentence, which does not
 * repeat the text. */
twill_status twill_secret_parse(struct twill_secret *secret, const char *name, const char *text,
                                struct twill_error *error);
/* The other way round: for an environment or a key-value store. */
void twill_secret_text(const struct twill_secret *secret, char text[TWILL_SECRET_TEXT]);
/* A file of hex digits; refused unless it is this user's and nobody else may read or write it. */
twill_status twill_secret_read(struct twill_secret *secret, const char *path,
                               struct twill_error *error);
/* ~/.twill/key, which is made if it is not there: no two processes get different ones. */
twill_status twill_secret_of_user(struct twill_secret *secret, char *path, size_t path_bytes,
                                  struct twill_error *error);
twill_status twill_secret_random(struct twill_secret *secret, struct twill_error *error);

/* A key of its own for a purpose: a label, and what tells one such key from another. */
void twill_secret_derive(const struct twill_secret *secret, const char *label, const void *data,
                         size_t bytes, struct twill_secret *derived);
/* Proof of knowing the secret, for a label and data. */
void twill_secret_prove(const struct twill_secret *secret, const char *label, const void *data,
                        size_t bytes, uint8_t proof[TWILL_PROOF_BYTES]);
/* Is it one? In constant time. */
bool twill_secret_check(const struct twill_secret *secret, const char *label, const void *data,
                        size_t bytes, const uint8_t proof[TWILL_PROOF_BYTES]);
/* Digest without a key, to be proven by what contains it (BLAKE2b). */
void twill_secret_digest(const void *data, size_t bytes, uint8_t digest[TWILL_DIGEST_BYTES]);
void twill_secret_wipe(void *secret, size_t bytes); /* which no compiler leaves out */

#endif
