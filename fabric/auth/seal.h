/* SPDX-License-Identifier: Apache-2.0 */
/* Authenticated encryption of the records of a connection, one object for each direction: AES-256-
 * GCM where the CPUs of all ranks have its instructions, else ChaCha20-Poly1305 (RFC 8439).
 *
 * The key comes from the session's, which both ends of the handshake derive from the job's key and
 * two fresh random numbers, and from the direction: no two connections share one. The nonce is the
 * record's number, which both ends count and which is never sent: a record that is repeated, left
 * out or out of order does not open. After TWILL_SEAL_RECORDS records the key is replaced by one
 * derived from it, so that what is found in memory later does not open what was sent before. */
#ifndef TWILL_SEAL_H
#define TWILL_SEAL_H

#include "fabric/auth/job_key.h"

#define TWILL_SEAL_TAG     16u
#define TWILL_SEAL_RECORDS (UINT64_C(1) << 20) /* AES-GCM allows 2^32 for each key */

struct twill_seal {
    TWILL_ALIGNED(16) unsigned char cipher_state[512]; /* AES: the expanded key */
    struct twill_secret key;
    uint64_t number; /* of the next record */
    uint64_t rekey;  /* number from which on the next key is used */
    uint64_t every;  /* records for each key: TWILL_SEAL_RECORDS */
    bool aes;
};

/* Return whether this CPU has the instructions for AES-256-GCM. */
bool twill_seal_has_aes(void);
/* Start a direction of a session: that of the end that connected, or the other. */
void twill_seal_start(struct twill_seal *seal, const struct twill_secret *session, bool from_caller,
                      bool aes);
/* Encrypt the next record, with `head`, which is sent in the clear, authenticated. `to` has `bytes`
 * bytes; it may be `from`. */
void twill_seal_close(struct twill_seal *seal, const void *head, size_t head_bytes, void *to,
                      const void *from, size_t bytes, unsigned char tag[TWILL_SEAL_TAG]);
/* Decrypt the next record in place. Returns false if head, data or tag are not those of that
 * record; the data is then not valid. */
bool twill_seal_open(struct twill_seal *seal, const void *head, size_t head_bytes, void *data,
                     size_t bytes, const unsigned char tag[TWILL_SEAL_TAG]);

#endif
