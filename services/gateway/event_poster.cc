#include "services/gateway/event_poster.h"

#include <google/protobuf/util/time_util.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <random>

#include "common/base/status.h"
#include "quench/config/v1/config.pb.h"
#include "services/gateway/webhooks.h"

namespace quench::gateway {
namespace {

using metrics::WebhookResult;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kLookedAt = 64;               // events beyond those that are held
constexpr size_t kMostOfOneReceiver = 256;  // held; the others stay in the queue alone
constexpr int kAtOnceToOneReceiver = 4;     // that is quick
constexpr milliseconds kQuick{1000};
// How far apart those are put off that there is no room for.
constexpr milliseconds kPace{4}, kSlowPace{64};
constexpr milliseconds kLongestRetryAfter{24 * 3'600'000};
constexpr size_t kFinishedKept = 10'000;
constexpr milliseconds kTellEvery{60'000};  // of events that are dropped, for each receiver

int64_t UnixMicros() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}
int64_t Micros(milliseconds time) { return std::chrono::microseconds(time).count(); }

// Receivers that all failed at once are not all asked again at once.
milliseconds Jittered(milliseconds delay) {
  thread_local std::minstd_rand random{std::random_device{}()};
  return milliseconds(
      std::uniform_int_distribution<int64_t>(delay.count() * 3 / 4, delay.count())(random));
}

// Seconds or a date (RFC 9110); nothing for anything else.
std::optional<milliseconds> RetryAfterOf(const http::Response& response) {
  const auto header = response.headers.find("retry-after");
  if (header == response.headers.end()) return std::nullopt;
  const std::string& text = header->second;
  int64_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size()) {
    std::tm date{};
    const char* rest = strptime(text.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &date);
    if (rest == nullptr || *rest != '\0') return std::nullopt;
    seconds = timegm(&date) - std::time(nullptr);
  }
  return std::clamp(milliseconds(std::clamp<int64_t>(seconds, 0, 1'000'000) * 1000),
                    milliseconds(0), kLongestRetryAfter);
}

}  // namespace

absl::StatusOr<PosterOptions> PosterOptionsOf(const config::v1::Webhooks& config) {
  PosterOptions options;
  options.secret_file = config.secret_file();
  options.ca_file = config.ca_file();
  if (config.has_retry_for()) {
    const google::protobuf::Duration& time = config.retry_for();
    constexpr int64_t kYearSeconds = 366LL * 24 * 3600;
    if (time.seconds() < 0 || time.nanos() < 0 || time.seconds() > kYearSeconds) {
      return InvalidArgument("webhooks.retry_for: {} s, must be 0 to a year", time.seconds());
    }
    options.retry_for =
        milliseconds(google::protobuf::util::TimeUtil::DurationToMilliseconds(time));
  }
  return options;
}

absl::StatusOr<std::unique_ptr<EventPoster>> EventPoster::Start(EventQueue* queue,
                                                                const PosterOptions& options) {
  std::string secret;
  rpc::WatchedFile file(options.secret_file);
  if (!options.secret_file.empty()) {
    const absl::StatusOr<std::string> text = *file.Changed();
    QUENCH_RETURN_IF_ERROR(Annotate(text.status(), "webhooks.secret_file"));
    absl::StatusOr<std::string> read = ReadSecret(*text);
    QUENCH_RETURN_IF_ERROR(Annotate(read.status(), "webhooks.secret_file"));
    secret = *std::move(read);
  }
  std::unique_ptr<EventPoster> poster(new EventPoster(queue, options, std::move(secret)));
  poster->looker_ = std::thread([raw = poster.get()] { raw->Look(); });
  return poster;
}

EventPoster::EventPoster(EventQueue* queue, const PosterOptions& options, std::string secret)
    : queue_(queue),
      options_(options),
      secret_file_(options.secret_file),
      secret_(std::move(secret)) {}

void EventPoster::Wake() {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  looks_.notify_one();
}

void EventPoster::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    looks_.notify_all();
    works_.notify_all();
  }
  stop_.request_stop();
  if (looker_.joinable()) looker_.join();  // it starts the others
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  const std::lock_guard lock(mutex_);
  LogDropped(true);
}

