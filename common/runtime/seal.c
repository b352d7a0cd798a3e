#define _GNU_SOURCE /* explicit_bzero */
/* Encrypting a library: to a recipient, or to a fresh key that a password opens. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/runtime/age.h"
#include "common/runtime/crypto.h"
#include "common/runtime/rt_internal.h"

enum { kMostPassword = 1024 };

/* What precedes the chunks of a file, and their key. */
typedef struct file_header {
  unsigned char bytes[QUENCH_AGE_HEADER_BYTES];
  size_t size;
  unsigned char key[32];
} file_header;

static int no_crypto(quench_rt_error* error) {
  const char* reason = quench_crypto_load();
  return quench_rt_fail(error, QUENCH_RT_SYSTEM, "cannot encrypt: %s",
                        reason == NULL ? "out of memory" : reason);
}

static int write_all(int fd, const unsigned char* data, size_t size) {
  while (size > 0) {
    const ssize_t written = write(fd, data, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return 0;
    data += written;
    size -= (size_t)written;
  }
  return 1;
}

static int write_chunks(int fd, const file_header* header, const unsigned char* text, size_t size,
                        const char* path, quench_rt_error* error) {
  unsigned char* sealed = malloc(QUENCH_AGE_CHUNK + QUENCH_TAG_BYTES);
  if (sealed == NULL) return quench_rt_fail(error, QUENCH_RT_MEMORY, "out of memory");
  int code = QUENCH_RT_OK;
  int written = write_all(fd, header->bytes, header->size);
  uint64_t index = 0;
  int last = 0;
  while (written && !last) {
    const size_t piece = size < QUENCH_AGE_CHUNK ? size : QUENCH_AGE_CHUNK;
    last = piece == size;
    if (!quench_age_chunk(header->key, index++, last, text, piece, sealed)) {
      code = no_crypto(error);
      break;
    }
    written = write_all(fd, sealed, piece + QUENCH_TAG_BYTES);
    text += piece;
    size -= piece;
  }
  if (!written)
    code = quench_rt_fail(error, QUENCH_RT_IO, "cannot write `%s`: %s", path, strerror(errno));
  free(sealed);
  return code;
}

/* What was begun; a device or pipe that was written to stays. */
static void remove_file(const char* path) {
  struct stat about;
  if (lstat(path, &about) == 0 && S_ISREG(about.st_mode)) unlink(path);
}

/* A file of header and chunks; none where that fails. */
static int write_sealed(const file_header* header, const unsigned char* text, size_t size,
                        const char* path, mode_t mode, quench_rt_error* error) {
  const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  if (fd < 0)
    return quench_rt_fail(error, QUENCH_RT_IO, "cannot create `%s`: %s", path, strerror(errno));
  int code = QUENCH_RT_OK;
  if (mode == 0600 && fchmod(fd, mode) != 0) /* it may have been there before */
    code = quench_rt_fail(error, QUENCH_RT_IO, "cannot restrict `%s`: %s", path, strerror(errno));
  if (code == QUENCH_RT_OK) code = write_chunks(fd, header, text, size, path, error);
  if (close(fd) != 0 && code == QUENCH_RT_OK)
    code = quench_rt_fail(error, QUENCH_RT_IO, "cannot write `%s`: %s", path, strerror(errno));
  if (code != QUENCH_RT_OK) remove_file(path);
  return code;
}

/* A fresh identity, sealed with the password; its public key is the recipient. */
static int make_key(const char* password, const char* path, unsigned char recipient[32],
                    quench_rt_error* error) {
  unsigned char secret[32];
  char text[QUENCH_AGE_IDENTITY_TEXT + 1];
  file_header header;
  int code = QUENCH_RT_OK;
  if (!quench_random(secret, sizeof secret) || !quench_x25519_public(secret, recipient) ||
      !quench_age_begin_password(password, strlen(password), QUENCH_AGE_USUAL_WORK, header.bytes,
                                 &header.size, header.key)) {
    code = no_crypto(error);
  } else {
    quench_age_identity_text(secret, text);
    strcat(text, "\n");
    code = write_sealed(&header, (const unsigned char*)text, strlen(text), path, 0600, error);
  }
  explicit_bzero(secret, sizeof secret);
  explicit_bzero(text, sizeof text);
  explicit_bzero(&header, sizeof header);
  return code;
}

int quench_rt_encrypt(const void* data, size_t size, const char* path, const char* key_path,
                      const char* password, const char* recipient, quench_rt_error* error) {
  unsigned char point[32];
  if ((password == NULL) == (recipient == NULL)) {
    return quench_rt_fail(error, QUENCH_RT_INVALID,
                          "encrypting takes a password or a recipient, one of them");
  }
  if (password != NULL && (*password == '\0' || strlen(password) > kMostPassword)) {
    return quench_rt_fail(error, QUENCH_RT_INVALID, "the password has %zu bytes, it needs 1 to %d",
                          strlen(password), kMostPassword);
  }
  if (recipient != NULL && !quench_age_parse_recipient(recipient, point)) {
    return quench_rt_fail(error, QUENCH_RT_INVALID,
                          "recipient `%.80s` is none of age's: `age1` and 58 letters and digits, "
                          "as age-keygen prints",
                          recipient);
  }
  if (quench_crypto_load() != NULL) return no_crypto(error);
  if (password != NULL) {
    const int code = make_key(password, key_path, point, error);
    if (code != QUENCH_RT_OK) return code;
  }
  file_header header;
  const int begun = quench_age_begin(point, header.bytes, &header.size, header.key);
  const int code = begun ? write_sealed(&header, data, size, path, 0666, error) : no_crypto(error);
  explicit_bzero(&header, sizeof header);
  if (code != QUENCH_RT_OK && password != NULL) remove_file(key_path);
  return code;
}
