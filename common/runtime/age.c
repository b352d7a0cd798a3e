#define _GNU_SOURCE /* explicit_bzero, memmem */
/* Format: C2SP's age-encryption.org/v1. */
#include "common/runtime/age.h"

#include <stdio.h>
#include <string.h>

#include "common/runtime/age_text.h"
#include "common/runtime/crypto.h"

static const char kVersion[] = "age-encryption.org/v1\n";
static const char kAnyVersion[] = "age-encryption.org/";
static const char kScryptLabel[] = "age-encryption.org/v1/scrypt";
static const char kX25519Label[] = "age-encryption.org/v1/X25519";
static const char kIdentity[] = "age-secret-key-";
static const char kRecipient[] = "age";

enum {
  kMostHeader = 64 << 10, /* a few hundred recipients */
  kColumns = 64,          /* of a line of a stanza's body */
  kSealedFileKey = QUENCH_AGE_FILE_KEY + QUENCH_TAG_BYTES,
  kSalt = 16,
  kPayloadNonce = 16,
  kSealedChunk = QUENCH_AGE_CHUNK + QUENCH_TAG_BYTES
};
static const unsigned char kZeroNonce[QUENCH_NONCE_BYTES];

int quench_age_is(const unsigned char* data, size_t size) {
  return size >= sizeof kAnyVersion - 1 && memcmp(data, kAnyVersion, sizeof kAnyVersion - 1) == 0;
}

/* ---- reading ---- */

typedef struct {
  const char *at, *end;
} Text;

/* The next line without its end; 0 where there is none. */
static int next_line(Text* text, Text* line) {
  const char* end = memchr(text->at, '\n', (size_t)(text->end - text->at));
  if (end == NULL) return 0;
  line->at = text->at;
  line->end = end;
  text->at = end + 1;
  return 1;
}

/* The next word of a line: words are separated by one space each. 0 where there is none. */
static int next_word(Text* line, Text* word) {
  if (line->at > line->end) return 0;
  const char* end = memchr(line->at, ' ', (size_t)(line->end - line->at));
  word->at = line->at;
  word->end = end == NULL ? line->end : end;
  line->at = word->end + 1;
  return word->end > word->at;
}

static size_t length(const Text* text) { return (size_t)(text->end - text->at); }

static int is_word(const Text* word, const char* expected) {
  return length(word) == strlen(expected) && memcmp(word->at, expected, length(word)) == 0;
}

typedef struct {
  Text type, first, second; /* arguments; those that are not there are empty */
  int arguments;
  Text body; /* its first line; the whole of it where it is one line */
  int lines;
} Stanza;

static int read_stanza(Text* text, Stanza* stanza) {
  Text line, word;
  memset(stanza, 0, sizeof *stanza);
  if (!next_line(text, &line) || !next_word(&line, &word) || !is_word(&word, "->") ||
      !next_word(&line, &stanza->type))
    return 0;
  while (line.at <= line.end) {
    if (!next_word(&line, &word)) return 0;
    if (stanza->arguments == 0) stanza->first = word;
    if (stanza->arguments == 1) stanza->second = word;
    ++stanza->arguments;
  }
  do {
    if (!next_line(text, &line) || length(&line) > kColumns) return 0;
    if (stanza->lines++ == 0) stanza->body = line;
  } while (length(&line) == kColumns);
  return 1;
}

static int open_file_key(const unsigned char wrap[32], const Stanza* stanza,
                         unsigned char file_key[QUENCH_AGE_FILE_KEY]) {
  unsigned char sealed[kSealedFileKey];
  return quench_base64_decode(stanza->body.at, length(&stanza->body), sealed, sizeof sealed) &&
         quench_aead_open(wrap, kZeroNonce, sealed, QUENCH_AGE_FILE_KEY, file_key);
}

