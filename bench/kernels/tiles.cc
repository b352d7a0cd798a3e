#include "bench/kernels/tiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "bench/kernels/timing.h"
#include "common/base/status.h"
#include "services/codegen/kernels/catalogue.h"

namespace quench::codegen {
namespace {

struct TileShape {
  int pixels, vectors;
};

// The tiles that the registers hold.
std::vector<TileShape> Shapes(const Target& target) {
  std::vector<TileShape> shapes;
  const int sums = target.tile_rows * target.tile_vectors;
  for (int vectors = 1; vectors <= 4; ++vectors) {
    for (const int pixels : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 18, 22, 26, 28}) {
      const bool fits = pixels * vectors <= sums &&
                        pixels * vectors + vectors + (target.fma ? 1 : 2) < target.vector_registers;
      if (fits) shapes.push_back({pixels, vectors});
    }
  }
  return shapes;
}

// The target with costs for which this tile, of all tiles, is the cheapest: as few tiles, and as
// few passes over pixels, as there can be.
Target For(const Target& target, const TileShape& shape) {
  Target only = target;
  only.tile_rows = shape.pixels;
  only.tile_vectors = shape.vectors;
  only.costs.pixel_load = 1e6;
  only.costs.tile_start = 1e9;
  return only;
}

// Seconds of a cycle: additions that wait for each other take one each. The compiler sees nothing
// of x and y.
constexpr int64_t kAdditions = 200000;
void CountCycles() {
  uint64_t x = 1, y = 3;
  for (int64_t i = 0; i < kAdditions / 8; ++i) {
    // NOLINTBEGIN(hicpp-no-assembler)
    asm volatile("" : "+r"(x), "+r"(y));
    x += y;
    asm volatile("" : "+r"(x), "+r"(y));
    x += y;
    asm volatile("" : "+r"(x), "+r"(y));
    x += y;
    asm volatile("" : "+r"(x), "+r"(y));
    x += y;
    asm volatile("" : "+r"(x), "+r"(y));
    x += y;
    asm volatile("" : "+r"(x), "+r"(y));
    x += y;
    asm volatile("" : "+r"(x), "+r"(y));
    x += y;
    asm volatile("" : "+r"(x), "+r"(y));
    x += y;
    // NOLINTEND(hicpp-no-assembler)
  }
  asm volatile("" : "+r"(x));  // NOLINT(hicpp-no-assembler)
}

// Cycles of a call: the lower quartile of many, each counted by the cycles right before and after
// it, for the clock changes. Neighbours on the same core slow down calls, not additions.
double Cycles(const std::function<void()>& call, double seconds) {
  std::vector<double> cycles;
  double spent = 0, before = Seconds(CountCycles);
  // Reading the time takes a microsecond: as many calls between as take as long as the additions.
  const int calls = std::max(1, static_cast<int>(before / std::max(Seconds(call), 1e-7)));
  while (cycles.size() < 40 || spent < seconds) {
    const double calling = Seconds([&] {
      for (int i = 0; i < calls; ++i) call();
    });
    const double after = Seconds(CountCycles);
    spent += calling + after;
    cycles.push_back(calling * 2 * static_cast<double>(kAdditions) / (before + after) / calls);
    before = after;
  }
  const auto quartile = cycles.begin() + static_cast<std::ptrdiff_t>(cycles.size() / 4);
  std::nth_element(cycles.begin(), quartile, cycles.end());
  return *quartile;
}

// A 1 x 1 convolution whose output is `count` tiles side by side.
struct TileRun {
  Graph graph;
  Target target;
  std::unique_ptr<KernelRunner> runner;
};

absl::StatusOr<std::unique_ptr<TileRun>> MakeRun(const Target& target, const TileShape& shape,
                                                 int64_t steps, int64_t count) {
  auto run = std::make_unique<TileRun>();
  run->target = For(target, shape);
  const std::vector<int64_t> in{1, steps, 1, shape.pixels * count};
  const int64_t channels = shape.vectors * static_cast<int64_t>(target.f32_lanes());
  Graph& graph = run->graph;
  const ValueId x = graph.AddInput("x", TypeOf(in));
  const ValueId w = graph.AddConstant("w", Random({channels, steps, 1, 1}));
  const ValueId bias = graph.AddConstant("b", Random({channels}));
  const NodeId node = graph.AddNode("Conv", "tile", {x, w, bias});
  graph.value(graph.node(node).outputs[0]).type = TypeOf({1, channels, 1, in[3]});
  const KernelRequest request{graph, graph.nodes[0], run->target, {.opt_level = 3}, *graph.symbols};
  const std::string wanted = fmt::format("tile 1x{}x{} ", shape.pixels, shape.vectors);
  for (const Kernel* kernel : AllKernels()) {
    std::vector<Candidate> candidates;
    Propose(*kernel, request, candidates);
    for (const Candidate& candidate : candidates) {
      if (candidate.reason.rfind(wanted, 0) != 0) continue;
      auto runner = KernelRunner::Create(request, candidate);
      if (!runner.ok()) return runner.status();
      run->runner = *std::move(runner);
      const absl::Status prepared = run->runner->Prepare({{x, Random(in)}}, {});
      if (!prepared.ok()) return prepared;
      return run;
    }
  }
  return Internal("no kernel has a tile of {} pixels by {} vectors", shape.pixels, shape.vectors);
}

absl::Status PrintTile(const Target& target, const TileShape& shape, int64_t steps, bool first) {
  // Pixels in a quarter of L2, as layers find them.
  const int64_t count =
      std::clamp<int64_t>(target.l2_bytes / 4 / (4 * shape.pixels * steps), 4, 64);
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<TileRun> run, MakeRun(target, shape, steps, count));
  const double cycles = Cycles([&] { run->runner->Call(); }, 0.03) / static_cast<double>(count);
  fmt::print(
      "{}    {{\"pixels\": {}, \"vectors\": {}, \"steps\": {}, \"cycles\": {:.1f}, "
      "\"cycles_per_step\": {:.3f}}}",
      first ? "" : ",\n", shape.pixels, shape.vectors, steps, cycles,
      cycles / static_cast<double>(steps));
  std::fflush(stdout);
  return absl::OkStatus();
}

