// The weights that device code reads, as ranges of the library's weights.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "services/codegen/plan/program.h"

namespace quench::codegen {

struct WeightRange {
  uint64_t offset = 0, bytes = 0, device_offset = 0;
};

class WeightRanges {
 public:
  // `offsets`: where each weight entry begins in the weight section, and where the last one ends.
  WeightRanges(const Program& program, const std::vector<uint64_t>& offsets);
  // Where an entry begins in the GPU's memory of weights.
  uint64_t PlaceOf(int entry) const { return places_.at(entry); }
  const std::vector<WeightRange>& ranges() const { return ranges_; }
  uint64_t bytes() const { return bytes_; }

 private:
  std::vector<WeightRange> ranges_;
  std::map<int, uint64_t> places_;
  uint64_t bytes_ = 0;
};

}  // namespace quench::codegen
