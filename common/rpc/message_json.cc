#include "common/rpc/message_json.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>

#include <memory>
#include <vector>

#include "common/base/status.h"
#include "google/rpc/status.pb.h"

namespace quench::rpc {
namespace {

using google::protobuf::util::MessageToJsonString;

void ClearDetails(google::protobuf::Message* message) {
  if (message->GetDescriptor() == google::rpc::Status::descriptor()) {
    message->GetReflection()->ClearField(message,
                                         message->GetDescriptor()->FindFieldByName("details"));
    return;
  }
  const google::protobuf::Reflection& reflection = *message->GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection.ListFields(*message, &fields);
  for (const google::protobuf::FieldDescriptor* field : fields) {
    if (field->message_type() == nullptr) continue;
    if (!field->is_repeated()) {
      ClearDetails(reflection.MutableMessage(message, field));
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(*message, field); ++i) {
      ClearDetails(reflection.MutableRepeatedMessage(message, field, i));
    }
  }
}

}  // namespace

absl::StatusOr<std::string> MessageJson(const google::protobuf::Message& message) {
  std::string text;
  if (MessageToJsonString(message, &text).ok()) return text;
  const std::unique_ptr<google::protobuf::Message> plain(message.New());
  plain->CopyFrom(message);
  ClearDetails(plain.get());
  text.clear();
  if (const auto written = MessageToJsonString(*plain, &text); !written.ok()) {
    return Internal("a {} cannot be written as JSON: {}", message.GetTypeName(),
                    std::string(written.message()));
  }
  return text;
}

}  // namespace quench::rpc
