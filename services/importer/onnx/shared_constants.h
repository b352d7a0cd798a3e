// Constants that several graphs of a module have, so that a file can hold them once.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/ir/graph.h"

namespace quench::importer {

// Equal constants of at least a kilobyte, of which one at least is a body's and none is an output.
struct SharedConstant {
  const Tensor* tensor = nullptr;
  std::string wanted_name;
  ValueId main = kNone;  // one of the main graph that something reads
};
struct SharedConstants {
  std::vector<SharedConstant> all;
  std::map<const Constant*, size_t> index;  // into `all`
};
SharedConstants FindSharedConstants(const Graph& graph);

}  // namespace quench::importer
