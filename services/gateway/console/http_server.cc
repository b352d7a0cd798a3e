#include "services/gateway/console/http_server.h"

#include <fcntl.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "common/base/status.h"
#include "common/rpc/address.h"

namespace quench::gateway {
namespace {

// Errors of accept() that are the connection's, not the listener's.
bool IsOfConnection(int error) {
  return error == EAGAIN || error == EINTR || error == ECONNABORTED || error == EPROTO ||
         error == EPERM || error == ENETDOWN || error == EHOSTDOWN || error == EHOSTUNREACH ||
         error == ENETUNREACH || error == ETIMEDOUT;
}

bool IsShortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

// A burst of connections waits; an accepted one that has gone does not make others wait.
bool Prepare(int listener) {
  constexpr int kBacklog = 128;  // the library's is 5
  return ::listen(listener, kBacklog) == 0 && ::fcntl(listener, F_SETFL, O_NONBLOCK) == 0;
}

}  // namespace

HttpServer::HttpServer(std::unique_ptr<HttpTls> tls, const HttpLimits& limits)
    : tls_(std::move(tls)), limits_(limits) {
  set_payload_max_length(limits_.max_body);
  // The library's default would share a port that another server has.
  set_socket_options([](socket_t socket) {
    const int yes = 1;
    (void)setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
}

HttpServer::~HttpServer() { Stop(); }

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Make(
    const std::optional<rpc::TlsFiles>& files, const HttpLimits& limits) {
  std::unique_ptr<HttpTls> tls;
  if (files) {
    QUENCH_ASSIGN_OR_RETURN(tls, HttpTls::Make(*files));
  }
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(tls), limits));
}

absl::StatusOr<int> HttpServer::Bind(const std::string& listen) {
  QUENCH_RETURN_IF_ERROR(rpc::CheckAddress(listen, false));
  if (!rpc::UnixPath(listen).empty()) {
    return InvalidArgument("`{}`: browsers do not reach a unix socket: must be HOST:PORT", listen);
  }
  const size_t colon = listen.rfind(':');
  host_ = listen.substr(0, colon);
  if (host_.starts_with('[') && host_.ends_with(']')) host_ = host_.substr(1, host_.size() - 2);
  port_ = std::stoi(listen.substr(colon + 1));
  if (port_ == 0) {
    port_ = bind_to_any_port(host_);
  } else if (!bind_to_port(host_, port_)) {
    port_ = -1;
  }
  if (port_ <= 0) {
    return absl::UnavailableError(
        fmt::format("cannot listen on `{}`: the address is in use or not of this machine", listen));
  }
  return port_;
}

void HttpServer::Begin() {
  (void)Prepare(svr_sock_);
  for (int i = 0; i < limits_.threads; ++i) threads_.emplace_back([this] { Work(); });
  accepting_ = std::thread([this] { Accept(); });
}

void HttpServer::Stop() {
  {
    const std::lock_guard lock(mutex_);
    load_.stopping = true;
  }
  changed_.notify_all();
  {
    const std::lock_guard lock(listener_mutex_);
    if (svr_sock_ != INVALID_SOCKET) ::shutdown(svr_sock_, SHUT_RDWR);  // ends its poll()
  }
  if (accepting_.joinable()) accepting_.join();
  // From here on the library sees that it stops.
  if (const int listener = svr_sock_.exchange(INVALID_SOCKET); listener >= 0) ::close(listener);
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  for (const int socket : waiting_) ::close(socket);
  waiting_.clear();
}

void HttpServer::Accept() {
  constexpr int kLookMs = 1000;
  while (!load_.stopping) {
    const int listener = svr_sock_;
    pollfd wait{listener, POLLIN, 0};
    if (listener >= 0 && ::poll(&wait, 1, kLookMs) == 0) continue;
    if (load_.stopping) return;
    const int socket = ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    const int error = errno;
    if (socket >= 0) {
      Enqueue(socket);
    } else if (!IsOfConnection(error)) {
      spdlog::error("console: cannot take connections on port {}: {}", port_,
                    std::generic_category().message(error));
      if (!IsShortage(error)) Rebind();
      Rest();
    }
  }
}

void HttpServer::Rebind() {
  const std::lock_guard lock(listener_mutex_);
  if (load_.stopping) return;
  if (const int listener = svr_sock_.exchange(INVALID_SOCKET); listener >= 0) ::close(listener);
  if (!bind_to_port(host_, port_)) return;
  (void)Prepare(svr_sock_);
  spdlog::warn("console: listens on port {} again", port_);
}

void HttpServer::Rest() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::seconds(1), [this] { return load_.stopping.load(); });
}

// Called with `mutex_`.
void HttpServer::CountWaiting() { load_.crowded = waiting_.size() > idle_; }

void HttpServer::Enqueue(int socket) {
  std::unique_lock lock(mutex_);
  const auto most = static_cast<size_t>(limits_.waiting);
  changed_.wait(lock, [&] { return load_.stopping || waiting_.size() < most; });
  waiting_.push_back(socket);
  CountWaiting();
  changed_.notify_all();
}

void HttpServer::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    ++idle_;
    CountWaiting();
    changed_.wait(lock, [this] { return load_.stopping || !waiting_.empty(); });
    if (load_.stopping) return;
    --idle_;
    const int socket = waiting_.front();
    waiting_.pop_front();
    CountWaiting();
    changed_.notify_all();
    lock.unlock();
    Serve(socket);
    lock.lock();
  }
}

void HttpServer::Serve(int socket) {
  HttpStream stream(socket, tls_ == nullptr ? nullptr : tls_->context(), limits_, load_);
  if (stream.Begin()) {
    bool closed = false;
    (void)process_request(stream, true, closed, nullptr);
  }
  stream.End();
}

}  // namespace quench::gateway
