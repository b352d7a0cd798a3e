// The operators that ONNX models have: the rows of onnx_ops.def.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "services/importer/graph/converter.h"

namespace quench::importer {

struct OnnxOp {
  std::string_view domain;  // "" is ONNX's own
  std::string_view name;
  std::string_view canonical;  // the operator of the catalogue it needs, "" for none
  ConvertFunction convert;     // null where the catalogue lacks that operator
};

// The row of an operator, or null.
const OnnxOp* FindOnnxOp(std::string_view domain, std::string_view name);
// The same as a conversion of nodes; empty for operators that are not supported.
Conversion FindOnnxConversion(std::string_view domain, std::string_view name);
// All rows of onnx_ops.def.
std::span<const OnnxOp> AllOnnxOps();
// Restrictions of an operator that Quench reads, one sentence each (restrictions.def).
std::vector<std::string_view> RestrictionsOf(std::string_view domain, std::string_view name);
// Quench imports this operator: it has a row, and the catalogue has what the row needs.
bool IsSupported(std::string_view domain, std::string_view name);

}  // namespace quench::importer
