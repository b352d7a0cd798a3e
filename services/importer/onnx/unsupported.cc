#include "services/importer/onnx/unsupported.h"

#include "common/base/status.h"
#include "services/importer/graph/names.h"
#include "services/importer/onnx/convert.h"
#include "services/importer/onnx/reader.h"

namespace quench::importer {
namespace {

using onnx::v1::FunctionProto;
using onnx::v1::NodeProto;

class Finder {
 public:
  Finder(const onnx::v1::ModelProto& model, const Opsets& opsets, const FindConversion& find)
      : functions_(model), opsets_(opsets), find_(find) {}

  void Visit(const NodeProto& node, int index, const std::string& prefix, const Opsets& opsets);
  void VisitFunctions();
  std::vector<UnsupportedOp> Take();

 private:
  FunctionTable functions_;
  const Opsets& opsets_;
  const FindConversion& find_;
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
  if (find_(domain, node.op_type()) != nullptr) return;
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
                                                              const FindConversion& find,
                                                              const ImportOptions& options) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<const NodeProto*> nodes,
                          NeededNodes(model.graph(), options));
  Finder finder(model, opsets, find);
  for (size_t i = 0; i < nodes.size(); ++i)
    finder.Visit(*nodes[i], static_cast<int>(i), "", opsets);
  finder.VisitFunctions();
  return finder.Take();
}

}  // namespace quench::importer
