/* The age v1 file format (age-encryption.org/v1): a file encrypted to X25519 recipients or to a
 * password. Reading is what the runtime needs; writing is for whoever packages models. */
#ifndef QUENCH_COMMON_RUNTIME_AGE_H_
#define QUENCH_COMMON_RUNTIME_AGE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The largest scrypt work factor that is tried, a power of two: 1 GiB of memory. `age` writes 18. */
enum { QUENCH_AGE_MOST_WORK = 20, QUENCH_AGE_USUAL_WORK = 18 };
enum { QUENCH_AGE_FILE_KEY = 16, QUENCH_AGE_CHUNK = 64 << 10 };
/* Text of an identity ("AGE-SECRET-KEY-1...") and of a recipient ("age1..."), with its end. */
enum { QUENCH_AGE_IDENTITY_TEXT = 75, QUENCH_AGE_RECIPIENT_TEXT = 63 };

typedef enum {
  QUENCH_AGE_OK = 0,
  QUENCH_AGE_NOT_AGE,   /* it does not begin as an age file does */
  QUENCH_AGE_VERSION,   /* of a version other than v1 */
  QUENCH_AGE_HEADER,    /* its header is damaged */
  QUENCH_AGE_WORK,      /* its scrypt work factor is above QUENCH_AGE_MOST_WORK */
  QUENCH_AGE_NO_KEY,    /* the key is of another kind: a password is needed, or an identity */
  QUENCH_AGE_WRONG_KEY, /* none of its stanzas opens with the key: wrong, or a damaged stanza */
  QUENCH_AGE_PAYLOAD,   /* the key fits, and what it protects is damaged or cut */
  QUENCH_AGE_CRYPTO     /* libcrypto is missing, or ran out of memory */
} quench_age_result;

/* True when the bytes begin like an age file of any version. */
int quench_age_is(const unsigned char* data, size_t size);

/* A key: a password, or a secret X25519 key. */
typedef struct quench_age_key {
  const char* password; /* NULL: the other */
  size_t password_size;
  unsigned char secret[32];
} quench_age_key;

/* Where the payload lies in a file, and its key. */
typedef struct quench_age_file {
  const unsigned char* payload; /* the first chunk */
  uint64_t payload_size;
  uint64_t text_size; /* of what comes out */
  unsigned char key[32];
} quench_age_file;

/* Who can open a file, as far as its header tells without a key. */
typedef struct quench_age_summary {
  uint32_t recipients; /* X25519 public keys */
  uint32_t others;     /* stanzas of kinds that are not known here */
  int work;            /* log2 of scrypt's N where a password opens it; 0: none does */
  uint64_t text_size;  /* of what comes out */
} quench_age_summary;
/* Nothing is verified: that takes the key. */
quench_age_result quench_age_summarise(const unsigned char* data, size_t size,
                                       quench_age_summary* summary);

/* Reads the header. `file` points into `data`. */
quench_age_result quench_age_open(const unsigned char* data, size_t size, const quench_age_key* key,
                                  quench_age_file* file);
/* Decrypts `file->text_size` bytes to `out`; on failure they must not be used. */
quench_age_result quench_age_read(const quench_age_file* file, unsigned char* out);

/* "AGE-SECRET-KEY-1..." among lines; empty lines and those that begin with `#` are skipped. 1 on
 * success. */
int quench_age_parse_identity(const char* text, size_t size, unsigned char secret[32]);
int quench_age_parse_recipient(const char* text, unsigned char point[32]);
void quench_age_identity_text(const unsigned char secret[32], char text[QUENCH_AGE_IDENTITY_TEXT]);
void quench_age_recipient_text(const unsigned char point[32], char text[QUENCH_AGE_RECIPIENT_TEXT]);

/* ---- writing ---- */

enum { QUENCH_AGE_HEADER_BYTES = 512 }; /* at most, of one stanza, with the payload's nonce */

/* A fresh file to one recipient, or to a password (work: log2 of scrypt's N). Fills `header`, what
 * precedes the chunks, and `payload_key`. */
int quench_age_begin(const unsigned char recipient[32], unsigned char* header, size_t* header_size,
                     unsigned char payload_key[32]);
int quench_age_begin_password(const char* password, size_t password_size, int work,
                              unsigned char* header, size_t* header_size,
                              unsigned char payload_key[32]);
/* Chunk `index` of at most QUENCH_AGE_CHUNK bytes; `out` takes 16 more. */
int quench_age_chunk(const unsigned char payload_key[32], uint64_t index, int last,
                     const unsigned char* text, size_t size, unsigned char* out);

#ifdef __cplusplus
}
#endif
#endif /* QUENCH_COMMON_RUNTIME_AGE_H_ */
