// Quantization that can be switched off while running, layer by layer: what trials run on.
#pragma once

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

// Fingerprint of the float module that was quantized; empty if the module has no switches.
std::string FloatModuleOf(const Graph& graph);
// Names of the nodes that the switches of a module are for; empty if it has none.
std::vector<std::string> SwitchedLayers(const Graph& graph);

}  // namespace quench::quantizer
