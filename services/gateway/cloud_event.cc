#include "services/gateway/cloud_event.h"

#include <fmt/format.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/time_util.h>

#include "common/base/status.h"
#include "common/blobs/digest.h"
#include "services/gateway/fleet.h"
#include "services/gateway/job_store.h"

namespace quench::gateway {
namespace {

std::string JsonOf(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = false;
  std::string json;
  QUENCH_CHECK(google::protobuf::util::MessageToJsonString(message, &json, options).ok());
  return json;
}

std::string JsonText(const std::string& text) {
  google::protobuf::Value value;
  value.set_string_value(text);
  return JsonOf(value);
}

}  // namespace

std::vector<QueuedEvent> EventsFor(const std::vector<std::string>& urls, const std::string& type,
                                   const std::string& id, const std::string& source, int64_t now_us,
                                   const google::protobuf::Message& data) {
  const std::string time = google::protobuf::util::TimeUtil::ToString(TimestampOf(now_us));
  const std::string body = fmt::format(
      R"({{"specversion":"1.0","id":{},"source":{},"type":{},"time":{},"datacontenttype":"application/json","data":{}}})",
      JsonText(id), JsonText(source), JsonText(type), JsonText(time), JsonOf(data));
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
