#include "common/runtime/device/emulated/shadow.h"

#include <bit>

namespace quench::emulated {

void SharedShadow::Begin(uint32_t bytes) {
  ++epoch_;
  if (bytes_.size() < bytes) bytes_.resize(bytes);
}

std::optional<SharedShadow::Race> SharedShadow::Note(uint32_t first, uint32_t count,
                                                     uint32_t thread, Access access) {
  for (uint32_t i = first; i < first + count; ++i) {
    Byte& byte = bytes_[i];
    const bool written = byte.written.epoch == epoch_;
    const bool read = byte.read.epoch == epoch_;
    const bool both_atomic = access == Access::kAtomic && byte.atomic;
    if (written && byte.written.thread != thread && !both_atomic) {
      return Race{i, byte.written.thread, true};
    }
    if (access == Access::kRead) {
      if (!read) {
        byte.read = {epoch_, thread};
        byte.several = false;
      } else if (byte.read.thread != thread) {
        byte.several = true;
        byte.other_reader = thread;
      }
      continue;
    }
    if (read && byte.read.thread != thread) return Race{i, byte.read.thread, false};
    if (read && byte.several) return Race{i, byte.other_reader, false};
    byte.written = {epoch_, thread};
    byte.atomic = access == Access::kAtomic;
  }
  return std::nullopt;
}

std::optional<GlobalShadow::Race> GlobalShadow::Note(uint64_t address, uint64_t bytes,
                                                     const Writer& writer) {
  for (uint64_t at = address; at < address + bytes; ++at) {
    Line& line = lines_[at / kLine];
    const uint64_t index = at % kLine, bit = uint64_t{1} << index;
    const uint8_t value = *std::bit_cast<const uint8_t*>(at);
    const Writer& other = line.writers[index];
    const bool same = other.block == writer.block && other.thread == writer.thread;
    const bool ordered = other.block == writer.block && other.barriers != writer.barriers;
    if ((line.written & bit) != 0 && !same && !ordered && line.values[index] != value) {
      return Race{at, other};
    }
    line.written |= bit;
    line.writers[index] = writer;
    line.values[index] = value;
  }
  return std::nullopt;
}

}  // namespace quench::emulated
