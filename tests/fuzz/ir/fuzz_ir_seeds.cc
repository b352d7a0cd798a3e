// fuzz_ir_seeds FOLDER: writes FOLDER/text/*, FOLDER/wire/* and FOLDER/file/*, the seeds of the fuzz targets.
#include <filesystem>
#include <iostream>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/ir/text.h"
#include "common/ir/wire/module_file.h"
#include "common/ir/wire/wire.h"
#include "tests/fuzz/ir/check.h"
#include "tests/unit/common/ir/sample_graphs.h"

namespace {

// A constant that is too large for the module itself, and so lies behind it.
quench::Graph WithWeights(quench::Graph graph) {
  std::vector<int64_t> table(600);
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int64_t>(i % 7);
  const quench::ValueId value = graph.AddConstant("large", quench::Tensor::I64(table));
  const quench::NodeId node = graph.AddNode("Op", "reads_large", {value}, 1, {});
  graph.outputs.push_back(graph.node(node).outputs[0]);
  graph.value(graph.outputs.back()).type = quench::Type::Tensor(quench::DataType::kF32, {});
  return graph;
}

// All forms of a module's file.
absl::Status WriteFiles(const quench::Graph& graph, const std::filesystem::path& path) {
  QUENCH_RETURN_IF_ERROR(quench::WriteModuleFile(graph, path.string() + ".qir"));
  QUENCH_RETURN_IF_ERROR(quench::WriteTextModuleFile(graph, path.string() + ".ir.txt"));
  const auto beside = quench::WeightsIn::kBeside;
  QUENCH_RETURN_IF_ERROR(quench::WriteModuleFile(graph, path.string() + ".thin.qir", beside));
  return quench::WriteTextModuleFile(graph, path.string() + ".thin.ir.txt", beside);
}

absl::Status WriteSeeds(const std::filesystem::path& folder) {
  std::vector<quench::Graph> graphs = {quench::testing::EverythingGraph(),
                                       quench::testing::EveryConstantGraph(),
                                       quench::testing::ImportedGraph(), quench::Graph()};
  for (uint32_t seed = 0; seed < 20; ++seed) graphs.push_back(quench::testing::RandomGraph(seed));
  quench::fuzz::EmptyStore store;
  for (const char* kind : {"file", "text", "wire"})
    std::filesystem::create_directories(folder / kind);
  for (size_t i = 0; i < graphs.size(); ++i) {
    const std::string name = std::to_string(i);
    const absl::StatusOr<std::string> bytes = quench::SerializeModule(graphs[i], store);
    if (!bytes.ok()) return bytes.status();
    for (const auto& [kind, contents] :
         {std::pair("text", quench::PrintGraph(graphs[i])), std::pair("wire", *bytes)}) {
      const absl::Status status = quench::WriteFileAtomically(folder / kind / name, contents);
      if (!status.ok()) return status;
    }
    QUENCH_RETURN_IF_ERROR(WriteFiles(graphs[i], folder / "file" / name));
  }
  QUENCH_RETURN_IF_ERROR(WriteFiles(WithWeights(graphs[0]), folder / "file" / "weights"));
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: fuzz_ir_seeds FOLDER\n";
    return 2;
  }
  const absl::Status status = WriteSeeds(argv[1]);
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
