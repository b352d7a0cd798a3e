#include "services/gateway/event_poster.h"

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <functional>
#include <set>
#include <sstream>

#include "common/base/files.h"
#include "common/base/status.h"
#include "quench/config/v1/config.pb.h"
#include "services/gateway/webhooks.h"
#include "tests/support/captured_log.h"
#include "tests/support/http_server.h"
#include "tests/support/matchers.h"
#include "tests/support/wait.h"

namespace quench::gateway::event_poster_test {
namespace {

using metrics::WebhookResult;
using quench::testing::CapturedLog;
using quench::testing::HasSubstr;
using quench::testing::HttpReply;
using quench::testing::HttpRequest;
using quench::testing::HttpServer;
using quench::testing::WaitFor;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr char kSecret[] = "0123456789abcdefghijklmn";

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

class MemoryQueue final : public EventQueue {
  struct Entry {
    QueuedEvent event;
    int64_t due_us = 0;
  };
  template <typename Reading>
  auto Read(Reading reading) const {
    const std::lock_guard lock(mutex_);
    return reading();
  }

 public:
  void Add(const std::string& id, const std::string& url, int64_t first_us = Now()) {
    const std::lock_guard lock(mutex_);
    events_[id] = {{id, url, R"({"id":")" + id + R"("})", first_us, 0}, first_us};
  }
  absl::StatusOr<std::vector<QueuedEvent>> DueEvents(int64_t now_us, int most) override {
    const std::lock_guard lock(mutex_);
    ++looks_;
    std::multimap<int64_t, QueuedEvent> due;
    for (const auto& [id, entry] : events_) {
      if (entry.due_us <= now_us) due.emplace(entry.event.first_us, entry.event);
    }
    std::vector<QueuedEvent> oldest;
    for (auto& [time, event] : due) {
      if (static_cast<int>(oldest.size()) < most) oldest.push_back(event);
    }
    return oldest;
  }
  void Delivered(const std::string& id) override { Remove(id, &delivered_); }
  void Dropped(const std::string& id) override { Remove(id, &dropped_); }
  void PostLater(const std::string& id, int attempts, int64_t next_us) override {
    const std::lock_guard lock(mutex_);
    ++puts_off_;
    if (!events_.contains(id)) return;
    events_[id].event.attempts = attempts;
    events_[id].due_us = next_us;
  }

  bool has_delivered(const std::string& id) const {
    return Read([&] { return delivered_.contains(id); });
  }
  bool has_dropped(const std::string& id) const {
    return Read([&] { return dropped_.contains(id); });
  }
  size_t delivered() const {
    return Read([&] { return delivered_.size(); });
  }
  size_t dropped() const {
    return Read([&] { return dropped_.size(); });
  }
  size_t left() const {
    return Read([&] { return events_.size(); });
  }
  int attempts(const std::string& id) const {
    return Read([&] { return events_.at(id).event.attempts; });
  }
  int64_t due_us(const std::string& id) const {
    return Read([&] { return events_.at(id).due_us; });
  }
  int looks() const {
    return Read([&] { return looks_; });
  }
  int puts_off() const {
    return Read([&] { return puts_off_; });
  }
  bool refuses = false;  // as a store that cannot write

 private:
  void Remove(const std::string& id, std::set<std::string>* to) {
    const std::lock_guard lock(mutex_);
    if (refuses) return;
    events_.erase(id);
    to->insert(id);
  }

  mutable std::mutex mutex_;
  std::map<std::string, Entry> events_;
  std::set<std::string> delivered_, dropped_;
  int looks_ = 0, puts_off_ = 0;
};

class EventPosterTest : public ::testing::Test {
 protected:
  EventPosterTest() {
    options_.first_delay = milliseconds(5);
    options_.longest_delay = milliseconds(50);
    options_.longest_rest = milliseconds(50);
    options_.registry = &registry_;
    spdlog::set_level(spdlog::level::off);
  }
  ~EventPosterTest() override { spdlog::set_level(spdlog::level::info); }
  void Start() {
    absl::StatusOr<std::unique_ptr<EventPoster>> poster = EventPoster::Start(&queue_, options_);
    ASSERT_TRUE(poster.ok()) << poster.status();
    poster_ = *std::move(poster);
  }
  void Add(const std::string& id, const std::string& url) {
    queue_.Add(id, url);
    poster_->Wake();
  }
  double Count(WebhookResult result) { return registry_.Get(metrics::kWebhooks, result).Value(); }

