#include "services/codegen/kernels/pack.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <optional>
#include <vector>

#include "common/base/status.h"
#include "common/ops/byte_weights.h"
#include "services/codegen/forms/picked_pairs.h"
#include "services/codegen/forms/register_tile.h"
#include "services/codegen/kernels/winograd_panels.h"

namespace quench::codegen {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

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
  const std::string& transform() const { return spec_.transform; }

 private:
  const PackSpec& spec_;
  std::span<const Tensor* const> sources_;
};

using FloatWriter = std::function<void(std::span<float>)>;

// The result of a transform: its size, and a function that writes it.
struct Packed {
  int64_t bytes = 0;
  std::function<void(std::byte*)> write;
};

// Over zeros.
Packed Filled(int64_t bytes, std::function<void(std::byte*)> write) {
  return {bytes, [bytes, write = std::move(write)](std::byte* out) {
            std::memset(out, 0, static_cast<size_t>(bytes));
            write(out);
          }};
}

Packed Floats(int64_t count, FloatWriter write) {
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

absl::StatusOr<Packed> PackChannels(const Request& request) {
  const bool integers = request.source().dtype() == DataType::kI32;
  const DataType type = request.source().dtype();
  QUENCH_RETURN_IF_ERROR(request.CheckSource(0, 64, integers ? type : request.FloatType()));
  QUENCH_RETURN_IF_ERROR(request.CheckPositive({"channels", "padded"}));
  const int64_t channels = request.Param("channels");
  const int64_t padded = request.Param("padded");
  const int64_t size = request.source().size();
  if ((size != 1 && size != channels) || padded < channels) {
    return Internal("pack `channels`: {} elements do not give {} channels in {}", size, channels,
                    padded);
  }
  if (integers) {
    return Filled(padded * 4, [=, source = request.source().as<int32_t>()](std::byte* out) {
      for (int64_t i = 0; i < channels; ++i)
        reinterpret_cast<int32_t*>(out)[i] = source[static_cast<size_t>(size == 1 ? 0 : i)];
    });
  }
  const float scale = request.Scale();
  return Floats(padded, [=, &source = request.source()](std::span<float> out) {
    for (int64_t i = 0; i < channels; ++i) {
      out[static_cast<size_t>(i)] = static_cast<float>(source.FloatAt(size == 1 ? 0 : i)) * scale;
    }
  });
}

// Panels of a convolution's weights: `unit` channels lie side by side innermost, and `block` counts
// units; the units `again` follow in each panel once more. Calls place(element, target element) for
// each weight, and again(element, target element) for those; the number of target elements.
template <typename Place, typename Again = std::nullptr_t>
absl::StatusOr<int64_t> ConvPanels(const Request& request, int64_t unit, const Place& place,
                                   std::span<const ops::WeightWord> twice = {},
                                   const Again& again = nullptr) {
  constexpr bool kSizeOnly = std::is_same_v<Place, std::nullptr_t>;
  QUENCH_RETURN_IF_ERROR(request.CheckPositive({"groups", "merged", "lanes", "block", "vectors"}));
  const int64_t groups = request.Param("groups"), merged = request.Param("merged");
  const int64_t lanes = request.Param("lanes"), block = request.Param("block");
  const int64_t ic = request.dim(1), oc = request.dim(0) / groups;  // of one original group
  const int64_t taps =
      request.source().rank() == 4 ? request.dim(2) * request.dim(3) : request.dim(2);
  const int64_t blocks = CeilDiv(ic * merged, block * unit), vectors = CeilDiv(oc * merged, lanes);
  const int64_t all = groups / merged;
  if (groups % merged != 0 || request.dim(0) % groups != 0)
    return Internal("pack `{}`: groups do not divide", request.transform());
  const PanelSplit panels = SplitIntoPanels(vectors, request.Param("vectors"));
  size_t at = 0;
  const auto vector = [&](int64_t g, int64_t p, int64_t word, int64_t tap, const auto& put) {
    for (int64_t o = panels.Start(p) * lanes; o < panels.Start(p + 1) * lanes; ++o) {
      for (int64_t c = word * unit; c < (word + 1) * unit; ++c, ++at) {
        const bool zero = o >= oc * merged || c >= ic * merged || o / oc != c / ic;
        if (!zero) put(static_cast<size_t>(((g * merged * oc + o) * ic + c % ic) * taps + tap), at);
      }
    }
  };
  if constexpr (!kSizeOnly) {
    for (int64_t g = 0; g < all; ++g) {
      for (int64_t p = 0; p < panels.parts(); ++p) {
        for (int64_t b = 0; b < blocks; ++b) {
          for (int64_t tap = 0; tap < taps; ++tap) {
            for (int64_t word = b * block; word < (b + 1) * block; ++word)
              vector(g, p, word, tap, place);
          }
        }
        if constexpr (!std::is_same_v<Again, std::nullptr_t>) {
          for (const ops::WeightWord& word : twice) vector(g, p, word.word, word.tap, again);
        }
      }
    }
  }
  return all * vectors * (blocks * taps * block + static_cast<int64_t>(twice.size())) * lanes *
         unit;
}

absl::StatusOr<Packed> PackConvPanels(const Request& request) {
  QUENCH_RETURN_IF_ERROR(request.CheckSource(3, 4, request.FloatType()));
  QUENCH_ASSIGN_OR_RETURN(const int64_t size, ConvPanels(request, 1, nullptr));
  return Moved(request, size, [request](const auto& put) {
    ConvPanels(request, 1, [&](size_t from, size_t to) { put(to, from); }).IgnoreError();
  });
}

absl::StatusOr<Packed> PackConvPanelsPairs(const Request& request) {
  QUENCH_RETURN_IF_ERROR(request.CheckSource(3, 4, request.HalfType()));
  QUENCH_ASSIGN_OR_RETURN(const int64_t size, ConvPanels(request, 2, nullptr));
  return Moved(request, size, [request](const auto& put) {
    ConvPanels(request, 2, [&](size_t from, size_t to) { put(to, from); }).IgnoreError();
  });
}

absl::StatusOr<Packed> PackConvPanelsBytes(const Request& request) {
  const DataType type = request.source().dtype();
  const int64_t zero = request.Param("zero");
  if (type == DataType::kI8 && zero == 0) {
    QUENCH_RETURN_IF_ERROR(request.CheckSource(3, 4, type));
    QUENCH_ASSIGN_OR_RETURN(const int64_t size, ConvPanels(request, 4, nullptr));
    return Filled(size, [request, source = request.bytes()](std::byte* out) {
      ConvPanels(request, 4, [&](size_t from, size_t to) {
        out[to] = static_cast<std::byte>(source[from]);
      }).IgnoreError();
    });
  }
  QUENCH_RETURN_IF_ERROR(
      request.CheckSource(3, 4, type == DataType::kU8 ? DataType::kU8 : DataType::kI8));
  const std::optional<std::vector<ops::WeightWord>> twice =
      ops::WordsOfTwoParts(request.source(), zero);
  if (!twice || (!twice->empty() && request.Param("groups") != 1))
    return Internal("pack `{}`: weights do not fit two bytes", request.transform());
  QUENCH_ASSIGN_OR_RETURN(const int64_t size, ConvPanels(request, 4, nullptr, *twice));
  return Filled(size, [=, &source = request.source(), twice = *twice](std::byte* out) {
    const auto weight = [&](size_t i) { return source.IntAt(static_cast<int64_t>(i)) - zero; };
    const auto near = [&](size_t from, size_t to) {
      out[to] = static_cast<std::byte>(ops::NearPart(weight(from)));
    };
    const auto rest = [&](size_t from, size_t to) {
      out[to] = static_cast<std::byte>(weight(from) - ops::NearPart(weight(from)));
    };
    ConvPanels(request, 4, near, twice, rest).IgnoreError();
  });
}

constexpr int64_t kUnit = 4;  // bytes of a word

// Panels of a product's weights, [k, n] of i8: calls place(element, target element) for each; the number
// of target elements.
template <typename Place>
int64_t GemmPanelsBytes(const Request& request, const Place& place) {
  const int64_t k = request.dim(0), n = request.dim(1), lanes = request.Param("lanes", 1);
  const int64_t vectors = CeilDiv(n, lanes);
  const PanelSplit panels = SplitIntoPanels(vectors, request.Param("vectors"));
  if constexpr (!std::is_same_v<Place, std::nullptr_t>) {
    size_t at = 0;
    for (int64_t p = 0; p < panels.parts(); ++p) {
      for (int64_t word = 0; word < k; word += kUnit) {
        for (int64_t column = panels.Start(p) * lanes; column < panels.Start(p + 1) * lanes;
             ++column) {
          for (int64_t row = word; row < word + kUnit; ++row, ++at) {
            if (column < n && row < k) place(static_cast<size_t>(row * n + column), at);
          }
        }
      }
    }
  }
  return vectors * lanes * CeilDiv(k, kUnit) * kUnit;
}

absl::StatusOr<Packed> PackGemmPanelsBytes(const Request& request) {
  QUENCH_RETURN_IF_ERROR(request.CheckSource(2, 2, DataType::kI8));
  QUENCH_RETURN_IF_ERROR(request.CheckPositive({"lanes", "vectors"}));
  return Filled(GemmPanelsBytes(request, nullptr),
                [request, source = request.bytes()](std::byte* out) {
                  GemmPanelsBytes(request, [&](size_t from, size_t to) {
                    out[to] = static_cast<std::byte>(source[from]);
                  });
                });
}

Packed Picked(const PickedPanels& panels, std::span<const int16_t> weights) {
  std::vector<std::byte> bytes = PackPickedPairs(panels, weights);
  const auto size = static_cast<int64_t>(bytes.size());
  return {size, [bytes = std::move(bytes)](std::byte* out) {
            std::memcpy(out, bytes.data(), bytes.size());
          }};
}

absl::StatusOr<Packed> PackGemmPanelsPicked(const Request& request) {
  QUENCH_RETURN_IF_ERROR(request.CheckSource(2, 2, DataType::kI8));
  QUENCH_RETURN_IF_ERROR(request.CheckPositive({"lanes", "vectors", "most"}));
  std::vector<int16_t> weights(static_cast<size_t>(GemmPanelsBytes(request, nullptr)));
  GemmPanelsBytes(request, [&](size_t from, size_t to) {
    weights[to] = static_cast<int16_t>(request.source().IntAt(static_cast<int64_t>(from)));
  });
  PickedPanels panels;
  panels.lanes = request.Param("lanes");
  panels.split = SplitIntoPanels(CeilDiv(request.dim(1), panels.lanes), request.Param("vectors"));
  panels.run = request.dim(0) / kUnit;
  panels.most = request.Param("most");
  panels.rest = request.dim(0) % kUnit;
  return Picked(panels, weights);
}

absl::StatusOr<Packed> PackConvPanelsPicked(const Request& request) {
  const DataType type = request.source().dtype();
  QUENCH_RETURN_IF_ERROR(
      request.CheckSource(3, 4, type == DataType::kU8 ? DataType::kU8 : DataType::kI8));
  QUENCH_RETURN_IF_ERROR(request.CheckPositive({"run", "most"}));
  QUENCH_ASSIGN_OR_RETURN(const int64_t size, ConvPanels(request, kUnit, nullptr));
  std::vector<int16_t> weights(static_cast<size_t>(size));
  const auto centre = [&,
                       zero = request.Param("zero")]<typename Byte>(std::span<const Byte> source) {
    ConvPanels(request, kUnit, [&](size_t from, size_t to) {
      weights[to] = static_cast<int16_t>(source[from] - zero);
    }).IgnoreError();
  };
  type == DataType::kU8 ? centre(request.source().as<uint8_t>()) : centre(request.bytes());
  PickedPanels panels;
  panels.groups = request.Param("groups") / request.Param("merged");
  panels.lanes = request.Param("lanes");
  const int64_t channels = request.dim(0) / panels.groups;
  panels.split = SplitIntoPanels(CeilDiv(channels, panels.lanes), request.Param("vectors"));
  const int64_t words =
      size / (CeilDiv(channels, panels.lanes) * panels.groups * panels.lanes * kUnit);
  panels.run = request.Param("run");
  panels.rows = words / panels.run;
  panels.most = request.Param("most");
  return Picked(panels, weights);
}

absl::StatusOr<Packed> PackByteSums(const Request& request) {
  QUENCH_RETURN_IF_ERROR(request.CheckPositive({"channels", "padded"}));
  const int64_t axis = request.Param("axis"), channels = request.Param("channels");
  const Tensor& weights = request.source();
  const Tensor* bias = request.second();
  const bool is_signed = weights.dtype() == DataType::kI8;
  if ((!is_signed && weights.dtype() != DataType::kU8) || axis < 0 || axis >= weights.rank() ||
      request.dim(static_cast<int>(axis)) != channels || request.Param("padded") < channels ||
      (bias != nullptr &&
       (bias->dtype() != DataType::kI32 || (bias->size() != 1 && bias->size() != channels)))) {
    return Internal("pack `byte_sums`: sources do not give {} channels", channels);
  }
  size_t inner = 1;
  for (int i = static_cast<int>(axis) + 1; i < weights.rank(); ++i)
    inner *= static_cast<size_t>(request.dim(i));
  const auto factor = static_cast<uint32_t>(request.Param("factor"));
  const auto zero = static_cast<int32_t>(request.Param("zero"));
  return Filled(request.Param("padded") * 4, [=, values = request.bytes()](std::byte* out) {
    auto* sums = reinterpret_cast<uint32_t*>(out);  // wraps
    for (size_t i = 0; i < values.size(); ++i) {
      const int32_t weight = is_signed ? values[i] : static_cast<uint8_t>(values[i]);
      sums[i / inner % static_cast<size_t>(channels)] +=
          factor * static_cast<uint32_t>(weight - zero);
    }
    for (int64_t c = 0; bias != nullptr && c < channels; ++c)
      sums[c] += static_cast<uint32_t>(bias->IntAt(bias->size() == 1 ? 0 : c));
  });
}

// The panels of a product: of `unit` rows side by side, a word.
absl::StatusOr<Packed> GemmPanels(const Request& request, int64_t unit) {
  QUENCH_RETURN_IF_ERROR(request.CheckPositive({"lanes", "vectors"}));
  const bool transposed = request.Param("transposed") != 0;
  const int rank = request.source().rank();
  const int64_t k = request.dim(rank - (transposed ? 1 : 2)),
                n = request.dim(rank - (transposed ? 2 : 1));
  const int64_t lanes = request.Param("lanes");
  const int64_t batch = k * n == 0 ? 0 : request.source().size() / (k * n);
  const int64_t vectors = CeilDiv(n, lanes), words = CeilDiv(k, unit);
  const PanelSplit panels = SplitIntoPanels(vectors, request.Param("vectors"));
  const auto each = [=](const auto& visit) {  // visit(target, source) for every weight
    size_t at = 0;
    for (int64_t matrix = 0; matrix < batch; ++matrix) {
      for (int64_t p = 0; p < panels.parts(); ++p) {
        for (int64_t word = 0; word < words; ++word) {
          for (int64_t column = panels.Start(p) * lanes; column < panels.Start(p + 1) * lanes;
               ++column) {
            for (int64_t row = word * unit; row < (word + 1) * unit; ++row, ++at) {
              if (column >= n || row >= k) continue;
              const int64_t from = transposed ? column * k + row : row * n + column;
              visit(at, static_cast<size_t>(matrix * k * n + from));
            }
          }
        }
      }
    }
  };
  const int64_t count = batch * vectors * lanes * words * unit;
  const float scale = request.Scale();
  if (scale == 1) return Moved(request, count, each);
  return Floats(count, [=, &source = request.source()](std::span<float> out) {
    each([&](size_t to, size_t from) {
      out[to] = static_cast<float>(source.FloatAt(static_cast<int64_t>(from))) * scale;
    });
  });
}

absl::StatusOr<Packed> PackGemmPanels(const Request& request) {
  QUENCH_RETURN_IF_ERROR(request.CheckSource(2, 64, request.FloatType()));
  return GemmPanels(request, 1);
}

absl::StatusOr<Packed> PackGemmPanelsPairs(const Request& request) {
  QUENCH_RETURN_IF_ERROR(request.CheckSource(2, 64, request.HalfType()));
  return GemmPanels(request, 2);
}

// Calls visit(column) for the columns of a panel after another, beyond the last one too.
template <typename Visit>
void ForPanelColumns(const PanelSplit& panels, int64_t p, int64_t lanes, const Visit& visit) {
  for (int64_t column = panels.Start(p) * lanes; column < panels.Start(p + 1) * lanes; ++column)
    visit(column);
}

absl::StatusOr<Packed> PackGemmPanelsStored(const Request& request) {
  const DataType type = request.source().dtype();
  QUENCH_RETURN_IF_ERROR(request.CheckSource(2, 2, type));
  QUENCH_RETURN_IF_ERROR(request.CheckPositive({"lanes", "vectors", "block"}));
  const bool bytes = type == DataType::kI8 || type == DataType::kU8;
  if (!bytes && type != DataType::kI4 && type != DataType::kU4)
    return Internal("pack `gemm_panels_stored`: takes no {}", DataTypeName(type));
  const int64_t k = request.dim(0), n = request.dim(1), lanes = request.Param("lanes");
  const int64_t block = request.Param("block"), together = bytes ? 1 : 8;
  const int64_t moved = type == DataType::kU8 ? -128 : (type == DataType::kI4 ? 8 : 0);
  const int64_t vectors = CeilDiv(n, lanes), width = bytes ? 1 : 4;
  const PanelSplit panels = SplitIntoPanels(vectors, request.Param("vectors"));
  const int64_t parts = k / block * CeilDiv(block, together) + CeilDiv(k % block, together);
  const int64_t size = vectors * lanes * parts * width;
  return Filled(size, [=, &source = request.source()](std::byte* out) {
    for (int64_t p = 0; p < panels.parts(); ++p) {
      for (int64_t first = 0, end = 0; first < k; first = end) {
        end = std::min({k, first + together, (first / block + 1) * block});
        ForPanelColumns(panels, p, lanes, [&](int64_t column) {
          uint64_t word = 0;
          for (int64_t row = first; row < end && column < n; ++row) {
            const auto value = static_cast<uint64_t>(source.IntAt(row * n + column) + moved);
            word |= (value & (bytes ? 255 : 15)) << ((row - first) * 4);
          }
          for (int64_t byte = 0; byte < width; ++byte)
            *out++ = static_cast<std::byte>(word >> (8 * byte));
        });
      }
    }
  });
}

// value(element) for each scale.
absl::StatusOr<Packed> PackScales(const Request& request, std::function<float(int64_t)> value) {
  QUENCH_RETURN_IF_ERROR(request.CheckPositive({"lanes", "vectors"}));
  const int64_t blocks = request.dim(0), n = request.dim(1), lanes = request.Param("lanes");
  const int64_t vectors = CeilDiv(n, lanes);
  const PanelSplit panels = SplitIntoPanels(vectors, request.Param("vectors"));
  return Floats(vectors * lanes * blocks, [=, value = std::move(value)](std::span<float> out) {
    size_t at = 0;
    for (int64_t p = 0; p < panels.parts(); ++p) {
      for (int64_t block = 0; block < blocks; ++block) {
        ForPanelColumns(panels, p, lanes, [&](int64_t column) {
          if (column < n) out[at] = value(block * n + column);
          ++at;
        });
      }
    }
  });
}

absl::StatusOr<Packed> PackGemmScales(const Request& request) {
  QUENCH_RETURN_IF_ERROR(request.CheckSource(2, 2));
  return PackScales(
      request, [scales = request.floats()](int64_t i) { return scales[static_cast<size_t>(i)]; });
}

absl::StatusOr<Packed> PackGemmZeros(const Request& request) {
  const Tensor* zero = request.second();
  if (request.source().dtype() != DataType::kF32 || request.source().rank() != 2 ||
      (zero != nullptr && zero->dims() != request.source().dims())) {
    return Internal("pack `gemm_zeros`: takes f32 scales of rank 2, and zero points like them");
  }
  const int64_t shift = request.Param("shift");
  return PackScales(request, [=](int64_t i) {
    return static_cast<float>((zero == nullptr ? 0 : zero->IntAt(i)) - shift);
  });
}

absl::StatusOr<Packed> PackDepthwise(const Request& request) {
  const DataType type = request.source().dtype();
  const bool integers = type == DataType::kI8 || type == DataType::kU8;
  QUENCH_RETURN_IF_ERROR(request.CheckSource(3, 4, integers ? type : request.FloatType()));
  QUENCH_RETURN_IF_ERROR(request.CheckPositive({"lanes"}));
  const int64_t lanes = request.Param("lanes"), channels = request.dim(0);
  const int64_t taps =
      request.source().rank() == 4 ? request.dim(2) * request.dim(3) : request.dim(2);
  if (request.dim(1) != 1)
    return Internal("pack `depthwise`: {} input channels per group, takes 1", request.dim(1));
  const auto zero = static_cast<double>(request.Param("zero"));
  return Floats(CeilDiv(channels, lanes) * lanes * taps,
                [=, &source = request.source()](std::span<float> out) {
                  for (int64_t c = 0; c < channels; ++c) {
                    for (int64_t tap = 0; tap < taps; ++tap) {
                      out[static_cast<size_t>((c / lanes * taps + tap) * lanes + c % lanes)] =
                          static_cast<float>(source.FloatAt(c * taps + tap) - zero);
                    }
                  }
                });
}

absl::StatusOr<Packed> PackWinograd(const Request& request) {
  QUENCH_RETURN_IF_ERROR(request.CheckSource(4, 4));
  QUENCH_RETURN_IF_ERROR(request.CheckPositive({"outputs", "lanes", "vectors"}));
  const WinogradPanels panels{
      {static_cast<int>(request.Param("outputs")), static_cast<int>(request.dim(3))},
      request.dim(0),
      request.dim(1),
      request.Param("lanes"),
      request.Param("vectors")};
  if (!panels.size.valid() || request.dim(2) != request.dim(3)) {
    return Internal("pack `{}`: no tiles of {} outputs and {}x{} taps", request.transform(),
                    panels.size.outputs, request.dim(2), request.dim(3));
  }
  return Floats(panels.elements(), [=, weights = request.floats()](std::span<float> out) {
    PackWinogradPanels(panels, weights, out);
  });
}

absl::StatusOr<Packed> Dispatch(const PackSpec& spec, std::span<const Tensor* const> sources) {
  static constexpr std::pair<const char*, absl::StatusOr<Packed> (*)(const Request&)>
      kTransforms[] = {{"channels", PackChannels},
                       {"conv_panels", PackConvPanels},
                       {"gemm_panels", PackGemmPanels},
                       {"conv_panels_bytes", PackConvPanelsBytes},
                       {"conv_panels_pairs", PackConvPanelsPairs},
                       {"gemm_panels_pairs", PackGemmPanelsPairs},
                       {"gemm_panels_bytes", PackGemmPanelsBytes},
                       {"conv_panels_picked", PackConvPanelsPicked},
                       {"gemm_panels_picked", PackGemmPanelsPicked},
                       {"gemm_panels_stored", PackGemmPanelsStored},
                       {"gemm_scales", PackGemmScales},
                       {"gemm_zeros", PackGemmZeros},
                       {"byte_sums", PackByteSums},
                       {"depthwise", PackDepthwise},
                       {"winograd_panels", PackWinograd}};
  if (sources.empty()) return Internal("pack `{}`: no source", spec.transform);
  for (const auto& [name, pack] : kTransforms) {
    if (spec.transform == name) return pack(Request(spec, sources));
  }
  return Internal("pack `{}`: unknown transform", spec.transform);
}

}  // namespace

absl::StatusOr<std::vector<std::byte>> Pack(const PackSpec& spec,
                                            std::span<const Tensor* const> sources) {
  QUENCH_ASSIGN_OR_RETURN(const Packed packed, Dispatch(spec, sources));
  std::vector<std::byte> out(static_cast<size_t>(packed.bytes));
  packed.write(out.data());
  return out;
}

}  // namespace quench::codegen
