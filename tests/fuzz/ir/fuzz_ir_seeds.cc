// fuzz_ir_seeds FOLDER: writes FOLDER/text/* and FOLDER/wire/*, the seeds of the two fuzz targets.
#include <filesystem>
#include <iostream>

#include "common/base/files.h"
#include "common/ir/text.h"
#include "common/ir/wire/wire.h"
#include "tests/fuzz/ir/check.h"
#include "tests/unit/common/ir/sample_graphs.h"

namespace {

absl::Status WriteSeeds(const std::filesystem::path& folder) {
  std::vector<quench::Graph> graphs = {quench::testing::EverythingGraph(),
                                       quench::testing::EveryConstantGraph(),
                                       quench::testing::ImportedGraph(), quench::Graph()};
  for (uint32_t seed = 0; seed < 20; ++seed) graphs.push_back(quench::testing::RandomGraph(seed));
  quench::fuzz::EmptyStore store;
  for (const char* kind : {"text", "wire"}) std::filesystem::create_directories(folder / kind);
  for (size_t i = 0; i < graphs.size(); ++i) {
    const std::string name = std::to_string(i);
    const absl::StatusOr<std::string> bytes = quench::SerializeModule(graphs[i], store);
    if (!bytes.ok()) return bytes.status();
    for (const auto& [kind, contents] :
         {std::pair("text", quench::PrintGraph(graphs[i])), std::pair("wire", *bytes)}) {
      const absl::Status status = quench::WriteFileAtomically(folder / kind / name, contents);
      if (!status.ok()) return status;
    }
  }
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
