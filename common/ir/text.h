// The text form of graphs: prints and parses. Grammar and examples: common/ir/README.md.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/ir/graph.h"

namespace quench {

struct PrintOptions {
  bool types = true;  // print the type of every value (parses either way)
  bool constants =
      true;  // print the elements of constants up to 4 KiB; larger ones by digest and location
};
std::string PrintGraph(const Graph& graph, const PrintOptions& options = {});

// Bytes of a constant that the text names by digest and location.
using ConstantLoader =
    std::function<absl::StatusOr<Tensor>(const Type&, const std::string& digest, const BlobRange&)>;

// Errors give line and column. Types that the text leaves out stay unknown: run ops::InferGraph.
// Input of any size, nesting or content gives a graph or an error.
absl::StatusOr<Graph> ParseGraph(const std::string& text, const ConstantLoader& loader = {});

// Does a file that starts with `head` (64 bytes suffice) hold the text form?
bool IsTextModule(std::string_view head);

}  // namespace quench
