// Spectra of signals.
#include <algorithm>
#include <cmath>

#include "common/base/status.h"
#include "services/importer/torch/converters.h"

namespace quench::importer::torch_ops {
namespace {

// The divisor of a result: in the order of the numbers that _fft_r2c and its kin are given.
enum class Norm : uint8_t { kNone, kRoot, kCount };

// Along axes of x, which has one more axis behind them for the parts. A half spectrum, or the real
// signal that it is of, is that of the last axis.
struct Fourier {
  std::vector<int64_t> axes;
  std::vector<int64_t> lengths;  // to which the axes are cut or filled; -1: as they are
  bool inverse = false, half = false;
  Norm norm = Norm::kNone;
};

absl::StatusOr<ValueId> Transformed(AtenNode& n, ValueId x, const Fourier& f) {
  double count = 1;
  for (size_t k = 0; k < f.axes.size(); ++k) {
    // The half spectrum comes first, or is what is left.
    const size_t i = f.inverse ? k : f.axes.size() - 1 - k;
    const bool half = f.half && i + 1 == f.axes.size();
    const int64_t size = n.SizeAt(x, f.axes[i]);
    const int64_t whole = half && f.inverse && size > 0 ? 2 * (size - 1) : size;
    const int64_t length = f.lengths[i] > 0 ? f.lengths[i] : whole;
    count *= static_cast<double>(length);
    const auto scalar = [&](int64_t value) {
      return n.c.Scalar(DataType::kI64, static_cast<double>(value));
    };
    x = n.Emit("DFT", {x, f.lengths[i] > 0 ? scalar(length) : kNone, scalar(f.axes[i])},
               {{"inverse", int64_t{f.inverse}}, {"onesided", int64_t{half}}});
    if (length < 1 && f.norm != (f.inverse ? Norm::kCount : Norm::kNone))
      return n.c.Unsupported("its norm for a size that only a run knows");
  }
  const double divisor = f.norm == Norm::kNone   ? 1
                         : f.norm == Norm::kRoot ? std::sqrt(count)
                                                 : count;
  if (f.norm == (f.inverse ? Norm::kCount : Norm::kNone)) return x;  // as DFT has it
  return n.Times(x, f.inverse ? count / divisor : 1 / divisor);
}

absl::Status FinishTransformed(AtenNode& n, const Fourier& f) {
  const bool complex =
      n.c.node().op.ends_with(".complex") || n.c.node().op.ends_with(".from_complex");
  ValueId x = n.In("self");
  if (!complex) x = n.Unsqueeze(n.Float(x), {n.Rank(x)});
  QUENCH_ASSIGN_OR_RETURN(ValueId y, Transformed(n, x, f));
  if (f.half && f.inverse) y = n.Squeeze(y, {n.Rank(y) - 1});
  return n.Finish(y);
}

// Axes of the tensor, in the order in which they are given.
absl::StatusOr<std::vector<int64_t>> AxesInOrder(const AtenNode& n, std::vector<int64_t> axes) {
  const bool complex =
      n.c.node().op.ends_with(".complex") || n.c.node().op.ends_with(".from_complex");
  const int64_t rank = n.Rank(n.In("self")) - (complex ? 1 : 0);
  for (int64_t& axis : axes) {
    if (axis < -rank || axis >= rank)
      return n.c.Error(fmt::format("dim has {}, its input has rank {}", axis, rank));
    if (axis < 0) axis += rank;
  }
  return axes;
}

}  // namespace

// torch.fft's functions: of one axis, of two (`fft2`), of any number (`fftn`).
absl::Status Fft(Converter& c) {
  AtenNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireRank(n.In("self"), "self"));
  const std::string name = c.node().op.substr(4, c.node().op.find('.') - 4);  // behind "fft_"
  Fourier f;
  f.inverse = name.starts_with("i");
  f.half = name.find("rfft") != std::string::npos;
  const std::optional<std::vector<int64_t>> sizes = n.Ints(n.Has("s") ? "s" : "n");
  const std::optional<std::vector<int64_t>> dims = n.Ints("dim");
  if ((n.Has("s") || n.Has("n")) && !sizes) return c.Unsupported("sizes that only a run knows");
  if (dims) {
    f.axes = *dims;
  } else if (name.ends_with("n")) {
    const bool complex = !c.node().op.ends_with(".to_complex");
    const int64_t rank = n.Rank(n.In("self")) - (complex ? 1 : 0);
    const int64_t count = sizes ? static_cast<int64_t>(sizes->size()) : rank;
    for (int64_t i = count; i > 0; --i) f.axes.push_back(-i);
  } else {
    f.axes = name.ends_with("2") ? std::vector<int64_t>{-2, -1} : std::vector<int64_t>{-1};
  }
  QUENCH_ASSIGN_OR_RETURN(f.axes, AxesInOrder(n, f.axes));
  f.lengths = sizes ? *sizes : std::vector<int64_t>(f.axes.size(), -1);
  if (f.lengths.size() != f.axes.size()) return c.Error("has not as many sizes as axes");
  const std::string norm = n.Text("norm", "backward");
  f.norm = norm == "ortho"                    ? Norm::kRoot
           : (norm == "forward") != f.inverse ? Norm::kCount
                                              : Norm::kNone;
  return FinishTransformed(n, f);
}

