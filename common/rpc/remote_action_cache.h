// An action cache in a server of the Remote Execution API.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "common/blobs/action_cache.h"
#include "common/rpc/channel.h"
#include "common/rpc/remote_blobs.h"

namespace quench::rpc {

// The key of an action is used as the hash of its digest, with a size of 64 bytes: there is no such
// message. Results of Get have stdout_raw, even if the server keeps it as a blob. Calls are retried for
// `retry_time`.
class RemoteActionCache : public ActionCache {
 public:
  RemoteActionCache(std::shared_ptr<Channel> channel, std::string instance,
                    std::chrono::milliseconds retry_time = std::chrono::milliseconds(60'000));
  ~RemoteActionCache() override;

  // INVALID_ARGUMENT from Put for values that are not an ActionResult.
  absl::StatusOr<std::optional<std::string>> Get(const std::string& key,
                                                 const StepContext& step) override;
  absl::Status Put(const std::string& key, const std::string& value,
                   const StepContext& step) override;

 private:
  struct Stub;
  const std::shared_ptr<Channel> channel_;
  const std::string instance_;
  const std::chrono::milliseconds retry_time_;
  RemoteBlobs blobs_;
  const std::unique_ptr<Stub> stub_;
};

}  // namespace quench::rpc
