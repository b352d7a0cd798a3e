// An ONNX file, scanned and parsed, its large tensors still in the mapping.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "quench/onnx/v1/onnx.pb.h"

namespace quench::importer {

inline constexpr int64_t kNewestIrVersion = 14;
inline constexpr int64_t kNewestOpset = 28;

struct ModelFile {
  std::shared_ptr<const FileMapping> mapping;
  onnx::v1::ModelProto proto;
};

absl::StatusOr<ModelFile> OpenModelFile(const std::filesystem::path& path);
// True when the bytes look like an ONNX model: ir_version and a graph at the top level.
bool LooksLikeOnnx(std::span<const std::byte> bytes);

// Operator domain -> version. "ai.onnx" is "".
using Opsets = std::map<std::string, int64_t>;
std::string NormalDomain(const std::string& domain);
// The model's opsets with the override applied; checks IR version and opset against what is read.
absl::StatusOr<Opsets> OpsetsOf(const onnx::v1::ModelProto& model, int64_t override_opset);

// (domain, name, overload) -> local function.
class FunctionTable {
 public:
  explicit FunctionTable(const onnx::v1::ModelProto& model);
  const onnx::v1::FunctionProto* Find(const onnx::v1::NodeProto& node) const;

 private:
  std::map<std::string, const onnx::v1::FunctionProto*> functions_;
};

// Names that a graph or node uses but does not define, bodies included.
std::set<std::string> FreeNames(const onnx::v1::GraphProto& graph);
std::set<std::string> UsedNames(const onnx::v1::NodeProto& node);

// The nodes in topological order, stable: models should be sorted but some are not. A cycle is an
// error that names its nodes.
absl::StatusOr<std::vector<const onnx::v1::NodeProto*>> SortNodes(
    const std::vector<const onnx::v1::NodeProto*>& nodes);

// The nodes without Constant nodes whose value a later Constant of the same type defines again:
// some exporters write such models, and ONNX Runtime takes the last. Names whose contents differ
// are added to `overridden`.
std::vector<const onnx::v1::NodeProto*> WithoutRepeatedConstants(
    const std::vector<const onnx::v1::NodeProto*>& nodes, std::vector<std::string>& overridden);

// "conv1", or "Conv at position 12" for a node without a name.
std::string DescribeNode(const onnx::v1::NodeProto& node, int index);

}  // namespace quench::importer
