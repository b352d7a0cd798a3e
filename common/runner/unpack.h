// Archives of samples.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <memory>

#include "common/base/context.h"
#include "common/base/files.h"

namespace quench {

// A zip archive unpacked into a folder that goes with the result. At most a million entries and
// 64 GiB; entries whose paths would lead out of the folder are INVALID_ARGUMENT.
class UnpackedArchive {
 public:
  static absl::StatusOr<std::unique_ptr<UnpackedArchive>> Open(const std::filesystem::path& path,
                                                               const StepContext& context);
  // Where the samples lie: the only folder of the archive, where it has nothing beside.
  const std::filesystem::path& samples() const { return samples_; }

 private:
  explicit UnpackedArchive(TempDir folder) : folder_(std::move(folder)) {}
  TempDir folder_;
  std::filesystem::path samples_;
};

}  // namespace quench
