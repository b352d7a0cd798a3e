#define _GNU_SOURCE /* getrandom, explicit_bzero */
#include "common/runtime/crypto.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

/* What is used of libcrypto, as its manual pages declare it; its headers are not needed to build
 * the runtime. Types are opaque. */
typedef struct {
  void* (*EVP_CIPHER_CTX_new)(void);
  void (*EVP_CIPHER_CTX_free)(void*);
  const void* (*EVP_chacha20_poly1305)(void);
  int (*EVP_CipherInit_ex)(void*, const void* cipher, void* engine, const unsigned char* key,
                           const unsigned char* nonce, int encrypt);
  int (*EVP_CipherUpdate)(void*, unsigned char* out, int* written, const unsigned char* in,
                          int size);
  int (*EVP_CipherFinal_ex)(void*, unsigned char* out, int* written);
  int (*EVP_CIPHER_CTX_ctrl)(void*, int type, int argument, void* pointer);
  const void* (*EVP_sha256)(void);
  unsigned char* (*HMAC)(const void* md, const void* key, int key_size, const unsigned char* data,
                         size_t size, unsigned char* out, unsigned int* written);
  int (*EVP_PBE_scrypt)(const char* password, size_t password_size, const unsigned char* salt,
                        size_t salt_size, uint64_t n, uint64_t r, uint64_t p, uint64_t most_memory,
                        unsigned char* key, size_t key_size);
  void* (*EVP_PKEY_new_raw_private_key)(int type, void* engine, const unsigned char* key,
                                        size_t size);
  void* (*EVP_PKEY_new_raw_public_key)(int type, void* engine, const unsigned char* key,
                                       size_t size);
  int (*EVP_PKEY_get_raw_public_key)(const void*, unsigned char* key, size_t* size);
  void (*EVP_PKEY_free)(void*);
  void* (*EVP_PKEY_CTX_new)(void* key, void* engine);
  void (*EVP_PKEY_CTX_free)(void*);
  int (*EVP_PKEY_derive_init)(void*);
  int (*EVP_PKEY_derive_set_peer)(void*, void* peer);
  int (*EVP_PKEY_derive)(void*, unsigned char* key, size_t* size);
} Libcrypto;

enum { kX25519 = 1034, kGetTag = 0x10, kSetTag = 0x11 }; /* NID_X25519, EVP_CTRL_AEAD_* */

