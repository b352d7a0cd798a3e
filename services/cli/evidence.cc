#include "services/cli/evidence.h"

#include <fmt/format.h>
#include <stdlib.h>

#include "common/base/build_id.h"
#include "common/base/files.h"
#include "common/base/status.h"
#include "common/ir/npy.h"
#include "common/ir/text.h"
#include "common/ir/wire/module_file.h"

namespace quench::cli {
namespace {

namespace fs = std::filesystem;

std::string ReportText(const codegen::CheckEvidence& evidence, const std::string& folder) {
  return fmt::format(
      R"({}

quench {} ({}), target {}

graph.qir      the model before any pass; graph.ir.txt is the same to read, without large weights
inputs/        the sample on which library and interpreter differ

To see it again:
  quench compile {}/graph.qir --target '{}' --check full
)",
      evidence.text, QUENCH_VERSION, SourceRevision(), evidence.target, folder, evidence.target);
}

}  // namespace

absl::StatusOr<fs::path> WriteEvidence(const codegen::CheckEvidence& evidence,
                                       const fs::path& parent) {
  std::string name = (parent / "quench-check-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) return ErrnoStatus(errno, "create a folder in", parent);
  fs::path folder = name;
  std::error_code error;
  fs::permissions(folder, fs::perms(0755), error);
  QUENCH_RETURN_IF_ERROR(WriteModuleFile(evidence.graph, folder / "graph.qir"));
  QUENCH_RETURN_IF_ERROR(WriteFileAtomically(folder / "graph.ir.txt", PrintGraph(evidence.graph)));
  fs::create_directory(folder / "inputs", error);
  if (error) return ErrnoStatus(error.value(), "create", folder / "inputs");
  for (const auto& [input, tensor] : evidence.inputs)
    QUENCH_RETURN_IF_ERROR(WriteNpy(tensor, folder / "inputs" / (NpyStemOf(input) + ".npy")));
  QUENCH_RETURN_IF_ERROR(
      WriteFileAtomically(folder / "report.txt", ReportText(evidence, folder.filename().string())));
  return folder;
}

}  // namespace quench::cli
