// A PyTorch model as an imported graph: the common result of the readers of both kinds of files.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <string>
#include <vector>

#include "services/importer/torch/archive.h"
#include "services/importer/torch/program.h"

namespace quench::importer {

enum class TorchKind : uint8_t { kScript, kExported };

struct TorchFile {
  TorchKind kind = TorchKind::kScript;
  std::shared_ptr<const TorchArchive> archive;
};

// Whether these are a zip archive as PyTorch writes it, or a pickle of torch.save before 1.6.
bool LooksLikeTorch(std::span<const std::byte> bytes);
// A state dict or a pickled module is INVALID_ARGUMENT: the message has the two lines of Python that export it.
absl::StatusOr<TorchFile> OpenTorchFile(const std::filesystem::path& path);

struct TorchGraph {
  Graph graph;
  std::vector<UnsupportedOp> unsupported;  // then the graph is not complete
};

// If `weights` is null, constants stay in the file.
absl::StatusOr<TorchGraph> ReadTorchGraph(const TorchFile& file, const ImportOptions& options,
                                          const FindConversion& find, WeightWriter* weights,
                                          const StepContext& context);

// ---- Shared by the two readers ----

// A tensor that the model writes to: an input whose new value the caller passes to the next run.
struct TorchState {
  std::string name;
  CellPtr cell;
  uint64_t version = 0;  // before the model's run
  Tensor initial;
};

// A reader's results in addition to the builder's graph.
struct TorchResult {
  std::vector<std::pair<std::string, TorchValue>> outputs;
  std::vector<TorchState> states;
};

// `written`: tensors known to be written to, which become inputs; all others become constants.
absl::StatusOr<TorchResult> ReadExported(const TorchArchive& archive, const ImportOptions& options,
                                         const std::set<std::string>& written,
                                         TorchProgram& program);
absl::StatusOr<TorchResult> ReadScript(const TorchArchive& archive, const ImportOptions& options,
                                       const std::set<std::string>& written, TorchProgram& program);

// Adds the model's inputs to the builder, as the options give them; those of `states` after the others.
struct TorchInput {
  DeclaredInput declared;
  Handle handle = -1;  // filled in
};
absl::Status AddTorchInputs(const ImportOptions& options, TorchProgram& program,
                            std::vector<TorchInput>& inputs);

}  // namespace quench::importer
