/* SPDX-License-Identifier: Apache-2.0 */
/* Authenticated encryption, by libsodium. */
#include "fabric/auth/seal.h"

#include <sodium.h>
#include <string.h>

#define NONCE_BYTES 12u
_Static_assert(sizeof(crypto_aead_aes256gcm_state) <=
                   sizeof(((struct twill_seal *)0)->cipher_state),
               "the expanded key fits");
_Static_assert(crypto_aead_aes256gcm_ABYTES == TWILL_SEAL_TAG &&
                   crypto_aead_chacha20poly1305_ietf_ABYTES == TWILL_SEAL_TAG,
               "size of a tag");
_Static_assert(crypto_aead_aes256gcm_NPUBBYTES == NONCE_BYTES &&
                   crypto_aead_chacha20poly1305_ietf_NPUBBYTES == NONCE_BYTES,
               "size of a nonce");
_Static_assert(crypto_aead_aes256gcm_KEYBYTES == TWILL_SECRET_BYTES &&
                   crypto_aead_chacha20poly1305_ietf_KEYBYTES == TWILL_SECRET_BYTES,
               "size of a key");

bool twill_seal_has_aes(void)
{
    return sodium_init() >= 0 && crypto_aead_aes256gcm_is_available() != 0;
}

/* Return seal->cipher_state, where the expanded AES key is stored, with libsodium's type. */
static crypto_aead_aes256gcm_state *expanded(struct twill_seal *seal)
{
    return (crypto_aead_aes256gcm_state *)(void *)seal->cipher_state;
}

/* Expand the current key if the cipher is AES. Else do nothing. */
static void use_key(struct twill_seal *seal)
{
    if (seal->aes)
        (void)crypto_aead_aes256gcm_beforenm(expanded(seal), seal->key.key);
}

void twill_seal_start(struct twill_seal *seal, const struct twill_secret *session, bool from_caller,
                      bool aes)
{
    const char *label = from_caller ? "sealed by the caller" : "sealed by the called";
    *seal =
        (struct twill_seal){.aes = aes, .every = TWILL_SEAL_RECORDS, .rekey = TWILL_SEAL_RECORDS};
    twill_secret_derive(session, label, NULL, 0, &seal->key);
    use_key(seal);
}

/* Write the nonce of the next record, and count that record. If the key has served all its records,
 * first replace it. */
static void next_nonce(struct twill_seal *seal, unsigned char nonce[NONCE_BYTES])
{
    if (seal->number == seal->rekey) {
        twill_secret_derive(&seal->key, "next key", NULL, 0, &seal->key);
        seal->rekey += seal->every;
        use_key(seal);
    }
    memset(nonce, 0, NONCE_BYTES);
    memcpy(nonce, &seal->number, sizeof(seal->number));
    seal->number++;
}

void twill_seal_close(struct twill_seal *seal, const void *head, size_t head_bytes, void *to,
                      const void *from, size_t bytes, unsigned char tag[TWILL_SEAL_TAG])
{
    unsigned char nonce[NONCE_BYTES];
    next_nonce(seal, nonce);
    if (seal->aes)
        (void)crypto_aead_aes256gcm_encrypt_detached_afternm(
            to, tag, NULL, from, bytes, head, head_bytes, NULL, nonce, expanded(seal));
    else
        (void)crypto_aead_chacha20poly1305_ietf_encrypt_detached(
            to, tag, NULL, from, bytes, head, head_bytes, NULL, nonce, seal->key.key);
}

bool twill_seal_open(struct twill_seal *seal, const void *head, size_t head_bytes, void *data,
                     size_t bytes, const unsigned char tag[TWILL_SEAL_TAG])
{
    unsigned char nonce[NONCE_BYTES];
    next_nonce(seal, nonce);
    if (seal->aes)
        return crypto_aead_aes256gcm_decrypt_detached_afternm(
                   data, NULL, data, bytes, tag, head, head_bytes, nonce, expanded(seal)) == 0;
    return crypto_aead_chacha20poly1305_ietf_decrypt_detached(
               data, NULL, data, bytes, tag, head, head_bytes, nonce, seal->key.key) == 0;
}
