// Folders in which code that is not trusted has made what it liked: any depth, any mode, any number of files.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <filesystem>

namespace quench {

// Bytes of the disk that what lies beneath `folder` takes, until there are more than `enough`. Each file and
// folder counts as much as a disk has for each at least, so that empty ones are not for nothing. Links are not
// followed. RESOURCE_EXHAUSTED when folders cannot be looked into, or lie more than 32 deep.
absl::StatusOr<int64_t> BytesBeneath(const std::filesystem::path& folder, int64_t enough);

// Removes `folder` with all beneath, as far as this user may; links are not followed. Holds two descriptors,
// however deep it is. Nobody else may be at work in it.
void RemoveTree(const std::filesystem::path& folder);

}  // namespace quench
