// Parts that transforms share: the request that they answer, and its result.
#pragma once

#include <absl/status/statusor.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>

#include "common/base/status.h"
#include "common/ir/tensor.h"
#include "services/codegen/kernels/kernel.h"

namespace quench::codegen {

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Parameters and sources of one request.
class Request {
 public:
  Request(const PackSpec& spec, std::span<const Tensor* const> sources)
      : spec_(spec), sources_(sources) {}

  int64_t Param(const char* name, int64_t fallback = 0) const {
    const auto found = spec_.params.find(name);
    return found == spec_.params.end() ? fallback : found->second;
  }
  float Scale() const {
    const auto found = spec_.params.find("scale");
    return found == spec_.params.end() ? 1.0F
                                       : std::bit_cast<float>(static_cast<uint32_t>(found->second));
  }
  const Tensor& source() const { return *sources_[0]; }
  const Tensor* second() const { return sources_.size() > 1 ? sources_[1] : nullptr; }
  std::span<const int8_t> bytes() const { return source().as<int8_t>(); }
  std::span<const float> floats() const { return source().as<float>(); }
  // The source's type where it is one of those that kernels read as f32, else f32.
  DataType FloatType() const {
    return IsHalf(source().dtype()) ? source().dtype() : DataType::kF32;
  }
  // The source's type where it has 16 bits.
  DataType HalfType() const { return IsHalf(source().dtype()) ? source().dtype() : DataType::kF16; }
  int64_t dim(int i) const { return source().dims()[static_cast<size_t>(i)]; }

  absl::Status CheckSource(int min_rank, int max_rank, DataType dtype = DataType::kF32) const {
    if (sources_.size() == 1 && source().dtype() == dtype && source().rank() >= min_rank &&
        source().rank() <= max_rank) {
      return absl::OkStatus();
    }
    return Internal("pack `{}`: takes one {} source of rank {} to {}", spec_.transform,
                    DataTypeName(dtype), min_rank, max_rank);
  }
  absl::Status CheckPositive(std::initializer_list<const char*> names) const {
    for (const char* name : names) {
      if (Param(name) < 1)
        return Internal("pack `{}`: parameter `{}` is {}, takes 1 or more", spec_.transform, name,
                        Param(name));
    }
    return absl::OkStatus();
  }
  // Vectors that hold n columns, and those of padding.
  absl::StatusOr<int64_t> Vectors(int64_t n, int64_t lanes) const {
    const int64_t vectors = Param("all", CeilDiv(n, lanes));
    if (vectors * lanes >= n) return vectors;
    return Internal("pack `{}`: {} vectors do not hold {} columns", spec_.transform, vectors, n);
  }
  const std::string& transform() const { return spec_.transform; }

 private:
  const PackSpec& spec_;
  std::span<const Tensor* const> sources_;
};

// The result of a transform: its size, and a function that writes it.
struct Packed {
  int64_t bytes = 0;
  std::function<void(std::byte*)> write;
};

// Written over zeros.
inline Packed Filled(int64_t bytes, std::function<void(std::byte*)> write) {
  return {bytes, [bytes, write = std::move(write)](std::byte* out) {
            std::memset(out, 0, static_cast<size_t>(bytes));
            write(out);
          }};
}

inline Packed Floats(int64_t count, std::function<void(std::span<float>)> write) {
  return Filled(count * 4, [count, write = std::move(write)](std::byte* out) {
    write({reinterpret_cast<float*>(out), static_cast<size_t>(count)});
  });
}

// `count` elements of the source's type, f32 or two bytes each, over zeros; place(put) calls put(to,
// from) for each that is taken over as it is.
template <typename Place>
Packed Moved(const Request& request, int64_t count, const Place& place) {
  const auto fill = [place]<typename Element>(std::span<const Element> from, std::byte* out) {
    place([from, to = reinterpret_cast<Element*>(out)](size_t target, size_t source) {
      to[target] = from[source];
    });
  };
  const Tensor& source = request.source();
  if (IsHalf(source.dtype())) {
    return Filled(count * 2,
                  [fill, values = source.as<uint16_t>()](std::byte* out) { fill(values, out); });
  }
  return Filled(count * 4,
                [fill, values = source.as<float>()](std::byte* out) { fill(values, out); });
}

#define QUENCH_PACK(name, Function) absl::StatusOr<Packed> Function(const Request& request);
#include "services/codegen/packs/packs.def"
#undef QUENCH_PACK

}  // namespace quench::codegen