void EventPoster::Look() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    woken_ = false;
    const int most = static_cast<int>(held_.size()) + kLookedAt;
    const int64_t now_us = UnixMicros();
    lock.unlock();
    absl::StatusOr<std::vector<QueuedEvent>> due = queue_->DueEvents(now_us, most);
    std::vector<Verdict> verdicts;
    lock.lock();
    if (due.ok()) {
      const bool full = static_cast<int>(due->size()) >= most;
      if (Admit(*std::move(due), now_us, &verdicts) && full) woken_ = true;  // there may be more
      StartThreads();
    } else {
      spdlog::warn("events for webhooks cannot be read: {}", MessageOf(due.status()));
    }
    lock.unlock();
    Tell(verdicts);
    lock.lock();
    ShowWaiting();
    LogDropped(false);
    const int64_t end_us = now_us + Micros(options_.look_every);
    while (!woken_ && !stopping_) {
      const int64_t next_us = dues_.empty() ? end_us : std::min(end_us, dues_.begin()->first);
      const int64_t left_us = next_us - UnixMicros();
      if (left_us <= 0) break;
      looks_.wait_for(lock, std::chrono::microseconds(left_us));
    }
  }
}

bool EventPoster::Admit(std::vector<QueuedEvent> due, int64_t now_us,
                        std::vector<Verdict>* verdicts) {
  while (!dues_.empty() && dues_.begin()->first <= now_us) {
    later_.erase(dues_.begin()->second);
    dues_.erase(dues_.begin());
  }
  bool news = false;
  for (QueuedEvent& event : due) {
    if (held_.contains(event.id) || later_.contains(event.id)) continue;
    if (finished_.contains(event.id)) {
      verdicts->push_back({Verdict::kDelivered, event.id});
      continue;
    }
    news = true;
    absl::StatusOr<http::Url> url = http::ParseUrl(event.url);
    const bool forbidden = url.ok() && options_.allowed && !IsAllowed(*url, *options_.allowed);
    if (!url.ok() || forbidden) {  // unlike when it was queued
      spdlog::warn(
          "event {} is dropped: its URL {}", event.id,
          forbidden ? url->origin() + " is not allowed any more" : MessageOf(url.status()));
      Finish(event.id);
      options_.registry->Get(metrics::kWebhooks, WebhookResult::kDropped).Increment();
      verdicts->push_back({Verdict::kDropped, event.id});
      continue;
    }
    Receiver& receiver = receivers_[url->origin()];
    if (receiver.rests_until_us > now_us) {
      verdicts->push_back(
          Later(&receiver, event, event.attempts, receiver.rests_until_us, "no answer"));
    } else if (receiver.waiting.size() >= kMostOfOneReceiver) {
      // Each gets a time of its own, so that a long queue is not looked at as a whole every time.
      receiver.crowded_until_us =
          std::max(receiver.crowded_until_us, now_us) + Micros(receiver.slow ? kSlowPace : kPace);
      // One that was never posted, as after a long stop of the gateway, gets its turn whatever its age.
      verdicts->push_back(event.attempts > 0
                              ? Later(&receiver, event, event.attempts, receiver.crowded_until_us,
                                      "others come first")
                              : PutOff(event, event.attempts, receiver.crowded_until_us));
    } else {
      held_.insert(event.id);
      receiver.waiting.push_back({std::move(event), *std::move(url)});
    }
  }
  return news;
}

void EventPoster::StartThreads() {
  size_t wanted = 0;
  for (const auto& [origin, receiver] : receivers_) {
    const int most = receiver.quick ? kAtOnceToOneReceiver : 1;
    wanted += std::min<size_t>(receiver.waiting.size(),
                               static_cast<size_t>(std::max(0, most - receiver.posting)));
  }
  const size_t most = stopping_ ? 0 : static_cast<size_t>(options_.at_once);
  for (size_t idle = static_cast<size_t>(idle_); idle < wanted && threads_.size() < most; ++idle) {
    threads_.emplace_back([this] { Work(); });
  }
  works_.notify_all();
}

