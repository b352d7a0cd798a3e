// The readers of age files and identities, on any bytes: as a whole file, as the payload of a good
// header, and as a key's text.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <vector>

#include "common/runtime/age.h"
#include "common/runtime/crypto.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr unsigned char kSecret[32] = {9, 8, 7, 6, 5, 4, 3, 2, 1};

// Opens, and decrypts what opens.
quench_age_result Read(const std::vector<unsigned char>& bytes) {
  quench_age_key key = {nullptr, 0, {}};
  std::memcpy(key.secret, kSecret, sizeof kSecret);
  quench_age_file file;
  quench_age_result result = quench_age_open(bytes.data(), bytes.size(), &key, &file);
  if (result != QUENCH_AGE_OK) return result;
  if (file.text_size > bytes.size()) std::abort();
  std::vector<unsigned char> text(file.text_size + 1);
  return quench_age_read(&file, text.data());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (const char* reason = quench_crypto_load()) {
    std::cerr << reason << "\n";
    std::abort();
  }
  const std::vector<unsigned char> bytes(data, data + size);
  quench_age_summary summary;
  const bool summarised = quench_age_summarise(data, size, &summary) == QUENCH_AGE_OK;
  if (Read(bytes) == QUENCH_AGE_OK && !summarised) {
    std::cerr << "a file opens whose header cannot be read\n";
    std::abort();
  }
  unsigned char recipient[32];
  std::vector<unsigned char> file(QUENCH_AGE_HEADER_BYTES);
  size_t header = 0;
  unsigned char payload_key[32];
  if (quench_x25519_public(kSecret, recipient) == 0 ||
      quench_age_begin(recipient, file.data(), &header, payload_key) == 0) {
    std::abort();
  }
  file.resize(header);
  file.insert(file.end(), bytes.begin(), bytes.end());
  if (Read(file) == QUENCH_AGE_OK) {  // nobody guesses a tag of 128 bits
    std::cerr << "a payload opens that nobody sealed\n";
    std::abort();
  }
  unsigned char secret[32];
  quench_age_parse_identity(reinterpret_cast<const char*>(data), size, secret);
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (quench_age_parse_recipient(text.c_str(), recipient) != 0) {
    char printed[QUENCH_AGE_RECIPIENT_TEXT];
    quench_age_recipient_text(recipient, printed);
    unsigned char again[32];
    if (quench_age_parse_recipient(printed, again) == 0 || std::memcmp(recipient, again, 32) != 0)
      std::abort();
  }
  return 0;
}
