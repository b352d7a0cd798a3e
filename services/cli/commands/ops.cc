#include <absl/strings/ascii.h>
#include <absl/strings/str_split.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "common/base/near_names.h"
#include "common/base/status.h"
#include "common/ops/op.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/local_store.h"
#include "services/cli/model_source.h"
#include "services/importer/importer.h"

namespace quench::cli {
namespace {

constexpr char kOpsExamples[] = R"(Examples:
  quench ops                         every operator: supported, supported under conditions, or not supported
  quench ops conv                    operators whose name contains "conv" (case-insensitive)
  quench ops --model model.onnx      what in the model is not supported; exit code 1 if anything is not
  quench ops --format json

Operators support tensors of numbers or bools whose rank is known at compile time. Strings and
complex numbers are supported only in views, If and outputs of the interpreter. Sequences, optionals
and maps are not supported.)";

struct OpsArgs {
  std::string pattern;
  std::string model;
  std::string format = "text";
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

std::string Plural(size_t count, const std::string& what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

// Nodes of operators that are supported, but not as these nodes have them: what the import says.
absl::StatusOr<std::vector<std::string>> RefusedNodes(const std::string& model,
                                                      const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<LocalBlobStore> store, OpenStore());
  absl::Status status = importer::ImportModel(model, {}, *store, context).status();
  if (status.ok()) return std::vector<std::string>();
  if (!absl::IsInvalidArgument(status) && !absl::IsUnimplemented(status)) return status;
  return std::vector<std::string>(absl::StrSplit(MessageOf(status), '\n'));
}

absl::Status CheckModel(const OpsArgs& args, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<importer::UnsupportedOp> missing,
                          importer::FindUnsupported(args.model, {}));
  std::vector<std::string> refused;
  if (missing.empty()) {  // else there is nothing to import
    QUENCH_ASSIGN_OR_RETURN(refused, RefusedNodes(args.model, context));
  }
  if (args.format == "json") {
    nlohmann::json list = nlohmann::json::array();
    for (const importer::UnsupportedOp& op : missing) {
      list.push_back({{"op", op.op},
                      {"domain", op.domain},
                      {"opset", op.opset},
                      {"count", op.nodes.size()},
                      {"nodes", op.nodes}});
    }
    for (const std::string& problem : refused) list.push_back({{"problem", problem}});
    fmt::print("{}\n", list.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    for (const importer::UnsupportedOp& op : missing) {
      fmt::print(
          "{:<28} domain {:<16} opset {:<7} {}\n", op.op, op.domain.empty() ? "ai.onnx" : op.domain,
          op.opset == 0 ? "unknown" : std::to_string(op.opset), Plural(op.nodes.size(), "node"));
    }
    for (const std::string& problem : refused) fmt::print("{}\n", problem);
    if (missing.empty() && refused.empty())
      fmt::print("every operator and node of the model is supported\n");
  }
  if (!missing.empty()) {
    return Unsupported("{} of `{}` are not supported", Plural(missing.size(), "operator"),
                       args.model);
  }
  if (refused.empty()) return absl::OkStatus();
  return Unsupported("`{}` has nodes that are not supported: {}", args.model,
                     Plural(refused.size(), "problem"));
}

// The operators of all formats, then those of the catalogue that only passes make.
std::vector<importer::KnownOp> Listed() {
  std::vector<importer::KnownOp> listed = importer::KnownOps();
  std::set<std::string> reached;
  for (importer::KnownOp& op : listed) {
    if (op.op.empty() && ops::FindOp(op.name) != nullptr) op.op = op.name;
    reached.insert(op.op);
  }
  for (const ops::OpDef* op : ops::AllOps()) {
    if (!reached.contains(op->name)) listed.push_back({"quench", op->name, op->name, true, {}});
  }
  return listed;
}

std::string StateOf(const importer::KnownOp& op) {
  if (!op.supported) return "missing";
  if (op.domain == "quench") return "internal";
  return op.restrictions.empty() ? "full" : "restricted";
}

nlohmann::json ToJson(const importer::KnownOp& op) {
  const ops::OpDef* def = op.supported ? ops::FindOp(op.op) : nullptr;
  return {{"name", op.name},
          {"domain", op.domain},
          {"state", StateOf(op)},
          {"operator", def == nullptr ? "" : def->name},
          {"kind", def == nullptr ? "" : KindName(def->kind)},
          {"summary", def == nullptr ? "" : def->summary},
          {"restrictions", op.restrictions}};
}

void Print(const importer::KnownOp& op) {
  const ops::OpDef* def = op.supported ? ops::FindOp(op.op) : nullptr;
  const bool prefixed = !op.domain.empty() && op.domain != "quench";
  std::string text = "not supported";
  if (def != nullptr) text = def->summary;
  if (def != nullptr && def->name != op.name) text = fmt::format("by {}: {}", def->name, text);
  fmt::print("{:<36} {:<10} {}\n", (prefixed ? op.domain + "." : "") + op.name, StateOf(op), text);
  for (const std::string& restriction : op.restrictions)
    fmt::print("{:<36} {:<10} - {}\n", "", "", restriction);
}

absl::Status RunOps(const OpsArgs& args, const StepContext& context) {
  if (!args.model.empty()) return CheckModel(args, context);
  nlohmann::json list = nlohmann::json::array();
  const std::string pattern = absl::AsciiStrToLower(args.pattern);
  bool found = false;
  for (const importer::KnownOp& op : Listed()) {
    if (absl::AsciiStrToLower(op.name).find(pattern) == std::string::npos) continue;
    found = true;
    if (args.format == "json") {
      list.push_back(ToJson(op));
    } else {
      Print(op);
    }
  }
  if (args.format == "json") fmt::print("{}\n", list.dump(2));
  if (!found) {
    std::vector<std::string> known;
    for (const importer::KnownOp& op : Listed()) known.push_back(op.name);
    return absl::NotFoundError(fmt::format("no operator's name contains `{}`{}", args.pattern,
                                           DidYouMean(args.pattern, known)));
  }
  return absl::OkStatus();
}

}  // namespace

Action DeclareOps(const Options& options) {
  auto args = std::make_shared<OpsArgs>();
  options.Add("PATTERN", args->pattern, "Part of an operator's name, case-insensitive");
  options
      .Add("--model", args->model,
           "List only the operators and nodes of this model that are not supported", "FILE")
      .Excludes({"PATTERN"});
  AddFormat(options, args->format);
  options.Examples(kOpsExamples);
  return [args](const StepContext& context) { return RunOps(*args, context); };
}

}  // namespace quench::cli
