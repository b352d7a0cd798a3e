// Spectra: complex values are pairs of real and imaginary part along an axis behind the others.
#include "common/base/status.h"
#include "services/importer/tflite/converters.h"

namespace quench::importer::tflite_ops {
namespace {

constexpr int64_t kMaxPoints = int64_t{1} << 24;  // of a transform along one axis

ValueId Part(TfliteNode& n, int64_t part) {
  return n.Emit("Gather", {n.Raw(0), n.c.Scalar(DataType::kI64, static_cast<double>(part))},
                {{"axis", int64_t{-1}}});
}

}  // namespace

absl::Status Rfft2d(Converter& c) {
  TfliteNode n(c);
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> points, n.RequireInts(1, "the fft_length"));
  QUENCH_RETURN_IF_ERROR(c.RequireRank(0));
  if (points.size() != 2 || c.Rank(c.in(0)) < 2)
    return c.Error(fmt::format("has {} lengths for an input of rank {}, expected 2 axes",
                               points.size(), c.Rank(c.in(0))));
  for (const int64_t length : points) {
    if (length < 1 || length > kMaxPoints)
      return c.Error(fmt::format("has fft_length [{}, {}]", points[0], points[1]));
  }
  const auto whole = [&](int64_t value) {
    return c.Scalar(DataType::kI64, static_cast<double>(value));
  };
  const auto transform = [&](ValueId x, int64_t length, int64_t axis, bool of_reals) {
    return n.Emit("DFT", {x, whole(length), whole(axis)}, {{"onesided", int64_t{of_reals}}});
  };
  const ValueId pairs = n.Emit("Unsqueeze", {n.Real(0), c.Ints({-1})});
  return n.FinishRaw(transform(transform(pairs, points[1], -2, true), points[0], -3, false));
}

absl::Status RealPart(Converter& c) {
  TfliteNode n(c);
  return n.FinishRaw(Part(n, 0));
}

absl::Status ImaginaryPart(Converter& c) {
  TfliteNode n(c);
  return n.FinishRaw(Part(n, 1));
}

absl::Status Magnitude(Converter& c) {
  TfliteNode n(c);
  return n.FinishRaw(n.Emit("ReduceL2", {n.Raw(0), c.Ints({-1})}, {{"keepdims", int64_t{0}}}));
}

}  // namespace quench::importer::tflite_ops
