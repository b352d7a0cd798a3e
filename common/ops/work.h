// The cost of one run of a node, counted from types alone: rules that hold for every operator. The
// rules of single operators are OpDef::macs, work and bias.
#pragma once

#include <functional>
#include <string_view>

#include "common/ops/op.h"

namespace quench::ops {

// The operator's own, kProduct for others that have `macs`, kElementwise for other pointwise ones.
WorkKind WorkOf(const OpDef& op);
std::string_view WorkKindName(WorkKind kind);  // "convolution"; "" for kNone

// Operations on single elements: one per element of output 0 (kElementwise), of input 0 (kPooling,
// kReduction), two per element of input 0 (kNormalisation: a scale and a shift); 0 for the others.
Dim Operations(const OpDef& op, const OpContext& context);
// Additions of a bias: one per element of output 0 where there is one.
Dim BiasAdditions(const OpDef& op, const OpContext& context);

// The value of a dim; negative where it is not known.
using DimValue = std::function<int64_t(Dim)>;

// The MACs of a convolution whose input element is not padding; nothing for operators whose windows
// this does not describe (products, ConvTranspose).
std::optional<int64_t> MacsInsideInput(const OpDef& op, const OpContext& context,
                                       const DimValue& value);
// Elements of a pool's input with its padding around it, where begin and end are padded
// differently: what a framework computes that pads both alike and so needs a Pad before the pool.
std::optional<int64_t> UnevenlyPaddedElements(const OpDef& op, const OpContext& context,
                                              const DimValue& value);

// Size of the window, "3x3"; "" for operators without one.
std::string KernelText(const OpDef& op, const OpContext& context);

}  // namespace quench::ops
