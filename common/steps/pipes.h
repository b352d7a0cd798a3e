// Messages over pipes, each behind its length.
#pragma once

#include <absl/status/statusor.h>
#include <google/protobuf/message_lite.h>

#include <cstddef>
#include <optional>
#include <string>

namespace quench::steps {

inline constexpr size_t kMaxFrameBytes = size_t{64} << 20;

// The message behind its length. RESOURCE_EXHAUSTED above kMaxFrameBytes.
absl::StatusOr<std::string> FrameOf(const google::protobuf::MessageLite& message);

// Writes the whole message, waiting for the reader. UNAVAILABLE when there is none any more; SIGPIPE
// must be ignored.
absl::Status WriteFrame(int fd, const google::protobuf::MessageLite& message);

// Bytes as they come, messages as they are complete.
class FrameBuffer {
 public:
  // Reads once from `fd`. False at its end, or when it cannot be read.
  bool Fill(int fd);
  // The next complete message's bytes, if there is one. INVALID_ARGUMENT when the length cannot be.
  absl::StatusOr<std::optional<std::string>> Next();

 private:
  std::string bytes_;
};

}  // namespace quench::steps