/* Wrapping key of an X25519 stanza, from the shared secret and both public keys. */
static int x25519_wrap(const unsigned char shared[32], const unsigned char share[32],
                       const unsigned char recipient[32], unsigned char wrap[32]) {
  unsigned char salt[64];
  memcpy(salt, share, 32);
  memcpy(salt + 32, recipient, 32);
  return quench_hkdf_sha256(shared, 32, salt, sizeof salt, kX25519Label, wrap);
}

static quench_age_result try_x25519(const Stanza* stanza, const quench_age_key* key,
                                    unsigned char file_key[QUENCH_AGE_FILE_KEY]) {
  unsigned char share[32], recipient[32], shared[32], wrap[32];
  if (stanza->arguments != 1 || stanza->lines != 1 ||
      !quench_base64_decode(stanza->first.at, length(&stanza->first), share, sizeof share))
    return QUENCH_AGE_HEADER;
  const int good =
      quench_x25519_public(key->secret, recipient) && quench_x25519(key->secret, share, shared) &&
      x25519_wrap(shared, share, recipient, wrap) && open_file_key(wrap, stanza, file_key);
  explicit_bzero(shared, sizeof shared);
  explicit_bzero(wrap, sizeof wrap);
  return good ? QUENCH_AGE_OK : QUENCH_AGE_WRONG_KEY;
}

static int scrypt_wrap(const quench_age_key* key, const unsigned char salt[kSalt], int work,
                       unsigned char wrap[32]) {
  unsigned char labelled[sizeof kScryptLabel - 1 + kSalt];
  memcpy(labelled, kScryptLabel, sizeof kScryptLabel - 1);
  memcpy(labelled + sizeof kScryptLabel - 1, salt, kSalt);
  return quench_scrypt(key->password, key->password_size, labelled, sizeof labelled, work, wrap);
}

/* Decimal without leading zeros; -1 is none. Of three digits 999 stands for all. */
static int work_factor(const Text* word) {
  if (length(word) == 0 || word->at[0] < '1' || word->at[0] > '9') return -1;
  int value = 0;
  for (const char* c = word->at; c < word->end; ++c) {
    if (*c < '0' || *c > '9') return -1;
    value = value > 99 ? 999 : value * 10 + (*c - '0');
  }
  return value;
}

static quench_age_result try_scrypt(const Stanza* stanza, const quench_age_key* key,
                                    unsigned char file_key[QUENCH_AGE_FILE_KEY]) {
  unsigned char salt[kSalt], wrap[32];
  if (stanza->arguments != 2 || stanza->lines != 1 ||
      !quench_base64_decode(stanza->first.at, length(&stanza->first), salt, sizeof salt))
    return QUENCH_AGE_HEADER;
  const int work = work_factor(&stanza->second);
  if (work < 0) return QUENCH_AGE_HEADER;
  if (work > QUENCH_AGE_MOST_WORK) return QUENCH_AGE_WORK;
  if (!scrypt_wrap(key, salt, work, wrap)) return QUENCH_AGE_CRYPTO;
  const int good = open_file_key(wrap, stanza, file_key);
  explicit_bzero(wrap, sizeof wrap);
  return good ? QUENCH_AGE_OK : QUENCH_AGE_WRONG_KEY;
}

/* The file key from the stanzas up to the line of the MAC, which `text` is left at. */
static quench_age_result find_file_key(Text* text, const quench_age_key* key,
                                       unsigned char file_key[QUENCH_AGE_FILE_KEY]) {
  quench_age_result result = QUENCH_AGE_NO_KEY;
  int stanzas = 0, passwords = 0;
  while (text->end - text->at >= 3 && memcmp(text->at, "---", 3) != 0) {
    Stanza stanza;
    if (!read_stanza(text, &stanza)) return QUENCH_AGE_HEADER;
    ++stanzas;
    const int scrypt = is_word(&stanza.type, "scrypt");
    passwords += scrypt;
    if (passwords > 0 && stanzas > 1) return QUENCH_AGE_HEADER; /* a password is alone */
    if (result == QUENCH_AGE_OK) continue;
    quench_age_result each = QUENCH_AGE_NO_KEY;
    if (scrypt && key->password != NULL) each = try_scrypt(&stanza, key, file_key);
    if (is_word(&stanza.type, "X25519") && key->password == NULL)
      each = try_x25519(&stanza, key, file_key);
    if (each != QUENCH_AGE_OK && each != QUENCH_AGE_NO_KEY && each != QUENCH_AGE_WRONG_KEY)
      return each;
    if (each != QUENCH_AGE_NO_KEY) result = each;
  }
  return stanzas == 0 ? QUENCH_AGE_HEADER : result;
}

