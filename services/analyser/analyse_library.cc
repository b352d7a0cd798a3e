#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "common/runner/open_sizes.h"
#include "common/runner/runner.h"
#include "services/analyser/analyser.h"

namespace quench::analyser {
namespace {

std::string TypeText(const ArtifactTensor& tensor) {
  std::vector<std::string> dims;
  for (const ArtifactDim& dim : tensor.dims)
    dims.push_back(dim.value >= 0 ? std::to_string(dim.value) : dim.symbol);
  return fmt::format("{}[{}]", DataTypeName(tensor.dtype), fmt::join(dims, ", "));
}

nlohmann::json PairsToJson(const std::vector<std::pair<std::string, std::string>>& pairs,
                           const char* second) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [first, text] : pairs) list.push_back({{"name", first}, {second, text}});
  return list;
}

}  // namespace

absl::StatusOr<LibraryReport> AnalyseLibrary(const std::filesystem::path& path,
                                             const std::map<std::string, int64_t>& sizes,
                                             const StepContext& context) {
  LibraryReport report;
  QUENCH_ASSIGN_OR_RETURN(report.sizes, SizesOfLibrary(path));
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Artifact> artifact, Artifact::Open(path));
  report.uuid = artifact->uuid();
  report.fingerprint = artifact->fingerprint();
  report.producer = artifact->producer();
  report.variant = artifact->variant();
  for (const ArtifactTensor& input : artifact->inputs()) {
    report.inputs.emplace_back(input.name, TypeText(input));
  }
  for (const ArtifactTensor& output : artifact->outputs())
    report.outputs.emplace_back(output.name, TypeText(output));
  QUENCH_ASSIGN_OR_RETURN(auto symbols, ChooseSizes(artifact->inputs(), sizes));
  QUENCH_RETURN_IF_ERROR(context.Check());
  QUENCH_ASSIGN_OR_RETURN(const std::vector<Tensor> inputs,
                          RandomInputs(artifact->inputs(), 1, symbols, kAnyIndex));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<NodeTiming> nodes, artifact->Profile(inputs));
  for (const NodeTiming& node : nodes) {
    report.nodes.emplace_back(node.node, node.kernel);
    ++report.kernels[node.kernel.substr(0, node.kernel.find(' '))];
  }
  report.arena_bytes = artifact->arena_bytes();
  report.arena_lower_bound_bytes = artifact->arena_lower_bound();
  report.symbol_sizes = std::move(symbols);
  return report;
}

std::string ToTable(const LibraryReport& report) {
  size_t names = 4;
  for (const auto& [name, kernel] : report.nodes) names = std::max(names, name.size());
  std::string text = fmt::format("{:<{}} kernel\n", "node", names);
  for (const auto& [name, kernel] : report.nodes)
    text += fmt::format("{:<{}} {}\n", name, names, kernel);
  text += "\n";
  for (const auto& [name, type] : report.inputs)
    text += fmt::format("input             {}: {}\n", name, type);
  for (const auto& [name, type] : report.outputs)
    text += fmt::format("output            {}: {}\n", name, type);
  std::vector<std::string> kernels;
  for (const auto& [kernel, count] : report.kernels)
    kernels.push_back(fmt::format("{} {}", count, kernel));
  const auto megabytes = [](int64_t bytes) {
    return fmt::format("{:.2f} MB", static_cast<double>(bytes) / 1e6);
  };
  text += fmt::format("kernels           {}\n", fmt::join(kernels, ", "));
  text += fmt::format("size              {}: {} of weights and constants, {} of code, {} of rest\n",
                      megabytes(report.sizes.file), megabytes(report.sizes.data),
                      megabytes(report.sizes.code), megabytes(report.sizes.rest));
  text += fmt::format("arena             {} (lower bound {})\n", megabytes(report.arena_bytes),
                      megabytes(report.arena_lower_bound_bytes));
  for (const auto& [name, size] : report.symbol_sizes)
    text += fmt::format("planned at        {} = {}\n", name, size);
  text += fmt::format("variant           {}, of this CPU\nuuid              {}\n", report.variant,
                      report.uuid);
  text += fmt::format("fingerprint       {}\nproducer          {}\n", report.fingerprint,
                      report.producer);
  return text +
         "rule              parameters and MACs are counted on models and modules: a library has "
         "neither layers nor graph\n";
}

std::string ToJson(const LibraryReport& report) {
  const nlohmann::json json = {{"inputs", PairsToJson(report.inputs, "type")},
                               {"outputs", PairsToJson(report.outputs, "type")},
                               {"nodes", PairsToJson(report.nodes, "kernel")},
                               {"kernels", report.kernels},
                               {"bytes",
                                {{"file", report.sizes.file},
                                 {"weights_and_constants", report.sizes.data},
                                 {"code", report.sizes.code},
                                 {"rest", report.sizes.rest}}},
                               {"arena_bytes", report.arena_bytes},
                               {"arena_lower_bound_bytes", report.arena_lower_bound_bytes},
                               {"symbol_sizes", report.symbol_sizes},
                               {"variant", report.variant},
                               {"uuid", report.uuid},
                               {"fingerprint", report.fingerprint},
                               {"producer", report.producer}};
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace quench::analyser
