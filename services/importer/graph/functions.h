// Conversions of operators supplied by the user, as functions in the text form of graphs.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <span>
#include <string>
#include <utility>

#include "common/ir/graph.h"
#include "services/importer/graph/converter.h"

namespace quench::importer {

// (domain, operator) -> the function that replaces its nodes. ONNX's own domain is "".
using Functions = std::map<std::pair<std::string, std::string>, GraphPtr>;

// Each text is a sequence of canonical modules named "domain::Operator". Their parameters are the
// attributes of the replaced node: a constant `attr.NAME` takes the value of attribute NAME, or keeps
// its own if the node lacks it; an attribute "$NAME" of a node in the function takes the replaced
// node's attribute NAME, or is left out. INVALID_ARGUMENT for texts that do not parse, operators that the catalogue
// lacks and functions of the same name.
absl::StatusOr<Functions> ParseFunctions(std::span<const std::string> texts);

// Finds conversions in `functions` first, then by `find`. Both must outlive the result.
FindConversion WithFunctions(const Functions& functions, const FindConversion& find);

}  // namespace quench::importer