static Libcrypto lib;
static char problem[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int find(void* library, const char* name, void* function, size_t size) {
  void* symbol = dlsym(library, name);
  if (symbol == NULL) {
    snprintf(problem, sizeof problem, "libcrypto.so.3 lacks `%s`", name);
    return 0;
  }
  memcpy(function, &symbol, size); /* ISO C has no cast from object to function pointers */
  return 1;
}

#define FIND(name) find(library, #name, &lib.name, sizeof lib.name)

/* A libcrypto of version 3 that the program has linked, whatever its file is called: wheels and
 * packages bring copies under names of their own. A second one beside it would call into the first,
 * which need not be of the same release. */
static int is_linked(void) {
  unsigned (*major)(void);
  void* symbol = dlsym(RTLD_DEFAULT, "OPENSSL_version_major");
  if (symbol == NULL) return 0;
  memcpy(&major, &symbol, sizeof major);
  return major() == 3;
}

static void load(void) {
  void* library = RTLD_DEFAULT;
  if (!is_linked()) {
    library = dlopen("libcrypto.so.3", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
      snprintf(problem, sizeof problem, "OpenSSL's libcrypto.so.3 cannot be loaded: %s", dlerror());
      return;
    }
  }
  (void)(FIND(EVP_CIPHER_CTX_new) && FIND(EVP_CIPHER_CTX_free) && FIND(EVP_chacha20_poly1305) &&
         FIND(EVP_CipherInit_ex) && FIND(EVP_CipherUpdate) && FIND(EVP_CipherFinal_ex) &&
         FIND(EVP_CIPHER_CTX_ctrl) && FIND(EVP_sha256) && FIND(HMAC) && FIND(EVP_PBE_scrypt) &&
         FIND(EVP_PKEY_new_raw_private_key) && FIND(EVP_PKEY_new_raw_public_key) &&
         FIND(EVP_PKEY_get_raw_public_key) && FIND(EVP_PKEY_free) && FIND(EVP_PKEY_CTX_new) &&
         FIND(EVP_PKEY_CTX_free) && FIND(EVP_PKEY_derive_init) && FIND(EVP_PKEY_derive_set_peer) &&
         FIND(EVP_PKEY_derive));
}

const char* quench_crypto_load(void) {
  pthread_once(&once, load);
  return problem[0] == '\0' ? NULL : problem;
}

/* OpenSSL counts bytes in int: longer texts go in pieces. */
static int update(void* context, unsigned char* out, const unsigned char* in, size_t size) {
  const size_t most = (size_t)1 << 30;
  while (size > 0) {
    const size_t piece = size < most ? size : most;
    int written = 0;
    if (lib.EVP_CipherUpdate(context, out, &written, in, (int)piece) != 1) return 0;
    in += piece;
    out += written;
    size -= piece;
  }
  return 1;
}

static int aead(int seal, const unsigned char* key, const unsigned char* nonce,
                const unsigned char* in, size_t size, unsigned char* out) {
  void* context = lib.EVP_CIPHER_CTX_new();
  if (context == NULL) return 0;
  unsigned char rest[QUENCH_TAG_BYTES], tag[QUENCH_TAG_BYTES];
  int written = 0;
  int good = lib.EVP_CipherInit_ex(context, lib.EVP_chacha20_poly1305(), NULL, key, nonce, seal);
  if (!seal && good) {
    memcpy(tag, in + size, sizeof tag);
    good = lib.EVP_CIPHER_CTX_ctrl(context, kSetTag, sizeof tag, tag);
  }
  good = good && update(context, out, in, size) &&
         lib.EVP_CipherFinal_ex(context, rest, &written) == 1;
  if (seal && good) good = lib.EVP_CIPHER_CTX_ctrl(context, kGetTag, sizeof tag, out + size);
  lib.EVP_CIPHER_CTX_free(context);
  return good == 1;
}

int quench_aead_seal(const unsigned char key[QUENCH_KEY_BYTES],
                     const unsigned char nonce[QUENCH_NONCE_BYTES], const unsigned char* text,
                     size_t size, unsigned char* out) {
  return aead(1, key, nonce, text, size, out);
}

int quench_aead_open(const unsigned char key[QUENCH_KEY_BYTES],
                     const unsigned char nonce[QUENCH_NONCE_BYTES], const unsigned char* sealed,
                     size_t size, unsigned char* out) {
  return aead(0, key, nonce, sealed, size, out);
}

int quench_hmac_sha256(const unsigned char* key, size_t key_size, const unsigned char* data,
                       size_t size, unsigned char out[32]) {
  return lib.HMAC(lib.EVP_sha256(), key, (int)key_size, data, size, out, NULL) != NULL;
}

int quench_hkdf_sha256(const unsigned char* secret, size_t secret_size, const unsigned char* salt,
                       size_t salt_size, const char* info, unsigned char out[32]) {
  static const unsigned char kNoSalt[32];
  unsigned char key[32], block[128];
  const size_t length = strlen(info);
  if (length + 1 > sizeof block) return 0;
  memcpy(block, info, length);
  block[length] = 1; /* the first block of the expansion is the only one */
  const int good =
      quench_hmac_sha256(salt_size == 0 ? kNoSalt : salt,
                         salt_size == 0 ? sizeof kNoSalt : salt_size, secret, secret_size, key) &&
      quench_hmac_sha256(key, sizeof key, block, length + 1, out);
  explicit_bzero(key, sizeof key);
  return good;
}

int quench_scrypt(const char* password, size_t password_size, const unsigned char* salt,
                  size_t salt_size, int log_n, unsigned char out[32]) {
  const uint64_t memory = ((uint64_t)1024 << log_n) + (1 << 20); /* beside 128 N r, a little */
  return lib.EVP_PBE_scrypt(password, password_size, salt, salt_size, (uint64_t)1 << log_n, 8, 1,
                            memory, out, 32) == 1;
}

int quench_x25519(const unsigned char secret[32], const unsigned char point[32],
                  unsigned char out[32]) {
  static const unsigned char kZeros[32];
  void* own = lib.EVP_PKEY_new_raw_private_key(kX25519, NULL, secret, 32);
  void* peer = lib.EVP_PKEY_new_raw_public_key(kX25519, NULL, point, 32);
  void* context = own == NULL ? NULL : lib.EVP_PKEY_CTX_new(own, NULL);
  size_t size = 32;
  const int good = context != NULL && peer != NULL && lib.EVP_PKEY_derive_init(context) == 1 &&
                   lib.EVP_PKEY_derive_set_peer(context, peer) == 1 &&
                   lib.EVP_PKEY_derive(context, out, &size) == 1 && size == 32 &&
                   !quench_equal(out, kZeros, 32);
  if (context != NULL) lib.EVP_PKEY_CTX_free(context);
  if (peer != NULL) lib.EVP_PKEY_free(peer);
  if (own != NULL) lib.EVP_PKEY_free(own);
  return good;
}

int quench_x25519_public(const unsigned char secret[32], unsigned char out[32]) {
  void* own = lib.EVP_PKEY_new_raw_private_key(kX25519, NULL, secret, 32);
  if (own == NULL) return 0;
  size_t size = 32;
  const int good = lib.EVP_PKEY_get_raw_public_key(own, out, &size) == 1 && size == 32;
  lib.EVP_PKEY_free(own);
  return good;
}

int quench_random(unsigned char* out, size_t size) {
  while (size > 0) {
    const ssize_t got = getrandom(out, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return 0;
    out += got;
    size -= (size_t)got;
  }
  return 1;
}

int quench_equal(const unsigned char* a, const unsigned char* b, size_t size) {
  unsigned char difference = 0;
  for (size_t i = 0; i < size; ++i) difference |= (unsigned char)(a[i] ^ b[i]);
  return difference == 0;
}
