// CRC-32C (Castagnoli), the checksum of checkpoints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace quench::importer {

// The checksum of what `crc` is the checksum of, followed by `bytes`; begin with 0.
uint32_t ExtendCrc32c(uint32_t crc, std::span<const std::byte> bytes);

// As LevelDB and TensorFlow store it, so that the checksum of bytes that hold checksums stays a good one:
// rotated by 15 bits, plus a constant.
constexpr uint32_t MaskedCrc32c(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8U; }

}  // namespace quench::importer
