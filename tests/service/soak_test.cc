// Mixed work for a long time, while servers die, drain and stop: the answers fit together, and nothing is left.
//
// QUENCH_SOAK_SECONDS (1800): length of the part with faults; a third as long follows without, in
// which nothing may grow. A value that is not such a number is refused.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "build/bazel/remote/execution/v2/remote_execution.pb.h"
#include "common/base/status.h"
#include "tests/service/history.h"
#include "tests/service/user.h"
#include "tests/support/wait.h"

namespace quench::testing::soak_test {
namespace {

namespace fs = std::filesystem;
namespace pb = ::quench::gateway::v1;
using Clock = std::chrono::steady_clock;
using Kind = Event::Kind;
using std::chrono::seconds;

// The value of QUENCH_SOAK_SECONDS. A soak of no time at all would pass, and say nothing.
absl::StatusOr<seconds> DurationIn(const char* text) {
  if (text == nullptr) return seconds(1800);
  const char* const end = text + std::strlen(text);
  int value = 0;
  const auto [after, error] = std::from_chars(text, end, value);
  if (error != std::errc() || after != end || value <= 0) {
    return InvalidArgument("QUENCH_SOAK_SECONDS: `{}`, must be a whole number of seconds above 0",
                           text);
  }
  return seconds(value);
}

// Resources of a process that it could lose count of.
struct Holdings {
  int64_t anonymous_kib = 0;
  int threads = 0, descriptors = 0, children = 0;
};

int64_t FieldOf(const std::string& status, const std::string& name) {
  const size_t at = status.find("\n" + name + ":");
  return at == std::string::npos ? 0 : std::atoll(status.c_str() + at + name.size() + 2);
}

std::string StatusOf(const fs::path& process) {
  std::ifstream file(process / "status");
  return {std::istreambuf_iterator<char>(file), {}};
}

Holdings HoldingsOf(pid_t pid) {
  const fs::path process = fmt::format("/proc/{}", pid);
  const std::string status = StatusOf(process);
  Holdings holdings;
  holdings.anonymous_kib = FieldOf(status, "RssAnon");
  holdings.threads = static_cast<int>(FieldOf(status, "Threads"));
  std::error_code error;
  for (fs::directory_iterator each(process / "fd", error), end; !error && each != end;
       each.increment(error)) {
    ++holdings.descriptors;
  }
  for (fs::directory_iterator each("/proc", error), end; !error && each != end;
       each.increment(error)) {
    if (FieldOf(StatusOf(each->path()), "PPid") == pid) ++holdings.children;
  }
  return holdings;
}

// Files that steps and uploads have left in the cluster's folder.
std::vector<std::string> Leftovers(const Cluster& cluster) {
  std::vector<fs::path> places = {cluster.folder() / "state/store/drafts",
                                  cluster.folder() / "state/store/tmp",
                                  cluster.folder() / "state/store/uploads"};
  for (const std::string& name : Cluster::Services()) {
    places.push_back(cluster.folder() / ("scratch-" + name));
  }
  std::vector<std::string> found;
  std::error_code error;
  for (const fs::path& place : places) {
    for (fs::recursive_directory_iterator each(place, error), end; !error && each != end;
         each.increment(error)) {
      if (each->is_regular_file(error) && each->path().filename() != "lock") {
        found.push_back(fs::relative(each->path(), cluster.folder()).string());
      }
    }
  }
  return found;
}

class SoakTest : public ::testing::Test {
 protected:
  static constexpr int kWorkers = 3;

  SoakTest() {
    User user(cluster_);
    const auto reference = user.client().Run(user.Spec("reference"), {});
    EXPECT_TRUE(reference.ok()) << reference.status();
    if (reference.ok()) library_ = LibraryOf(*reference);
  }