std::optional<EventPoster::Job> EventPoster::Take() {
  auto next = receivers_.upper_bound(last_receiver_);
  for (size_t i = 0; i < receivers_.size(); ++i, ++next) {
    if (next == receivers_.end()) next = receivers_.begin();
    Receiver& receiver = next->second;
    if (receiver.waiting.empty() ||
        receiver.posting >= (receiver.quick ? kAtOnceToOneReceiver : 1)) {
      continue;
    }
    Job job = std::move(receiver.waiting.front());
    receiver.waiting.pop_front();
    ++receiver.posting;
    last_receiver_ = next->first;
    return job;
  }
  return std::nullopt;
}

void EventPoster::Work() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const std::optional<Job> job = Take();
    if (!job) {
      ++idle_;
      works_.wait(lock);
      --idle_;
      continue;
    }
    lock.unlock();
    const Outcome outcome = Post(*job);
    std::vector<Verdict> verdicts;
    lock.lock();
    Settle(*job, outcome, &verdicts);
    StartThreads();
    lock.unlock();
    Tell(verdicts);
    lock.lock();
    if (outcome.kind != Outcome::kCancelled) held_.erase(job->event.id);
    looks_.notify_one();  // something may be due sooner than it knows
    ShowWaiting();
  }
}

void EventPoster::Settle(const Job& job, const Outcome& outcome, std::vector<Verdict>* verdicts) {
  const QueuedEvent& event = job.event;
  const std::string origin = job.url.origin();
  Receiver& receiver = receivers_[origin];
  --receiver.posting;
  receiver.quick = outcome.quick;
  receiver.slow = !outcome.quick;
  if (outcome.kind == Outcome::kCancelled) return;
  receiver.failures = outcome.kind == Outcome::kUnanswered ? receiver.failures + 1 : 0;
  if (outcome.kind == Outcome::kDelivered) {
    Finish(event.id);
    options_.registry->Get(metrics::kWebhooks, WebhookResult::kDelivered).Increment();
    verdicts->push_back({Verdict::kDelivered, event.id});
  } else if (outcome.kind == Outcome::kGone) {
    Finish(event.id);
    options_.registry->Get(metrics::kWebhooks, WebhookResult::kDropped).Increment();
    spdlog::warn("webhook {}: event {} is dropped: the receiver is gone for good (410)", origin,
                 event.id);
    verdicts->push_back({Verdict::kDropped, event.id});
  } else {
    options_.registry->Get(metrics::kWebhooks, WebhookResult::kFailed).Increment();
    const int attempts = event.attempts + 1;
    const milliseconds delay = std::max(DelayOf(attempts, options_.longest_delay),
                                        outcome.retry_after.value_or(milliseconds(0)));
    spdlog::debug("webhook {}: attempt {} for event {}: {}", origin, attempts, event.id,
                  outcome.reason);
    verdicts->push_back(
        Later(&receiver, event, attempts, UnixMicros() + Micros(delay), outcome.reason));
  }
  if (outcome.retry_after) Rest(&receiver, *outcome.retry_after, verdicts);
  if (receiver.failures > 0) {
    Rest(&receiver, DelayOf(receiver.failures, options_.longest_rest), verdicts);
  }
}

void EventPoster::Rest(Receiver* receiver, milliseconds delay, std::vector<Verdict>* verdicts) {
  receiver->rests_until_us = std::max(receiver->rests_until_us, UnixMicros() + Micros(delay));
  for (const Job& job : receiver->waiting) {
    held_.erase(job.event.id);
    verdicts->push_back(
        Later(receiver, job.event, job.event.attempts, receiver->rests_until_us, "no answer"));
  }
  receiver->waiting.clear();
}

EventPoster::Verdict EventPoster::Later(Receiver* receiver, const QueuedEvent& event, int attempts,
                                        int64_t next_us, const std::string& why) {
  const int64_t end_us = event.first_us + Micros(options_.retry_for);
  if (UnixMicros() >= end_us) {
    Finish(event.id);
    options_.registry->Get(metrics::kWebhooks, WebhookResult::kDropped).Increment();
    ++receiver->dropped;
    receiver->last_dropped = fmt::format("{} after {} attempts: {}", event.id, attempts, why);
    return {Verdict::kDropped, event.id};
  }
  if (attempts > 0) next_us = std::min(next_us, end_us);  // one more attempt at the end
  return PutOff(event, attempts, next_us);
}

