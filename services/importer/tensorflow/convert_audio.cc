// The front end of speech models: samples of a WAV file, their spectra, coefficients of those. As
// core/kernels/{decode_wav_op,spectrogram,mfcc*}.cc of TensorFlow compute them.
#include <cmath>

#include "common/base/status.h"
#include "services/importer/tensorflow/converters.h"

namespace quench::importer::tensorflow_ops {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr int64_t kWavHeader = 44;  // bytes before the samples of a file without other chunks
constexpr int64_t kMaxWindow = 1 << 20;
constexpr int64_t kMaxChannels = 1 << 12;

// Pitch as people hear it.
double MelOf(double hertz) { return 1127.0 * std::log1p(hertz / 700.0); }

ValueId Floats(Converter& c, std::vector<int64_t> dims, const std::vector<float>& values) {
  return c.AddConstant(Tensor::Of(DataType::kF32, std::move(dims), values));
}

// Bytes [n, 2], low first -> [n] numbers of `dtype`.
ValueId Combined(TfNode& n, ValueId bytes, const std::vector<float>& places) {
  const ValueId numbers = n.Cast(bytes, DataType::kF32);
  const ValueId weighed =
      n.Emit("Mul", {numbers, Floats(n.c, {static_cast<int64_t>(places.size())}, places)});
  return n.Emit("ReduceSum", {weighed, n.c.Ints({-1})}, {{"keepdims", int64_t{0}}});
}

struct MelOptions {
  double lower, upper;
  int64_t channels, coefficients, bins;
};

// Weights [bins, channels] of triangles that are evenly spaced by pitch, for a sample rate that a
// run gives: `rate` f32 [].
ValueId MelWeights(TfNode& n, const MelOptions& options, ValueId rate) {
  Converter& c = n.c;
  const double low = MelOf(options.lower);
  const double spacing = (MelOf(options.upper) - low) / static_cast<double>(options.channels + 1);
  std::vector<float> numbers, centers;
  for (int64_t i = 0; i < options.bins; ++i) numbers.push_back(static_cast<float>(i));
  for (int64_t i = 0; i < options.channels; ++i)
    centers.push_back(static_cast<float>(low + spacing * static_cast<double>(i + 1)));
  const auto scalar = [&](double value) { return c.Scalar(DataType::kF32, value); };
  const ValueId bin = Floats(c, {options.bins, 1}, numbers);
  const ValueId width = n.Emit("Mul", {rate, scalar(0.5 / static_cast<double>(options.bins - 1))});
  const ValueId hertz = n.Emit("Mul", {bin, width});
  const ValueId pitch = n.Emit(
      "Mul",
      {n.Emit("Log", {n.Emit("Add", {n.Emit("Mul", {hertz, scalar(1 / 700.0)}), scalar(1)})}),
       scalar(1127)});
  const ValueId away =
      n.Emit("Abs", {n.Emit("Sub", {pitch, Floats(c, {options.channels}, centers)})});
  const ValueId share = n.Emit("Sub", {scalar(1), n.Emit("Mul", {away, scalar(1 / spacing)})});
  const ValueId first = n.Emit(
      "Floor", {n.Emit("Add", {n.Emit("Div", {scalar(options.lower), width}), scalar(1.5)})});
  const ValueId last = n.Emit("Floor", {n.Emit("Div", {scalar(options.upper), width})});
  const ValueId inside =
      n.Emit("And", {n.Emit("GreaterOrEqual", {bin, first}), n.Emit("LessOrEqual", {bin, last})});
  return n.Emit("Where", {inside, n.Emit("Max", {share, scalar(0)}), scalar(0)});
}

// The same for a rate that is known.
ValueId MelWeights(Converter& c, const MelOptions& options, double rate) {
  const double low = MelOf(options.lower);
  const double spacing = (MelOf(options.upper) - low) / static_cast<double>(options.channels + 1);
  const double width = 0.5 * rate / static_cast<double>(options.bins - 1);
  const double first = std::floor(1.5 + options.lower / width);
  const double last = std::floor(options.upper / width);
  std::vector<float> weights(static_cast<size_t>(options.bins * options.channels), 0.0F);
  for (int64_t bin = 0; bin < options.bins; ++bin) {
    const auto number = static_cast<double>(bin);
    if (number < first || number > last) continue;
    for (int64_t channel = 0; channel < options.channels; ++channel) {
      const double center = low + spacing * static_cast<double>(channel + 1);
      const double share = 1 - std::abs(MelOf(number * width) - center) / spacing;
      weights[static_cast<size_t>(bin * options.channels + channel)] =
          static_cast<float>(std::max(share, 0.0));
    }
  }
  return Floats(c, {options.bins, options.channels}, weights);
}

}  // namespace

