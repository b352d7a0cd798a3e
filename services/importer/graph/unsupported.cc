#include "services/importer/graph/unsupported.h"

#include <algorithm>

#include "common/base/status.h"

namespace quench::importer {

absl::Status UnsupportedError(std::span<const UnsupportedOp> ops, std::string_view version_word) {
  if (ops.empty()) return absl::OkStatus();
  constexpr size_t kListedNodes = 5;
  std::string text = ops.size() == 1
                         ? "an operator of the model is not supported"
                         : fmt::format("{} operators of the model are not supported", ops.size());
  for (const UnsupportedOp& op : ops) {
    text += fmt::format("\n`{}` of domain `{}`, {} {}: {} node{} (", op.op,
                        op.domain.empty() ? "ai.onnx" : op.domain, version_word,
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
