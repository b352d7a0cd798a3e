#include "services/quantizer/layer_inputs.h"

#include <algorithm>

namespace quench::quantizer {
namespace {

int64_t Product(std::span<const int64_t> dims) {
  int64_t product = 1;
  for (const int64_t dim : dims) product *= dim;
  return product;
}

// The coordinates of a row-major index.
void Unravel(int64_t index, std::span<const int64_t> dims, std::vector<int64_t>& coordinates) {
  coordinates.resize(dims.size());
  for (size_t i = dims.size(); i-- > 0;) {
    coordinates[i] = index % dims[i];
    index /= dims[i];
  }
}

// Indices below `all`: `count` of them, spread evenly.
std::vector<int64_t> Spread(int64_t all, int64_t count, double shift) {
  std::vector<int64_t> chosen;
  const int64_t used = std::min(all, count);
  for (int64_t j = 0; j < used; ++j) {
    const double at = (static_cast<double>(j) + shift) * static_cast<double>(all);
    chosen.push_back(std::min(all - 1, static_cast<int64_t>(at / static_cast<double>(used))));
  }
  return chosen;
}

// Rows of a matrix, or its columns.
std::vector<float> ProductPatches(const Node& node, const Tensor& input, int64_t count,
                                  double shift) {
  const std::vector<int64_t>& dims = input.dims();
  const bool columns = node.op == "Gemm" && node.Int("transA", 0) != 0;
  const int64_t length = columns ? dims.front() : dims.back();
  const int64_t rows = length == 0 ? 0 : input.size() / length;
  const std::span<const float> x = input.as<float>();
  std::vector<float> patches;
  patches.reserve(static_cast<size_t>(std::min(rows, count) * length));
  for (const int64_t row : Spread(rows, count, shift)) {
    for (int64_t k = 0; k < length; ++k)
      patches.push_back(x[static_cast<size_t>(columns ? k * rows + row : row * length + k)]);
  }
  return patches;
}

// Where the windows of a convolution lie, per spatial axis.
struct Windows {
  std::vector<int64_t> sizes, kernel, strides, dilations, begins, outputs;
};

Windows WindowsOf(const Node& node, const Tensor& kernel, const Tensor& input) {
  Windows w;
  w.sizes = {input.dims().begin() + 2, input.dims().end()};
  w.kernel = {kernel.dims().begin() + 2, kernel.dims().end()};
  const size_t rank = w.sizes.size();
  const auto ints = [&](const char* name, size_t count, int64_t absent) {
    std::vector<int64_t> values = node.Ints(name);
    values.resize(count, absent);
    return values;
  };
  w.strides = ints("strides", rank, 1);
  w.dilations = ints("dilations", rank, 1);
  std::vector<int64_t> pads = ints("pads", 2 * rank, 0);
  const std::string mode = node.String("auto_pad", "NOTSET");
  for (size_t i = 0; i < rank; ++i) {
    const int64_t reach = w.dilations[i] * (w.kernel[i] - 1) + 1;
    if (mode == "SAME_UPPER" || mode == "SAME_LOWER") {
      const int64_t outputs = (w.sizes[i] + w.strides[i] - 1) / w.strides[i];
      const int64_t pad = std::max<int64_t>(0, (outputs - 1) * w.strides[i] + reach - w.sizes[i]);
      pads[i] = mode == "SAME_UPPER" ? pad / 2 : pad - pad / 2;
      pads[rank + i] = pad - pads[i];
    } else if (mode == "VALID") {
      pads[i] = pads[rank + i] = 0;
    }
    w.begins.push_back(pads[i]);
    const int64_t padded = w.sizes[i] + pads[i] + pads[rank + i];
    w.outputs.push_back(padded < reach ? 0 : (padded - reach) / w.strides[i] + 1);
  }
  return w;
}

std::vector<float> ConvPatches(const Node& node, const Tensor& kernel, const Tensor& input,
                               int64_t count, double shift) {
  const Windows w = WindowsOf(node, kernel, input);
  const int64_t channels = input.dims()[1];
  const int64_t positions = Product(w.outputs), taps = Product(w.kernel), plane = Product(w.sizes);
  const std::span<const float> x = input.as<float>();
  std::vector<float> patches;
  const int64_t all = input.dims()[0] * positions;
  patches.reserve(static_cast<size_t>(std::min(all, count) * channels * taps));
  std::vector<int64_t> at, tap, offsets(static_cast<size_t>(taps));
  for (const int64_t chosen : Spread(all, count, shift)) {
    Unravel(chosen % positions, w.outputs, at);
    for (int64_t t = 0; t < taps; ++t) {  // -1: outside
      Unravel(t, w.kernel, tap);
      int64_t offset = 0;
      for (size_t i = 0; i < tap.size() && offset >= 0; ++i) {
        const int64_t place = at[i] * w.strides[i] - w.begins[i] + tap[i] * w.dilations[i];
        offset = place < 0 || place >= w.sizes[i] ? -1 : offset * w.sizes[i] + place;
      }
      offsets[static_cast<size_t>(t)] = offset;
    }
    const int64_t image = chosen / positions * channels;
    for (int64_t c = 0; c < channels; ++c) {
      for (const int64_t offset : offsets)
        patches.push_back(offset < 0 ? 0 : x[static_cast<size_t>((image + c) * plane + offset)]);
    }
  }
  return patches;
}

}  // namespace

std::optional<KernelRows> RowsOf(const Node& node, const Tensor& kernel) {
  const std::vector<int64_t>& dims = kernel.dims();
  if (kernel.size() == 0) return std::nullopt;
  if (node.op == "Conv") {
    const int64_t groups = node.Int("group", 1);
    return KernelRows{groups, dims[0] / groups, kernel.size() / dims[0], false};
  }
  if ((node.op != "Gemm" && node.op != "MatMul") || dims.size() != 2) return std::nullopt;
  if (node.op == "Gemm" && node.Int("transB", 0) != 0)
    return KernelRows{1, dims[0], dims[1], false};
  return KernelRows{1, dims[1], dims[0], true};
}

std::vector<float> PatchesOf(const Node& node, const Tensor& kernel, const Tensor& input,
                             int64_t count, double shift) {
  if (input.size() == 0) return {};
  return node.op == "Conv" ? ConvPatches(node, kernel, input, count, shift)
                           : ProductPatches(node, input, count, shift);
}

}  // namespace quench::quantizer