static int header_mac(const unsigned char file_key[QUENCH_AGE_FILE_KEY],
                      const unsigned char* header, size_t size, unsigned char mac[32]) {
  unsigned char key[32];
  const int good = quench_hkdf_sha256(file_key, QUENCH_AGE_FILE_KEY, NULL, 0, "header", key) &&
                   quench_hmac_sha256(key, sizeof key, header, size, mac);
  explicit_bzero(key, sizeof key);
  return good;
}

/* Sizes of chunks follow from the payload's: all but the last are full. */
static int measure(quench_age_file* file) {
  const uint64_t chunks = (file->payload_size + kSealedChunk - 1) / kSealedChunk;
  if (chunks == 0) return 0;
  const uint64_t last = file->payload_size - (chunks - 1) * kSealedChunk;
  if (last < QUENCH_TAG_BYTES || (last == QUENCH_TAG_BYTES && chunks > 1)) return 0;
  file->text_size = file->payload_size - chunks * QUENCH_TAG_BYTES;
  return 1;
}

/* The lines of the header behind the first. */
static quench_age_result begin_header(const unsigned char* data, size_t size, Text* text) {
  if (!quench_age_is(data, size)) return QUENCH_AGE_NOT_AGE;
  if (size < sizeof kVersion - 1 || memcmp(data, kVersion, sizeof kVersion - 1) != 0)
    return QUENCH_AGE_VERSION;
  const char* begin = (const char*)data;
  text->at = begin + sizeof kVersion - 1;
  text->end = begin + (size < kMostHeader ? size : kMostHeader);
  return QUENCH_AGE_OK;
}

/* What follows the header's last line is the payload's nonce and the payload. */
static int find_payload(const Text* text, const unsigned char* data, size_t size,
                        quench_age_file* file) {
  const size_t rest = size - (size_t)(text->at - (const char*)data);
  if (rest < kPayloadNonce) return 0;
  file->payload = (const unsigned char*)text->at + kPayloadNonce;
  file->payload_size = rest - kPayloadNonce;
  return measure(file);
}

quench_age_result quench_age_summarise(const unsigned char* data, size_t size,
                                       quench_age_summary* summary) {
  memset(summary, 0, sizeof *summary);
  Text text, line;
  const quench_age_result begun = begin_header(data, size, &text);
  if (begun != QUENCH_AGE_OK) return begun;
  while (text.end - text.at >= 3 && memcmp(text.at, "---", 3) != 0) {
    Stanza stanza;
    if (!read_stanza(&text, &stanza)) return QUENCH_AGE_HEADER;
    if (is_word(&stanza.type, "scrypt")) {
      const int work = stanza.arguments == 2 ? work_factor(&stanza.second) : -1;
      if (work < 0) return QUENCH_AGE_HEADER;
      summary->work = work;
    } else if (is_word(&stanza.type, "X25519")) {
      ++summary->recipients;
    } else {
      ++summary->others;
    }
  }
  quench_age_file file = {0};
  if (!next_line(&text, &line)) return QUENCH_AGE_HEADER;
  if (!find_payload(&text, data, size, &file)) return QUENCH_AGE_PAYLOAD;
  summary->text_size = file.text_size;
  return QUENCH_AGE_OK;
}

