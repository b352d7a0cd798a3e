#include "common/steps/memory_budget.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "common/base/status.h"
#include "common/rpc/errors.h"
#include "tests/support/matchers.h"
#include "tests/support/wait.h"

namespace quench::steps::memory_budget_test {
namespace {

using testing::HasSubstr;
using testing::WaitFor;
using Place = std::unique_ptr<MemoryBudget::Place>;

constexpr int64_t kMib = int64_t{1} << 20;

class MemoryBudgetTest : public ::testing::Test {
 protected:
  Place Enter(const std::string& key, int64_t mebibytes) {
    auto place = budget_.Reserve(key, mebibytes * kMib);
    EXPECT_TRUE(place.ok()) << place.status();
    return place.ok() ? *std::move(place) : nullptr;
  }
  std::string Refusal(const std::string& key, int64_t mebibytes) {
    const absl::Status status = budget_.Reserve(key, mebibytes * kMib).status();
    if (status.ok()) return "";
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_EQ(rpc::ReasonOf(status), "MEMORY_FULL");
    EXPECT_TRUE(rpc::RetryAfterOf(status));
    return MessageOf(status);
  }
  double Shown(metrics::MemoryState state) {
    return registry_.Get(metrics::kStepMemory, state).Value() / static_cast<double>(kMib);
  }

