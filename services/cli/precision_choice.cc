#include "services/cli/precision_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace quench::cli {
namespace {

// A type must save this part of a layer's time: kernels beside each other in one type need no casts.
constexpr double kClearly = 0.05;
constexpr Precision kFloats[] = {Precision::kF32, Precision::kF16, Precision::kBF16};
// A rounding error of f16 is an eighth of one of bf16: 20 log10(8) dB.
constexpr double kF16OverBF16 = 18.06;

bool IsHalfType(Precision type) { return type == Precision::kF16 || type == Precision::kBF16; }

// The type after `now` on the way to f32.
Precision MoreAccurate(const PrecisionLayer& layer, Precision now, Precision floats) {
  if (now == Precision::kInt8) return FastestFor(layer, kFloats, floats);
  const Precision without_bf16[] = {Precision::kF32, Precision::kF16};
  return now == Precision::kBF16 ? FastestFor(layer, without_bf16, Precision::kF32)
                                 : Precision::kF32;
}

struct Step {
  double sqnr_db;
  Demotion demotion;
};

double SensitivityOf(size_t layer, Precision type, Precision measured,
                     const Sensitivities& integers, const Sensitivities& halves) {
  const Sensitivities& of = type == Precision::kInt8 ? integers : halves;
  const auto found = of.find(layer);
  if (found == of.end()) return std::numeric_limits<double>::infinity();
  if (type == Precision::kF16 && measured == Precision::kBF16) return found->second + kF16OverBF16;
  return found->second;
}

}  // namespace

Precision FastestFor(const PrecisionLayer& layer, std::span<const Precision> among,
                     Precision usual) {
  const auto can = [&](Precision type) {
    return std::find(among.begin(), among.end(), type) != among.end() &&
           !layer.why_not.contains(type);
  };
  Precision best = can(usual) ? usual : Precision::kF32;
  const auto own = layer.microseconds.find(best);
  if (own == layer.microseconds.end()) return best;
  double least = (1 - kClearly) * own->second;
  for (const auto& [type, microseconds] : layer.microseconds) {
    if (type == best || !can(type) || microseconds >= least) continue;
    least = microseconds;
    best = type;
  }
  return best;
}

Assignment FastestTypes(std::span<const PrecisionLayer> layers, std::span<const Precision> among,
                        Precision usual, Precision floats) {
  Assignment fastest;
  for (const PrecisionLayer& layer : layers) {
    const Precision own = layer.why_not.contains(usual) ? floats : usual;
    fastest.layers.push_back(FastestFor(layer, among, own));
  }
  fastest.reasons.resize(layers.size());
  fastest.others = floats;
  return fastest;
}

Precision HalfOf(const PrecisionLayer& layer, Precision now, Precision floats) {
  if (IsHalfType(now)) return now;
  return now == Precision::kInt8 ? FastestFor(layer, kFloats, floats) : Precision::kF32;
}

std::vector<Demotion> Ladder(const Assignment& from, std::span<const PrecisionLayer> layers,
                             const Sensitivities& integers, const Sensitivities& halves,
                             Precision floats) {
  std::vector<Step> steps;
  for (size_t i = 0; i < layers.size(); ++i) {
    const Precision measured = HalfOf(layers[i], from.layers[i], floats);
    double least = -std::numeric_limits<double>::infinity();
    Precision type = from.layers[i];
    while (type != Precision::kF32) {
      const Precision to = MoreAccurate(layers[i], type, floats);
      least = std::max(least, SensitivityOf(i, type, measured, integers, halves));
      std::string reason = fmt::format("kept by the budget from {}", PrecisionName(type));
      if (std::isfinite(least)) reason += fmt::format(": alone in it {:.1f} dB", least);
      steps.push_back({least, {i, to, std::move(reason)}});
      type = to;
    }
  }
  double least = -std::numeric_limits<double>::infinity();
  for (Precision type = from.others; type != Precision::kF32;) {
    const Precision to = type == Precision::kBF16 ? Precision::kF16 : Precision::kF32;
    least = std::max(least, SensitivityOf(Demotion::kOthers, type, from.others, integers, halves));
    steps.push_back({least, {Demotion::kOthers, to, ""}});
    type = to;
  }
  std::stable_sort(steps.begin(), steps.end(),
                   [](const Step& a, const Step& b) { return a.sqnr_db < b.sqnr_db; });
  std::vector<Demotion> ladder;
  for (Step& step : steps) ladder.push_back(std::move(step.demotion));
  return ladder;
}

Assignment After(Assignment from, std::span<const Demotion> ladder, size_t count) {
  for (const Demotion& step : ladder.first(count)) {
    if (step.layer == Demotion::kOthers) {
      from.others = step.to;
    } else {
      from.layers[step.layer] = step.to;
      from.reasons[step.layer] = step.reason;
    }
  }
  return from;
}

}  // namespace quench::cli
