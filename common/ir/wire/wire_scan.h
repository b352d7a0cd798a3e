// A look at serialised protobuf before it is parsed.
#pragma once

#include <absl/status/status.h>
#include <google/protobuf/descriptor.h>

#include <string>
#include <string_view>

namespace quench::wire {

// RFC 3629, section 4.
bool IsUtf8(std::string_view text);

// Two bytes of input can make a message object of a hundred bytes and more. Fails when `bytes`,
// read as `type`, have more than `max_parts` sub-messages and repeated strings in all, nest deeper
// than `max_depth`, or are malformed; the error says at which byte.
absl::Status ScanMessage(const std::string& bytes, const google::protobuf::Descriptor& type,
                         size_t max_parts, int max_depth);

}  // namespace quench::wire
