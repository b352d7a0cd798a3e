#include "common/steps/pipes.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "common/base/status.h"

namespace quench::steps {
namespace {

constexpr size_t kLengthBytes = 4;

}  // namespace

absl::StatusOr<std::string> FrameOf(const google::protobuf::MessageLite& message) {
  const size_t size = message.ByteSizeLong();
  if (size > kMaxFrameBytes) {
    return absl::ResourceExhaustedError(
        fmt::format("a message of {} bytes, at most {} go over a pipe", size, kMaxFrameBytes));
  }
  std::string frame(kLengthBytes, '\0');
  for (size_t i = 0; i < kLengthBytes; ++i) frame[i] = static_cast<char>(size >> (8 * i) & 0xFF);
  if (!message.AppendToString(&frame)) return Internal("a message cannot be serialised");
  return frame;
}

absl::Status WriteFrame(int fd, const google::protobuf::MessageLite& message) {
  QUENCH_ASSIGN_OR_RETURN(const std::string frame, FrameOf(message));
  for (size_t done = 0; done < frame.size();) {
    const ssize_t written = ::write(fd, frame.data() + done, frame.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      return absl::UnavailableError(
          fmt::format("cannot write to the pipe: {}", std::strerror(errno)));
    }
    done += static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

bool FrameBuffer::Fill(int fd) {
  std::array<char, 64 << 10> chunk;
  ssize_t count = 0;
  do {
    count = ::read(fd, chunk.data(), chunk.size());
  } while (count < 0 && errno == EINTR);
  if (count <= 0) return false;
  bytes_.append(chunk.data(), static_cast<size_t>(count));
  return true;
}

absl::StatusOr<std::optional<std::string>> FrameBuffer::Next() {
  if (bytes_.size() < kLengthBytes) return std::nullopt;
  size_t size = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    size |= size_t{static_cast<unsigned char>(bytes_[i])} << (8 * i);
  }
  if (size > kMaxFrameBytes) {
    return InvalidArgument("a message of {} bytes on a pipe, at most {} are taken", size,
                           kMaxFrameBytes);
  }
  if (bytes_.size() < kLengthBytes + size) return std::nullopt;
  std::string message = bytes_.substr(kLengthBytes, size);
  bytes_.erase(0, kLengthBytes + size);
  return message;
}

}  // namespace quench::steps
