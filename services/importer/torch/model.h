// A PyTorch model on its way into an imported graph: what both kinds of files end as.
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

// Zip archives as PyTorch writes them, and pickles of torch.save of before 1.6.
bool LooksLikeTorch(std::span<const std::byte> bytes);
// A state dict or a pickled module is INVALID_ARGUMENT: the message has the two lines of Python that export it.
absl::StatusOr<TorchFile> OpenTorchFile(const std::filesystem::path& path);

struct TorchGraph {
  Graph graph;
  std::vector<UnsupportedOp> unsupported;  // then the graph is not complete
};

// `weights` null: constants stay where the file has them.
absl::StatusOr<TorchGraph> ReadTorchGraph(const TorchFile& file, const ImportOptions& options,
                                          const FindConversion& find, WeightWriter* weights,
                                          const StepContext& context);

// ---- Of the two readers ----

// A tensor that the model writes to: an input that the caller gives back.
struct TorchState {
  std::string name;
  CellPtr cell;
  uint64_t version = 0;  // before the model ran
  Tensor initial;
};

// A reader's results beside the builder's graph.
struct TorchResult {
  std::vector<std::pair<std::string, TorchValue>> outputs;
  std::vector<TorchState> states;
};

// `written`: tensors that are known to be written to, which are inputs; the rest are constants.
absl::StatusOr<TorchResult> ReadExported(const TorchArchive& archive, const ImportOptions& options,
                                         const std::set<std::string>& written,
                                         TorchProgram& program);
absl::StatusOr<TorchResult> ReadScript(const TorchArchive& archive, const ImportOptions& options,
                                       const std::set<std::string>& written, TorchProgram& program);

// The model's inputs in the builder, with what the options say of them; those of `states` behind the others.
struct TorchInput {
  DeclaredInput declared;
  Handle handle = -1;  // filled in
};
absl::Status AddTorchInputs(const ImportOptions& options, TorchProgram& program,
                            std::vector<TorchInput>& inputs);

}  // namespace quench::importer
