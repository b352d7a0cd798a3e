#include "common/ir/constants.h"

#include <gtest/gtest.h>

#include <numeric>

#include "common/base/status.h"

namespace quench::constants_test {
namespace {

Tensor Bytes(int64_t count, uint8_t first = 0) {
  std::vector<uint8_t> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return Tensor::Of(DataType::kU8, {count}, values);
}

class ConstantsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto folder = TempDir::Create();
    ASSERT_TRUE(folder.ok());
    folder_.emplace(*std::move(folder));
    store_ = *LocalBlobStore::Open(folder_->path());
  }
  std::string Put(const Tensor& tensor) { return *store_->Put(tensor.bytes()); }
  absl::StatusOr<Tensor> Read(int64_t count, const std::vector<BlobRange>& location,
                              DataType dtype = DataType::kU8) {
    return ConstantReader(*store_).Read(Type::Tensor(dtype, {count}), location);
  }
  std::optional<TempDir> folder_;
  std::shared_ptr<LocalBlobStore> store_;
};

TEST_F(ConstantsTest, SmallTensorsShareABlob) {
  ConstantWriter writer(*store_);
  std::vector<BlobRange> first;
  std::vector<BlobRange> second;
  ASSERT_TRUE(writer.Add(Bytes(100), &first).ok());
  ASSERT_TRUE(writer.Add(Bytes(50, 7), &second).ok());
  ASSERT_TRUE(writer.Finish().ok());
  EXPECT_EQ(store_->Stat()->count, 1u);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(first[0].blob, second[0].blob);
  EXPECT_EQ(second[0].offset, 128u);
  EXPECT_EQ(RelativeError(*Read(50, second), Bytes(50, 7)), 0);
}

TEST_F(ConstantsTest, TensorsLargerThanABlobAreCut) {
  ConstantWriter writer(*store_, 256);
  std::vector<BlobRange> large;
  std::vector<BlobRange> small;
  ASSERT_TRUE(writer.Add(Bytes(600), &large).ok());
  ASSERT_TRUE(writer.Add(Bytes(30), &small).ok());
  ASSERT_TRUE(writer.Finish().ok());
  ASSERT_EQ(large.size(), 3u);
  EXPECT_EQ(large[2].size, 88u);
  EXPECT_EQ(small[0].blob, large[2].blob);
  EXPECT_EQ(RelativeError(*Read(600, large), Bytes(600)), 0);
}

TEST_F(ConstantsTest, EmptyTensors) {
  ConstantWriter writer(*store_);
  std::vector<BlobRange> location;
  ASSERT_TRUE(writer.Add(Tensor::Zeros(DataType::kF32, {0}), &location).ok());
  ASSERT_TRUE(writer.Finish().ok());
  EXPECT_EQ(Read(0, location)->size(), 0);
}

TEST_F(ConstantsTest, OneAlignedRangeIsAView) {
  const std::string blob = Put(Bytes(64));
  ConstantReader reader(*store_);
  const Type type = Type::Tensor(DataType::kU8, {16});
  const Tensor a = *reader.Read(type, std::vector<BlobRange>{{blob, 16, 16}});
  const Tensor b = *reader.Read(type, std::vector<BlobRange>{{blob, 32, 16}});
  EXPECT_EQ(a.bytes().data() + 16, b.bytes().data());  // of one mapping
  // Typed access needs alignment, so this one is copied.
  const Tensor odd = *Read(4, {{blob, 3, 16}}, DataType::kF32);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(odd.bytes().data()) % alignof(float), 0u);
  EXPECT_EQ(static_cast<int>(odd.bytes()[0]), 3);
}

TEST_F(ConstantsTest, LocationsAreChecked) {
  const std::string blob = Put(Bytes(64));
  const auto problem = [&](int64_t count, const std::vector<BlobRange>& location) {
    return MessageOf(Read(count, location).status());
  };
  EXPECT_EQ(problem(16, {}), "the location of a constant of 16 bytes has 0");
  EXPECT_EQ(problem(16, {{blob, 0, 15}}), "the location of a constant of 16 bytes has 15");
  EXPECT_EQ(problem(16, {{blob, 0, UINT64_MAX}, {blob, 0, 17}}),
            "the location of a constant of 16 bytes has more than 2^64");
  EXPECT_EQ(problem(16, {{blob, 60, 16}}), "16 bytes at 60 of blob `" + blob + "`, which has 64");
  EXPECT_EQ(problem(16, {{blob, UINT64_MAX, 16}}),
            "16 bytes at 18446744073709551615 of blob `" + blob + "`, which has 64");
  EXPECT_FALSE(Read(16, {{"../secret", 0, 16}}).ok());
  EXPECT_EQ(MessageOf(Read(1, {{blob, 0, 1}}, DataType::kString).status()),
            "a constant in blobs has plain numbers as sizes and elements of fixed size");
}

TEST_F(ConstantsTest, ClaimsTakeNoMemoryThatIsNotStored) {
  const std::string blob = Put(Bytes(64));
  const std::vector<BlobRange> repeated(1000, {blob, 0, 64});
  const Type type = Type::Tensor(DataType::kU8, {64000});
  EXPECT_EQ(
      MessageOf(ConstantReader(*store_, 1000).Read(type, repeated).status()),
      "constants in several pieces have many times more bytes than the blobs that they lie in");
  EXPECT_TRUE(ConstantReader(*store_, 64000).Read(type, repeated).ok());
  ConstantReader reader(*store_, 0);
  const std::vector<BlobRange> odd = {{blob, 1, 40}};
  EXPECT_TRUE(reader.Read(Type::Tensor(DataType::kU8, {40}), odd).ok());
  EXPECT_FALSE(reader.Read(Type::Tensor(DataType::kU8, {40}), odd).ok());
}

}  // namespace
}  // namespace quench::constants_test