// [samples, channels] -> [channels, frames, bins]: a periodic Hann window, padded to a power of 2.
absl::Status AudioSpectrogram(Converter& c) {
  TfNode n(c);
  if (c.Rank(c.in(0)) != 2) return c.Error("its input is not [samples, channels]");
  const int64_t window = n.Int("window_size"), stride = n.Int("stride");
  if (window < 2 || window > kMaxWindow || stride < 1 || stride > kMaxWindow)
    return c.Error(fmt::format("has window_size {} and stride {}", window, stride));
  const Dim samples = c.type(c.in(0)).dims[0];
  if (!samples.is_static() || samples.value() > kMaxSize)
    return c.Unsupported("the number of samples is known only at run time");
  int64_t points = 1;
  while (points < window) points *= 2;
  const int64_t frames = samples.value() < window ? 0 : 1 + (samples.value() - window) / stride;
  if (frames * window > int64_t{1} << 28) return c.Unsupported("its frames have too many samples");
  std::vector<int64_t> places;
  for (int64_t i = 0; i < frames; ++i) {
    for (int64_t k = 0; k < window; ++k) places.push_back(i * stride + k);
  }
  std::vector<float> hann;
  for (int64_t i = 0; i < window; ++i)
    hann.push_back(static_cast<float>(
        0.5 - 0.5 * std::cos(2 * kPi * static_cast<double>(i) / static_cast<double>(window))));
  const ValueId rows = n.Transpose(c.in(0), {1, 0});
  const ValueId cut =
      n.Emit("Gather", {rows, c.AddConstant(Tensor::Of(DataType::kI64, {frames, window}, places))},
             {{"axis", int64_t{1}}});
  const ValueId shaped = n.Emit("Mul", {cut, Floats(c, {window}, hann)});
  const ValueId spectra =
      n.Emit("DFT",
             {n.Emit("Unsqueeze", {shaped, c.Ints({-1})}),
              c.Scalar(DataType::kI64, static_cast<double>(points)), c.Scalar(DataType::kI64, -2)},
             {{"onesided", int64_t{1}}});
  ValueId power = n.Emit("ReduceSumSquare", {spectra, c.Ints({-1})}, {{"keepdims", int64_t{0}}});
  if (!n.Flag("magnitude_squared")) power = n.Emit("Sqrt", {power});
  return Finish(c, power);
}

