// The choice of a number type for each layer: by time, and step by step towards accuracy.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "services/cli/precision_layers.h"

namespace quench::cli {

struct Assignment {
  std::vector<Precision> layers;
  std::vector<std::string> reasons;    // why a layer does not have the fastest type; empty: it does
  Precision others = Precision::kF32;  // operators that belong to no layer, where they are floats
  friend bool operator==(const Assignment& a, const Assignment& b) {
    return a.layers == b.layers && a.others == b.others;
  }
};

// The fastest of `among` for the layer; `usual`, if it is among them, unless another one is clearly faster. A layer
// without times has `usual`, or else the first that it can have.
Precision FastestFor(const PrecisionLayer& layer, std::span<const Precision> among,
                     Precision usual);

// Each layer by itself: `usual` is the type of the fastest build, `floats` that of the fastest without
// integers.
Assignment FastestTypes(std::span<const PrecisionLayer> layers, std::span<const Precision> among,
                        Precision usual, Precision floats);

// A step from a type to a more accurate one.
struct Demotion {
  static constexpr size_t kOthers = static_cast<size_t>(-1);  // instead of a layer
  size_t layer = kOthers;
  Precision to = Precision::kF32;
  std::string reason;
};

// SQNR of the model in dB with one layer in a type and the others in f32, by layer (or Demotion::kOthers).
using Sensitivities = std::map<size_t, double>;

// Steps from `from` to all layers in f32, the most sensitive first; those that were not measured last.
// `halves` are of the types that Half gives.
std::vector<Demotion> Ladder(const Assignment& from, std::span<const PrecisionLayer> layers,
                             const Sensitivities& integers, const Sensitivities& halves,
                             Precision floats);

// `from` after the first `count` steps.
Assignment After(Assignment from, std::span<const Demotion> ladder, size_t count);

// The 16-bit type that sensitivity of a layer is measured in: what it has, or would have instead of integers; f32
// if it can have none.
Precision HalfOf(const PrecisionLayer& layer, Precision now, Precision floats);

}  // namespace quench::cli
