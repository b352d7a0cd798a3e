// Messages over pipes, each preceded by its length.
#pragma once

#include <absl/status/statusor.h>
#include <google/protobuf/message_lite.h>

#include <cstddef>
#include <optional>
#include <string>

namespace quench::steps {

inline constexpr size_t kMaxFrameBytes = size_t{64} << 20;

// The message, preceded by its length. RESOURCE_EXHAUSTED above kMaxFrameBytes.
absl::StatusOr<std::string> FrameOf(const google::protobuf::MessageLite& message);

// Writes the whole message, waiting for the reader. UNAVAILABLE if the reader has gone; SIGPIPE
// must be ignored.
absl::Status WriteFrame(int fd, const google::protobuf::MessageLite& message);

// Reads bytes as they come, and gives messages once they are complete.
class FrameBuffer {
 public:
  // Reads once from `fd`. False at its end, or if it cannot be read.
  bool Fill(int fd);
  // The next complete message's bytes, if there is one. INVALID_ARGUMENT for an impossible length.
  absl::StatusOr<std::optional<std::string>> Next();

 private:
  std::string bytes_;
};

}  // namespace quench::steps
