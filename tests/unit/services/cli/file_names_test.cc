#include <gtest/gtest.h>

#include "services/cli/input_flags.h"

namespace quench::cli::file_names_test {
namespace {

TEST(FileNamesTest, NoTwoValuesHaveOneFile) {
  const std::vector<std::string> values = {"head/score", "head_score", "head:score", "a"};
  FileNames files(values);
  EXPECT_EQ(files.Of("head/score"), "head_score_2");
  EXPECT_EQ(files.Of("head_score"), "head_score");
  EXPECT_EQ(files.Of("head:score"), "head_score_3");
  EXPECT_EQ(files.Of("a"), "a");
  EXPECT_EQ(files.Of("head/score"), "head_score_2") << "the same each time";
}

TEST(FileNamesTest, ValuesThatComeOneByOne) {
  FileNames files;
  EXPECT_EQ(files.Of("a/b"), "a_b");
  EXPECT_EQ(files.Of("a_b"), "a_b_2");
  EXPECT_EQ(files.Of("a_b_2"), "a_b_2_2");
}

}  // namespace
}  // namespace quench::cli::file_names_test
