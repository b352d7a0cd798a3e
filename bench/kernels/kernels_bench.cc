// How close the micro-kernel comes to this machine's multiply-add peak, layer by layer.
//
//   bench_kernels [--all] [substring of a layer's name] [target...]
//   bench_kernels --tiles [target]
//
// Every repeat of a layer follows a loop of independent multiply-adds, so that clock changes and
// busy neighbours meet both; the share is the median of their ratios, the time the least. Data is
// warm where it fits a cache. --all adds the plans that a tuned compilation would try; plans of
// several targets take turns. --tiles measures tiles instead, for fit_costs.py.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <deque>

#include "bench/kernels/tiles.h"
#include "bench/kernels/timing.h"
#include "common/base/status.h"
#include "services/codegen/kernels/catalogue.h"
#include "services/codegen/targets/resolve.h"

namespace quench::codegen {
namespace {

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
          Conv(96, 24, 56, 1),         Conv(24, 144, 56, 1),          Conv(192, 32, 28, 1),
          Conv(32, 192, 28, 1),        Conv(384, 64, 14, 1),          Conv(64, 384, 14, 1),
          Conv(576, 96, 14, 1),        Conv(96, 576, 14, 1),          Conv(960, 160, 7, 1),
          Conv(160, 960, 7, 1),        Conv(960, 320, 7, 1),          Conv(320, 1280, 7, 1),
          MatMul(128, 768, 3072),      MatMul(128, 3072, 768),        MatMul(1, 4096, 1000)};
}

// A plan of a layer, and its times.
struct Contender {
  Candidate candidate;
  std::unique_ptr<KernelRunner> runner;
  double best = 1e9;           // seconds
  std::vector<double> shares;  // of the peak, measured right after it
};

class Bench {
 public:
  Bench(std::vector<Target> targets, int opt_level)
      : targets_(std::move(targets)), opt_level_(opt_level) {}

  absl::Status Start() {
    QUENCH_ASSIGN_OR_RETURN(peak_, MultiplyAdds::Create(targets_[0], 12));
    return absl::OkStatus();
  }

  // Plans take turns, so that busy neighbours meet all of them.
  absl::Status Run(const Layer& layer) {
    QUENCH_ASSIGN_OR_RETURN(std::vector<Contender> contenders, ContendersFor(layer));
    double spent = 0;
    const double seconds = 0.3 * static_cast<double>(contenders.size());
    for (int i = 0; i < 9 || spent < seconds; ++i) {
      for (Contender& each : contenders) {
        const double peak = Seconds([&] { peak_->Call(); });
        const double taken = Seconds([&] { each.runner->Call(); });
        spent += peak + taken;
        each.best = std::min(each.best, taken);
        each.shares.push_back(layer.flops / taken / (PeakFlops() / peak));
      }
    }
    for (Contender& each : contenders) Report(layer, each);
    return absl::OkStatus();
  }

 private:
  double PeakFlops() const { return 2.0 * targets_[0].f32_lanes() * peak_->count(); }

  absl::StatusOr<std::vector<Contender>> ContendersFor(const Layer& layer) {
    Graph& graph = graphs_.emplace_back();
    const ValueId x = graph.AddInput("x", TypeOf(layer.x));
    const ValueId w = graph.AddConstant("w", Random(layer.w));
    const NodeId node = graph.AddNode(layer.op, "layer", {x, w}, 1, layer.attributes);
    graph.value(graph.node(node).outputs[0]).type = TypeOf(layer.y);
    std::vector<Contender> contenders;
    for (const Target& target : targets_) {
      const KernelRequest request{
          graph, graph.nodes[0], target, {.opt_level = opt_level_}, *graph.symbols};
      for (const Kernel* kernel : AllKernels()) {
        if (kernel->name == "scheduled" || kernel->name == "reference") continue;
        std::vector<Candidate> candidates;
        Propose(*kernel, request, candidates);
        for (const Candidate& candidate : candidates) {
          auto runner = KernelRunner::Create(request, candidate);
          if (!runner.ok()) return runner.status();
          QUENCH_RETURN_IF_ERROR((*runner)->Prepare({{x, Random(layer.x)}}, {}));
          contenders.push_back({candidate, *std::move(runner), 1e9, {}});
        }
      }
    }
    return contenders;
  }

  static void Report(const Layer& layer, Contender& each) {
    const auto median = each.shares.begin() + static_cast<std::ptrdiff_t>(each.shares.size() / 2);
    std::nth_element(each.shares.begin(), median, each.shares.end());
    fmt::print("{:28} {:9.1f} us (predicted {:9.1f}) {:7.1f} GFLOP/s {:5.1f} % of peak  {}\n",
               layer.name, each.best * 1e6, each.candidate.cost, layer.flops / each.best * 1e-9,
               100 * *median, each.candidate.reason);
    std::fflush(stdout);
  }

  const std::vector<Target> targets_;
  const int opt_level_;
  std::unique_ptr<MultiplyAdds> peak_;
  std::deque<Graph> graphs_;  // which runners refer to
};

absl::Status RunLayers(const std::vector<Target>& targets, int opt_level,
                       const std::string& filter) {
  Bench bench(targets, opt_level);
  QUENCH_RETURN_IF_ERROR(bench.Start());
  for (const Layer& layer : Layers()) {
    if (layer.name.find(filter) == std::string::npos) continue;
    QUENCH_RETURN_IF_ERROR(bench.Run(layer));
  }
  return absl::OkStatus();
}

constexpr char kUsage[] =
    "usage: bench_kernels [--all] [substring of a layer's name] [target...]\n"
    "       bench_kernels --tiles [target]\n";

int Main(std::vector<std::string> args) {
  const auto take = [&](const char* flag) {
    const bool given = !args.empty() && args[0] == flag;
    if (given) args.erase(args.begin());
    return given;
  };
  const bool tiles = take("--tiles"), all = take("--all");
  const std::string filter = tiles || args.empty() ? "" : args[0];
  if (!tiles && !args.empty()) args.erase(args.begin());
  if ((tiles && args.size() > 1) || filter.rfind("--", 0) == 0) {
    fmt::print(stderr, "{}", kUsage);
    return 2;
  }
  if (args.empty()) args.emplace_back("host");
  std::vector<Target> targets;
  for (const std::string& name : args) {
    const auto resolved = ResolveTarget(name);
    if (!resolved.ok()) {
      fmt::print(stderr, "{}\n{}", MessageOf(resolved.status()), kUsage);
      return 2;
    }
    targets.push_back(resolved->back());
  }
  const absl::Status status =
      tiles ? PrintTiles(targets[0]) : RunLayers(targets, all ? 4 : 3, filter);
  if (!status.ok()) fmt::print(stderr, "{}\n", MessageOf(status));
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace quench::codegen

int main(int argc, char** argv) {
  return quench::codegen::Main(std::vector<std::string>(argv + 1, argv + argc));
}
