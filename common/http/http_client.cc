#include "common/http/http_client.h"

#include <absl/strings/ascii.h>
#include <httplib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/http/client_stream.h"

namespace quench::http {
namespace {

using std::chrono::steady_clock;

// Ends a request when its time is over. The library has timeouts for each read and write only: a
// server that sends a byte now and then would hold a caller for good. Whatever is going on with the
// socket - a handshake, a write, a read - ends once it is shut down.
class Deadline {
 public:
  Deadline(std::chrono::milliseconds timeout, std::stop_token stop)
      : end_(steady_clock::now() + timeout),
        stop_(std::move(stop)),
        thread_([this](const std::stop_token& done) { Run(done); }) {}
  ~Deadline() {
    thread_.request_stop();
    thread_.join();
    if (socket_ >= 0) close(socket_);
  }
  // Called for each address that is tried. A descriptor of our own: the library's number may be
  // another file's by the time that it is used here.
  void Watch(int socket) {
    const std::lock_guard lock(mutex_);
    if (socket_ >= 0) close(socket_);
    socket_ = dup(socket);
    if (over_ && socket_ >= 0) (void)shutdown(socket_, SHUT_RDWR);
  }
  // OK while there is time.
  absl::Status Check(const Url& url) {
    const std::lock_guard lock(mutex_);
    if (!over_) return absl::OkStatus();
    if (stop_.stop_requested()) return absl::CancelledError("the request was cancelled");
    return absl::DeadlineExceededError(fmt::format("`{}` did not answer in time", url.origin()));
  }

 private:
  void Run(const std::stop_token& done) {
    const std::stop_callback wake(stop_, [this] {
      const std::lock_guard lock(mutex_);
      stopped_.notify_all();
    });
    std::unique_lock lock(mutex_);
    stopped_.wait_until(lock, done, end_, [this] { return stop_.stop_requested(); });
    if (done.stop_requested()) return;
    over_ = true;
    if (socket_ >= 0) (void)shutdown(socket_, SHUT_RDWR);
  }

  const steady_clock::time_point end_;
  const std::stop_token stop_;
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  bool over_ = false;
  int socket_ = -1;
  std::jthread thread_;  // last: it reads the others
};

absl::Status ErrorOf(httplib::Error error, const Url& url) {
  const std::string origin = url.origin();
  switch (error) {
    case httplib::Error::ConnectionTimeout:
      return absl::DeadlineExceededError(fmt::format("`{}` did not answer in time", origin));
    case httplib::Error::Connection:
      return absl::UnavailableError(fmt::format("cannot connect to `{}`", origin));
    case httplib::Error::SSLServerVerification:
      return absl::UnavailableError(fmt::format(
          "`{}` has a certificate that the authorities or its name do not vouch for", origin));
    case httplib::Error::SSLConnection:
      return absl::UnavailableError(fmt::format("no TLS connection with `{}`", origin));
    default:
      return absl::UnavailableError(
          fmt::format("`{}` ended the connection before its answer", origin));
  }
}

// The library's client, whose connection is ours. `bounds` outlives it.
template <typename Base>
class BoundedClient final : public Base {
 public:
  BoundedClient(const Url& url, AnswerBounds* bounds) : Base(url.host, url.port), bounds_(bounds) {}

 private:
  bool process_socket(const typename Base::Socket& connection,
                      std::function<bool(httplib::Stream&)> callback) override {
    ClientStream stream(connection.sock, connection.ssl, bounds_);
    return callback(stream);
  }

  AnswerBounds* const bounds_;
};

absl::StatusOr<std::unique_ptr<httplib::ClientImpl>> Connectable(const Url& url,
                                                                 const RequestOptions& options,
                                                                 AnswerBounds* bounds) {
  if (!url.tls) return std::make_unique<BoundedClient<httplib::ClientImpl>>(url, bounds);
  auto client = std::make_unique<BoundedClient<httplib::SSLClient>>(url, bounds);
  if (!client->is_valid()) return Internal("no TLS context");
  if (!options.ca_file.empty()) {
    // The library says only that the server is not verified.
    QUENCH_RETURN_IF_ERROR(Annotate(ReadFile(options.ca_file, size_t{16} << 20).status(),
                                    "certificates of authorities"));
    client->set_ca_cert_path(options.ca_file.string(), "");
  }
  client->enable_server_certificate_verification(true);
  return client;
}

absl::StatusOr<Response> Send(const Url& url, httplib::Request request, const Headers& headers,
                              const RequestOptions& options) {
  AnswerBounds bounds;
  QUENCH_ASSIGN_OR_RETURN(std::unique_ptr<httplib::ClientImpl> client,
                          Connectable(url, options, &bounds));
  Deadline deadline(options.timeout, options.stop);
  client->set_socket_options([&deadline](int socket) { deadline.Watch(socket); });
  client->set_connection_timeout(options.connect_timeout);
  client->set_read_timeout(options.timeout);
  client->set_write_timeout(options.timeout);
  client->set_follow_location(false);
  client->set_decompress(false);
  client->set_url_encode(false);
  client->set_tcp_nodelay(true);
  request.path = url.target();
  for (const auto& [name, value] : headers) request.set_header(name, value);
  request.set_header("Host", url.authority());
  request.set_header("User-Agent", "quench");
  request.set_header("Accept-Encoding", "identity");
  bool too_long = false;
  Response response;
  // Not called for answers without a body.
  const auto begin = [&response](const httplib::Response& begun) {
    response.status = begun.status;
    for (const auto& [name, value] : begun.headers) {
      response.headers.try_emplace(absl::AsciiStrToLower(name), value);
    }
    return true;
  };
  request.response_handler = [&](const httplib::Response& begun) {
    bounds.BeginBody();
    return begin(begun);
  };
  request.content_receiver = [&](const char* data, size_t size, uint64_t, uint64_t) {
    const size_t room = options.max_body - response.body.size();
    too_long = size > room;
    response.body.append(data, std::min(size, room));
    return !too_long;
  };
  const httplib::Result result = client->send(request);
  if (!bounds.excess().empty()) {
    return absl::ResourceExhaustedError(
        fmt::format("`{}` answered with {}", url.origin(), bounds.excess()));
  }
  if (too_long && !options.cut_body) {
    return absl::ResourceExhaustedError(
        fmt::format("`{}` answered with more than {} bytes", url.origin(), options.max_body));
  }
  if (result) begin(*result);
  if (result || too_long) return response;
  QUENCH_RETURN_IF_ERROR(deadline.Check(url));
  return ErrorOf(result.error(), url);
}

}  // namespace

absl::StatusOr<Response> Get(const Url& url, const Headers& headers,
                             const RequestOptions& options) {
  httplib::Request request;
  request.method = "GET";
  return Send(url, std::move(request), headers, options);
}

absl::StatusOr<Response> Post(const Url& url, const std::string& body,
                              const std::string& content_type, const Headers& headers,
                              const RequestOptions& options) {
  httplib::Request request;
  request.method = "POST";
  request.body = body;
  request.set_header("Content-Type", content_type);
  return Send(url, std::move(request), headers, options);
}

}  // namespace quench::http
