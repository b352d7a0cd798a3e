// Threads that have read and written each byte, to find accesses whose order no barrier says.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

namespace quench::emulated {

enum class Access : uint8_t { kRead, kWrite, kAtomic };

// Shared memory of one block. Two threads that access a byte, at least one of them to write, need a
// barrier between them; two atomic accesses do not.
class SharedShadow {
 public:
  struct Race {
    uint32_t byte;    // from the begin of shared memory
    uint32_t thread;  // the other one
    bool written;     // by the other one, which has else read it
  };

  // A new block, of which nothing has been accessed.
  void Begin(uint32_t bytes);
  void Barrier() { ++epoch_; }
  // Bytes `first` to first + count - 1, within those of Begin.
  std::optional<Race> Note(uint32_t first, uint32_t count, uint32_t thread, Access access);

 private:
  // Counts only if its epoch is that of the shadow.
  struct Mark {
    uint64_t epoch = 0;
    uint32_t thread = 0;
  };
  struct Byte {
    Mark written, read;
    bool atomic = false;        // the last write was
    bool several = false;       // threads have read it: `read` is one of them
    uint32_t other_reader = 0;  // another one of them
  };

  uint64_t epoch_ = 0;  // barriers and blocks so far
  std::vector<Byte> bytes_;
};

// Global memory of one launch: which thread has written which value to a byte. Threads that write
// different values to it need a barrier of their block between them.
class GlobalShadow {
 public:
  struct Writer {
    uint32_t block = 0, thread = 0;
    uint32_t barriers = 0;  // of its block, before the write
  };
  struct Race {
    uint64_t address;
    Writer other;
  };

  // The bytes there have just been written.
  std::optional<Race> Note(uint64_t address, uint64_t bytes, const Writer& writer);

 private:
  static constexpr uint64_t kLine = 64;
  struct Line {
    uint64_t written = 0;  // a bit for each byte
    Writer writers[kLine];
    uint8_t values[kLine];
  };
  std::unordered_map<uint64_t, Line> lines_;
};

}  // namespace quench::emulated
