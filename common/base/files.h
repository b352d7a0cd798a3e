// Files: read-only mappings, and writes that appear whole or not at all.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "common/base/errno_status.h"

namespace quench {

// A read-only mapping of a whole file, or a part of one. Shared by everything that points into it;
// unmapped with the last owner.
class FileMapping {
 public:
  static absl::StatusOr<std::shared_ptr<const FileMapping>> Open(const std::filesystem::path& path);
  // `size` bytes at `offset`, which lie within `whole`.
  static std::shared_ptr<const FileMapping> Part(std::shared_ptr<const FileMapping> whole,
                                                 size_t offset, size_t size);
  ~FileMapping();
  FileMapping(const FileMapping&) = delete;
  FileMapping& operator=(const FileMapping&) = delete;

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  FileMapping(void* data, size_t size, std::shared_ptr<const FileMapping> whole = nullptr)
      : data_(data), size_(size), whole_(std::move(whole)) {}
  void* data_;
  size_t size_;
  std::shared_ptr<const FileMapping> whole_;  // null: the mapping is this one's own
};

// Reads a file of at most `limit` bytes; a larger one is RESOURCE_EXHAUSTED.
absl::StatusOr<std::string> ReadFile(const std::filesystem::path& path,
                                     size_t limit = size_t{1} << 30);

// Writes to a temporary name beside `path`, fsyncs, renames. On failure nothing remains.
absl::Status WriteFileAtomically(const std::filesystem::path& path, std::string_view contents);

// A fresh directory under `parent` (default: the system's temporary folder), removed with its
// contents on destruction.
class TempDir {
 public:
  static absl::StatusOr<TempDir> Create(const std::filesystem::path& parent = {});
  TempDir(TempDir&& other) noexcept : path_(std::move(other.path_)) { other.path_.clear(); }
  TempDir& operator=(TempDir&& other) noexcept;
  ~TempDir();
  const std::filesystem::path& path() const { return path_; }
  // Gives up ownership: the directory stays.
  std::filesystem::path Release();

 private:
  explicit TempDir(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

}  // namespace quench
