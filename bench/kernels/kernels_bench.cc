// How close the micro-kernel comes to this machine's multiply-add peak, layer by layer.
//
//   bench_kernels [substring of a layer's name] [target variant]
//
// Every repeat of a layer is interleaved with a loop of independent multiply-adds, so that clock
// changes and busy neighbours meet both; minima are compared. Data is warm where it fits a cache.
#include <fmt/format.h>

#include <cstdio>
#include <ctime>
#include <random>

#include "services/codegen/forms/vector_builder.h"
#include "services/codegen/kernels/catalogue.h"
#include "services/codegen/targets/resolve.h"
#include "tests/support/kernel_runner.h"

namespace quench::codegen {
namespace {

constexpr int64_t kPeakSteps = 20000;

struct Layer {
  std::string name;
  std::string op;  // Conv or MatMul
  std::vector<int64_t> x, w, y;
  std::map<std::string, Attribute> attributes;
  double flops = 0;
};

Layer Conv(int64_t ic, int64_t oc, int64_t size, int64_t k, int64_t stride = 1,
           int64_t groups = 1) {
  const int64_t out = (size + stride - 1) / stride;
  const std::vector<int64_t> pads(4, k / 2);
  return {fmt::format("{}{}x{} {}->{} @{}{}", groups == ic ? "depthwise " : "", k, k, ic, oc, size,
                      stride == 1 ? "" : fmt::format(" /{}", stride)),
          "Conv",
          {1, ic, size, size},
          {oc, ic / groups, k, k},
          {1, oc, out, out},
          {{"pads", pads}, {"strides", std::vector<int64_t>{stride, stride}}, {"group", groups}},
          2.0 * static_cast<double>(oc * out * out * ic / groups * k * k)};
}

Layer MatMul(int64_t m, int64_t k, int64_t n) {
  return {fmt::format("matmul {}x{}x{}", m, k, n), "MatMul", {m, k}, {k, n}, {m, n}, {},
          2.0 * static_cast<double>(m * k * n)};
}

std::vector<Layer> Layers() {
  return {Conv(3, 64, 224, 7, 2),      Conv(64, 256, 56, 1),          Conv(256, 64, 56, 1),
          Conv(128, 512, 28, 1),       Conv(512, 128, 28, 1),         Conv(256, 1024, 14, 1),
          Conv(1024, 256, 14, 1),      Conv(512, 2048, 7, 1),         Conv(2048, 512, 7, 1),
          Conv(64, 64, 56, 3),         Conv(128, 128, 28, 3),         Conv(256, 256, 14, 3),
          Conv(512, 512, 7, 3),        Conv(128, 128, 56, 3, 2),      Conv(1024, 2048, 14, 1, 2),
          Conv(96, 96, 112, 3, 1, 96), Conv(192, 192, 28, 3, 1, 192), Conv(960, 960, 7, 3, 1, 960),
          MatMul(128, 768, 3072),      MatMul(128, 3072, 768),        MatMul(1, 4096, 1000)};
}

// CPU time of this thread: a busy machine preempts long runs.
double Now() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double Seconds(const std::function<void()>& work) {
  const double start = Now();
  work();
  return Now() - start;
}

// A kernel of nothing but independent multiply-adds.
class PeakCode final : public CandidateCode {
 public:
  explicit PeakCode(int lanes) : lanes_(lanes) {}
  absl::Status Emit(VectorBuilder& b) const override {
    std::vector<VecVar> sums;
    for (int i = 0; i < 12; ++i) sums.push_back(b.Variable(b.F(i, lanes_)));
    const Vec x = b.Load(b.Buffer(0), lanes_);
    b.For(b.I(0), b.I(kPeakSteps), 1, [&](Int) {
      for (const VecVar& sum : sums) sum.Set(b.Fma(x, sum.Get(), x));
    });
    for (size_t i = 0; i < sums.size(); ++i) {
      b.Store(b.Buffer(1) + static_cast<int64_t>(i) * lanes_ * 4, sums[i].Get());
    }
    return absl::OkStatus();
  }
  std::string Text(const SymbolTable& /*symbols*/) const override { return "peak"; }
  std::shared_ptr<const CandidateCode> WithDims(const DimMap& /*map*/) const override {
    return std::make_shared<const PeakCode>(lanes_);
  }

