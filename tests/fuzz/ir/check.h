// Properties of every graph that a reader accepts.
#pragma once

#include <cstdlib>
#include <iostream>
#include <string>

#include "common/blobs/blob_store.h"
#include "common/ir/graph.h"

namespace quench::fuzz {

inline void Require(bool condition, const std::string& what) {
  if (condition) return;
  std::cerr << what << "\n";
  std::abort();
}

// A store without blobs: whatever a message refers to is missing.
class EmptyStore : public BlobStore {
 public:
  absl::StatusOr<std::unique_ptr<BlobWriter>> Create() override {
    return absl::ResourceExhaustedError("the store is full");
  }
  absl::StatusOr<std::shared_ptr<const FileMapping>> Open(const std::string&) override {
    return absl::NotFoundError("the store is empty");
  }
  bool Contains(const std::string&) override { return false; }
};

}  // namespace quench::fuzz
