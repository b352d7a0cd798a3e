// Posts queued events to their receivers, on threads of its own.
//
// A receiver (scheme, host and port) that answers well and at once gets several events at a time, any other one; one that
// does not answer at all rests, with all that waits for it. So none keeps others from theirs.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "common/http/http_client.h"
#include "common/metrics/metrics.h"
#include "common/rpc/watched_file.h"
#include "services/gateway/event_queue.h"

namespace quench::config::v1 {
class Webhooks;
}

namespace quench::gateway {

struct PosterOptions {
  std::filesystem::path secret_file;  // empty: events are not signed
  std::filesystem::path ca_file;      // empty: the system's authorities
  std::optional<std::vector<http::Url>>
      allowed;  // events for other URLs are dropped; absent: none are
  std::chrono::milliseconds retry_for{24 * 3'600'000};
  std::chrono::milliseconds timeout{15'000};           // of one post
  std::chrono::milliseconds first_delay{1000};         // doubles with every attempt
  std::chrono::milliseconds longest_delay{3'600'000};  // unless the receiver asks for more
  std::chrono::milliseconds longest_rest{300'000};     // of a receiver that does not answer
  std::chrono::milliseconds look_every{10'000};        // at what an earlier process has left
  int at_once = 32;                                    // posts, to all receivers together
  metrics::Registry* registry = &metrics::Global();    // not owned
};
absl::StatusOr<PosterOptions> PosterOptionsOf(const config::v1::Webhooks& config);

class EventPoster {
 public:
  // `queue` is not owned. INVALID_ARGUMENT, or the error of reading it: the secret.
  static absl::StatusOr<std::unique_ptr<EventPoster>> Start(EventQueue* queue,
                                                            const PosterOptions& options);
  ~EventPoster() { Stop(); }

  // There may be something due. Thread-safe, returns at once.
  void Wake();
  // Ends posts that are under way; what they carry stays queued, and may come twice.
  void Stop();

 private:
  struct Job {
    QueuedEvent event;
    http::Url url;
  };
  struct Receiver {
    std::deque<Job> waiting;
    int posting = 0;
    int failures = 0;    // posts in a row without any answer
    bool quick = false;  // the last answer was good and came at once
    bool slow = false;   // it was not
    int64_t rests_until_us = 0;
    int64_t crowded_until_us = 0;  // when the last of those comes that there was no room for
    // Events that it has not taken in time, and the log has not told of.
    int dropped = 0;
    std::string last_dropped;  // what the log says of the last one
    int64_t told_us = 0;       // when the log told of some
  };
  struct Outcome {
    enum Kind { kDelivered, kRefused, kUnanswered, kGone, kCancelled } kind = kCancelled;
    bool quick = false;
    std::string reason;
    std::optional<std::chrono::milliseconds> retry_after;
  };
  // The fate of an event, which the queue is told without the lock.
  struct Verdict {
    enum Kind { kDelivered, kLater, kDropped } kind = kDelivered;
    std::string id;
    int attempts = 0;
    int64_t next_us = 0;
  };

  EventPoster(EventQueue* queue, const PosterOptions& options, std::string secret);
  void Look();
  void Work();
  // With the lock held.
  // Whether there was anything new.
  bool Admit(std::vector<QueuedEvent> due, int64_t now_us, std::vector<Verdict>* verdicts);
  std::optional<Job> Take();
  void Settle(const Job& job, const Outcome& outcome, std::vector<Verdict>* verdicts);
  void Rest(Receiver* receiver, std::chrono::milliseconds delay, std::vector<Verdict>* verdicts);
  // An event that its receiver has not taken, or that waits for a receiver that has just not taken another; dropped if it
  // is too old.
  Verdict Later(Receiver* receiver, const QueuedEvent& event, int attempts, int64_t next_us,
                const std::string& why);
  Verdict PutOff(const QueuedEvent& event, int attempts, int64_t next_us);
  // A line for each receiver, once a minute at most unless `all`.
  void LogDropped(bool all);
  void Finish(const std::string& id);
  void StartThreads();

  void ShowWaiting();
  // Without it.
  void Tell(const std::vector<Verdict>& verdicts);
  Outcome Post(const Job& job);
  std::string Secret();
  std::chrono::milliseconds DelayOf(int attempts, std::chrono::milliseconds longest) const;

  EventQueue* const queue_;
  const PosterOptions options_;
  std::stop_source stop_;
  std::mutex secret_mutex_;
  rpc::WatchedFile secret_file_;
  std::string secret_;

  mutable std::mutex mutex_;
  std::condition_variable looks_, works_;
  bool woken_ = true, stopping_ = false;
  std::map<std::string, Receiver> receivers_;       // by origin
  std::string last_receiver_;                       // the turn is the next one's
  std::set<std::string> held_;                      // ids that wait here, or are being posted
  std::map<std::string, int64_t> later_;            // ids that are due later, and when
  std::set<std::pair<int64_t, std::string>> dues_;  // the same by time
  // The latest that have ended: a look that began before may still see them, and so does every look
  // while the store cannot write.
  std::set<std::string> finished_;
  std::deque<std::string> finished_order_;
  int idle_ = 0;
  std::vector<std::thread> threads_;
  std::thread looker_;
};

}  // namespace quench::gateway
