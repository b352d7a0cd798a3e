// Tensors as pictures.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <png.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "common/base/status.h"
#include "services/analyser/infer.h"

namespace quench::analyser {
namespace {

constexpr int64_t kMostMaps = 256;
constexpr int64_t kMostPixels = 64'000'000, kLongest = 30'000;  // a longer side
constexpr uint8_t kWhite = 254,
                  kBetweenMaps = 255;  // of the palette: greys, then the blue between maps
constexpr int64_t kSmallest = 64;  // pixels of a map's longer side, where a whole factor gives them

struct Grid {
  int64_t rows = 1, columns = 1;  // of a map
  int64_t maps = 1;               // shown
  int64_t across = 1, down = 1;   // maps
  int64_t factor = 1;             // pixels of an element, each way
  int64_t step = 1;               // elements that share a pixel, each way
  int64_t width() const { return across * (MapWidth() + 1) - 1; }
  int64_t height() const { return down * (MapHeight() + 1) - 1; }
  int64_t MapWidth() const { return (columns + step - 1) / step * factor; }
  int64_t MapHeight() const { return (rows + step - 1) / step * factor; }
};

Grid GridOf(const std::vector<int64_t>& dims) {
  Grid grid;
  if (!dims.empty()) grid.columns = dims.back();
  if (dims.size() > 1) grid.rows = dims[dims.size() - 2];
  for (size_t i = 0; i + 2 < dims.size(); ++i)
    grid.maps = std::min(grid.maps * std::min(dims[i], kMostMaps), kMostMaps);
  grid.across = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(grid.maps))));
  grid.down = (grid.maps + grid.across - 1) / grid.across;
  grid.factor = std::max<int64_t>(1, kSmallest / std::max(grid.rows, grid.columns));
  while (grid.width() > kLongest || grid.height() > kLongest ||
         grid.width() * grid.height() > kMostPixels)
    ++grid.step;
  return grid;
}

// Grey of each element of a map.
std::vector<uint8_t> Shades(const Tensor& tensor, int64_t begin, int64_t count) {
  double min = INFINITY, max = -INFINITY;
  for (int64_t i = begin; i < begin + count; ++i) {
    const double value = tensor.FloatAt(i);
    if (!std::isfinite(value)) continue;
    min = std::min(min, value);
    max = std::max(max, value);
  }
  std::vector<uint8_t> shades(static_cast<size_t>(count), 0);
  if (!(max > min)) return shades;
  for (int64_t i = 0; i < count; ++i) {
    const double value = tensor.FloatAt(begin + i);
    if (!std::isfinite(value)) continue;
    const double share = (value / 2 - min / 2) / (max / 2 - min / 2);
    shades[static_cast<size_t>(i)] = static_cast<uint8_t>(std::lround(share * kWhite));
  }
  return shades;
}

absl::StatusOr<std::string> Png(const std::vector<uint8_t>& pixels, const Grid& grid) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(grid.width());
  image.height = static_cast<png_uint_32>(grid.height());
  image.format = PNG_FORMAT_RGB_COLORMAP;
  image.colormap_entries = 256;
  std::array<uint8_t, 3 * 256> palette{};
  for (size_t i = 0; i <= kWhite; ++i)
    std::fill_n(&palette[3 * i], 3, static_cast<uint8_t>(i * 255 / kWhite));
  palette[3 * kBetweenMaps] = 40;
  palette[3 * kBetweenMaps + 1] = 90;
  palette[3 * kBetweenMaps + 2] = 220;
  png_alloc_size_t bytes = 0;
  // Once for the size, once for the bytes.
  if (png_image_write_to_memory(&image, nullptr, &bytes, 0, pixels.data(), 0, palette.data()) == 0)
    return Internal("cannot write an image: {}", image.message);
  std::string png(bytes, '\0');
  if (png_image_write_to_memory(&image, png.data(), &bytes, 0, pixels.data(), 0, palette.data()) ==
      0)
    return Internal("cannot write an image: {}", image.message);
  png.resize(bytes);
  return png;
}

}  // namespace

absl::StatusOr<std::string> FeatureMaps(const Tensor& tensor) {
  if (tensor.dtype() == DataType::kString || IsComplex(tensor.dtype()))
    return InvalidArgument("{} has no picture", DataTypeName(tensor.dtype()));
  if (tensor.size() == 0) return InvalidArgument("a tensor without elements has no picture");
  const Grid grid = GridOf(tensor.dims());
  const int64_t width = grid.width();
  std::vector<uint8_t> pixels(static_cast<size_t>(width * grid.height()), kBetweenMaps);
  for (int64_t map = 0; map < grid.maps; ++map) {
    const int64_t size = grid.rows * grid.columns;
    const std::vector<uint8_t> shades = Shades(tensor, map * size, size);
    const int64_t left = map % grid.across * (grid.MapWidth() + 1),
                  top = map / grid.across * (grid.MapHeight() + 1);
    for (int64_t y = 0; y < grid.MapHeight(); ++y) {
      const int64_t row = y / grid.factor * grid.step;
      for (int64_t x = 0; x < grid.MapWidth(); ++x) {
        const int64_t column = x / grid.factor * grid.step;
        pixels[static_cast<size_t>((top + y) * width + left + x)] =
            shades[static_cast<size_t>(row * grid.columns + column)];
      }
    }
  }
  return Png(pixels, grid);
}

}  // namespace quench::analyser
