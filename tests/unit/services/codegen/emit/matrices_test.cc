// Products of matrices, in registers where this CPU has them and as plain code.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "common/base/half.h"
#include "services/codegen/emit/module.h"
#include "services/codegen/forms/matrix_tile.h"
#include "services/codegen/targets/host_cpu.h"
#include "services/codegen/targets/resolve.h"
#include "tests/unit/services/codegen/emit/harness.h"

namespace quench::codegen::matrices_test {
namespace {

// pixels [blocks of `rows`][steps][words] times weights [steps * words][columns], plus a bias.
struct Problem {
  MatrixProducts products = MatrixProducts::kBfloats;
  MatrixShapes shapes;
  int steps = 3;
  bool bias = true;
  int64_t row_words() const { return int64_t{steps} * shapes.words; }
  int64_t pixels() const { return int64_t{shapes.blocks} * shapes.rows; }
  int64_t channels() const { return int64_t{shapes.columns} * 16; }
};

class ProblemCode final : public VectorCode {
 public:
  ProblemCode(Problem problem, int lanes) : p_(problem), lanes_(lanes) {}

  absl::Status Emit(VectorBuilder& b) const override {
    MatrixRegisters registers(b, p_.products, p_.shapes, b.I(p_.shapes.rows), lanes_);
    MicroReduction r;
    r.lanes = lanes_;
    r.blocks = b.I(1);
    r.kh = r.kw = b.I(1);
    r.block_stride = r.kh_stride = r.kw_stride = b.I(0);
    r.channels = p_.row_words();
    MatrixTile tile;
    const int64_t pitch = 4 * p_.row_words();
    for (int block = 0; block < p_.shapes.blocks; ++block)
      tile.blocks.push_back({b.Buffer(0) + block * p_.shapes.rows * pitch, b.I(0)});
    tile.stride = b.I(pitch);
    tile.vectors = static_cast<int>(p_.channels() / lanes_);
    tile.weights = b.Buffer(1);
    if (p_.bias) tile.bias = b.Buffer(2);
    registers.Emit(r, tile, [&](int block, Int row, int v, Vec value) {
      const Int pixel = row + int64_t{block} * p_.shapes.rows;
      b.Store(b.Buffer(3) + (pixel * (4 * p_.channels()) + int64_t{4} * lanes_ * v), value);
    });
    registers.Release();
    return absl::OkStatus();
  }
  std::string Text(const SymbolTable&) const override { return "{}"; }

