#include "common/steps/memory_book.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "common/base/files.h"
#include "tests/support/captured_log.h"
#include "tests/support/matchers.h"

namespace quench::steps::memory_book_test {
namespace {

using testing::CapturedLog;
using testing::HasSubstr;

constexpr int64_t kMib = int64_t{1} << 20, kGib = int64_t{1} << 30;
constexpr char kStep[] = "quench.codegen.v1.Codegen/Compile";

int64_t WithMargin(int64_t bytes) { return bytes + bytes / 4; }
int64_t Predicted(const MemoryBook& book, int64_t input_bytes) {
  return book.Predict(kStep, input_bytes).resident_bytes;
}

TEST(MemoryBookTest, AssumesMuchBeforeItHasLearnt) {
  const MemoryBook book;
  EXPECT_EQ(Predicted(book, 0), WithMargin(256 * kMib));
  EXPECT_EQ(Predicted(book, kGib), WithMargin(256 * kMib + 4 * kGib));
  EXPECT_EQ(book.Predict(kStep, kGib).too_small_limit, 0);
  EXPECT_GT(Predicted(book, INT64_MAX), Predicted(book, kGib)) << "no overflow";
  EXPECT_EQ(Predicted(book, -1), Predicted(book, 0));
}

TEST(MemoryBookTest, TakesWhatSuchInputsTook) {
  MemoryBook book;
  book.Learn(kStep, 128 * kMib, 300 * kMib);
  EXPECT_EQ(Predicted(book, 128 * kMib), WithMargin(300 * kMib));
  EXPECT_GT(Predicted(book, 140 * kMib), WithMargin(300 * kMib)) << "larger, in the same class";
  EXPECT_EQ(book.Predict("another", 128 * kMib).resident_bytes,
            WithMargin(AssumedMemory(128 * kMib)));
}

TEST(MemoryBookTest, RisesAtOnceAndSinksSlowly) {
  MemoryBook book;
  for (int i = 0; i < 5; ++i) book.Learn(kStep, kMib, 200 * kMib);
  book.Learn(kStep, kMib, 2000 * kMib);
  EXPECT_EQ(Predicted(book, kMib), WithMargin(2000 * kMib));
  book.Learn(kStep, kMib, 200 * kMib);
  EXPECT_GT(Predicted(book, kMib), WithMargin(1700 * kMib));
  for (int i = 0; i < 30; ++i) book.Learn(kStep, kMib, 200 * kMib);
  EXPECT_LT(Predicted(book, kMib), WithMargin(240 * kMib)) << "one odd model is forgotten";
  EXPECT_GE(Predicted(book, kMib), WithMargin(200 * kMib) - 1);
}

TEST(MemoryBookTest, WhatIsLargerThanAllBeforeIsScaled) {
  MemoryBook book;
  const int64_t known = 8 * kMib, larger = 3 * kGib;
  book.Learn(kStep, known, 3 * AssumedMemory(known));
  EXPECT_NEAR(static_cast<double>(Predicted(book, larger)),
              static_cast<double>(WithMargin(3 * AssumedMemory(larger))), kMib);
  MemoryBook modest;
  modest.Learn(kStep, known, AssumedMemory(known) / 3);
  EXPECT_EQ(Predicted(modest, larger), WithMargin(AssumedMemory(larger)))
      << "small models do not say that large ones take less";
}

TEST(MemoryBookTest, WhatIsSmallerTakesNoMoreThanWhatIsLarger) {
  MemoryBook book;
  book.Learn(kStep, kGib, 500 * kMib);
  EXPECT_EQ(Predicted(book, 100 * kMib), WithMargin(500 * kMib));
  EXPECT_EQ(Predicted(book, 0), WithMargin(256 * kMib));
}

TEST(MemoryBookTest, KnownSizesSpeakForThemselves) {
  MemoryBook book;
  book.Learn(kStep, 4 * kMib, 10 * kGib);  // an odd model
  book.Learn(kStep, kGib, 500 * kMib);
  EXPECT_EQ(Predicted(book, 4 * kMib), WithMargin(10 * kGib));
  EXPECT_EQ(Predicted(book, kGib), WithMargin(500 * kMib));
  EXPECT_EQ(Predicted(book, 100 * kMib), WithMargin(500 * kMib));
}

// If larger inputs never took less, the estimate is never below what an input took that is not larger, and hardly sinks.
TEST(MemoryBookTest, FollowsWhatGrowsWithTheInputs) {
  for (unsigned round = 0; round < 50; ++round) {
    std::mt19937 random(round);
    const auto below = [&](double most) {
      return std::uniform_real_distribution<double>(0, most)(random);
    };
    const double base = below(2e9), slope = below(16), exponent = 0.5 + below(0.7);
    const auto peak = [&](double input) { return base + slope * std::pow(input, exponent); };
    MemoryBook book;
    std::map<double, int64_t> seen;
    for (unsigned i = 0; i < round; ++i) {
      const double input = std::exp2(std::floor(below(36)));
      if (!seen.emplace(input, peak(input)).second) continue;
      book.Learn(kStep, static_cast<int64_t>(input), static_cast<int64_t>(peak(input)));
    }
    MemoryNeed last;
    for (int eighths = 0; eighths < 8 * 40; ++eighths) {
      const double input = std::exp2(eighths / 8.0);
      const MemoryNeed need = book.Predict(kStep, static_cast<int64_t>(input));
      ASSERT_GE(1.2 * static_cast<double>(need.resident_bytes),
                static_cast<double>(last.resident_bytes))
          << round << " " << input;
      const auto larger = seen.upper_bound(input);
      if (larger != seen.begin()) {
        ASSERT_GE(need.resident_bytes, std::prev(larger)->second) << round << " " << input;
      }
      last = need;
    }
  }
}

TEST(MemoryBookTest, WhatWasEndedNeedsMoreThanItHad) {
  MemoryBook book;
  book.Learn(kStep, kMib, 900 * kMib);
  book.LearnTooSmall(kStep, kMib, 100 * kMib, 4 * kGib);
  EXPECT_EQ(Predicted(book, kMib), WithMargin(900 * kMib)) << "it says nothing of less";
  EXPECT_EQ(book.Predict(kStep, kMib).too_small_limit, 4 * kGib);
  EXPECT_EQ(book.Predict(kStep, 64 * kMib).too_small_limit, 4 * kGib) << "larger ones too";
  EXPECT_EQ(book.Predict(kStep, kMib - 1).too_small_limit, 0);
  book.LearnTooSmall(kStep, kMib, 3 * kGib, 0);
  EXPECT_EQ(Predicted(book, kMib), WithMargin(3 * kGib));
  EXPECT_EQ(book.Predict(kStep, kMib).too_small_limit, 4 * kGib);
}

class MemoryFileTest : public ::testing::Test {
 protected:
  MemoryFileTest() {
    MemoryBook book(file_);
    book.Learn(kStep, 4 * kMib, 700 * kMib);
    book.LearnTooSmall(kStep, kGib, 9 * kGib, 4 * kGib);
  }
  TempDir folder_ = *TempDir::Create();
  const std::filesystem::path file_ = folder_.path() / "memory";
};

TEST_F(MemoryFileTest, OutlivesTheServer) {
  CapturedLog log;
  const MemoryBook book(file_);
  EXPECT_NEAR(static_cast<double>(Predicted(book, 4 * kMib)),
              static_cast<double>(WithMargin(700 * kMib)), kMib);
  EXPECT_EQ(book.Predict(kStep, kGib).too_small_limit, 4 * kGib);
  EXPECT_EQ(log.Take(), "");
}

TEST_F(MemoryFileTest, IsWrittenWhenThereIsNews) {
  MemoryBook book(file_);
  std::filesystem::remove(file_);
  book.Learn(kStep, 4 * kMib, 690 * kMib);
  EXPECT_FALSE(std::filesystem::exists(file_)) << "almost what it says already";
  book.Learn(kStep, 4 * kMib, 7000 * kMib);
  EXPECT_GT(Predicted(MemoryBook(file_), 4 * kMib), 7000 * kMib);
}

TEST_F(MemoryFileTest, ADamagedOneIsLearntAnew) {
  const std::string good = *ReadFile(file_);
  const std::string first = "quench memory book 1\n";
  for (const std::string& bad :
       {std::string(), std::string("?"), good.substr(0, good.size() / 2),
        good.substr(0, good.size() - 4), first + "a 3 -1 0\nend\n", first + "a 3 1\nend\n",
        first + "a 3 1 0 0\nend\n", first + "a 122 1 0\nend\n", first + "a 3 nan 0\nend\n",
        first + "a 3 1 -5\nend\n", std::string(size_t{2} << 20, 'x')}) {
    ASSERT_TRUE(WriteFileAtomically(file_, bad).ok());
    CapturedLog log;
    MemoryBook book(file_);
    EXPECT_THAT(log.Take(), HasSubstr("is learnt anew")) << bad.substr(0, 100);
    EXPECT_EQ(Predicted(book, 4 * kMib), WithMargin(AssumedMemory(4 * kMib)));
    book.Learn(kStep, 4 * kMib, 80 * kMib);
    EXPECT_LT(Predicted(MemoryBook(file_), 4 * kMib), 110 * kMib);
  }
}

TEST_F(MemoryFileTest, IsBounded) {
  MemoryBook book(file_);
  for (int step = 0; step < 200; ++step) {
    for (int bits = 0; bits < 60; bits += 20) {
      book.Learn(fmt::format("step{}", step), int64_t{1} << bits, kGib);
    }
  }
  EXPECT_LT(std::filesystem::file_size(file_), 64u << 10);
  CapturedLog log;
  EXPECT_GT(Predicted(MemoryBook(file_), 4 * kMib), 700 * kMib) << "the first are kept";
  EXPECT_EQ(log.Take(), "");
}

TEST_F(MemoryFileTest, OneThatCannotBeWrittenIsSaidOnce) {
  CapturedLog log;
  MemoryBook book(folder_.path() / "nowhere" / "memory");
  book.Learn(kStep, kMib, 100 * kMib);
  book.Learn(kStep, kMib, 1000 * kMib);
  const std::string said = log.Take();
  EXPECT_THAT(said, HasSubstr("is not kept"));
  EXPECT_EQ(said.find("is not kept"), said.rfind("is not kept"));
  EXPECT_EQ(Predicted(book, kMib), WithMargin(1000 * kMib));
}

}  // namespace
}  // namespace quench::steps::memory_book_test
