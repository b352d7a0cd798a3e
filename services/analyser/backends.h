// Nodes that another backend can run.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <string>
#include <vector>

#include "common/ir/graph.h"

namespace quench::analyser {

struct Backend {
  std::string name;
  std::string description;
  // Why the backend does not run this node; "" if it does. Reads `graph` only while it is called.
  std::function<std::string(const Graph& graph, const Node& node)> refuses;
};

// The backends of backends.def.
std::vector<Backend> Backends();
// INVALID_ARGUMENT, with the names of all backends, if there is none of this name.
absl::StatusOr<Backend> FindBackend(const std::string& name);
// A backend that runs the operators that `text` lists: names of the catalogue, one per line; blank
// lines and comments after `#` are skipped. INVALID_ARGUMENT names all unknown ones, with near names.
absl::StatusOr<Backend> BackendOf(const std::string& name, const std::string& text);

}  // namespace quench::analyser
