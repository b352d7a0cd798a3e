/* Base64 without padding (RFC 4648) and Bech32 (BIP 173), as age files and keys use them. */
#ifndef QUENCH_COMMON_RUNTIME_AGE_TEXT_H_
#define QUENCH_COMMON_RUNTIME_AGE_TEXT_H_

#include <stddef.h>

/* Writes (4 * size + 2) / 3 characters and returns how many. */
size_t quench_base64_encode(const unsigned char* data, size_t size, char* text);
/* Exactly `size` bytes from exactly `length` characters; 0 where they are others, or not canonical
 * (bits of the last character that no byte has are set). */
int quench_base64_decode(const char* text, size_t length, unsigned char* data, size_t size);

/* 32 bytes behind `prefix` (lower case) and `1`, with a checksum; with its end. */
void quench_bech32_encode(const char* prefix, const unsigned char data[32], char* text);
/* All upper or all lower case. 1 on success. */
int quench_bech32_decode(const char* prefix, const char* text, size_t length,
                         unsigned char data[32]);

#endif /* QUENCH_COMMON_RUNTIME_AGE_TEXT_H_ */
