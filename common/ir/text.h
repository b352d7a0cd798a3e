// The text form of graphs: prints and parses. Grammar and examples: docs/graph_text.md.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/ir/graph.h"

namespace quench {

class WeightPlaces;

struct PrintOptions {
  bool types = true;  // print the type of every value (parses either way)
  // print the elements of constants up to 4 KiB; larger ones by digest and location
  bool constants = true;
  // where tensors above 4 KiB lie; null: where constants say that they do, and attributes nowhere
  const WeightPlaces* places = nullptr;
};
// Never fails, also for graphs that VerifyGraph refuses: what cannot be named prints as `%?`.
std::string PrintGraph(const Graph& graph, const PrintOptions& options = {});

// Bytes of a constant that the text names by digest and location. The tensor has the type's dtype
// and dims.
using ConstantLoader = std::function<absl::StatusOr<Tensor>(
    const Type& type, const std::string& digest, const std::vector<BlobRange>& location)>;

// Texts of graphs end here.
inline constexpr size_t kMaxGraphText = size_t{64} << 20;

// Errors read "line:column: problem". Types that the text leaves out stay unknown: run
// ops::InferGraph, then VerifyGraph. Input of any size, nesting or content gives a graph or an
// error; texts end at kMaxGraphText.
absl::StatusOr<Graph> ParseGraph(const std::string& text, const ConstantLoader& loader = {});

// Does a file that starts with `head` (64 bytes suffice) hold the text form?
bool IsTextModule(std::string_view head);

}  // namespace quench