  // Each of the workers, until `end`.
  void Work(Clock::time_point end) {
    std::vector<std::thread> workers;
    for (int worker = 0; worker < kWorkers; ++worker) {
      workers.emplace_back([this, worker, end] {
        User user(cluster_, fmt::format("user-{}", worker));
        std::mt19937 random(static_cast<uint32_t>(1000 * phase_ + worker));
        for (int i = 0; Clock::now() < end && !HasFailure(); ++i) {
          Turn(user, fmt::format("{}-{}-{}", phase_, worker, i), random);
        }
      });
    }
    for (std::thread& worker : workers) worker.join();
    ++phase_;
  }
  void BreakThings(Clock::time_point end);
  void Turn(User& user, const std::string& id, std::mt19937& random);
  void Read(User& user, const std::string& workflow, bool to_the_end);
  void ReadSomebodys(User& user, std::mt19937& random);
  // Resources of all processes, once they are at rest.
  std::map<std::string, Holdings> AtRest();

  // Before the processes start: AddressSanitizer keeps much of what was freed, and their memory would grow.
  static bool KeepLittle() {
    const char* given = std::getenv("ASAN_OPTIONS");
    const std::string options = given == nullptr ? "" : given;
    return ::setenv("ASAN_OPTIONS", (options + ":quarantine_size_mb=4").c_str(), 1) == 0;
  }

  const bool keeps_little_ = KeepLittle();
  Cluster cluster_;
  std::string library_;
  History history_;
  std::atomic<int> done_{0}, faults_{0};
  int phase_ = 0;
  std::mutex mutex_;
  std::vector<std::string> known_;
};

// Seldom enough for a step to have as many attempts as there are faults while it runs.
void SoakTest::BreakThings(Clock::time_point end) {
  std::mt19937 random(7);
  std::vector<std::string> names = Cluster::Services();
  names.emplace_back("gateway");
  while (Clock::now() < end && !HasFailure()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5000 + random() % 10000));
    const std::string& name = names[random() % names.size()];
    switch (random() % 3) {
      case 0:
        cluster_.Kill(name);
        cluster_.Start(name);
        break;
      case 1:
        cluster_.Drain(name);
        cluster_.Start(name);
        break;
      default:
        cluster_.process(name).Signal(SIGSTOP);
        std::this_thread::sleep_for(std::chrono::milliseconds(random() % 3000));
        cluster_.process(name).Signal(SIGCONT);
    }
    ++faults_;
  }
}

void SoakTest::Read(User& user, const std::string& workflow, bool to_the_end) {
  Event event;
  event.workflow = workflow;
  event.begin = Clock::now();
  const auto read =
      to_the_end ? user.client().Watch(workflow, {}) : user.client().Get(workflow, {});
  event.end = Clock::now();
  if (absl::IsNotFound(read.status())) {
    event.kind = Kind::kMissing;
  } else {
    ASSERT_TRUE(read.ok()) << read.status();
    event.state = read->state();
    event.revision = read->revision();
    for (const pb::Step& step : read->steps()) {
      event.is_within_attempts = event.is_within_attempts && step.attempt() <= step.max_attempts();
    }
    if (read->state() == pb::STATE_SUCCEEDED) event.library = LibraryOf(*read);
    if (read->state() == pb::STATE_FAILED) event.detail = Failures(*read);
  }
  history_.Add(event);
}

void SoakTest::ReadSomebodys(User& user, std::mt19937& random) {
  std::string workflow;
  {
    const std::lock_guard lock(mutex_);
    if (known_.empty()) return;
    workflow = known_[random() % known_.size()];
  }
  Read(user, workflow, random() % 4 == 0);
}

