// Sizes of laid-out tensors: now, at given sizes, or as loops IR.
#pragma once

#include <functional>
#include <span>

#include "common/loops/builder.h"
#include "services/codegen/plan/program.h"

namespace quench::codegen {

// TypicalValue of every symbol.
std::vector<int64_t> TypicalSlots(const SymbolTable& symbols);

// Elements of a row-major tensor, saturating; unknown sizes count as 1.
int64_t ElementsAt(std::span<const Dim> dims, std::span<const int64_t> slots);
// Bytes of the laid-out tensor (whole blocks), saturating.
int64_t BytesAt(const Shape& shape, std::span<const int64_t> slots);

// Bytes of a node's inputs, constants and outputs, row-major and at typical sizes.
int64_t TouchedBytes(const Graph& graph, const Node& node);

bool IsFixed(const Shape& shape);
bool DependsOnRuntime(const Shape& shape, const SymbolTable& symbols);

// The value of a dim inside the function being built.
using DimValue = std::function<loops::E(Dim)>;
// The same bytes as an i64; a failed check says that `name` is too large.
loops::E BytesOf(loops::Builder& builder, const Shape& shape, const SymbolTable& symbols,
                 const DimValue& value, const std::string& name);

}  // namespace quench::codegen
