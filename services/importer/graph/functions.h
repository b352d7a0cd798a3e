// Conversions of operators that a user gives, as functions in the text form of graphs.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <span>
#include <string>
#include <utility>

#include "common/ir/graph.h"
#include "services/importer/graph/converter.h"

namespace quench::importer {

// (domain, operator) -> what its nodes become. The domain of ONNX's own is "".
using Functions = std::map<std::pair<std::string, std::string>, GraphPtr>;

// Each text has one canonical module after another, named "domain::Operator". Parameters are
// attributes of the node: a constant `attr.NAME` has the value of attribute NAME, or its own where
// the node lacks that; an attribute "$NAME" of a node in the function becomes the attribute NAME of the
// node, or is left out. INVALID_ARGUMENT for texts that do not parse, operators that the catalogue
// lacks and functions of one name.
absl::StatusOr<Functions> ParseFunctions(std::span<const std::string> texts);

// Functions first, then what `find` knows. Both must outlive the result.
FindConversion WithFunctions(const Functions& functions, const FindConversion& find);

}  // namespace quench::importer
