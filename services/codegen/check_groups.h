// Values that a library and its model both have, and the groups of nodes between them: units of comparison.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/ir/graph.h"
#include "services/codegen/shown.h"
#include "services/codegen/variants.h"

namespace quench::codegen {

// A value of the model that the library shows.
struct Counterpart {
  ReadableValue readable;
  std::string compiled;  // its name in the code
};

// The part of the model that makes one value out of others that the library shows.
struct CheckGroup {
  ValueId target = quench::kNone;
  int node = -1;       // of the compile report, -1 for views and what the program has not got
  std::string kind;    // of its kernel
  double seconds = 0;  // that the interpreter takes, about
};

struct CheckGroups {
  std::map<ValueId, Counterpart> counterparts;
  std::set<ValueId> given;         // their values
  std::vector<CheckGroup> groups;  // in the order of the model
  std::set<std::string> kinds;     // of kernels
};

// `source` has its sizes bound. A quantized one is compared by its integers: floats beside them may be
// scaled to their steps (pass requantize).
CheckGroups FindGroups(const Graph& source, const PlannedVariant& variant, bool quantized);

// Indices of groups that take no longer than `seconds` together: each kind of kernel once, the cheapest
// first, and then others.
std::vector<size_t> ChooseGroups(const std::vector<CheckGroup>& groups, double seconds);

}  // namespace quench::codegen
