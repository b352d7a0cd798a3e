#include "services/cli/best_classes.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/base/files.h"
#include "services/cli/labels.h"

namespace quench::cli::best_classes_test {
namespace {

Tensor Scores() {
  return Tensor::Of<float>(DataType::kF32, {2, 6}, {1, 5, 5, NAN, 0, 2, 9, 8, 7, 6, 5, 4});
}

std::vector<int64_t> Classes(const nlohmann::json& row) {
  std::vector<int64_t> classes;
  for (const nlohmann::json& each : row) classes.push_back(each.at("class"));
  return classes;
}

TEST(BestClassesTest, TheFiveLargestOfEachRow) {
  const nlohmann::json best = BestClasses(Scores(), {"a", "b", "c", "d", "e", "f"});
  ASSERT_EQ(best.size(), 2U);
  EXPECT_EQ(Classes(best[0]), (std::vector<int64_t>{1, 2, 5, 0, 4}));
  EXPECT_EQ(Classes(best[1]), (std::vector<int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(best[0][0].at("name"), "b");
  EXPECT_EQ(best[0][0].at("value"), 5.0);
  EXPECT_FALSE(BestClasses(Scores(), {})[0][0].contains("name"));
}

TEST(BestClassesTest, OnlyOutputsOfClassifiers) {
  EXPECT_TRUE(HasClasses(Scores(), {}));
  EXPECT_TRUE(HasClasses(Scores(), std::vector<std::string>(6, "x")));
  EXPECT_FALSE(HasClasses(Scores(), std::vector<std::string>(5, "x")));
  EXPECT_FALSE(HasClasses(Tensor::Zeros(DataType::kF32, {1, 6, 6, 6}), {}));
  EXPECT_FALSE(HasClasses(Tensor::Zeros(DataType::kBool, {1, 6}), {}));
  EXPECT_FALSE(HasClasses(Tensor::Zeros(DataType::kF32, {0, 6}), {}));
}

class FolderLabelsTest : public ::testing::Test {
 protected:
  void Put(const std::string& path) {
    std::filesystem::create_directories((folder_.path() / path).parent_path());
    ASSERT_TRUE(WriteFileAtomically(folder_.path() / path, "").ok());
  }
  TempDir folder_ = *TempDir::Create();
};

TEST_F(FolderLabelsTest, AClassIsThePlaceOfItsFolder) {
  for (const char* path : {"dog/2.png", "cat/b.jpg", "cat/a.png", "dog/1.png", "eel/x.png"})
    Put(path);
  EXPECT_EQ(*ReadLabels(folder_.path()), (std::vector<int64_t>{0, 0, 1, 1, 2}));
}

TEST_F(FolderLabelsTest, ImagesBesideTheFoldersHaveNoClass) {
  Put("cat/a.png");
  Put("stray.png");
  EXPECT_EQ(ReadLabels(folder_.path()).status().message(),
            "`stray.png` lies in no folder that is a class");
}

TEST_F(FolderLabelsTest, FoldersAreNeeded) { EXPECT_FALSE(ReadLabels(folder_.path()).ok()); }

TEST_F(FolderLabelsTest, ClassNamesAreLines) {
  const std::filesystem::path file = folder_.path() / "names.txt";
  ASSERT_TRUE(WriteFileAtomically(file, "cat\r\ndog").ok());
  EXPECT_EQ(*ReadClassNames(file), (std::vector<std::string>{"cat", "dog"}));
}

}  // namespace
}  // namespace quench::cli::best_classes_test