// The operators that Fourier transforms decompose into.
absl::Status FftCore(Converter& c) {
  AtenNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireRank(n.In("self"), "self"));
  const std::optional<std::vector<int64_t>> dims = n.Ints("dim");
  const int64_t norm = n.Int("normalization");
  if (!dims || dims->empty() || norm < 0 || norm > 2)
    return c.Error("has no axes, or no known norm");
  Fourier f;
  QUENCH_ASSIGN_OR_RETURN(f.axes, AxesInOrder(n, *dims));
  f.lengths.assign(f.axes.size(), -1);
  f.norm = static_cast<Norm>(norm);
  f.half = n.Has("last_dim_size") || n.Flag("onesided");
  f.inverse = n.Has("last_dim_size") || (n.Has("forward") && !n.Flag("forward"));
  if (n.Has("last_dim_size")) {
    const std::optional<int64_t> size = n.KnownInt("last_dim_size");
    if (!size) return c.Unsupported("a size that only a run knows");
    f.lengths.back() = *size;
  }
  return FinishTransformed(n, f);
}

// How signals are cut: `size` numbers, each `hop` behind the ones before, times a window as long.
struct Frames {
  int64_t size = 0, hop = 0;
  ValueId window = kNone;
};

static absl::StatusOr<Frames> FramesOf(AtenNode& n) {
  Frames f;
  f.size = n.Int("n_fft", 0);
  f.hop = n.Int("hop_length", f.size / 4);
  const int64_t length = n.Int("win_length", f.size);
  if (f.size < 1 || f.hop < 1 || length < 1 || length > f.size)
    return n.c.Error(
        fmt::format("has n_fft {}, hop_length {}, win_length {}", f.size, f.hop, length));
  f.window = n.In("window");
  if (f.window == kNone)
    f.window = n.c.AddConstant(
        Tensor::Of(DataType::kF32, {length}, std::vector<float>(static_cast<size_t>(length), 1)));
  const int64_t before = (f.size - length) / 2, after = f.size - length - before;
  if (length < f.size) f.window = n.Emit("Pad", {f.window, n.c.Ints({before, after})});
  return f;
}

absl::Status Stft(Converter& c) {
  AtenNode n(c);
  ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  QUENCH_ASSIGN_OR_RETURN(const Frames f, FramesOf(n));
  const bool batched = n.Rank(x) == 2;
  if (!batched) x = n.Unsqueeze(x, {0});
  // [batch, frames, bins, 2] -> [batch, bins, frames, 2]
  const ValueId frames =
      n.Emit("STFT",
             {n.Unsqueeze(x, {2}), c.Scalar(DataType::kI64, static_cast<double>(f.hop)), f.window,
              c.Scalar(DataType::kI64, static_cast<double>(f.size))},
             {{"onesided", int64_t{n.Flag("onesided", true)}}});
  const double factor = n.Flag("normalized") ? 1 / std::sqrt(static_cast<double>(f.size)) : 1;
  const ValueId y = n.Times(n.Transpose(frames, {0, 2, 1, 3}), factor);
  return n.Finish(batched ? y : n.Squeeze(y, {0}));
}

// Frames in windows are added where they overlap, and divided by what the windows' squares add up to.
absl::Status Istft(Converter& c) {
  AtenNode n(c);
  ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  QUENCH_ASSIGN_OR_RETURN(const Frames f, FramesOf(n));
  if (n.Flag("return_complex")) return c.Unsupported("return_complex");
  const bool batched = n.Rank(x) == 4;
  if (!batched) x = n.Unsqueeze(x, {0});
  const int64_t count = n.SizeAt(x, 2);
  if (count < 1) return c.Unsupported("a number of frames that only a run knows");
  // [batch, bins, frames, 2] -> [batch, frames, bins, 2] -> [batch, frames, size]
  const Fourier transform{{2}, {f.size}, true, n.Flag("onesided", true), Norm::kCount};
  QUENCH_ASSIGN_OR_RETURN(ValueId y, Transformed(n, n.Transpose(x, {0, 2, 1, 3}), transform));
  y = n.Emit("Gather", {y, c.Scalar(DataType::kI64, 0)}, {{"axis", int64_t{-1}}});
  if (n.Flag("normalized")) y = n.Times(y, std::sqrt(static_cast<double>(f.size)));
  const int64_t whole = f.size + f.hop * (count - 1);
  const auto added = [&](ValueId frames) {  // [batch, frames, size] -> [batch, whole]
    const ValueId image =
        n.Emit("Col2Im", {n.Transpose(frames, {0, 2, 1}), c.Ints({1, whole}), c.Ints({1, f.size})},
               {{"strides", std::vector<int64_t>{1, f.hop}}});
    return n.Squeeze(image, {1, 2});
  };
  const ValueId squares = n.Emit("Mul", {f.window, f.window});
  const ValueId envelope = added(Broadcast(n, squares, c.Ints({1, count, f.size})));
  y = n.Emit("Div", {added(n.Emit("Mul", {y, f.window})), envelope});
  const int64_t begin = n.Flag("center", true) ? f.size / 2 : 0;
  const int64_t end = n.Has("length") ? begin + n.Int("length", 0) : whole - begin;
  y = n.Slice(y, 1, begin, std::min(end, whole));
  if (end > whole) y = n.Emit("Pad", {y, c.Ints({0, 0, 0, end - whole})});
  return n.Finish(batched ? y : n.Squeeze(y, {0}));
}

}  // namespace quench::importer::torch_ops
