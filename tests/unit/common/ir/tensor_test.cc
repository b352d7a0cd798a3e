#include "common/ir/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "common/base/half.h"

namespace quench::tensor_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(TensorTest, CopiesAreIndependent) {
  Tensor a = Tensor::Of<float>(DataType::kF32, {2}, {1, 2});
  const Tensor b = a;
  EXPECT_EQ(a.bytes().data(), b.bytes().data());
  reinterpret_cast<float*>(a.mutable_bytes())[0] = 9;
  EXPECT_EQ(a.as<float>()[0], 9);
  EXPECT_EQ(b.as<float>()[0], 1);
  // Alone again: written in place.
  const std::byte* before = a.bytes().data();
  EXPECT_EQ(a.mutable_bytes(), before);
}

TEST(TensorTest, ViewsKeepTheirOwnerAndAreNeverWritten) {
  auto owner = std::make_shared<std::vector<std::byte>>(8);
  const std::weak_ptr<std::vector<std::byte>> watch = owner;
  Tensor view = Tensor::View(DataType::kI32, {2}, *owner, owner);
  const std::byte* mapped = owner->data();
  owner.reset();
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(view.bytes().data(), mapped);
  reinterpret_cast<int32_t*>(view.mutable_bytes())[1] = 5;
  EXPECT_NE(view.bytes().data(), mapped);
  EXPECT_TRUE(watch.expired());
  EXPECT_EQ(view.IntAt(1), 5);
}

TEST(TensorTest, EmptyAndScalar) {
  Tensor empty = Tensor::Zeros(DataType::kF32, {3, 0});
  EXPECT_EQ(empty.size(), 0);
  EXPECT_EQ(empty.bytes().size(), 0u);
  EXPECT_NE(empty.mutable_bytes(), nullptr);
  EXPECT_EQ(Tensor::ScalarF32(2.5f).size(), 1);
  EXPECT_EQ(Tensor::ScalarF32(2.5f).FloatAt(0), 2.5);
  EXPECT_EQ(Tensor::Zeros(DataType::kString, {2}).strings().size(), 2u);
  EXPECT_TRUE(Tensor().strings().empty());
}

