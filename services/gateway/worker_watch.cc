#include "services/gateway/worker_watch.h"

#include <spdlog/spdlog.h>

#include <array>

#include "common/base/status.h"
#include "common/rpc/health.h"

namespace quench::gateway {
namespace {

using metrics::Service;
using metrics::WorkerState;

constexpr std::chrono::seconds kTimeout{2};

struct Watched {
  Service service;
  const char* name;
  std::shared_ptr<rpc::Channel> channel;
  bool serves = true;  // as far as the log says
};

}  // namespace

WorkerWatch::WorkerWatch(ServiceChannels channels, std::chrono::milliseconds period,
                         metrics::Registry* registry)
    : channels_(std::move(channels)),
      period_(period),
      registry_(registry),
      thread_([this] { Run(); }) {}

WorkerWatch::~WorkerWatch() { cancel_->Cancel(); }

std::map<metrics::Service, WorkerWatch::Seen> WorkerWatch::seen() const {
  const std::lock_guard lock(mutex_);
  return seen_;
}

void WorkerWatch::Run() {
  std::array<Watched, 4> all = {Watched{Service::kImporter, "importer", channels_.importer},
                                Watched{Service::kAnalyser, "analyser", channels_.analyser},
                                Watched{Service::kQuantizer, "quantizer", channels_.quantizer},
                                Watched{Service::kCodegen, "codegen", channels_.codegen}};
  while (!cancel_->cancelled()) {
    for (Watched& each : all) {
      if (each.channel == nullptr) continue;
      StepContext step(cancel_, nullptr);
      step.set_deadline(std::chrono::steady_clock::now() + kTimeout);
      const absl::Status status = rpc::CheckHealth(*each.channel, step);
      if (cancel_->cancelled()) return;
      {
        const std::lock_guard lock(mutex_);
        seen_[each.service] = {status.ok(), MessageOf(status)};
      }
      registry_->Get(metrics::kWorkers, each.service, WorkerState::kReady).Set(status.ok() ? 1 : 0);
      registry_->Get(metrics::kWorkers, each.service, WorkerState::kLost).Set(status.ok() ? 0 : 1);
      if (std::exchange(each.serves, status.ok()) == status.ok()) continue;
      if (status.ok()) {
        spdlog::info("service {} serves again", each.name);
      } else {
        spdlog::warn("service {}: {}", each.name, MessageOf(status));
      }
    }
    std::unique_lock lock(mutex_);
    stopped_.wait_for(lock, cancel_->stop_token(), period_, [] { return false; });
  }
}

}  // namespace quench::gateway
