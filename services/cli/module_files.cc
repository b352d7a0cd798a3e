#include "services/cli/module_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <span>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/ir/constants.h"
#include "common/ops/op.h"
#include "services/cli/colour.h"
#include "services/cli/local_store.h"
#include "services/importer/importer.h"

namespace quench::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kNotHeld[] =
    "Large weights are not printed but kept in your cache, which may be pruned; `--output FILE` "
    "writes them into the file.";

}  // namespace

absl::StatusOr<Graph> LoadModuleFile(const std::string& path) {
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<LocalBlobStore> store, OpenStore());
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<const FileMapping> file, FileMapping::Open(path));
  const fs::path folder = fs::path(path).parent_path();
  absl::StatusOr<Graph> graph = ReadModule(file, folder.empty() ? "." : folder, *store);
  if (absl::IsNotFound(graph.status()) && ErrnoOf(graph.status()) == 0) {
    return Annotate(
        graph.status(),
        fmt::format("`{}` refers to weights that were in the cache `{}` and no longer are: create "
                    "the file again from its model (it will contain the weights)",
                    path, store->root().string()));
  }
  const std::span<const std::byte> head =
      file->bytes().first(std::min<size_t>(file->bytes().size(), 64));
  if (!IsTextModule({reinterpret_cast<const char*>(head.data()), head.size()}))
    return graph.ok() ? std::move(graph) : Annotate(graph.status(), fmt::format("`{}`", path));
  // Types may be left out of the text.
  if (graph.ok() && graph->stage != Stage::kImported)
    QUENCH_RETURN_IF_ERROR(ops::InferGraph(*graph));
  return graph;
}

absl::StatusOr<std::string> ModuleText(const Graph& graph, const PrintOptions& options) {
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<LocalBlobStore> store, OpenStore());
  // Constants that passes made are in memory only; stored, they have a place that the text can name.
  WeightPlaces places(*store);
  QUENCH_RETURN_IF_ERROR(places.Add(graph));
  PrintOptions print = options;
  print.places = &places;
  std::string text = PrintGraph(graph, print);
  if (places.empty()) return text;
  text.insert(std::min(text.find('\n'), text.size()), fmt::format("\n# {}", kNotHeld));
  PrintWarning(kNotHeld);
  return text;
}

void AddWeightsFlag(const Options& options, bool& external_weights,
                    const std::vector<std::string>& outputs) {
  const Option flag = options.In("Output").Rare().Flag(
      "--external-weights", external_weights,
      "Store the weights of a module in FILE.weights beside it instead of in it");
  if (!outputs.empty()) flag.Needs(outputs);
}

std::string WeightsProblem(const std::string& output, bool external_weights) {
  if (!external_weights || fs::path(output).extension() != ".onnx") return "";
  return fmt::format(
      "--external-weights applies to IR modules; `{}` is ONNX, where large weights always go to a "
      "file beside it",
      output);
}

absl::Status RefuseExisting(const std::string& output, bool external_weights) {
  std::vector<fs::path> files = {output};
  if (external_weights) files.push_back(WeightsFileOf(output));
  if (files[0].extension() == ".onnx") files.push_back(importer::PartsFolder(output));
  for (const fs::path& path : files) {
    std::error_code error;
    if (fs::exists(path, error)) {
      return absl::AlreadyExistsError(
          fmt::format("output `{}` exists; --force replaces it", path.string()));
    }
  }
  return absl::OkStatus();
}

absl::Status WriteModule(const Graph& graph, const std::string& path, bool external_weights) {
  const WeightsIn weights = external_weights ? WeightsIn::kBeside : WeightsIn::kFile;
  return fs::path(path).extension() == ".txt" ? WriteTextModuleFile(graph, path, weights)
                                              : WriteModuleFile(graph, path, weights);
}

}  // namespace quench::cli
