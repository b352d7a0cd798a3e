// Watches for operators which services serve: asks them repeatedly, whether or not there is work for
// them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "common/base/context.h"
#include "common/metrics/metrics.h"
#include "services/gateway/step_client.h"

namespace quench::gateway {

class WorkerWatch {
 public:
  // Asks each service that has a channel, every `period`, and shows in `registry` (not owned) whether
  // it serves. Nothing is shown for services without a channel.
  WorkerWatch(ServiceChannels channels, std::chrono::milliseconds period,
              metrics::Registry* registry);
  ~WorkerWatch();

  struct Seen {
    bool serves = false;
    std::string problem;  // the last answer, where it does not
  };
  // The findings of the last round, by service; those without a channel are missing. Thread-safe.
  std::map<metrics::Service, Seen> seen() const;

 private:
  void Run();

  const ServiceChannels channels_;
  const std::chrono::milliseconds period_;
  metrics::Registry* const registry_;
  const std::shared_ptr<CancelToken> cancel_ = std::make_shared<CancelToken>();
  mutable std::mutex mutex_;
  std::map<metrics::Service, Seen> seen_;
  std::condition_variable_any stopped_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace quench::gateway
