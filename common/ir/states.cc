#include "common/ir/states.h"

#include <algorithm>
#include <cstring>

#include "common/ir/metadata.h"
#include "common/ir/text_elements.h"

namespace quench {
namespace {

bool CanBeCarried(const Type& type) {
  return type.kind == ValueKind::kTensor && type.ranked && type.dtype != DataType::kString &&
         DataTypeBits(type.dtype) % 8 == 0 &&
         std::all_of(type.dims.begin(), type.dims.end(), [](Dim dim) { return dim.is_static(); });
}

// Text that is not a number of this type counts as 0: nothing else was ever written.
Tensor ElementOf(DataType dtype, std::string_view text) {
  const bool negative = text.starts_with('-');
  text::ElementWriter writer(dtype);
  if (!writer.AddNumber(text.substr(negative ? 1 : 0), negative).ok()) return {};
  return writer.Finish({1});
}

}  // namespace

std::vector<StatePair> StatesOf(const Graph& graph) {
  std::vector<StatePair> states;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const Value& input = graph.value(graph.inputs[i]);
    const auto named = graph.metadata.find(kStateKey + input.name);
    if (named == graph.metadata.end()) continue;
    const auto output = std::find_if(graph.outputs.begin(), graph.outputs.end(), [&](ValueId id) {
      return graph.value(id).name == named->second;
    });
    if (output == graph.outputs.end() || graph.value(*output).type != input.type ||
        !CanBeCarried(input.type))
      continue;
    StatePair state{i, static_cast<size_t>(output - graph.outputs.begin()), {}};
    const auto initial = graph.metadata.find(kStateInitialKey + input.name);
    if (initial != graph.metadata.end())
      state.initial = ElementOf(input.type.dtype, initial->second);
    states.push_back(std::move(state));
  }
  return states;
}

Tensor InitialState(const Type& type, const Tensor& initial) {
  std::vector<int64_t> dims;
  for (const Dim dim : type.dims) dims.push_back(dim.value());
  Tensor tensor = Tensor::Zeros(type.dtype, std::move(dims));
  const size_t step = initial.bytes().size();
  for (size_t at = 0; step > 0 && at + step <= tensor.bytes().size(); at += step)
    std::memcpy(tensor.mutable_bytes() + at, initial.bytes().data(), step);
  return tensor;
}

}  // namespace quench
