#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "services/cli/commands/declarations.h"
#include "services/codegen/codegen.h"

namespace quench::cli {
namespace {

constexpr char kTargetsExamples[] = R"(Examples:
  quench targets                   every target with its variants
  quench targets --format json
  quench compile model.onnx --target aarch64)";

absl::Status RunTargets(const std::string& format) {
  nlohmann::json list = nlohmann::json::array();
  for (const codegen::TargetInfo& target : codegen::ListTargets()) {
    if (format == "json") {
      list.push_back({{"name", target.name},
                      {"triple", target.triple},
                      {"variants", target.variants},
                      {"description", target.description}});
    } else {
      fmt::print("{:<14} {:<28} {}\n{:<14} variants: {}\n", target.name, target.triple,
                 target.description, "", fmt::join(target.variants, "; "));
    }
  }
  if (format == "json") fmt::print("{}\n", list.dump(2));
  return absl::OkStatus();
}

}  // namespace

Action DeclareTargets(const Options& options) {
  auto format = std::make_shared<std::string>("table");
  options.Add("--format", *format, "Output format", "table|json").OneOf({"table", "json"});
  options.Examples(kTargetsExamples);
  return [format](const StepContext&) { return RunTargets(*format); };
}

}  // namespace quench::cli
