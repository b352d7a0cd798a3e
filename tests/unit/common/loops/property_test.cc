// Random expressions and random nests: the interpreter in both modes against the plain evaluator of
// reference.h.
#include <gtest/gtest.h>

#include <random>

#include "tests/unit/common/loops/harness.h"
#include "tests/unit/common/loops/reference.h"

namespace quench::loops::property_test {
namespace {

constexpr DataType kF32 = DataType::kF32;
constexpr DataType kI64 = DataType::kI64;
constexpr DataType kBool = DataType::kBool;

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  int64_t Below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(engine_); }
  bool Chance(int percent) { return Below(100) < percent; }
  template <typename T>
  const T& Pick(const std::vector<T>& items) {
    return items[static_cast<size_t>(Below(static_cast<int64_t>(items.size())))];
  }

 private:
  std::mt19937 engine_;
};

const std::vector<DataType> kTypes = {
    DataType::kI8,  DataType::kI16,  DataType::kI32, DataType::kI64, DataType::kU8,
    DataType::kU16, DataType::kU32,  DataType::kU64, DataType::kF32, DataType::kF64,
    DataType::kF16, DataType::kBF16, DataType::kBool};

// One buffer's bytes; random, often special values.
std::vector<std::byte> RandomBytes(Random& random, DataType type, int64_t count) {
  std::vector<std::byte> bytes(static_cast<size_t>(DataTypeBytes(type, count)));
  const size_t size = static_cast<size_t>(DataTypeBits(type) / 8);
  for (int64_t i = 0; i < count; ++i) {
    uint64_t bits = static_cast<uint64_t>(random.Below(INT64_MAX));
    if (type == kBool)
      bits &= 1;
    else if (type == kF32 && random.Chance(80))
      bits = std::bit_cast<uint32_t>(static_cast<float>(random.Below(2001) - 1000) / 8);
    else if (type == DataType::kF64 && random.Chance(80))
      bits = std::bit_cast<uint64_t>(static_cast<double>(random.Below(2001) - 1000) / 8);
    else if (random.Chance(30))
      bits = static_cast<uint64_t>(random.Below(5) - 2);
    else if (random.Chance(10))
      bits = uint64_t{1} << (size * 8 - 1);
    std::memcpy(&bytes[static_cast<size_t>(i) * size], &bits, size);
  }
  return bytes;
}

// Random pure expressions over given leaves.
class Expressions {
 public:
  explicit Expressions(Random& random) : random_(random) {}

  // `leaf(type)` gives an operand of a compute type.
  std::function<E(DataType)> leaf;

  E Make(DataType type, int depth) {
    type = ComputeType(type);
    if (depth == 0 || random_.Chance(15)) return leaf(type);
    const auto sub = [&](DataType t) { return Make(t, depth - 1); };
    if (random_.Chance(10)) return Select(sub(kBool), sub(type), sub(type));
    if (random_.Chance(15)) return Cast(sub(random_.Pick(kTypes)), type);
    if (random_.Chance(5) && type == kF32) return Cast(Cast(sub(kF32), DataType::kF16), kF32);
    if (type == kBool) return MakeBool(depth);
    if (random_.Chance(15)) return Unary(random_.Pick(UnaryOps(type)), sub(type));
    return Binary(random_.Pick(BinaryOps(type)), sub(type), sub(type));
  }

 private:
  E MakeBool(int depth) {
    if (random_.Chance(40)) {
      const BinaryOp logic[] = {BinaryOp::kAnd, BinaryOp::kOr, BinaryOp::kXor};
      return Binary(logic[random_.Below(3)], Make(kBool, depth - 1), Make(kBool, depth - 1));
    }
    const DataType type = ComputeType(random_.Pick(kTypes));
    if (IsFloat(type) && random_.Chance(20)) return Unary(UnaryOp::kIsNan, Make(type, depth - 1));
    if (random_.Chance(10)) return !Make(kBool, depth - 1);
    const auto op = static_cast<BinaryOp>(static_cast<int>(BinaryOp::kEq) + random_.Below(6));
    return Binary(op, Make(type, depth - 1), Make(type, depth - 1));
  }

