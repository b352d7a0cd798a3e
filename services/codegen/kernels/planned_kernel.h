// Kernels whose code follows from a plan: how a family makes candidates of its plans.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/codegen/forms/form.h"
#include "services/codegen/kernels/epilogue.h"
#include "services/codegen/kernels/plan_text.h"

namespace quench::codegen {

// Everything that the code of a kernel depends on.
template <typename Plan>
struct Planned {
  Group group;  // detached
  Plan plan;
  BufferMap buffers;
  std::vector<int> packs;  // PackEpilogue's result
};

// `kEmit`: absl::Status(VectorBuilder&, const Planned<Plan>&).
template <typename Plan, auto kEmit>
class PlannedKernel final : public CandidateCode {
 public:
  explicit PlannedKernel(Planned<Plan> planned) : planned_(std::move(planned)) {}

  absl::Status Emit(VectorBuilder& b) const override { return kEmit(b, planned_); }
  std::string Text(const SymbolTable& symbols) const override {
    return PlanTextOf(planned_.plan, symbols);
  }
  bool UsesMatrices() const override {
    if constexpr (requires { planned_.plan.form; }) {
      return planned_.plan.form.template As<MatrixForm>() != nullptr;
    } else {
      return false;
    }
  }
  std::shared_ptr<const CandidateCode> WithDims(const DimMap& map) const override {
    Planned<Plan> copy = planned_;
    ForEachDim(copy.plan, [&](Dim& dim) { dim = map(dim); });
    return std::make_shared<const PlannedKernel>(std::move(copy));
  }

 private:
  const Planned<Plan> planned_;
};

// Makes a candidate of a plan. Packs are counted in the order in which they are added.
class CandidateBuilder {
 public:
  // All tensors are in `layout`.
  CandidateBuilder(const KernelRequest& request, const Group& group, const Layout& layout)
      : request_(request), group_(group), candidate_(CandidateIn(layout, request, group)) {}

  Candidate& candidate() { return candidate_; }
  // Input i of the root is read through a pack, or not at all.
  void Take(int i) { candidate_.packed[Input(i)] = true; }
  void Pack(int i, std::string transform, std::map<std::string, int64_t> params) {
    Take(i);
    candidate_.packs.push_back(
        {std::move(transform), std::move(params), {group_.inputs[static_cast<size_t>(i)]}});
  }
  // Weights in a form, in the kernel's panels of this name.
  void PackWeights(int i, const std::string& panels, WeightPack pack,
                   std::map<std::string, int64_t> params) {
    pack.params.merge(params);
    Pack(i, panels + pack.suffix, std::move(pack.params));
  }
  // A number for each channel, then zeros up to `padded`.
  void PackChannels(int i, int64_t channels, int64_t padded) {
    Pack(i, "channels", {{"channels", channels}, {"padded", padded}});
  }
  // Operands of the epilogue, after all other packs.
  void PackOperands(int64_t channels, int64_t padded) {
    operands_ = PackEpilogue(request_, group_, channels, padded, candidate_);
  }

  // Code for the buffers that the candidate has by now.
  template <auto kEmit, typename Plan>
  std::shared_ptr<const CandidateCode> Code(const Plan& plan) const {
    return std::make_shared<const PlannedKernel<Plan, kEmit>>(
        Planned<Plan>{group_.Detached(), plan, BufferMap(request_.node, candidate_), operands_});
  }
  template <auto kEmit, typename Plan>
  void SetCode(const Plan& plan) {
    candidate_.tasks = plan.tasks;
    candidate_.scratch_bytes = plan.scratch;
    candidate_.code = Code<kEmit>(plan);
  }

 private:
  size_t Input(int i) const { return static_cast<size_t>(group_.inputs[static_cast<size_t>(i)]); }

  const KernelRequest& request_;
  const Group& group_;
  Candidate candidate_;
  std::vector<int> operands_;
};

// The text of a plan as it is read: Kernel::reread.
template <typename Plan>
absl::StatusOr<std::string> Reread(const std::string& text, SymbolTable& symbols) {
  QUENCH_ASSIGN_OR_RETURN(const Plan plan, ParsePlan<Plan>(text, symbols));
  return PlanTextOf(plan, symbols);
}

}  // namespace quench::codegen
