// Zip archives, with bounds on what they unpack to.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace quench {

struct ZipLimits {
  int64_t entries = 10'000;
  uint64_t bytes = uint64_t{4} << 30;  // in all, unpacked
};

class ZipArchive {
 public:
  struct Member {
    std::string name;
    uint64_t bytes = 0;  // unpacked
  };

  virtual ~ZipArchive() = default;
  // Refused before anything is unpacked: what goes over the limits, and entries that grow by more
  // than a thousand. `shown` is what messages call the file; empty: its path.
  static absl::StatusOr<std::unique_ptr<ZipArchive>> Open(const std::filesystem::path& path,
                                                          const std::string& shown = "",
                                                          const ZipLimits& limits = {});
  virtual const std::vector<Member>& members() const = 0;
  // Whole, its checksum held against it.
  virtual absl::StatusOr<std::string> Read(size_t member) = 0;
};

}  // namespace quench
