#include "services/importer/onnx/model_file.h"

#include <algorithm>
#include <queue>
#include <set>

#include "common/base/status.h"
#include "services/importer/graph/names.h"
#include "services/importer/graph/wire_scanner.h"

namespace quench::importer {
namespace {

using onnx::v1::AttributeProto;
using onnx::v1::FunctionProto;
using onnx::v1::GraphProto;
using onnx::v1::ModelProto;
using onnx::v1::NodeProto;
using onnx::v1::TensorProto;

// The tensor of a Constant node, or null.
const TensorProto* ConstantOf(const NodeProto& node) {
  const bool constant = node.op_type() == "Constant" && NormalDomain(node.domain()).empty();
  if (!constant || node.output_size() != 1 || node.attribute_size() != 1) return nullptr;
  return node.attribute(0).has_t() ? &node.attribute(0).t() : nullptr;
}

bool HaveOneType(const TensorProto& a, const TensorProto& b) {
  return a.data_type() == b.data_type() &&
         std::equal(a.dims().begin(), a.dims().end(), b.dims().begin(), b.dims().end());
}

bool HaveOneValue(const TensorProto& a, const TensorProto& b) {
  TensorProto left = a, right = b;
  for (TensorProto* tensor : {&left, &right}) {
    tensor->clear_name();
    tensor->clear_doc_string();
  }
  return left.SerializeAsString() == right.SerializeAsString();
}

std::string FunctionKey(const std::string& domain, const std::string& name,
                        const std::string& overload) {
  return NormalDomain(domain) + '\0' + name + '\0' + overload;
}

template <typename Visit>
void ForEachBody(const NodeProto& node, Visit&& visit) {
  for (const AttributeProto& attribute : node.attribute()) {
    if (attribute.has_g()) visit(attribute.g());
    for (const GraphProto& graph : attribute.graphs()) visit(graph);
  }
}

absl::Status CycleError(const std::vector<const NodeProto*>& nodes,
                        const std::vector<int>& waiting) {
  constexpr int kListed = 10;
  std::string list;
  int count = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (waiting[i] == 0) continue;
    if (count < kListed)
      list += fmt::format("{}`{}`", count == 0 ? "" : ", ",
                          DescribeNode(*nodes[i], static_cast<int>(i)));
    ++count;
  }
  if (count > kListed) list += fmt::format(" and {} more", count - kListed);
  return InvalidArgument("the graph has a cycle through or before the nodes {}", list);
}

}  // namespace

