// Quantization, or rounding to 16 bits, that can be switched off while running, layer by layer: what trials
// run on.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/ir/graph.h"
#include "services/quantizer/parts.h"

namespace quench::quantizer {

// Input of such a module, its last: a bool for each quantized layer, in the order of SwitchedLayers.
// True: in integers. All false, it computes what the float module does; all true, what the quantized
// one does; anything between, what a module does whose other layers are excluded, with the same
// ranges.
inline constexpr std::string_view kSwitchesInput = "quench.switches";

// A graph of fused groups whose products read quantized operands.
struct QuantizationPoints {
  std::vector<Part> parts;             // of the nodes that there were at first
  std::vector<Node> before;            // those nodes, as they were
  std::map<ValueId, ValueId> real;     // wanted values: what comes back from integers
  std::function<bool(ValueId)> fixed;  // whether the value's range is known before running
};

// Readers of every wanted value take what comes back from integers.
void ReadIntegers(Graph& graph, const QuantizationPoints& points);
// The same where switches say so: each product stands there twice, in integers and in float, and a
// value comes from integers where a layer that is on needs it so.
void AddSwitches(Graph& graph, const QuantizationPoints& points, const std::string& float_module);

// The input of switches for such layers, in this order, and their names; the value of each switch.
std::vector<ValueId> AddSwitchInput(Graph& graph, const std::vector<std::string>& layers);

// A layer whose operands and results can be rounded to 16 bits.
struct RoundedLayer {
  std::string name;
  DataType type;  // f16 or bf16
  std::vector<NodeId> nodes;
};
// `graph` with switches: a layer that is on computes with what its type holds of f32 values. So each setting
// has the rounding, though not the speed, of a module that stores some layers in 16 bits.
absl::StatusOr<Graph> WithRoundingSwitches(Graph graph, const std::vector<RoundedLayer>& layers);

// Fingerprint of the float module that was quantized; empty if the module has no switches.
std::string FloatModuleOf(const Graph& graph);
// Names of the nodes that the switches of a module are for; empty if it has none.
std::vector<std::string> SwitchedLayers(const Graph& graph);

}  // namespace quench::quantizer
