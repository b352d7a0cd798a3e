// Layers of a model, and the time that each takes in builds of other number types.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/dtype.h"
#include "common/ir/graph.h"
#include "common/passes/pass.h"
#include "services/quantizer/report.h"

namespace quench::cli {

// Less accurate from one to the next.
enum class Precision : uint8_t { kF32, kF16, kBF16, kInt8 };
constexpr Precision kPrecisions[] = {Precision::kF32, Precision::kF16, Precision::kBF16,
                                     Precision::kInt8};
std::string_view PrecisionName(Precision precision);
// The type that its floats are stored as: f32 beside integers.
DataType StoredAs(Precision precision);

// Convolutions, matrix products and recurrent operators that have one type: one of them, or several that a
// kernel computes together, as attention does.
struct PrecisionLayer {
  std::string name, op;  // of the first
  // Nodes that have its type, by origin or, without one, name: products, and what is fused to them.
  std::vector<std::string> members;
  std::vector<std::string> products;  // names of its nodes in the module
  // In the builds in which it has that type; no entry where it cannot have it or was not recognized.
  std::map<Precision, double> microseconds;
  std::map<Precision, std::string> why_not;  // types that it cannot have
};

// A kernel of a build: what report and profile call it, the names of its nodes joined by `+`.
struct TimedKernel {
  std::string nodes;
  double microseconds = 0;
};
using TimedBuilds = std::map<Precision, std::vector<TimedKernel>>;

// Layers of the module that the builds are of, in its order. A product that no kernel of some build is named
// after is one with the next product that reads it.
std::vector<PrecisionLayer> FindLayers(const Graph& module, const TimedBuilds& builds);

// Fills in the types that layers cannot have, with the reasons, and takes their times away. `passes` have the
// magnitudes that samples had; `integers` is null where no layer was tried as int8.
void ForbidTypes(const Graph& module, const passes::PassOptions& passes,
                 const quantizer::QuantizeReport* integers, std::vector<PrecisionLayer>& layers);

// Node::origin, or its name where it has none.
const std::string& NameInModel(const Node& node);

}  // namespace quench::cli
