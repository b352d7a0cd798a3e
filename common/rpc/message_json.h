// Messages as JSON: for browsers, and for receivers of events.
#pragma once

#include <absl/status/statusor.h>

#include <string>

namespace google::protobuf {
class Message;
}

namespace quench::rpc {

// Errors in it lose their details if one of these cannot be written: its type is not known here, or its value or its bytes
// are wrong. INTERNAL if something else cannot be, such as a duration beyond those of JSON: services send them.
absl::StatusOr<std::string> MessageJson(const google::protobuf::Message& message);

}  // namespace quench::rpc