  metrics::Registry registry_;
  MemoryQueue queue_;
  PosterOptions options_;
  std::unique_ptr<EventPoster> poster_;
};

HttpReply Ok(const HttpRequest&) { return {.status = 204, .body = "", .headers = {}}; }

// That nobody listens on.
std::string UrlOfNobody() {
  const HttpServer gone(Ok);
  return "http://127.0.0.1:" + std::to_string(gone.port()) + "/";
}

// Holds its answers back until it is opened.
class Gate {
 public:
  void Open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }
  HttpReply operator()(const HttpRequest&) {
    std::unique_lock lock(mutex_);
    ++inside_;
    most_ = std::max(most_, inside_);
    opened_.wait(lock, [this] { return open_; });
    --inside_;
    return {};
  }
  int most() {
    const std::lock_guard lock(mutex_);
    return most_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
  int inside_ = 0, most_ = 0;
};

// Behind the servers that wait for it, for tests that fail.
struct Opener {
  Gate& gate;
  ~Opener() { gate.Open(); }
};

TEST_F(EventPosterTest, PostsASignedEvent) {
  const TempDir folder = *TempDir::Create();
  options_.secret_file = folder.path() / "secret";
  ASSERT_TRUE(WriteFileAtomically(options_.secret_file, kSecret).ok());
  HttpServer server(Ok);
  Start();
  Add("a", server.Url("/hook?x=1"));
  ASSERT_TRUE(WaitFor([&] { return queue_.has_delivered("a"); }));
  ASSERT_EQ(server.received().size(), 1U);
  const HttpRequest request = server.received()[0];
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.target, "/hook?x=1");
  EXPECT_EQ(request.body, R"({"id":"a"})");
  EXPECT_EQ(request.headers.at("content-type"), "application/cloudevents+json");
  EXPECT_EQ(request.headers.at("webhook-id"), "a");
  const std::string time = request.headers.at("webhook-timestamp");
  EXPECT_NEAR(std::stod(time), static_cast<double>(Now()) / 1e6, 60);
  EXPECT_EQ(request.headers.at("webhook-signature"), Signature(kSecret, "a", time, request.body));
  EXPECT_EQ(Count(WebhookResult::kDelivered), 1);
  EXPECT_TRUE(WaitFor([&] { return registry_.Get(metrics::kWebhooksWaiting).Value() == 0; }));
}

TEST_F(EventPosterTest, ASecretThatChangesSignsWhatFollows) {
  const TempDir folder = *TempDir::Create();
  options_.secret_file = folder.path() / "secret";
  ASSERT_TRUE(WriteFileAtomically(options_.secret_file, kSecret).ok());
  HttpServer server(Ok);
  Start();
  const auto secret_of = [&](const std::string& id) -> std::string {
    Add(id, server.Url("/"));
    EXPECT_TRUE(WaitFor([&] { return queue_.has_delivered(id); }));
    const HttpRequest request = server.received().back();
    for (const char* secret : {kSecret, "another secret of 24 bytes"}) {
      if (request.headers.at("webhook-signature") ==
          Signature(secret, id, request.headers.at("webhook-timestamp"), request.body)) {
        return secret;
      }
    }
    return "";
  };
  EXPECT_EQ(secret_of("a"), kSecret);
  ASSERT_TRUE(WriteFileAtomically(options_.secret_file, "another secret of 24 bytes").ok());
  EXPECT_EQ(secret_of("b"), "another secret of 24 bytes");
  ASSERT_TRUE(WriteFileAtomically(options_.secret_file, "short").ok());  // the last good one stays
  EXPECT_EQ(secret_of("c"), "another secret of 24 bytes");
}

TEST_F(EventPosterTest, WantsItsSecretAtTheStart) {
  options_.secret_file = "/nowhere/secret";
  const absl::Status status = EventPoster::Start(&queue_, options_).status();
  EXPECT_THAT(MessageOf(status), HasSubstr("webhooks.secret_file"));
}

TEST_F(EventPosterTest, WithoutASecretEventsAreNotSigned) {
  HttpServer server(Ok);
  Start();
  Add("a", server.Url("/"));
  ASSERT_TRUE(WaitFor([&] { return queue_.has_delivered("a"); }));
  EXPECT_FALSE(server.received()[0].headers.contains("webhook-signature"));
}

TEST_F(EventPosterTest, AsksAgainWithTheSameIdUntilItIsTaken) {
  std::atomic<int> calls = 0;
  HttpServer server([&](const HttpRequest&) {
    return HttpReply{.status = ++calls < 4 ? 500 : 200, .body = "", .headers = {}};
  });
  Start();
  Add("a", server.Url("/"));
  ASSERT_TRUE(WaitFor([&] { return queue_.has_delivered("a"); }));
  ASSERT_EQ(server.received().size(), 4U);
  for (const HttpRequest& request : server.received()) {
    EXPECT_EQ(request.headers.at("webhook-id"), "a");
  }
  EXPECT_EQ(Count(WebhookResult::kFailed), 3);
  EXPECT_EQ(Count(WebhookResult::kDelivered), 1);
}

TEST_F(EventPosterTest, DelaysDoubleUpToTheLongest) {
  options_.first_delay = milliseconds(1000);
  options_.longest_delay = milliseconds(8000);
  HttpServer server([](const HttpRequest&) { return HttpReply{500, "", {}}; });
  queue_.Add("a", server.Url("/"));
  for (const auto& [before, seconds] :
       std::vector<std::pair<int, double>>{{0, 1}, {1, 2}, {2, 4}, {9, 8}}) {
    queue_.PostLater("a", before, 0);
    Start();
    ASSERT_TRUE(WaitFor([&] { return queue_.attempts("a") == before + 1; }));
    const double delay = static_cast<double>(queue_.due_us("a") - Now()) / 1e6;
    EXPECT_LE(delay, seconds);
    EXPECT_GE(delay, seconds * 0.75 - 0.5);
    poster_.reset();
  }
}

TEST_F(EventPosterTest, RespectsRetryAfterForAllOfTheReceiver) {
  HttpServer server([](const HttpRequest&) { return HttpReply{429, "", {{"Retry-After", "30"}}}; });
  Start();
  Add("a", server.Url("/"));
  ASSERT_TRUE(WaitFor([&] { return queue_.attempts("a") == 1; }));
  EXPECT_NEAR(static_cast<double>(queue_.due_us("a") - Now()) / 1e6, 30, 2);
  Add("b", server.Url("/other"));
  ASSERT_TRUE(WaitFor([&] { return queue_.due_us("b") > Now() + 20'000'000; }));
  EXPECT_EQ(queue_.attempts("b"), 0);
  EXPECT_EQ(server.received().size(), 1U);
}

TEST_F(EventPosterTest, RetryAfterMayBeADate) {
  const std::time_t later = std::time(nullptr) + 100;
  char date[64];
  ASSERT_GT(std::strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT", std::gmtime(&later)),
            0U);
  HttpServer server(
      [&](const HttpRequest&) { return HttpReply{503, "", {{"Retry-After", date}}}; });
  Start();
  Add("a", server.Url("/"));
  ASSERT_TRUE(WaitFor([&] { return queue_.attempts("a") == 1; }));
  EXPECT_NEAR(static_cast<double>(queue_.due_us("a") - Now()) / 1e6, 100, 3);
}

TEST_F(EventPosterTest, GivesUpInTheEnd) {
  options_.retry_for = milliseconds(200);
  HttpServer server([](const HttpRequest&) { return HttpReply{500, "", {}}; });
  Start();
  const int64_t begin = Now();
  Add("a", server.Url("/"));
  ASSERT_TRUE(WaitFor([&] { return queue_.has_dropped("a"); }));
  EXPECT_GE(Now() - begin, 200'000);
  EXPECT_GT(server.received().size(), 3U);
  EXPECT_EQ(Count(WebhookResult::kDropped), 1);
  EXPECT_EQ(Count(WebhookResult::kDelivered), 0);
}

TEST_F(EventPosterTest, GoneIsDroppedAtOnce) {
  HttpServer server([](const HttpRequest&) { return HttpReply{410, "", {}}; });
  Start();
  Add("a", server.Url("/"));
  ASSERT_TRUE(WaitFor([&] { return queue_.has_dropped("a"); }));
  EXPECT_EQ(server.received().size(), 1U);
  EXPECT_EQ(Count(WebhookResult::kDropped), 1);
}

TEST_F(EventPosterTest, RedirectsAreNotFollowed) {
  HttpServer other(Ok);
  HttpServer server(
      [&](const HttpRequest&) { return HttpReply{308, "", {{"Location", other.Url("/")}}}; });
  Start();
  Add("a", server.Url("/"));
  ASSERT_TRUE(WaitFor([&] { return queue_.attempts("a") >= 1; }));
  EXPECT_TRUE(other.received().empty());
}

TEST_F(EventPosterTest, ARefusedConnectionIsTriedAgain) {
  int port = 0;
  {
    const HttpServer gone(Ok);
    port = gone.port();
  }
  Start();
  Add("a", "http://127.0.0.1:" + std::to_string(port) + "/");
  ASSERT_TRUE(WaitFor([&] { return queue_.attempts("a") >= 3; }));
  EXPECT_FALSE(queue_.has_dropped("a"));
}

TEST_F(EventPosterTest, AReceiverThatDoesNotAnswerRestsWithAllThatWaits) {
  options_.first_delay = options_.longest_rest = milliseconds(10'000);
  int port = 0;
  {
    const HttpServer gone(Ok);
    port = gone.port();
  }
  for (int i = 0; i < 20; ++i)
    queue_.Add(std::to_string(i), "http://127.0.0.1:" + std::to_string(port) + "/");
  Start();
  ASSERT_TRUE(WaitFor([&] {
    for (int i = 0; i < 20; ++i) {
      if (queue_.due_us(std::to_string(i)) < Now() + 5'000'000) return false;
    }
    return true;
  }));
  EXPECT_EQ(Count(WebhookResult::kFailed), 1);
}

TEST_F(EventPosterTest, AReceiverThatIsGoneLosesWhatIsTooOldAfterOnePost) {
  options_.first_delay = options_.longest_rest = milliseconds(100'000);
  options_.retry_for = milliseconds(3'600'000);
  const std::string url = UrlOfNobody();
  const int64_t old_us = Now() - 3'600'000'000;
  // More than one look sees: some wait for the first post, some come while the receiver rests.
  for (int i = 0; i < 100; ++i) queue_.Add(std::to_string(i), url, old_us);
  CapturedLog log;
  Start();
  ASSERT_TRUE(WaitFor([&] { return queue_.dropped() == 100; }));
  queue_.Add("old", url, old_us);
  Add("young", url);
  ASSERT_TRUE(WaitFor([&] { return queue_.has_dropped("old"); }));
  ASSERT_TRUE(WaitFor([&] { return queue_.due_us("young") > Now() + 50'000'000; }));
  EXPECT_EQ(queue_.attempts("young"), 0);
  EXPECT_EQ(Count(WebhookResult::kFailed), 1);
  EXPECT_EQ(Count(WebhookResult::kDropped), 101);
  EXPECT_TRUE(WaitFor([&] { return registry_.Get(metrics::kWebhooksWaiting).Value() == 1; }));
  poster_.reset();
  // One line at once, and one at the end with the others.
  std::istringstream lines(log.Take());
  int told = 0, events = 0;
  for (std::string line; std::getline(lines, line);) {
    const size_t words = line.find(" events are dropped");
    if (words == std::string::npos) continue;
    ++told;
    events += std::stoi(line.substr(line.rfind(' ', words - 1) + 1));
  }
  EXPECT_LE(told, 2);
  EXPECT_EQ(events, 101);
}

TEST_F(EventPosterTest, AReceiverThatStaysAwayLosesAllInTheEnd) {
  options_.retry_for = milliseconds(300);
  const std::string url = UrlOfNobody();
  for (int i = 0; i < 300; ++i) queue_.Add(std::to_string(i), url);
  Start();
  ASSERT_TRUE(WaitFor([&] { return queue_.left() == 0; }));
  EXPECT_EQ(queue_.dropped(), 300U);
  EXPECT_EQ(Count(WebhookResult::kDropped), 300);
  EXPECT_LT(Count(WebhookResult::kFailed), 300);  // most were never posted
  EXPECT_TRUE(WaitFor([&] { return registry_.Get(metrics::kWebhooksWaiting).Value() == 0; }));
}

// As after a long stop of the gateway.
TEST_F(EventPosterTest, WhatWasNeverPostedIsNotTooOldForAReceiverThatTakesIt) {
  options_.retry_for = milliseconds(0);
  HttpServer server(Ok);
  for (int i = 0; i < 300; ++i) queue_.Add(std::to_string(i), server.Url("/"), i);
  Start();
  EXPECT_TRUE(WaitFor([&] { return queue_.delivered() == 300; }));
  EXPECT_EQ(queue_.dropped(), 0U);
}

TEST_F(EventPosterTest, ASlowReceiverHoldsUpNobodyElse) {
  Gate gate;
  HttpServer slow(std::ref(gate)), quick(Ok);
  const Opener opener{gate};
  for (int i = 0; i < 500; ++i) queue_.Add(fmt::format("slow{}", i), slow.Url("/"), i);
  Start();
  ASSERT_TRUE(WaitFor([&] { return gate.most() == 1; }));
  const auto begin = steady_clock::now();
  for (int i = 0; i < 50; ++i) Add(fmt::format("quick{}", i), quick.Url("/"));
  ASSERT_TRUE(WaitFor([&] { return queue_.delivered() == 50; }));
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_EQ(gate.most(), 1);  // its posts wait for each other
  gate.Open();
  ASSERT_TRUE(WaitFor([&] { return queue_.delivered() == 550; }));
  EXPECT_EQ(Count(WebhookResult::kDelivered), 550);
  EXPECT_EQ(slow.received().size(), 500U);  // each once
}

TEST_F(EventPosterTest, AQuickReceiverGetsSeveralAtATime) {
  Gate gate;
  std::atomic<bool> first = true;
  HttpServer server([&](const HttpRequest& request) {
    return first.exchange(false) ? HttpReply{} : gate(request);
  });
  const Opener opener{gate};
  for (int i = 0; i < 20; ++i) queue_.Add(std::to_string(i), server.Url("/"));
  Start();
  EXPECT_TRUE(WaitFor([&] { return gate.most() == 4; }));
  gate.Open();
  EXPECT_TRUE(WaitFor([&] { return queue_.delivered() == 20; }));
}

TEST_F(EventPosterTest, APostThatTakesTooLongIsAFailure) {
  options_.timeout = milliseconds(50);
  Gate gate;
  HttpServer server(std::ref(gate));
  const Opener opener{gate};
  Start();
  Add("a", server.Url("/"));
  EXPECT_TRUE(WaitFor([&] { return queue_.attempts("a") >= 1; }));
  gate.Open();
}

TEST_F(EventPosterTest, TheNextOnePostsWhatWasQueued) {
  Gate gate;
  HttpServer server(std::ref(gate));
  const Opener opener{gate};
  for (int i = 0; i < 3; ++i) queue_.Add(std::to_string(i), server.Url("/"));
  Start();
  ASSERT_TRUE(WaitFor([&] { return gate.most() == 1; }));
  const auto begin = steady_clock::now();
  poster_.reset();  // does not wait for the answer
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_EQ(queue_.left(), 3U);
  gate.Open();
  Start();
  EXPECT_TRUE(WaitFor([&] { return queue_.delivered() == 3; }));
}

// Without Wake: what an earlier process put off is seen.
TEST_F(EventPosterTest, LooksByItselfNowAndThen) {
  options_.look_every = milliseconds(20);
  HttpServer server(Ok);
  Start();
  queue_.Add("a", server.Url("/"));
  EXPECT_TRUE(WaitFor([&] { return queue_.has_delivered("a"); }));
}

TEST_F(EventPosterTest, AStoreThatCannotWriteMakesNoStormOfPosts) {
  options_.look_every = milliseconds(20);
  queue_.refuses = true;
  HttpServer server(Ok);
  for (int i = 0; i < 100; ++i) queue_.Add(std::to_string(i), server.Url("/"));
  Start();
  ASSERT_TRUE(WaitFor([&] { return server.received().size() == 100; }));
  const int looks = queue_.looks();
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_EQ(server.received().size(), 100U);
  EXPECT_LT(queue_.looks() - looks, 40);
}

TEST_F(EventPosterTest, AnIdlePosterLooksSeldom) {
  HttpServer server(Ok);
  Start();
  Add("a", server.Url("/"));
  ASSERT_TRUE(WaitFor([&] { return queue_.has_delivered("a"); }));
  const int looks = queue_.looks();
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_LE(queue_.looks() - looks, 1);
}

// A long queue for one receiver is put off in slots, not all of it again and again.
TEST_F(EventPosterTest, ALongQueueIsPutOffOnce) {
  options_.first_delay = milliseconds(1000);
  Gate gate;
  HttpServer server(std::ref(gate));
  const Opener opener{gate};
  for (int i = 0; i < 750; ++i) queue_.Add(std::to_string(i), server.Url("/"));
  Start();
  ASSERT_TRUE(WaitFor([&] { return queue_.puts_off() >= 750 - 257; }));
  std::this_thread::sleep_for(milliseconds(500));
  EXPECT_LT(queue_.puts_off(), 1000);
  gate.Open();
  EXPECT_TRUE(WaitFor([&] { return queue_.delivered() == 750; }));
  EXPECT_EQ(server.received().size(), 750U);
}

TEST(PosterOptionsTest, ComeFromTheConfiguration) {
  config::v1::Webhooks config;
  config.set_secret_file("s");
  EXPECT_EQ(PosterOptionsOf(config)->retry_for, std::chrono::hours(24));
  config.mutable_retry_for()->set_seconds(60);
  EXPECT_EQ(PosterOptionsOf(config)->retry_for, milliseconds(60'000));
  EXPECT_EQ(PosterOptionsOf(config)->secret_file, "s");
  config.mutable_retry_for()->set_seconds(-1);
  EXPECT_THAT(MessageOf(PosterOptionsOf(config).status()), HasSubstr("retry_for"));
}

TEST_F(EventPosterTest, UrlsThatAreNotAllowedAnyMoreGetNothing) {
  std::atomic<int> posts = 0;
  HttpServer server([&posts](const HttpRequest&) {
    ++posts;
    return HttpReply{.status = 204, .body = "", .headers = {}};
  });
  options_.allowed = {*http::ParseUrl(server.Url("/new"))};
  Start();
  Add("before", server.Url("/old"));
  Add("now", server.Url("/new/a"));
  EXPECT_TRUE(WaitFor([&] { return queue_.has_delivered("now"); }));
  EXPECT_TRUE(WaitFor([&] { return queue_.has_dropped("before"); }));
  EXPECT_EQ(posts, 1);
  EXPECT_EQ(Count(WebhookResult::kDropped), 1);
}

}  // namespace
}  // namespace quench::gateway::event_poster_test
