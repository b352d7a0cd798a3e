// Constants on their way from a model into the blob store.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/base/context.h"
#include "common/blobs/blob_store.h"
#include "common/ir/graph.h"
#include "services/importer/onnx/tensor_data.h"

namespace quench::importer {

// Tensors of this size and more go into blobs; smaller ones are kept in memory.
inline constexpr int64_t kBlobTensorBytes = 4096;

// Packs large tensors into blobs of at most kMaxWeightBlobBytes, streaming: no tensor is in memory as a
// whole while it is written. A tensor above that size goes over several blobs. Constants are usable
// after Finish.
class WeightWriter {
 public:
  WeightWriter(BlobStore& store, const TensorSources& sources, const StepContext& context);

  // Errors name the tensor.
  absl::StatusOr<std::shared_ptr<const Constant>> Add(const onnx::v1::TensorProto& proto);
  absl::StatusOr<std::shared_ptr<const Constant>> Add(const std::string& name,
                                                      const Tensor& tensor);
  absl::Status Finish();

  // The constant whose bytes begin there, or null: attributes of nodes hold bare tensors.
  std::shared_ptr<const Constant> FindByBytes(const std::byte* bytes) const;

  void set_total_bytes(int64_t bytes) { total_bytes_ = bytes; }

 private:
  using Producer = std::function<absl::Status(const ByteSink&)>;
  struct Unread {
    std::shared_ptr<Constant> constant;
    Type type;
  };
  absl::StatusOr<std::shared_ptr<const Constant>> AddLarge(const std::string& name,
                                                           const TensorHeader& header,
                                                           const Producer& produce);
  absl::Status MakeRoom(uint64_t bytes);
  absl::Status Append(Constant& constant, std::span<const std::byte> piece);
  absl::Status Commit();

  BlobStore& store_;
  const TensorSources& sources_;
  const StepContext& context_;
  std::unique_ptr<BlobWriter> writer_;
  std::vector<std::pair<Constant*, size_t>> open_ranges_;  // of the blob that is being written
  std::vector<Unread> unread_;                             // constants that Finish maps
  std::unordered_map<const std::byte*, std::shared_ptr<const Constant>> by_bytes_;
  int64_t done_bytes_ = 0;
  int64_t total_bytes_ = 0;
};

}  // namespace quench::importer
