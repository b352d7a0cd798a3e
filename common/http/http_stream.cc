#include "common/http/http_stream.h"

#include <netdb.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

namespace quench::http {
namespace {

constexpr auto kSlice = std::chrono::milliseconds(100);  // between two looks at the load
constexpr std::string_view kHeaderEnd = "\r\n\r\n";
constexpr char kTooLarge[] = "431 Request Header Fields Too Large";
constexpr char kTooSlow[] = "408 Request Timeout";

using NameOfSocket = int (*)(int, sockaddr*, socklen_t*);

void AddressOf(int socket, NameOfSocket name, std::string* host, int* port) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  std::array<char, NI_MAXHOST> text{};
  if (name(socket, any, &size) != 0 ||
      getnameinfo(any, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    return;
  }
  *host = text.data();
  *port = ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(any)->sin6_port
                                              : reinterpret_cast<sockaddr_in*>(any)->sin_port);
}

}  // namespace

Stream::Stream(int socket, SSL_CTX* tls, const Limits& limits, const Load& load)
    : socket_(socket),
      limits_(limits),
      load_(load),
      ssl_(tls == nullptr ? nullptr : SSL_new(tls), SSL_free),
      shaken_(tls == nullptr) {
  if (ssl_ == nullptr) return;
  SSL_set_fd(ssl_.get(), socket_);
  SSL_set_mode(ssl_.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
}

Stream::~Stream() { ::close(socket_); }

bool Stream::IsLate(Clock::time_point start, const TimeLimit& limit) const {
  return Clock::now() >= start + (load_.crowded ? limit.crowded : limit.usual);
}

// The bytes that `attempt` moves, as soon as it does; -1 after `limit`, at the server's end, or if it fails.
template <typename Try>
ssize_t Stream::Repeat(Clock::time_point start, const TimeLimit& limit, const Try& attempt) {
  while (!load_.stopping && !IsLate(start, limit)) {
    const Step step = attempt();
    if (step.awaits == 0) return step.moved;
    pollfd wait{socket_, step.awaits, 0};
    if (::poll(&wait, 1, kSlice.count()) < 0 && errno != EINTR) return -1;
  }
  return -1;
}

Stream::Step Stream::StepOf(int result) const {
  if (result > 0) return {result, 0};
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      return {-1, POLLIN};
    case SSL_ERROR_WANT_WRITE:
      return {-1, POLLOUT};
    case SSL_ERROR_ZERO_RETURN:
      return {0, 0};
    default:
      return {-1, 0};
  }
}

bool Stream::Begin() {
  if (shaken_) return true;
  shaken_ = ssl_ != nullptr && Repeat(start_, limits_.request, [this] {
                                 ERR_clear_error();
                                 return StepOf(SSL_accept(ssl_.get()));
                               }) > 0;
  return shaken_;
}

Stream::Step Stream::Receive(char* bytes, size_t most) {
  if (ssl_ != nullptr) {
    ERR_clear_error();
    return StepOf(SSL_read(ssl_.get(), bytes, static_cast<int>(most)));
  }
  const ssize_t received = ::recv(socket_, bytes, most, 0);
  const bool again = received < 0 && (errno == EAGAIN || errno == EINTR);
  return {received, static_cast<short>(again ? POLLIN : 0)};
}

Stream::Step Stream::Send(const char* bytes, size_t size) {
  constexpr size_t kMost = size_t{1} << 20;  // an int for OpenSSL
  size = std::min(size, kMost);
  if (ssl_ != nullptr) {
    ERR_clear_error();
    return StepOf(SSL_write(ssl_.get(), bytes, static_cast<int>(size)));
  }
  const ssize_t sent = ::send(socket_, bytes, size, MSG_NOSIGNAL);
  const bool again = sent < 0 && (errno == EAGAIN || errno == EINTR);
  return {sent, static_cast<short>(again ? POLLOUT : 0)};
}

bool Stream::Fill() {
  constexpr size_t kChunk = 4096;
  used_ = 0;
  buffer_.resize(kChunk);
  const ssize_t received =
      Repeat(start_, limits_.request, [this] { return Receive(buffer_.data(), buffer_.size()); });
  buffer_.resize(static_cast<size_t>(std::max<ssize_t>(received, 0)));
  // Browsers open connections that they may need: those that say nothing are told nothing.
  if (received < 0 && header_ > 0 && IsLate(start_, limits_.request)) refusal_ = kTooSlow;
  return !buffer_.empty();
}

bool Stream::EndsHeader(char byte) {
  if (byte != kHeaderEnd[matched_]) matched_ = 0;
  if (byte == kHeaderEnd[matched_]) ++matched_;
  return matched_ == kHeaderEnd.size();
}

ssize_t Stream::read(char* bytes, size_t most) {
  if (refusal_ != nullptr) return -1;
  if (used_ == buffer_.size() && !Fill()) return refusal_ == nullptr ? 0 : -1;
  const size_t size = std::min(most, buffer_.size() - used_);
  for (size_t i = 0; i < size && in_header_; ++i) {
    in_header_ = !EndsHeader(buffer_[used_ + i]);
    if (++header_ <= limits_.max_header) continue;
    refusal_ = kTooLarge;
    return -1;
  }
  std::copy_n(buffer_.data() + used_, size, bytes);
  used_ += size;
  return static_cast<ssize_t>(size);
}

ssize_t Stream::write(const char* bytes, size_t size) {
  if (refusal_ != nullptr) return -1;
  if (size == 0) return 0;
  return Repeat(Clock::now(), limits_.stall, [&] { return Send(bytes, size); });
}

// A socket that is closed with bytes unread takes the response back that is on its way.
void Stream::Discard() {
  constexpr TimeLimit kTime{std::chrono::milliseconds(500), std::chrono::milliseconds(0)};
  int left = 0;
  if (::ioctl(socket_, FIONREAD, &left) != 0 || left == 0) return;
  std::array<char, 4096> bytes{};
  const auto start = Clock::now();
  while (Repeat(start, kTime, [&]() -> Step {
           const ssize_t got = ::recv(socket_, bytes.data(), bytes.size(), 0);
           return {got, static_cast<short>(got < 0 && errno == EAGAIN ? POLLIN : 0)};
         }) > 0) {
  }
}

void Stream::End() {
  if (refusal_ != nullptr) {
    std::string host;
    int port = 0;
    get_remote_ip_and_port(host, port);
    spdlog::info("HTTP: request refused: {} peer={}:{}", refusal_, host, port);
    const std::string answer =
        std::string("HTTP/1.1 ") + refusal_ + "\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    (void)Send(answer.data(), answer.size());
  }
  if (ssl_ != nullptr && shaken_) {
    ERR_clear_error();
    (void)SSL_shutdown(ssl_.get());
  }
  ::shutdown(socket_, SHUT_WR);
  Discard();
}

void Stream::get_remote_ip_and_port(std::string& ip, int& port) const {
  AddressOf(socket_, ::getpeername, &ip, &port);
}

void Stream::get_local_ip_and_port(std::string& ip, int& port) const {
  AddressOf(socket_, ::getsockname, &ip, &port);
}

}  // namespace quench::http
