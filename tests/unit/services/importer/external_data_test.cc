#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "common/base/status.h"
#include "common/ir/constants.h"
#include "services/importer/graph/external_files.h"
#include "tests/support/matchers.h"
#include "tests/support/onnx_models.h"

namespace quench::importer::external_data_test {
namespace {

using testing::ErrorOf;
using testing::HasSubstr;
using testing::ImportFolder;
using testing::OnnxModel;

using Entries = std::vector<std::pair<std::string, std::string>>;

OnnxModel ModelWithExternal(const Entries& entries, int64_t elements = 4) {
  OnnxModel model;
  model.Input("x", DataType::kF32, {elements}).Output("y");
  auto* tensor = model.graph().add_initializer();
  tensor->set_name("w");
  tensor->set_data_type(1);
  tensor->add_dims(elements);
  tensor->set_data_location(onnx::v1::TensorProto::EXTERNAL);
  for (const auto& [key, value] : entries) {
    auto* entry = tensor->add_external_data();
    entry->set_key(key);
    entry->set_value(value);
  }
  model.Node("Mul", {"x", "w"}, {"y"});
  return model;
}

std::string Floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

std::string ImportError(ImportFolder& folder, const Entries& entries) {
  OnnxModel model = ModelWithExternal(entries);
  return ErrorOf(folder.Import(model).status());
}

TEST(ExternalData, IsReadBeneathTheModelsFolder) {
  ImportFolder folder;
  folder.Write("sub/weights.bin", Floats({9, 1, 2, 3, 4}));
  OnnxModel model =
      ModelWithExternal({{"location", "sub/weights.bin"}, {"offset", "4"}, {"length", "16"}});
  const auto result = folder.Import(model);
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
  const Value& weight = result->canonical.value(*result->canonical.FindValue("w"));
  EXPECT_EQ(weight.constant->tensor.FloatAt(0), 1);
  EXPECT_EQ(weight.constant->tensor.FloatAt(3), 4);
}

TEST(ExternalData, LargeTensorsGoIntoTheStore) {
  ImportFolder folder;
  folder.Write("w.bin", Floats(std::vector<float>(1 << 20, 0.25f)));
  OnnxModel model = ModelWithExternal({{"location", "w.bin"}}, 1 << 20);
  const auto result = folder.Import(model);
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
  const Value& weight = result->canonical.value(*result->canonical.FindValue("w"));
  EXPECT_FALSE(weight.constant->location.empty());
  EXPECT_EQ(weight.constant->tensor.FloatAt((1 << 20) - 1), 0.25);
}

TEST(ExternalData, ProgressCountsTheBytesOfLargeTensors) {
  ImportFolder folder;
  folder.Write("w.bin", Floats(std::vector<float>(1 << 20, 0.25f)));
  OnnxModel model = ModelWithExternal({{"location", "w.bin"}}, 1 << 20);
  std::vector<Progress> seen;
  const StepContext context(std::make_shared<CancelToken>(),
                            [&](const Progress& progress) { seen.push_back(progress); });
  const auto path = folder.Write("m.onnx", model.proto().SerializeAsString());
  ASSERT_TRUE(ImportModel(path, {}, folder.store(), context).ok());
  ASSERT_GE(seen.size(), 3u);  // the start, and more than one piece
  for (size_t i = 1; i < seen.size(); ++i) {
    EXPECT_EQ(seen[i].total, 4 << 20);
    EXPECT_GT(seen[i].done, seen[i - 1].done);
  }
  EXPECT_EQ(seen.back().done, 4 << 20);
}

// A tensor of 320 MiB in a sparse file: its bytes lie in two blobs, and read as one tensor.
TEST(ExternalData, TensorsAboveOneBlobAreCut) {
  constexpr int64_t kElements = int64_t{80} << 20;
  ImportFolder folder;
  const std::filesystem::path file = folder.Write("w.bin", Floats({7}));
  const int fd = ::open(file.c_str(), O_WRONLY | O_CLOEXEC);
  const float last = 9;
  ASSERT_EQ(::pwrite(fd, &last, sizeof last, (kElements - 1) * 4),
            static_cast<ssize_t>(sizeof last));
  ::close(fd);
  OnnxModel model = ModelWithExternal({{"location", "w.bin"}}, kElements);
  const auto result = folder.Import(model);
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
  const Constant& weight = *result->canonical.value(*result->canonical.FindValue("w")).constant;
  ASSERT_EQ(weight.location.size(), 2u);
  EXPECT_EQ(weight.location[0].size, kMaxWeightBlobBytes);
  EXPECT_EQ(weight.location[0].size + weight.location[1].size, uint64_t{kElements} * 4);
  EXPECT_EQ(weight.tensor.FloatAt(0), 7);
  EXPECT_EQ(weight.tensor.FloatAt(kElements - 1), 9);
}

TEST(ExternalData, AnotherRootCanBeGiven) {
  ImportFolder folder, other;
  other.Write("w.bin", Floats({1, 2, 3, 4}));
  OnnxModel model = ModelWithExternal({{"location", "w.bin"}});
  EXPECT_EQ(folder.Import(model).status().code(), absl::StatusCode::kNotFound);
  ImportOptions options;
  options.external_root = other.path();
  EXPECT_TRUE(folder.Import(model, options).ok());
}

TEST(ExternalData, PathsOutsideAreRefused) {
  ImportFolder folder;
  EXPECT_THAT(ImportError(folder, {{"location", "../w.bin"}}),
              HasSubstr("location `../w.bin` has `..`"));
  EXPECT_THAT(ImportError(folder, {{"location", "a/../../w.bin"}}), HasSubstr("has `..`"));
  EXPECT_THAT(ImportError(folder, {{"location", "/etc/hostname"}}), HasSubstr("is absolute"));
  EXPECT_THAT(ImportError(folder, {}), HasSubstr("external data has no location"));
}

TEST(ExternalData, SymbolicLinksAreRefused) {
  ImportFolder folder, outside;
  outside.Write("w.bin", Floats({1, 2, 3, 4}));
  std::filesystem::create_symlink(outside.path() / "w.bin", folder.path() / "link.bin");
  std::filesystem::create_directory_symlink(outside.path(), folder.path() / "dir");
  EXPECT_THAT(ImportError(folder, {{"location", "link.bin"}}),
              HasSubstr("leads through a symbolic link"));
  EXPECT_THAT(ImportError(folder, {{"location", "dir/w.bin"}}),
              HasSubstr("leads through a symbolic link"));
}

TEST(ExternalData, OffsetsAndLengthsAreChecked) {
  ImportFolder folder;
  folder.Write("w.bin", Floats({1, 2, 3, 4}));
  EXPECT_THAT(ImportError(folder, {{"location", "w.bin"}, {"offset", "-4"}}),
              HasSubstr("offset `-4`"));
  EXPECT_THAT(ImportError(folder, {{"location", "w.bin"}, {"offset", "x"}}),
              HasSubstr("offset `x`"));
  EXPECT_THAT(ImportError(folder, {{"location", "w.bin"}, {"offset", "18446744073709551615"}}),
              HasSubstr("does not fit into `w.bin` of 16 bytes"));
  EXPECT_THAT(ImportError(folder, {{"location", "w.bin"}, {"offset", "99999999999999999999999"}}),
              HasSubstr("expected a non-negative number"));
  EXPECT_THAT(ImportError(folder, {{"location", "w.bin"}, {"offset", "4"}}),
              HasSubstr("does not fit"));
  EXPECT_THAT(ImportError(folder, {{"location", "w.bin"}, {"length", "8"}}),
              HasSubstr("tensor `w`: has 8 bytes of data, f32 of 4 elements takes 16"));
}

TEST(ExternalData, OnlyRegularFilesAreOpened) {
  ImportFolder folder;
  std::filesystem::create_directory(folder.path() / "folder");
  EXPECT_THAT(ImportError(folder, {{"location", "folder"}}), HasSubstr("is not a regular file"));
}

TEST(ExternalData, TheFallbackWalksWithTheSameRules) {
  ImportFolder folder;
  folder.Write("sub/w.bin", "data");
  std::filesystem::create_symlink(folder.path() / "sub/w.bin", folder.path() / "link");
  std::filesystem::create_directory_symlink(folder.path() / "sub", folder.path() / "dir");
  const int root = ::open(folder.path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  const int fd = OpenBeneathByWalking(root, "sub/w.bin");
  EXPECT_GE(fd, 0);
  ::close(fd);
  EXPECT_EQ(OpenBeneathByWalking(root, "link"), -ELOOP);
  EXPECT_EQ(OpenBeneathByWalking(root, "dir/w.bin"), -ELOOP);
  EXPECT_EQ(OpenBeneathByWalking(root, "sub/../sub/w.bin"), -EXDEV);
  EXPECT_EQ(OpenBeneathByWalking(root, "sub/none"), -ENOENT);
  ::close(root);
}

}  // namespace
}  // namespace quench::importer::external_data_test