  static std::vector<UnaryOp> UnaryOps(DataType type) {
    if (IsFloat(type)) {
      return {UnaryOp::kNeg,  UnaryOp::kAbs,   UnaryOp::kSqrt,     UnaryOp::kFloor,
              UnaryOp::kCeil, UnaryOp::kTrunc, UnaryOp::kRoundEven};
    }
    return {UnaryOp::kNeg, UnaryOp::kAbs, UnaryOp::kNot};
  }

  static std::vector<BinaryOp> BinaryOps(DataType type) {
    std::vector<BinaryOp> ops = {BinaryOp::kAdd, BinaryOp::kSub, BinaryOp::kMul, BinaryOp::kDiv,
                                 BinaryOp::kMin, BinaryOp::kMax, BinaryOp::kRem};
    if (!IsFloat(type)) {
      ops.insert(ops.end(), {BinaryOp::kFloorDiv, BinaryOp::kFloorMod, BinaryOp::kAnd,
                             BinaryOp::kOr, BinaryOp::kXor, BinaryOp::kShl, BinaryOp::kShr});
    }
    return ops;
  }

  Random& random_;
};

// Runs the function three ways on equal memory and expects equal bytes (any NaN equals any NaN).
void ExpectSame(const Function& f, Random& random, const std::vector<int64_t>& slots) {
  std::vector<std::vector<std::byte>> start;
  std::vector<std::vector<int64_t>> dims;
  for (const Buffer& buffer : f.buffers) {
    dims.emplace_back();
    int64_t count = 1;
    for (const ExprId dim : buffer.dims) {
      dims.back().push_back(*EvaluateExtent(f, dim, slots));
      count *= dims.back().back();
    }
    start.push_back(RandomBytes(random, buffer.dtype, count));
  }
  const auto views = [&](std::vector<std::vector<std::byte>>& memory) {
    std::vector<BufferView> result;
    for (size_t i = 0; i < memory.size(); ++i) result.push_back({memory[i].data(), dims[i]});
    return result;
  };
  auto expected = start;
  Reference(f, views(expected), slots).Run();
  for (const bool lanes : {false, true}) {
    auto got = start;
    const absl::Status status = RunFunction(f, views(got), slots, lanes);
    ASSERT_TRUE(status.ok()) << status << "\n" << Print(f);
    for (size_t i = 0; i < got.size(); ++i) {
      const DataType type = f.buffers[i].dtype;
      const size_t size = static_cast<size_t>(DataTypeBits(type) / 8);
      for (size_t at = 0; at < got[i].size(); at += size) {
        if (std::memcmp(&got[i][at], &expected[i][at], size) == 0) continue;
        double a = 0, e = 0;
        if (type == kF32) {
          float x = 0, y = 0;
          std::memcpy(&x, &got[i][at], 4);
          std::memcpy(&y, &expected[i][at], 4);
          a = x, e = y;
        } else if (type == DataType::kF64) {
          std::memcpy(&a, &got[i][at], 8);
          std::memcpy(&e, &expected[i][at], 8);
        } else if (type == DataType::kF16 || type == DataType::kBF16) {
          uint16_t x = 0, y = 0;
          std::memcpy(&x, &got[i][at], 2);
          std::memcpy(&y, &expected[i][at], 2);
          a = type == DataType::kF16 ? HalfToFloat(x) : Bfloat16ToFloat(x);
          e = type == DataType::kF16 ? HalfToFloat(y) : Bfloat16ToFloat(y);
        }
        // The sign of the zero that min and max give is not defined.
        const bool equal =
            IsFloat(type) && ((std::isnan(a) && std::isnan(e)) || (a == 0 && e == 0));
        ASSERT_TRUE(equal) << "lanes " << lanes << ", buffer " << f.buffers[i].name << " element "
                           << at / size << ": " << a << " is not " << e << "\n"
                           << Print(f);
      }
    }
  }
}

