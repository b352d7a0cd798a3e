#include <absl/strings/ascii.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "common/ops/op.h"
#include "services/cli/commands/declarations.h"
#include "services/importer/importer.h"

namespace quench::cli {
namespace {

constexpr char kOpsExamples[] = R"(Examples:
  quench ops                         every operator, one a line
  quench ops conv                    those whose name contains "conv", in any case
  quench ops --model model.onnx      what the model needs that Quench lacks; exit code 1 if anything
  quench ops --format json)";

struct OpsArgs {
  std::string pattern;
  std::string model;
  std::string format = "table";
};

std::string KindName(ops::OpKind kind) {
  switch (kind) {
    case ops::OpKind::kNest:
      return "nest";
    case ops::OpKind::kPointwise:
      return "pointwise";
    case ops::OpKind::kView:
      return "view";
    case ops::OpKind::kControl:
      return "control";
  }
  return "";
}

absl::Status ListUnsupported(const OpsArgs& args) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<importer::UnsupportedOp> missing,
                          importer::FindUnsupported(args.model, {}));
  if (args.format == "json") {
    nlohmann::json list = nlohmann::json::array();
    for (const importer::UnsupportedOp& op : missing) {
      list.push_back({{"op", op.op},
                      {"domain", op.domain},
                      {"opset", op.opset},
                      {"count", op.nodes.size()},
                      {"nodes", op.nodes}});
    }
    fmt::print("{}\n", list.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    for (const importer::UnsupportedOp& op : missing) {
      fmt::print("{:<28} domain {:<16} opset {:<7} {} node{}\n", op.op,
                 op.domain.empty() ? "ai.onnx" : op.domain,
                 op.opset == 0 ? "unknown" : std::to_string(op.opset), op.nodes.size(),
                 op.nodes.size() == 1 ? "" : "s");
    }
    if (missing.empty()) fmt::print("every operator of the model is supported\n");
  }
  if (missing.empty()) return absl::OkStatus();
  return Unsupported("{} operators of `{}` are not supported", missing.size(), args.model);
}

absl::Status RunOps(const OpsArgs& args) {
  if (!args.model.empty()) return ListUnsupported(args);
  nlohmann::json list = nlohmann::json::array();
  const std::string pattern = absl::AsciiStrToLower(args.pattern);
  bool found = false;
  for (const ops::OpDef* op : ops::AllOps()) {
    if (absl::AsciiStrToLower(op->name).find(pattern) == std::string::npos) continue;
    found = true;
    if (args.format == "json") {
      list.push_back({{"name", op->name}, {"kind", KindName(op->kind)}, {"summary", op->summary}});
    } else {
      fmt::print("{:<28} {:<10} {}\n", op->name, KindName(op->kind), op->summary);
    }
  }
  if (args.format == "json") fmt::print("{}\n", list.dump(2));
  if (!found)
    return absl::NotFoundError(fmt::format("no operator's name contains `{}`", args.pattern));
  return absl::OkStatus();
}

}  // namespace

Action DeclareOps(const Options& options) {
  auto args = std::make_shared<OpsArgs>();
  options.Add("PATTERN", args->pattern, "Part of an operator's name, in any case");
  options.Add("--model", args->model, "List the operators of this model that are not supported",
              "FILE");
  options.Add("--format", args->format, "Output format", "table|json").OneOf({"table", "json"});
  options.Examples(kOpsExamples);
  return [args](const StepContext&) { return RunOps(*args); };
}

}  // namespace quench::cli
