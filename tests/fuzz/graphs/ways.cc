// Ways to compile and run a graph.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "services/codegen/targets/resolve.h"
#include "tests/fuzz/graphs/check.h"

namespace quench::fuzz {
namespace {

struct Targets {
  std::vector<std::string> of_one_variant, of_several;
};

// Targets of this kind of machine, so that a graph meets the same ways on every CPU; `host` for
// each that this CPU does not run.
Targets AllTargets() {
  Targets targets{{"host"}, {}};
  const uint32_t machine = codegen::ResolveTarget("host").value()[0].machine;
  for (const codegen::TargetName& each : codegen::TargetNames()) {
    const std::vector<codegen::Target> variants = codegen::ResolveTarget(each.name).value();
    if (variants[0].machine != machine) continue;
    const bool runs = codegen::ThisCpuFeatures().Has(variants.back().required_features);
    auto& names = variants.size() > 1 ? targets.of_several : targets.of_one_variant;
    names.push_back(runs ? each.name : "host");
  }
  // Few CPUs have matrix registers; their plans run everywhere.
  targets.of_one_variant.emplace_back("llvm -emulate-matrices");
  return targets;
}

}  // namespace

std::string Describe(const Combination& way) {
  std::string text = fmt::format("level {}, {}, {} threads, {}", way.level, way.target, way.threads,
                                 way.symbolic ? "open sizes" : "fixed sizes");
  if (!way.layout.empty()) text += ", channels " + way.layout;
  if (way.stored != DataType::kF32) text += fmt::format(", stored as {}", DataTypeName(way.stored));
  if (way.taps != codegen::Taps::kNone)
    text += way.taps == codegen::Taps::kModelValues ? ", taps of the model's values"
                                                    : ", taps of the running code";
  if (!way.pipeline) text += ", without the standard passes";
  return text;
}

// Greedily: each way is the one of several drawn that has the most pairs nobody had before.
std::vector<Combination> Pairwise(uint64_t seed, const std::string& target) {
  Dice dice{std::mt19937_64(seed)};
  const Targets targets = target.empty() ? AllTargets() : Targets{{target}, {}};
  const std::vector<int64_t> settings = {
      4, 3, 2, 2, 4, 4, static_cast<int64_t>(targets.of_one_variant.size()), 2};
  std::set<std::array<int64_t, 4>> had;
  std::vector<Combination> ways;
  for (;;) {
    Ints best;
    std::vector<std::array<int64_t, 4>> gain;
    for (int draw = 0; draw < 40; ++draw) {
      Ints drawn;
      for (const int64_t count : settings) drawn.push_back(dice.Integer(0, count - 1));
      std::vector<std::array<int64_t, 4>> fresh;
      for (size_t a = 0; a < drawn.size(); ++a) {
        for (size_t b = a + 1; b < drawn.size(); ++b) {
          const std::array<int64_t, 4> pair = {static_cast<int64_t>(a), drawn[a],
                                               static_cast<int64_t>(b), drawn[b]};
          if (!had.contains(pair)) fresh.push_back(pair);
        }
      }
      if (fresh.size() <= gain.size()) continue;
      gain = fresh;
      best = drawn;
    }
    if (gain.empty()) break;
    had.insert(gain.begin(), gain.end());
    Combination way;
    way.level = static_cast<int>(best[0]);
    way.layout = std::array{"", "first", "last"}[static_cast<size_t>(best[1])];
    way.symbolic = best[2] == 0;
    way.threads = static_cast<int>(best[3]) + 1;
    way.stored = std::array{DataType::kF32, DataType::kF32, DataType::kF16,
                            DataType::kBF16}[static_cast<size_t>(best[4])];
    way.taps = std::array{codegen::Taps::kNone, codegen::Taps::kNone, codegen::Taps::kModelValues,
                          codegen::Taps::kRunningCode}[static_cast<size_t>(best[5])];
    way.target = targets.of_one_variant[static_cast<size_t>(best[6])];
    way.pipeline = best[7] == 0;
    ways.push_back(way);
  }
  // The last variant is what runs, and has been met as a target of its own; the others cost their time.
  for (const std::string& each : targets.of_several)
    ways.push_back({.layout = "", .threads = 2, .target = each});
  return ways;
}

}  // namespace quench::fuzz
