#include "services/codegen/packs/pack.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "services/codegen/forms/register_tile.h"
#include "services/codegen/targets/resolve.h"

namespace quench::codegen::pack_test {
namespace {

Tensor Iota(std::vector<int64_t> dims) {
  Tensor tensor = Tensor::Zeros(DataType::kF32, std::move(dims));
  float* values = reinterpret_cast<float*>(tensor.mutable_bytes());
  for (int64_t i = 0; i < tensor.size(); ++i) values[i] = static_cast<float>(i + 1);
  return tensor;
}

std::vector<float> Packed(const std::string& transform,
                          const std::map<std::string, int64_t>& params, const Tensor& source) {
  const PackSpec spec{transform, params, {0}};
  const Tensor* sources[] = {&source};
  const auto bytes = Pack(spec, sources);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  std::vector<float> out(bytes->size() / sizeof(float));
  std::memcpy(out.data(), bytes->data(), bytes->size());
  return out;
}

TEST(Pack, ChannelsAreScaledAndPadded) {
  const int64_t half = std::bit_cast<uint32_t>(0.5F);
  EXPECT_EQ(Packed("channels", {{"channels", 3}, {"padded", 4}, {"scale", half}}, Iota({3, 1, 1})),
            (std::vector<float>{0.5F, 1, 1.5F, 0}));
  EXPECT_EQ(Packed("channels", {{"channels", 3}, {"padded", 4}}, Iota({})),
            (std::vector<float>{1, 1, 1, 0}));
}

// Three output channels of two lanes: panels of one vector each; two input channels in blocks of
// one.
TEST(Pack, ConvPanelsFollowTheReduction) {
  EXPECT_EQ(Packed("conv_panels",
                   {{"groups", 1}, {"merged", 1}, {"lanes", 2}, {"block", 1}, {"vectors", 1}},
                   Iota({3, 2, 1, 2})),
            (std::vector<float>{1, 5, 2, 6, 3, 7, 4, 8, 9, 0, 10, 0, 11, 0, 12, 0}));
}

// Two groups computed as one: zero off the diagonal.
TEST(Pack, MergedGroupsAreBlockDiagonal) {
  EXPECT_EQ(Packed("conv_panels",
                   {{"groups", 2}, {"merged", 2}, {"lanes", 2}, {"block", 2}, {"vectors", 1}},
                   Iota({2, 1, 1, 1})),
            (std::vector<float>{1, 0, 0, 2}));
}

TEST(Pack, GemmPanels) {
  const std::map<std::string, int64_t> params = {{"lanes", 2}, {"vectors", 1}};
  EXPECT_EQ(Packed("gemm_panels", params, Iota({2, 3})),
            (std::vector<float>{1, 2, 4, 5, 3, 0, 6, 0}));
  std::map<std::string, int64_t> transposed = params;
  transposed["transposed"] = 1;
  EXPECT_EQ(Packed("gemm_panels", transposed, Iota({3, 2})),
            (std::vector<float>{1, 3, 2, 4, 5, 0, 6, 0}));
}

TEST(Pack, Depthwise) {
  EXPECT_EQ(Packed("depthwise", {{"lanes", 2}, {"padded", 4}}, Iota({3, 1, 1, 2})),
            (std::vector<float>{1, 3, 2, 4, 5, 0, 6, 0}));
}

// A filter of ones, which is 1 / -1 at point 0, 3 / 2 at 1, 1 / 2 at -1 and 1 at infinity, by rows and
// columns.
TEST(Pack, WinogradPanelsAreFiltersAtPoints) {
  Tensor ones = Tensor::Zeros(DataType::kF32, {1, 1, 3, 3});
  for (int i = 0; i < 9; ++i) reinterpret_cast<float*>(ones.mutable_bytes())[i] = 1;
  const std::vector<float> at = {-1, 1.5F, 0.5F, 1};
  std::vector<float> expected;
  for (const float row : at) {
    for (const float column : at) expected.push_back(row * column);
  }
  EXPECT_EQ(Packed("winograd_panels", {{"outputs", 2}, {"lanes", 1}, {"vectors", 1}}, ones),
            expected);
}

TEST(Pack, WinogradPanelsFollowTheProducts) {
  Tensor filters = Tensor::Zeros(DataType::kF32, {3, 2, 3, 3});
  auto* values = reinterpret_cast<float*>(filters.mutable_bytes());
  for (int i = 0; i < 6; ++i)
    values[9 * i + 8] = static_cast<float>(i + 1);  // seen by infinity alone
  const std::vector<float> packed =
      Packed("winograd_panels", {{"outputs", 2}, {"lanes", 2}, {"vectors", 1}}, filters);
  ASSERT_EQ(packed.size(), 2U * 16 * 2 * 2);
  // The last point of each panel: [input channel][output channel].
  EXPECT_EQ(std::vector<float>(packed.begin() + 60, packed.begin() + 64),
            (std::vector<float>{1, 3, 2, 4}));
  EXPECT_EQ(std::vector<float>(packed.end() - 4, packed.end()), (std::vector<float>{5, 0, 6, 0}));
}

TEST(Pack, RefusesWhatItDoesNotKnow) {
  const Tensor source = Iota({2});
  const Tensor* sources[] = {&source};
  EXPECT_FALSE(Pack({"nonsense", {}, {0}}, sources).ok());
  EXPECT_FALSE(Pack({"gemm_panels", {{"lanes", 4}, {"vectors", 1}}, {0}}, sources).ok());
  EXPECT_FALSE(Pack({"channels", {{"channels", 3}, {"padded", 4}}, {0}}, sources).ok());
  const Tensor filters = Iota({1, 1, 3, 3});
  const Tensor* one[] = {&filters};
  for (const int64_t outputs : {0, 3, 8}) {
    EXPECT_FALSE(
        Pack({"winograd_panels", {{"outputs", outputs}, {"lanes", 4}, {"vectors", 1}}, {0}}, one)
            .ok());
  }
}

TEST(Tile, SplitsAreEvenAndCoverAll) {
  for (int64_t total = 1; total <= 60; ++total) {
    for (int64_t most = 1; most <= 9; ++most) {
      const Split split = SplitEvenly(total, most);
      EXPECT_LE(split.big, most);
      EXPECT_EQ(split.bigs * split.big + split.smalls * (split.big - 1), total);
      EXPECT_EQ(split.parts(), (total + most - 1) / most);
      EXPECT_EQ(split.Start(split.parts()), total);
    }
  }
}

// Panels in a row, from any to any, have their share of the vectors.
TEST(Tile, PanelsOfTwoSizesAreSpread) {
  for (int64_t total = 1; total <= 60; ++total) {
    for (int64_t most = 1; most <= 9; ++most) {
      const PanelSplit split = SplitIntoPanels(total, most);
      EXPECT_EQ(split.parts(), (total + most - 1) / most);
      EXPECT_EQ(split.Start(0), 0);
      EXPECT_EQ(split.Start(split.parts()), total);
      EXPECT_EQ(split.Size(0), split.most());
      EXPECT_EQ(split.Size(split.parts() - 1), total / split.parts());
      for (int64_t first = 0; first < split.parts(); ++first) {
        for (int64_t end = first + 1; end <= split.parts(); ++end) {
          const double share =
              static_cast<double>(total * (end - first)) / static_cast<double>(split.parts());
          EXPECT_LT(std::abs(static_cast<double>(split.Start(end) - split.Start(first)) - share),
                    1);
        }
      }
    }
  }
}

TEST(Tile, FitsTheRegisters) {
  for (const char* name : {"x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64", "armv7"}) {
    const Target target = ResolveTarget(name).value()[0];
    for (const int64_t width : {1, 7, 14, 49, 56, 3136}) {
      for (const int64_t vectors : {1, 3, 8, 64}) {
        const Tile tile = ChooseTile(target, {1, width, vectors, 512});
        const int accumulators = tile.y * tile.x * tile.vectors;
        EXPECT_LE(accumulators + tile.vectors + 1, target.vector_registers)
            << name << " " << width << " " << vectors;
        if (width >= 49 && vectors >= 8) {
          EXPECT_GE(accumulators, 6) << name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace quench::codegen::pack_test
