// The gateway's fleets, for a client that has a channel to it.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/context.h"
#include "common/rpc/channel.h"
#include "quench/gateway/v1/fleets.grpc.pb.h"
#include "quench/gateway/v1/workflows.grpc.pb.h"

namespace quench::cli {

// A gateway that restarts, or is moved to another machine, is back within this time.
inline constexpr auto kFleetPatience = std::chrono::minutes(10);

class FleetClient {
 public:
  explicit FleetClient(std::shared_ptr<rpc::Channel> channel)
      : channel_(std::move(channel)),
        fleets_(gateway::v1::Fleets::NewStub(channel_->grpc())),
        workflows_(gateway::v1::Workflows::NewStub(channel_->grpc())) {}

  // `tenant` "": the caller's own; another's fleets are for operators.
  absl::StatusOr<gateway::v1::Fleet> Get(const std::string& id, const StepContext& context,
                                         const std::string& tenant = "");
  // Newest first, at most `limit`. `tenant` `-`: of all.
  absl::StatusOr<std::vector<gateway::v1::Fleet>> List(int limit, const StepContext& context,
                                                       const std::string& tenant);
  // Visits the cells of these shards, of all if there are none, a page at a time.
  using Visit = std::function<absl::Status(const gateway::v1::FleetCell&)>;
  absl::Status ForEachCell(const std::string& id, const std::vector<int>& shards,
                           const Visit& visit, const StepContext& context);
  // Number of workflows.
  absl::StatusOr<int> Cancel(const std::string& id, const StepContext& context,
                             const std::string& tenant);
  // Queues a part of a fleet again that failed or was cancelled, as `ended` has it. It may be repeated: OK also if that
  // was done since, or the part is gone.
  absl::Status RetryShard(const gateway::v1::Workflow& ended, const StepContext& context);

 private:
  template <typename Stub, typename Request, typename Response>
  absl::Status Call(Stub& stub,
                    grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response, const StepContext& context);

  const std::shared_ptr<rpc::Channel> channel_;
  const std::unique_ptr<gateway::v1::Fleets::Stub> fleets_;
  const std::unique_ptr<gateway::v1::Workflows::Stub> workflows_;
};

}  // namespace quench::cli
