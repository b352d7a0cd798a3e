// Helpers for tests of the quantizer.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/ir/graph.h"
#include "common/runner/samples.h"
#include "services/quantizer/statistics.h"

namespace quench::quantizer {

// Two convolutions with a residual, pooling, and a Gemm: x -> c1+relu -> c2 (+ c1) relu -> pool ->
// flatten -> gemm.
Graph ResidualNetwork();

// A 3x3-padded convolution whose output channels (kernel and bias) spread by a thousand.
ValueId UnevenConv(Graph& graph, ValueId x, const std::string& name, std::vector<int64_t> kernel,
                   int64_t group, uint64_t seed, bool uneven = true);
// A block as MobileNets have it: 1x1, activation, depthwise, activation, 1x1; the first is uneven.
using Activation = std::function<ValueId(Graph&, ValueId, const std::string&)>;
Graph UnevenBlock(const Activation& activation);

// Statistics by the interpreter, on random inputs.
Statistics Seen(const Graph& graph, int samples = 12);

// Each sample is one tensor, for a model with one input.
class Given final : public Samples {
 public:
  explicit Given(std::vector<Tensor> tensors) : tensors_(std::move(tensors)) {}
  int64_t count() const override { return static_cast<int64_t>(tensors_.size()); }
  absl::StatusOr<std::vector<Tensor>> Read(int64_t sample) const override {
    return std::vector<Tensor>{tensors_[static_cast<size_t>(sample)]};
  }
  std::string NameOf(int64_t sample) const override { return std::to_string(sample); }

 private:
  std::vector<Tensor> tensors_;
};

}  // namespace quench::quantizer