class Property : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Seeds, Property, testing::Range(0, 40));

TEST_P(Property, RandomExpressions) {
  Random random(static_cast<uint32_t>(GetParam()));
  Builder b("expressions");
  const E n = b.I(150);
  std::map<DataType, B> inputs;
  for (const DataType type : kTypes)
    inputs[type] = b.Input("in_" + std::string(DataTypeName(type)), type, {n});
  std::vector<B> outputs;
  for (const DataType type : kTypes)
    outputs.push_back(b.Output("out_" + std::string(DataTypeName(type)), type, {n}));
  Expressions expressions(random);
  b.ParallelFor(n, [&](E i) {
    expressions.leaf = [&](DataType type) {
      if (random.Chance(20)) return b.F(static_cast<double>(random.Below(7) - 3), type);
      if (random.Chance(15)) return Cast(i, type);
      std::vector<DataType> sources = {type};
      if (type == kF32) sources = {kF32, DataType::kF16, DataType::kBF16};
      return inputs[random.Pick(sources)].At({i});
    };
    for (const B& output : outputs)
      b.Store(output, {i}, Cast(expressions.Make(output.dtype(), 6), output.dtype()));
  });
  ExpectSame(b.Finish(), random, {});
}

// Random statements: loops of every mark, conditions, locals, lets, stores, loads at affine and
// clamped places.
class Nests {
 public:
  Nests(Builder& builder, Random& random) : b_(builder), random_(random), expressions_(random) {
    expressions_.leaf = [this](DataType type) { return Leaf(type); };
  }

  void Make() {
    const E rows = b_.I(2 + random_.Below(4)), columns = b_.I(1 + random_.Below(150));
    for (const DataType type : {kF32, kI64, DataType::kU8}) {
      inputs_.push_back(b_.Input("x_" + std::string(DataTypeName(type)), type, {rows, columns}));
    }
    for (const DataType type : {kF32, kI64}) {
      outputs_.push_back(b_.Output("y_" + std::string(DataTypeName(type)), type, {rows, columns}));
    }
    const int nests = 1 + static_cast<int>(random_.Below(2));
    for (int i = 0; i < nests; ++i) {
      const bool swapped = random_.Chance(30);
      const bool outer_serial = random_.Chance(30);
      const std::function<void(E)> outer = [&](E i0) {
        if (random_.Chance(30)) Lets();
        b_.ParallelFor(swapped ? rows : columns, [&](E i1) {
          row_ = swapped ? i1 : i0;
          column_ = swapped ? i0 : i1;
          Iteration();
        });
        lets_.clear();
      };
      if (outer_serial)
        b_.For(swapped ? columns : rows, outer);
      else
        b_.ParallelFor(swapped ? columns : rows, outer);
    }
  }

 private:
  // A place within dim `axis` of the buffers, from any integer expression.
  E Place(E index, int axis) { return Max(Min(index, inputs_[0].dim(axis) - 1), b_.I(0)); }

  E Index(int axis) {
    const E base = axis == 0 ? row_ : column_;
    if (!base.valid()) return Place(b_.I(random_.Below(5)), axis);
    switch (random_.Below(6)) {
      case 0:
        return base;
      case 1:
        return Place(base + (random_.Below(7) - 3), axis);
      case 2:
        return Place(base * (random_.Below(3) - 1) + random_.Below(50), axis);
      case 3:
        return FloorMod(base * 7 + random_.Below(9), inputs_[0].dim(axis));
      case 4:
        return inner_.empty() ? base : Place(base + random_.Pick(inner_), axis);
      default:
        return Place(b_.I(random_.Below(9)), axis);
    }
  }

