#include "common/http/http_server.h"

#include <fcntl.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <system_error>

#include "common/base/status.h"

namespace quench::http {
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

bool IsHostAndPort(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == 0 || colon == std::string_view::npos) return false;
  const std::string_view host = text.substr(0, colon), port = text.substr(colon + 1);
  if (port.empty() || port.size() > 5 ||
      port.find_first_not_of("0123456789") != std::string_view::npos ||
      std::stoi(std::string(port)) > 65535) {
    return false;
  }
  if (host.front() == '[') {
    return host.back() == ']' &&
           host.find_first_not_of("0123456789abcdefABCDEF:.[]") == std::string_view::npos;
  }
  return host.find_first_of(":,+[] ") == std::string_view::npos;
}

// A burst of connections waits; an accepted one that has gone does not make others wait.
bool Prepare(int listener) {
  constexpr int kBacklog = 128;  // the library's is 5
  return ::listen(listener, kBacklog) == 0 && ::fcntl(listener, F_SETFL, O_NONBLOCK) == 0;
}

}  // namespace

absl::Status CheckRequest(const httplib::Request& request, int* http_status) {
  if (request.get_header_value("Range").find(',') != std::string::npos) {
    *http_status = 416;
    return InvalidArgument("`Range`: must be one range");
  }
  if (request.method == "GET" || request.method == "HEAD") return absl::OkStatus();
  if (!request.has_header("Content-Length") || request.has_header("Transfer-Encoding") ||
      request.has_header("Content-Encoding")) {
    *http_status = 411;
    return InvalidArgument("the body must come as it is, with its length in `Content-Length`");
  }
  return absl::OkStatus();
}

Server::Server(const Limits& limits, SSL_CTX* tls) : limits_(limits), tls_(tls) {
  set_payload_max_length(limits_.max_body);
  // The library's default would share a port that another server has.
  set_socket_options([](socket_t socket) {
    const int yes = 1;
    (void)setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
  set_pre_routing_handler([](const httplib::Request& request, httplib::Response& response) {
    return CheckRequest(request, &response.status).ok() ? HandlerResponse::Unhandled
                                                        : HandlerResponse::Handled;
  });
  // The library's default tells the client what the exception says.
  set_exception_handler(
      [](const httplib::Request& request, httplib::Response& response, const std::exception_ptr&) {
        spdlog::error("HTTP: an exception came out of the handler of {}", request.path);
        response.status = 500;
      });
}

Server::~Server() { Stop(); }

absl::StatusOr<int> Server::Bind(const std::string& listen) {
  if (!IsHostAndPort(listen)) {
    return InvalidArgument("cannot listen on `{}`: the address must be HOST:PORT", listen);
  }
  const size_t colon = listen.rfind(':');
  host_ = listen.substr(0, colon);
  if (host_.starts_with('[')) host_ = host_.substr(1, host_.size() - 2);
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

void Server::Begin() {
  (void)Prepare(svr_sock_);
  for (int i = 0; i < limits_.threads; ++i) threads_.emplace_back([this] { Work(); });
  accepting_ = std::thread([this] { Accept(); });
}

void Server::Stop() {
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

void Server::Accept() {
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
      spdlog::error("HTTP: cannot take connections on port {}: {}", port_,
                    std::generic_category().message(error));
      if (!IsShortage(error)) Rebind();
      Rest();
    }
  }
}

void Server::Rebind() {
  const std::lock_guard lock(listener_mutex_);
  if (load_.stopping) return;
  if (const int listener = svr_sock_.exchange(INVALID_SOCKET); listener >= 0) ::close(listener);
  if (!bind_to_port(host_, port_)) return;
  (void)Prepare(svr_sock_);
  spdlog::warn("HTTP: listens on port {} again", port_);
}

void Server::Rest() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::seconds(1), [this] { return load_.stopping.load(); });
}

// Called with `mutex_`.
void Server::CountWaiting() { load_.crowded = waiting_.size() > idle_; }

void Server::Enqueue(int socket) {
  std::unique_lock lock(mutex_);
  const auto most = static_cast<size_t>(limits_.waiting);
  changed_.wait(lock, [&] { return load_.stopping || waiting_.size() < most; });
  waiting_.push_back(socket);
  CountWaiting();
  changed_.notify_all();
}

void Server::Work() {
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

void Server::Serve(int socket) {
  Stream stream(socket, tls_, limits_, load_);
  if (stream.Begin()) {
    bool closed = false;
    (void)process_request(stream, true, closed, nullptr);
  }
  stream.End();
}

}  // namespace quench::http
