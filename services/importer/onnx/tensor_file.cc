#include "services/importer/onnx/tensor_file.h"

#include "common/base/files.h"
#include "common/base/status.h"
#include "services/importer/graph/wire_scanner.h"
#include "services/importer/onnx/tensor_data.h"
#include "services/importer/onnx/tensor_proto.h"

namespace quench::importer {

absl::StatusOr<Tensor> ReadTensorProto(const std::filesystem::path& path) {
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<const FileMapping> mapping,
                          FileMapping::Open(path));
  const std::string where = fmt::format("`{}`", path.filename().string());
  absl::StatusOr<std::string> skeleton =
      ScanMessage(mapping->bytes(), *onnx::v1::TensorProto::descriptor());
  if (!skeleton.ok()) return Annotate(skeleton.status(), where + " is not a readable tensor");
  onnx::v1::TensorProto proto;
  if (!proto.ParseFromString(*skeleton))
    return InvalidArgument("{} is not a readable tensor", where);
  absl::StatusOr<Tensor> tensor = ReadTensor(proto, {mapping->bytes(), nullptr});
  if (!tensor.ok()) return Annotate(tensor.status(), where);
  return tensor;
}

absl::Status WriteTensorProto(const Tensor& tensor, const std::string& name,
                              const std::filesystem::path& path) {
  constexpr size_t kMaxBytes = (size_t{2} << 30) - (size_t{1} << 20);
  if (tensor.bytes().size() > kMaxBytes) {
    return absl::ResourceExhaustedError(
        fmt::format("a tensor of {} bytes does not fit into one message", tensor.bytes().size()));
  }
  onnx::v1::TensorProto proto;
  FillTensorProto(tensor, proto);
  proto.set_name(name);
  return WriteFileAtomically(path, proto.SerializeAsString());
}

}  // namespace quench::importer
