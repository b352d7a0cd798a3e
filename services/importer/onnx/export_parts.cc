// Partitions as ONNX models of their own, for the backends that they are for.
#include <absl/strings/ascii.h>

#include "common/base/status.h"
#include "common/passes/pass.h"
#include "services/importer/graph/names.h"
#include "services/importer/importer.h"

namespace quench::importer {

std::filesystem::path PartsFolder(const std::filesystem::path& path) {
  return path.parent_path() / (path.stem().string() + ".parts");
}

absl::Status ExportParts(const Graph& graph, const std::filesystem::path& folder,
                         const StepContext& context) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return ErrnoStatus(error.value(), "create", folder);
  NameSet names;
  for (const Node* const node : passes::PartitionsOf(graph)) {
    QUENCH_ASSIGN_OR_RETURN(const Graph part, passes::StandAlone(*node));
    std::string name = node->name;
    for (char& each : name) {
      if (!absl::ascii_isalnum(each) && each != '.' && each != '-') each = '_';
    }
    QUENCH_RETURN_IF_ERROR(
        ExportOnnx(part, folder / (names.Take(name, "part") + ".onnx"), context));
  }
  return absl::OkStatus();
}

}  // namespace quench::importer
