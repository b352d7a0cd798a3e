/* The primitives of the age format, from OpenSSL's libcrypto, which is loaded when the first of them
 * is needed: a runtime that opens no encrypted model never looks for it. */
#ifndef QUENCH_COMMON_RUNTIME_CRYPTO_H_
#define QUENCH_COMMON_RUNTIME_CRYPTO_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { QUENCH_KEY_BYTES = 32, QUENCH_TAG_BYTES = 16, QUENCH_NONCE_BYTES = 12 };

/* NULL when libcrypto (3.0 or newer) is there, else why it is not; valid until the next call. Call
 * it before anything else here; any number of times, from any thread. */
const char* quench_crypto_load(void);

/* All of these return 1, or 0 on failure. */

/* ChaCha20-Poly1305 (RFC 8439) without associated data. `out` has the tag behind the text; in place
 * is allowed. */
int quench_aead_seal(const unsigned char key[QUENCH_KEY_BYTES],
                     const unsigned char nonce[QUENCH_NONCE_BYTES], const unsigned char* text,
                     size_t size, unsigned char* out);
/* `size` is that of the text, whose tag lies behind it in `sealed`. 0: the tag does not fit, and
 * what `out` holds must not be used. */
int quench_aead_open(const unsigned char key[QUENCH_KEY_BYTES],
                     const unsigned char nonce[QUENCH_NONCE_BYTES], const unsigned char* sealed,
                     size_t size, unsigned char* out);

int quench_hmac_sha256(const unsigned char* key, size_t key_size, const unsigned char* data,
                       size_t size, unsigned char out[32]);
/* HKDF with SHA-256 (RFC 5869), 32 bytes. */
int quench_hkdf_sha256(const unsigned char* secret, size_t secret_size, const unsigned char* salt,
                       size_t salt_size, const char* info, unsigned char out[32]);
/* scrypt (RFC 7914) with N = 1 << log_n, r = 8, p = 1: 1024 << log_n bytes of memory. */
int quench_scrypt(const char* password, size_t password_size, const unsigned char* salt,
                  size_t salt_size, int log_n, unsigned char out[32]);

/* X25519 (RFC 7748). 0 also where the result is all zeros: the other side sent a bad point. */
int quench_x25519(const unsigned char secret[32], const unsigned char point[32],
                  unsigned char out[32]);
/* The public key of a secret one. */
int quench_x25519_public(const unsigned char secret[32], unsigned char out[32]);

int quench_random(unsigned char* out, size_t size);
/* In a time that does not depend on where they differ. */
int quench_equal(const unsigned char* a, const unsigned char* b, size_t size);

#ifdef __cplusplus
}
#endif
#endif /* QUENCH_COMMON_RUNTIME_CRYPTO_H_ */
