// Provenance of compiled libraries: steps run only libraries that these services have made for the tenant. Uploaded
// native code is not run.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/base/context.h"
#include "common/blobs/action_cache.h"
#include "common/blobs/blob_id.h"

namespace quench::steps {

// The name of the key's file in a folder of blobs.
inline constexpr char kLibraryKey[] = "library.key";

// A library's record is stored among the tenant's results of actions: an HMAC-SHA256 over tenant and digest. A
// record written without the key is not valid. Thread-safe.
class Provenance {
 public:
  // The key is the bytes of `file`, at least 32. `make`: makes the file if it is absent, readable by its owner only.
  static absl::StatusOr<std::shared_ptr<const Provenance>> Open(const std::filesystem::path& file,
                                                                bool make);
  explicit Provenance(std::string key) : key_(std::move(key)) {}

  absl::Status Attest(const std::string& tenant, const BlobId& library, ActionCache& records,
                      const StepContext& step) const;
  absl::StatusOr<bool> Knows(const std::string& tenant, const BlobId& library, ActionCache& records,
                             const StepContext& step) const;

 private:
  std::string Code(const std::string& tenant, const BlobId& library) const;

  const std::string key_;
};

}  // namespace quench::steps
