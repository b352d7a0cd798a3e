// Integer operations on constants.
#pragma once

#include <cstdint>

#include "common/loops/loops.h"
#include "common/loops/scalar.h"

namespace quench::loops {

// `value` reduced to the range of an integer type of at least 8 bits, or of bool (!= 0). Unsigned
// values above 2^63 are kept as their two's complement.
int64_t WrapInteger(DataType type, int64_t value);

// The result of an integer or bool operation on two constants of `type`, in the same
// representation.
int64_t FoldInteger(BinaryOp op, DataType type, int64_t a, int64_t b);

}  // namespace quench::loops
