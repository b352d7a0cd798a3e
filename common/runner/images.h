// Images as inputs: decoded, brought to the size that a model wants, and scaled as it was trained.
#pragma once

#include <absl/status/statusor.h>

#include <array>
#include <filesystem>
#include <string>
#include <string_view>

#include "common/ir/tensor.h"
#include "common/runner/runner.h"

namespace quench {

enum class ImageFit : uint8_t {
  kStretch,  // each axis by itself
  kCrop,     // the shorter side to 8/7 of the size (256 for 224), then the middle
  kPad,      // as large as fits, in the middle of gray (114)
};

// An element is (p / divide - mean[c]) / std[c] of a pixel's p in 0..255.
struct ImageOptions {
  std::array<float, 3> mean = {0, 0, 0}, std = {1, 1, 1};  // red, green, blue
  float divide = 255;
  bool bgr = false;  // channels are blue, green, red
  ImageFit fit = ImageFit::kStretch;
};

// `imagenet`, `unit` (0..1), `signed` (-1..1) or `bytes` (0..255), and what differs from it, between
// commas: mean=R/G/B, std=R/G/B, divide=N, order=rgb|bgr, fit=stretch|crop|pad. INVALID_ARGUMENT
// says which word is wrong and what there is.
absl::StatusOr<ImageOptions> ParseImageOptions(std::string_view text);

// Where the axes of an image lie in an input.
struct ImagePlace {
  int64_t channels = 3, height = 0, width = 0;  // 1 channel: gray
  bool channels_last = false;
};
// For an input of rank 4 (its first axis the batch) or 3, f32 or u8, with 1 or 3 channels and known
// sizes.
absl::StatusOr<ImagePlace> ImagePlaceOf(const ArtifactTensor& input);

// .png, .jpg or .jpeg, in any case of letters.
bool IsImageFile(const std::filesystem::path& path);
// Reads no more than the head of the file; errors as ReadImage's.
absl::Status CheckImage(const std::filesystem::path& path, const std::string& shown);
// A batch of one. Transparent pixels are on black. INVALID_ARGUMENT where the file is no such image,
// RESOURCE_EXHAUSTED for more than 100 million pixels; `shown` is what messages call the file.
absl::StatusOr<Tensor> ReadImage(const std::filesystem::path& path, const ImagePlace& place,
                                 DataType dtype, const ImageOptions& options,
                                 const std::string& shown);

}  // namespace quench