quench_age_result quench_age_open(const unsigned char* data, size_t size, const quench_age_key* key,
                                  quench_age_file* file) {
  memset(file, 0, sizeof *file);
  Text text;
  const quench_age_result begun = begin_header(data, size, &text);
  if (begun != QUENCH_AGE_OK) return begun;
  if (quench_crypto_load() != NULL) return QUENCH_AGE_CRYPTO;
  const char* begin = (const char*)data;
  unsigned char file_key[QUENCH_AGE_FILE_KEY], mac[32], expected[32];
  const quench_age_result found = find_file_key(&text, key, file_key);
  if (found != QUENCH_AGE_OK) return found;
  const size_t covered = (size_t)(text.at - begin) + 3;
  Text line, word;
  quench_age_result result = QUENCH_AGE_HEADER;
  if (next_line(&text, &line) && next_word(&line, &word) && is_word(&word, "---") &&
      next_word(&line, &word) && line.at > line.end &&
      quench_base64_decode(word.at, length(&word), mac, sizeof mac) &&
      header_mac(file_key, data, covered, expected) && quench_equal(mac, expected, sizeof mac)) {
    const unsigned char* nonce = (const unsigned char*)text.at;
    result = find_payload(&text, data, size, file) &&
                     quench_hkdf_sha256(file_key, sizeof file_key, nonce, kPayloadNonce, "payload",
                                        file->key)
                 ? QUENCH_AGE_OK
                 : QUENCH_AGE_PAYLOAD;
  }
  explicit_bzero(file_key, sizeof file_key);
  return result;
}

static void chunk_nonce(uint64_t index, int last, unsigned char nonce[QUENCH_NONCE_BYTES]) {
  memset(nonce, 0, QUENCH_NONCE_BYTES);
  for (int i = 0; i < 8; ++i) nonce[10 - i] = (unsigned char)(index >> (8 * i));
  nonce[11] = last ? 1 : 0;
}

quench_age_result quench_age_read(const quench_age_file* file, unsigned char* out) {
  const unsigned char* at = file->payload;
  uint64_t rest = file->payload_size;
  for (uint64_t index = 0; rest > 0; ++index) {
    const int last = rest <= kSealedChunk;
    const size_t size = (size_t)(last ? rest : kSealedChunk) - QUENCH_TAG_BYTES;
    unsigned char nonce[QUENCH_NONCE_BYTES];
    chunk_nonce(index, last, nonce);
    if (!quench_aead_open(file->key, nonce, at, size, out)) return QUENCH_AGE_PAYLOAD;
    at += size + QUENCH_TAG_BYTES;
    rest -= size + QUENCH_TAG_BYTES;
    if (out != NULL) out += size;  // an empty file has no memory to go to
  }
  return QUENCH_AGE_OK;
}

int quench_age_parse_identity(const char* text, size_t size, unsigned char secret[32]) {
  const char* end = text + size;
  while (text < end) {
    const char* stop = memchr(text, '\n', (size_t)(end - text));
    if (stop == NULL) stop = end;
    size_t line = (size_t)(stop - text);
    if (line > 0 && text[line - 1] == '\r') --line;
    if (line > 0 && text[0] != '#') return quench_bech32_decode(kIdentity, text, line, secret);
    text = stop + 1;
  }
  return 0;
}

int quench_age_parse_recipient(const char* text, unsigned char point[32]) {
  return quench_bech32_decode(kRecipient, text, strlen(text), point);
}

void quench_age_identity_text(const unsigned char secret[32], char text[QUENCH_AGE_IDENTITY_TEXT]) {
  quench_bech32_encode(kIdentity, secret, text);
  for (char* c = text; *c != '\0'; ++c) {
    if (*c >= 'a' && *c <= 'z') *c = (char)(*c - 'a' + 'A');
  }
}

