#include "tests/support/kernel_runner.h"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/base/files.h"
#include "common/base/status.h"
#include "services/codegen/emit/module.h"
#include "services/codegen/link/link.h"
#include "services/codegen/packs/pack.h"
#include "services/codegen/schedule/plan_nest.h"

namespace quench::codegen {
namespace {

struct Blocking {
  int64_t outer = 1, n = 1, inner = 1, block = 1;
  int64_t blocks() const { return (n + block - 1) / block; }
  size_t floats() const { return static_cast<size_t>(outer * blocks() * inner * block); }
  size_t At(int64_t o, int64_t c, int64_t i) const {
    return static_cast<size_t>(((o * blocks() + c / block) * inner + i) * block + c % block);
  }
};

Blocking BlockingOf(const std::vector<int64_t>& dims, const Layout& layout) {
  Blocking b;
  const int axis = layout.row_major() ? 0 : layout.blocked_axis;
  b.block = layout.row_major() ? 1 : layout.block;
  for (int i = 0; i < static_cast<int>(dims.size()); ++i) {
    (i < axis ? b.outer : i == axis ? b.n : b.inner) *= dims[static_cast<size_t>(i)];
  }
  return b;
}

}  // namespace

std::vector<float> ToLayout(const Tensor& tensor, const Layout& layout) {
  const Blocking b = BlockingOf(tensor.dims(), layout);
  std::vector<float> memory(b.floats(), 0.0F);
  const std::span<const float> source = tensor.as<float>();
  for (int64_t o = 0; o < b.outer; ++o) {
    for (int64_t c = 0; c < b.n; ++c) {
      for (int64_t i = 0; i < b.inner; ++i)
        memory[b.At(o, c, i)] = source[static_cast<size_t>((o * b.n + c) * b.inner + i)];
    }
  }
  return memory;
}

Tensor FromLayout(const std::vector<float>& memory, std::vector<int64_t> dims,
                  const Layout& layout) {
  const Blocking b = BlockingOf(dims, layout);
  Tensor tensor = Tensor::Zeros(DataType::kF32, std::move(dims));
  float* out = reinterpret_cast<float*>(tensor.mutable_bytes());
  for (int64_t o = 0; o < b.outer; ++o) {
    for (int64_t c = 0; c < b.blocks() * b.block; ++c) {
      for (int64_t i = 0; i < b.inner; ++i) {
        const float value = memory[b.At(o, c, i)];
        if (c < b.n) {
          out[(o * b.n + c) * b.inner + i] = value;
        } else if (value != 0.0F) {  // a padding lane must hold 0: make the mistake visible
          out[o * b.n * b.inner] = std::numeric_limits<float>::quiet_NaN();
        }
      }
    }
  }
  return tensor;
}

absl::StatusOr<std::unique_ptr<KernelRunner>> KernelRunner::Create(const KernelRequest& request,
                                                                   const Candidate& candidate) {
  std::unique_ptr<KernelRunner> runner(new KernelRunner(request, candidate));
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<ModuleBuilder> module,
                          ModuleBuilder::Create(request.target));
  QUENCH_ASSIGN_OR_RETURN(const KernelPlan kernel, PlanKernel(request, candidate));
  std::vector<KernelPlan> plans;
  if (candidate.preparation) plans.push_back(PlanPreparation(candidate));
  plans.push_back(kernel);
  for (const KernelPlan& plan : plans) {
    QUENCH_ASSIGN_OR_RETURN(runner->parts_.emplace_back().emitted, module->Emit(plan));
    module->Export(runner->parts_.back().emitted.symbol);
  }
  QUENCH_ASSIGN_OR_RETURN(const std::string object, module->Finish());
  QUENCH_ASSIGN_OR_RETURN(const TempDir folder, TempDir::Create());
  const std::filesystem::path object_path = folder.path() / "kernel.o";
  const std::filesystem::path library_path = folder.path() / "kernel.so";
  QUENCH_RETURN_IF_ERROR(WriteFileAtomically(object_path, object));
  QUENCH_RETURN_IF_ERROR(LinkShared(request.target, {object_path}, "kernel.so", library_path));
  runner->library_ = dlopen(library_path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (runner->library_ == nullptr) return Internal("dlopen: {}", dlerror());
  for (Part& part : runner->parts_) {
    part.function =
        reinterpret_cast<KernelFunction>(dlsym(runner->library_, part.emitted.symbol.c_str()));
    if (part.function == nullptr) return Internal("dlsym: {}", dlerror());
  }
  return runner;
}

KernelRunner::~KernelRunner() {
  if (library_ != nullptr) dlclose(library_);
}

void KernelRunner::AddSpace(size_t floats) {
  constexpr size_t kAlignment = 64;
  const size_t bytes = (floats * 4 + kAlignment - 1) / kAlignment * kAlignment + kAlignment;
  float* memory = static_cast<float*>(std::aligned_alloc(kAlignment, bytes));
  std::fill_n(memory, bytes / 4, std::numeric_limits<float>::quiet_NaN());
  memory_.emplace_back(memory, std::free);
  pointers_.push_back(memory);
}

void KernelRunner::Add(const std::vector<float>& values) {
  AddSpace(values.size());
  if (!values.empty()) std::memcpy(pointers_.back(), values.data(), values.size() * 4);
}

absl::Status KernelRunner::AddInputs(const std::map<ValueId, Tensor>& inputs) {
  for (size_t i = 0; i < request_.node.inputs.size(); ++i) {
    const ValueId id = request_.node.inputs[i];
    if (id == quench::kNone || candidate_.packed[i]) continue;
    const Value& value = request_.graph.value(id);
    const auto given = inputs.find(id);
    if (value.constant == nullptr && given == inputs.end())
      return Internal("no tensor for input `{}`", value.name);
    Add(ToLayout(value.constant != nullptr ? value.constant->tensor : given->second,
                 candidate_.inputs[i]));
  }
  return absl::OkStatus();
}

absl::Status KernelRunner::AddPacks() {
  for (const PackSpec& pack : candidate_.packs) {
    std::vector<const Tensor*> sources;
    for (const int input : pack.inputs) {
      const ValueId id = request_.node.inputs[static_cast<size_t>(input)];
      sources.push_back(&request_.graph.value(id).constant->tensor);
    }
    QUENCH_ASSIGN_OR_RETURN(const std::vector<std::byte> packed, Pack(pack, sources));
    AddSpace((packed.size() + 3) / 4);
    std::memcpy(pointers_.back(), packed.data(), packed.size());
  }
  return absl::OkStatus();
}

absl::Status KernelRunner::Prepare(const std::map<ValueId, Tensor>& inputs,
                                   std::vector<int64_t> slots) {
  slots_ = std::move(slots);
  memory_.clear();
  pointers_.clear();
  QUENCH_RETURN_IF_ERROR(AddInputs(inputs));
  const auto value_of = [&](Dim dim) { return SymbolTable::ValueOf(dim, slots_); };
  if (candidate_.preparation)
    AddSpace(static_cast<size_t>(value_of(candidate_.preparation->workspace_bytes)) / 4);
  std::vector<int64_t> dims;
  for (const Dim dim : request_.graph.value(request_.node.outputs[0]).type.dims) {
    dims.push_back(SymbolTable::ValueOf(dim, slots_));
  }
  output_floats_ = BlockingOf(dims, candidate_.outputs[0]).floats();
  output_index_ = pointers_.size();
  AddSpace(output_floats_);
  QUENCH_RETURN_IF_ERROR(AddPacks());
  AddSpace(static_cast<size_t>(value_of(parts_.back().emitted.scratch_bytes)) / 4);
  for (Part& part : parts_) part.tasks = value_of(part.emitted.tasks);
  return absl::OkStatus();
}

absl::Status KernelRunner::Run(int ranges) {
  for (const Part& part : parts_) {
    for (int i = ranges - 1; i >= 0; --i) {
      const int32_t code = part.function(pointers_.data(), slots_.data(), part.tasks * i / ranges,
                                         part.tasks * (i + 1) / ranges);
      if (code != 0) return Internal("the kernel returned {}", code);
    }
  }
  return absl::OkStatus();
}

Tensor KernelRunner::Output() const {
  std::vector<int64_t> dims;
  for (const Dim dim : request_.graph.value(request_.node.outputs[0]).type.dims) {
    dims.push_back(SymbolTable::ValueOf(dim, slots_));
  }
  const float* memory = static_cast<const float*>(pointers_[output_index_]);
  return FromLayout({memory, memory + output_floats_}, dims, candidate_.outputs[0]);
}

}  // namespace quench::codegen
