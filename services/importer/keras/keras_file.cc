#include "services/importer/keras/keras_file.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "common/base/printable.h"
#include "common/base/status.h"
#include "common/ir/zip_archive.h"

namespace quench::importer {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kZipSignature = "PK\x03\x04";
// The names of an archive's files stand at its end.
constexpr size_t kZipEnd = 1 << 16;
constexpr char kConfigFile[] = "config.json";
constexpr char kMetadataFile[] = "metadata.json";
constexpr char kWeightsFile[] = "model.weights.h5";
constexpr size_t kMaxConfig = size_t{256} << 20;

int MajorOf(const std::string& version) {
  int major = 0;
  const auto [end, error] = std::from_chars(version.data(), version.data() + version.size(), major);
  return error == std::errc() && major >= 1 && major <= 1000 ? major : 2;
}

bool IsArchive(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kZipSignature)) return false;
  const std::string_view end = text.substr(text.size() - std::min(text.size(), kZipEnd));
  return end.find(kConfigFile) != std::string_view::npos &&
         end.find(kMetadataFile) != std::string_view::npos;
}

absl::StatusOr<KerasFile> OpenArchive(const std::filesystem::path& path,
                                      const StepContext& context) {
  KerasFile file;
  file.is_archive = true;
  file.version = 3;
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<ZipArchive> archive, ZipArchive::Open(path));
  const auto read = [&](std::string_view name) -> absl::StatusOr<std::string> {
    const auto& members = archive->members();
    for (size_t i = 0; i < members.size(); ++i) {
      if (members[i].name == name) return archive->Read(i);
    }
    return InvalidArgument("the archive has no `{}`", name);
  };
  QUENCH_ASSIGN_OR_RETURN(const std::string metadata, read(kMetadataFile));
  const Json described = Json::parse(metadata, nullptr, false);
  if (described.is_object() && described.contains("keras_version") &&
      described["keras_version"].is_string()) {
    file.written_by = Printable(described["keras_version"].get<std::string>());
    file.version = MajorOf(file.written_by);
  }
  QUENCH_ASSIGN_OR_RETURN(const std::string config, read(kConfigFile));
  QUENCH_ASSIGN_OR_RETURN(file.model, ParseKerasModel(config, file.version));
  QUENCH_ASSIGN_OR_RETURN(const std::string weights, read(kWeightsFile));
  QUENCH_ASSIGN_OR_RETURN(file.weights, ReadHdf5(std::as_bytes(std::span(weights)), context));
  return file;
}

// The text of a JSON file with an architecture, as Keras' to_json writes it.
absl::Status TakeArchitecture(const std::string& text, KerasFile& file) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_object() && json.contains("keras_version") && json["keras_version"].is_string()) {
    file.written_by = Printable(json["keras_version"].get<std::string>());
    file.version = MajorOf(file.written_by);
  }
  absl::StatusOr<KerasModel> model = ParseKerasModel(text, file.version);
  if (!model.ok()) return Annotate(model.status(), "architecture");
  file.model = *std::move(model);
  return absl::OkStatus();
}

absl::StatusOr<KerasFile> OpenHdf5(const FileMapping& mapping, const ImportOptions& options,
                                   const StepContext& context) {
  KerasFile file;
  QUENCH_ASSIGN_OR_RETURN(file.weights, ReadHdf5(mapping.bytes(), context));
  const auto text = [&](const std::string& object, const char* name) -> const std::string* {
    const std::vector<std::string>* found = file.weights.Attribute(object, name);
    return found == nullptr || found->size() != 1 ? nullptr : &found->front();
  };
  const bool whole = file.weights.Attribute("model_weights", "layer_names") != nullptr;
  if (whole) file.root = "model_weights/";
  const std::string root = whole ? "model_weights" : "/";
  const std::string* version = text("/", "keras_version");
  if (version == nullptr) version = text(root, "keras_version");
  if (version != nullptr) {
    file.written_by = Printable(*version);
    file.version = MajorOf(file.written_by);
  }
  if (const std::string* config = text("/", "model_config")) {
    if (!options.architecture.empty())
      return InvalidArgument("`architecture` is given, but the file has its own");
    QUENCH_ASSIGN_OR_RETURN(file.model, ParseKerasModel(*config, file.version));
    return file;
  }
  if (file.weights.Attribute(root, "layer_names") == nullptr && !file.weights.datasets.empty() &&
      file.weights.datasets.begin()->first.starts_with("layers/")) {
    file.is_archive = true;  // model.weights.h5 of Keras 3, by itself
    file.version = 3;
  } else if (file.weights.Attribute(root, "layer_names") == nullptr) {
    return InvalidArgument(
        "not a Keras file: the HDF5 file has neither `model_config` nor "
        "`layer_names`");
  }
  if (options.architecture.empty())
    return InvalidArgument(
        "the file has weights alone: give the model's configuration, which Keras' `to_json` "
        "writes, "
        "with `--architecture FILE.json`");
  QUENCH_RETURN_IF_ERROR(TakeArchitecture(options.architecture, file));
  return file;
}

}  // namespace

bool LooksLikeKeras(std::span<const std::byte> bytes) {
  return LooksLikeHdf5(bytes) || IsArchive(bytes);
}

absl::StatusOr<KerasFile> OpenKerasFile(const std::filesystem::path& path,
                                        const ImportOptions& options, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<const FileMapping> mapping,
                          FileMapping::Open(path));
  if (IsArchive(mapping->bytes())) {
    if (!options.architecture.empty())
      return InvalidArgument("`architecture` is given, but the file has its own");
    return OpenArchive(path, context);
  }
  return OpenHdf5(*mapping, options, context);
}

}  // namespace quench::importer
