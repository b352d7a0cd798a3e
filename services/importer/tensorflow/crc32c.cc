#include "services/importer/tensorflow/crc32c.h"

#include <array>
#include <cstring>

namespace quench::importer {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // 0x1edc6f41, lowest bit first

// tables[k][b]: the checksum of byte b with k zero bytes behind it, so that eight bytes are eight
// look-ups that do not wait for each other ("slicing by 8").
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables MakeTables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < tables.size(); ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

}  // namespace

uint32_t ExtendCrc32c(uint32_t crc, std::span<const std::byte> bytes) {
  crc = ~crc;
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
    uint64_t eight;
    std::memcpy(&eight, bytes.data(), sizeof eight);
    eight ^= crc;
    crc = 0;
    for (size_t i = 0; i < 8; ++i) crc ^= kTables[7 - i][(eight >> (8 * i)) & 0xff];
  }
  for (const std::byte byte : bytes)
    crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<uint32_t>(byte)) & 0xff];
  return ~crc;
}

}  // namespace quench::importer
