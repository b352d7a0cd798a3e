#include "services/importer/graph/formulas.h"

namespace quench::importer {

// The rounding of the sum 1 + x is divided out of its logarithm (Kahan's log1p, HP-15C Advanced Functions
// Handbook). An exact sum has nothing to divide out, an infinite one nothing that could be.
ValueId Log1pOf(Converter& c, ValueId x) {
  const ValueId one = c.Scalar(c.type(x).dtype, 1);
  const ValueId sum = c.Emit("Add", {x, one});
  const ValueId added = c.Emit("Sub", {sum, one});
  const ValueId log = c.Emit("Log", {sum});
  const ValueId mended = c.Emit("Mul", {log, c.Emit("Div", {x, added})});
  const ValueId exact = c.Emit("Equal", {added, x});
  const ValueId nothing = c.Emit("Equal", {added, c.Scalar(c.type(x).dtype, 0)});
  return c.Emit("Where", {nothing, x, c.Emit("Where", {exact, log, mended})});
}

// (e^x - 1) / (e^x + 1) = tanh(x / 2). Further from 0 the difference is good, and e^x may be infinite.
ValueId Expm1Of(Converter& c, ValueId x) {
  const DataType dtype = c.type(x).dtype;
  const ValueId one = c.Scalar(dtype, 1), half = c.Scalar(dtype, 0.5);
  const ValueId power = c.Emit("Exp", {x});
  const ValueId tanh = c.Emit("Tanh", {c.Emit("Mul", {x, half})});
  const ValueId near = c.Emit("Mul", {tanh, c.Emit("Add", {power, one})});
  const ValueId is_near = c.Emit("Less", {c.Emit("Abs", {x}), half});
  return c.Emit("Where", {is_near, near, c.Emit("Sub", {power, one})});
}

}  // namespace quench::importer
