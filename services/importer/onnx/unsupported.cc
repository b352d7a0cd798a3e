#include "services/importer/onnx/unsupported.h"

#include "common/base/status.h"
#include "services/importer/onnx/convert.h"
#include "services/importer/onnx/names.h"
#include "services/importer/onnx/reader.h"

namespace quench::importer {
namespace {

using onnx::v1::FunctionProto;
using onnx::v1::NodeProto;

class Finder {
 public:
  Finder(const onnx::v1::ModelProto& model, const Opsets& opsets)
      : functions_(model), opsets_(opsets) {}

  void Visit(const NodeProto& node, int index, const std::string& prefix, const Opsets& opsets);
  void VisitFunctions();
  std::vector<UnsupportedOp> Take();

 private:
  FunctionTable functions_;
  const Opsets& opsets_;
  std::set<const FunctionProto*> called_;
  std::vector<const FunctionProto*> pending_;
  std::map<std::pair<std::string, std::string>, UnsupportedOp> found_;
};

void Finder::Visit(const NodeProto& node, int index, const std::string& prefix,
                   const Opsets& opsets) {
  for (const auto& attribute : node.attribute()) {
    if (!attribute.has_g()) continue;
    for (int i = 0; i < attribute.g().node_size(); ++i)
      Visit(attribute.g().node(i), i, prefix, opsets);
  }
  if (const FunctionProto* function = functions_.Find(node)) {
    if (called_.insert(function).second) pending_.push_back(function);
    return;
  }
  const std::string domain = NormalDomain(node.domain());
  if (IsSupported(domain, node.op_type())) return;
  UnsupportedOp& op = found_[{domain, node.op_type()}];
  op.domain = Printable(domain);
  op.op = Printable(node.op_type());
  const auto opset = opsets.find(domain);
  op.opset = opset == opsets.end() ? 0 : opset->second;
  op.nodes.push_back(prefix + DescribeNode(node, index));
}

// Functions may call one another to any depth, so they wait in a list.
void Finder::VisitFunctions() {
  while (!pending_.empty()) {
    const FunctionProto* function = pending_.back();
    pending_.pop_back();
    Opsets opsets = opsets_;
    for (const auto& entry : function->opset_import())
      opsets[NormalDomain(entry.domain())] = entry.version();
    const std::string prefix = Printable(function->name()) + "/";
    for (int i = 0; i < function->node_size(); ++i) Visit(function->node(i), i, prefix, opsets);
  }
}

std::vector<UnsupportedOp> Finder::Take() {
  std::vector<UnsupportedOp> ops;
  for (auto& [key, op] : found_) ops.push_back(std::move(op));
  return ops;
}

}  // namespace

absl::StatusOr<std::vector<UnsupportedOp>> FindUnsupportedOps(const onnx::v1::ModelProto& model,
                                                              const Opsets& opsets,
                                                              const ImportOptions& options) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<const NodeProto*> nodes,
                          NeededNodes(model.graph(), options));
  Finder finder(model, opsets);
  for (size_t i = 0; i < nodes.size(); ++i)
    finder.Visit(*nodes[i], static_cast<int>(i), "", opsets);
  finder.VisitFunctions();
  return finder.Take();
}

absl::Status UnsupportedError(const std::vector<UnsupportedOp>& ops) {
  if (ops.empty()) return absl::OkStatus();
  constexpr size_t kListedNodes = 5;
  std::string text = ops.size() == 1
                         ? "an operator of the model is not supported"
                         : fmt::format("{} operators of the model are not supported", ops.size());
  for (const UnsupportedOp& op : ops) {
    text += fmt::format("\n`{}` of domain `{}`, opset {}: {} node{} (", op.op,
                        op.domain.empty() ? "ai.onnx" : op.domain,
                        op.opset == 0 ? "unknown" : std::to_string(op.opset), op.nodes.size(),
                        op.nodes.size() == 1 ? "" : "s");
    for (size_t i = 0; i < std::min(op.nodes.size(), kListedNodes); ++i) {
      text += fmt::format("{}`{}`", i == 0 ? "" : ", ", op.nodes[i]);
    }
    text += op.nodes.size() > kListedNodes ? ", ...)" : ")";
  }
  return absl::UnimplementedError(text);
}

}  // namespace quench::importer