// One workflow: new, cached, or one that fails; watched, cancelled in the middle, asked for twice, deleted.
void SoakTest::Turn(User& user, const std::string& id, std::mt19937& random) {
  const uint32_t what = random() % 10;
  pb::WorkflowSpec spec = user.Spec(what < 4 ? "reference" : id);
  const bool fails = what == 9;
  if (fails) {
    for (pb::StepSpec& step : *spec.mutable_steps()->mutable_steps()) {
      if (step.name() == "edit") step.mutable_edit()->set_script("remove nothing_of_that_name");
    }
  }
  history_.Expect(id, {fails ? pb::STATE_FAILED : pb::STATE_SUCCEEDED, fails ? "" : library_});
  std::string workflow;
  for (int times = random() % 3 == 0 ? 2 : 1; times > 0; --times) {
    Event event;
    event.kind = Kind::kCreated;
    event.request = id;
    event.begin = Clock::now();
    const auto created = user.Create(spec, id);
    event.end = Clock::now();
    ASSERT_TRUE(created.ok()) << created.status();
    event.workflow = workflow = *created;
    history_.Add(event);
  }
  {
    const std::lock_guard lock(mutex_);
    known_.push_back(workflow);
  }
  for (uint32_t i = random() % 3; i > 0; --i) ReadSomebodys(user, random);
  const auto act = [&](Kind kind, const std::function<absl::Status()>& call) {
    Event event;
    event.kind = kind;
    event.workflow = workflow;
    event.begin = Clock::now();
    const absl::Status status = call();
    event.end = Clock::now();
    // Whether an answer that was lost stood for a deed is not known: it may have, at any time from then on.
    if (!status.ok()) event.end = Clock::time_point::max();
    history_.Add(event);
  };
  if (random() % 8 == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 3000));
    act(Kind::kCancelled, [&] { return user.client().Cancel(workflow); });
  }
  Read(user, workflow, true);
  Read(user, workflow, false);
  if (random() % 2 == 0) {
    act(Kind::kDeleted, [&] { return user.client().Delete(workflow, {}); });
    Read(user, workflow, false);
  }
  ++done_;
}

std::map<std::string, Holdings> SoakTest::AtRest() {
  std::vector<std::string> names = Cluster::Services();
  names.emplace_back("gateway");
  EXPECT_TRUE(WaitFor(
      [&] {
        return std::all_of(names.begin(), names.end(), [&](const std::string& name) {
          return HoldingsOf(cluster_.process(name).pid()).children == 0;
        });
      },
      seconds(30)))
      << "processes of steps are left";
  EXPECT_TRUE(WaitFor([&] { return Leftovers(cluster_).empty(); }, seconds(30)))
      << fmt::format("{}", fmt::join(Leftovers(cluster_), "\n"));
  std::map<std::string, Holdings> all;
  for (const std::string& name : names) all[name] = HoldingsOf(cluster_.process(name).pid());
  return all;
}

TEST(SoakDurationTest, IsANumberAboveZero) {
  EXPECT_EQ(*DurationIn(nullptr), seconds(1800));
  EXPECT_EQ(*DurationIn("60"), seconds(60));
  for (const char* wrong : {"", "0", "-5", "60s", "1e3", " 60", "half an hour", "99999999999"}) {
    EXPECT_FALSE(DurationIn(wrong).ok()) << wrong;
  }
}

TEST_F(SoakTest, AnswersFitTogetherAndNothingIsLeft) {
  const absl::StatusOr<seconds> duration = DurationIn(std::getenv("QUENCH_SOAK_SECONDS"));
  ASSERT_TRUE(duration.ok()) << duration.status();
  const Clock::time_point end = Clock::now() + *duration;
  std::thread faults([&] { BreakThings(end); });
  Work(end);
  faults.join();
  ASSERT_FALSE(HasFailure());
  // The same work before both looks, so that what fills once (pools, caches) is full at the first.
  Work(Clock::now() + *duration / 9);
  const auto before = AtRest();
  const int done_before = done_;
  Work(Clock::now() + *duration * 2 / 9);
  const auto after = AtRest();
  std::cout << fmt::format("{} workflows, {} faults, {} events\n", done_.load(), faults_.load(),
                           history_.size());
  for (const auto& [name, now] : after) {
    const Holdings& was = before.at(name);
    std::cout << fmt::format("{}: RssAnon {} to {} KiB, {} to {} threads, {} to {} descriptors\n",
                             name, was.anonymous_kib, now.anonymous_kib, was.threads, now.threads,
                             was.descriptors, now.descriptors);
    EXPECT_LE(now.descriptors, was.descriptors + 8) << name;
    EXPECT_LE(now.threads, was.threads + 8) << name;
    // Allocators keep what they had at the busiest moment.
    EXPECT_LE(now.anonymous_kib, was.anonymous_kib + was.anonymous_kib / 4 + (32 << 10)) << name;
  }
  EXPECT_GT(done_, done_before);
  EXPECT_GT(faults_, 0);
  const std::vector<std::string> problems = history_.Problems();
  EXPECT_TRUE(problems.empty()) << fmt::format("{}", fmt::join(problems, "\n"));
}

}  // namespace
}  // namespace quench::testing::soak_test