 private:
  const int lanes_;
};

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

class Bench {
 public:
  explicit Bench(const Target& target) : target_(target) {}

  absl::Status Start() {
    const ValueId x = graph_.AddInput("x", TypeOf({64}));
    const NodeId node = graph_.AddNode("Peak", "peak", {x});
    graph_.value(graph_.node(node).outputs[0]).type = TypeOf({12 * 64});
    Candidate candidate;
    candidate.kernel = &peak_;
    candidate.inputs = {Layout{}};
    candidate.outputs = {Layout{}};
    candidate.packed = {false};
    candidate.code = std::make_shared<const PeakCode>(target_.f32_lanes());
    const KernelRequest request{
        graph_, graph_.nodes[0], target_, {.opt_level = 3}, *graph_.symbols};
    auto runner = KernelRunner::Create(request, candidate);
    if (!runner.ok()) return runner.status();
    peak_runner_ = *std::move(runner);
    return peak_runner_->Prepare({{x, Tensor::Zeros(DataType::kF32, {64})}}, {});
  }

  absl::Status Run(const Layer& layer) {
    Graph graph;
    const ValueId x = graph.AddInput("x", TypeOf(layer.x));
    const ValueId w = graph.AddConstant("w", Random(layer.w));
    const NodeId node = graph.AddNode(layer.op, "layer", {x, w}, 1, layer.attributes);
    graph.value(graph.node(node).outputs[0]).type = TypeOf(layer.y);
    const KernelRequest request{graph, graph.nodes[0], target_, {.opt_level = 3}, *graph.symbols};
    for (const Kernel* kernel : AllKernels()) {
      if (kernel->name == "scheduled" || kernel->name == "reference") continue;
      std::vector<Candidate> candidates;
      Propose(*kernel, request, candidates);
      for (const Candidate& candidate : candidates) {
        auto runner = KernelRunner::Create(request, candidate);
        if (!runner.ok()) return runner.status();
        const absl::Status prepared = (*runner)->Prepare({{x, Random(layer.x)}}, {});
        if (!prepared.ok()) return prepared;
        Report(layer, **runner, candidate);
      }
    }
    return absl::OkStatus();
  }

 private:
  void Report(const Layer& layer, KernelRunner& runner, const Candidate& candidate) {
    double best = 1e9, peak = 1e9;
    const double end = Now() + 0.3;
    for (int i = 0; i < 9 || Now() < end; ++i) {
      best = std::min(best, Seconds([&] { runner.Call(); }));
      peak = std::min(peak, Seconds([&] { peak_runner_->Call(); }));
    }
    const double peak_gflops = 2.0 * 12 * target_.f32_lanes() * kPeakSteps / peak * 1e-9;
    const double gflops = layer.flops / best * 1e-9;
    fmt::print("{:28} {:9.1f} us (predicted {:9.1f}) {:7.1f} of {:6.1f} GFLOP/s {:5.1f} %  {}\n",
               layer.name, best * 1e6, candidate.cost, gflops, peak_gflops,
               100 * gflops / peak_gflops, candidate.reason);
    std::fflush(stdout);
  }

  Target target_;
  Graph graph_;
  Kernel peak_{"peak", nullptr, nullptr};
  std::unique_ptr<KernelRunner> peak_runner_;
};

int Main(const std::string& filter, const std::string& variant) {
  const auto targets = ResolveTarget(variant);
  if (!targets.ok()) {
    fmt::print(stderr, "{}\n", targets.status().ToString());
    return 2;
  }
  Bench bench(targets->back());
  absl::Status status = bench.Start();
  for (const Layer& layer : Layers()) {
    if (status.ok() && layer.name.find(filter) != std::string::npos) status = bench.Run(layer);
  }
  if (!status.ok()) fmt::print(stderr, "{}\n", status.ToString());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace quench::codegen

int main(int argc, char** argv) {
  return quench::codegen::Main(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "host");
}
