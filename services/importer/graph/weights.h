// Constants on their way from a model into the blob store.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/base/context.h"
#include "common/blobs/blob_store.h"
#include "common/ir/graph.h"

namespace quench::importer {

// Tensors of this size and more go into blobs; smaller ones are kept in memory.
inline constexpr int64_t kBlobTensorBytes = 4096;

inline constexpr int kMaxRank = 64;  // of tensors in models

// Facts that a format gives about a tensor before its data is read.
struct TensorHeader {
  DataType dtype = DataType::kUndefined;
  std::vector<int64_t> dims;
  int64_t count = 0;  // elements
  int64_t bytes = 0;  // dense, 0 for strings
};

// The count and bytes of `dtype` and `dims`. INVALID_ARGUMENT for negative dims, a rank above
// kMaxRank and sizes beyond 2^62 bytes. Allocates nothing.
absl::StatusOr<TensorHeader> HeaderOf(DataType dtype, std::vector<int64_t> dims);

using ByteSink = std::function<absl::Status(std::span<const std::byte>)>;
// Feeds a tensor's dense row-major little-endian bytes to the sink, in order, in pieces.
using ByteSource = std::function<absl::Status(const ByteSink&)>;

// Packs large tensors into blobs of at most kMaxWeightBlobBytes, streaming: no tensor is in memory as a
// whole while it is written. A tensor above that size goes over several blobs. Constants are usable
// after Finish.
class WeightWriter {
 public:
  WeightWriter(BlobStore& store, const StepContext& context);

  // Adds a tensor of at least kBlobTensorBytes, not of strings: `source` gives `header.bytes` bytes.
  absl::StatusOr<std::shared_ptr<const Constant>> AddLarge(const std::string& name,
                                                           const TensorHeader& header,
                                                           const ByteSource& source);
  // Adds a tensor from memory, of any size and type.
  absl::StatusOr<std::shared_ptr<const Constant>> Add(const std::string& name,
                                                      const Tensor& tensor);
  absl::Status Finish();

  // The constant whose bytes begin at this address, or null: attributes of nodes hold bare tensors.
  std::shared_ptr<const Constant> FindByBytes(const std::byte* bytes) const;

  void set_total_bytes(int64_t bytes) { total_bytes_ = bytes; }

 private:
  struct Unread {
    std::shared_ptr<Constant> constant;
    Type type;
  };
  absl::Status MakeRoom(uint64_t bytes);
  absl::Status Append(Constant& constant, std::span<const std::byte> piece);
  absl::Status Commit();

  BlobStore& store_;
  const StepContext& context_;
  std::unique_ptr<BlobWriter> writer_;
  std::vector<std::pair<Constant*, size_t>> open_ranges_;  // of the blob that is being written
  std::vector<Unread> unread_;                             // constants that Finish maps
  std::unordered_map<const std::byte*, std::shared_ptr<const Constant>> by_bytes_;
  int64_t done_bytes_ = 0;
  int64_t total_bytes_ = 0;
};

}  // namespace quench::importer
