#include <gtest/gtest.h>

#include <array>
#include <type_traits>
#include <vector>

#include "common/runtime/quench.hpp"
#include "tests/unit/common/runtime/fake_model.h"

namespace {

using quench::Model;
using quench::Session;
using quench::View;

static_assert(std::is_nothrow_move_constructible_v<Session> &&
              !std::is_copy_constructible_v<Session>);
static_assert(std::is_nothrow_move_constructible_v<Model> && !std::is_copy_constructible_v<Model>);

class CppTest : public ::testing::Test {
 protected:
  CppTest() : model_(*Model::OpenLinked(fake_model_query)), session_(*model_.NewSession()) {}

  Model model_;
  Session session_;
};

TEST_F(CppTest, RunsByNamesAndByIndices) {
  const std::vector<float> x = {1, -1, 2, -1, 3, -1, 4, -1};
  std::array<int64_t, 2> k = {0, 0};
  ASSERT_TRUE(session_.SetInput("x", View<const float>(x, {2, 4})));
  ASSERT_TRUE(session_.SetInput(1, View<int64_t>(k, {2})));
  ASSERT_TRUE(session_.Run());
  const auto y = session_.Output<float>("y");
  ASSERT_TRUE(y) << y.error().message;
  EXPECT_EQ(y->dims(), (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(std::vector<float>(y->begin(), y->end()),
            (std::vector<float>{2, -2, 4, -2, 6, -2, 8, -2}));
  const auto positive = session_.Output<float>(1);  // its size is the run's to say
  ASSERT_TRUE(positive);
  EXPECT_EQ(std::vector<float>(positive->begin(), positive->end()),
            (std::vector<float>{1, 2, 3, 4}));
}

TEST_F(CppTest, DescribesItself) {
  EXPECT_EQ(model_.name(), "fake");
  ASSERT_EQ(model_.inputs().size(), 2u);
  EXPECT_EQ(model_.inputs()[0].name, "x");
  EXPECT_EQ(model_.inputs()[0].dims, (std::vector<int64_t>{-1, 4}));
  EXPECT_EQ(model_.outputs()[1].name, "positive");
}

TEST_F(CppTest, ErrorsHaveCodeAndSentence) {
  std::vector<float> x(8);
  const auto unknown = session_.SetInput("picture", View<float>(x, {2, 4}));
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, QUENCH_RT_INVALID);
  EXPECT_EQ(unknown.error().message, "there is no input `picture`, the model has `x`, `k`");
  EXPECT_EQ(session_.SetInput("x", View<float>(x, {2, 5})).error().message,
            "input `x`: there are 8 elements for the shape [2, 5]");
  EXPECT_EQ(session_.SetInput("x", View<float>(x, {int64_t{1} << 62, 16})).error().code,
            QUENCH_RT_INVALID);
  EXPECT_EQ(session_.SetInput("x", View<float>(x, {-2, -4})).error().code, QUENCH_RT_INVALID);
  std::vector<double> wide(8);
  EXPECT_EQ(session_.SetInput("x", View<double>(wide, {2, 4})).error().message,
            "input `x`: dtype is f64, the model takes f32");
  EXPECT_EQ(session_.Run().error().message, "input `x` is not set; input `k` is not set");
  EXPECT_FALSE(session_.Output<float>("y"));  // nothing ran
  EXPECT_EQ(Model::Open("/nowhere/model.so").error().code, QUENCH_RT_IO);
  EXPECT_EQ(Model::FromMemory("nonsense", 8).error().code, QUENCH_RT_NOT_A_MODEL);
}

TEST_F(CppTest, OutputsHaveTheirOwnType) {
  const std::vector<float> x(8, 1);
  const std::vector<int64_t> k(2);
  ASSERT_TRUE(session_.SetInput("x", View<const float>(x, {2, 4})));
  ASSERT_TRUE(session_.SetInput("k", View<const int64_t>(k, {2})));
  ASSERT_TRUE(session_.Run());
  EXPECT_EQ(session_.Output<int32_t>("y").error().message, "output `y` is f32, asked for as i32");
}

TEST(CppStatesTest, GoFromRunToRun) {
  const Model model = *Model::OpenLinked(fake_accumulator_query);
  Session session = *model.NewSession();
  const std::array<float, 2> x = {1, 2};
  ASSERT_TRUE(session.SetInput("x", View<const float>(x, {2})));
  const auto next = [&] {
    EXPECT_TRUE(session.Run());
    return (*session.Output<float>("y"))[0];
  };
  EXPECT_EQ(next(), 11);
  EXPECT_EQ(next(), 12);
  session.ResetStates();
  EXPECT_EQ(next(), 11);
}

}  // namespace