 private:
  const Problem p_;
  const int lanes_;
};

// The numbers of a word.
std::vector<double> NumbersOf(MatrixProducts products, uint32_t word, bool left) {
  std::vector<double> numbers;
  if (products == MatrixProducts::kBfloats || products == MatrixProducts::kHalves) {
    for (int i = 0; i < 2; ++i) {
      const auto bits = static_cast<uint16_t>(word >> (16 * i));
      numbers.push_back(products == MatrixProducts::kBfloats ? Bfloat16ToFloat(bits)
                                                             : HalfToFloat(bits));
    }
    return numbers;
  }
  for (int i = 0; i < 4; ++i) {
    const auto byte = static_cast<uint8_t>(word >> (8 * i));
    const bool is_signed = !left || products == MatrixProducts::kSigned;
    numbers.push_back(is_signed ? static_cast<int8_t>(byte) : byte);
  }
  return numbers;
}

void Check(const Target& target, const Problem& p) {
  std::mt19937 random(7);
  const bool floats =
      p.products == MatrixProducts::kBfloats || p.products == MatrixProducts::kHalves;
  const auto word = [&]() -> uint32_t {
    if (!floats) return random();
    // Numbers between 1 and 2, of both signs.
    const uint32_t one = p.products == MatrixProducts::kBfloats ? 0x3f803f80 : 0x3c003c00;
    return one | (random() & 0x807f807f);
  };
  std::vector<uint32_t> pixels(static_cast<size_t>(p.pixels() * p.row_words()));
  std::vector<uint32_t> weights(static_cast<size_t>(p.row_words() * p.channels()));
  for (uint32_t& each : pixels) each = word();
  for (uint32_t& each : weights) each = word();
  std::vector<float> bias(static_cast<size_t>(p.channels()));
  std::vector<int32_t> whole_bias(bias.size());
  for (size_t i = 0; i < bias.size(); ++i) {
    bias[i] = static_cast<float>(i) / 4;
    whole_bias[i] = static_cast<int32_t>(i * 1000);
  }
  std::vector<uint32_t> result(static_cast<size_t>(p.pixels() * p.channels()), 0xffffffff);

  auto builder = ModuleBuilder::Create(target).value();
  KernelPlan plan;
  plan.name = "matrices";
  plan.code = std::make_shared<ProblemCode>(p, target.f32_lanes());
  const EmittedKernel kernel = builder->Emit(plan).value();
  const auto library = Library::Load(target, *builder, {kernel}).value();
  void* const buffers[] = {pixels.data(), weights.data(),
                           floats ? static_cast<void*>(bias.data()) : whole_bias.data(),
                           result.data()};
  ASSERT_EQ(library->Find(kernel.symbol)(buffers, nullptr, 0, 1), 0);

  for (int64_t m = 0; m < p.pixels(); ++m) {
    for (int64_t n = 0; n < p.channels(); ++n) {
      double sum = 0;
      int64_t whole = 0;
      if (p.bias && floats) sum = bias[static_cast<size_t>(n)];
      if (p.bias && !floats) whole = whole_bias[static_cast<size_t>(n)];
      for (int64_t k = 0; k < p.row_words(); ++k) {
        const auto x =
            NumbersOf(p.products, pixels[static_cast<size_t>(m * p.row_words() + k)], true);
        const auto w =
            NumbersOf(p.products, weights[static_cast<size_t>(k * p.channels() + n)], false);
        for (size_t i = 0; i < x.size(); ++i) {
          sum += x[i] * w[i];
          whole += static_cast<int64_t>(x[i]) * static_cast<int64_t>(w[i]);
        }
      }
      const uint32_t bits = result[static_cast<size_t>(m * p.channels() + n)];
      if (floats) {
        ASSERT_NEAR(std::bit_cast<float>(bits), sum, 1e-3) << m << ", " << n;
      } else {
        ASSERT_EQ(static_cast<int32_t>(bits), whole) << m << ", " << n;
      }
    }
  }
}

class MatricesTest : public ::testing::TestWithParam<MatrixProducts> {
 protected:
  void CheckShapes(const Target& target) {
    for (const MatrixShapes& shapes : {MatrixShapes{2, 16, 2, 16}, MatrixShapes{1, 16, 4, 16},
                                       MatrixShapes{2, 7, 1, 12}, MatrixShapes{1, 1, 3, 5}}) {
      for (const bool bias : {false, true}) Check(target, {GetParam(), shapes, 3, bias});
    }
  }
};

TEST_P(MatricesTest, PlainCodeAddsProducts) {
  for (const char* base : {"x86-64-v2", "x86-64-v3", "x86-64-v4"}) {
    const Target target = ResolveTarget(std::string("llvm -mtriple=x86_64-linux-gnu -mcpu=") +
                                        base + " -emulate-matrices")
                              .value()[0];
    if (!ThisCpuFeatures().Has(target.required_features)) continue;
    SCOPED_TRACE(target.name);
    CheckShapes(target);
  }
}

TEST_P(MatricesTest, RegistersAddProducts) {
  const bool halves = GetParam() == MatrixProducts::kHalves;
  const Target target =
      ResolveTarget(halves ? "llvm -mtriple=x86_64-linux-gnu -mcpu=graniterapids" : "x86-64-v4-amx")
          .value()[0];
  if (!ThisCpuFeatures().Has(target.required_features))
    GTEST_SKIP() << "this CPU has no such registers, or the system does not lend them";
  CheckShapes(target);
}

std::string NameOf(const ::testing::TestParamInfo<MatrixProducts>& each) {
  static constexpr const char* kNames[] = {"bf16", "f16", "u8", "i8"};
  return kNames[static_cast<size_t>(each.param)];
}

INSTANTIATE_TEST_SUITE_P(Products, MatricesTest,
                         ::testing::Values(MatrixProducts::kBfloats, MatrixProducts::kHalves,
                                           MatrixProducts::kUnsigned, MatrixProducts::kSigned),
                         NameOf);

}  // namespace
}  // namespace quench::codegen::matrices_test
