#include "common/http/client_stream.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace quench::http {
namespace {

// The bytes that `move` moves, anew where a signal comes between.
template <typename Move>
ssize_t Uninterrupted(const Move& move) {
  ssize_t moved = -1;
  do {
    errno = 0;
    moved = move();
  } while (moved < 0 && errno == EINTR);
  return moved;
}

}  // namespace

bool AnswerBounds::Count(char byte) {
  ++line_;
  if (!in_body_) ++header_;
  if (line_ > kLongestLine) excess_ = fmt::format("a line of more than {} bytes", kLongestLine);
  if (header_ > kLongestHeader) {
    excess_ = fmt::format("more than {} bytes before its body", kLongestHeader);
  }
  if (byte == '\n') line_ = 0;
  return excess_.empty();
}

ssize_t ClientStream::Receive() {
  return Uninterrupted([this]() -> ssize_t {
    if (tls_ != nullptr) return SSL_read(tls_, buffer_.data(), static_cast<int>(buffer_.size()));
    return ::recv(socket_, buffer_.data(), buffer_.size(), 0);
  });
}

ssize_t ClientStream::read(char* bytes, size_t most) {
  if (used_ == received_) {
    const ssize_t received = Receive();
    if (received <= 0) return received;
    used_ = 0;
    received_ = static_cast<size_t>(received);
  }
  const size_t size = std::min(most, received_ - used_);
  std::copy_n(buffer_.data() + used_, size, bytes);
  used_ += size;
  // The library reads lines byte by byte and bodies by the buffer, whose last byte may come alone. Not told by the blank
  // line: another header follows an answer of 100.
  const bool in_line = !bounds_.in_body() || most == 1;
  for (size_t i = 0; i < size && in_line; ++i) {
    if (!bounds_.Count(bytes[i])) return -1;
  }
  return static_cast<ssize_t>(size);
}

ssize_t ClientStream::write(const char* bytes, size_t size) {
  constexpr size_t kMost = size_t{1} << 20;  // an int for OpenSSL
  if (size == 0) return 0;
  size = std::min(size, kMost);
  const ssize_t sent = Uninterrupted([&]() -> ssize_t {
    if (tls_ != nullptr) return SSL_write(tls_, bytes, static_cast<int>(size));
    return ::send(socket_, bytes, size, MSG_NOSIGNAL);
  });
  return sent > 0 ? sent : -1;  // the library tries again for ever after 0
}

}  // namespace quench::http
