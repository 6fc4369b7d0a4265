/* SPDX-License-Identifier: Apache-2.0 */
/* The key of a job, keys derived from it, and proofs of knowing it (HMAC-SHA-256 of libsodium).
 *
 * A process that knows the key belongs to the job. Its sources, in this order: TWILL_JOB (hex, set
 * by twillrun), the file TWILL_KEY_FILE, the launcher (PMI, PMIx: rank 0 draws a key, and the
 * key-value store carries it), and ~/.twill/key, which is created when first needed. Files serve
 * many jobs: a job's key is derived from theirs and a text that identifies the job. */
#ifndef TWILL_JOB_KEY_H
#define TWILL_JOB_KEY_H

#include "lib/base/base.h"

#define TWILL_SECRET_BYTES 32
#define TWILL_PROOF_BYTES  32
#define TWILL_DIGEST_BYTES 32
#define TWILL_SECRET_LEAST 16 /* fewest hex digits of a key that a user may set */
#define TWILL_SECRET_TEXT  (2 * TWILL_SECRET_BYTES + 1) /* in hex, with the terminating zero */

/* A key. Wipe it after use. */
struct twill_secret {
    uint8_t key[TWILL_SECRET_BYTES];
};

/* Report whether a variable is set, and not empty. */
static inline bool twill_is_set(const char *text)
{
    return text != NULL && *text != '\0';
}

/* Sources of a job's key. Strings may be NULL or empty when not set. */
struct twill_secret_sources {
    const char *job;                  /* TWILL_JOB */
    const char *file;                 /* TWILL_KEY_FILE */
    const struct twill_secret *given; /* provided by the launcher, or NULL */
    const char *identity;             /* distinguishes jobs that use one file */
};

/* Find the key of a job in the first source that is set. how: name of the source, for messages. */
twill_status twill_secret_find(struct twill_secret *secret,
                               const struct twill_secret_sources *sources, char *how,
                               size_t how_bytes, struct twill_error *error);

/* Parse hex digits into a key, right-aligned; zero is an error. name: for the message, which does
 * not contain the text. */
twill_status twill_secret_parse(struct twill_secret *secret, const char *name, const char *text,
                                struct twill_error *error);
/* Write a key as hex digits, for an environment variable or a key-value store. */
void twill_secret_text(const struct twill_secret *secret, char text[TWILL_SECRET_TEXT]);
/* Write bytes as hex digits, two for each. Returns text. */
char *twill_hex_text(const uint8_t *bytes, size_t count, char *text);
/* Read a file of hex digits. Fails unless this user owns it and no other has access to it. */
twill_status twill_secret_read(struct twill_secret *secret, const char *path,
                               struct twill_error *error);
/* Read ~/.twill/key and write its name to `path`. Creates it if needed: concurrent processes get
 * one key. */
twill_status twill_secret_of_user(struct twill_secret *secret, char *path, size_t path_bytes,
                                  struct twill_error *error);
twill_status twill_secret_random(struct twill_secret *secret, struct twill_error *error);

/* Derive a key from a secret, for the purpose `label` and the instance `data`. derived may be
 * secret. */
void twill_secret_derive(const struct twill_secret *secret, const char *label, const void *data,
                         size_t bytes, struct twill_secret *derived);
/* Compute the proof (HMAC) of label and data with the secret. */
void twill_secret_prove(const struct twill_secret *secret, const char *label, const void *data,
                        size_t bytes, uint8_t proof[TWILL_PROOF_BYTES]);
/* Verify a proof, in constant time. */
bool twill_secret_check(const struct twill_secret *secret, const char *label, const void *data,
                        size_t bytes, const uint8_t proof[TWILL_PROOF_BYTES]);
/* Digest without a key (BLAKE2b), for use inside of proven data. */
void twill_secret_digest(const void *data, size_t bytes, uint8_t digest[TWILL_DIGEST_BYTES]);
void twill_secret_wipe(void *secret, size_t bytes); /* memset() to 0 that is never optimised away */

#endif
