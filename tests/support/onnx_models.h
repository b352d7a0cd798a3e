// ONNX models for tests, built with the declared messages and written to files.
#pragma once

#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "common/base/files.h"
#include "common/blobs/blob_store.h"
#include "common/ir/tensor.h"
#include "quench/onnx/v1/onnx.pb.h"
#include "services/importer/importer.h"

namespace quench::testing {

using DimSpec = std::variant<int64_t, std::string>;  // a size, a name, or "" for unknown
using DimSpecs = std::vector<DimSpec>;

// A model with one graph, filled step by step. Every node it adds is returned for attributes.
class OnnxModel {
 public:
  explicit OnnxModel(int64_t opset = 17, int64_t ir_version = 8);

  onnx::v1::ModelProto& proto() { return proto_; }
  onnx::v1::GraphProto& graph() { return *proto_.mutable_graph(); }

  OnnxModel& Import(const std::string& domain, int64_t version);
  OnnxModel& Input(const std::string& name, DataType dtype, const DimSpecs& dims);
  OnnxModel& Output(const std::string& name, DataType dtype = DataType::kF32);
  OnnxModel& Initializer(const std::string& name, const Tensor& tensor);
  onnx::v1::NodeProto& Node(const std::string& op, const std::vector<std::string>& inputs,
                            const std::vector<std::string>& outputs, const std::string& name = "");

 private:
  onnx::v1::ModelProto proto_;
};

onnx::v1::NodeProto& AddNode(onnx::v1::GraphProto& graph, const std::string& op,
                             const std::vector<std::string>& inputs,
                             const std::vector<std::string>& outputs, const std::string& name = "");
void FillInfo(onnx::v1::ValueInfoProto& info, const std::string& name, DataType dtype,
              const DimSpecs& dims);
void SetInt(onnx::v1::NodeProto& node, const std::string& name, int64_t value);
void SetFloat(onnx::v1::NodeProto& node, const std::string& name, float value);
void SetString(onnx::v1::NodeProto& node, const std::string& name, const std::string& value);
void SetInts(onnx::v1::NodeProto& node, const std::string& name,
             const std::vector<int64_t>& values);
void SetFloats(onnx::v1::NodeProto& node, const std::string& name,
               const std::vector<float>& values);
onnx::v1::GraphProto& SetGraph(onnx::v1::NodeProto& node, const std::string& name);
void SetTensor(onnx::v1::NodeProto& node, const std::string& name, const Tensor& tensor);

// A fresh folder with a blob store, and the importer on top.
class ImportFolder {
 public:
  ImportFolder();
  const std::filesystem::path& path() const { return folder_.path(); }
  BlobStore& store() { return *store_; }

  std::filesystem::path Write(const std::string& name, const std::string& bytes) const;
  absl::StatusOr<importer::Imported> Import(OnnxModel& model,
                                            const importer::ImportOptions& options = {});
  absl::StatusOr<importer::Imported> ImportBytes(const std::string& bytes,
                                                 const importer::ImportOptions& options = {});

 private:
  TempDir folder_;
  std::shared_ptr<LocalBlobStore> store_;
};

// Message of a status that is not OK; "" and a test failure when it is.
std::string ErrorOf(const absl::Status& status);

Tensor F32(std::vector<int64_t> dims, const std::vector<float>& values);

}  // namespace quench::testing