void quench_age_recipient_text(const unsigned char point[32],
                               char text[QUENCH_AGE_RECIPIENT_TEXT]) {
  quench_bech32_encode(kRecipient, point, text);
}

/* ---- writing ---- */

/* From `stanza`, the version line and the first line of the only stanza, to the payload's nonce. */
static int finish_header(const char* stanza, const unsigned char wrap[32],
                         const unsigned char file_key[QUENCH_AGE_FILE_KEY], unsigned char* header,
                         size_t* header_size, unsigned char payload_key[32]) {
  unsigned char sealed[kSealedFileKey], mac[32], nonce[kPayloadNonce];
  char* text = (char*)header;
  size_t size = strlen(stanza);
  memcpy(text, stanza, size);
  if (!quench_aead_seal(wrap, kZeroNonce, file_key, QUENCH_AGE_FILE_KEY, sealed)) return 0;
  size += quench_base64_encode(sealed, sizeof sealed, text + size);
  memcpy(text + size, "\n---", 4);
  size += 4;
  if (!header_mac(file_key, header, size, mac)) return 0;
  text[size++] = ' ';
  size += quench_base64_encode(mac, sizeof mac, text + size);
  text[size++] = '\n';
  if (!quench_random(nonce, sizeof nonce)) return 0;
  memcpy(text + size, nonce, sizeof nonce);
  *header_size = size + sizeof nonce;
  return quench_hkdf_sha256(file_key, QUENCH_AGE_FILE_KEY, nonce, sizeof nonce, "payload",
                            payload_key);
}

int quench_age_begin(const unsigned char recipient[32], unsigned char* header, size_t* header_size,
                     unsigned char payload_key[32]) {
  unsigned char file_key[QUENCH_AGE_FILE_KEY], secret[32], share[32], shared[32], wrap[32];
  if (quench_crypto_load() != NULL || !quench_random(file_key, sizeof file_key) ||
      !quench_random(secret, sizeof secret))
    return 0;
  char encoded[48] = {0}, stanza[128];
  const int good = quench_x25519_public(secret, share) &&
                   quench_x25519(secret, recipient, shared) &&
                   x25519_wrap(shared, share, recipient, wrap);
  quench_base64_encode(share, sizeof share, encoded);
  snprintf(stanza, sizeof stanza, "%s-> X25519 %s\n", kVersion, encoded);
  const int done = good && finish_header(stanza, wrap, file_key, header, header_size, payload_key);
  explicit_bzero(file_key, sizeof file_key);
  explicit_bzero(secret, sizeof secret);
  explicit_bzero(shared, sizeof shared);
  explicit_bzero(wrap, sizeof wrap);
  return done;
}

int quench_age_begin_password(const char* password, size_t password_size, int work,
                              unsigned char* header, size_t* header_size,
                              unsigned char payload_key[32]) {
  unsigned char file_key[QUENCH_AGE_FILE_KEY], salt[kSalt], wrap[32];
  if (quench_crypto_load() != NULL || !quench_random(file_key, sizeof file_key) ||
      !quench_random(salt, sizeof salt))
    return 0;
  const quench_age_key key = {password, password_size, {0}};
  char encoded[32] = {0}, stanza[128];
  quench_base64_encode(salt, sizeof salt, encoded);
  snprintf(stanza, sizeof stanza, "%s-> scrypt %s %d\n", kVersion, encoded, work);
  const int done = scrypt_wrap(&key, salt, work, wrap) &&
                   finish_header(stanza, wrap, file_key, header, header_size, payload_key);
  explicit_bzero(file_key, sizeof file_key);
  explicit_bzero(wrap, sizeof wrap);
  return done;
}

int quench_age_chunk(const unsigned char payload_key[32], uint64_t index, int last,
                     const unsigned char* text, size_t size, unsigned char* out) {
  unsigned char nonce[QUENCH_NONCE_BYTES];
  chunk_nonce(index, last, nonce);
  return quench_aead_seal(payload_key, nonce, text, size, out);
}
