// HDF5 files, read by libhdf5 in a child process: a file that takes over the process finds no other
// file and no network there, and its memory and time are bounded.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/context.h"
#include "common/base/files.h"
#include "services/importer/graph/weights.h"

namespace quench::importer {

struct Hdf5Dataset {
  std::string refused;  // the reason why its numbers were not read, or ""
  TensorHeader header;
  std::span<const std::byte> bytes;  // dense, little-endian, in Hdf5File::numbers
};

// Strings and numbers of a file. Paths have no `/` at the beginning; the root is "/".
struct Hdf5File {
  std::map<std::string, std::map<std::string, std::vector<std::string>>> attributes;
  std::map<std::string, Hdf5Dataset> datasets;
  std::shared_ptr<const FileMapping> numbers;

  // Null if the object lacks it.
  const std::vector<std::string>* Attribute(const std::string& path, const std::string& name) const;
};

bool LooksLikeHdf5(std::span<const std::byte> bytes);

// INVALID_ARGUMENT for what libhdf5 does not read or dies of, RESOURCE_EXHAUSTED where it takes too
// much memory or time. `bytes` are the file's. Links to other files, virtual data sets, filters but deflate
// and shuffle, and shapes that the file has no numbers for are in `refused` of their data sets.
// A reader that uses no CPU time for as long as `patience` is ended, and another one begins; INTERNAL when that has
// happened to several.
constexpr auto kHdf5Patience = std::chrono::milliseconds(20'000);
absl::StatusOr<Hdf5File> ReadHdf5(std::span<const std::byte> bytes, const StepContext& context,
                                  std::chrono::milliseconds patience = kHdf5Patience);

}  // namespace quench::importer
