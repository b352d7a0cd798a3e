// Constants in blobs.
#pragma once

#include <absl/status/statusor.h>

#include <span>
#include <string>
#include <vector>

#include "common/blobs/blob_store.h"
#include "common/ir/graph.h"
#include "common/ir/text.h"

namespace quench {

// A tensor whose bytes lie in `location`. One range is mapped and costs no memory; several, or one
// that is not aligned to 16 bytes, are copied into one buffer. Fails when the dims are not static
// sizes that fit, the ranges do not add up to the tensor's bytes or reach beyond their blob.
// Strings do not live in blobs.
absl::StatusOr<Tensor> LoadConstant(BlobStore& store, const Type& type,
                                    std::span<const BlobRange> location);

// For ParseGraph. `store` outlives the loader.
ConstantLoader ConstantLoaderFrom(BlobStore& store);

// Writes tensors one after the other into blobs of at most kMaxBlobBytes, at offsets that are
// multiples of 64. A tensor that fits into one blob is never cut.
class ConstantWriter {
 public:
  explicit ConstantWriter(BlobStore& store) : store_(store) {}

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
  std::unique_ptr<BlobWriter> writer_;
  std::vector<Pending> pending_;  // ranges in the blob that is being written
};

}  // namespace quench
