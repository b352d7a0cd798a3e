#include "common/runtime/age_text.h"

#include <stdint.h>
#include <string.h>

static const char kBase64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char kBech32[] = "qpzry9x8gf2tvdw0s3jn54khce6mua7l";

enum { kGroups = 52, kChecksum = 6 }; /* of five bits: 32 bytes and four bits of nothing */

size_t quench_base64_encode(const unsigned char* data, size_t size, char* text) {
  size_t written = 0;
  uint32_t bits = 0;
  int count = 0;
  for (size_t i = 0; i < size; ++i) {
    bits = (bits << 8) | data[i];
    for (count += 8; count >= 6; count -= 6) text[written++] = kBase64[(bits >> (count - 6)) & 63u];
  }
  if (count > 0) text[written++] = kBase64[(bits << (6 - count)) & 63u];
  return written;
}

int quench_base64_decode(const char* text, size_t length, unsigned char* data, size_t size) {
  if (length != (4 * size + 2) / 3) return 0;
  uint32_t bits = 0;
  int count = 0;
  size_t written = 0;
  for (size_t i = 0; i < length; ++i) {
    const char* place = text[i] == '\0' ? NULL : strchr(kBase64, text[i]);
    if (place == NULL) return 0;
    bits = (bits << 6) | (uint32_t)(place - kBase64);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    data[written++] = (unsigned char)(bits >> count);
  }
  return written == size && (bits & ((1u << count) - 1)) == 0;
}

static uint32_t step(uint32_t state, uint32_t value) {
  static const uint32_t kGenerator[5] = {0x3b6a57b2, 0x26508e6d, 0x1ea119fa, 0x3d4233dd,
                                         0x2a1462b3};
  const uint32_t top = state >> 25;
  state = ((state & 0x1ffffff) << 5) ^ value;
  for (int i = 0; i < 5; ++i) state ^= (top >> i) & 1u ? kGenerator[i] : 0;
  return state;
}

/* Of the prefix and `count` groups. */
static uint32_t checksum(const char* prefix, const unsigned char* groups, int count) {
  uint32_t state = 1;
  for (const char* c = prefix; *c != '\0'; ++c) state = step(state, (uint32_t)*c >> 5);
  state = step(state, 0);
  for (const char* c = prefix; *c != '\0'; ++c) state = step(state, (uint32_t)*c & 31u);
  for (int i = 0; i < count; ++i) state = step(state, groups[i]);
  return state;
}

void quench_bech32_encode(const char* prefix, const unsigned char data[32], char* text) {
  unsigned char groups[kGroups + kChecksum] = {0};
  for (int i = 0; i < 256; ++i)
    groups[i / 5] |= (unsigned char)(((data[i / 8] >> (7 - i % 8)) & 1) << (4 - i % 5));
  const uint32_t sum = checksum(prefix, groups, kGroups + kChecksum) ^ 1;
  for (int i = 0; i < kChecksum; ++i)
    groups[kGroups + i] = (unsigned char)((sum >> (5 * (kChecksum - 1 - i))) & 31u);
  const size_t length = strlen(prefix);
  memcpy(text, prefix, length);
  text[length] = '1';
  for (int i = 0; i < kGroups + kChecksum; ++i) text[length + 1 + (size_t)i] = kBech32[groups[i]];
  text[length + 1 + kGroups + kChecksum] = '\0';
}

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

int quench_bech32_decode(const char* prefix, const char* text, size_t length,
                         unsigned char data[32]) {
  const size_t head = strlen(prefix) + 1;
  if (length != head + kGroups + kChecksum) return 0;
  int uppers = 0, lowers = 0;
  for (size_t i = 0; i < length; ++i) {
    uppers += text[i] >= 'A' && text[i] <= 'Z';
    lowers += text[i] >= 'a' && text[i] <= 'z';
    if (i + 1 < head && lower(text[i]) != prefix[i]) return 0;
  }
  if ((uppers != 0 && lowers != 0) || text[head - 1] != '1') return 0;
  unsigned char groups[kGroups + kChecksum];
  for (size_t i = 0; i < kGroups + kChecksum; ++i) {
    const char c = lower(text[head + i]);
    const char* place = c == '\0' ? NULL : strchr(kBech32, c);
    if (place == NULL) return 0;
    groups[i] = (unsigned char)(place - kBech32);
  }
  if (checksum(prefix, groups, kGroups + kChecksum) != 1 || (groups[kGroups - 1] & 15u) != 0)
    return 0;
  memset(data, 0, 32);
  for (int i = 0; i < 256; ++i)
    data[i / 8] |= (unsigned char)(((groups[i / 5] >> (4 - i % 5)) & 1) << (7 - i % 8));
  return 1;
}
