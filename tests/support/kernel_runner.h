// Compiles one kernel candidate to machine code of this computer and runs it on row-major tensors.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "services/codegen/emit/module.h"
#include "services/codegen/kernels/kernel.h"

namespace quench::codegen {

using KernelFunction = int32_t (*)(void* const* buffers, int64_t* slots, int64_t begin,
                                   int64_t end);

// Rank-agnostic: row-major <-> the layout, blocked axis only.
std::vector<float> ToLayout(const Tensor& tensor, const Layout& layout);
Tensor FromLayout(const std::vector<float>& memory, std::vector<int64_t> dims,
                  const Layout& layout);

class KernelRunner {
 public:
  // Emits, links and loads the candidate.
  static absl::StatusOr<std::unique_ptr<KernelRunner>> Create(const KernelRequest& request,
                                                              const Candidate& candidate);
  ~KernelRunner();

  // Packs constants and lays out inputs (one tensor per node input that is not constant, by value
  // id). `slots` holds the values of all symbols. Buffers are filled with NaN before the run.
  absl::Status Prepare(const std::map<ValueId, Tensor>& inputs, std::vector<int64_t> slots);
  // Runs all tasks, before them those of a preparation, as `ranges` separate calls, last range first.
  absl::Status Run(int ranges);
  Tensor Output() const;
  // One call over all tasks, for timing.
  int32_t Call() {
    int32_t code = 0;
    for (Part& part : parts_) code |= part.function(pointers_.data(), slots_.data(), 0, part.tasks);
    return code;
  }
  int64_t tasks() const { return parts_.back().tasks; }

 private:
  KernelRunner(const KernelRequest& request, const Candidate& candidate)
      : request_(request), candidate_(candidate) {}
  absl::Status AddInputs(const std::map<ValueId, Tensor>& inputs);
  absl::Status AddPacks();
  void Add(const std::vector<float>& values);
  void AddSpace(size_t floats);

  KernelRequest request_;
  Candidate candidate_;
  // A preparation, if the candidate has one, or the kernel.
  struct Part {
    EmittedKernel emitted;
    KernelFunction function = nullptr;
    int64_t tasks = 0;
  };
  std::vector<Part> parts_;
  void* library_ = nullptr;
  std::vector<std::unique_ptr<float[], void (*)(void*)>> memory_;
  std::vector<void*> pointers_;
  std::vector<int64_t> slots_;
  size_t output_floats_ = 0;
  size_t output_index_ = 0;
};

}  // namespace quench::codegen
