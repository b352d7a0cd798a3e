#define _GNU_SOURCE /* explicit_bzero */
/* Opening an encrypted model: its key, then the library, into anonymous memory. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/runtime/age.h"
#include "common/runtime/crypto.h"
#include "common/runtime/rt_internal.h"

enum { kMostKeyText = 4096 }; /* an identity among comments */

/* What went wrong with the key itself, whose file is `path`. */
static int key_failed(quench_age_result result, const char* path, quench_rt_error* error) {
  switch (result) {
    case QUENCH_AGE_CRYPTO:
      return quench_rt_fail(error, QUENCH_RT_SYSTEM, "`%s` cannot be opened: %s", path,
                            quench_crypto_load() != NULL ? quench_crypto_load() : "out of memory");
    case QUENCH_AGE_VERSION:
      return quench_rt_fail(error, QUENCH_RT_KEY,
                            "`%s` is of another version of the age format, v1 is read", path);
    case QUENCH_AGE_WORK:
      return quench_rt_fail(error, QUENCH_RT_KEY,
                            "`%s` asks for more work than 2^%d of scrypt, the most that is done",
                            path, QUENCH_AGE_MOST_WORK);
    case QUENCH_AGE_NO_KEY:
      return quench_rt_fail(error, QUENCH_RT_KEY, "`%s` is not sealed with a password", path);
    default:
      return quench_rt_fail(error, QUENCH_RT_KEY, "wrong password or corrupted key file `%s`",
                            path);
  }
}

/* The identity in a key file, sealed or plain. */
static int read_key(const char* path, const char* password, unsigned char secret[32],
                    quench_rt_error* error) {
  quench_rt_mapping file;
  const int code = quench_rt_map(path, "key file", &file, error);
  if (code == QUENCH_RT_NOT_A_MODEL) return QUENCH_RT_KEY; /* the sentence stands */
  if (code != QUENCH_RT_OK) return code;
  int result = QUENCH_RT_OK;
  unsigned char text[kMostKeyText];
  quench_age_file sealed = {0};
  if (!quench_age_is(file.data, file.size)) {
    if (!quench_age_parse_identity(file.data, file.size, secret)) {
      result = quench_rt_fail(
          error, QUENCH_RT_KEY,
          "`%s` is not a key: neither a sealed modelKey.bin nor an age identity", path);
    } else if (password != NULL) {
      result =
          quench_rt_fail(error, QUENCH_RT_KEY, "`%s` is not sealed: it takes no password", path);
    }
  } else if (password == NULL) {
    result = quench_rt_fail(error, QUENCH_RT_KEY,
                            "`%s` is sealed with a password, and none is given", path);
  } else {
    const quench_age_key key = {password, strlen(password), {0}};
    quench_age_result opened = quench_age_open(file.data, file.size, &key, &sealed);
    if (opened == QUENCH_AGE_OK && sealed.text_size > sizeof text) opened = QUENCH_AGE_PAYLOAD;
    if (opened == QUENCH_AGE_OK) opened = quench_age_read(&sealed, text);
    if (opened == QUENCH_AGE_OK &&
        !quench_age_parse_identity((const char*)text, (size_t)sealed.text_size, secret))
      opened = QUENCH_AGE_PAYLOAD;
    if (opened != QUENCH_AGE_OK) result = key_failed(opened, path, error);
  }
  explicit_bzero(text, sizeof text);
  explicit_bzero(&sealed, sizeof sealed);
  munmap(file.data, file.size);
  return result;
}

