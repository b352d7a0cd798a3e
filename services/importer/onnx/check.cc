// The second opinion: Debian's libonnx. The only file that includes its headers, and where its
// exceptions end.
#include <onnx/checker.h>
#include <onnx/defs/schema.h>
#include <onnx/onnx_pb.h>
#include <onnx/shape_inference/implementation.h>

#include <exception>

#include "common/base/files.h"
#include "common/base/status.h"
#include "services/importer/importer.h"

namespace quench::importer {
namespace {

constexpr int64_t kNewestOpset = 17;  // of libonnx 1.12
constexpr int64_t kNewestIrVersion = 8;
constexpr size_t kMaxBytes = size_t{1}
                             << 30;  // libonnx holds the whole model in memory, weights too

int64_t OpsetOf(const ::onnx::ModelProto& model) {
  int64_t newest = 0;
  for (const auto& entry : model.opset_import()) {
    if (entry.domain().empty() || entry.domain() == "ai.onnx")
      newest = std::max<int64_t>(newest, entry.version());
  }
  return newest;
}

std::string FirstLine(const std::exception& error) {
  const std::string text = error.what();
  const size_t begin = text.find_first_not_of(" \n");
  return begin == std::string::npos ? "unknown"
                                    : text.substr(begin, text.find('\n', begin) - begin);
}

std::string TypeText(const ::onnx::TypeProto_Tensor& type) {
  std::string text(DataTypeName(
      static_cast<DataType>(type.elem_type() < kDataTypeCount ? type.elem_type() : 0)));
  text += "[";
  for (int i = 0; i < type.shape().dim_size(); ++i) {
    const auto& dim = type.shape().dim(i);
    text += fmt::format("{}{}", i == 0 ? "" : ", ",
                        dim.has_dim_value() ? std::to_string(dim.dim_value()) : "?");
  }
  return text + "]";
}

std::string TypeText(const Type& type, const SymbolTable& symbols) {
  std::string text(DataTypeName(type.dtype));
  text += "[";
  for (size_t i = 0; i < type.dims.size(); ++i)
    text += (i == 0 ? "" : ", ") + symbols.ToString(type.dims[i]);
  return text + "]";
}

// False only where both sides are sure and differ.
bool Agree(const ::onnx::TypeProto_Tensor& theirs, const Type& ours) {
  if (theirs.elem_type() != 0 && theirs.elem_type() != static_cast<int>(ours.dtype)) return false;
  if (!theirs.has_shape() || !ours.ranked) return true;
  if (theirs.shape().dim_size() != ours.rank()) return false;
  for (int i = 0; i < ours.rank(); ++i) {
    const auto& dim = theirs.shape().dim(i);
    const Dim own = ours.dims[static_cast<size_t>(i)];
    if (dim.has_dim_value() && own.is_static() && dim.dim_value() != own.value()) return false;
  }
  return true;
}

void CompareTypes(const ::onnx::GraphProto& theirs, const Graph& ours,
                  std::vector<std::string>& lines) {
  std::map<std::string, const Value*> by_name;
  for (const Value& value : ours.values) by_name.emplace(value.name, &value);
  const auto compare = [&](const ::onnx::ValueInfoProto& info) {
    const auto known = by_name.find(info.name());
    if (known == by_name.end() || !info.type().has_tensor_type()) return;
    const Type& type = known->second->type;
    if (type.kind != ValueKind::kTensor || !type.known() || Agree(info.type().tensor_type(), type))
      return;
    lines.push_back(fmt::format("value `{}`: libonnx infers {}, quench infers {}", info.name(),
                                TypeText(info.type().tensor_type()),
                                TypeText(type, *ours.symbols)));
  };
  for (const auto& info : theirs.value_info()) compare(info);
  for (const auto& info : theirs.output()) compare(info);
}

void RunChecker(const ::onnx::ModelProto& model, std::vector<std::string>& lines) {
  if (model.ir_version() > kNewestIrVersion) {
    lines.push_back(fmt::format(
        "the checker of libonnx 1.12 knows IR versions up to {}, the model has {}: it was not run",
        kNewestIrVersion, model.ir_version()));
    return;
  }
  try {
    ::onnx::checker::check_model(model);
  } catch (const std::exception& error) {
    lines.push_back("libonnx's checker: " + FirstLine(error));
  }
}

}  // namespace

absl::StatusOr<std::vector<std::string>> CheckWithLibonnx(const std::filesystem::path& path,
                                                          const Graph& imported) {
  if (!imported.metadata.contains("ir_version"))
    return InvalidArgument("libonnx checks only ONNX models, and `{}` is not one",
                           path.filename().string());
  QUENCH_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kMaxBytes));
  std::vector<std::string> lines;
  try {
    ::onnx::ModelProto model;
    if (!model.ParseFromString(bytes))
      return InvalidArgument("libonnx cannot parse `{}`", path.filename().string());
    if (const int64_t opset = OpsetOf(model); opset > kNewestOpset) {
      lines.push_back(
          fmt::format("libonnx 1.12 knows opsets up to {}, the model has {}: it was not checked",
                      kNewestOpset, opset));
      return lines;
    }
    RunChecker(model, lines);
    ::onnx::shape_inference::InferShapes(model);
    CompareTypes(model.graph(), imported, lines);
  } catch (const std::exception& error) {
    lines.push_back("libonnx's shape inference: " + FirstLine(error));
  }
  return lines;
}

}  // namespace quench::importer
