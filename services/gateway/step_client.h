// Steps over gRPC: each is a streamed call to its service.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "common/rpc/call_pool.h"
#include "common/rpc/channel.h"
#include "services/gateway/step_runner.h"

namespace quench::gateway {

// Channels to the services. If one is absent, its steps fail.
struct ServiceChannels {
  std::shared_ptr<rpc::Channel> importer, analyser, quantizer, codegen;
};

// Stores bytes of a tenant; may block.
using PutBlob =
    std::function<absl::StatusOr<Digest>(const std::string& tenant, const std::string& bytes)>;

class StepClient final : public StepRunner {
 public:
  // Result messages are stored by `put_blob`, on `threads` threads.
  StepClient(ServiceChannels channels, PutBlob put_blob, int threads, metrics::Registry* registry);
  // Cancels the calls that run, and waits for their ends.
  ~StepClient() override;

  bool Serves(metrics::Service service) const override;
  void Start(const StepCall& call, OnEvent on_event) override;
  void Cancel(uint64_t run) override;
  void StoreAgain(uint64_t run) override;

  // One gRPC call to a service.
  class Call {
   public:
    virtual ~Call() = default;
    virtual void Begin() = 0;
    virtual void TryCancel() = 0;
  };
  // Called by a call as its last act, with its result, or null, and its status.
  void End(uint64_t run, const std::string& tenant, OnEvent on_event,
           std::shared_ptr<google::protobuf::Message> result, const absl::Status& status);

 private:
  std::shared_ptr<rpc::Channel> ChannelOf(metrics::Service service) const;
  // The end of a call, whose result is still to be stored.
  struct Finished {
    std::string tenant;
    OnEvent on_event;
    std::shared_ptr<google::protobuf::Message> result;  // null if the call failed
    absl::Status status;
  };
  // Runs on a thread of the pool.
  void Finish(uint64_t run, Finished finished);
  std::optional<Finished> TakeUnstored(uint64_t run);
  absl::StatusOr<std::shared_ptr<StepResult>> Store(const std::string& tenant,
                                                    const google::protobuf::Message& result);

  const ServiceChannels channels_;
  const PutBlob put_blob_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::map<uint64_t, std::shared_ptr<Call>> calls_;
  std::map<uint64_t, Finished> unstored_;
  int ending_ = 0;  // calls that have ended while their results are being stored
  rpc::CallPool pool_;
};

}  // namespace quench::gateway