// Cepstral coefficients: the cosine transform of the logarithms of what bands of pitch hold.
absl::Status Mfcc(Converter& c) {
  TfNode n(c);
  QUENCH_RETURN_IF_ERROR(RequireInputs(c, 2));
  QUENCH_RETURN_IF_ERROR(c.RequireRank(0));
  const Type type = c.type(c.in(0));
  if (type.rank() != 3 || !type.dims[2].is_static() || type.dims[2].value() < 2)
    return c.Error("its input is not [channels, frames, bins]");
  const MelOptions options = {n.Float("lower_frequency_limit", 20),
                              n.Float("upper_frequency_limit", 4000),
                              n.Int("filterbank_channel_count", 40),
                              n.Int("dct_coefficient_count", 13), type.dims[2].value()};
  if (options.channels < 1 || options.channels > kMaxChannels || options.coefficients < 1 ||
      options.coefficients > options.channels || options.bins > kMaxWindow ||
      !(options.lower >= 0 && options.upper > options.lower))
    return c.Error(fmt::format("has {} of {} bands from {} to {} Hz", options.coefficients,
                               options.channels, options.lower, options.upper));
  const Tensor* known = c.constant(c.in(1));
  const double rate = known != nullptr && known->size() == 1 ? known->FloatAt(0) : 0;
  if (known != nullptr && rate <= 0) return c.Error(fmt::format("its sample rate is {}", rate));
  const ValueId weights =
      known != nullptr
          ? MelWeights(c, options, rate)
          : MelWeights(n, options,
                       n.Emit("Reshape", {n.Cast(c.in(1), DataType::kF32), c.Ints({})}));
  const ValueId bands = n.Emit("MatMul", {n.Emit("Sqrt", {c.in(0)}), weights});
  const ValueId logs = n.Emit("Log", {n.Emit("Max", {bands, c.Scalar(DataType::kF32, 1e-12)})});
  std::vector<float> cosines;
  const auto count = static_cast<double>(options.channels);
  for (int64_t band = 0; band < options.channels; ++band) {
    for (int64_t i = 0; i < options.coefficients; ++i)
      cosines.push_back(static_cast<float>(
          std::sqrt(2.0 / count) *
          std::cos(kPi / count * static_cast<double>(i) * (static_cast<double>(band) + 0.5))));
  }
  return Finish(
      c, n.Emit("MatMul", {logs, Floats(c, {options.channels, options.coefficients}, cosines)}));
}

// The input is the file as bytes; its samples are 16-bit integers behind a header of 44 bytes.
absl::Status DecodeWav(Converter& c) {
  TfNode n(c);
  const Type type = c.type(c.in(0));
  if (type.dtype != DataType::kU8 || type.rank() != 1 || !type.dims[0].is_static())
    return c.Unsupported(
        "its input is not a tensor of bytes with a known length (--shape NAME=BYTES)");
  const int64_t channels = std::max<int64_t>(n.Int("desired_channels", -1), 1);
  const int64_t bytes = type.dims[0].value();
  if (bytes < kWavHeader || channels > 16)
    return c.Error(fmt::format("has {} bytes and {} channels", bytes, channels));
  const int64_t there = (bytes - kWavHeader) / (2 * channels);
  const int64_t wanted = n.Int("desired_samples", -1) < 0 ? there : n.Int("desired_samples");
  if (wanted > kMaxSize / 16) return c.Error(fmt::format("wants {} samples", wanted));
  const auto part = [&](int64_t from, int64_t to) {
    return n.Emit("Slice", {c.in(0), c.Ints({from}), c.Ints({to}), c.Ints({0})});
  };
  const int64_t used = std::min(there, wanted) * channels;
  const ValueId pairs =
      n.Emit("Reshape", {part(kWavHeader, kWavHeader + 2 * used), c.Ints({used, 2})});
  // As unsigned; from 32768 on they are negative.
  const ValueId number = Combined(n, pairs, {1, 256});
  const auto scalar = [&](double value) { return c.Scalar(DataType::kF32, value); };
  const ValueId negative = n.Emit("GreaterOrEqual", {number, scalar(32768)});
  const ValueId centred =
      n.Emit("Where", {negative, n.Emit("Sub", {number, scalar(65536)}), number});
  const ValueId audio = n.Emit("Mul", {centred, scalar(1 / 32768.0)});
  ValueId samples = n.Emit("Reshape", {audio, c.Ints({used / channels, channels})});
  if (wanted > there) samples = n.Emit("Pad", {samples, c.Ints({0, 0, wanted - there, 0})});
  const ValueId rate = n.Cast(Combined(n, part(24, 27), {1, 256, 65536}), DataType::kI32);
  return c.FinalValues({samples, rate});
}

}  // namespace quench::importer::tensorflow_ops
