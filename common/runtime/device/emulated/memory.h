// Memory of the emulated devices: allocations, each with inaccessible pages around it, in one range
// of addresses that holds nothing else.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>

namespace quench::emulated {

constexpr int kPoison = 0xA5;  // what memory holds that nothing was written to

// Ends of memory are so aligned against the inaccessible page behind them.
constexpr uint64_t kEndAlignment = 16;

inline uint64_t RoundUp(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Addresses from begin to before end.
struct Span {
  uint64_t begin = 0, end = 0;
  bool Holds(uint64_t address, uint64_t bytes) const {
    return address >= begin && address <= end && bytes <= end - address;
  }
};

struct Allocation {
  Span span;
  int device = 0;
};

class Memory {
 public:
  // Takes the range of addresses; false if the system does not give it. Later calls do nothing.
  bool Reserve();
  // `bytes`, at least 1, of `device`: aligned to 256 bytes and filled with kPoison. Returns 0 if
  // there are no addresses or no memory for it.
  uint64_t Allocate(uint64_t bytes, int device);
  // False if no allocation begins there.
  bool Free(uint64_t address);
  // Frees all of a device; returns the bytes of them.
  uint64_t FreeAll(int device);
  // The allocation that holds all of these bytes, or nullptr.
  const Allocation* Find(uint64_t address, uint64_t bytes) const;
  // "at 16 bytes past the end of an allocation of 1024 bytes": where bytes are that Find does not
  // find, or "" if this is no address of a device.
  std::string Describe(uint64_t address) const;
  uint64_t live_bytes() const { return live_bytes_; }

 private:
  // Pages of an allocation and the inaccessible one behind them; before them is that of another
  // region, or the first of the range.
  struct Region {
    Span span;
    Allocation allocation;
  };
  using Regions = std::map<uint64_t, Region>;  // by their first address

  uint64_t FindGap(uint64_t bytes) const;
  Regions::const_iterator RegionBefore(uint64_t address) const;
  Regions::iterator Release(Regions::iterator region);

  uint64_t page_ = 0;
  Span range_;
  uint64_t cursor_ = 0;  // new regions are behind the last one: addresses come back late
  Regions regions_;
  std::deque<Span> freed_;  // of late, the latest first
  uint64_t live_bytes_ = 0;
};

}  // namespace quench::emulated
