#include "services/gateway/job_store.h"

#include <google/protobuf/util/time_util.h>
#include <openssl/rand.h>

#include <charconv>
#include <limits>

#include "common/base/status.h"
#include "common/rpc/errors.h"

namespace quench::gateway {

namespace {
constexpr char kWorkflows[] = "workflows/";
constexpr char kOperations[] = "operations/";
}  // namespace

std::string WorkflowName(const std::string& id) { return kWorkflows + id; }
std::string OperationName(const std::string& id) { return kOperations + id; }

std::string IdOf(const std::string& name) {
  for (const std::string prefix : {kWorkflows, kOperations}) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return "";
}

std::string NewWorkflowId() {
  std::array<unsigned char, 16> bytes{};
  QUENCH_CHECK(RAND_bytes(bytes.data(), bytes.size()) == 1);  // a machine without randomness
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

bool HasEnded(v1::State state) {
  return state == v1::STATE_SUCCEEDED || state == v1::STATE_FAILED || state == v1::STATE_CANCELLED;
}

int64_t Microseconds(const google::protobuf::Timestamp& time) {
  return google::protobuf::util::TimeUtil::TimestampToMicroseconds(time);
}

google::protobuf::Timestamp TimestampOf(int64_t microseconds) {
  return google::protobuf::util::TimeUtil::MicrosecondsToTimestamp(microseconds);
}

std::string PageToken(const PagePosition& position) {
  return fmt::format("{}.{}", position.us, position.id);
}

absl::StatusOr<PagePosition> ParsePageToken(const std::string& token) {
  PagePosition position;
  const char* const end = token.data() + token.size();
  const auto [stop, error] = std::from_chars(token.data(), end, position.us);
  if (error != std::errc() || stop == end || *stop != '.') {
    return rpc::WithField(
        rpc::Error(rpc::Reason::kInvalidRequest,
                   fmt::format("page_token `{}` is not one that a page gave", token.substr(0, 80))),
        {"page_token", "must be a page's next_page_token"});
  }
  position.id = std::string(stop + 1, end);
  return position;
}

absl::Status NoSuchWorkflow(const std::string& id) {
  return rpc::Error(rpc::Reason::kNotFound,
                    fmt::format("there is no workflow `{}`", WorkflowName(id.substr(0, 80))));
}

absl::Status NotEnded(const std::string& id) {
  return rpc::Error(rpc::Reason::kFailedPrecondition,
                    fmt::format("workflow `{}` has not ended: cancel it first", WorkflowName(id)));
}

PagePosition PositionOf(const v1::Workflow& workflow, const ListOrder& order) {
  const std::string id = IdOf(workflow.name());
  if (!order.by_end) return {Microseconds(workflow.create_time()), id};
  if (!workflow.has_end_time()) return {std::numeric_limits<int64_t>::max(), id};
  return {Microseconds(workflow.end_time()), id};
}

PagePosition StartOf(const ListOrder& order) {
  if (order.ascending) return {std::numeric_limits<int64_t>::min(), ""};
  return {std::numeric_limits<int64_t>::max(), "~"};  // ids are hex digits
}

absl::Status ShardExists(const v1::FleetShard& shard) {
  return rpc::Error(
      rpc::Reason::kAlreadyExists,
      fmt::format("fleet `{}` has another workflow as shard {}", shard.fleet(), shard.shard()));
}

absl::Status OtherShards(const v1::FleetShard& shard, int shards) {
  return rpc::WithField(
      rpc::Error(rpc::Reason::kInvalidRequest, fmt::format("fleet `{}` has {} shards, not {}",
                                                           shard.fleet(), shards, shard.shards())),
      {"spec.fleet.shards", "must be the same in all workflows of a fleet"});
}

absl::Status RequestIdInUse(const std::string& request_id) {
  return rpc::Error(rpc::Reason::kAlreadyExists,
                    fmt::format("request_id `{}` was used for another request", request_id));
}

}  // namespace quench::gateway
