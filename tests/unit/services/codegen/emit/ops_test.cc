// Every scalar operation on every element type it takes, bit patterns included, against the
// interpreter.
#include <gtest/gtest.h>

#include "common/loops/lane_ops.h"
#include "tests/unit/services/codegen/emit/harness.h"

namespace quench::codegen::ops_test {
namespace {

using loops::B;
using loops::BinaryOp;
using loops::Builder;
using loops::E;
using loops::UnaryOp;

constexpr DataType kTypes[] = {DataType::kBool, DataType::kI8,  DataType::kU8,  DataType::kI16,
                               DataType::kU16,  DataType::kI32, DataType::kU32, DataType::kI64,
                               DataType::kU64,  DataType::kF32, DataType::kF64};
constexpr DataType kStorage[] = {DataType::kF16,        DataType::kBF16,   DataType::kF8E4M3FN,
                                 DataType::kF8E4M3FNUZ, DataType::kF8E5M2, DataType::kF8E5M2FNUZ};
constexpr int64_t kCount = 301;

// Special values in front of random ones.
Buffer Operands(DataType type, uint32_t seed, bool wild) {
  if (!IsFloat(type)) return RandomBuffer(type, {kCount}, seed, wild ? 1 : -5, wild ? 0 : 5);
  return RandomBuffer(type, {kCount}, seed, wild ? -1e6 : -4, wild ? 1e6 : 4);
}

// Integers are compared bit for bit, so small and wild ones may alternate: one build sees both.
Buffer MixedIntegers(DataType type, uint32_t seed) {
  Buffer mixed = Operands(type, seed, false);
  const Buffer wild = Operands(type, seed, true);
  const size_t step = mixed.bytes.size() / static_cast<size_t>(kCount);
  for (size_t at = 0; at + step <= mixed.bytes.size(); at += 2 * step)
    std::copy_n(wild.bytes.begin() + static_cast<ptrdiff_t>(at), step,
                mixed.bytes.begin() + static_cast<ptrdiff_t>(at));
  return mixed;
}

bool Takes(UnaryOp op, DataType type) {
  if (op == UnaryOp::kNot) return !IsFloat(type);
  if (op == UnaryOp::kNeg || op == UnaryOp::kAbs) return type != DataType::kBool;
  return IsFloat(type);
}

bool Takes(BinaryOp op, DataType type) {
  const bool bits = op == BinaryOp::kAnd || op == BinaryOp::kOr || op == BinaryOp::kXor;
  if (bits) return !IsFloat(type);
  if (op == BinaryOp::kShl || op == BinaryOp::kShr) return IsInteger(type);
  return type != DataType::kBool || op == BinaryOp::kMin || op == BinaryOp::kMax ||
         op >= BinaryOp::kEq;
}

TEST(Ops, Unary) {
  SymbolTable symbols;
  for (DataType type : kTypes) {
    for (int op = 0; op <= static_cast<int>(UnaryOp::kIsInf); ++op) {
      const auto unary = static_cast<UnaryOp>(op);
      if (!Takes(unary, type)) continue;
      Builder b("unary");
      const B x = b.Input("x", type, {b.I(kCount)});
      const DataType result = op >= static_cast<int>(UnaryOp::kIsNan) ? DataType::kBool : type;
      const B y = b.Output("y", result, {b.I(kCount)});
      b.ParallelFor(b.I(kCount), [&](E i) { b.Store(y, {i}, Unary(unary, x.At({i}))); });
      EXPECT_EQ(
          CompareEverywhere(b.Finish(), {Operands(type, 5, !IsFloat(type))}, symbols, {}, 1e-6), "")
          << loops::Name(unary) << " " << DataTypeName(type);
    }
  }
}

TEST(Ops, Binary) {
  SymbolTable symbols;
  for (DataType type : kTypes) {
    for (int op = 0; op <= static_cast<int>(BinaryOp::kGe); ++op) {
      const auto binary = static_cast<BinaryOp>(op);
      if (!Takes(binary, type)) continue;
      Builder b("binary");
      const B x = b.Input("x", type, {b.I(kCount)});
      const B z = b.Input("z", type, {b.I(kCount)});
      const DataType result = binary >= BinaryOp::kEq ? DataType::kBool : type;
      const B y = b.Output("y", result, {b.I(kCount)});
      b.ParallelFor(b.I(kCount),
                    [&](E i) { b.Store(y, {i}, Binary(binary, x.At({i}), z.At({i}))); });
      const loops::Function f = b.Finish();
      // Small values meet zero divisors and equal operands; wild ones overflow.
      std::vector<Buffer> firsts;
      if (!IsFloat(type)) firsts = {MixedIntegers(type, 5)};
      if (IsFloat(type)) firsts = {Operands(type, 5, false)};
      if (IsFloat(type) && binary != BinaryOp::kPow) firsts.push_back(Operands(type, 5, true));
      for (const Buffer& first : firsts) {
        EXPECT_EQ(CompareEverywhere(f, {first, Operands(type, 6, false)}, symbols, {}, 1e-6), "")
            << loops::Name(binary) << " " << DataTypeName(type);
      }
    }
  }
}

TEST(Ops, DivisionByConstants) {
  SymbolTable symbols;
  for (DataType type : {DataType::kI32, DataType::kI64, DataType::kU8}) {
    for (BinaryOp op : {BinaryOp::kDiv, BinaryOp::kRem, BinaryOp::kFloorDiv, BinaryOp::kFloorMod}) {
      for (int64_t divisor : {1, 2, 8, 7, -1, -3, 0}) {
        Builder b("divide");
        const B x = b.Input("x", type, {b.I(kCount)});
        const B y = b.Output("y", type, {b.I(kCount)});
        b.ParallelFor(b.I(kCount),
                      [&](E i) { b.Store(y, {i}, Binary(op, x.At({i}), b.Int(divisor, type))); });
        EXPECT_EQ(CompareEverywhere(b.Finish(), {Operands(type, 5, true)}, symbols), "")
            << loops::Name(op) << " by " << divisor << " " << DataTypeName(type);
      }
    }
  }
}

TEST(Ops, Casts) {
  SymbolTable symbols;
  for (DataType from : kTypes) {
    for (DataType to : kTypes) {
      Builder b("cast");
      const B x = b.Input("x", from, {b.I(kCount)});
      const B y = b.Output("y", to, {b.I(kCount)});
      b.ParallelFor(b.I(kCount), [&](E i) { b.Store(y, {i}, Cast(x.At({i}), to)); });
      Buffer operands = Operands(from, 5, true);
      if (from == DataType::kF32) {
        const float special[] = {INFINITY,      -INFINITY,      NAN,  1e30f,  -1e30f,
                                 2147483648.0f, -2147483648.0f, 0.5f, 255.5f, -0.5f};
        std::copy_n(reinterpret_cast<const std::byte*>(special), sizeof(special),
                    operands.bytes.data());
      }
      EXPECT_EQ(CompareEverywhere(b.Finish(), {operands}, symbols), "")
          << DataTypeName(from) << " to " << DataTypeName(to);
    }
  }
}

// All 256 or 65536 codes decode as the base library says, and encode back.
TEST(Ops, StorageFloatsRoundTrip) {
  SymbolTable symbols;
  for (DataType type : kStorage) {
    const int64_t codes = int64_t{1} << DataTypeBits(type);
    Builder b("decode");
    const B x = b.Input("x", type, {b.I(codes)});
    const B y = b.Output("y", DataType::kF32, {b.I(codes)});
    const B z = b.Output("z", type, {b.I(codes)});
    b.ParallelFor(b.I(codes), [&](E i) {
      b.Store(y, {i}, x.At({i}) * b.F(1, DataType::kF32));
      b.Store(z, {i}, x.At({i}));
    });
    Buffer all{type, {codes}, {}};
    for (int64_t code = 0; code < codes; ++code) {
      for (int byte = 0; byte < DataTypeBits(type) / 8; ++byte)
        all.bytes.push_back(static_cast<std::byte>(code >> (8 * byte)));
    }
    EXPECT_EQ(CompareEverywhere(b.Finish(), {all}, symbols, {}, 0), "") << DataTypeName(type);
  }
}

TEST(Ops, StorageFloatsRoundToNearestEven) {
  SymbolTable symbols;
  for (DataType type : kStorage) {
    for (double range : {1e-7, 1e-3, 2.0, 300.0, 70000.0, 1e38}) {
      Builder b("encode");
      const B x = b.Input("x", DataType::kF32, {b.I(4099)});
      const B y = b.Output("y", type, {b.I(4099)});
      b.ParallelFor(b.I(4099), [&](E i) { b.Store(y, {i}, x.At({i})); });
      Buffer operands = RandomBuffer(DataType::kF32, {4099}, 9, -range, range);
      const float special[] = {INFINITY, -INFINITY, NAN,    -0.0f,  1e-45f, 65519.9f,
                               65520.0f, 464.0f,    465.0f, 448.0f, 240.0f, 248.0f};
      std::copy_n(reinterpret_cast<const std::byte*>(special), sizeof(special),
                  operands.bytes.data());
      // Halfway cases of few-bit formats.
      for (int i = 0; i < 512; ++i) {
        const float half = static_cast<float>(i) * 0.0625f;
        std::copy_n(reinterpret_cast<const std::byte*>(&half), 4,
                    operands.bytes.data() + (20 + i) * 4);
      }
      EXPECT_EQ(CompareEverywhere(b.Finish(), {operands}, symbols, {}, 0), "")
          << DataTypeName(type) << " up to " << range;
    }
  }
}

TEST(Ops, ReductionsOfIntegersAndBools) {
  SymbolTable symbols;
  for (DataType type : {DataType::kI8, DataType::kU8, DataType::kI32, DataType::kU32,
                        DataType::kI64, DataType::kF64}) {
    for (BinaryOp op : {BinaryOp::kAdd, BinaryOp::kMul, BinaryOp::kMin, BinaryOp::kMax,
                        BinaryOp::kAnd, BinaryOp::kOr}) {
      if (!Takes(op, type)) continue;
      Builder b("reduce");
      const B x = b.Input("x", type, {b.I(3), b.I(203)});
      const B y = b.Output("y", type, {b.I(3)});
      b.ParallelFor(b.I(3), [&](E r) {
        const E init = op == BinaryOp::kMul ? b.Int(1, DataType::kI64) : b.Int(3, DataType::kI64);
        const E first = type == DataType::kF64 ? b.F(1, type) : Cast(init, type);
        b.Store(y, {r}, b.Reduce(op, first, b.I(203), [&](E k) { return x.At({r, k}); }));
      });
      const bool wild = !IsFloat(type);
      EXPECT_EQ(CompareEverywhere(b.Finish(),
                                  {RandomBuffer(type, {3, 203}, 4, wild ? 1 : 0.9, wild ? 0 : 1.1)},
                                  symbols, {}, 1e-12),
                "")
          << loops::Name(op) << " " << DataTypeName(type);
    }
  }
}

}  // namespace
}  // namespace quench::codegen::ops_test
