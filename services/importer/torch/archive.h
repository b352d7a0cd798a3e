// The zip archives that PyTorch writes, read where they lie in memory.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quench::importer {

// Bytes, and what keeps them alive.
struct TorchBytes {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;

  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
};

class TorchArchive {
 public:
  // Nothing is unpacked yet. INVALID_ARGUMENT for archives that are damaged, encrypted, in several
  // parts, or whose entries lie outside the file, have a name twice, are links or leave the archive's
  // folder; RESOURCE_EXHAUSTED for more than 100,000 entries, or more than 4 GiB or a thousandfold to
  // unpack.
  static absl::StatusOr<std::shared_ptr<const TorchArchive>> Open(TorchBytes file);

  // Names as they are in the archive, minus the folder that all of them lie in.
  bool Has(const std::string& name) const { return entries_.contains(name); }
  std::vector<std::string> Names() const;
  // The whole entry, with its checksum verified. Entries stored without compression are not copied.
  absl::StatusOr<TorchBytes> Read(const std::string& name) const;
  const std::string& folder() const { return folder_; }  // "model/", or ""

 private:
  struct Entry {
    uint64_t offset = 0, packed = 0, unpacked = 0;
    uint32_t checksum = 0;
    uint16_t method = 0;
  };

  absl::Status List();
  absl::Status AddEntry(std::span<const std::byte> record, std::string name, uint64_t& unpacked);
  void StripFolder();
  absl::StatusOr<TorchBytes> Inflate(const std::string& name, const Entry& entry,
                                     std::span<const std::byte> packed) const;

  TorchBytes file_;
  std::map<std::string, Entry> entries_;
  std::string folder_;
};

// The bytes begin as a zip archive does.
bool LooksLikeZip(std::span<const std::byte> bytes);

}  // namespace quench::importer
