// The side of remote.h without gRPC.
#include <fstream>
#include <iterator>

#include "common/base/status.h"
#include "services/cli/remote.h"

namespace quench::cli {
namespace {

// With the arguments of this program, as the kernel has them.
absl::Status BecomeRemote() {
  std::ifstream file("/proc/self/cmdline");  // of no size, as all files there
  const std::string line((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<std::string> words;
  for (size_t start = 0; start < line.size();) {
    const size_t end = line.find('\0', start);
    words.push_back(line.substr(start, end - start));
    start = end == std::string::npos ? line.size() : end + 1;
  }
  if (words.empty()) return Internal("the arguments of this program cannot be read");
  words.erase(words.begin());
  return Become("quench-remote", words);
}

}  // namespace

absl::Status BeginThere() { return BecomeRemote(); }

absl::StatusOr<Made> CompileThere(const CompileJob&, const std::filesystem::path&,
                                  const StepContext&) {
  return BecomeRemote();
}
absl::StatusOr<analyser::ModelReport> AnalyseThere(const GatewayOptions&, const ModelOptions&,
                                                   const analyser::AnalyseOptions&,
                                                   const StepContext&) {
  return BecomeRemote();
}
absl::StatusOr<analyser::VerifyReport> VerifyThere(const VerifyJob&, const StepContext&) {
  return BecomeRemote();
}
absl::StatusOr<Graph> ModuleThere(const ModuleJob&, const StepContext&) { return BecomeRemote(); }
absl::StatusOr<analyser::ModuleFacts> IntrospectThere(const ModuleJob&,
                                                      const analyser::NodesOptions&,
                                                      const StepContext&) {
  return BecomeRemote();
}
absl::StatusOr<analyser::ModuleDiff> DiffThere(const ModuleJob&, const std::string&,
                                               const StepContext&) {
  return BecomeRemote();
}
absl::StatusOr<analyser::Tiled> TileThere(const TileJob&, const StepContext&) {
  return BecomeRemote();
}
absl::StatusOr<analyser::Edited> EditThere(const EditJob&, const StepContext&) {
  return BecomeRemote();
}
absl::StatusOr<PartitionedThere> PartitionThere(const PartitionJob&, const StepContext&) {
  return BecomeRemote();
}
absl::StatusOr<analyser::InferReport> InferThere(const InferJob&, const StepContext&) {
  return BecomeRemote();
}
absl::StatusOr<BenchResult> BenchThere(const BenchJob&, const StepContext&) {
  return BecomeRemote();
}
absl::StatusOr<quantizer::Statistics> CalibrateThere(const CalibrateJob&, const StepContext&,
                                                     std::string*) {
  return BecomeRemote();
}
absl::StatusOr<QuantizedModel> QuantizeThere(const QuantizeModelJob&, const StepContext&) {
  return BecomeRemote();
}
absl::StatusOr<analyser::CompareReport> CompareThere(const CompareJob&, const StepContext&) {
  return BecomeRemote();
}
absl::Status FleetThere(const FleetJob&, const StepContext&) { return BecomeRemote(); }
absl::Status WorkflowThere(const WorkflowJob&, const StepContext&) { return BecomeRemote(); }
absl::Status TenantUsageThere(const TenantJob&, const StepContext&) { return BecomeRemote(); }
absl::Status PutThere(const GatewayOptions&, const std::vector<std::string>&, bool,
                      const StepContext&) {
  return BecomeRemote();
}
absl::Status PutSamplesThere(const GatewayOptions&, const std::string&, const std::string&, bool,
                             const StepContext&) {
  return BecomeRemote();
}
absl::Status GetThere(const GatewayOptions&, const std::string&, const std::string&,
                      const StepContext&) {
  return BecomeRemote();
}

}  // namespace quench::cli
