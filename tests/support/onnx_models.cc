#include "tests/support/onnx_models.h"

#include <gtest/gtest.h>

#include <fstream>

#include "common/base/status.h"
#include "services/importer/onnx/tensor_proto.h"

namespace quench::testing {
namespace {

onnx::v1::AttributeProto& AddAttribute(onnx::v1::NodeProto& node, const std::string& name,
                                       onnx::v1::AttributeProto::AttributeType type) {
  onnx::v1::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(type);
  return attribute;
}

}  // namespace

OnnxModel::OnnxModel(int64_t opset, int64_t ir_version) {
  proto_.set_ir_version(ir_version);
  proto_.mutable_graph()->set_name("test");
  Import("", opset);
}

OnnxModel& OnnxModel::Import(const std::string& domain, int64_t version) {
  auto* entry = proto_.add_opset_import();
  entry->set_domain(domain);
  entry->set_version(version);
  return *this;
}

OnnxModel& OnnxModel::Input(const std::string& name, DataType dtype, const DimSpecs& dims) {
  FillInfo(*graph().add_input(), name, dtype, dims);
  return *this;
}

OnnxModel& OnnxModel::Output(const std::string& name, DataType dtype) {
  auto* info = graph().add_output();
  info->set_name(name);
  info->mutable_type()->mutable_tensor_type()->set_elem_type(static_cast<int>(dtype));
  return *this;
}

OnnxModel& OnnxModel::Initializer(const std::string& name, const Tensor& tensor) {
  auto* proto = graph().add_initializer();
  importer::FillTensorProto(tensor, *proto);
  proto->set_name(name);
  return *this;
}

onnx::v1::NodeProto& OnnxModel::Node(const std::string& op, const std::vector<std::string>& inputs,
                                     const std::vector<std::string>& outputs,
                                     const std::string& name) {
  return AddNode(graph(), op, inputs, outputs, name);
}

onnx::v1::NodeProto& AddNode(onnx::v1::GraphProto& graph, const std::string& op,
                             const std::vector<std::string>& inputs,
                             const std::vector<std::string>& outputs, const std::string& name) {
  onnx::v1::NodeProto& node = *graph.add_node();
  node.set_op_type(op);
  for (const std::string& input : inputs) node.add_input(input);
  for (const std::string& output : outputs) node.add_output(output);
  if (!name.empty()) node.set_name(name);
  return node;
}

void FillInfo(onnx::v1::ValueInfoProto& info, const std::string& name, DataType dtype,
              const DimSpecs& dims) {
  info.set_name(name);
  auto* tensor = info.mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(static_cast<int>(dtype));
  auto* shape = tensor->mutable_shape();
  for (const DimSpec& dim : dims) {
    auto* out = shape->add_dim();
    if (const auto* size = std::get_if<int64_t>(&dim)) out->set_dim_value(*size);
    if (const auto* text = std::get_if<std::string>(&dim); text != nullptr && !text->empty())
      out->set_dim_param(*text);
  }
}

void SetInt(onnx::v1::NodeProto& node, const std::string& name, int64_t value) {
  AddAttribute(node, name, onnx::v1::AttributeProto::INT).set_i(value);
}
void SetFloat(onnx::v1::NodeProto& node, const std::string& name, float value) {
  AddAttribute(node, name, onnx::v1::AttributeProto::FLOAT).set_f(value);
}
void SetString(onnx::v1::NodeProto& node, const std::string& name, const std::string& value) {
  AddAttribute(node, name, onnx::v1::AttributeProto::STRING).set_s(value);
}
void SetInts(onnx::v1::NodeProto& node, const std::string& name,
             const std::vector<int64_t>& values) {
  auto& attribute = AddAttribute(node, name, onnx::v1::AttributeProto::INTS);
  for (const int64_t value : values) attribute.add_ints(value);
}
void SetFloats(onnx::v1::NodeProto& node, const std::string& name,
               const std::vector<float>& values) {
  auto& attribute = AddAttribute(node, name, onnx::v1::AttributeProto::FLOATS);
  for (const float value : values) attribute.add_floats(value);
}
onnx::v1::GraphProto& SetGraph(onnx::v1::NodeProto& node, const std::string& name) {
  onnx::v1::GraphProto& graph =
      *AddAttribute(node, name, onnx::v1::AttributeProto::GRAPH).mutable_g();
  graph.set_name(name);
  return graph;
}
void SetTensor(onnx::v1::NodeProto& node, const std::string& name, const Tensor& tensor) {
  importer::FillTensorProto(
      tensor, *AddAttribute(node, name, onnx::v1::AttributeProto::TENSOR).mutable_t());
}

ImportFolder::ImportFolder() : folder_(*TempDir::Create()) {
  store_ = *LocalBlobStore::Open(folder_.path() / "store");
}

std::filesystem::path ImportFolder::Write(const std::string& name, const std::string& bytes) const {
  const std::filesystem::path file = folder_.path() / name;
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << bytes;
  return file;
}

absl::StatusOr<importer::Imported> ImportFolder::Import(OnnxModel& model,
                                                        const importer::ImportOptions& options) {
  return ImportBytes(model.proto().SerializeAsString(), options);
}

absl::StatusOr<importer::Imported> ImportFolder::ImportBytes(
    const std::string& bytes, const importer::ImportOptions& options) {
  return importer::ImportModel(Write("model.onnx", bytes), options, *store_);
}

std::string ErrorOf(const absl::Status& status) {
  EXPECT_FALSE(status.ok());
  return MessageOf(status);
}

Tensor F32(std::vector<int64_t> dims, const std::vector<float>& values) {
  return Tensor::Of(DataType::kF32, std::move(dims), values);
}

}  // namespace quench::testing
