// The weight section: a relocatable object that we write ourselves, straight to a file, in the target's format.
//
// Weights never enter an LLVM module and never sit in anonymous memory: they are appended piece by
// piece in execution order, and the linker maps the file.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "services/codegen/object/formats.h"

namespace quench::codegen {

// The hidden symbol at the start of the section, behind the library's prefix.
inline constexpr char kWeightsSymbol[] = "quench_weights";

class WeightsWriter {
 public:
  // Creates the file. The object is of `target`'s machine; it is complete after Finish.
  static absl::StatusOr<std::unique_ptr<WeightsWriter>> Create(const std::filesystem::path& path,
                                                               const Target& target,
                                                               const std::string& link_prefix = "");
  ~WeightsWriter();
  WeightsWriter(const WeightsWriter&) = delete;
  WeightsWriter& operator=(const WeightsWriter&) = delete;

  // Starts an entry at the next multiple of 64 and returns its offset in the section.
  absl::StatusOr<uint64_t> Begin();
  // Adds bytes to the entry begun last.
  absl::Status Append(std::span<const std::byte> bytes);
  uint64_t size() const { return size_; }

  // Writes symbol and section tables. A 32-bit object of more than 2 GiB is RESOURCE_EXHAUSTED.
  absl::Status Finish();

 private:
  WeightsWriter(std::filesystem::path path, int fd, const Target& target, std::string symbol);
  absl::Status Flush();

  std::filesystem::path path_;
  int fd_;
  Target target_;
  const ObjectFormat& format_;
  std::string symbol_;
  uint64_t size_ = 0;  // of the section
  std::string buffer_;
};

}  // namespace quench::codegen
