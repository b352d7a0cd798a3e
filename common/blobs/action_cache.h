// Results of steps by the hash of what determines them.
#pragma once

#include <absl/status/statusor.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "common/base/context.h"

namespace quench {

inline constexpr uint64_t kMaxActionBytes = uint64_t{4} << 20;

// Keys are 64 lower-case hex characters; values are serialised ActionResults of
// build.bazel.remote.execution.v2, by convention: this code does not look into them. Thread-safe.
class ActionCache {
 public:
  virtual ~ActionCache() = default;
  // The value; nothing if the key is not known.
  virtual absl::StatusOr<std::optional<std::string>> Get(const std::string& key,
                                                         const StepContext& step) = 0;
  // Replaces an existing value. RESOURCE_EXHAUSTED for values of more than kMaxActionBytes.
  virtual absl::Status Put(const std::string& key, const std::string& value,
                           const StepContext& step) = 0;
};

// A cache in a folder: `ac/ab/<key>`, next to a store's blobs. Processes may share it.
class LocalActionCache : public ActionCache {
 public:
  // Above `max_bytes`, least recently used entries are removed.
  static absl::StatusOr<std::shared_ptr<LocalActionCache>> Open(const std::filesystem::path& root,
                                                                uint64_t max_bytes = uint64_t{256}
                                                                                     << 20);

  absl::StatusOr<std::optional<std::string>> Get(const std::string& key,
                                                 const StepContext& step) override;
  absl::Status Put(const std::string& key, const std::string& value,
                   const StepContext& step) override;

 private:
  LocalActionCache(std::filesystem::path folder, uint64_t max_bytes)
      : folder_(std::move(folder)), max_bytes_(max_bytes) {}
  void Prune();

  const std::filesystem::path folder_;
  const uint64_t max_bytes_;
  std::atomic<uint64_t> bytes_{0};  // at most those in the folder, unless others write too
};

}  // namespace quench