static int library_failed(quench_age_result result, const char* path, const char* key_path,
                          quench_rt_error* error) {
  switch (result) {
    case QUENCH_AGE_NOT_AGE:
      return quench_rt_fail(error, QUENCH_RT_INVALID, "`%s` is not encrypted: it takes no key",
                            path);
    case QUENCH_AGE_VERSION:
      return quench_rt_fail(error, QUENCH_RT_NOT_A_MODEL,
                            "`%s` is of another version of the age format, v1 is read", path);
    case QUENCH_AGE_NO_KEY:
      return quench_rt_fail(error, QUENCH_RT_KEY,
                            "`%s` is not encrypted to a key: no key file opens it", path);
    case QUENCH_AGE_WRONG_KEY:
      return quench_rt_fail(error, QUENCH_RT_KEY, "`%s` is not the key of `%s`", key_path, path);
    case QUENCH_AGE_CRYPTO:
      return key_failed(result, path, error);
    default:
      return quench_rt_fail(error, QUENCH_RT_CORRUPT,
                            "`%s` is corrupted: it was altered or cut after it was encrypted",
                            path);
  }
}

/* Decrypts into a memory file; its number, or -1 with *code set. */
static int decrypt(const quench_age_file* file, const char* path, int* code,
                   quench_rt_error* error) {
  if (file->text_size == 0) {
    *code = quench_rt_fail(error, QUENCH_RT_NOT_A_MODEL,
                           "`%s` is not a model library: what it encrypts is empty", path);
    return -1;
  }
  const int fd = quench_rt_memory_file();
  void* memory = MAP_FAILED;
  if (fd >= 0 && file->text_size <= SIZE_MAX && ftruncate(fd, (off_t)file->text_size) == 0)
    memory = mmap(NULL, (size_t)file->text_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    *code = quench_rt_fail(error, QUENCH_RT_MEMORY, "cannot make a memory file of %llu bytes: %s",
                           (unsigned long long)file->text_size, strerror(errno));
    if (fd >= 0) close(fd);
    return -1;
  }
  const quench_age_result read = quench_age_read(file, memory);
  munmap(memory, (size_t)file->text_size);
  if (read == QUENCH_AGE_OK) return fd;
  *code = library_failed(read, path, "", error);
  close(fd);
  return -1;
}

int quench_rt_decrypt(const char* path, const char* key_path, const char* password, int* fd,
                      quench_rt_error* error) {
  quench_rt_mapping library;
  int code = quench_rt_map(path, "model library", &library, error);
  if (code != QUENCH_RT_OK) return code;
  quench_age_key key = {NULL, 0, {0}};
  quench_age_file file = {0};
  if (!quench_age_is(library.data, library.size)) {
    code = library_failed(QUENCH_AGE_NOT_AGE, path, key_path, error);
  } else {
    code = read_key(key_path, password, key.secret, error);
  }
  if (code == QUENCH_RT_OK) {
    const quench_age_result opened = quench_age_open(library.data, library.size, &key, &file);
    if (opened != QUENCH_AGE_OK) code = library_failed(opened, path, key_path, error);
  }
  if (code == QUENCH_RT_OK) *fd = decrypt(&file, path, &code, error);
  explicit_bzero(&key, sizeof key);
  explicit_bzero(&file, sizeof file);
  munmap(library.data, library.size);
  return code;
}

/* What quench_rt_inspect says of a memory file. */
static int inspect(int fd, const char* path, quench_rt_error* error) {
  struct stat info;
  void* memory = fstat(fd, &info) == 0
                     ? mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0)
                     : MAP_FAILED;
  if (memory == MAP_FAILED)
    return quench_rt_fail(error, QUENCH_RT_MEMORY, "cannot map a memory file: %s", strerror(errno));
  const int code = quench_rt_inspect(memory, (size_t)info.st_size, path, error);
  munmap(memory, (size_t)info.st_size);
  return code;
}

int quench_rt_open_encrypted(const char* path, const char* key_path, const char* password,
                             quench_rt_model** model, quench_rt_error* error) {
  *model = NULL;
  int fd = -1;
  int code = quench_rt_decrypt(path, key_path, password, &fd, error);
  if (code != QUENCH_RT_OK) return code;
  code = inspect(fd, path, error);
  if (code == QUENCH_RT_OK) return quench_rt_load_sealed(fd, path, model, error);
  close(fd);
  return code;
}
