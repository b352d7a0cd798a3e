// Samples as users and clients send them: any bytes give tensors or an error. The first byte says
// what they are taken for: .npy, .npz or an image.
#include <algorithm>

#include "common/ir/npy.h"
#include "common/ir/npz.h"
#include "common/runner/images.h"
#include "tests/fuzz/quantizer/file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using quench::fuzz::Require;

void Check(const quench::Tensor& tensor) {
  const auto count = quench::ElementCount(tensor.dims());
  Require(count && quench::DataTypeBytes(tensor.dtype(), *count) ==
                       static_cast<int64_t>(tensor.bytes().size()),
          "a tensor's dims and bytes do not agree");
}

void CheckNpy(const uint8_t* data, size_t size) {
  const auto whole = quench::ParseNpy({reinterpret_cast<const char*>(data), size}, "sample");
  if (whole.ok()) Check(*whole);
  const quench::fuzz::File file(data, size, ".npy");
  const auto opened = quench::NpyFile::Open(file.path(), "sample");
  if (!opened.ok()) return;
  if (const auto all = (*opened)->All(); all.ok()) Check(*all);
  if ((*opened)->dims().empty() || (*opened)->dims()[0] < 2) return;
  if (const auto row = (*opened)->Rows(1, 1); row.ok()) Check(*row);
}

void CheckNpz(const uint8_t* data, size_t size) {
  const quench::fuzz::File file(data, size, ".npz");
  const auto arrays = quench::ReadNpz(file.path(), "sample");
  if (!arrays.ok()) return;
  for (const auto& [name, tensor] : *arrays) Check(tensor);
}

void CheckImage(const uint8_t* data, size_t size, bool png) {
  const quench::fuzz::File file(data, size, png ? ".png" : ".jpg");
  quench::CheckImage(file.path(), "sample").IgnoreError();
  quench::ImagePlace place;
  place.height = 9;
  place.width = 12;
  place.channels_last = size % 2 == 0;
  quench::ImageOptions options;
  options.fit = static_cast<quench::ImageFit>(size % 3);
  const auto tensor =
      quench::ReadImage(file.path(), place, quench::DataType::kF32, options, "sample");
  if (!tensor.ok()) return;
  Check(*tensor);
  Require(tensor->size() == 9 * 12 * 3, "an image has another size than the input");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  switch (data[0] % 4) {
    case 0:
      CheckNpy(data + 1, size - 1);
      break;
    case 1:
      CheckNpz(data + 1, size - 1);
      break;
    default:
      CheckImage(data + 1, size - 1, data[0] % 4 == 2);
  }
  return 0;
}
