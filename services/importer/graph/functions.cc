#include "services/importer/graph/functions.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "common/base/status.h"
#include "common/ir/text.h"
#include "common/ops/op.h"

namespace quench::importer {
namespace {

constexpr std::string_view kHead = "quench.ir ";
constexpr std::string_view kParameter = "attr.";

// The modules of a text, each from its first line on.
std::vector<std::string> ModulesIn(const std::string& text) {
  std::vector<std::string> modules;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (text.compare(at, kHead.size(), kHead) == 0 && at > begin &&
        text.find_first_not_of(" \t\r\n", begin) < at) {
      modules.push_back(text.substr(begin, at - begin));
      begin = at;
    }
    at = end + 1;
  }
  modules.push_back(text.substr(begin));
  return modules;
}

absl::Status CheckOperators(const Graph& function) {
  StatusCollector problems;
  for (const Node& node : function.nodes) {
    if (ops::FindOp(node.op) != nullptr) continue;
    problems.Add(InvalidArgument("there is no operator `{}`; similar ones are `{}`", node.op,
                                 fmt::join(ops::SimilarOps(node.op), "`, `")));
  }
  if (function.outputs.empty()) problems.Add(InvalidArgument("it has no outputs"));
  return problems.Finish();
}

// An attribute as a tensor of the type and rank of `like`.
absl::StatusOr<Tensor> TensorOf(const Attribute& attribute, const Tensor& like) {
  std::vector<double> values;
  if (const auto* tensor = std::get_if<Tensor>(&attribute)) {
    if (tensor->dtype() == like.dtype()) return *tensor;
    return InvalidArgument("is a tensor of {}, the function wants {}",
                           DataTypeName(tensor->dtype()), DataTypeName(like.dtype()));
  }
  if (const auto* integer = std::get_if<int64_t>(&attribute)) {
    values = {static_cast<double>(*integer)};
  } else if (const auto* real = std::get_if<double>(&attribute)) {
    values = {*real};
  } else if (const auto* integers = std::get_if<std::vector<int64_t>>(&attribute)) {
    values.assign(integers->begin(), integers->end());
  } else if (const auto* reals = std::get_if<std::vector<double>>(&attribute)) {
    values = *reals;
  } else {
    return InvalidArgument("is neither a number nor a list of numbers");
  }
  const auto count = static_cast<int64_t>(values.size());
  std::vector<int64_t> dims;
  if (like.rank() > 0) dims = {count};
  if (like.rank() > 1 || (like.rank() == 0 && count != 1))
    return InvalidArgument("has {} numbers, the function wants a tensor of rank {}", count,
                           like.rank());
  if (like.dtype() == DataType::kI64)
    return Tensor::Of(DataType::kI64, dims, std::vector<int64_t>(values.begin(), values.end()));
  if (like.dtype() == DataType::kI32)
    return Tensor::Of(DataType::kI32, dims, std::vector<int32_t>(values.begin(), values.end()));
  if (!IsFloat(like.dtype()) || like.dtype() == DataType::kF64)
    return InvalidArgument("would be {}; parameters are i64, i32 and floats of at most 32 bits",
                           DataTypeName(like.dtype()));
  const std::vector<float> floats(values.begin(), values.end());
  return Tensor::Floats(like.dtype(), dims, floats);
}

absl::Status Expand(const Graph& function, Converter& c) {
  const Node& call = c.node();
  if (c.inputs().size() > function.inputs.size() ||
      c.num_outputs() > static_cast<int>(function.outputs.size())) {
    return c.Error(fmt::format("has {} inputs and {} outputs, its function has {} and {}",
                               c.inputs().size(), c.num_outputs(), function.inputs.size(),
                               function.outputs.size()));
  }
  std::vector<ValueId> mapped(function.values.size(), kNone);
  for (size_t i = 0; i < function.inputs.size(); ++i) {
    if (!c.has(static_cast<int>(i)))
      return c.Error(fmt::format("input {} (`{}` of its function) is missing", i,
                                 function.value(function.inputs[i]).name));
    mapped[static_cast<size_t>(function.inputs[i])] = c.in(static_cast<int>(i));
  }
  for (size_t i = 0; i < function.values.size(); ++i) {
    const Value& value = function.values[i];
    if (value.constant == nullptr) continue;
    Tensor tensor = value.constant->tensor;
    if (value.name.starts_with(kParameter)) {
      const std::string name = value.name.substr(kParameter.size());
      if (const Attribute* given = call.Find(name)) {
        absl::StatusOr<Tensor> converted = TensorOf(*given, tensor);
        if (!converted.ok())
          return c.Error(fmt::format("attribute `{}` {}", name, MessageOf(converted.status())));
        tensor = *std::move(converted);
      }
    }
    mapped[i] = c.AddConstant(std::move(tensor));
  }
  for (const Node& node : function.nodes) {
    std::vector<ValueId> inputs;
    for (const ValueId id : node.inputs)
      inputs.push_back(id == kNone ? kNone : mapped[static_cast<size_t>(id)]);
    Attributes attributes;
    for (const auto& [name, attribute] : node.attributes) {
      const auto* text = std::get_if<std::string>(&attribute);
      if (text == nullptr || !text->starts_with('$')) {
        attributes.emplace(name, attribute);
      } else if (const Attribute* given = call.Find(text->substr(1))) {
        attributes.emplace(name, *given);
      }
    }
    const std::vector<ValueId> outputs = c.EmitMany(
        node.op, std::move(inputs), static_cast<int>(node.outputs.size()), std::move(attributes));
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (node.outputs[i] != kNone) mapped[static_cast<size_t>(node.outputs[i])] = outputs[i];
    }
  }
  std::vector<ValueId> results;
  for (const ValueId output : function.outputs)
    results.push_back(mapped[static_cast<size_t>(output)]);
  return c.FinalValues(results);
}

}  // namespace

absl::StatusOr<Functions> ParseFunctions(std::span<const std::string> texts) {
  Functions functions;
  StatusCollector problems;
  for (const std::string& text : texts) {
    for (const std::string& module : ModulesIn(text)) {
      absl::StatusOr<Graph> graph = ParseGraph(module);
      if (!graph.ok()) {
        problems.Add(Annotate(graph.status(), "conversions"));
        continue;
      }
      const std::string name = graph->name;
      const size_t colons = name.rfind("::");
      if (colons == std::string::npos || colons + 2 == name.size()) {
        problems.Add(
            InvalidArgument("conversions: module `{}` should be named \"domain::Operator\"", name));
        continue;
      }
      problems.Add(Annotate(CheckOperators(*graph), fmt::format("conversion `{}`", name)));
      const std::string domain = name.substr(0, colons);
      const auto [place, fresh] =
          functions.emplace(std::pair(domain == "ai.onnx" ? "" : domain, name.substr(colons + 2)),
                            std::make_shared<const Graph>(*std::move(graph)));
      if (!fresh) problems.Add(InvalidArgument("conversion `{}` is given twice", name));
    }
  }
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  return functions;
}

FindConversion WithFunctions(const Functions& functions, const FindConversion& find) {
  return [&functions, &find](std::string_view domain, std::string_view op) -> Conversion {
    const auto own = functions.find({std::string(domain), std::string(op)});
    if (own == functions.end()) return find(domain, op);
    return [function = own->second](Converter& c) { return Expand(*function, c); };
  };
}

}  // namespace quench::importer
