#include "services/importer/importer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "common/base/beside.h"
#include "common/base/files.h"
#include "common/base/status.h"
#include "common/blobs/digest.h"
#include "services/importer/frontend.h"
#include "services/importer/graph/external_files.h"
#include "services/importer/graph/interface.h"

namespace quench::importer {
namespace {

std::vector<const Frontend*> AllFrontends() {
  return {
#define QUENCH_FRONTEND(name) &name##Frontend(),
#include "services/importer/frontends.def"
#undef QUENCH_FRONTEND
  };
}

// By name if one is given, else by the file's bytes. A file of no format is explained by the format
// whose files are called like it, if there is one.
absl::StatusOr<const Frontend*> PickFrontend(const std::filesystem::path& path,
                                             const std::string& format) {
  const std::vector<const Frontend*> frontends = AllFrontends();
  std::string names;
  for (const Frontend* frontend : frontends)
    names += fmt::format("{}`{}`", names.empty() ? "" : ", ", frontend->name);
  for (const Frontend* frontend : frontends) {
    if (format == frontend->name) return frontend;
  }
  if (!format.empty()) return InvalidArgument("unknown format `{}` (known: {})", format, names);
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<const FileMapping> mapping,
                          FileMapping::Open(path));
  if (mapping->bytes().empty()) return InvalidArgument("`{}` is empty", path.filename().string());
  for (const Frontend* frontend : frontends) {
    if (frontend->matches(mapping->bytes())) return frontend;
  }
  for (const Frontend* frontend : frontends) {
    if (path.extension() == frontend->extension) return frontend;
  }
  return InvalidArgument("`{}` is not a model that Quench can read (formats: {})",
                         path.filename().string(), names);
}

// Refuses options that the format does not have.
absl::Status CheckOptions(const ImportOptions& options, const Frontend& frontend) {
  const std::pair<std::string_view, bool> own_options[] = {
      {"opset", options.opset != 0},
      {"external_root", !options.external_root.empty()},
      {"convert_config", !options.convert_config.empty()},
      {"no_freeze", !options.no_freeze.empty()},
      {"inputs", !options.inputs.empty()},
      {"signature", !options.signature.empty()},
      {"architecture", !options.architecture.empty()},
      {"default_dtype", options.default_dtype != DataType::kUndefined},
      {"keep_quantized_weight", options.keep_quantized_weight}};
  StatusCollector problems;
  for (const auto& [name, given] : own_options) {
    const auto has = [option = name](const Frontend& other) {
      return std::find(other.own_options.begin(), other.own_options.end(), option) !=
             other.own_options.end();
    };
    if (!given || has(frontend)) continue;
    std::vector<std::string_view> owners;
    for (const Frontend* other : AllFrontends()) {
      if (has(*other)) owners.push_back(other->name);
    }
    problems.Add(InvalidArgument("`{}` is an option for models of format {}, this one is `{}`",
                                 name, fmt::join(owners, ", "), frontend.name));
  }
  if (!options.layout.empty() && options.layout != "first" && options.layout != "last")
    problems.Add(InvalidArgument("layout is `{}`, it must be `first` or `last`", options.layout));
  return problems.Finish();
}

// The sha256 of a file beside the model.
absl::StatusOr<std::string> DigestOf(const ExternalFiles::File& file) {
  constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
  Sha256 digest;
  std::vector<std::byte> piece(std::min(file.size, kPieceBytes));
  for (uint64_t at = 0; at < file.size; at += kPieceBytes) {
    const std::span<std::byte> part = std::span(piece).first(std::min(file.size - at, kPieceBytes));
    QUENCH_RETURN_IF_ERROR(ReadFileAt(file, at, part));
    digest.Update(part);
  }
  return digest.HexDigest();
}

// Identity of the model: the sha256 of its file, or, if it has several files, that of the lines
// `<sha256>  <location>\n` of all, by location, in front of which the model's own file is the
// location "model". Files that cannot be read are left out: an import that needs them fails.
std::string SourceDigestOf(const std::filesystem::path& path, std::span<const std::byte> bytes,
                           const Frontend& frontend, const ImportOptions& options) {
  std::string digest = Sha256Hex(bytes);
  absl::StatusOr<std::vector<std::string>> locations = std::vector<std::string>();
  if (frontend.external_locations != nullptr)
    locations = frontend.external_locations(path, options);
  if (!locations.ok() || locations->empty()) return digest;
  std::sort(locations->begin(), locations->end());
  ExternalFiles beside = options.external_files
                             ? ExternalFiles(*options.external_files)
                             : ExternalFiles(options.external_root.empty() ? path.parent_path()
                                                                           : options.external_root);
  std::string lines = fmt::format("{}  model\n", digest);
  for (const std::string& location : *locations) {
    const absl::StatusOr<ExternalFiles::File> file = beside.Open(location);
    const absl::StatusOr<std::string> other = file.ok() ? DigestOf(*file) : file.status();
    if (other.ok()) lines += fmt::format("{}  {}\n", *other, location);
  }
  return Sha256Hex(lines);
}

}  // namespace

