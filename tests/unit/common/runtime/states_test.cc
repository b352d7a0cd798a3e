#include <gtest/gtest.h>

#include <array>

#include "common/runtime/quench_rt.h"
#include "tests/unit/common/runtime/fake_model.h"

namespace quench::states_test {
namespace {

using Pair = std::array<float, 2>;

class StatesTest : public ::testing::Test {
 protected:
  StatesTest() {
    EXPECT_EQ(quench_rt_open_linked(fake_accumulator_query, &model_, &error_), QUENCH_RT_OK);
    EXPECT_EQ(quench_rt_session_create(model_, nullptr, &session_, &error_), QUENCH_RT_OK)
        << error_.text;
  }
  ~StatesTest() override {
    quench_rt_session_free(session_);
    quench_rt_close(model_);
  }

  int Set(uint32_t input, Pair& values) {
    const int64_t two = 2;
    const quench_rt_tensor tensor = {values.data(), &two, 1, 1};
    return quench_rt_set_input(session_, input, &tensor, &error_);
  }
  Pair Output(uint32_t index) {
    quench_rt_tensor y;
    EXPECT_EQ(quench_rt_get_output(session_, index, &y, &error_), QUENCH_RT_OK) << error_.text;
    return {static_cast<const float*>(y.data)[0], static_cast<const float*>(y.data)[1]};
  }
  Pair Run(Pair x) {
    EXPECT_EQ(Set(0, x), QUENCH_RT_OK) << error_.text;
    EXPECT_EQ(quench_rt_run(session_, &error_), QUENCH_RT_OK) << error_.text;
    EXPECT_EQ(Output(0), Output(1));
    return Output(0);
  }

  quench_rt_model* model_ = nullptr;
  quench_rt_session* session_ = nullptr;
  quench_rt_error error_{};
};

TEST_F(StatesTest, GoFromRunToRun) {
  EXPECT_EQ(Run({1, 2}), (Pair{11, 12}));
  EXPECT_EQ(Run({1, 2}), (Pair{12, 14}));
  EXPECT_EQ(Run({1, 2}), (Pair{13, 16}));
  quench_rt_reset_states(session_);
  EXPECT_EQ(Run({1, 2}), (Pair{11, 12}));
}

TEST_F(StatesTest, GoIntoMemoryOfTheCallersToo) {
  Pair next{};
  ASSERT_EQ(quench_rt_set_output(session_, 1, next.data(), sizeof next, &error_), QUENCH_RT_OK);
  EXPECT_EQ(Run({1, 2}), (Pair{11, 12}));
  EXPECT_EQ(next, (Pair{11, 12}));
  next = {1000, 1000};  // the caller's: the session has a copy
  EXPECT_EQ(Run({1, 2}), (Pair{12, 14}));
}

TEST_F(StatesTest, AreTheCallersWhileBound) {
  Pair total = {100, 200};
  ASSERT_EQ(Set(1, total), QUENCH_RT_OK) << error_.text;
  EXPECT_EQ(Run({1, 2}), (Pair{101, 202}));
  EXPECT_EQ(Run({1, 2}), (Pair{101, 202}));
  ASSERT_EQ(quench_rt_set_input(session_, 1, nullptr, &error_), QUENCH_RT_OK) << error_.text;
  EXPECT_EQ(Run({1, 2}), (Pair{102, 204}));
}

TEST_F(StatesTest, StayWhenARunFails) {
  EXPECT_EQ(Run({1, 2}), (Pair{11, 12}));
  Pair negative = {5, -1};
  ASSERT_EQ(Set(0, negative), QUENCH_RT_OK);
  EXPECT_EQ(quench_rt_run(session_, &error_), QUENCH_RT_CHECK);
  EXPECT_EQ(Run({1, 2}), (Pair{12, 14}));
}

TEST_F(StatesTest, OthersNeedATensor) {
  EXPECT_EQ(quench_rt_set_input(session_, 0, nullptr, &error_), QUENCH_RT_INVALID);
  EXPECT_STREQ(error_.text, "input `x`: there is no tensor, and no state to carry");
}

}  // namespace
}  // namespace quench::states_test