EventPoster::Verdict EventPoster::PutOff(const QueuedEvent& event, int attempts, int64_t next_us) {
  later_[event.id] = next_us;
  dues_.emplace(next_us, event.id);
  return {Verdict::kLater, event.id, attempts, next_us};
}

void EventPoster::LogDropped(bool all) {
  const int64_t now_us = UnixMicros();
  for (auto& [origin, receiver] : receivers_) {
    if (receiver.dropped == 0) continue;
    if (!all && now_us - receiver.told_us < Micros(kTellEvery)) continue;
    spdlog::warn("webhook {}: {} events are dropped that were not taken in time, the last one {}",
                 origin, receiver.dropped, receiver.last_dropped);
    receiver.dropped = 0;
    receiver.told_us = now_us;
  }
}

void EventPoster::Finish(const std::string& id) {
  if (!finished_.insert(id).second) return;
  finished_order_.push_back(id);
  if (finished_order_.size() > kFinishedKept) {
    finished_.erase(finished_order_.front());
    finished_order_.pop_front();
  }
}

void EventPoster::ShowWaiting() {
  options_.registry->Get(metrics::kWebhooksWaiting)
      .Set(static_cast<double>(held_.size() + later_.size()));
}

void EventPoster::Tell(const std::vector<Verdict>& verdicts) {
  for (const Verdict& verdict : verdicts) {
    switch (verdict.kind) {
      case Verdict::kDelivered:
        queue_->Delivered(verdict.id);
        break;
      case Verdict::kLater:
        queue_->PostLater(verdict.id, verdict.attempts, verdict.next_us);
        break;
      case Verdict::kDropped:
        queue_->Dropped(verdict.id);
        break;
    }
  }
}

milliseconds EventPoster::DelayOf(int attempts, milliseconds longest) const {
  const int doublings = std::clamp(attempts - 1, 0, 30);
  return Jittered(std::min(longest, options_.first_delay * (int64_t{1} << doublings)));
}

std::string EventPoster::Secret() {
  if (options_.secret_file.empty()) return "";
  const std::lock_guard lock(secret_mutex_);
  const std::optional<absl::StatusOr<std::string>> text = secret_file_.Changed();
  if (!text) return secret_;
  absl::StatusOr<std::string> secret = text->ok() ? ReadSecret(**text) : text->status();
  if (secret.ok()) {
    secret_ = *std::move(secret);
  } else {
    spdlog::error("webhooks.secret_file: {}; the secret before is used",
                  MessageOf(secret.status()));
  }
  return secret_;
}

EventPoster::Outcome EventPoster::Post(const Job& job) {
  const std::string timestamp = std::to_string(UnixMicros() / 1'000'000);
  http::Headers headers = {{"webhook-id", job.event.id}, {"webhook-timestamp", timestamp}};
  const std::string secret = Secret();
  if (!secret.empty()) {
    headers["webhook-signature"] = Signature(secret, job.event.id, timestamp, job.event.body);
  }
  http::RequestOptions request;
  request.timeout = options_.timeout;
  request.ca_file = options_.ca_file;
  request.max_body = 4096;
  request.cut_body = true;
  request.stop = stop_.get_token();
  const auto begin = steady_clock::now();
  const absl::StatusOr<http::Response> response =
      http::Post(job.url, job.event.body, "application/cloudevents+json", headers, request);
  Outcome outcome;
  if (!response.ok()) {
    const bool stopped = absl::IsCancelled(response.status());
    outcome.kind = stopped ? Outcome::kCancelled : Outcome::kUnanswered;
    outcome.reason = MessageOf(response.status());
    return outcome;
  }
  if (response->status >= 200 && response->status < 300) {
    outcome.kind = Outcome::kDelivered;
    outcome.quick = steady_clock::now() - begin < kQuick;
    return outcome;
  }
  outcome.kind = response->status == 410 ? Outcome::kGone : Outcome::kRefused;
  outcome.reason = fmt::format("answered {}", response->status);
  if (outcome.kind == Outcome::kRefused) outcome.retry_after = RetryAfterOf(*response);
  return outcome;
}

}  // namespace quench::gateway