absl::StatusOr<std::filesystem::path> ModelFileOf(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return path;
  for (const char* name : {"saved_model.pb", "saved_model.pbtxt"}) {
    if (std::filesystem::is_regular_file(path / name, error)) return path / name;
  }
  return InvalidArgument("`{}` is a folder without `saved_model.pb`, so no TensorFlow saved model",
                         path.string());
}

absl::StatusOr<Imported> ImportModel(const std::filesystem::path& given,
                                     const ImportOptions& options, BlobStore& store,
                                     const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const std::filesystem::path path, ModelFileOf(given));
  QUENCH_ASSIGN_OR_RETURN(const Frontend* frontend, PickFrontend(path, options.format));
  QUENCH_RETURN_IF_ERROR(CheckOptions(options, *frontend));
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<const FileMapping> file, FileMapping::Open(path));
  absl::StatusOr<Imported> read;
  std::string digest;
  RunBeside([&] { digest = SourceDigestOf(path, file->bytes(), *frontend, options); },
            [&] { read = frontend->import(path, options, store, context); });
  QUENCH_ASSIGN_OR_RETURN(Imported imported, std::move(read));
  imported.imported.metadata[kSourceDigest] = digest;
  imported.canonical.metadata[kSourceDigest] = digest;
  if (!options.layout.empty() && (options.layout == "last") != frontend->channels_last) {
    QUENCH_RETURN_IF_ERROR(MoveOutputs(imported.imported, options.layout == "last"));
    QUENCH_RETURN_IF_ERROR(MoveOutputs(imported.canonical, options.layout == "last"));
  }
  return imported;
}

absl::StatusOr<std::vector<UnsupportedOp>> FindUnsupported(const std::filesystem::path& given,
                                                           const ImportOptions& options) {
  QUENCH_ASSIGN_OR_RETURN(const std::filesystem::path path, ModelFileOf(given));
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

std::vector<std::string> WarningsOf(const Graph& graph) { return WarningsOf(graph.metadata); }

std::vector<std::string> WarningsOf(const std::map<std::string, std::string>& metadata) {
  std::vector<std::string> warnings;
  for (const auto& [key, text] : metadata) {
    if (key.starts_with("warning.")) warnings.push_back(text);
  }
  return warnings;
}

absl::StatusOr<std::vector<std::string>> ExternalLocations(const std::filesystem::path& given,
                                                           const ImportOptions& options) {
  QUENCH_ASSIGN_OR_RETURN(const std::filesystem::path path, ModelFileOf(given));
  QUENCH_ASSIGN_OR_RETURN(const Frontend* frontend, PickFrontend(path, options.format));
  QUENCH_RETURN_IF_ERROR(CheckOptions(options, *frontend));
  if (frontend->external_locations == nullptr) return std::vector<std::string>();
  return frontend->external_locations(path, options);
}

}  // namespace quench::importer
