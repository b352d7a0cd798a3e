#include "common/runner/images.h"

#include <png.h>
#include <turbojpeg.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <vector>

#include "common/base/files.h"
#include "common/base/status.h"

namespace quench {
namespace {

constexpr int64_t kMaxPixels = 100'000'000;
constexpr float kPadding = 114;

// Rows of pixels of red, green and blue.
struct Picture {
  int64_t width = 0, height = 0;
  std::vector<float> rgb;
};

absl::Status CheckSize(int64_t width, int64_t height, const std::string& shown) {
  if (width < 1 || height < 1) return InvalidArgument("`{}` has no pixels", shown);
  if (width > kMaxPixels / height) {
    return absl::ResourceExhaustedError(fmt::format("`{}` has {} x {} pixels, at most {} are read",
                                                    shown, width, height, kMaxPixels));
  }
  return absl::OkStatus();
}

// A file whose head has been read; Decode reads the rest.
class Decoder {
 public:
  virtual ~Decoder() = default;
  // Width and height are known then.
  virtual absl::Status ReadHead() = 0;
  virtual absl::StatusOr<std::vector<uint8_t>> Decode() = 0;

  int64_t width = 0, height = 0;
};

class PngDecoder final : public Decoder {
 public:
  PngDecoder(std::span<const std::byte> file, std::string shown)
      : file_(file), shown_(std::move(shown)) {
    image_.version = PNG_IMAGE_VERSION;
  }
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;
  ~PngDecoder() override { png_image_free(&image_); }

  absl::Status ReadHead() override {
    if (png_image_begin_read_from_memory(&image_, file_.data(), file_.size()) == 0)
      return InvalidArgument("`{}` is not a PNG: {}", shown_, image_.message);
    width = image_.width;
    height = image_.height;
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<uint8_t>> Decode() override {
    image_.format = PNG_FORMAT_RGB;
    std::vector<uint8_t> bytes(PNG_IMAGE_SIZE(image_));
    const png_color black = {0, 0, 0};
    if (png_image_finish_read(&image_, &black, bytes.data(), 0, nullptr) == 0)
      return InvalidArgument("`{}` is a damaged PNG: {}", shown_, image_.message);
    return bytes;
  }

 private:
  const std::span<const std::byte> file_;
  const std::string shown_;
  png_image image_ = {};
};

class JpegDecoder final : public Decoder {
 public:
  JpegDecoder(std::span<const std::byte> file, std::string shown)
      : file_(file), shown_(std::move(shown)), handle_(tjInitDecompress()) {}
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;
  ~JpegDecoder() override { tjDestroy(handle_); }

