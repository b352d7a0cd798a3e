#include "services/codegen/kernels/winograd_panels.h"

#include <algorithm>
#include <array>
#include <vector>

#include "services/codegen/forms/register_tile.h"

namespace quench::codegen {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// G of G g G^T.
class FilterTransform {
 public:
  explicit FilterTransform(const WinogradSize& size)
      : side_(static_cast<size_t>(size.side())), taps_(static_cast<size_t>(size.taps)) {
    for (size_t tap = 0; tap < taps_; ++tap) {
      std::vector<double> unit(taps_, 0);
      unit[tap] = 1;
      const std::vector<double> column = WinogradWeights(size, unit);
      for (size_t row = 0; row < side_; ++row) matrix_[row][tap] = column[row];
    }
  }

  // put(point, value) for all points, by rows.
  template <typename Put>
  void Apply(const float* filter, const Put& put) const {
    for (size_t y = 0; y < side_; ++y) {
      std::array<double, kMost> row{};
      for (size_t ky = 0; ky < taps_; ++ky) {
        for (size_t kx = 0; kx < taps_; ++kx)
          row[kx] += matrix_[y][ky] * static_cast<double>(filter[ky * taps_ + kx]);
      }
      for (size_t x = 0; x < side_; ++x) {
        double value = 0;
        for (size_t kx = 0; kx < taps_; ++kx) value += matrix_[x][kx] * row[kx];
        put(static_cast<int64_t>(y * side_ + x), static_cast<float>(value));
      }
    }
  }

 private:
  static constexpr size_t kMost = 8;
  size_t side_, taps_;
  std::array<std::array<double, kMost>, kMost> matrix_{};
};

}  // namespace

int64_t WinogradPanels::elements() const {
  return size.points() * CeilDiv(in_channels, lanes) * lanes * CeilDiv(out_channels, lanes) * lanes;
}

void PackWinogradPanels(const WinogradPanels& panels, std::span<const float> weights,
                        std::span<float> out) {
  const FilterTransform transform(panels.size);
  const int64_t rows = CeilDiv(panels.in_channels, panels.lanes) * panels.lanes;  // of a point
  const PanelSplit split =
      SplitIntoPanels(CeilDiv(panels.out_channels, panels.lanes), panels.vectors);
  for (int64_t p = 0; p < split.parts(); ++p) {
    const int64_t first = split.Start(p) * panels.lanes;
    const int64_t width = split.Start(p + 1) * panels.lanes - first;
    float* panel = out.data() + first * panels.size.points() * rows;
    for (int64_t o = first; o < std::min(first + width, panels.out_channels); ++o) {
      for (int64_t c = 0; c < panels.in_channels; ++c) {
        const int64_t filter = (o * panels.in_channels + c) * panels.size.taps * panels.size.taps;
        transform.Apply(weights.data() + filter, [&](int64_t point, float value) {
          panel[(point * rows + c) * width + (o - first)] = value;
        });
      }
    }
  }
}

}  // namespace quench::codegen
