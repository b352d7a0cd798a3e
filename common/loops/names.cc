#include "common/loops/loops.h"

namespace quench::loops {

std::string_view Name(UnaryOp op) {
  switch (op) {
    case UnaryOp::kNeg:
      return "neg";
    case UnaryOp::kAbs:
      return "abs";
    case UnaryOp::kNot:
      return "not";
    case UnaryOp::kSqrt:
      return "sqrt";
    case UnaryOp::kExp:
      return "exp";
    case UnaryOp::kLog:
      return "log";
    case UnaryOp::kSin:
      return "sin";
    case UnaryOp::kCos:
      return "cos";
    case UnaryOp::kTan:
      return "tan";
    case UnaryOp::kAsin:
      return "asin";
    case UnaryOp::kAcos:
      return "acos";
    case UnaryOp::kAtan:
      return "atan";
    case UnaryOp::kSinh:
      return "sinh";
    case UnaryOp::kCosh:
      return "cosh";
    case UnaryOp::kTanh:
      return "tanh";
    case UnaryOp::kAsinh:
      return "asinh";
    case UnaryOp::kAcosh:
      return "acosh";
    case UnaryOp::kAtanh:
      return "atanh";
    case UnaryOp::kErf:
      return "erf";
    case UnaryOp::kLogistic:
      return "logistic";
    case UnaryOp::kFloor:
      return "floor";
    case UnaryOp::kCeil:
      return "ceil";
    case UnaryOp::kTrunc:
      return "trunc";
    case UnaryOp::kRoundEven:
      return "roundeven";
    case UnaryOp::kIsNan:
      return "isnan";
    case UnaryOp::kIsInf:
      return "isinf";
  }
  return "?";
}

std::string_view Name(BinaryOp op) {
  switch (op) {
    case BinaryOp::kAdd:
      return "+";
    case BinaryOp::kSub:
      return "-";
    case BinaryOp::kMul:
      return "*";
    case BinaryOp::kDiv:
      return "/";
    case BinaryOp::kRem:
      return "%";
    case BinaryOp::kFloorDiv:
      return "floordiv";
    case BinaryOp::kFloorMod:
      return "floormod";
    case BinaryOp::kMin:
      return "min";
    case BinaryOp::kMax:
      return "max";
    case BinaryOp::kPow:
      return "pow";
    case BinaryOp::kAnd:
      return "&";
    case BinaryOp::kOr:
      return "|";
    case BinaryOp::kXor:
      return "^";
    case BinaryOp::kShl:
      return "<<";
    case BinaryOp::kShr:
      return ">>";
    case BinaryOp::kEq:
      return "==";
    case BinaryOp::kNe:
      return "!=";
    case BinaryOp::kLt:
      return "<";
    case BinaryOp::kLe:
      return "<=";
    case BinaryOp::kGt:
      return ">";
    case BinaryOp::kGe:
      return ">=";
  }
  return "?";
}

DataType ComputeType(DataType storage) {
  if (!IsFloat(storage) || storage == DataType::kF64) return storage;
  return DataType::kF32;
}

bool IsComparison(BinaryOp op) { return op >= BinaryOp::kEq; }

}  // namespace quench::loops
