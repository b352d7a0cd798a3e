// Bytes in words of four.
#pragma once

#include <cstdint>
#include <functional>

#include "services/codegen/forms/vector_builder.h"

namespace quench::codegen {

// `value` times a constant, i32.
Vec Scaled(VectorBuilder& b, Vec value, double factor);
// Byte r of words, from numbers of 0 to 255.
Vec AtByte(VectorBuilder& b, Vec bytes, int r);
// The bytes of a row that fill no word, as one word: bytes beyond are 0. `count` is 1 to 3.
Vec LoadPartOfWord(VectorBuilder& b, Ptr address, int count);
// Calls body(rest) for a `rest` of 1 to 3, known at compile time or not.
void ForRest(VectorBuilder& b, Int rest, const std::function<void(int rest)>& body);

}  // namespace quench::codegen
