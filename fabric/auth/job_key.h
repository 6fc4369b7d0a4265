/* SPDX-License-Identifier: Apache-2.0 */
/* The key of a job, keys derived from it, and proofs of knowing it (HMAC-SHA-256 of libsodium). * A
 * process that knows the key belongs to the job. The key comes from the first of TWILL_JOB (hex
 * digits, set by twillrun), the file TWILL_KEY_FILE, the launcher (PMI and PMIx carry a key that
 * rank 0 drew), and ~/.twill/key, which is created when first needed. A file serves many jobs, so a
 * job's key is derived from the file's key and a text that identifies the job. */
#ifndef TWILL_JOB_KEY_H
#define TWILL_JOB_KEY_H

#include "lib/base/base.h"

#define TWILL_SECRET_BYTES 32
#define TWILL_PROOF_BYTES  32
#define TWILL_DIGEST_BYTES 32
#define TWILL_SECRET_LEAST 16 /* fewest hex digits of a key that a user may set */
#define TWILL_SECRET_TEXT  (2 * TWILL_SECRET_BYTES + 1) /* in hex, with the terminating zero */
/* A secret key, a value. Its holder wipes it (twill_secret_wipe()) after use. */
struct twill_secret {
    uint8_t key[TWILL_SECRET_BYTES];
};

/* Return whether the value of a variable is neither NULL nor empty. */
static inline bool twill_is_set(const char *text)
{
    return text != NULL && *text != '\0';
}

/* The input of twill_secret_find(), owned by its caller. Strings may be NULL or "" if not set. */
struct twill_secret_sources {
    const char *job;                  /* TWILL_JOB */
    const char *file;                 /* TWILL_KEY_FILE */
    const struct twill_secret *given; /* from the launcher, or NULL */
    const char *identity;             /* tells jobs apart that use one file */
};

/* Set *secret to the job's key, and `how` to the name of its source. The source is the first of
 * sources->job, file and given that is set, else the file ~/.twill/key. The key in a file serves
 * many jobs, so *secret is then derived from it and sources->identity. If the source is wrong, no
 * other is tried. This then fails with TWILL_ERR_CONFIG, or with TWILL_ERR_SYSTEM if a file cannot
 * be read. */
twill_status twill_secret_find(struct twill_secret *secret,
                               const struct twill_secret_sources *sources, char *how,
                               size_t how_bytes, struct twill_error *error);
/* Parse 1 to 64 hex digits into a key, right-aligned. Other text, and zero, are TWILL_ERR_CONFIG.
 * The message calls the text `name` and does not contain it. */
twill_status twill_secret_parse(struct twill_secret *secret, const char *name, const char *text,
                                struct twill_error *error);
/* Write a key as hex digits, for an environment variable or a key-value store. */
void twill_secret_text(const struct twill_secret *secret, char text[TWILL_SECRET_TEXT]);
/* Write `count` bytes as two hex digits each, with a terminating zero. Returns `text`. */
char *twill_hex_text(const uint8_t *bytes, size_t count, char *text);
/* Read a key of TWILL_SECRET_LEAST to 64 hex digits from the first line of a file. Returns
 * TWILL_ERR_CONFIG unless there is such a file, which this user owns and no other user has access
 * to. Returns TWILL_ERR_SYSTEM if it exists but cannot be opened or read. */
twill_status twill_secret_read(struct twill_secret *secret, const char *path,
                               struct twill_error *error);
/* Read the key in the file .twill/key in the directory HOME or, if that is not set, in the home
 * directory that the password database has for this user. Write that path to `path`. Create the
 * file with a random key if there is none. Processes that create it at the same time get the same
 * key. Returns TWILL_ERR_CONFIG if no home directory is known or its path is too long, if the file
 * cannot be created, or as twill_secret_read() does. */
twill_status twill_secret_of_user(struct twill_secret *secret, char *path, size_t path_bytes,
                                  struct twill_error *error);
/* Draw a random key. Returns TWILL_ERR_SYSTEM if the kernel gives no random numbers. */
twill_status twill_secret_random(struct twill_secret *secret, struct twill_error *error);
/* Set *derived (*secret is allowed) to a key made from `secret`, its purpose `label` and data. */
void twill_secret_derive(const struct twill_secret *secret, const char *label, const void *data,
                         size_t bytes, struct twill_secret *derived);
/* Compute a proof of knowing the secret, the HMAC of `label` and data under it. */
void twill_secret_prove(const struct twill_secret *secret, const char *label, const void *data,
                        size_t bytes, uint8_t proof[TWILL_PROOF_BYTES]);
/* Return whether `proof` is what twill_secret_prove() computes. Compares in constant time. */
bool twill_secret_check(const struct twill_secret *secret, const char *label, const void *data,
                        size_t bytes, const uint8_t proof[TWILL_PROOF_BYTES]);
/* Compute a digest without a key (BLAKE2b). It is safe only inside data that is proven. */
void twill_secret_digest(const void *data, size_t bytes, uint8_t digest[TWILL_DIGEST_BYTES]);
void twill_secret_wipe(void *secret, size_t bytes); /* memset() to 0 that is never optimised away */

#endif
