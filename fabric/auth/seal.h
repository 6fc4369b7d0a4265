/* SPDX-License-Identifier: Apache-2.0 */
/* Authenticated encryption of the records of a connection, with one object for each direction, by
 * AES-256-GCM if the CPUs of all ranks have its instructions, else ChaCha20-Poly1305 (RFC 8439).
 *
 * No two connections share a key, and no two directions. The key is derived from the direction and
 * the session's key, which both ends of the handshake derive from the job's key and two fresh
 * random numbers. The nonce is the number of the record, which both ends count and never send. A
 * record that is repeated, left out or out of order therefore does not open. After
 * TWILL_SEAL_RECORDS records a key derived from the old one replaces it, so that a key found in
 * memory later does not open earlier records. */
#ifndef TWILL_SEAL_H
#define TWILL_SEAL_H

#include "fabric/auth/job_key.h"

#define TWILL_SEAL_TAG     16u
#define TWILL_SEAL_RECORDS (UINT64_C(1) << 20) /* AES-GCM allows 2^32 for each key */
/* One direction of an encrypted connection, part of that. twill_seal_start() sets it up. */
struct twill_seal {
    TWILL_ALIGNED(16) unsigned char cipher_state[512]; /* AES: the expanded key */
    struct twill_secret key;                           /* the present one */
    uint64_t number;                                   /* of the next record */
    uint64_t rekey; /* number of the record that gets the next key */
    uint64_t every; /* records for each key, TWILL_SEAL_RECORDS */
    bool aes;       /* the cipher is AES-256-GCM, else ChaCha20-Poly1305 */
};

/* Return whether this CPU has the instructions for AES-256-GCM. */
bool twill_seal_has_aes(void);
/* Set up one direction of a session, from the end that connected (`from_caller`) or back to it.
 * `aes` chooses AES-256-GCM, which the CPUs of both ends must have, else ChaCha20-Poly1305. Both
 * ends pass the same arguments. */
void twill_seal_start(struct twill_seal *seal, const struct twill_secret *session, bool from_caller,
                      bool aes);
/* Encrypt the next record, `bytes` at `from`, to `to`, which may be `from`, and write its tag. Both
 * are sent. `head` is authenticated with it but sent in the clear. */
void twill_seal_close(struct twill_seal *seal, const void *head, size_t head_bytes, void *to,
                      const void *from, size_t bytes, unsigned char tag[TWILL_SEAL_TAG]);
/* Decrypt the next record, `bytes` at `data`, in place. Returns false if head, data or tag are not
 * those of that record. `data` is then not valid, but the record counts as opened. */
bool twill_seal_open(struct twill_seal *seal, const void *head, size_t head_bytes, void *data,
                     size_t bytes, const unsigned char tag[TWILL_SEAL_TAG]);

#endif
