// Distinguishes rounding differences between a library and its model from mistakes.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/passes/cut.h"
#include "common/passes/tolerance.h"
#include "services/codegen/check/groups.h"

namespace quench::codegen {

// The relative error that is allowed where f32 is multiplied as TF32: four units in the last of its
// 10 bits, as of bf16.
inline constexpr double kTf32Tolerance = 0x1p-8;

struct Mismatch {
  std::string value;
  std::vector<int64_t> dims;  // also empty if the types differ
  int64_t index = 0;
  std::string actual, expected;     // elements, or the types if these differ
  double error = 0, tolerance = 0;  // relative; 0 for integers
};

// A value of the library and the interpreter.
struct JudgedValue {
  ValueId target = quench::kNone;  // in the source
  const Tensor& actual;
  const Tensor& expected;
  double inner = 0;                  // the largest number in its computation
  const std::vector<NodeId>& nodes;  // in the source, that compute it
  // The expected value computed from operands that are rounded otherwise.
  std::function<std::vector<Tensor>()> rounded = {};
};

class CheckJudge {
 public:
  using Quantizers = std::map<std::string, passes::Quantizer>;  // by their integers
  using Operands = std::function<const Tensor*(const std::string& name)>;

  // All arguments outlive the judge. `compiled` is the graph from which the library's code was made. `coarseness` is
  // the tolerance of the coarsest rounding that the code does beyond its graph's: values that it stores in 16 bits, or
  // multiplies as TF32; 0: none.
  CheckJudge(const Graph& source, const Graph& compiled, const CheckGroups& groups,
             const Quantizers& quantizers, double coarseness);

  // Relative tolerance, as in verify; `coarseness` if that is larger.
  double ToleranceOf(ValueId id);

  // The result of a quantizer is judged by its operands: `operands` finds its input, scale and zero point, null for
  // those that the library does not show.
  std::optional<Mismatch> Judge(const JudgedValue& value, const Operands& operands);

  int undecided() const { return undecided_; }  // values that depend on rounding
  double largest_error() const { return largest_error_; }

 private:
  std::optional<Mismatch> JudgeIntegers(const JudgedValue& value,
                                        const passes::Quantizer& quantizer,
                                        const Operands& operands);
  std::optional<Mismatch> JudgeByTolerance(const JudgedValue& value);
  bool IsCoarse() const { return coarseness_ > 0; }
  bool SizeMayBeRounding(const JudgedValue& value) const;
  bool MayBeRounding(const JudgedValue& value, int64_t wrong, double error) const;

  const Graph& source_;
  const Graph& compiled_;
  const CheckGroups& groups_;
  const Quantizers& quantizers_;
  double coarseness_;
  std::map<std::string, passes::ValueError> of_source_, of_code_;
  int undecided_ = 0;
  double largest_error_ = 0;
};

}  // namespace quench::codegen
