#include "services/cli/evidence.h"

#include <fmt/format.h>
#include <stdlib.h>

#include "common/base/build_id.h"
#include "common/base/files.h"
#include "common/base/status.h"
#include "common/blobs/blob_store.h"
#include "common/ir/npy.h"
#include "common/ir/text.h"
#include "common/ir/wire/wire.h"

namespace quench::cli {
namespace {

namespace fs = std::filesystem;

// Weights as the graph holds them, wherever else they lie.
Graph InMemory(Graph graph) {
  for (Value& value : graph.values) {
    if (value.constant != nullptr)
      value.constant = std::make_shared<const Constant>(Constant{value.constant->tensor, "", {}});
  }
  return graph;
}

absl::Status WriteGraph(const Graph& graph, const fs::path& folder) {
  // Where XDG_CACHE_HOME is the folder cache/, weights are found there.
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<LocalBlobStore> store,
                          LocalBlobStore::Open(folder / "cache" / "quench"));
  QUENCH_ASSIGN_OR_RETURN(const std::string bytes, SerializeModule(InMemory(graph), *store));
  QUENCH_RETURN_IF_ERROR(WriteFileAtomically(folder / "graph.qir", bytes));
  QUENCH_ASSIGN_OR_RETURN(const Graph stored, ParseModule(bytes, *store));
  return WriteFileAtomically(folder / "graph.ir.txt", PrintGraph(stored));
}

std::string ReportText(const codegen::CheckEvidence& evidence, const std::string& folder) {
  return fmt::format(
      R"({}

quench {} ({}), target {}

graph.qir      the model before any pass; graph.ir.txt is the same as text
cache/         its weights
inputs/        the sample on which library and interpreter differ

To see it again:
  XDG_CACHE_HOME=$PWD/{}/cache quench compile {}/graph.qir --target '{}' --check full
)",
      evidence.text, QUENCH_VERSION, SourceRevision(), evidence.target, folder, folder,
      evidence.target);
}

}  // namespace

absl::StatusOr<fs::path> WriteEvidence(const codegen::CheckEvidence& evidence,
                                       const fs::path& parent) {
  std::string name = (parent / "quench-check-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) return ErrnoStatus(errno, "create a folder in", parent);
  fs::path folder = name;
  std::error_code error;
  fs::permissions(folder, fs::perms(0755), error);
  QUENCH_RETURN_IF_ERROR(WriteGraph(evidence.graph, folder));
  fs::create_directory(folder / "inputs", error);
  if (error) return ErrnoStatus(error.value(), "create", folder / "inputs");
  for (const auto& [input, tensor] : evidence.inputs)
    QUENCH_RETURN_IF_ERROR(WriteNpy(tensor, folder / "inputs" / (NpyStemOf(input) + ".npy")));
  QUENCH_RETURN_IF_ERROR(
      WriteFileAtomically(folder / "report.txt", ReportText(evidence, folder.filename().string())));
  return folder;
}

}  // namespace quench::cli