TEST(TensorTest, ReshapeAndBitCastShareBytes) {
  const Tensor a = Tensor::Of<float>(DataType::kF32, {2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(a.Reshaped({3, 2}).bytes().data(), a.bytes().data());
  EXPECT_EQ(a.Reshaped({6}).dims(), (std::vector<int64_t>{6}));
  EXPECT_EQ(Tensor::ScalarF32(1.0f).BitCast(DataType::kI32).IntAt(0), 0x3f800000);
}

TEST(TensorTest, ReadsEveryIntegerType) {
  const auto check = [](DataType dtype, const std::vector<uint8_t>& bytes,
                        const std::vector<int64_t>& expected) {
    const Tensor tensor = Tensor::View(dtype, {static_cast<int64_t>(expected.size())},
                                       std::as_bytes(std::span(bytes)), nullptr);
    EXPECT_EQ(tensor.ToInts(), expected) << DataTypeName(dtype);
    EXPECT_EQ(tensor.FloatAt(0), static_cast<double>(expected[0])) << DataTypeName(dtype);
  };
  check(DataType::kU8, {0xff, 1}, {255, 1});
  check(DataType::kI8, {0xff, 1}, {-1, 1});
  check(DataType::kU16, {0xff, 0xff}, {65535});
  check(DataType::kI16, {0xfe, 0xff}, {-2});
  check(DataType::kU32, {0xff, 0xff, 0xff, 0xff}, {4294967295});
  check(DataType::kI32, {0xff, 0xff, 0xff, 0xff}, {-1});
  check(DataType::kI64, {1, 0, 0, 0, 0, 0, 0, 0x80}, {std::numeric_limits<int64_t>::min() + 1});
  check(DataType::kU64, {7, 0, 0, 0, 0, 0, 0, 0}, {7});
  check(DataType::kBool, {1, 0, 1}, {1, 0, 1});
  check(DataType::kI4, {0x8f, 0x07}, {-1, -8, 7});
  check(DataType::kU4, {0x8f, 0x07}, {15, 8, 7});
  check(DataType::kI2, {0b11100100}, {0, 1, -2, -1});
  check(DataType::kU2, {0b11100100}, {0, 1, 2, 3});
}

TEST(TensorTest, ReadsEveryFloatType) {
  const auto at = [](DataType dtype, const std::vector<uint8_t>& bytes) {
    const int64_t count = static_cast<int64_t>(bytes.size()) * 8 / DataTypeBits(dtype);
    return Tensor::View(dtype, {count}, std::as_bytes(std::span(bytes)), nullptr).FloatAt(0);
  };
  EXPECT_EQ(at(DataType::kF16, {0x00, 0x3e}), 1.5);
  EXPECT_EQ(at(DataType::kBF16, {0xc0, 0x3f}), 1.5);
  EXPECT_EQ(at(DataType::kF64, {0, 0, 0, 0, 0, 0, 0xf8, 0x3f}), 1.5);
  // The extreme finite values of each format, as in the OCP and ONNX documents.
  EXPECT_EQ(at(DataType::kF8E4M3FN, {0x7e}), 448);
  EXPECT_EQ(at(DataType::kF8E4M3FN, {0x01}), std::ldexp(1, -9));
  EXPECT_TRUE(std::isnan(at(DataType::kF8E4M3FN, {0x7f})));
  EXPECT_EQ(at(DataType::kF8E4M3FNUZ, {0x7f}), 240);
  EXPECT_TRUE(std::isnan(at(DataType::kF8E4M3FNUZ, {0x80})));
  EXPECT_EQ(at(DataType::kF8E5M2, {0x7b}), 57344);
  EXPECT_EQ(at(DataType::kF8E5M2, {0xfc}), -kInfinity);
  EXPECT_TRUE(std::isnan(at(DataType::kF8E5M2, {0x7d})));
  EXPECT_EQ(at(DataType::kF8E5M2FNUZ, {0x7f}), 57344);
  EXPECT_EQ(at(DataType::kF4E2M1, {0x07}), 6);
  EXPECT_EQ(at(DataType::kF4E2M1, {0x09}), -0.5);
  EXPECT_EQ(at(DataType::kF8E8M0, {127}), 1);
  EXPECT_TRUE(std::isnan(at(DataType::kF8E8M0, {255})));
}

TEST(TensorTest, ElementCountRefusesNonsense) {
  EXPECT_EQ(ElementCount(std::vector<int64_t>{}), 1);
  EXPECT_EQ(ElementCount(std::vector<int64_t>{2, 3}), 6);
  EXPECT_EQ(ElementCount(std::vector<int64_t>{2, -1}), std::nullopt);
  EXPECT_EQ(ElementCount(std::vector<int64_t>{int64_t{1} << 32, int64_t{1} << 32}), std::nullopt);
  EXPECT_EQ(ElementCount(std::vector<int64_t>{1, 0}), 0);
}

Tensor F32(const std::vector<float>& values) {
  return Tensor::Of(DataType::kF32, {static_cast<int64_t>(values.size())}, values);
}

TEST(RelativeErrorTest, ScalesByTheLargestReference) {
  EXPECT_EQ(RelativeError(F32({1, 2}), F32({1, 2})), 0);
  EXPECT_NEAR(RelativeError(F32({1, 2.5}), F32({1, -4})), 6.5 / 4, 1e-12);
  EXPECT_NEAR(RelativeError(F32({1e-30f}), F32({0})), 1, 1e-6);
  EXPECT_EQ(RelativeError(F32({}), F32({})), 0);
}

TEST(RelativeErrorTest, SpecialValuesMustAgree) {
  const float nan = std::nanf("");
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(RelativeError(F32({nan, inf, 1}), F32({nan, inf, 1})), 0);
  EXPECT_EQ(RelativeError(F32({nan}), F32({1})), kInfinity);
  EXPECT_EQ(RelativeError(F32({1}), F32({nan})), kInfinity);
  EXPECT_EQ(RelativeError(F32({inf}), F32({-inf})), kInfinity);
  EXPECT_EQ(RelativeError(F32({inf}), F32({3e38f})), kInfinity);
}

TEST(RelativeErrorTest, TypesAndDimsMustAgree) {
  EXPECT_EQ(RelativeError(F32({1}), Tensor::ScalarF32(1)), kInfinity);
  EXPECT_EQ(RelativeError(F32({1}), Tensor::I64({1})), kInfinity);
  EXPECT_EQ(RelativeError(Tensor::Strings({1}, {"a"}), Tensor::Strings({1}, {"a"})), 0);
  EXPECT_EQ(RelativeError(Tensor::Strings({1}, {"a"}), Tensor::Strings({1}, {"b"})), kInfinity);
}

TEST(RelativeErrorTest, IntegersThatDifferAreNeverEqual) {
  const int64_t big = (int64_t{1} << 62) + 1;
  EXPECT_EQ(RelativeError(Tensor::I64({big}), Tensor::I64({big})), 0);
  EXPECT_GT(RelativeError(Tensor::I64({big}), Tensor::I64({big - 1})), 0);
  EXPECT_EQ(RelativeError(Tensor::I64({3}), Tensor::I64({4})), 0.25);
  const Tensor half = Tensor::Of<uint16_t>(DataType::kF16, {1}, {FloatToHalf(1.0f)});
  EXPECT_EQ(RelativeError(half, half), 0);
}

}  // namespace
}  // namespace quench::tensor_test
