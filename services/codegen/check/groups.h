// Values that a library and its model both have, and the groups of nodes between them, as units of comparison.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/ir/graph.h"
#include "services/codegen/check/shown.h"
#include "services/codegen/plan/variants.h"

namespace quench::codegen {

// A value of the model that the library shows.
struct Counterpart {
  ReadableValue readable;
  std::string compiled;  // its name in the compiled code
};

// The part of the model that computes one value from others that the library shows.
struct CheckGroup {
  ValueId target = quench::kNone;
  int node = -1;       // in the compile report; -1 for views and nodes absent there
  std::string kind;    // of its kernel
  double seconds = 0;  // approximate time of the interpreter
};

struct CheckGroups {
  std::map<ValueId, Counterpart> counterparts;
  std::set<ValueId> given;         // their values
  std::vector<CheckGroup> groups;  // in the order of the model
  std::set<std::string> kinds;     // of kernels
};

// `source` has its sizes bound. A quantized model is compared by its integers, because floats next to
// them may be scaled to their steps (pass requantize).
CheckGroups FindGroups(const Graph& source, const PlannedVariant& variant, bool quantized);

// Indices of groups that together take at most `seconds`: first one of each kind of kernel, cheapest
// first, then others.
std::vector<size_t> ChooseGroups(const std::vector<CheckGroup>& groups, double seconds);

}  // namespace quench::codegen
