#include "common/ir/npz.h"

#include <gtest/gtest.h>
#include <zip.h>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/ir/npy.h"
#include "tests/support/matchers.h"

namespace quench::npz_test {
namespace {

using testing::HasSubstr;

class NpzTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto dir = TempDir::Create();
    ASSERT_TRUE(dir.ok()) << dir.status();
    dir_ = std::make_unique<TempDir>(*std::move(dir));
  }
  std::string NpyOf(const Tensor& tensor) {
    EXPECT_TRUE(WriteNpy(tensor, dir_->path() / "one.npy").ok());
    return *ReadFile(dir_->path() / "one.npy");
  }
  std::filesystem::path Archive(const std::map<std::string, std::string>& members, bool deflate) {
    const std::filesystem::path path = dir_->path() / "a.npz";
    zip_t* archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, nullptr);
    for (const auto& [name, bytes] : members) {
      zip_source_t* source = zip_source_buffer(archive, bytes.data(), bytes.size(), 0);
      const zip_int64_t index = zip_file_add(archive, name.c_str(), source, 0);
      zip_set_file_compression(archive, static_cast<zip_uint64_t>(index),
                               deflate ? ZIP_CM_DEFLATE : ZIP_CM_STORE, 0);
    }
    EXPECT_EQ(zip_close(archive), 0);
    return path;
  }
  std::unique_ptr<TempDir> dir_;
};

TEST_F(NpzTest, ArraysComeByName) {
  const std::string x = NpyOf(Tensor::I64({1, 2, 3})), y = NpyOf(Tensor::ScalarF32(2.5f));
  for (const bool deflate : {false, true}) {
    const auto arrays = ReadNpz(Archive({{"x.npy", x}, {"y.npy", y}, {"readme", "no"}}, deflate));
    ASSERT_TRUE(arrays.ok()) << arrays.status();
    ASSERT_EQ(arrays->size(), 2u);
    EXPECT_EQ(arrays->at("x").ToInts(), (std::vector<int64_t>{1, 2, 3}));
    EXPECT_EQ(arrays->at("y").FloatAt(0), 2.5);
  }
}

TEST_F(NpzTest, BadArchivesGetAnError) {
  const auto expect = [&](const std::filesystem::path& path, const char* text) {
    const auto arrays = ReadNpz(path, "shown");
    ASSERT_FALSE(arrays.ok());
    EXPECT_PRED1(HasSubstr(text), MessageOf(arrays.status()));
    EXPECT_PRED1(HasSubstr("shown"), MessageOf(arrays.status()));
  };
  ASSERT_TRUE(WriteFileAtomically(dir_->path() / "b", "not a zip").ok());
  expect(dir_->path() / "b", "not a zip archive");
  expect(Archive({{"x.npy", "not an array"}}, false), "magic");
  expect(Archive({{"x.npy", std::string(size_t{64} << 20, 0)}}, true), "thousandfold");
  // One byte of the contents is another.
  const std::string npy = NpyOf(Tensor::I64({1, 2, 3}));
  const std::filesystem::path path = Archive({{"x.npy", npy}}, false);
  std::string bytes = *ReadFile(path);
  bytes[bytes.find(npy) + npy.size() - 1] ^= 1;
  ASSERT_TRUE(WriteFileAtomically(path, bytes).ok());
  expect(path, "damaged");
}

TEST_F(NpzTest, AMissingFileIsNotFound) {
  EXPECT_EQ(ReadNpz(dir_->path() / "no.npz").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace quench::npz_test
