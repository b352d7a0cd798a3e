// NumPy's .npz files: zip archives of .npy files.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <map>
#include <string>

#include "common/ir/tensor.h"

namespace quench {

// All arrays of an archive, by name without `.npy`. Refused before anything is unpacked: more than
// 10,000 entries, more than 4 GiB in all, entries that grow by more than a thousand. `shown` is what
// messages call the file; empty: its path.
absl::StatusOr<std::map<std::string, Tensor>> ReadNpz(const std::filesystem::path& path,
                                                      const std::string& shown = "");

}  // namespace quench
