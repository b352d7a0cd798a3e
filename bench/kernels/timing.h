// Time, data, and kernels of nothing but multiply-adds, for the programs of this folder.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "services/codegen/kernels/kernel.h"
#include "tests/support/kernel_runner.h"

namespace quench::codegen {

// CPU time of this thread: a busy machine preempts long runs.
double Seconds(const std::function<void()>& work);

// The same values in every run.
Tensor Random(std::vector<int64_t> dims);
Type TypeOf(const std::vector<int64_t>& dims);

// A kernel of `sums` chains of multiply-adds of vectors that do not depend on each other: enough of
// them run at the core's peak, one at the latency of the instruction.
class MultiplyAdds {
 public:
  static absl::StatusOr<std::unique_ptr<MultiplyAdds>> Create(const Target& target, int sums);
  void Call() { runner_->Call(); }
  double count() const;  // multiply-adds of vectors in a call

 private:
  MultiplyAdds(const Target& target, int sums) : target_(target), sums_(sums) {}
  const Target target_;
  const int sums_;
  Graph graph_;
  Kernel kernel_{.name = "peak"};
  std::unique_ptr<KernelRunner> runner_;
};

}  // namespace quench::codegen
