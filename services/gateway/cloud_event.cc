#include "services/gateway/cloud_event.h"

#include <fmt/format.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/time_util.h>
#include <spdlog/spdlog.h>

#include "common/base/status.h"
#include "common/blobs/digest.h"
#include "common/rpc/message_json.h"
#include "services/gateway/fleet.h"
#include "services/gateway/job_store.h"

namespace quench::gateway {
namespace {

// Null where it cannot be written: what services say is in it. The receiver learns what the event is about.
std::string DataOf(const google::protobuf::Message& message) {
  absl::StatusOr<std::string> json = rpc::MessageJson(message);
  if (json.ok()) return *std::move(json);
  spdlog::error("an event has no data: {}", MessageOf(json.status()));
  return "null";
}

std::string JsonText(const std::string& text) {
  google::protobuf::Value value;
  value.set_string_value(text);
  absl::StatusOr<std::string> json = rpc::MessageJson(value);
  QUENCH_CHECK(json.ok());  // text always can be written
  return *std::move(json);
}

}  // namespace

std::vector<QueuedEvent> EventsFor(const std::vector<std::string>& urls, const std::string& type,
                                   const std::string& id, const std::string& source, int64_t now_us,
                                   const google::protobuf::Message& data) {
  const std::string time = google::protobuf::util::TimeUtil::ToString(TimestampOf(now_us));
  const std::string body = fmt::format(
      R"({{"specversion":"1.0","id":{},"source":{},"type":{},"time":{},"datacontenttype":"application/json","data":{}}})",
      JsonText(id), JsonText(source), JsonText(type), JsonText(time), DataOf(data));
  std::vector<QueuedEvent> events;
  for (const std::string& url : urls) {
    events.push_back({fmt::format("{}.{}", id, Sha256Hex(url).substr(0, 8)), url, body, now_us, 0});
  }
  return events;
}

// A fleet that is retried ends again: that is another event.
std::vector<QueuedEvent> FleetEvents(const std::vector<std::string>& urls,
                                     const std::vector<v1::Workflow>& workflows) {
  const v1::Fleet fleet = FleetOf(workflows);
  int64_t revisions = 0;
  for (const v1::Workflow& workflow : workflows) revisions += workflow.revision();
  const std::string id =
      Sha256Hex(fmt::format("{}\n{}\n{}", fleet.tenant(), fleet.id(), revisions)).substr(0, 32);
  return EventsFor(urls, kFleetEnded, id, "/fleets/" + fleet.id(), Microseconds(fleet.end_time()),
                   fleet);
}

}  // namespace quench::gateway
