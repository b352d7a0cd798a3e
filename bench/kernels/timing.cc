#include "bench/kernels/timing.h"

#include <ctime>
#include <random>

#include "services/codegen/forms/vector_builder.h"

namespace quench::codegen {
namespace {

constexpr int64_t kSteps = 20000;

double Now() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

class MultiplyAddsCode final : public CandidateCode {
 public:
  MultiplyAddsCode(int lanes, int sums) : lanes_(lanes), sums_(sums) {}
  absl::Status Emit(VectorBuilder& b) const override {
    std::vector<VecVar> sums;
    for (int i = 0; i < sums_; ++i) sums.push_back(b.Variable(b.F(i, lanes_)));
    const Vec x = b.Load(b.Buffer(0), lanes_);
    b.For(b.I(0), b.I(kSteps), 1, [&](Int) {
      for (const VecVar& sum : sums) sum.Set(b.Fma(x, sum.Get(), x));
    });
    for (size_t i = 0; i < sums.size(); ++i) {
      b.Store(b.Buffer(1) + static_cast<int64_t>(i) * lanes_ * 4, sums[i].Get());
    }
    return absl::OkStatus();
  }
  std::string Text(const SymbolTable& /*symbols*/) const override { return "peak"; }
  std::shared_ptr<const CandidateCode> WithDims(const DimMap& /*map*/) const override {
    return std::make_shared<const MultiplyAddsCode>(lanes_, sums_);
  }

 private:
  const int lanes_;
  const int sums_;
};

}  // namespace

double Seconds(const std::function<void()>& work) {
  const double start = Now();
  work();
  return Now() - start;
}

Tensor Random(std::vector<int64_t> dims) {
  Tensor tensor = Tensor::Zeros(DataType::kF32, std::move(dims));
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  float* values = reinterpret_cast<float*>(tensor.mutable_bytes());
  for (int64_t i = 0; i < tensor.size(); ++i) values[i] = uniform(random);
  return tensor;
}

Type TypeOf(const std::vector<int64_t>& dims) {
  return Type::Tensor(DataType::kF32, std::vector<Dim>(dims.begin(), dims.end()));
}

absl::StatusOr<std::unique_ptr<MultiplyAdds>> MultiplyAdds::Create(const Target& target, int sums) {
  std::unique_ptr<MultiplyAdds> made(new MultiplyAdds(target, sums));
  Graph& graph = made->graph_;
  const ValueId x = graph.AddInput("x", TypeOf({64}));
  const NodeId node = graph.AddNode("Peak", "peak", {x});
  graph.value(graph.node(node).outputs[0]).type = TypeOf({sums * int64_t{64}});
  Candidate candidate;
  candidate.kernel = &made->kernel_;
  candidate.inputs = {Layout{}};
  candidate.outputs = {Layout{}};
  candidate.packed = {false};
  candidate.code = std::make_shared<const MultiplyAddsCode>(target.f32_lanes(), sums);
  const KernelRequest request{
      graph, graph.nodes[0], made->target_, {.opt_level = 3}, *graph.symbols};
  auto runner = KernelRunner::Create(request, candidate);
  if (!runner.ok()) return runner.status();
  made->runner_ = *std::move(runner);
  const absl::Status prepared =
      made->runner_->Prepare({{x, Tensor::Zeros(DataType::kF32, {64})}}, {});
  if (!prepared.ok()) return prepared;
  return made;
}

double MultiplyAdds::count() const { return static_cast<double>(sums_ * kSteps); }

}  // namespace quench::codegen
