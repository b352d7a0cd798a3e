// Reads ops.def: the sorted table, look-up, and the checks that need nothing but the table.
#include "common/ops/catalogue.h"

#include <algorithm>
#include <cctype>

#include "common/base/near_names.h"
#include "common/base/status.h"

namespace quench::ops {
namespace {

const std::vector<const OpDef*>& Table() {
  static const std::vector<const OpDef*> table = [] {
    std::vector<const OpDef*> ops = {
#define QUENCH_OP(name) &name##Op(),
#include "common/ops/ops.def"
#undef QUENCH_OP
    };
    std::sort(ops.begin(), ops.end(),
              [](const OpDef* a, const OpDef* b) { return a->name < b->name; });
    return ops;
  }();
  return table;
}

std::string_view KindName(AttributeSpec::Kind kind) {
  switch (kind) {
    case AttributeSpec::kInt:
      return "an int";
    case AttributeSpec::kFloat:
      return "a float";
    case AttributeSpec::kString:
      return "a string";
    case AttributeSpec::kInts:
      return "a list of ints";
    case AttributeSpec::kFloats:
      return "a list of floats";
    case AttributeSpec::kStrings:
      return "a list of strings";
    case AttributeSpec::kTensor:
      return "a tensor";
    case AttributeSpec::kGraph:
      return "a graph";
  }
  return "?";
}

bool HasKind(const Attribute& attribute, AttributeSpec::Kind kind) {
  switch (kind) {
    case AttributeSpec::kInt:
      return std::holds_alternative<int64_t>(attribute);
    case AttributeSpec::kFloat:
      return std::holds_alternative<double>(attribute);
    case AttributeSpec::kString:
      return std::holds_alternative<std::string>(attribute);
    case AttributeSpec::kInts:
      return std::holds_alternative<std::vector<int64_t>>(attribute);
    case AttributeSpec::kFloats:
      return std::holds_alternative<std::vector<double>>(attribute);
    case AttributeSpec::kStrings:
      return std::holds_alternative<std::vector<std::string>>(attribute);
    case AttributeSpec::kTensor:
      return std::holds_alternative<Tensor>(attribute);
    case AttributeSpec::kGraph: {
      const GraphPtr* body = std::get_if<GraphPtr>(&attribute);
      return body != nullptr && *body != nullptr;
    }
  }
  return false;
}

std::string Range(int min, int max) {
  if (max < 0) return fmt::format("at least {}", min);
  return min == max ? fmt::format("{}", min) : fmt::format("{} to {}", min, max);
}

void CheckCount(const std::string& where, const OpDef& op, std::string_view what,
                const std::vector<ValueId>& values, int min, int max, StatusCollector& problems) {
  const int count = static_cast<int>(values.size());
  if (count < min || (max >= 0 && count > max)) {
    problems.Add(InvalidArgument("{}: has {} {}s, {} takes {}", where, count, what, op.name,
                                 Range(min, max)));
    return;
  }
  for (int i = 0; i < min; ++i) {
    if (values[static_cast<size_t>(i)] == kNone) {
      problems.Add(InvalidArgument("{}: {} {} is omitted, {} needs it", where, what, i, op.name));
    }
  }
}

}  // namespace

std::span<const OpDef* const> AllOps() { return Table(); }

const OpDef* FindOp(std::string_view name) {
  const auto& table = Table();
  const auto at =
      std::lower_bound(table.begin(), table.end(), name,
                       [](const OpDef* op, std::string_view n) { return op->name < n; });
  return at != table.end() && (*at)->name == name ? *at : nullptr;
}

std::vector<std::string> SimilarOps(std::string_view name, int count) {
  std::vector<std::string> known;
  for (const OpDef* op : Table()) known.push_back(op->name);
  return NearNames(name, known, count);
}

absl::Status CheckNode(const Graph& /*graph*/, const Node& node) {
  const std::string where = fmt::format("node `{}` ({})", node.name, node.op);
  const OpDef* op = FindOp(node.op);
  if (op == nullptr) {
    return Unsupported("{}: unknown operator, similar ones are `{}`", where,
                       fmt::join(SimilarOps(node.op), "`, `"));
  }
  StatusCollector problems;
  CheckCount(where, *op, "input", node.inputs, op->min_inputs, op->max_inputs, problems);
  CheckCount(where, *op, "output", node.outputs, op->min_outputs, op->max_outputs, problems);
  for (const auto& [name, attribute] : node.attributes) {
    const auto spec = std::find_if(op->attributes.begin(), op->attributes.end(),
                                   [&](const AttributeSpec& s) { return s.name == name; });
    if (spec == op->attributes.end()) {
      std::vector<std::string> known;
      for (const AttributeSpec& s : op->attributes) known.push_back(s.name);
      problems.Add(known.empty() ? InvalidArgument("{}: unknown attribute `{}`, {} has none", where,
                                                   name, op->name)
                                 : InvalidArgument("{}: unknown attribute `{}`, {} has `{}`", where,
                                                   name, op->name, fmt::join(known, "`, `")));
    } else if (!HasKind(attribute, spec->kind)) {
      problems.Add(
          InvalidArgument("{}: attribute `{}` is not {}", where, name, KindName(spec->kind)));
    }
  }
  for (const AttributeSpec& spec : op->attributes) {
    if (spec.required && node.Find(spec.name) == nullptr) {
      problems.Add(InvalidArgument("{}: attribute `{}` is missing, {} needs {}", where, spec.name,
                                   op->name, KindName(spec.kind)));
    }
  }
  return problems.Finish();
}

}  // namespace quench::ops
