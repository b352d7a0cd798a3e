#include "common/ir/npy.h"

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/base/status.h"

namespace quench::npy_test {
namespace {

class NpyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto dir = TempDir::Create();
    ASSERT_TRUE(dir.ok()) << dir.status();
    dir_ = std::make_unique<TempDir>(*std::move(dir));
  }
  std::filesystem::path Write(const std::string& contents) {
    const std::filesystem::path path = dir_->path() / "x.npy";
    EXPECT_TRUE(WriteFileAtomically(path, contents).ok());
    return path;
  }
  // A version 1 file with this header text and data.
  std::filesystem::path WriteArray(const std::string& header, const std::string& data) {
    std::string file("\x93NUMPY\x01\x00", 8);
    file += static_cast<char>(header.size() & 0xff);
    file += static_cast<char>(header.size() >> 8);
    return Write(file + header + data);
  }
  std::unique_ptr<TempDir> dir_;
};

TEST_F(NpyTest, RoundTripsEveryShape) {
  for (const std::vector<int64_t>& dims :
       std::vector<std::vector<int64_t>>{{}, {0}, {5}, {2, 3}, {1, 2, 3, 4}}) {
    Tensor tensor = Tensor::Zeros(DataType::kF32, dims);
    for (int64_t i = 0; i < tensor.size(); ++i)
      reinterpret_cast<float*>(tensor.mutable_bytes())[i] = static_cast<float>(i) - 1.5f;
    const auto path = dir_->path() / "t.npy";
    ASSERT_TRUE(WriteNpy(tensor, path).ok());
    const auto back = ReadNpy(path);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->dims(), dims);
    EXPECT_EQ(RelativeError(*back, tensor), 0);
  }
}

TEST_F(NpyTest, HeaderIsAlignedAsNumpyWantsIt) {
  const auto path = dir_->path() / "t.npy";
  ASSERT_TRUE(WriteNpy(Tensor::I64({1, 2, 3}), path).ok());
  const std::string file = *ReadFile(path);
  EXPECT_EQ((file.size() - 24) % 64, 0u);
  EXPECT_NE(file.find("'shape': (3,)"), std::string::npos);
}

TEST_F(NpyTest, ReadsFortranOrder) {
  const float values[] = {0, 3, 1, 4, 2, 5};
  const auto path = WriteArray("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }\n",
                               std::string(reinterpret_cast<const char*>(values), sizeof(values)));
  const auto tensor = ReadNpy(path);
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(tensor->FloatAt(i), static_cast<double>(i));
}

TEST_F(NpyTest, RowsAreReadByThemselves) {
  const auto path = dir_->path() / "t.npy";
  ASSERT_TRUE(
      WriteNpy(Tensor::Of(DataType::kF32, {3, 2}, std::vector<float>{0, 1, 2, 3, 4, 5}), path)
          .ok());
  const auto file = NpyFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->dims(), (std::vector<int64_t>{3, 2}));
  const auto rows = (*file)->Rows(1, 2);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->dims(), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(rows->FloatAt(0), 2);
  EXPECT_EQ(rows->FloatAt(3), 5);
}

TEST_F(NpyTest, HalfPrecisionAndBfloat16) {
  const auto path = dir_->path() / "t.npy";
  ASSERT_TRUE(WriteNpy(Tensor::Of(DataType::kBF16, {1}, std::vector<uint16_t>{0x3fc0}), path).ok());
  const auto tensor = ReadNpy(path);
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(tensor->dtype(), DataType::kF32);
  EXPECT_EQ(tensor->FloatAt(0), 1.5);
}

TEST_F(NpyTest, BadFilesGetAnErrorThatNamesThem) {
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n";
  const auto expect = [&](const std::filesystem::path& path, const char* text) {
    const auto result = ReadNpy(path);
    ASSERT_FALSE(result.ok());
    EXPECT_NE(MessageOf(result.status()).find(text), std::string::npos) << result.status();
    EXPECT_NE(MessageOf(result.status()).find("x.npy"), std::string::npos);
  };
  expect(Write(""), "magic");
  expect(Write("PK\x03\x04 not an array"), "magic");
  expect(Write(std::string("\x93NUMPY\x01\x00\xff\xff", 10)), "truncated");
  expect(Write(std::string("\x93NUMPY\x09\x00\x00\x00", 10)), "version");
  expect(WriteArray("{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }\n", "12345678"),
         "dtype");
  expect(WriteArray("{'descr': '<f4', 'shape': (2,), }\n", "12345678"), "fortran_order");
  expect(WriteArray("{'descr': '<f4', 'fortran_order': False, 'shape': (2, }\n", "12345678"),
         "shape");
  expect(WriteArray(
             "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 99999999999), }\n",
             "12345678"),
         "bytes of data");
  expect(WriteArray(good, "1234"), "bytes of data");
}

}  // namespace
}  // namespace quench::npy_test
