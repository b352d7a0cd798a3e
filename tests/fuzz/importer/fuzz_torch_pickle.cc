// Any bytes as a pickle of PyTorch: values whose tensors are read from a storage of 64 bytes, or an error.
#include "common/base/status.h"
#include "services/importer/torch/tensors.h"

namespace quench::importer {
namespace {

void Visit(const Pickled& value, const StorageReader& storages, int depth, int& left) {
  if (depth > kMaxPickleDepth || --left < 0) return;
  if (IsTensor(value)) (void)ReadTensor(value, storages);
  for (const Pickled* item : value.items) Visit(*item, storages, depth + 1, left);
  if (value.state != nullptr) Visit(*value.state, storages, depth + 1, left);
}

}  // namespace
}  // namespace quench::importer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using quench::importer::TorchBytes;
  const auto file = quench::importer::ReadPickle(std::as_bytes(std::span(data, size)));
  if (!file.ok()) {
    QUENCH_CHECK(!quench::MessageOf(file.status()).empty());
    return 0;
  }
  static const std::vector<std::byte> storage(64);
  int left = 10'000;  // values may be shared many times over
  quench::importer::Visit(
      (*file)->root(),
      [](const std::string&) -> absl::StatusOr<TorchBytes> { return TorchBytes{storage, nullptr}; },
      0, left);
  return 0;
}
