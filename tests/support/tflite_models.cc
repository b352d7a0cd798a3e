#include "tests/support/tflite_models.h"

#include <stdexcept>

namespace quench::testing {
namespace {

tflite::TensorType TypeOf(DataType dtype) {
  switch (dtype) {
    case DataType::kF32:
      return tflite::TensorType_FLOAT32;
    case DataType::kI32:
      return tflite::TensorType_INT32;
    case DataType::kI64:
      return tflite::TensorType_INT64;
    case DataType::kI8:
      return tflite::TensorType_INT8;
    case DataType::kU8:
      return tflite::TensorType_UINT8;
    case DataType::kBool:
      return tflite::TensorType_BOOL;
    default:
      throw std::logic_error("no tensor type for that");
  }
}

}  // namespace

TfliteModel::TfliteModel() {
  model_.version = 3;
  model_.buffers.push_back(std::make_unique<tflite::BufferT>());  // buffer 0 holds nothing
  AddSubgraph();
}

TfliteModel& TfliteModel::Select(size_t subgraph) {
  current_ = subgraph;
  return *this;
}

size_t TfliteModel::AddSubgraph() {
  model_.subgraphs.push_back(std::make_unique<tflite::SubGraphT>());
  return model_.subgraphs.size() - 1;
}

int TfliteModel::Tensor(const std::string& name, tflite::TensorType type,
                        const std::vector<int>& dims, const Steps& steps) {
  auto tensor = std::make_unique<tflite::TensorT>();
  tensor->name = name;
  tensor->type = type;
  for (const int dim : dims) {
    tensor->shape.push_back(dim < 0 ? 1 : dim);
    if (dim < 0) tensor->shape_signature = dims;
  }
  if (!steps.scale.empty()) {
    tensor->quantization = std::make_unique<tflite::QuantizationParametersT>();
    tensor->quantization->scale = steps.scale;
    tensor->quantization->zero_point = steps.zero;
    tensor->quantization->quantized_dimension = steps.axis;
  }
  graph().tensors.push_back(std::move(tensor));
  return static_cast<int>(graph().tensors.size()) - 1;
}

int TfliteModel::Constant(const std::string& name, const quench::Tensor& contents,
                          const Steps& steps) {
  const std::vector<int> dims(contents.dims().begin(), contents.dims().end());
  const int tensor = Tensor(name, TypeOf(contents.dtype()), dims, steps);
  auto buffer = std::make_unique<tflite::BufferT>();
  const auto* bytes = reinterpret_cast<const uint8_t*>(contents.bytes().data());
  buffer->data.assign(bytes, bytes + contents.bytes().size());
  graph().tensors.back()->buffer = static_cast<uint32_t>(model_.buffers.size());
  model_.buffers.push_back(std::move(buffer));
  return tensor;
}

int TfliteModel::Input(const std::string& name, tflite::TensorType type,
                       const std::vector<int>& dims, const Steps& steps) {
  const int tensor = Tensor(name, type, dims, steps);
  graph().inputs.push_back(tensor);
  return tensor;
}

TfliteModel& TfliteModel::Inputs(const std::vector<int>& tensors) {
  graph().inputs = tensors;
  return *this;
}

TfliteModel& TfliteModel::Outputs(const std::vector<int>& tensors) {
  graph().outputs = tensors;
  return *this;
}

tflite::OperatorT& TfliteModel::Op(tflite::BuiltinOperator op, const std::vector<int>& inputs,
                                   const std::vector<int>& outputs) {
  auto code = std::make_unique<tflite::OperatorCodeT>();
  code->builtin_code = op;
  code->deprecated_builtin_code = static_cast<int8_t>(
      std::min<int>(op, tflite::BuiltinOperator_PLACEHOLDER_FOR_GREATER_OP_CODES));
  model_.operator_codes.push_back(std::move(code));
  auto added = std::make_unique<tflite::OperatorT>();
  added->opcode_index = static_cast<uint32_t>(model_.operator_codes.size()) - 1;
  added->inputs = inputs;
  added->outputs = outputs;
  graph().operators.push_back(std::move(added));
  return *graph().operators.back();
}

std::string TfliteModel::Bytes() const {
  flatbuffers::FlatBufferBuilder builder;
  tflite::FinishModelBuffer(builder, tflite::Model::Pack(builder, &model_));
  return {reinterpret_cast<const char*>(builder.GetBufferPointer()), builder.GetSize()};
}

}  // namespace quench::testing