  metrics::Registry registry_;
  MemoryBudget budget_{1000 * kMib, std::make_shared<MemoryBook>(), &registry_};
};

TEST_F(MemoryBudgetTest, WhatDoesNotFitIsRefusedUntilOthersHaveEnded) {
  EXPECT_EQ(Shown(metrics::MemoryState::kFree), 1000);
  Place first = Enter("first", 600);
  EXPECT_THAT(Refusal("second", 600),
              HasSubstr("need about 600 MiB of the 1000 MiB for steps, and 400 MiB are free"));
  EXPECT_EQ(Shown(metrics::MemoryState::kReserved), 600);
  EXPECT_EQ(Shown(metrics::MemoryState::kFree), 400);
  first.reset();
  EXPECT_EQ(Shown(metrics::MemoryState::kReserved), 0);
  const Place second = Enter("second", 600);
  EXPECT_FALSE(second->had_company());
}

TEST_F(MemoryBudgetTest, SmallOnesRunBeside) {
  const Place large = Enter("large", 800), small = Enter("small", 100), other = Enter("other", 100);
  EXPECT_TRUE(large->had_company());
  EXPECT_TRUE(small->had_company());
  EXPECT_THAT(Refusal("one more", 1), HasSubstr("0 MiB are free"));
}

TEST_F(MemoryBudgetTest, OneThatIsTooLargeRunsAlone) {
  Place small = Enter("small", 1);
  EXPECT_THAT(Refusal("huge", 5000), HasSubstr("about 5000 MiB of the 1000 MiB"));
  small.reset();
  const Place huge = Enter("huge", 5000);
  EXPECT_EQ(huge->bytes(), 1000 * kMib);
  EXPECT_NE(Refusal("small", 1), "");
}

// A stream of small ones, of which two always run.
TEST_F(MemoryBudgetTest, SmallOnesDoNotKeepALargeOneOut) {
  Place one = Enter("1", 300), two = Enter("2", 300);
  EXPECT_NE(Refusal("large", 700), "");
  one.reset();
  EXPECT_THAT(Refusal("3", 400), HasSubstr("700 MiB are kept for a step that came before"));
  EXPECT_THAT(Refusal("huge", 1000), HasSubstr("kept")) << "one turn at a time";
  const Place large = Enter("large", 700);
  EXPECT_NE(Refusal("huge", 1000), "");
}

// Steps that ran before the large one came may run for hours.
TEST_F(MemoryBudgetTest, WhatFitsBesideTheOneWithTheTurnIsAdmittedWhileOlderOnesRun) {
  Place old = Enter("old", 300);
  EXPECT_NE(Refusal("large", 800), "");
  Place small = Enter("small", 100), other = Enter("other", 100);
  EXPECT_THAT(Refusal("one more", 1), HasSubstr("800 MiB are kept"));
  other.reset();
  const Place next = Enter("next", 100);
  old.reset();
  EXPECT_NE(Refusal("one more", 1), "");
  const Place large = Enter("large", 800);
}

// One that asks once a second beside a stream of others, each of which is refused at first.
TEST_F(MemoryBudgetTest, TheTurnIsOfTheOneThatWasRefusedFirst) {
  Place running = Enter("stream 0", 600);
  EXPECT_NE(Refusal("waits", 700), "");
  for (int i = 1; i < 10; ++i) {
    const std::string next = fmt::format("stream {}", i);
    EXPECT_NE(Refusal(next, 600), "");
    if (i == 5) EXPECT_NE(Refusal("waits", 700), "");
  }
  running.reset();
  EXPECT_NE(Refusal("stream 1", 600), "");
  const Place waits = Enter("waits", 700);
}

TEST_F(MemoryBudgetTest, NothingIsKeptForAStepThatWillNotAskAgain) {
  Place one = Enter("1", 300);
  EXPECT_NE(Refusal("large", 800), "");
  EXPECT_NE(Refusal("2", 701), "");
  budget_.Forgo("large");
  budget_.Forgo("2");
  const Place three = Enter("3", 700);
}

TEST_F(MemoryBudgetTest, ATurnThatIsOverLeavesNothingBehind) {
  for (int round = 0; round < 3; ++round) {
    Place old = Enter("old", 500), more = Enter("more", 0);
    EXPECT_NE(Refusal("large", 900), "");
    Place small = Enter("small", 100);
    old.reset();
    Place large = Enter("large", 900);
    small.reset();
  }
  const Place all = Enter("all", 1000);
}

TEST_F(MemoryBudgetTest, WhatFitsBesideTheOneWithTheTurnIsAdmitted) {
  Place one = Enter("1", 300);
  EXPECT_NE(Refusal("large", 800), "");
  EXPECT_NE(Refusal("2", 300), "");
  one.reset();
  const Place two = Enter("2", 200);
  const Place large = Enter("large", 800);
}

TEST_F(MemoryBudgetTest, OneThatAsksForAllWaitsUntilItIsAlone) {
  Place killed = Enter("killed", 300), other = Enter("other", 300);
  std::atomic<bool> done{false};
  auto waiting = std::async(std::launch::async, [&] {
    const absl::Status status = killed->TakeAll({});
    done = true;
    return status;
  });
  EXPECT_TRUE(WaitFor([&] { return Shown(metrics::MemoryState::kReserved) == 300; }));
  EXPECT_TRUE(WaitFor([&] { return !Refusal("new", 1).empty(); }));
  EXPECT_THAT(Refusal("new", 1), HasSubstr("a step that needs it all comes first"));
  EXPECT_FALSE(done);
  other.reset();
  EXPECT_EQ(waiting.get(), absl::OkStatus());
  EXPECT_EQ(killed->bytes(), 1000 * kMib);
  EXPECT_FALSE(killed->had_company());
  EXPECT_NE(Refusal("new", 1), "");
  killed.reset();
  EXPECT_TRUE(WaitFor([&] { return Refusal("new", 1).empty(); }));
}

TEST_F(MemoryBudgetTest, TwoThatAskForAllHaveItOneAfterTheOther) {
  Place one = Enter("1", 300), two = Enter("2", 300);
  std::atomic<int> running{0}, most{0};
  const auto run = [&](Place& place) {
    EXPECT_EQ(place->TakeAll({}), absl::OkStatus());
    most = std::max<int>(most, ++running);
    --running;
    place.reset();
  };
  auto first = std::async(std::launch::async, [&] { run(one); });
  run(two);
  first.get();
  EXPECT_EQ(most, 1);
  EXPECT_EQ(Shown(metrics::MemoryState::kReserved), 0);
}

TEST_F(MemoryBudgetTest, TheWaitEndsWithTheCall) {
  Place killed = Enter("killed", 300), other = Enter("other", 300);
  const auto token = std::make_shared<CancelToken>();
  auto waiting =
      std::async(std::launch::async, [&] { return killed->TakeAll(StepContext(token, nullptr)); });
  token->Cancel();
  EXPECT_TRUE(absl::IsCancelled(waiting.get()));
  StepContext late;
  late.set_deadline(std::chrono::steady_clock::now());
  EXPECT_TRUE(absl::IsDeadlineExceeded(killed->TakeAll(late)));
  EXPECT_EQ(killed->bytes(), 0);
  const Place another = Enter("another", 700);
}

}  // namespace
}  // namespace quench::steps::memory_budget_test
