// Requests from clients that are newer than their server.
#pragma once

#include <absl/status/status.h>

namespace google::protobuf {
class Message;
}

namespace quench::rpc {

// UNIMPLEMENTED with UNKNOWN_FIELD if `message`, or one within it, has fields that this program's
// descriptors lack, because they would be ignored. The error has the path of each
// (`spec.steps[2].compile.compile_options.4000`; the last part is the field's number).
absl::Status CheckKnownFields(const google::protobuf::Message& message);

}  // namespace quench::rpc
