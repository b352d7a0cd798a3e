#include "common/steps/pipes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <thread>

#include "quench/child/v1/child.pb.h"

namespace quench::steps::pipes_test {
namespace {

class PipesTest : public ::testing::Test {
 protected:
  PipesTest() { EXPECT_EQ(::pipe2(ends_.data(), O_CLOEXEC), 0); }
  ~PipesTest() override {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  void Write(const std::string& bytes) {
    ASSERT_EQ(::write(ends_[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }

  std::array<int, 2> ends_{};
  FrameBuffer buffer_;
};

TEST_F(PipesTest, MessagesComeWholeAndInOrder) {
  child::v1::News news;
  news.set_result(std::string(200'000, 'x'));  // more than a pipe holds
  std::thread writer([&] {
    EXPECT_TRUE(WriteFrame(ends_[1], news).ok());
    EXPECT_TRUE(WriteFrame(ends_[1], child::v1::News()).ok());
  });
  std::vector<std::string> messages;
  while (messages.size() < 2) {
    const auto next = buffer_.Next();
    ASSERT_TRUE(next.ok());
    if (next->has_value()) {
      messages.push_back(**next);
    } else {
      ASSERT_TRUE(buffer_.Fill(ends_[0]));
    }
  }
  writer.join();
  EXPECT_EQ(messages[0], news.SerializeAsString());
  EXPECT_EQ(messages[1], "");
}

TEST_F(PipesTest, ALengthThatCannotBeIsAnError) {
  Write("\xff\xff\xff\xff");
  ASSERT_TRUE(buffer_.Fill(ends_[0]));
  EXPECT_EQ(buffer_.Next().status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(PipesTest, HalfAMessageIsNone) {
  Write(
      std::string("\x05\x00\x00\x00"
                  "xy",
                  6));
  ASSERT_TRUE(buffer_.Fill(ends_[0]));
  EXPECT_FALSE(buffer_.Next()->has_value());
}

TEST_F(PipesTest, AReaderWhoHasGoneIsAnError) {
  (void)std::signal(SIGPIPE, SIG_IGN);
  ::close(ends_[0]);
  EXPECT_EQ(WriteFrame(ends_[1], child::v1::News()).code(), absl::StatusCode::kUnavailable);
  ends_[0] = ::dup(ends_[1]);
}

}  // namespace
}  // namespace quench::steps::pipes_test