// 1e9 bytes a second of a sum over more than the caches hold.
double ReadingSpeed() {
  const std::vector<uint64_t> data(size_t{32} << 20, 1);
  double best = 1e9;
  uint64_t total = 0;
  for (int i = 0; i < 10; ++i) {
    best = std::min(best, Seconds([&] {
                      for (const uint64_t value : data) total += value;
                    }));
  }
  return total == 0 ? 0 : 8e-9 * static_cast<double>(data.size()) / best;
}

}  // namespace

absl::Status PrintTiles(const Target& target) {
  QUENCH_ASSIGN_OR_RETURN(const auto peak,
                          MultiplyAdds::Create(target, std::min(target.vector_registers - 4, 20)));
  QUENCH_ASSIGN_OR_RETURN(const auto chain, MultiplyAdds::Create(target, 1));
  double cycle = 1e9;
  for (int i = 0; i < 1000; ++i)
    cycle = std::min(cycle, Seconds(CountCycles) / static_cast<double>(kAdditions));
  const double rate = peak->count() / Cycles([&] { peak->Call(); }, 0.2);
  fmt::print(
      "{{\n  \"target\": \"{}\", \"cpu\": \"{}\", \"lanes\": {}, \"fma\": {}, "
      "\"multiply_by_lane\": {},\n",
      target.name, target.cpu, target.f32_lanes(), target.fma, target.multiply_by_lane);
  fmt::print("  \"ghz\": {:.3f}, \"multiply_adds\": {:.3f}, \"latency\": {:.3f}, ", 1e-9 / cycle,
             rate, Cycles([&] { chain->Call(); }, 0.2) / chain->count());
  fmt::print("\"gflops\": {:.1f}, \"gbytes\": {:.1f},\n  \"tiles\": [\n",
             2e-9 * rate * target.f32_lanes() / cycle, ReadingSpeed());
  bool first = true;
  for (const TileShape& shape : Shapes(target)) {
    for (const int64_t steps : {16, 32, 64, 128, 256, 512, 1024}) {
      QUENCH_RETURN_IF_ERROR(PrintTile(target, shape, steps, first));
      first = false;
    }
  }
  fmt::print("\n  ]\n}}\n");
  return absl::OkStatus();
}

}  // namespace quench::codegen