  E Leaf(DataType type) {
    std::vector<E> candidates;
    for (const E& let : lets_) {
      if (let.type() == type) candidates.push_back(let);
    }
    for (const auto& local : locals_) {
      if (local.Get().type() == type) candidates.push_back(local.Get());
    }
    if (!candidates.empty() && random_.Chance(50)) return random_.Pick(candidates);
    if (random_.Chance(25)) return b_.F(static_cast<double>(random_.Below(9) - 4), type);
    if (random_.Chance(30) && row_.valid()) return Cast(random_.Chance(50) ? row_ : column_, type);
    return Cast(random_.Pick(inputs_).At({Index(0), Index(1)}), type);
  }

  DataType AnyType() {
    return random_.Pick(std::vector<DataType>{kF32, kI64, DataType::kU8, kBool});
  }
  E Any(DataType type) { return expressions_.Make(type, 3); }

  void Lets() {
    row_ = column_ = E();
    lets_.push_back(b_.Let(Any(AnyType())));
  }

  // The body of the parallel loops: sets up locals, runs statements on them, stores to its own
  // place.
  void Iteration() {
    const size_t lets = lets_.size();
    for (int i = 0; i < 3; ++i) locals_.push_back(b_.Local(Any(AnyType())));
    Statements(2);
    for (const B& output : outputs_) b_.Store(output, {row_, column_}, Any(output.dtype()));
    if (random_.Chance(30)) {
      b_.If(Any(kBool), [&] { b_.Store(outputs_[0], {row_, column_}, Any(kF32)); });
    }
    locals_.clear();
    lets_.resize(lets);
  }

  void Statements(int depth) {
    const int count = 1 + static_cast<int>(random_.Below(3));
    const size_t lets = lets_.size();
    for (int i = 0; i < count; ++i) Statement(depth);
    lets_.resize(lets);
  }

  void Statement(int depth) {
    const int64_t kind = depth == 0 ? random_.Below(2) : random_.Below(6);
    const Builder::LocalRef local = random_.Pick(locals_);
    const DataType type = local.Get().type();
    switch (kind) {
      case 0:
        local.Set(Any(type));
        break;
      case 1:
        lets_.push_back(b_.Let(Any(AnyType())));
        break;
      case 2:
        b_.If(
            Any(kBool), [&] { Statements(depth - 1); },
            random_.Chance(50) ? std::function<void()>([&] { Statements(depth - 1); }) : nullptr);
        break;
      case 3: {
        // The bounds differ from iteration to iteration at times.
        const E end = random_.Chance(25) ? FloorMod(column_, b_.I(4)) : b_.I(random_.Below(4));
        b_.For(end, [&](E k) {
          inner_.push_back(k);
          Statements(depth - 1);
          inner_.pop_back();
        });
        break;
      }
      case 4: {
        const bool integer = random_.Chance(50);
        const E sum = b_.Reduce(random_.Chance(50) ? BinaryOp::kAdd : BinaryOp::kMax,
                                b_.F(1, integer ? kI64 : kF32), b_.I(random_.Below(12)), [&](E k) {
                                  inner_.push_back(k);
                                  const E value = Any(integer ? kI64 : kF32);
                                  inner_.pop_back();
                                  return value;
                                });
        lets_.push_back(b_.Let(sum));
        break;
      }
      default: {
        const auto turns = b_.Local(b_.I(0), "turns");
        const E limit = random_.Chance(30) ? FloorMod(row_, b_.I(3)) : b_.I(random_.Below(3));
        b_.While([&] { return turns.Get() < limit; },
                 [&] {
                   Statements(depth - 1);
                   turns.Set(turns.Get() + 1);
                 });
      }
    }
  }

  Builder& b_;
  Random& random_;
  Expressions expressions_;
  std::vector<B> inputs_;
  std::vector<B> outputs_;
  E row_;
  E column_;
  std::vector<E> inner_;
  std::vector<E> lets_;
  std::vector<Builder::LocalRef> locals_;
};

TEST_P(Property, RandomNests) {
  for (uint32_t i = 0; i < 4; ++i) {
    Random random(1000 * static_cast<uint32_t>(GetParam()) + i);
    Builder b("nest");
    Nests(b, random).Make();
    ExpectSame(b.Finish(), random, {});
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace quench::loops::property_test
