// CRC-32C (Castagnoli), the checksum of checkpoints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace quench::importer {

// Extends `crc`, the checksum of the preceding bytes, by `bytes`; begin with 0.
uint32_t ExtendCrc32c(uint32_t crc, std::span<const std::byte> bytes);

// The form in which LevelDB and TensorFlow store a checksum, rotated by 15 bits plus a constant, so that
// checksums of bytes that contain checksums stay useful.
constexpr uint32_t MaskedCrc32c(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8U; }

}  // namespace quench::importer
