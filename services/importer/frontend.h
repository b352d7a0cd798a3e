// The interface of frontends to the importer. Each format has a folder, and a row in frontends.def.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "services/importer/importer.h"

namespace quench::importer {

struct Frontend {
  std::string_view name;
  std::string_view extension;  // unrecognized files with it get this frontend's error
  std::string_view doc;
  // The fields of ImportOptions that this format takes and not all do: kOwnOptions of importer.cc.
  std::span<const std::string_view> own_options;
  bool channels_last = false;  // images are [batch, height, width, channels]
  // Whether the bytes are a file of this format.
  bool (*matches)(std::span<const std::byte> bytes);
  absl::StatusOr<Imported> (*import)(const std::filesystem::path& path,
                                     const ImportOptions& options, BlobStore& store,
                                     const StepContext& context);
  absl::StatusOr<std::vector<UnsupportedOp>> (*find_unsupported)(const std::filesystem::path& path,
                                                                 const ImportOptions& options);
  std::vector<KnownOp> (*known_ops)();
  // Null if models of this format are single files.
  absl::StatusOr<std::vector<std::string>> (*external_locations)(const std::filesystem::path& path,
                                                                 const ImportOptions& options);
};

#define QUENCH_FRONTEND(name) const Frontend& name##Frontend();
#include "services/importer/frontends.def"
#undef QUENCH_FRONTEND

}  // namespace quench::importer