  absl::Status ReadHead() override {
    int w = 0, h = 0, subsampling = 0, colours = 0;
    if (handle_ == nullptr ||
        tjDecompressHeader3(handle_, data(), file_.size(), &w, &h, &subsampling, &colours) != 0)
      return InvalidArgument("`{}` is not a JPEG: {}", shown_, tjGetErrorStr2(handle_));
    width = w;
    height = h;
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<uint8_t>> Decode() override {
    std::vector<uint8_t> bytes(static_cast<size_t>(width * height * 3));
    // A file that is cut off is a warning to the decoder, and gray to the model.
    if (tjDecompress2(handle_, data(), file_.size(), bytes.data(), static_cast<int>(width), 0,
                      static_cast<int>(height), TJPF_RGB,
                      TJFLAG_ACCURATEDCT | TJFLAG_STOPONWARNING) != 0)
      return InvalidArgument("`{}` is a damaged JPEG: {}", shown_, tjGetErrorStr2(handle_));
    return bytes;
  }

 private:
  const unsigned char* data() const { return reinterpret_cast<const unsigned char*>(file_.data()); }

  const std::span<const std::byte> file_;
  const std::string shown_;
  const tjhandle handle_;
};

// By its first bytes, whatever it is called.
absl::StatusOr<std::unique_ptr<Decoder>> OpenImage(std::span<const std::byte> file,
                                                   const std::string& shown) {
  std::unique_ptr<Decoder> decoder;
  const std::byte first = file.empty() ? std::byte{0} : file[0];
  if (first == std::byte{0x89}) {
    decoder = std::make_unique<PngDecoder>(file, shown);
  } else if (first == std::byte{0xFF}) {
    decoder = std::make_unique<JpegDecoder>(file, shown);
  } else {
    return InvalidArgument("`{}` is neither PNG nor JPEG ({} bytes)", shown, file.size());
  }
  QUENCH_RETURN_IF_ERROR(decoder->ReadHead());
  QUENCH_RETURN_IF_ERROR(CheckSize(decoder->width, decoder->height, shown));
  return decoder;
}

// Sources of one output pixel along an axis: the first input pixel, and weights that sum to 1.
struct Taps {
  int64_t first = 0;
  std::vector<float> weights;
};

// A triangle as wide as the step between output pixels, or two input pixels where those are farther
// apart: bilinear interpolation that sees every pixel when it shrinks. `size` output pixels lie over
// [begin, begin + extent) of the input.
std::vector<Taps> TapsFor(int64_t from, double begin, double extent, int64_t size) {
  const double step = extent / static_cast<double>(size), reach = std::max(step, 1.0);
  std::vector<Taps> all;
  for (int64_t i = 0; i < size; ++i) {
    const double centre = begin + (static_cast<double>(i) + 0.5) * step;
    const int64_t low = std::clamp<int64_t>(std::llround(centre - reach), 0, from - 1);
    const int64_t high = std::clamp<int64_t>(std::llround(centre + reach), low + 1, from);
    Taps taps{low, {}};
    double sum = 0;
    for (int64_t k = low; k < high; ++k) {
      const double distance = std::abs(static_cast<double>(k) + 0.5 - centre) / reach;
      taps.weights.push_back(static_cast<float>(std::max(0.0, 1 - distance)));
      sum += taps.weights.back();
    }
    if (sum == 0) {
      taps.weights.assign(taps.weights.size(), 0);
      taps.weights[0] = 1;
      sum = 1;
    }
    for (float& weight : taps.weights) weight = static_cast<float>(weight / sum);
    all.push_back(std::move(taps));
  }
  return all;
}

Picture Resample(const Picture& from, const std::vector<Taps>& columns,
                 const std::vector<Taps>& rows) {
  const auto width = static_cast<int64_t>(columns.size());
  Picture wide{width, from.height,
               std::vector<float>(static_cast<size_t>(width * from.height * 3))};
  for (int64_t y = 0; y < from.height; ++y) {
    const float* row = &from.rgb[static_cast<size_t>(y * from.width * 3)];
    float* out = &wide.rgb[static_cast<size_t>(y * width * 3)];
    for (const Taps& taps : columns) {
      for (size_t c = 0; c < 3; ++c) {
        float sum = 0;
        for (size_t k = 0; k < taps.weights.size(); ++k)
          sum += taps.weights[k] * row[(static_cast<size_t>(taps.first) + k) * 3 + c];
        *out++ = sum;
      }
    }
  }
  const auto height = static_cast<int64_t>(rows.size());
  Picture result{width, height, std::vector<float>(static_cast<size_t>(width * height * 3))};
  for (int64_t y = 0; y < height; ++y) {
    const Taps& taps = rows[static_cast<size_t>(y)];
    float* out = &result.rgb[static_cast<size_t>(y * width * 3)];
    for (size_t k = 0; k < taps.weights.size(); ++k) {
      const float* row =
          &wide.rgb[(static_cast<size_t>(taps.first) + k) * static_cast<size_t>(width) * 3];
      for (int64_t i = 0; i < width * 3; ++i) out[i] += taps.weights[k] * row[i];
    }
  }
  return result;
}

Picture Fit(const Picture& from, const ImagePlace& place, ImageFit fit) {
  const auto w = static_cast<double>(from.width), h = static_cast<double>(from.height);
  const auto columns = [&](double begin, double extent, int64_t size) {
    return TapsFor(from.width, begin, extent, size);
  };
  const auto rows = [&](double begin, double extent, int64_t size) {
    return TapsFor(from.height, begin, extent, size);
  };
  if (fit == ImageFit::kStretch)
    return Resample(from, columns(0, w, place.width), rows(0, h, place.height));
  const double across = w / static_cast<double>(place.width),
               down = h / static_cast<double>(place.height);
  if (fit == ImageFit::kCrop) {
    // Input pixels per output pixel.
    const double scale = std::min(across, down) * 7 / 8;
    const double width = scale * static_cast<double>(place.width),
                 height = scale * static_cast<double>(place.height);
    return Resample(from, columns((w - width) / 2, width, place.width),
                    rows((h - height) / 2, height, place.height));
  }
  const double scale = std::max(across, down);
  const int64_t width = std::clamp<int64_t>(std::llround(w / scale), 1, place.width);
  const int64_t height = std::clamp<int64_t>(std::llround(h / scale), 1, place.height);
  const Picture inner = Resample(from, columns(0, w, width), rows(0, h, height));
  Picture result{place.width, place.height,
                 std::vector<float>(static_cast<size_t>(place.width * place.height * 3), kPadding)};
  const int64_t left = (place.width - width) / 2, top = (place.height - height) / 2;
  for (int64_t y = 0; y < height; ++y) {
    std::copy_n(inner.rgb.begin() + y * width * 3, width * 3,
                result.rgb.begin() + ((top + y) * place.width + left) * 3);
  }
  return result;
}

// Channel c of the input, of a pixel.
float ChannelOf(const float* rgb, int64_t c, const ImagePlace& place, const ImageOptions& options) {
  const auto scaled = [&](size_t i) {
    return (rgb[i] / options.divide - options.mean[i]) / options.std[i];
  };
  // ITU-R BT.601's luma.
  if (place.channels == 1) return 0.299F * scaled(0) + 0.587F * scaled(1) + 0.114F * scaled(2);
  return scaled(static_cast<size_t>(options.bgr ? 2 - c : c));
}

absl::StatusOr<float> ParseFloat(std::string_view text) {
  float number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(number))
    return InvalidArgument("`{}` is not a number", text);
  return number;
}

absl::StatusOr<std::array<float, 3>> ParseThree(std::string_view text) {
  std::array<float, 3> three = {};
  for (size_t i = 0; i < 3; ++i) {
    const size_t end = std::min(text.find('/'), text.size());
    if ((i < 2) != (end < text.size())) return InvalidArgument("expected three numbers: R/G/B");
    QUENCH_ASSIGN_OR_RETURN(three[i], ParseFloat(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return three;
}

bool SetPreset(std::string_view word, ImageOptions& options) {
  if (word == "imagenet") {
    options = {{0.485F, 0.456F, 0.406F}, {0.229F, 0.224F, 0.225F}, 255, false, ImageFit::kCrop};
  } else if (word == "unit") {
    options = {};
  } else if (word == "signed") {
    options = {{0.5F, 0.5F, 0.5F}, {0.5F, 0.5F, 0.5F}, 255, false, ImageFit::kStretch};
  } else if (word == "bytes") {
    options = {};
    options.divide = 1;
  } else {
    return false;
  }
  return true;
}

absl::Status SetKey(std::string_view key, std::string_view value, ImageOptions& options) {
  if (key == "mean" || key == "std") {
    QUENCH_ASSIGN_OR_RETURN((key == "mean" ? options.mean : options.std), ParseThree(value));
    const auto& std = options.std;
    if (std::any_of(std.begin(), std.end(), [](float s) { return s == 0; }))
      return InvalidArgument("0 is not a deviation");
  } else if (key == "divide") {
    QUENCH_ASSIGN_OR_RETURN(options.divide, ParseFloat(value));
    if (options.divide == 0) return InvalidArgument("nothing is divided by 0");
  } else if (key == "order" && (value == "rgb" || value == "bgr")) {
    options.bgr = value == "bgr";
  } else if (key == "fit" && (value == "stretch" || value == "crop" || value == "pad")) {
    options.fit = value == "stretch" ? ImageFit::kStretch
                  : value == "crop"  ? ImageFit::kCrop
                                     : ImageFit::kPad;
  } else {
    return InvalidArgument(
        "there are mean=R/G/B, std=R/G/B, divide=N, order=rgb|bgr and fit=stretch|crop|pad");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ImageOptions> ParseImageOptions(std::string_view text) {
  ImageOptions options;
  StatusCollector problems;
  for (bool first = true; first || !text.empty(); first = false) {
    const size_t end = std::min(text.find(','), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t equals = word.find('=');
    if (first && equals == std::string_view::npos) {
      if (!SetPreset(word, options)) {
        problems.Add(InvalidArgument(
            "images: `{}`: there are imagenet, unit, signed and bytes, then what differs", word));
      }
      continue;
    }
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : word.substr(equals + 1);
    problems.Add(Annotate(SetKey(word.substr(0, equals), value, options),
                          fmt::format("images: `{}`", word)));
  }
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  return options;
}

absl::StatusOr<ImagePlace> ImagePlaceOf(const ArtifactTensor& input) {
  const std::vector<ArtifactDim>& dims = input.dims;
  const bool batched = dims.size() == 4;
  const auto size = [&](size_t axis) { return dims[axis + (batched ? 1 : 0)].value; };
  const auto is_channels = [](int64_t n) { return n == 1 || n == 3; };
  const bool typed = input.dtype == DataType::kF32 || input.dtype == DataType::kU8;
  if (typed && (batched || dims.size() == 3) &&
      (!batched || (dims[0].min <= 1 && dims[0].max >= 1)) && size(0) > 0 && size(1) > 0 &&
      size(2) > 0 && (is_channels(size(0)) || is_channels(size(2)))) {
    if (is_channels(size(0))) return ImagePlace{size(0), size(1), size(2), false};
    return ImagePlace{size(2), size(0), size(1), true};
  }
  return InvalidArgument(
      "input `{}` does not accept images: it must be f32 or u8, have a batch of 1, 1 or 3 channels "
      "first or last, and known sizes",
      input.name);
}

bool IsImageFile(const std::filesystem::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension == ".png" || extension == ".jpg" || extension == ".jpeg";
}

absl::Status CheckImage(const std::filesystem::path& path, const std::string& shown) {
  QUENCH_ASSIGN_OR_RETURN(const auto mapping, FileMapping::Open(path));
  return OpenImage(mapping->bytes(), shown).status();
}

absl::StatusOr<Tensor> ReadImage(const std::filesystem::path& path, const ImagePlace& place,
                                 DataType dtype, const ImageOptions& options,
                                 const std::string& shown) {
  QUENCH_ASSIGN_OR_RETURN(const auto mapping, FileMapping::Open(path));
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Decoder> decoder,
                          OpenImage(mapping->bytes(), shown));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<uint8_t> rgb, decoder->Decode());
  const Picture fitted =
      Fit({decoder->width, decoder->height, std::vector<float>(rgb.begin(), rgb.end())}, place,
          options.fit);
  std::vector<float> elements(static_cast<size_t>(place.channels * place.height * place.width));
  const int64_t pixels = place.height * place.width;
  for (int64_t p = 0; p < pixels; ++p) {
    for (int64_t c = 0; c < place.channels; ++c) {
      const int64_t at = place.channels_last ? p * place.channels + c : c * pixels + p;
      elements[static_cast<size_t>(at)] =
          ChannelOf(&fitted.rgb[static_cast<size_t>(p * 3)], c, place, options);
    }
  }
  const std::vector<int64_t> dims =
      place.channels_last ? std::vector<int64_t>{1, place.height, place.width, place.channels}
                          : std::vector<int64_t>{1, place.channels, place.height, place.width};
  if (dtype == DataType::kF32) return Tensor::Of(DataType::kF32, dims, elements);
  std::vector<uint8_t> bytes;
  for (const float element : elements)
    bytes.push_back(static_cast<uint8_t>(std::lround(std::clamp(element, 0.0F, 255.0F))));
  return Tensor::Of(DataType::kU8, dims, bytes);
}

}  // namespace quench
