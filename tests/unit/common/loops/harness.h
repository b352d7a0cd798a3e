// Arrays to run loops on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "common/loops/builder.h"
#include "common/loops/interpreter.h"

namespace quench::loops {

// A dense row-major array of C++ values (storage representation: uint16_t for f16, uint8_t for
// bool).
template <typename T>
struct Array {
  std::vector<int64_t> dims;
  std::vector<T> data;

  explicit Array(std::vector<int64_t> sizes, T fill = T{}) : dims(std::move(sizes)) {
    int64_t count = 1;
    for (const int64_t dim : dims) count *= dim;
    data.assign(static_cast<size_t>(count), fill);
  }
  BufferView view() { return {reinterpret_cast<std::byte*>(data.data()), dims}; }
};

inline absl::Status RunFunction(const Function& function, std::vector<BufferView> views,
                                std::vector<int64_t> slots = {}, bool lanes = true) {
  return Interpret(function, views, slots, {}, {lanes});
}

template <typename T>
void FillRandom(Array<T>& array, uint32_t seed, double lo, double hi) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> value(lo, hi);
  for (T& element : array.data) element = static_cast<T>(value(random));
}

}  // namespace quench::loops
