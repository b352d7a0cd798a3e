// Spectra of signals.
#include "common/base/status.h"
#include "services/importer/torch/converters.h"

namespace quench::importer::torch_ops {

absl::Status Stft(Converter& c) {
  AtenNode n(c);
  ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  const int64_t size = n.Int("n_fft", 0);
  const int64_t hop = n.Int("hop_length", size / 4), length = n.Int("win_length", size);
  if (size < 1 || hop < 1 || length < 1 || length > size)
    return c.Error(fmt::format("has n_fft {}, hop_length {}, win_length {}", size, hop, length));
  if (n.Flag("normalized") || n.Flag("return_complex"))
    return c.Unsupported("normalized or complex spectra");
  const bool batched = n.Rank(x) == 2;
  if (!batched) x = n.Unsqueeze(x, {0});
  ValueId window = n.In("window");
  if (window == kNone)
    window = c.AddConstant(
        Tensor::Of(DataType::kF32, {length}, std::vector<float>(static_cast<size_t>(length), 1)));
  const int64_t before = (size - length) / 2, after = size - length - before;
  if (length < size) window = n.Emit("Pad", {window, c.Ints({before, after})});
  // [batch, frames, bins, 2] -> [batch, bins, frames, 2]
  const ValueId frames =
      n.Emit("STFT",
             {n.Unsqueeze(x, {2}), c.Scalar(DataType::kI64, static_cast<double>(hop)), window,
              c.Scalar(DataType::kI64, static_cast<double>(size))},
             {{"onesided", int64_t{n.Flag("onesided", true)}}});
  const ValueId y = n.Transpose(frames, {0, 2, 1, 3});
  return n.Finish(batched ? y : n.Squeeze(y, {0}));
}

}  // namespace quench::importer::torch_ops
