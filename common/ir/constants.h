// Constants in blobs.
#pragma once

#include <absl/status/statusor.h>

#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/blobs/blob_store.h"
#include "common/ir/graph.h"
#include "common/ir/text.h"

namespace quench {

// Weights are packed into blobs of at most this size, so that a reader maps no more than it needs.
inline constexpr uint64_t kMaxWeightBlobBytes = uint64_t{256} << 20;

// Reads the constants of one module. Blobs are mapped once. A tensor of one range is a view and
// costs no memory; several ranges, or one that is not aligned to 16 bytes, are copied into one
// buffer. At most `max_repeated_bytes` more are copied than the blobs hold, so that a message
// cannot claim memory that nobody has stored.
class ConstantReader {
 public:
  explicit ConstantReader(BlobStore& store, uint64_t max_repeated_bytes = uint64_t{2} << 30)
      : store_(store), allowance_(max_repeated_bytes) {}

  // Fails when the dims of `type` are not static sizes that fit, or the ranges do not add up to the
  // tensor's bytes or reach beyond their blob. Strings do not live in blobs.
  absl::StatusOr<Tensor> Read(const Type& type, std::span<const BlobRange> location);

 private:
  absl::StatusOr<std::shared_ptr<const FileMapping>> Open(const std::string& digest);

  BlobStore& store_;
  std::map<std::string, std::shared_ptr<const FileMapping>> blobs_;
  uint64_t allowance_;  // bytes that may still be copied
};

// For ParseGraph. `store` outlives the loader.
ConstantLoader ConstantLoaderFrom(BlobStore& store);

// Writes tensors one after the other into blobs of at most kMaxWeightBlobBytes, at offsets that are
// multiples of 64. A tensor that fits into one blob is never cut.
class ConstantWriter {
 public:
  explicit ConstantWriter(BlobStore& store, uint64_t max_blob_bytes = kMaxWeightBlobBytes)
      : store_(store), max_blob_bytes_(max_blob_bytes) {}

  // `*location` is filled in by now or by Finish; it stays where it is until then.
  absl::Status Add(const Tensor& tensor, std::vector<BlobRange>* location);
  absl::Status Finish();

 private:
  absl::Status AddPiece(std::span<const std::byte> bytes, std::vector<BlobRange>* location);

  struct Pending {
    std::vector<BlobRange>* location;
    size_t index;
  };
  BlobStore& store_;
  const uint64_t max_blob_bytes_;
  std::unique_ptr<BlobWriter> writer_;
  std::vector<Pending> pending_;  // ranges in the blob that is being written
};

// Where the tensors above kMaxInlineBytes of a graph lie: its constants and the attributes of its
// nodes, in bodies too. Equal bytes (and equal addresses) are stored once.
class WeightPlaces {
 public:
  explicit WeightPlaces(BlobStore& store) : store_(store), writer_(store) {}

  struct Place {
    std::string digest;  // of the tensor's own bytes
    std::vector<BlobRange> location;
  };

  static bool IsLarge(const Tensor& tensor) { return tensor.bytes().size() > kMaxInlineBytes; }
  // Writes to the store what does not lie there. Once, and the graph stays as it is while places are asked for.
  absl::Status Add(const Graph& graph);
  // `tensor` is one of the graph's, and large.
  bool empty() const { return places_.empty(); }
  const Place& Of(const Tensor& tensor) const { return *by_bytes_.at(tensor.bytes().data()); }

 private:
  absl::Status Add(const Tensor& tensor, const Constant* constant);
  bool Stored(const std::vector<BlobRange>& location);

  BlobStore& store_;
  ConstantWriter writer_;
  std::deque<Place> places_;  // addresses stay
  std::unordered_map<std::string, Place*> by_digest_;
  std::unordered_map<const std::byte*, Place*> by_bytes_;
};

}  // namespace quench
