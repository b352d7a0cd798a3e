#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "services/cli/commands/declarations.h"
#include "services/codegen/codegen.h"
#include "services/codegen/targets/host_cpu.h"
#include "services/codegen/targets/resolve.h"

namespace quench::cli {
namespace {

constexpr char kTargetsExamples[] = R"(Examples:
  quench targets                   every board, processor and generic target
  quench targets --kind arm        boards and servers with Arm CPUs
  quench targets --kind cuda       NVIDIA's GPUs, and the architectures that there is code for
  quench targets --verbose         also the target string behind each name
  quench targets --format json     for scripts
  quench compile model.onnx --target raspberry-pi/5)";

void PrintJson(const std::vector<codegen::TargetInfo>& targets) {
  nlohmann::json list = nlohmann::json::array();
  for (const codegen::TargetInfo& target : targets) {
    list.push_back({{"name", target.name},
                    {"kind", target.kind},
                    {"triple", target.triple},
                    {"variants", target.variants},
                    {"strings", target.strings},
                    {"description", target.description}});
  }
  fmt::print("{}\n", list.dump(2));
}

absl::Status RunTargets(const std::string& kind, bool verbose, bool json) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<codegen::TargetInfo> targets,
                          codegen::ListTargets(kind));
  if (json) {
    PrintJson(targets);
    return absl::OkStatus();
  }
  size_t width = 0;
  for (const codegen::TargetInfo& target : targets) width = std::max(width, target.name.size());
  for (const codegen::TargetInfo& target : targets) {
    fmt::print("{:<{}}  {:<8} {}\n", target.name, width, target.kind, target.description);
    if (!verbose) continue;
    for (const std::string& string : target.strings) fmt::print("{:<{}}  {}\n", "", width, string);
    if (target.name == codegen::kHost) {
      fmt::print("{:<{}}  features: {}\n", "", width, fmt::join(codegen::ThisCpu().features, ", "));
    }
  }
  return absl::OkStatus();
}

}  // namespace

Action DeclareTargets(const Options& options) {
  struct Args {
    std::string kind = "all", format = "text";
    bool verbose = false;
  };
  auto args = std::make_shared<Args>();
  options.Add("--kind", args->kind, "List only targets of this kind", "x86|arm|android|cuda|all")
      .OneOf({"x86", "arm", "android", "cuda", "all"});
  options.Flag("--verbose,-v", args->verbose,
               "Also print target strings, and the features of this machine's CPU");
  AddFormat(options, args->format);
  options.Examples(kTargetsExamples);
  return [args](const StepContext&) {
    return RunTargets(args->kind, args->verbose, args->format == "json");
  };
}

}  // namespace quench::cli
