// Blobs that stay where their pieces lie, to be written somewhere once all of them are known.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/blobs/blob_store.h"
#include "common/blobs/digest.h"

namespace quench {

struct SpanBlob {
  std::string digest;
  uint64_t size = 0;
  std::vector<std::span<const std::byte>> pieces;
};

// Spans that are appended to its writers must outlive it. It holds nothing that could be opened.
class SpanBlobs final : public BlobStore {
 public:
  absl::StatusOr<std::unique_ptr<BlobWriter>> Create() override {
    return std::make_unique<Writer>(blobs_);
  }
  absl::StatusOr<std::shared_ptr<const FileMapping>> Open(const std::string& digest) override {
    return absl::NotFoundError(fmt::format("blob `{}` is not written yet", digest));
  }
  bool Contains(const std::string&) override { return false; }
  // In the order in which they were committed.
  const std::vector<SpanBlob>& blobs() const { return blobs_; }

 private:
  class Writer final : public BlobWriter {
   public:
    explicit Writer(std::vector<SpanBlob>& blobs) : blobs_(blobs) {}

    absl::Status Append(std::span<const std::byte> bytes) override {
      if (bytes.empty()) return absl::OkStatus();
      sha_.Update(bytes);
      blob_.size += bytes.size();
      blob_.pieces.push_back(bytes);
      return absl::OkStatus();
    }
    uint64_t size() const override { return blob_.size; }
    absl::StatusOr<std::string> Commit() override {
      blob_.digest = sha_.HexDigest();
      blobs_.push_back(blob_);
      return blob_.digest;
    }
    absl::Status CommitAs(const BlobId& id) override {
      QUENCH_ASSIGN_OR_RETURN(const std::string digest, Commit());
      if (digest == id.hash && size() == id.size) return absl::OkStatus();
      blobs_.pop_back();
      return WrongBlob(digest, size(), id);
    }

   private:
    std::vector<SpanBlob>& blobs_;
    SpanBlob blob_;
    Sha256 sha_;
  };
  std::vector<SpanBlob> blobs_;
};

}  // namespace quench