std::string NormalDomain(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

std::string DescribeNode(const NodeProto& node, int index) {
  if (!node.name().empty()) return Printable(node.name());
  return fmt::format("{} at position {}", Printable(node.op_type()), index);
}

bool LooksLikeOnnx(std::span<const std::byte> bytes) {
  const absl::StatusOr<std::string> skeleton = ScanMessage(bytes, *ModelProto::descriptor());
  ModelProto model;
  return skeleton.ok() && model.ParseFromString(*skeleton) && model.has_graph();
}

absl::StatusOr<ModelFile> OpenModelFile(const std::filesystem::path& path) {
  ModelFile file;
  QUENCH_ASSIGN_OR_RETURN(file.mapping, FileMapping::Open(path));
  const std::string where = fmt::format("`{}`", path.filename().string());
  if (file.mapping->bytes().empty()) return InvalidArgument("{} is empty", where);
  absl::StatusOr<std::string> skeleton =
      ScanMessage(file.mapping->bytes(), *ModelProto::descriptor());
  if (!skeleton.ok()) return Annotate(skeleton.status(), where + " is not a readable ONNX model");
  if (!file.proto.ParseFromString(*skeleton)) {
    return InvalidArgument("{} is not a readable ONNX model: its messages do not parse", where);
  }
  if (!file.proto.has_graph())
    return InvalidArgument("{} is not an ONNX model: it has no graph", where);
  return file;
}

absl::StatusOr<Opsets> OpsetsOf(const ModelProto& model, int64_t override_opset) {
  StatusCollector problems;
  if (model.ir_version() < 3 || model.ir_version() > kNewestIrVersion) {
    problems.Add(InvalidArgument("ONNX IR version {} is not supported (supported: 3 to {})",
                                 model.ir_version(), kNewestIrVersion));
  }
  Opsets opsets;
  for (const onnx::v1::OperatorSetIdProto& entry : model.opset_import()) {
    const std::string domain = NormalDomain(entry.domain());
    const auto [known, fresh] = opsets.emplace(domain, entry.version());
    if (!fresh && known->second != entry.version()) {
      problems.Add(InvalidArgument("domain `{}` is imported as opset {} and as opset {}",
                                   Printable(domain), known->second, entry.version()));
    }
  }
  if (override_opset != 0) opsets[""] = override_opset;
  if (const auto opset = opsets.find(""); opset != opsets.end()) {
    if (opset->second < 1 || opset->second > kNewestOpset) {
      problems.Add(InvalidArgument("opset {} is not supported (supported: 1 to {})", opset->second,
                                   kNewestOpset));
    }
  } else if (model.opset_import().empty()) {
    problems.Add(InvalidArgument(
        "the model imports no opset, so its operators have no defined meaning; give one"));
  }
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  return opsets;
}

FunctionTable::FunctionTable(const ModelProto& model) {
  for (const FunctionProto& function : model.functions()) {
    functions_.emplace(FunctionKey(function.domain(), function.name(), function.overload()),
                       &function);
  }
}

const FunctionProto* FunctionTable::Find(const NodeProto& node) const {
  if (functions_.empty()) return nullptr;
  const auto found = functions_.find(FunctionKey(node.domain(), node.op_type(), node.overload()));
  return found == functions_.end() ? nullptr : found->second;
}

std::set<std::string> UsedNames(const NodeProto& node) {
  std::set<std::string> names(node.input().begin(), node.input().end());
  names.erase("");
  ForEachBody(node, [&](const GraphProto& body) { names.merge(FreeNames(body)); });
  return names;
}

std::set<std::string> FreeNames(const GraphProto& graph) {
  std::set<std::string> used;
  for (const NodeProto& node : graph.node()) used.merge(UsedNames(node));
  for (const auto& output : graph.output()) used.insert(output.name());
  for (const auto& input : graph.input()) used.erase(input.name());
  for (const auto& tensor : graph.initializer()) used.erase(tensor.name());
  for (const auto& tensor : graph.sparse_initializer()) used.erase(tensor.values().name());
  for (const NodeProto& node : graph.node()) {
    for (const std::string& output : node.output()) used.erase(output);
  }
  return used;
}

std::vector<const NodeProto*> WithoutRepeatedConstants(const std::vector<const NodeProto*>& nodes,
                                                       std::vector<std::string>& overridden) {
  std::map<std::string, std::vector<size_t>> definitions;
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const std::string& output : nodes[i]->output()) definitions[output].push_back(i);
  }
  std::set<size_t> dropped;
  for (const auto& [name, places] : definitions) {
    if (places.size() < 2) continue;
    const TensorProto* last = ConstantOf(*nodes[places.back()]);
    const bool alike = std::all_of(places.begin(), places.end(), [&](size_t place) {
      const TensorProto* tensor = ConstantOf(*nodes[place]);
      return tensor != nullptr && last != nullptr && HaveOneType(*tensor, *last);
    });
    if (!alike) continue;
    const bool same = std::all_of(places.begin(), places.end(), [&](size_t place) {
      return HaveOneValue(*ConstantOf(*nodes[place]), *last);
    });
    if (!same) overridden.push_back(name);
    dropped.insert(places.begin(), places.end() - 1);
  }
  std::vector<const NodeProto*> kept;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!dropped.contains(i)) kept.push_back(nodes[i]);
  }
  return kept;
}

absl::StatusOr<std::vector<const NodeProto*>> SortNodes(
    const std::vector<const NodeProto*>& nodes) {
  std::map<std::string, size_t> producer;
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const std::string& output : nodes[i]->output()) producer.emplace(output, i);
  }
  std::vector<int> waiting(nodes.size(), 0);
  std::vector<std::vector<size_t>> consumers(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const std::string& name : UsedNames(*nodes[i])) {
      const auto found = producer.find(name);
      if (found == producer.end()) continue;
      ++waiting[i];
      consumers[found->second].push_back(i);
    }
  }
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (waiting[i] == 0) ready.push(i);
  }
  std::vector<const NodeProto*> order;
  while (!ready.empty()) {
    const size_t i = ready.top();
    ready.pop();
    order.push_back(nodes[i]);
    for (const size_t consumer : consumers[i]) {
      if (--waiting[consumer] == 0) ready.push(consumer);
    }
  }
  if (order.size() != nodes.size()) return CycleError(nodes, waiting);
  return order;
}

}  // namespace quench::importer
