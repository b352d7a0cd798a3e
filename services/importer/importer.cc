#include "services/importer/importer.h"

#include <algorithm>
#include <iterator>

#include "common/base/files.h"
#include "common/base/status.h"
#include "services/importer/frontend.h"

namespace quench::importer {
namespace {

std::vector<const Frontend*> AllFrontends() {
  return {
#define QUENCH_FRONTEND(name) &name##Frontend(),
#include "services/importer/frontends.def"
#undef QUENCH_FRONTEND
  };
}

// By name if one is given, else by file extension, else by content.
absl::StatusOr<const Frontend*> PickFrontend(const std::filesystem::path& path,
                                             const std::string& format) {
  const std::vector<const Frontend*> frontends = AllFrontends();
  std::string names;
  for (const Frontend* frontend : frontends)
    names += fmt::format("{}`{}`", names.empty() ? "" : ", ", frontend->name);
  for (const Frontend* frontend : frontends) {
    if (format == frontend->name || (format.empty() && path.extension() == frontend->extension))
      return frontend;
  }
  if (!format.empty()) return InvalidArgument("format `{}`, known are {}", format, names);
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<const FileMapping> mapping,
                          FileMapping::Open(path));
  if (mapping->bytes().empty()) return InvalidArgument("`{}` is empty", path.filename().string());
  for (const Frontend* frontend : frontends) {
    if (frontend->matches(mapping->bytes())) return frontend;
  }
  return InvalidArgument("`{}` is of no known format, known are {}", path.filename().string(),
                         names);
}

}  // namespace

absl::StatusOr<Imported> ImportModel(const std::filesystem::path& path,
                                     const ImportOptions& options, BlobStore& store,
                                     const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const Frontend* frontend, PickFrontend(path, options.format));
  return frontend->import(path, options, store, context);
}

absl::StatusOr<std::vector<UnsupportedOp>> FindUnsupported(const std::filesystem::path& path,
                                                           const ImportOptions& options) {
  QUENCH_ASSIGN_OR_RETURN(const Frontend* frontend, PickFrontend(path, options.format));
  return frontend->find_unsupported(path, options);
}

std::vector<KnownOp> KnownOps() {
  std::vector<KnownOp> all;
  for (const Frontend* frontend : AllFrontends()) {
    std::vector<KnownOp> known = frontend->known_ops();
    std::move(known.begin(), known.end(), std::back_inserter(all));
  }
  return all;
}

std::vector<std::string> WarningsOf(const Graph& graph) {
  std::vector<std::string> warnings;
  for (const auto& [key, text] : graph.metadata) {
    if (key.starts_with("warning.")) warnings.push_back(text);
  }
  return warnings;
}

absl::StatusOr<std::vector<std::string>> ExternalLocations(const std::filesystem::path& path,
                                                           const ImportOptions& options) {
  QUENCH_ASSIGN_OR_RETURN(const Frontend* frontend, PickFrontend(path, options.format));
  return frontend->external_locations(path);
}

}  // namespace quench::importer
