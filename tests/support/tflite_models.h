// TensorFlow Lite models for tests, written with the objects of the schema.
#pragma once

#include <string>
#include <vector>

#include "common/ir/tensor.h"
#include "services/importer/tflite/schema_generated.h"

namespace quench::testing {

// Scale and zero point, for the tensor or for each slice along `axis`.
struct Steps {
  std::vector<float> scale;
  std::vector<int64_t> zero;
  int axis = 0;
};

// A model with one subgraph at first, filled step by step. Tensors and subgraphs are named by their
// numbers.
class TfliteModel {
 public:
  TfliteModel();

  tflite::ModelT& model() { return model_; }
  tflite::SubGraphT& graph() { return *model_.subgraphs[current_]; }
  // Anything added from now on goes there.
  TfliteModel& Select(size_t subgraph);
  size_t AddSubgraph();

  // -1 is a size of the run.
  int Tensor(const std::string& name, tflite::TensorType type, const std::vector<int>& dims,
             const Steps& steps = {});
  int Constant(const std::string& name, const quench::Tensor& contents, const Steps& steps = {});
  int Input(const std::string& name, tflite::TensorType type, const std::vector<int>& dims,
            const Steps& steps = {});
  TfliteModel& Inputs(const std::vector<int>& tensors);
  TfliteModel& Outputs(const std::vector<int>& tensors);
  tflite::OperatorT& Op(tflite::BuiltinOperator op, const std::vector<int>& inputs,
                        const std::vector<int>& outputs);
  template <typename Options>
  tflite::OperatorT& Op(tflite::BuiltinOperator op, const std::vector<int>& inputs,
                        const std::vector<int>& outputs, const Options& options) {
    tflite::OperatorT& added = Op(op, inputs, outputs);
    added.builtin_options.Set(Options(options));
    return added;
  }

  std::string Bytes() const;

 private:
  tflite::ModelT model_;
  size_t current_ = 0;
};

}  // namespace quench::testing
